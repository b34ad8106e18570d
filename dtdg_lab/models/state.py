"""What a model remembers from one snapshot to the next, for all layers."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class State:
    """Recurrent state: one tuple of tensors per layer.

    For ``per_vertex`` memory each tensor has one row per vertex held; for ``weights`` memory rows are not vertices.
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
