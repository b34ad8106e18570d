"""What a model remembers from one snapshot to the next, for all layers.

The state goes into a model and comes out of it; no module keeps any. Its history is cut nowhere in this room: the
gradient of a loss runs back through every snapshot computed since the state was made, as far as the first one. Whoever
drives the model decides where that ends, by :meth:`State.detach`, and always between two snapshots: group layouts start
each group from ``initial_state`` and never detach; a layout that carries state from one step to the next detaches it
right after that step's backward, since torch frees the history then. A learned initial state (the first weights of
EvolveGCN) therefore gets its gradient only from steps that start at ``initial_state``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class State:
    """Recurrent state: one tuple of tensors per layer.

    Where ``per_vertex``, each tensor has one row per vertex held (memories ``per_vertex`` and ``neighbourhood``, and
    ``none`` with no tensors); else rows are not vertices (memories ``weights`` and ``weights_from_data``).
    """

    layers: tuple[tuple[Tensor, ...], ...]
    per_vertex: bool = True

    def with_layer(self, layer: int, tensors: tuple[Tensor, ...]) -> State:
        """A copy with one layer's tensors replaced."""
        return State((*self.layers[:layer], tensors, *self.layers[layer + 1 :]), self.per_vertex)

    def detach(self) -> State:
        """The same values without their history."""
        return State(tuple(tuple(t.detach() for t in layer) for layer in self.layers), self.per_vertex)

    def slice(self, rows: slice) -> State:
        """The state of some of the vertices; weight memories are the same for all and stay whole."""
        if not self.per_vertex:
            return self
        return State(tuple(tuple(t[rows] for t in layer) for layer in self.layers))


def stack_layer(states: Sequence[State], layer: int) -> State:
    """The last state with one layer's tensors stacked over S snapshots, each (S, ...).

    It is what a model's ``spatial`` takes where its space stands for S snapshots and its memory is of weights: one W
    for each of them.
    """
    stacked = tuple(torch.stack(tensors) for tensors in zip(*(state.layers[layer] for state in states), strict=True))
    return states[-1].with_layer(layer, stacked)
