"""Gradients over blocks of time with gradient checkpointing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import torch
from torch import Tensor

from dtdg_lab.config.model_facts import SpatialOutput
from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.engine.backprop.gradients import Gradients, LearnedParameters
from dtdg_lab.engine.backprop.timeline import TimeBlock, Timeline
from dtdg_lab.engine.exchange.redistribution import AllToAllPhase, BlockRows
from dtdg_lab.engine.segment import SequenceSegment
from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.engine.views.device_sequence import DeviceSequence
from dtdg_lab.engine.views.snapshot_view import SnapshotView
from dtdg_lab.kernels.parallel_map import STEP_NUMBERS, parallel_map
from dtdg_lab.models.base import State

if TYPE_CHECKING:
    from dtdg_lab.engine.exchange.halo import HaloSequence

T = TypeVar("T")


# One layer of a model over one block of time: neighbours are mixed snapshot by snapshot, then nodes run through
# it.
#
# Neighbours are mixed in as many snapshots at once as are small. The recurrence then never mixes nodes: a piece of them
# runs through all snapshots while its rows are in the cache. In the last layer the piece continues through readout,
# loss and backward at once, so that no activation of the recurrence outlives its piece; in earlier layers the piece is
# recomputed when its gradient has arrived. What is kept for all nodes and snapshots is the spatial parts' outputs and
# their gradients. Exact, whatever the pieces.


# of a piece in all S snapshots: bounds what it keeps for backward; a constant, like STEP_NUMBERS
PIECE_NUMBERS = {"cpu": 4_194_304, "cuda": 67_108_864}

Tensors = tuple[Tensor, ...]


@dataclass(slots=True)
class BoundaryState:
    """A layer's state where a block of time begins and ends, of its m nodes.

    Attributes:
        begin: before the block, without history.
        carries: whether backward is to find the gradient of ``begin``.
        after: the gradients of the tensors after the block; none where nothing follows, None where nothing depends.
        end: the tensors after the block, once every node has been through it, where it ``keeps`` them.
        before: the gradients of ``begin``'s tensors, once backward has been.
    """

    begin: State
    carries: bool = False
    after: Gradients = ()
    end: Tensors = ()
    before: Tensors = ()
    keeps: bool = True

    def slice(self, rows: slice) -> State:
        """Return the state of a piece before the block."""
        return self.begin.slice(rows)


class Layer:
    """One layer of a block of a run, its spatial part done; for ``per_vertex`` memory.

    Args:
        run: what is differentiated.
        number: which layer.
        block: the S snapshots.
        inputs: for each own stack of S' snapshots the layer's input, (S' n, width).
        crossing: the state of the m nodes that are run through time here.
        learning: whether backward will follow.
        spatial_output: width of what the spatial part returns, and whether it is learned.

    Attributes:
        alone: whether pieces are worked on one after another, all threads on each of them.
    """

    alone: ClassVar[bool] = False

    def __init__(
        self,
        run: SequenceSegment,
        number: int,
        block: TimeBlock,
        inputs: list[Tensor],
        crossing: BoundaryState,
        *,
        learning: bool,
        spatial_output: SpatialOutput,
    ) -> None:
        self._run, self._number, self._block, self._crossing = run, number, block, crossing
        self._rows = block.vertices[number]
        self._device, self._learned, self._width = (
            run.sequence.device,
            LearnedParameters(run.model),
            spatial_output.width,
        )
        self._views, self._learns = block.stacks[number], spatial_output.learned and learning
        self._inputs = inputs if number == 0 else [x.detach().requires_grad_(learning) for x in inputs]
        self._mixed = [run.model.zeros(0)] * len(self._views)
        self._gradients: list[Tensor] = []
        self._parts = self._mix(learning=learning)

    def _mix(self, *, learning: bool) -> list[Tensor]:
        """Return the spatial part of own snapshots, on the ranks whose nodes run through time."""
        run, number = self._run, self._number

        def mix(index: int) -> tuple[Tensor, None]:
            with torch.set_grad_enabled(learning):
                mixed_rows = run.model.spatial(number, self._views[index], self._inputs[index], self._crossing.begin)
                mixed = mixed_rows
            if self._learns:
                self._mixed[index] = mixed
            return mixed.detach(), None

        return self._block.redistribution.to_vertices(mix, AllToAllPhase(number, False, self._width))[0]

    def hidden(self) -> list[Tensor]:
        """Return the layer's output for each own stack, (S' m, H), without history; note the end of the crossing."""
        end = self._room()

        @torch.no_grad()
        def through(rows: slice) -> tuple[Tensor, None]:
            h, after = self._through_time(self._piece(rows), self._crossing.slice(rows), rows)
            self._write(end, after.layers[self._number] if end else (), rows)
            return h, None

        phase = AllToAllPhase(self._number, False, self._run.model.hidden)
        stack_rows, _ = self._block.redistribution.to_snapshots(
            through, self._pieces(), phase, like=self._parts[0], height=self._rows
        )
        self._crossing.end = end
        return stack_rows

    def run_through(self) -> None:
        """Note the end of the crossing alone."""
        end = self._room()

        @torch.no_grad()
        def through(rows: slice) -> None:
            _, after = self._through_time(self._piece(rows), self._crossing.slice(rows), rows)
            self._write(end, after.layers[self._number], rows)

        parallel_map(through, self._pieces(), device=self._device, alone=self.alone)
        self._crossing.end = end

    def losses(self) -> Tensor:
        """Return the last layer's share of a loss by node; each piece runs backward at once."""
        loss_snapshots = self._at(self._block.snapshots)

        def work(rows: slice) -> tuple[Tensor | None, tuple[Tensor, Gradients]]:
            piece = self._started(rows)
            loss = self._loss(piece.h, loss_snapshots, rows) if loss_snapshots else piece.h.new_zeros(())
            of_rows, gradients = self._back(piece, [loss], [None], rows)
            return of_rows, (loss.detach(), gradients)

        total = torch.zeros((), dtype=torch.float64, device=self._device)
        for loss, gradients in self._send_gradients(work):
            total += loss
            self._learned.add(gradients)
        return total

    def _loss(self, h: Tensor, loss_snapshots: range, rows: slice) -> Tensor:
        """Return what a piece, (S, piece, H), adds to the loss at some snapshots."""
        return self._run.loss(self._run.model.readout(self._where(h, loss_snapshots)), loss_snapshots, rows)

    def joint_loss(self) -> Tensor:
        """Return the block's share of a loss of all nodes together, and run backward; pieces are computed twice."""
        run, redistribution = self._run, self._block.redistribution

        @torch.no_grad()
        def read(rows: slice) -> tuple[Tensor, None]:
            h, _ = self._through_time(self._piece(rows), self._crossing.slice(rows), rows)
            return run.model.readout(h), None

        phase = AllToAllPhase(self._number, False, run.model.outputs)
        stack_rows, _ = redistribution.to_snapshots(read, self._pieces(), phase, like=self._parts[0], height=self._rows)
        z = [rows.requires_grad_() for rows in stack_rows]
        loss, dz = self._joint(z)

        def of_readout(index: int) -> tuple[Tensor, None]:
            return dz[index], None

        parts, _ = redistribution.to_vertices(of_readout, AllToAllPhase(self._number, True, run.model.outputs))

        def work(rows: slice) -> tuple[Tensor | None, Gradients]:
            piece = self._started(rows)
            return self._back(piece, [run.model.readout(piece.h)], [self._stacked(parts, rows)], rows)

        for gradients in self._send_gradients(work):
            self._learned.add(gradients)
        return loss

    def _joint(self, z: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Loss of own snapshots, from their readouts for each own stack, and the gradient of each."""
        run = self._run
        stacks = [view.snapshots for view in self._views]
        loss = run.model.zeros(1).sum()
        loss_snapshots = self._at(range(stacks[0].start, stacks[-1].stop)) if stacks else range(0)
        if loss_snapshots:
            read = [
                (stack, rows)
                for stack, rows in zip(stacks, z, strict=True)
                if stack.stop > loss_snapshots.start and stack.start < loss_snapshots.stop
            ]
            every = torch.cat([rows.unflatten(0, (len(stack), -1)) for stack, rows in read])
            start = loss_snapshots.start - read[0][0].start
            loss = run.loss(every[start : start + len(loss_snapshots)], loss_snapshots, slice(0, run.own))
        if not loss.requires_grad:
            return loss, [torch.zeros_like(rows) for rows in z]
        gradients = torch.autograd.grad(loss, z, allow_unused=True)
        return loss.detach(), [
            torch.zeros_like(rows) if gradient is None else gradient
            for rows, gradient in zip(z, gradients, strict=True)
        ]

    def pull_back(self, parts: list[Tensor]) -> None:
        """Backward through time, from the output's gradient in each snapshot, (m, H); pieces are recomputed."""

        def work(rows: slice) -> tuple[Tensor | None, Gradients]:
            piece = self._started(rows)
            return self._back(piece, [piece.h], [self._stacked(parts, rows)], rows)

        for gradients in self._send_gradients(work):
            self._learned.add(gradients)

    def backward(self) -> list[Tensor]:
        """Backward through the spatial parts: the gradient of the layer's input in each snapshot; none in layer 0."""
        if not self._learns:
            return []

        def work(index: int) -> tuple[Tensor, Gradients]:
            ends, seeds = [self._mixed[index]], [self._gradients[index]]
            gradients, (of_input,) = self._learned.gradients(ends, seeds, [self._inputs[index]])
            self._mixed[index] = self._gradients[index] = seeds[0].new_empty(0)  # memory is let go
            assert of_input is not None or self._number == 0
            return seeds[0] if of_input is None else of_input, gradients

        if self._number == 0:
            places, alone = range(len(self._views)), self.alone or self._run.sequence.collective
            parts: list[Tensor] = []
            piece_gradients = [rest for _, rest in parallel_map(work, places, device=self._device, alone=alone)]
        else:
            phase = AllToAllPhase(self._number, True, self._run.model.width(self._number))
            parts, piece_gradients = self._block.redistribution.to_vertices(work, phase)
        for gradients in piece_gradients:
            self._learned.add(gradients)
        return parts

    # pieces

    def _started(self, rows: slice) -> _Piece:
        """Run a piece through time, with its history."""
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
        """Run every piece's backward; gradients of learned spatial outputs go where these were computed."""
        crossing = self._crossing
        if crossing.carries:
            crossing.before = tuple(torch.zeros_like(x) for x in crossing.begin.layers[self._number])
        if not self._learns:
            return [rest for _, rest in parallel_map(work, self._pieces(), device=self._device, alone=self.alone)]

        def of_rows(rows: slice) -> tuple[Tensor, T]:
            gradient, rest = work(rows)
            assert gradient is not None
            return gradient, rest

        height = self._views[0].num_rows // len(self._views[0].snapshots) if self._views else self._rows
        phase = AllToAllPhase(self._number, True, self._width)
        self._gradients, results = self._block.redistribution.to_snapshots(
            of_rows, self._pieces(), phase, like=self._parts[0], height=height
        )
        return results

    def _through_time(self, x: Tensor, begin: State, rows: slice) -> tuple[Tensor, State]:
        """Run a piece through its snapshots: (S, piece, C) -> (S, piece, H) and the state after them."""
        return self._run.through_time(self._number, x, begin, rows)

    def _pieces(self) -> list[slice]:
        return self._block.redistribution.pieces(self._rows, self._piece_rows())

    def _piece_rows(self) -> int:
        hidden, device_type = self._run.model.hidden, self._device.partition(":")[0]
        piece_rows = PIECE_NUMBERS[device_type] // (hidden * len(self._block.snapshots))
        return max(1, min(STEP_NUMBERS[device_type] // hidden, piece_rows))

    def _piece(self, rows: slice) -> Tensor:
        """Return the piece's rows of the spatial part, (S, piece, C)."""
        return self._stacked(self._parts, rows).requires_grad_(self._learns and torch.is_grad_enabled())

    def _stacked(self, parts: Sequence[Tensor], rows: slice) -> Tensor:
        """Return a piece's rows in all snapshots, (S, piece, C)."""
        return torch.stack([part[rows] for part in parts])

    def _room(self) -> Tensors:
        if not self._crossing.keeps:
            return ()
        return tuple(torch.empty_like(x) for x in self._crossing.begin.layers[self._number])

    @staticmethod
    def _write(to: Tensors, parts: Sequence[Tensor | None], rows: slice) -> None:
        for tensor, part in zip(to, parts, strict=True):
            if part is not None:
                tensor[rows] = part

    def _at(self, snapshots: range) -> range:
        """Return the snapshots where loss is taken."""
        loss_snapshots = self._run.at
        return range(max(loss_snapshots.start, snapshots.start), min(loss_snapshots.stop, snapshots.stop))

    def _where(self, h: Tensor, loss_snapshots: range) -> Tensor:
        """Return the rows where loss is taken, of all snapshots of the block, (S, ...)."""
        start = len(h) - (self._block.snapshots.stop - loss_snapshots.start)  # a piece may have entered late
        return h if len(loss_snapshots) == len(h) else h[start : start + len(loss_snapshots)]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some nodes run through a block: what went in, (S, piece, C), what came out, and the state before and after."""

    x: Tensor
    h: Tensor
    begin: Tensors
    end: Tensors


# Runs of models that remember something of each node: layer by layer, block of time after block of time.
#
# Of one block everything that backward needs is kept, of the others only the state before them: forward goes through
# the blocks and keeps these states, backward then takes the blocks from the last to the first and computes each again,
# the last one excepted. Exact, whatever the blocks.
#
# References: ESDG section 3.1 (gradient checkpoint).


def add_gradients_blocks(run: SequenceSegment, timeline: Timeline | None = None) -> Tensor:
    """Add the gradients of a run's loss to the parameters', and return the loss. For ``per_vertex`` memory.

    Args:
        run: what is differentiated.
        timeline: the run in blocks; all of it at once where None.
    """
    return _Passes(run, Timeline(run) if timeline is None else timeline).loss()


class _Passes:
    """Forward and backward of a run through its blocks."""

    def __init__(self, run: SequenceSegment, timeline: Timeline) -> None:
        self._run, self._timeline, self._spatial_outputs = run, timeline, run.model.facts.spatial

    def loss(self) -> Tensor:
        begins: list[State | None] = [None]
        for number in range(len(self._timeline) - 1):
            begins.append(self._advance(number, begins[-1]))
        total = torch.zeros((), dtype=torch.float64, device=self._run.sequence.device)
        after: list[Gradients] = [()] * self._run.model.layers
        for number in reversed(range(len(self._timeline))):
            loss, after = self._back(number, begins.pop(), after)
            total += loss
        return total

    def _advance(self, number: int, begin: State | None) -> State:
        """Forward through a block, without history: the state after it."""
        block = self._timeline.open(number, "forward")
        crossings = self._crossings(block, begin)
        self._layers(block, crossings, learning=False)[-1].run_through()
        return State(tuple(crossing.end for crossing in crossings))

    def _back(self, number: int, begin: State | None, after: list[Gradients]) -> tuple[Tensor, list[Gradients]]:
        """Forward and backward of a block: its loss, and the gradient of the state before it, layer by layer."""
        last = number == len(self._timeline) - 1
        block = self._timeline.open(number, "forward" if last else "rerun")
        crossings = self._crossings(block, begin)
        for crossing, gradients in zip(crossings, after, strict=True):
            crossing.carries, crossing.after = number > 0, gradients
        layers = self._layers(block, crossings, learning=True)
        self._timeline.turn(number)
        loss = layers[-1].losses() if self._run.task.per_vertex else layers[-1].joint_loss()
        while layers:
            parts = layers.pop().backward()
            if layers:
                layers[-1].pull_back(parts)
        return loss, [crossing.before for crossing in crossings]

    def _crossings(self, block: TimeBlock, begin: State | None) -> list[BoundaryState]:
        if begin is not None:
            return [BoundaryState(begin) for _ in self._spatial_outputs]
        return [BoundaryState(self._run.layer_state(layer, rows)) for layer, rows in enumerate(block.vertices)]

    def _layers(self, block: TimeBlock, crossings: list[BoundaryState], *, learning: bool) -> list[Layer]:
        """Compute the layers up to the spatial part of the last."""
        layers: list[Layer] = []
        inputs = [view.inputs for view in block.stacks[0]]
        for number, (spatial_output, crossing) in enumerate(zip(self._spatial_outputs, crossings, strict=True)):
            if number:
                inputs = layers[-1].hidden()
            layers.append(
                Layer(self._run, number, block, inputs, crossing, learning=learning, spatial_output=spatial_output)
            )
        return layers


# The time blocks of a rank: own snapshots are transferred to the device, and rows are redistributed per block.


class BlockTimeline(Timeline):
    """The own snapshots of one block after another (see :class:`dtdg_lab.engine.backprop.timeline.Timeline`).

    Args:
        plan: the assignment of snapshots and nodes to ranks.
        rank: this rank.
        snapshots: its rows of them.
        run: the segment of the nodes that it runs through time.
        bring: transfers the graphs of own snapshots to the device.
        moves: how rows move between ranks (``of_block``), and how own snapshots are cut (``slots``); None if all
            snapshots are on this rank.
        one_by_one: whether snapshots are never stacked, as for models that process each by itself.

    Attributes:
        marks: called after transfers and at the start of blocks; replaced for every step.
        turned: called with the same arguments as ``marks.block``.
    """

    def __init__(
        self,
        plan: SnapshotBlocks,
        rank: int,
        snapshots: DeviceSequence | HaloSequence,
        run: SequenceSegment,
        *,
        bring: Callable[[range], None],
        moves: Any,
        one_by_one: bool,
    ) -> None:
        self.marks = StepMarks()
        self.turned: Callable[[int, str], None] = lambda number, pass_name: None
        super().__init__(run)
        self._plan, self._rank, self._sequence = plan, rank, snapshots
        self._bring, self._moves, self._one_by_one = bring, moves, one_by_one

    def __len__(self) -> int:
        """nb, the blocks."""
        return self._plan.blocks

    def open(self, number: int, pass_name: str) -> TimeBlock:
        """Transfer the own snapshots of a block to the device."""
        self.marks("compute")
        snapshots = self._plan.own(number, self._rank)
        self._bring(snapshots)
        views = self._views(number, snapshots)
        self.marks("transfer")
        self._begin(number, pass_name)
        layers = range(self._run.model.layers)
        stacks = [[view.layer(layer) for view in views] for layer in layers]
        if self._moves is None:
            sequence = self._run.sequence
            redistribution = BlockRows(views, device=sequence.device, alone=sequence.collective)
        else:
            redistribution = self._moves.of_block(number, pass_name)
        return TimeBlock(self._plan.block(number), stacks, [self._run.own for _ in layers], redistribution)

    def turn(self, number: int) -> None:
        """Start the backward pass of a block."""
        self.marks("compute")
        self._begin(number, "backward")

    def _begin(self, number: int, pass_name: str) -> None:
        self.marks.block(number, pass_name)
        self.turned(number, pass_name)

    def _views(self, number: int, snapshots: range) -> list[SnapshotView]:
        if self._one_by_one:
            return [self._sequence.stack(range(t, t + 1)) for t in snapshots]
        if self._moves is None:
            return list(self._sequence.stacks(snapshots, 0))
        return [self._sequence.stack(slot) for slot in self._moves.slots(number, self._rank) if slot]


# Gradient checkpointing over time blocks: boundary states are kept, and blocks are recomputed in the backward pass.
#
# What a block computes is the caller's: this holds for every memory whose state is handed from block to block.


class Blocks(Protocol):
    """The blocks of a run, and what one of them computes."""

    def __len__(self) -> int:
        """nb, the blocks."""

    def advance(self, number: int, state: State) -> State:
        """Return the state after a block, without history."""

    def compute(self, number: int, state: State) -> tuple[Tensor | None, State]:
        """Return a block's share of the loss, None where it takes none, and the state after it, with their history."""


def add_gradients_checkpointed(
    blocks: Blocks, begin: State, *, device: str, learned: LearnedParameters | None = None
) -> Tensor:
    """Add the gradients of a run's loss to the parameters', and return the loss.

    Args:
        blocks: of the run.
        begin: the state before it, with its history where it is learned.
        device: where the loss is summed.
        learned: the parameters, if only what reaches them needs a backward pass; None where ranks exchange rows in it,
            since every rank must then run all of it.

    References: ESDG section 3.1 (gradient checkpoint). The last block is not computed twice.
    """
    states = [begin.detach()]
    with torch.no_grad():
        for number in range(len(blocks) - 1):
            states.append(blocks.advance(number, states[-1]))
    total = torch.zeros((), dtype=torch.float64, device=device)
    gradients: list[Tensor | None] = []  # of the state after the block
    for number in reversed(range(len(blocks))):
        loss, gradients = _back(blocks, number, states.pop(), gradients, learned)
        total += 0 if loss is None else loss
    _backward(begin.tensors, gradients, [], learned)
    return total


def _back(
    blocks: Blocks, number: int, state: State, after: list[Tensor | None], learned: LearnedParameters | None
) -> tuple[Tensor | None, list[Tensor | None]]:
    """One block forward and backward: its loss, and the gradient of the state before it."""
    leaves = State(tuple(tuple(x.requires_grad_() for x in layer) for layer in state.layers), state.per_vertex)
    loss, end = blocks.compute(number, leaves)
    ends, seeds = end.tensors, after
    if loss is not None:
        ends, seeds = [*ends, loss], [*(seeds or [None] * len(ends)), torch.ones_like(loss)]
    return None if loss is None else loss.detach(), _backward(ends, seeds, leaves.tensors, learned)


def _backward(
    ends: list[Tensor], seeds: list[Tensor | None], leaves: list[Tensor], learned: LearnedParameters | None
) -> list[Tensor | None]:
    """Run backward from those ends that have a gradient and a history; return the gradients of the leaves."""
    seeded_ends = [
        (end, seed) for end, seed in zip(ends, seeds, strict=False) if seed is not None and end.requires_grad
    ]
    if learned is not None:
        gradients, of_leaves = learned.gradients(
            [end for end, _ in seeded_ends], [seed for _, seed in seeded_ends], leaves
        )
        learned.add(gradients)
        return list(of_leaves)
    if seeded_ends:
        torch.autograd.backward([end for end, _ in seeded_ends], [seed for _, seed in seeded_ends])
    return [x.grad for x in leaves]


# Gradient checkpointing by snapshot: states are kept, and snapshots are recomputed in the backward pass.
#
# Serves every model. With a snapshot at a time it takes a third more time than
# :mod:`dtdg_lab.engine.backprop.reference`.


def add_gradients_stepwise(
    run: SequenceSegment, blocks: Sequence[range] = (), turn: Callable[[int, str], None] | None = None
) -> Tensor:
    """Add the gradients of a run's loss to the parameters', and return the loss.

    Args:
        run: what is differentiated.
        blocks: of its snapshots; one is in memory at a time. Without blocks, each snapshot is its own.
        turn: called when a block begins, with its pass: ``forward``, ``rerun`` (recompute) or ``backward``.
    """
    cut = blocks or [range(t, t + 1) for t in run.snapshots]
    learned = None if run.sequence.collective else LearnedParameters(run.model)
    return add_gradients_checkpointed(
        _Snapshots(run, cut, turn), run.initial_state(), device=run.sequence.device, learned=learned
    )


class _Snapshots:
    """Blocks computed snapshot after snapshot (see :class:`dtdg_lab.engine.backprop.time_blocks.Blocks`)."""

    def __init__(self, run: SequenceSegment, blocks: Sequence[range], turn: Callable[[int, str], None] | None) -> None:
        self._run, self._blocks = run, blocks
        self._turn = turn or (lambda number, pass_name: None)

    def __len__(self) -> int:
        return len(self._blocks)

    def advance(self, number: int, state: State) -> State:
        self._turn(number, "forward")
        for t in self._blocks[number]:
            state = self._run.snapshot(t, state)[1]
        return state

    def compute(self, number: int, state: State) -> tuple[Tensor | None, State]:
        self._turn(number, "forward" if number == len(self) - 1 else "rerun")
        losses = []
        for t in self._blocks[number]:
            h, state = self._run.snapshot(t, state)
            loss = self._run.loss_of(t, h)
            losses += [] if loss is None else [loss]
        self._turn(number, "backward")
        return torch.stack(losses).sum() if losses else None, state
