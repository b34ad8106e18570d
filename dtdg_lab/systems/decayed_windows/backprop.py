"""Gradients over a decayed window, layer by layer, whole or in chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.config.model_facts import SpatialOutput
from dtdg_lab.engine.async_overlap import Pace, SpatialTask
from dtdg_lab.engine.backprop.time_blocks import BoundaryState, Layer, Tensors
from dtdg_lab.engine.backprop.timeline import TimeBlock
from dtdg_lab.engine.exchange.redistribution import AllToAllPhase, BlockRows, Moved, OfRows, OfStack
from dtdg_lab.engine.graph_view import OneVertex, SnapshotView
from dtdg_lab.engine.parallel_map import parallel_map
from dtdg_lab.engine.segment import SequenceSegment
from dtdg_lab.engine.strategy import Step
from dtdg_lab.kernels.recurrence import at_rest, by_snapshot, newest
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
            h, state = model.snapshot(space, space.inputs, state)
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
        return model.snapshot(space, space.inputs, state)[1]
    for layer in range(model.layers):
        state = model.evolve(layer, OneVertex(), model.zeros(1, model.width(layer)), state)
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
WIDER = 4  # windows are short: a piece stores little, and calls dominate


def held_by(heights: Sequence[int], rows: slice) -> list[int]:
    """How many of some nodes each snapshot that has any of them has, oldest first."""
    return [min(height, rows.stop) - rows.start for height in heights if height > rows.start]


class WindowRedistribution(BlockRows):
    """The redistribution of a window, one snapshot a view.

    Nodes run through time in the order of survival. Decayed snapshots have this order already; rows of full ones are
    permuted into it, and back.

    Args:
        heights: (S,) rows of each snapshot, oldest first, ascending.
        full: number of full snapshots, the newest ones.
        rows: the order of survival.
        device: of the computation, which processes one piece after another.
        most: rows of all snapshots that a piece has at most, as its memory is predicted
            (:meth:`dtdg_lab.systems.decayed_windows.window.RowMemory.piece`).
    """

    def __init__(self, heights: Sequence[int], full: int, rows: SurvivalRows, *, device: str, most: int) -> None:
        self._heights, self._decayed, self._most = list(heights), len(heights) - full, most
        self._rows, self._device = rows, device

    def to_vertices(self, work: OfStack[T], phase: AllToAllPhase) -> Moved[T]:
        """The results of ``work``, rows of full snapshots in the order of survival."""

        def ordered(position: int) -> tuple[Tensor, T]:
            rows, rest = work(position)
            return rows if position < self._decayed else rows.index_select(0, self._rows.own), rest

        found = parallel_map(ordered, range(len(self._heights)), device=self._device, alone=True)
        return [rows for rows, _ in found], [rest for _, rest in found]

    def to_snapshots(
        self, work: OfRows[T], pieces: Sequence[slice], phase: AllToAllPhase, *, like: Tensor, height: int
    ) -> Moved[T]:
        """Each piece's rows are written into the snapshots that contain them; full ones are permuted back."""
        out = [like.new_empty(rows, phase.width) for rows in self._heights]

        def write(rows: slice) -> T:
            packed, rest = work(rows)
            found = by_snapshot(packed, held_by(self._heights, rows))
            for part, here in zip(out[len(out) - len(found) :], found, strict=True):
                part[rows] = here
            return rest

        found = parallel_map(write, pieces, device=self._device, alone=True)
        whole = [rows.index_select(0, self._rows.place) for rows in out[self._decayed :]]
        return [*out[: self._decayed], *whole], found

    def pieces(self, rows: int, size: int) -> list[slice]:
        """At most ``WIDER`` times ``size`` nodes, of at most ``most`` rows in all snapshots or ``size`` if more.

        Packed rows count a quarter more: their states are copied.
        """
        found, start, most = list[slice](), 0, max(self._most, size)
        while start < rows:
            stop = min(start + WIDER * size, rows)
            while stop > start + 1 and (over := self._counted(slice(start, stop)) - most) > 0:
                stop = max(start + 1, stop - max(1, over // (2 * len(self._heights))))
            found.append(slice(start, stop))
            start = stop
        return found

    def _counted(self, rows: slice) -> int:
        held = held_by(self._heights, rows)
        return sum(held) if held[0] == held[-1] else 5 * sum(held) // 4


# One layer of a model over a window: nodes that enter late run through the snapshots that contain them.


@dataclass(slots=True)
class Entering(BoundaryState):
    """A layer's state of nodes that enter a window: carried over from the previous step, or zero.

    ``begin`` contains the rows of the first nodes; the others start from zero. The first ``leaving`` nodes leave a
    state for the next window in ``left``: that after the first snapshot that contains them, without history.
    """

    model: DynamicModel | None = None
    leaving: int = 0
    left: Tensors = ()

    def slice(self, rows: slice) -> State:
        """The state of a piece, as far as ``begin`` contains it; otherwise zeros that share memory."""
        held = self.begin.tensors[0].shape[0] if self.begin.tensors else 0  # a layer may remember nothing
        if rows.start < held:
            return self.begin.slice(slice(rows.start, min(rows.stop, held)))
        assert self.model is not None
        one, height = self.model.initial_state(1), rows.stop - rows.start
        return State(tuple(tuple(at_rest(x, height) for x in layer) for layer in one.layers))

    def leave(self, start: int, found: Tensors) -> None:
        """Keep the states that a piece leaves, which begins with node ``start``."""
        if start >= self.leaving:
            return
        if not self.left:
            self.left = tuple(x.new_empty(*x.shape[1:], self.leaving).movedim(-1, 0) for x in found)  # nodes last
        for to, x in zip(self.left, found, strict=True):
            part = to[start : start + len(x)]
            part.copy_(x[: len(part)].detach())


class WindowLayer(Layer):
    """A :class:`dtdg_lab.engine.backprop.time_blocks.Layer` whose older snapshots have the first rows of newer ones.

    If some of a piece's nodes enter late, its rows lie packed, (1, R, C): those that a snapshot has after those of the
    one before it. So a piece is one call of a recurrence, however many of its nodes enter late.
    """

    alone = True  # measured: windows are short, and the overhead of threads exceeds their computation
    _crossing: Entering

    def _loss(self, h: Tensor, at: range, rows: slice) -> Tensor:
        """The loss over the rows that each snapshot has."""
        heights = self._held(rows)
        h = newest(h, heights, len(at)) if len(at) < len(heights) else h
        heights = heights[-len(at) :]
        parts, snapshots = by_snapshot(self._run.model.readout(h), heights), at[len(at) - len(heights) :]
        losses, begin = [], 0
        for some, of in groupby(heights):
            end, here = begin + len(list(of)), slice(rows.start, rows.start + some)
            losses.append(self._run.loss(torch.stack(list(parts[begin:end])), snapshots[begin:end], here))
            begin = end
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()

    def _held(self, rows: slice) -> list[int]:
        return held_by([len(part) for part in self._parts], rows)

    def _stacked(self, parts: Sequence[Tensor], rows: slice) -> Tensor:
        """A piece's rows in the snapshots that have any of them: (S', piece, C), or packed."""
        held = [part[rows] for part in parts if len(part) > rows.start]
        return torch.stack(held) if len(held[0]) == len(held[-1]) else torch.cat(held).unsqueeze(0)

    def _through_time(self, x: Tensor, begin: State, rows: slice) -> tuple[Tensor, State]:
        """A piece run through its snapshots; the state that it leaves is kept, and none is given back."""
        model, heights = self._run.model, self._held(rows)
        if model.takes_heights:
            h, state = model.temporal_sequence(self._number, x, begin, heights=heights)  # type: ignore[call-arg]
        else:
            h, state = self._run_by_run(x, begin, heights)
        self._crossing.leave(rows.start, state.layers[self._number])
        return h, state.with_layer(self._number, ())  # it would be in memory until backward

    def _run_by_run(self, x: Tensor, begin: State, heights: Sequence[int]) -> tuple[Tensor, State]:
        """The same for a model that takes no packed rows: snapshots with the same nodes, the first one by itself."""
        model, number, parts, state, at, held = self._run.model, self._number, by_snapshot(x, heights), begin, 0, 0
        found, left = list[Tensor](), list[Tensors]()
        for some, of in groupby(heights):
            end, state = at + len(list(of)), self._grown(state, held, some, begin)
            for several in (parts[at : at + 1], parts[at + 1 : end]):
                if not several:
                    continue
                h, state = model.temporal_sequence(number, torch.stack(list(several)), state)
                found += h.unbind()
                if held < some:
                    left.append(tuple(x[held:].detach() for x in state.layers[number]))
                    held = some
            at = end
        packed = torch.stack(found) if len(x) == len(heights) else torch.cat(found).unsqueeze(0)
        return packed, state.with_layer(number, tuple(torch.cat(of) for of in zip(*left, strict=True)))

    def _grown(self, state: State, held: int, height: int, begin: State) -> State:
        """The first ``held`` rows, and the rows that enter now; for this layer only."""
        number = self._number
        pairs = zip(state.layers[number], begin.layers[number], strict=True)
        return state.with_layer(number, tuple(with_late(x[:held], of[held:height], height) for x, of in pairs))


# A layer of a window whose snapshots exchange rows with other ranks while others are computed.


class OverlappedLayer(WindowLayer):
    """A :class:`WindowLayer` in which other snapshots compute while one exchanges rows.

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
        seam: SpatialOutput,
        pace: Pace,
    ) -> None:
        self._pace = pace
        self._tasks: list[SpatialTask] = []
        super().__init__(run, number, block, inputs, crossing, learning=learning, seam=seam)

    def _mix(self, *, learning: bool) -> list[Tensor]:
        functions = [
            partial(self._run.model.spatial, self._number, space, x, self._crossing.begin)
            for space, x in zip(self._spaces, self._inputs, strict=True)
        ]
        tasks = self._pace.tasks.run(functions, self._pace.order(self._number), learning=learning)
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
        of_tasks, of_inputs = self._pace.tasks.gradients(self._tasks, self._gradients, self._inputs)
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
# A trapezoid is one ragged sequence: nodes lie in the order of survival, so that each snapshot has the first of them,
# and a piece of them is computed as :mod:`dtdg_lab.engine.backprop.time_blocks` computes a block of time.


MakeLayer = Callable[..., WindowLayer]


def add_gradients_window_blocks(
    run: SequenceSegment,
    spaces: Sequence[SnapshotView],
    seam: BlockRows,
    begin: State,
    *,
    widths: Sequence[SpatialOutput],
    make: MakeLayer = WindowLayer,
    leaving: int,
) -> tuple[Tensor, State | None]:
    """Add the gradients of a window's loss to the parameters'; returns the loss and the states for the next window.

    Args:
        run: the window's segment; its sequence has own nodes in the order in which they run through time.
        spaces: (S,) views of the snapshots, oldest first.
        seam: redistribution between the views and this order.
        begin: initial states of the first rows in this order; zero for the others.
        widths: of the redistribution, by layer.
        make: creates a layer from the arguments of :class:`WindowLayer`.
        leaving: how many of the first nodes leave a state for the next window.

    Returns:
        The loss, and the state of each of these nodes after the first snapshot that contains it; None of no node.
    """
    model = run.model
    stacks = [[space.layer(number) for space in spaces] for number in range(model.layers)]
    block = TimeBlock(run.snapshots, stacks, [run.own] * model.layers, seam)
    layers: list[WindowLayer] = []
    inputs, crossings = [space.inputs for space in spaces], list[Entering]()
    for number, width in enumerate(widths):
        if number:
            inputs = layers[-1].hidden()
        crossings.append(Entering(begin, keeps=False, model=model, leaving=leaving))
        layers.append(make(run, number, block, inputs, crossings[-1], learning=True, seam=width))
    loss = layers[-1].losses() if run.task.per_vertex else layers[-1].joint_loss()
    while layers:
        parts = layers.pop().backward()
        if layers:
            layers[-1].pull_back(parts)
    return loss, State(tuple(crossing.left for crossing in crossings)) if leaving else None


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
