"""Gradients over a decayed window, layer by layer, whole or in chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.engine.async_overlap import Pace, Spatial, SpatialTask, SpatialTasks, run_awaiting
from dtdg_lab.engine.backprop.time_blocks import BoundaryState, Layer, Tensors
from dtdg_lab.engine.graph_view import OneVertex, RedistributionWidth, SnapshotView
from dtdg_lab.engine.strategy import (
    AllToAllPhase,
    BlockRows,
    Moved,
    OfRows,
    OfStack,
    SequenceSegment,
    Step,
    TimeBlock,
    in_order,
)
from dtdg_lab.kernels.recurrence import at_rest
from dtdg_lab.models.base import DynamicModel, State
from dtdg_lab.systems.decayed_windows.window import SurvivalOrder

# The own nodes of a rank on its device, in the order in which they survive in decayed snapshots.


@dataclass(frozen=True, slots=True, eq=False)
class SurvivalRows:
    """An order of survival as index tensors; n own nodes, whose rows in full snapshots are ordered by index.

    Attributes:
        order: on the host.
        vertices: (n,) int64, the nodes' indices in the graph.
        own: (n,) int64: the row in a full snapshot of each node in this order.
        place: (n,) int64: the position in this order of each row of a full snapshot.
    """

    order: SurvivalOrder
    vertices: Tensor
    own: Tensor
    place: Tensor

    @classmethod
    def of(cls, order: SurvivalOrder, device: str) -> SurvivalRows:
        """The order, as tensors on ``device``."""
        position = np.argsort(order.vertices)
        own = np.empty_like(position)
        own[position] = np.arange(len(position))

        def moved(numbers: NDArray[np.int64]) -> Tensor:
            return torch.tensor(numbers, device=device)

        return cls(order, moved(order.vertices), moved(own), moved(position))

    def kept(self, chunks: int) -> int:
        """Number of rows of a snapshot that has the first ``chunks`` chunks of every part."""
        return int(self.order.rows[chunks])


# A window of snapshots one after another, for every model: the reference, also used for models that evolve weights.


def add_gradients_window(
    run: SequenceSegment, spaces: Sequence[SnapshotView], full: int, rows: SurvivalRows, begin: State, *, late: bool
) -> tuple[Tensor, State]:
    """Add the gradients of a window's loss to the parameters'; returns the loss and the states for the next window.

    Args:
        run: the window's segment, of own nodes by index.
        spaces: (S,) views of the snapshots, oldest first; decayed ones in the order of survival.
        full: number of full snapshots, the newest ones.
        rows: the order of survival.
        begin: initial states of the first rows in the order of survival; zero for the others.
        late: whether to return states of nodes that the oldest snapshot lacks as well.

    Returns:
        The loss, a scalar, and the state of each node after the first snapshot that contains it, in the order of
        survival; both detached.
    """
    model, state, left = run.model, begin, list[State]()
    decayed, held, losses = len(spaces) - full, 0, list[Tensor]()
    for position, space in enumerate(spaces):
        is_whole, height = position >= decayed, space.num_rows
        if held < height:
            state = _grown(state, held, height, begin)
        if position == decayed:
            state = _each(state, lambda x: x.index_select(0, rows.place))
        t = run.snapshots[position]
        if t in run.at:
            h, state = run_awaiting(model.snapshot(space, space.inputs, state))
            of = rows.own[:height] if not is_whole else slice(0, run.own)
            losses.append(run.loss(model.readout(h[: run.own]).unsqueeze(0), range(t, t + 1), of))
        else:
            state = _passed(model, space, state)
        if held < height and (late or position == 0):
            left.append(_each(state, itemgetter(rows.own[held:height] if is_whole else slice(held, height))).detach())
        held = height
    loss = torch.stack(losses).sum()
    loss.backward()  # on every rank, with labels or without: the backward pass exchanges rows
    return loss.detach(), _joined(left)


def _passed(model: DynamicModel, space: SnapshotView, state: State) -> State:
    """The state after a snapshot without a loss: evolving weights that depend on no node need no spatial part."""
    if model.memory == "none":
        return state
    if model.memory != "weights":
        return run_awaiting(model.snapshot(space, space.inputs, state))[1]
    for layer in range(model.layers):
        state = run_awaiting(model.evolve(layer, OneVertex(), model.zeros(1, model.width(layer)), state))
    return state


def _grown(state: State, held: int, height: int, begin: State) -> State:
    """The first ``held`` rows, and the rows that enter now: with their initial state, or zero."""
    if not state.per_vertex:
        return state
    return State(
        tuple(
            tuple(with_late(x[:held], of[held:height], height) for x, of in zip(now, then, strict=True))
            for now, then in zip(state.layers, begin.layers, strict=True)
        )
    )


def with_late(x: Tensor, late: Tensor, height: int) -> Tensor:
    """The rows ``x``, then those that enter late, then zeros up to ``height``."""
    parts = [part for part in (x, late) if len(part)]
    lacking = height - len(x) - len(late)
    if lacking:
        parts.append(x.new_zeros(lacking, *x.shape[1:]))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _joined(states: Sequence[State]) -> State:
    """Concatenated rows of several states."""
    if not states[0].per_vertex or len(states) == 1:
        return states[0]
    layers = zip(*(state.layers for state in states), strict=True)
    return State(tuple(tuple(torch.cat(parts) for parts in zip(*each, strict=True)) for each in layers))


def _each(state: State, change: Callable[[Tensor], Tensor]) -> State:
    if not state.per_vertex:
        return state
    return State(tuple(tuple(change(x) for x in layer) for layer in state.layers))


# Rows are only reordered: older snapshots of a window have a prefix of the nodes of newer ones.


T = TypeVar("T")
FEW_ROWS = 512
WIDER = 4  # windows are short: a piece stores little, and calls dominate


class WindowRedistribution(BlockRows):
    """The redistribution (see :class:`dtdg_lab.engine.strategy.BlockRows`) of a window, one snapshot a view.

    Nodes run through time in the order of survival. Decayed snapshots have this order already; rows of full ones are
    permuted into it, and back.

    Args:
        heights: (S,) rows of each snapshot, oldest first, ascending.
        full: number of full snapshots, the newest ones.
        rows: the order of survival.
        device: of the computation, which processes one piece after another.
        whole: rows of each snapshot of a whole window, oldest first: no piece has more rows x snapshots than its
            largest, so that the short windows of a segment's start do not raise the peak.
    """

    def __init__(
        self, heights: Sequence[int], full: int, rows: SurvivalRows, *, device: str, whole: Sequence[int] = ()
    ) -> None:
        self._heights, self._decayed = list(heights), len(heights) - full
        self._rows, self._device, self._whole = rows, device, list(whole)

    def to_vertices(self, work: OfStack[T], phase: AllToAllPhase) -> Moved[T]:
        """The results of ``work``, rows of full snapshots in the order of survival."""

        def ordered(position: int) -> tuple[Tensor, T]:
            rows, rest = work(position)
            return rows if position < self._decayed else rows.index_select(0, self._rows.own), rest

        found = in_order(ordered, range(len(self._heights)), device=self._device, alone=True)
        return [rows for rows, _ in found], [rest for _, rest in found]

    def to_snapshots(
        self, work: OfRows[T], pieces: Sequence[slice], phase: AllToAllPhase, *, like: Tensor, height: int
    ) -> Moved[T]:
        """Each piece's rows are written into the snapshots that contain them; full ones are permuted back."""
        out = [like.new_empty(rows, phase.width) for rows in self._heights]

        def write(rows: slice) -> T:
            found, rest = work(rows)
            for part, here in zip(out[len(out) - len(found) :], found, strict=True):
                part[rows] = here[: len(part) - rows.start]
            return rest

        found = in_order(write, pieces, device=self._device, alone=True)
        whole = [rows.index_select(0, self._rows.place) for rows in out[self._decayed :]]
        return [*out[: self._decayed], *whole], found

    def pieces(self, rows: int, size: int) -> list[slice]:
        """Runs of at most ``WIDER`` times ``size`` nodes that are in the same snapshots.

        The first few are one piece although some of them enter late: the overhead of calls outweighs their work.
        """
        most = max(
            (min(stop - first, WIDER * size) * held for first, stop, held in _runs(self._whole, rows, size)),
            default=None,
        )
        found = []
        for first, stop, held in _runs(self._heights, rows, size):
            step = WIDER * size if most is None else max(1, min(WIDER * size, most // held))
            found += [slice(start, min(start + step, stop)) for start in range(first, stop, step)]
        return found


def _runs(heights: Sequence[int], rows: int, size: int) -> list[tuple[int, int, int]]:
    """Runs of nodes in the same snapshots: start, stop and number of snapshots; the first few together."""
    if not heights:
        return []
    edges = sorted({0, rows, *(height for height in heights if height < rows)})
    few = max(edge for edge in edges if edge <= min(size, FEW_ROWS))
    bounds = pairwise([0, *(edge for edge in edges if edge and edge >= few)])
    return [(first, stop, sum(height > first for height in heights)) for first, stop in bounds]


# One layer of a model over a window: nodes that enter late run through the snapshots that contain them.


@dataclass(slots=True)
class Entering(BoundaryState):
    """A layer's state of nodes that enter a window: carried over from the previous step, or zero.

    ``begin`` contains the rows of the first nodes; the others start from zero.
    """

    model: DynamicModel | None = None

    def slice(self, rows: slice) -> State:
        """The state of a piece, as far as ``begin`` contains it; otherwise zeros that share memory."""
        held = self.begin.layers[0][0].shape[0]
        if rows.start < held:
            return self.begin.slice(slice(rows.start, min(rows.stop, held)))
        assert self.model is not None
        one, height = self.model.initial_state(1), rows.stop - rows.start
        return State(tuple(tuple(at_rest(x, height) for x in layer) for layer in one.layers))


class WindowLayer(Layer):
    """A :class:`dtdg_lab.engine.backprop.time_blocks.Layer` whose older snapshots have the first rows of newer ones.

    A piece has the snapshots of its first node. If some of its nodes enter later, their missing rows are zeros in
    the stacked tensors, and are excluded from all computations.
    """

    alone = True  # measured: windows are short, and the overhead of threads exceeds their computation

    @torch.no_grad()
    def after_entering(self, *, late: bool) -> Tensors:
        """The state of each node after the first snapshot that contains it; detached.

        Args:
            late: for all nodes; otherwise for those in the oldest snapshot.
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
        """The loss over the rows that each snapshot has."""
        if len(at) == 1:
            return super()._loss(h, at, rows)  # the newest, which has all of them
        run, z, first = self._run, self._run.model.readout(h), at.stop - len(h)
        losses, position = [], 0
        for some, of in groupby(self._heights(len(h), rows)):
            steps = len(list(of))
            snapshots = range(first + position, first + position + steps)
            here = slice(rows.start, rows.start + some)
            losses.append(run.loss(z[position : position + steps, :some], snapshots, here))
            position += steps
        return torch.stack(losses).sum()

    def _heights(self, snapshots: int, rows: slice) -> list[int]:
        """The number of a piece's nodes in each of the newest snapshots, oldest first."""
        return [min(len(part), rows.stop) - rows.start for part in self._parts[len(self._parts) - snapshots :]]

    def _stacked(self, parts: Sequence[Tensor], rows: slice) -> Tensor:
        """A piece's rows in the snapshots that have any of them, (S', piece, C); missing rows are zeros."""
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
        """The first ``held`` rows, and the rows that enter now; for this layer only."""
        number = self._number
        pairs = zip(state.layers[number], begin.layers[number], strict=True)
        return state.with_layer(number, tuple(with_late(x[:held], of[held:height], height) for x, of in pairs))


# A layer of a window whose snapshots exchange rows with other ranks while others are computed.


class OverlappedLayer(WindowLayer):
    """A :class:`WindowLayer` whose views suspend at an exchange.

    Collective, in forward and backward.

    Args:
        run: the segment that is differentiated.
        number: index of the layer.
        block: the window; one snapshot per view.
        inputs: of each snapshot.
        crossing: the state before the window.
        learning: whether a backward pass follows.
        seam: widths of the spatial part's output.
        pace: determines the order of snapshots.

    References: FlareDTDG section 3.4.
    """

    def __init__(
        self,
        run: SequenceSegment,
        number: int,
        block: TimeBlock,
        inputs: list[Tensor],
        crossing: BoundaryState,
        *,
        learning: bool,
        seam: RedistributionWidth,
        pace: Pace,
    ) -> None:
        self._pace, self._runner = pace, SpatialTasks(run.model)
        self._tasks: list[SpatialTask] = []
        super().__init__(run, number, block, inputs, crossing, learning=learning, seam=seam)

    def _mix(self, *, learning: bool) -> list[Tensor]:
        makers: list[Callable[[], Spatial]] = [
            partial(self._run.model.spatial, self._number, space, x, self._crossing.begin)
            for space, x in zip(self._spaces, self._inputs, strict=True)
        ]
        tasks = self._runner.run(makers, self._pace.order(self._number), learning=learning)
        self._pace.note(self._number, tasks)
        mixed = [task.result.detach() for task in tasks if task.result is not None]
        if self._learns:
            self._tasks = tasks
        return self._block.seam.to_vertices(
            lambda position: (mixed[position], None), AllToAllPhase(self._number, False, self._width)
        )[0]

    def backward(self) -> list[Tensor]:
        """Backward through all snapshots at once: the gradient of the layer's input in each; none in layer 0."""
        if not self._learns:
            return []
        of_tasks, of_inputs = self._runner.gradients(self._tasks, self._gradients, self._inputs)
        self._tasks, self._gradients = [], []
        for gradients in of_tasks:
            self._learned.add(gradients)
        if self._number == 0:
            return []
        phase = AllToAllPhase(self._number, True, self._run.model.width(self._number))

        def of_input(position: int) -> tuple[Tensor, None]:
            gradient, x = of_inputs[position], self._inputs[position]
            return x.new_zeros(x.shape) if gradient is None else gradient, None

        return self._block.seam.to_vertices(of_input, phase)[0]


# A window of snapshots for models with a hidden state per node: layer by layer, piece by piece.
#
# Nodes that leave the window at the same snapshot run through the rest of it together: a trapezoid is a stack of
# rectangles, and each is computed as :mod:`dtdg_lab.engine.backprop.time_blocks` computes a block of time.


MakeLayer = Callable[..., WindowLayer]


def add_gradients_window_blocks(
    run: SequenceSegment,
    spaces: Sequence[SnapshotView],
    seam: BlockRows,
    begin: State,
    *,
    widths: Sequence[RedistributionWidth],
    make: MakeLayer = WindowLayer,
    leaves: bool = True,
    late: bool = False,
) -> tuple[Tensor, State | None]:
    """Add the gradients of a window's loss to the parameters'; returns the loss and the states for the next window.

    Args:
        run: the window's segment; its sequence has own nodes in the order in which they run through time.
        spaces: (S,) views of the snapshots, oldest first.
        seam: redistribution between the views and this order.
        begin: initial states of the first rows in this order; zero for the others.
        widths: of the redistribution, by layer.
        make: creates a layer from the arguments of :class:`WindowLayer`.
        leaves: whether to return states for the next window.
        late: whether to return states of nodes that the oldest snapshot lacks as well.

    Returns:
        The loss, and the state of each node after the first snapshot that contains it.
    """
    model = run.model
    stacks = [[space.layer(number) for space in spaces] for number in range(model.layers)]
    block = TimeBlock(run.snapshots, stacks, [run.own] * model.layers, seam)
    layers: list[WindowLayer] = []
    inputs, after = [space.inputs for space in spaces], []
    for number, width in enumerate(widths):
        if number:
            inputs = layers[-1].hidden()
        crossing = Entering(begin, keeps=False, model=model)
        layers.append(make(run, number, block, inputs, crossing, learning=True, seam=width))
        if leaves:
            after.append(layers[-1].after_entering(late=late))
    loss = layers[-1].losses() if run.task.per_vertex else layers[-1].joint_loss()
    while layers:
        parts = layers.pop().backward()
        if layers:
            layers[-1].pull_back(parts)
    return loss, State(tuple(after)) if leaves else None


# One step over a window of snapshots.


@dataclass(frozen=True, slots=True)
class WindowWork(Step):
    """A step whose batch is determined when it runs, since the window's shape may change before.

    Attributes:
        epoch: index of the epoch, which determines the shuffle of chunks.
        segment: of the training split; the window does not extend beyond it.
        target: newest snapshot of the window.
        after: the target before it in this segment, or the snapshot before the segment.
        ends_segment: whether no later target of the segment follows.
    """

    epoch: int = 0
    segment: range = range(0)
    target: int = 0
    after: int = -1
    ends_segment: bool = False
