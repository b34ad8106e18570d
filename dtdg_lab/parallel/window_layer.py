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
from dtdg_lab.parallel.layer import Crossing, Layer, Tensors
from dtdg_lab.parallel.trapezoid_plain import with_late
from dtdg_lab.parallel.trapezoid_seam import WIDER


@dataclass(slots=True)
class Entering(Crossing):
    """A layer's state where vertices enter a window: as the step before left it, or zero.

    ``begin`` holds the rows of the first vertices; those beyond it start from zero.
    """

    model: DynamicModel | None = None

    def slice(self, rows: slice) -> State:
        """The state of a piece, as far as ``begin`` has it; zeros that share their memory where it has none of it."""
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

    @torch.no_grad()
    def after_entering(self, *, late: bool) -> Tensors:
        """The state of each vertex after the first snapshot that it is in; without history.

        Args:
            late: of all vertices; else of those that the oldest snapshot has.
        """
        found: list[Tensors] = []
        held, size = 0, WIDER * self._piece_rows()
        for part in self._parts if late else self._parts[:1]:
            for start in range(held, len(part), size):
                rows = slice(start, min(start + size, len(part)))
                x, begin = part[rows].unsqueeze(0), self._crossing.slice(rows)
                _, after = self._run.model.temporal_sequence(self._number, x, begin)
                found.append(after.layers[self._number])
            held = len(part)
        return tuple(torch.cat(tensors) for tensors in zip(*found, strict=True))

    def _loss(self, h: Tensor, at: range, rows: slice) -> Tensor:
        """Loss at all snapshots is that of the rows that each of them has."""
        if len(at) == 1:
            return super()._loss(h, at, rows)  # the newest, which has all of them
        run, z, first = self._run, self._run.model.readout(h), at.stop - len(h)
        losses, place = [], 0
        for some, of in groupby(self._heights(len(h), rows)):
            steps = len(list(of))
            snapshots = range(first + place, first + place + steps)
            here = slice(rows.start, rows.start + some)
            losses.append(run.loss(z[place : place + steps, :some], snapshots, here))
            place += steps
        return torch.stack(losses).sum()

    def _heights(self, snapshots: int, rows: slice) -> list[int]:
        """How many of a piece's vertices each of the newest snapshots has, oldest first."""
        return [min(len(part), rows.stop) - rows.start for part in self._parts[len(self._parts) - snapshots :]]

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
        heights = self._heights(len(x), rows)
        model, state, height = self._run.model, begin, x.shape[1]
        if len(x) == 1 or heights[0] == height:
            return model.temporal_sequence(self._number, x, state)
        found, at, held = [], 0, 0
        for some, of in groupby(heights):
            steps = len(list(of))
            state = self._grown(state, held, some, begin)
            h, state = model.temporal_sequence(self._number, x[at : at + steps, :some], state)
            found.append(torch.nn.functional.pad(h, (0, 0, 0, height - some)))
            at, held = at + steps, some
        return torch.cat(found), state

    def _grown(self, state: State, held: int, height: int, begin: State) -> State:
        """The first ``held`` rows, and those that enter now; only this layer's are asked for."""
        number = self._number
        pairs = zip(state.layers[number], begin.layers[number], strict=True)
        return state.with_layer(number, tuple(with_late(x[:held], of[held:height], height) for x, of in pairs))
