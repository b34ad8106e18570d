"""One layer of a model over one block of time: neighbours are mixed snapshot by snapshot, then vertices run through it.

Neighbours are mixed in as many snapshots at once as are small. The recurrence then never mixes vertices: a piece of
them runs through all snapshots while its rows are in the cache. In the last layer the piece goes on through readout,
loss and backward at once, so that no activation of the recurrence outlives its piece; in earlier layers the piece is
computed again when its gradient has come. What is kept for all vertices and snapshots is the spatial parts' outputs
and their gradients. Exact, whatever the pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
from torch import Tensor

from dtdg_lab.models.base import run_straight
from dtdg_lab.models.state import State
from dtdg_lab.parallel.learned import Gradients, Learned
from dtdg_lab.parallel.run import Run
from dtdg_lab.parallel.seam_width import SeamWidth
from dtdg_lab.parallel.threads import in_order
from dtdg_lab.parallel.time_block import Leg, TimeBlock

# Numbers in one snapshot's rows of a piece: few enough for a step's dozen arrays to fit a core's cache, many enough for
# the calls not to matter; on a GPU a piece should fill it.
STEP_NUMBERS = {"cpu": 65_536, "cuda": 8_388_608}
PIECE_NUMBERS = {"cpu": 4_194_304, "cuda": 67_108_864}  # of all S snapshots: bounds what a piece keeps for backward

T = TypeVar("T")
Tensors = tuple[Tensor, ...]


@dataclass(slots=True)
class Crossing:
    """A layer's state where a block of time begins and ends, of its m vertices.

    Attributes:
        begin: before the block, without history.
        carries: whether backward is to find the gradient of ``begin``.
        after: the gradients of the tensors after the block; none where nothing follows, None where nothing depends.
        end: the tensors after the block, once every vertex has been through it, where it ``keeps`` them.
        before: the gradients of ``begin``'s tensors, once backward has been.
    """

    begin: State
    carries: bool = False
    after: Gradients = ()
    end: Tensors = ()
    before: Tensors = ()
    keeps: bool = True

    def slice(self, rows: slice) -> State:
        """The state of a piece before the block."""
        return self.begin.slice(rows)


class Layer:
    """One layer of a block of a run, its spatial part done; for ``per_vertex`` memory.

    Args:
        run: what is differentiated.
        number: which layer.
        block: the S snapshots.
        inputs: for each own stack of S' snapshots the layer's input, (S' n, width).
        crossing: the state of the m vertices that are run through time here.
        learning: whether backward will follow.
        seam: what the spatial part gives.

    Attributes:
        alone: whether pieces are worked on one after another, all threads on each of them.
    """

    alone: ClassVar[bool] = False

    def __init__(
        self, run: Run, number: int, block: TimeBlock, inputs: list[Tensor], crossing: Crossing, *,
        learning: bool, seam: SeamWidth,
    ) -> None:  # fmt: skip
        self._run, self._number, self._block, self._crossing = run, number, block, crossing
        self._rows = block.vertices[number]
        self._device, self._learned, self._width = run.sequence.device, Learned(run.model), seam.width
        self._spaces, self._learns = block.stacks[number], seam.learned and learning
        self._inputs = inputs if number == 0 else [x.detach().requires_grad_(learning) for x in inputs]
        self._mixed = [run.model.zeros(0)] * len(self._spaces)
        self._gradients: list[Tensor] = []
        self._parts = self._mix(learning=learning)

    def _mix(self, *, learning: bool) -> list[Tensor]:
        """The spatial part of own snapshots, where vertices run through time."""
        run, number = self._run, self._number

        def mix(place: int) -> tuple[Tensor, None]:
            with torch.set_grad_enabled(learning):
                given = run.model.spatial(number, self._spaces[place], self._inputs[place], self._crossing.begin)
                mixed = run_straight(given)
            if self._learns:
                self._mixed[place] = mixed
            return mixed.detach(), None

        return self._block.seam.to_vertices(mix, Leg(number, False, self._width))[0]

    def hidden(self) -> list[Tensor]:
        """The layer's output for each own stack, (S' m, H), without history; the end of the crossing is known then."""
        end = self._room()

        @torch.no_grad()
        def through(rows: slice) -> tuple[Tensor, None]:
            h, after = self._through_time(self._piece(rows), self._crossing.slice(rows), rows)
            self._write(end, after.layers[self._number] if end else (), rows)
            return h, None

        leg = Leg(self._number, False, self._run.model.hidden)
        found, _ = self._block.seam.to_snapshots(
            through, self._pieces(), leg, like=self._parts[0], height=self._rows
        )  # fmt: skip
        self._crossing.end = end
        return found

    def run_through(self) -> None:
        """The end of the crossing alone."""
        end = self._room()

        @torch.no_grad()
        def through(rows: slice) -> None:
            _, after = self._through_time(self._piece(rows), self._crossing.slice(rows), rows)
            self._write(end, after.layers[self._number], rows)

        in_order(through, self._pieces(), device=self._device, alone=self.alone)
        self._crossing.end = end

    def losses(self) -> Tensor:
        """The block's share of a loss by vertex, piece by piece, each with its backward. For the last layer."""
        at = self._at(self._block.snapshots)

        def work(rows: slice) -> tuple[Tensor | None, tuple[Tensor, Gradients]]:
            piece = self._started(rows)
            loss = self._loss(piece.h, at, rows) if at else piece.h.new_zeros(())
            of_rows, gradients = self._back(piece, [loss], [None], rows)
            return of_rows, (loss.detach(), gradients)

        total = torch.zeros((), dtype=torch.float64, device=self._device)
        for loss, gradients in self._send_gradients(work):
            total += loss
            self._learned.add(gradients)
        return total

    def _loss(self, h: Tensor, at: range, rows: slice) -> Tensor:
        """What a piece, (S, piece, H), adds to the loss at some snapshots."""
        return self._run.loss(self._run.model.readout(self._where(h, at)), at, rows)

    def joint_loss(self) -> Tensor:
        """The block's share of a loss of all vertices together, with its backward; pieces are computed twice."""
        run, seam = self._run, self._block.seam

        @torch.no_grad()
        def read(rows: slice) -> tuple[Tensor, None]:
            h, _ = self._through_time(self._piece(rows), self._crossing.slice(rows), rows)
            return run.model.readout(h), None

        like = self._parts[0]
        found, _ = seam.to_snapshots(
            read, self._pieces(), Leg(self._number, False, run.model.outputs), like=like, height=self._rows
        )  # fmt: skip
        z = [rows.requires_grad_() for rows in found]
        loss, dz = self._joint(z)

        def of_readout(place: int) -> tuple[Tensor, None]:
            return dz[place], None

        parts, _ = seam.to_vertices(of_readout, Leg(self._number, True, run.model.outputs))

        def work(rows: slice) -> tuple[Tensor | None, Gradients]:
            piece = self._started(rows)
            return self._back(piece, [run.model.readout(piece.h)], [self._stacked(parts, rows)], rows)

        for gradients in self._send_gradients(work):
            self._learned.add(gradients)
        return loss

    def _joint(self, z: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Loss of own snapshots, from their readouts for each own stack, and the gradient of each."""
        run = self._run
        stacks = [space.snapshots for space in self._spaces]
        loss = run.model.zeros(1).sum()
        at = self._at(range(stacks[0].start, stacks[-1].stop)) if stacks else range(0)
        if at:
            read = [(of, rows) for of, rows in zip(stacks, z, strict=True) if of.stop > at.start and of.start < at.stop]
            every = torch.cat([rows.unflatten(0, (len(of), -1)) for of, rows in read])
            start = at.start - read[0][0].start
            loss = run.loss(every[start : start + len(at)], at, slice(0, run.own))
        if not loss.requires_grad:
            return loss, [torch.zeros_like(rows) for rows in z]
        found = torch.autograd.grad(loss, z, allow_unused=True)
        return loss.detach(), [torch.zeros_like(rows) if of is None else of for rows, of in zip(z, found, strict=True)]

    def pull_back(self, parts: list[Tensor]) -> None:
        """Backward through time, from the output's gradient in each snapshot, (m, H); pieces are computed again."""

        def work(rows: slice) -> tuple[Tensor | None, Gradients]:
            piece = self._started(rows)
            return self._back(piece, [piece.h], [self._stacked(parts, rows)], rows)

        for gradients in self._send_gradients(work):
            self._learned.add(gradients)

    def backward(self) -> list[Tensor]:
        """Backward through the spatial parts: the gradient of the layer's input in each snapshot; none in layer 0."""
        if not self._learns:
            return []

        def work(place: int) -> tuple[Tensor, Gradients]:
            ends, seeds = [self._mixed[place]], [self._gradients[place]]
            gradients, (of_input,) = self._learned.gradients(ends, seeds, [self._inputs[place]])
            self._mixed[place] = self._gradients[place] = seeds[0].new_empty(0)  # memory is let go
            assert of_input is not None or self._number == 0
            return seeds[0] if of_input is None else of_input, gradients

        if self._number == 0:
            places, alone = range(len(self._spaces)), self.alone or self._run.sequence.collective
            parts: list[Tensor] = []
            found = [rest for _, rest in in_order(work, places, device=self._device, alone=alone)]
        else:
            leg = Leg(self._number, True, self._run.model.width(self._number))
            parts, found = self._block.seam.to_vertices(work, leg)
        for gradients in found:
            self._learned.add(gradients)
        return parts

    # pieces

    def _started(self, rows: slice) -> _Piece:
        """A piece run through time, with its history."""
        x = self._piece(rows)
        begin = self._crossing.slice(rows)
        if self._crossing.carries:
            leaves = tuple(tensor.detach().requires_grad_() for tensor in begin.layers[self._number])
            begin = begin.with_layer(self._number, leaves)
        h, end = self._through_time(x, begin, rows)
        return _Piece(x, h, begin.layers[self._number], end.layers[self._number])

    def _back(
        self, piece: _Piece, ends: list[Tensor], seeds: list[Tensor | None], rows: slice
    ) -> tuple[Tensor | None, Gradients]:
        """Backward of a piece and of the state after it: the gradient of its rows, and the parameters'."""
        crossing = self._crossing
        for tensor, seed in zip(piece.end, crossing.after, strict=False):
            if seed is not None:
                ends, seeds = [*ends, tensor], [*seeds, seed[rows]]
        inputs = [piece.x, *(piece.begin if crossing.carries else ())]
        gradients, (of_rows, *of_state) = self._learned.gradients(ends, seeds, inputs)
        if crossing.carries:
            self._write(crossing.before, of_state, rows)
        return of_rows, gradients

    def _send_gradients(self, work: Callable[[slice], tuple[Tensor | None, T]]) -> list[T]:
        """Every piece's backward; gradients of spatial outputs that are learned go where these were computed."""
        crossing = self._crossing
        if crossing.carries:
            crossing.before = tuple(torch.zeros_like(x) for x in crossing.begin.layers[self._number])
        if not self._learns:
            return [rest for _, rest in in_order(work, self._pieces(), device=self._device, alone=self.alone)]

        def of_rows(rows: slice) -> tuple[Tensor, T]:
            gradient, rest = work(rows)
            assert gradient is not None
            return gradient, rest

        height = self._spaces[0].num_rows // len(self._spaces[0].snapshots) if self._spaces else self._rows
        leg = Leg(self._number, True, self._width)
        self._gradients, found = self._block.seam.to_snapshots(
            of_rows, self._pieces(), leg, like=self._parts[0], height=height
        )  # fmt: skip
        return found

    def _through_time(self, x: Tensor, begin: State, rows: slice) -> tuple[Tensor, State]:
        """A piece run through its snapshots: (S, piece, C) -> (S, piece, H) and the state after them."""
        return self._run.model.temporal_sequence(self._number, x, begin)

    def _pieces(self) -> list[slice]:
        return self._block.seam.pieces(self._rows, self._piece_rows())

    def _piece_rows(self) -> int:
        hidden, place = self._run.model.hidden, self._device.partition(":")[0]
        whole = PIECE_NUMBERS[place] // (hidden * len(self._block.snapshots))
        return max(1, min(STEP_NUMBERS[place] // hidden, whole))

    def _piece(self, rows: slice) -> Tensor:
        """The piece's rows of the spatial part, (S, piece, C)."""
        return self._stacked(self._parts, rows).requires_grad_(self._learns)

    def _stacked(self, parts: Sequence[Tensor], rows: slice) -> Tensor:
        """A piece's rows in all snapshots, (S, piece, C)."""
        return torch.stack([part[rows] for part in parts])

    def _room(self) -> Tensors:
        if not self._crossing.keeps:
            return ()
        return tuple(torch.empty_like(x) for x in self._crossing.begin.layers[self._number])

    @staticmethod
    def _write(to: Tensors, found: Sequence[Tensor | None], rows: slice) -> None:
        for whole, part in zip(to, found, strict=True):
            if part is not None:
                whole[rows] = part

    def _at(self, snapshots: range) -> range:
        """Those of the snapshots where loss is taken."""
        at = self._run.at
        return range(max(at.start, snapshots.start), min(at.stop, snapshots.stop))

    def _where(self, h: Tensor, at: range) -> Tensor:
        """Of all snapshots of the block, (S, ...), those where loss is taken."""
        start = len(h) - (self._block.snapshots.stop - at.start)  # a piece may have entered late
        return h if len(at) == len(h) else h[start : start + len(at)]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some vertices run through a block: what went in, (S, piece, C), what came out, and the state before and after."""

    x: Tensor
    h: Tensor
    begin: Tensors
    end: Tensors
