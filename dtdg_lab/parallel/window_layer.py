"""One layer of a model over a window: vertices that enter late run through the snapshots that have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from dtdg_lab.kernels.recurrence import at_rest
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.models.state import State
from dtdg_lab.parallel.layer import Crossing, Layer


@dataclass(slots=True)
class Entering(Crossing):
    """A layer's state where a window begins: carried for the oldest snapshot's vertices, zero for all that enter later.

    ``begin`` holds the rows of the oldest snapshot alone.
    """

    model: DynamicModel | None = None

    def slice(self, rows: slice) -> State:
        """The state of those of a piece that enter first."""
        held = self.begin.layers[0][0].shape[0]
        if rows.start < held:
            return self.begin.slice(slice(rows.start, min(rows.stop, held)))
        assert self.model is not None
        one, height = self.model.initial_state(1), rows.stop - rows.start
        return State(tuple(tuple(at_rest(x, height) for x in layer) for layer in one.layers))


class WindowLayer(Layer):
    """As :class:`dtdg_lab.parallel.layer.Layer`, where older snapshots have the first rows of newer ones.

    A piece has the snapshots of its first vertex. Where some of its vertices enter later, rows that a snapshot lacks
    are zeros in tensors of all of them, and in no computation.
    """

    alone = True  # measured: windows are short, and threads would wait for each other's calls more than they compute

    def _stacked(self, parts: Sequence[Tensor], rows: slice) -> Tensor:
        """A piece's rows in the snapshots that have any of them, (S', piece, C); zeros where one lacks some."""
        held = [part[rows] for part in parts if len(part) > rows.start]
        if len(held[0]) == rows.stop - rows.start:
            return torch.stack(held)
        out = held[0].new_zeros(len(held), rows.stop - rows.start, held[0].shape[1])
        for whole, some in zip(out, held, strict=True):
            whole[: len(some)] = some
        return out

    def _through_time(self, x: Tensor, begin: State, rows: slice) -> tuple[Tensor, State]:
        heights = [min(len(part), rows.stop) - rows.start for part in self._parts if len(part) > rows.start][-len(x) :]
        model, state, height = self._run.model, begin, x.shape[1]
        if len(x) == 1 or heights[0] == height:
            return model.temporal_sequence(self._number, x, state)
        found, at = [], 0
        for some, of in groupby(heights):
            steps = len(list(of))
            h, state = model.temporal_sequence(self._number, x[at : at + steps, :some], self._grown(state, some))
            found.append(torch.nn.functional.pad(h, (0, 0, 0, height - some)))
            at += steps
        return torch.cat(found), state

    def _grown(self, state: State, height: int) -> State:
        """Rows that enter now are zero; only this layer's are asked for."""
        layer = state.layers[self._number]
        if layer[0].shape[0] == height:
            return state
        more = tuple(torch.cat([x, x.new_zeros(height - x.shape[0], *x.shape[1:])]) for x in layer)
        return state.with_layer(self._number, more)
