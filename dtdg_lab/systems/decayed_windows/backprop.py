"""Gradients over a decayed window, layer by layer, whole or in pieces of nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TypeVar

import torch
from torch import Tensor

from dtdg_lab.config.model_facts import SpatialOutput
from dtdg_lab.engine.backprop.time_blocks import BoundaryState, Layer, Tensors
from dtdg_lab.engine.backprop.timeline import TimeBlock
from dtdg_lab.engine.exchange.overlap import Pace, SpatialTask
from dtdg_lab.engine.exchange.redistribution import AllToAllPhase, BlockRows, Moved, OfRows, OfStack
from dtdg_lab.engine.segment import SequenceSegment
from dtdg_lab.engine.views.snapshot_view import OneVertex, SnapshotView
from dtdg_lab.kernels.parallel_map import parallel_map
from dtdg_lab.kernels.recurrence import at_rest, by_snapshot, newest
from dtdg_lab.models.base import DynamicModel, State
from dtdg_lab.systems.decayed_windows.shrinking import SurvivalRows

# Reference: a window's snapshots one after another. It serves every model, also those whose weights evolve.


def add_gradients_window(
    run: SequenceSegment, views: Sequence[SnapshotView], full: int, rows: SurvivalRows, begin: State, *, late: bool
) -> tuple[Tensor, State]:
    """Add the gradients of a window's loss to the parameters'; return the loss and the states for the next window.

    Args:
        run: the window's segment, of own nodes by index.
        views: (S,) views of the snapshots, oldest first; decayed ones in the order of survival.
        full: number of full snapshots, the newest ones.
        rows: the order of survival.
        begin: initial states of the first rows in the order of survival; zero for the others.
        late: True to return states of nodes that the oldest snapshot lacks as well.

    Returns:
        The loss, a scalar, and the state of each node after the first snapshot that contains it, in the order of
        survival; both detached.
    """
    model, state, entered = run.model, begin, list[State]()
    decayed, height, losses = len(views) - full, 0, list[Tensor]()
    for position, view in enumerate(views):
        is_full, previous, height = position >= decayed, height, view.num_rows
        if previous < height:
            state = _grown(state, previous, height, begin)
        if position == decayed:
            state = _map_rows(state, lambda x: x.index_select(0, rows.positions))
        t = run.snapshots[position]
        if t in run.at:
            h, state = model.snapshot(view, view.inputs, state)
            loss_rows = slice(0, run.own) if is_full else rows.full_rows[:height]
            losses.append(run.loss(model.readout(h[: run.own]).unsqueeze(0), range(t, t + 1), loss_rows))
        else:
            state = _advanced(model, view, state)
        if previous < height and (late or position == 0):
            new_rows = rows.full_rows[previous:height] if is_full else slice(previous, height)
            entered.append(_map_rows(state, itemgetter(new_rows)).detach())
    loss = torch.stack(losses).sum()
    loss.backward()  # on every rank, with labels or without: the backward pass exchanges rows
    return loss.detach(), _joined(entered)


def _advanced(model: DynamicModel, view: SnapshotView, state: State) -> State:
    """Return the state after a snapshot without a loss; weights that evolve by themselves need no spatial part."""
    if model.memory == "none":
        return state
    if model.memory != "weights":
        return model.snapshot(view, view.inputs, state)[1]
    for layer in range(model.layers):
        state = model.evolve(layer, OneVertex(), model.zeros(1, model.width(layer)), state)
    return state


def _grown(state: State, height: int, new_height: int, begin: State) -> State:
    """Return the first ``height`` rows and the rows that enter now, with their initial state or zero."""
    if not state.per_vertex:
        return state
    return State(
        tuple(
            _grown_layer(layer, initial, height, new_height)
            for layer, initial in zip(state.layers, begin.layers, strict=True)
        )
    )


def _grown_layer(layer: Tensors, initial: Tensors, height: int, new_height: int) -> Tensors:
    pairs = zip(layer, initial, strict=True)
    return tuple(with_late(x[:height], late[height:new_height], new_height) for x, late in pairs)


def with_late(x: Tensor, late: Tensor, height: int) -> Tensor:
    """Return the rows ``x``, then those that enter late, then zeros up to ``height``."""
    parts = [part for part in (x, late) if len(part)]
    lacking = height - len(x) - len(late)
    if lacking:
        parts.append(x.new_zeros(lacking, *x.shape[1:]))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _joined(states: Sequence[State]) -> State:
    """Return the concatenated rows of several states."""
    if not states[0].per_vertex or len(states) == 1:
        return states[0]
    layers = zip(*(state.layers for state in states), strict=True)
    return State(tuple(tuple(torch.cat(parts) for parts in zip(*layer, strict=True)) for layer in layers))


def _map_rows(state: State, change: Callable[[Tensor], Tensor]) -> State:
    if not state.per_vertex:
        return state
    return State(tuple(tuple(change(x) for x in layer) for layer in state.layers))


# Rows are only reordered: older snapshots of a window have a prefix of the nodes of newer ones.


T = TypeVar("T")
WIDER = 2  # windows are short: a piece stores little, and calls dominate


def piece_heights(heights: Sequence[int], rows: slice) -> list[int]:
    """Return the piece's number of rows in each snapshot that has any of them, oldest first."""
    return [min(height, rows.stop) - rows.start for height in heights if height > rows.start]


class WindowRedistribution(BlockRows):
    """The redistribution of a window, one snapshot a view.

    See :class:`dtdg_lab.engine.exchange.redistribution.BlockRows`. Nodes run through time in the order of survival.
    Decayed snapshots have this order already; rows of full ones are permuted into it, and back.

    Args:
        heights: (S,) rows of each snapshot, oldest first, ascending.
        full: number of full snapshots, the newest ones.
        rows: the order of survival.
        device: of the computation. Pieces are processed one after another.
        max_rows: maximum rows of a piece, summed over all snapshots
            (:meth:`dtdg_lab.systems.decayed_windows.workload.RowMemory.piece`).
    """

    def __init__(self, heights: Sequence[int], full: int, rows: SurvivalRows, *, device: str, max_rows: int) -> None:
        self._heights, self._decayed, self._max_rows = list(heights), len(heights) - full, max_rows
        self._rows, self._device = rows, device

    def to_vertices(self, work: OfStack[T], phase: AllToAllPhase) -> Moved[T]:
        """Return the results of ``work``, with rows of full snapshots in the order of survival."""

        def ordered(position: int) -> tuple[Tensor, T]:
            rows, rest = work(position)
            return rows if position < self._decayed else rows.index_select(0, self._rows.full_rows), rest

        results = parallel_map(ordered, range(len(self._heights)), device=self._device, alone=True)
        return [rows for rows, _ in results], [rest for _, rest in results]

    def to_snapshots(
        self, work: OfRows[T], pieces: Sequence[slice], phase: AllToAllPhase, *, like: Tensor, height: int
    ) -> Moved[T]:
        """Write each piece's rows into the snapshots that contain them; full ones are permuted back."""
        out = [like.new_empty(rows, phase.width) for rows in self._heights]

        def write(rows: slice) -> T:
            packed, rest = work(rows)
            parts = by_snapshot(packed, piece_heights(self._heights, rows))
            for snapshot, part in zip(out[len(out) - len(parts) :], parts, strict=True):
                snapshot[rows] = part
            return rest

        results = parallel_map(write, pieces, device=self._device, alone=True)
        full = [rows.index_select(0, self._rows.positions) for rows in out[self._decayed :]]
        return [*out[: self._decayed], *full], results

    def pieces(self, rows: int, size: int) -> list[slice]:
        """Return pieces of at most ``WIDER * size`` nodes.

        A piece has at most ``max_rows`` rows, summed over all snapshots, or ``size`` if that is more. Packed rows count
        a quarter more, because their states are copied.
        """
        pieces, start, max_rows = list[slice](), 0, max(self._max_rows, size)
        while start < rows:
            stop = min(start + WIDER * size, rows)
            while stop > start + 1 and (excess := self._counted_rows(slice(start, stop)) - max_rows) > 0:
                stop = max(start + 1, stop - max(1, excess // (2 * len(self._heights))))
            pieces.append(slice(start, stop))
            start = stop
        return pieces

    def _counted_rows(self, rows: slice) -> int:
        heights = piece_heights(self._heights, rows)
        return sum(heights) if heights[0] == heights[-1] else 5 * sum(heights) // 4


# One layer of a model over a window. Nodes that enter late run only through the snapshots that contain them.


@dataclass(slots=True)
class WindowBoundary(BoundaryState):
    """A layer's state of the nodes that enter a window: carried over from the previous step, or zero.

    ``begin`` contains the rows of the first nodes; the others start from zero. ``carried`` receives the state of the
    first ``leaving`` nodes for the next window: the detached state after the first snapshot that contains the node.
    """

    model: DynamicModel | None = None
    leaving: int = 0
    carried: Tensors = ()

    def slice(self, rows: slice) -> State:
        """Return the state of a piece if ``begin`` contains it, otherwise zeros that share memory."""
        height = self.begin.tensors[0].shape[0] if self.begin.tensors else 0  # a layer may remember nothing
        if rows.start < height:
            return self.begin.slice(slice(rows.start, min(rows.stop, height)))
        assert self.model is not None
        single_row, count = self.model.initial_state(1), rows.stop - rows.start
        return State(tuple(tuple(at_rest(x, count) for x in layer) for layer in single_row.layers))

    def leave(self, start: int, states: Tensors) -> None:
        """Store the states that a piece leaves to the next window; the piece begins with node ``start``."""
        if start >= self.leaving:
            return
        if not self.carried:
            self.carried = tuple(x.new_empty(*x.shape[1:], self.leaving).movedim(-1, 0) for x in states)  # nodes last
        for target, x in zip(self.carried, states, strict=True):
            part = target[start : start + len(x)]
            part.copy_(x[: len(part)].detach())


class WindowLayer(Layer):
    """A :class:`dtdg_lab.engine.backprop.time_blocks.Layer` whose older snapshots have the first rows of newer ones.

    If some of a piece's nodes enter late, its rows are packed into (1, R, C), snapshot after snapshot. So a piece is
    one call of a recurrence, however many of its nodes enter late.
    """

    alone = True  # measured: windows are short, and the overhead of threads exceeds their computation
    _crossing: WindowBoundary

    def _loss(self, h: Tensor, at: range, rows: slice) -> Tensor:
        """Return the loss over the rows that each snapshot has."""
        heights = self._piece_heights(rows)
        h = newest(h, heights, len(at)) if len(at) < len(heights) else h
        heights = heights[-len(at) :]
        parts, snapshots = by_snapshot(self._run.model.readout(h), heights), at[len(at) - len(heights) :]
        losses, begin = [], 0
        for height, equal in groupby(heights):
            end = begin + len(list(equal))
            loss_rows = slice(rows.start, rows.start + height)
            losses.append(self._run.loss(torch.stack(list(parts[begin:end])), snapshots[begin:end], loss_rows))
            begin = end
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()

    def _piece_heights(self, rows: slice) -> list[int]:
        return piece_heights([len(part) for part in self._parts], rows)

    def _stacked(self, parts: Sequence[Tensor], rows: slice) -> Tensor:
        """Return a piece's rows in the snapshots that have any of them: (S', piece, C), or packed."""
        pieces = [part[rows] for part in parts if len(part) > rows.start]
        return torch.stack(pieces) if len(pieces[0]) == len(pieces[-1]) else torch.cat(pieces).unsqueeze(0)

    def _through_time(self, x: Tensor, begin: State, rows: slice) -> tuple[Tensor, State]:
        """Run a piece through its snapshots and store the state that it leaves; the returned state lacks this layer."""
        model, heights = self._run.model, self._piece_heights(rows)
        if model.takes_heights:
            h, state = model.temporal_sequence(self._number, x, begin, heights=heights)  # type: ignore[call-arg]
        else:
            h, state = self._height_by_height(x, begin, heights)
        self._crossing.leave(rows.start, state.layers[self._number])
        return h, state.with_layer(self._number, ())  # it would be in memory until backward

    def _height_by_height(self, x: Tensor, begin: State, heights: Sequence[int]) -> tuple[Tensor, State]:
        """Run a piece without packing: one call per group of snapshots with the same nodes; the group's first alone."""
        model, number, parts, state = self._run.model, self._number, by_snapshot(x, heights), begin
        outputs, entered, start, previous = list[Tensor](), list[Tensors](), 0, 0
        for height, equal in groupby(heights):
            end = start + len(list(equal))
            layer = _grown_layer(state.layers[number], begin.layers[number], previous, height)
            state = state.with_layer(number, layer)
            for snapshots in (parts[start : start + 1], parts[start + 1 : end]):
                if not snapshots:
                    continue
                h, state = model.temporal_sequence(number, torch.stack(list(snapshots)), state)
                outputs += h.unbind()
                if previous < height:
                    entered.append(tuple(tensor[previous:].detach() for tensor in state.layers[number]))
                    previous = height
            start = end
        packed = torch.stack(outputs) if len(x) == len(heights) else torch.cat(outputs).unsqueeze(0)
        return packed, state.with_layer(number, tuple(torch.cat(tensors) for tensors in zip(*entered, strict=True)))


# A layer of a window whose snapshots exchange rows with other ranks while others are computed.


class OverlappedLayer(WindowLayer):
    """A :class:`WindowLayer` that computes some snapshots while another exchanges rows.

    Collective, in forward and backward.

    Args:
        run: the segment that is differentiated.
        number: index of the layer.
        block: the window; one snapshot per view.
        inputs: of each snapshot.
        crossing: the state before the window.
        learning: True if a backward pass follows.
        spatial_output: widths of the spatial part's output.
        pace: schedules the snapshots.

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
        spatial_output: SpatialOutput,
        pace: Pace,
    ) -> None:
        self._pace = pace
        self._tasks: list[SpatialTask] = []
        super().__init__(run, number, block, inputs, crossing, learning=learning, spatial_output=spatial_output)

    def _mix(self, *, learning: bool) -> list[Tensor]:
        functions = [
            partial(self._run.model.spatial, self._number, view, x, self._crossing.begin)
            for view, x in zip(self._views, self._inputs, strict=True)
        ]
        tasks = self._pace.tasks.run(functions, self._pace.order(self._number), learning=learning)
        self._pace.note(self._number, tasks)
        mixed = [task.result.detach() for task in tasks if task.result is not None]
        if self._learns:
            self._tasks = tasks
        return self._block.redistribution.to_vertices(
            lambda position: (mixed[position], None), AllToAllPhase(self._number, False, self._width)
        )[0]

    def backward(self) -> list[Tensor]:
        """Return the gradient of the layer's input in each snapshot, from one backward pass; none in layer 0."""
        if not self._learns:
            return []
        task_gradients, input_gradients = self._pace.tasks.gradients(self._tasks, self._gradients, self._inputs)
        self._tasks, self._gradients = [], []
        for gradients in task_gradients:
            self._learned.add(gradients)
        if self._number == 0:
            return []
        phase = AllToAllPhase(self._number, True, self._run.model.width(self._number))

        def input_gradient(position: int) -> tuple[Tensor, None]:
            gradient, x = input_gradients[position], self._inputs[position]
            return x.new_zeros(x.shape) if gradient is None else gradient, None

        return self._block.redistribution.to_vertices(input_gradient, phase)[0]


# A window of snapshots for models with a hidden state per node: layer by layer, piece by piece.
#
# A trapezoid is one ragged sequence: nodes are in the order of survival, so every snapshot has a prefix of them.
# A piece is computed as in :mod:`dtdg_lab.engine.backprop.time_blocks`.


MakeLayer = Callable[..., WindowLayer]


def add_gradients_window_blocks(
    run: SequenceSegment,
    views: Sequence[SnapshotView],
    redistribution: BlockRows,
    begin: State,
    *,
    widths: Sequence[SpatialOutput],
    make: MakeLayer = WindowLayer,
    leaving: int,
) -> tuple[Tensor, State | None]:
    """Add the gradients of a window's loss to the parameters'; return the loss and the states for the next window.

    Args:
        run: the window's segment; its sequence has own nodes in the order of survival.
        views: (S,) views of the snapshots, oldest first.
        redistribution: between the views and the order of survival.
        begin: initial states of the first rows in this order; zero for the others.
        widths: of the redistribution, by layer.
        make: creates a layer from the arguments of :class:`WindowLayer`.
        leaving: number of nodes, the first in this order, that leave a state for the next window.

    Returns:
        The loss, and the state of each leaving node after the first snapshot that contains it; None if none leaves one.
    """
    model = run.model
    stacks = [[view.layer(number) for view in views] for number in range(model.layers)]
    block = TimeBlock(run.snapshots, stacks, [run.own] * model.layers, redistribution)
    layers: list[WindowLayer] = []
    inputs, boundaries = [view.inputs for view in views], list[WindowBoundary]()
    for number, width in enumerate(widths):
        if number:
            inputs = layers[-1].hidden()
        boundaries.append(WindowBoundary(begin, keeps=False, model=model, leaving=leaving))
        layers.append(make(run, number, block, inputs, boundaries[-1], learning=True, spatial_output=width))
    loss = layers[-1].losses() if run.task.per_vertex else layers[-1].joint_loss()
    while layers:
        parts = layers.pop().backward()
        if layers:
            layers[-1].pull_back(parts)
    return loss, State(tuple(boundary.carried for boundary in boundaries)) if leaving else None
