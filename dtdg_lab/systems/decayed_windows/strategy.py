"""FlareDTDG: decayed windows over node partitions with a halo, and the tuning of their shape."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import DataError, UnsupportedError
from dtdg_lab.core.plans import Partition
from dtdg_lab.core.preparation import track
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.async_overlap import Pace, TaskSize
from dtdg_lab.engine.backprop.time_blocks import STEP_NUMBERS
from dtdg_lab.engine.capabilities import Carries, Decision, DescribesMemory, Reconfigurable, Tunable
from dtdg_lab.engine.graph_view import DeviceSequence, NeighbourRows, NumberedSequence, SnapshotView
from dtdg_lab.engine.halo_exchange import Exchanger, HaloRows, HaloSequence, LocalSource, PartEdges, Route, own_nodes
from dtdg_lab.engine.segment import SequenceSegment
from dtdg_lab.engine.strategy import BuildContext, RecordRows, Step, StepMarks, StepResult, Strategy
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.kernels.operators import Operators, OperatorSettings
from dtdg_lab.models.base import DynamicModel, State
from dtdg_lab.records.events import Event
from dtdg_lab.systems.decayed_windows import backprop
from dtdg_lab.systems.decayed_windows.chunks import chunking_event, shared_chunks
from dtdg_lab.systems.decayed_windows.events import Shape, TrapezoidFacts
from dtdg_lab.systems.decayed_windows.window import (
    WHOLE_CHUNKS,
    Chunking,
    HybridBatch,
    RowMemory,
    Setting,
    Shrinker,
    SurvivalOrder,
    Trapezoid,
    candidates,
    hybrid_batch,
    largest_piece,
    neighbours,
    next_setting,
    segments,
    survival_order,
)
from dtdg_lab.training.memory import peak_bytes
from dtdg_lab.training.partition import partition_event

CARRIED = "carried"  # in the state of a checkpoint

# State that a step leaves to the next one, node by node, and what each node starts the next window from.


Entering = Sequence[tuple[int, int]]


class Carried:
    """What a step leaves to the next one; without history.

    The next window is one snapshot later, and a node enters it one snapshot later as well. What it starts from there,
    the state after the snapshot before, is the state after the first snapshot that it is in now. So one row of each
    node is kept, after its own first snapshot, rather than the states of all snapshots. A node that the next window
    takes up anywhere else, as after a change of its shape, starts from the initial state.

    Args:
        model: whose state it is.

    Attributes:
        after: (n',) int64 on the host: the snapshot that each row is the state after, -1 where it is of none; one
            number where rows are not nodes; None where nothing is carried.

    References: FlareDTDG sections 3.1 and 3.2, algorithm 1 line 7. Its released code keeps all states of all snapshots
        and hands over the same rows.
    """

    def __init__(self, model: DynamicModel) -> None:
        self._model = model
        self.after: Tensor | None = None
        self._state: State | None = None
        self._waiting: tuple[Tensor, Tensor, State] | None = None

    def before(self, entering: Entering) -> State:
        """What nodes start a window from: rows of the first ones; those beyond start from zero.

        Args:
            entering: (rows, snapshot) of the window's snapshots, oldest first: the nodes up to ``rows`` that no
                earlier one has enter at this snapshot. Those of the oldest alone where late ones start from zero.
        """
        first, oldest = entering[0]
        if self._state is None or self.after is None:
            return self._zeros(first)
        if not self._state.per_vertex:
            return self._state if int(self.after) == oldest - 1 else self._model.initial_state(first)
        wanted = _by_row(entering) - 1
        held = min(len(wanted), len(self.after))
        fits = self.after[:held] == wanted[:held]
        if not bool(fits.any()):
            return self._zeros(first)
        if bool(fits.all()) and held == len(wanted):
            return self._state.slice(slice(0, held))
        begin = self._model.initial_state(len(wanted))

        def put(new: Tensor, x: Tensor) -> Tensor:
            mask = fits.to(x.device).view(-1, *[1] * (x.ndim - 1))
            return torch.cat([torch.where(mask, x[:held], new[:held]), new[held:]])

        return State(
            tuple(
                tuple(put(n, x) for n, x in zip(new, of, strict=True))
                for new, of in zip(begin.layers, self._state.layers, strict=True)
            )
        )

    def _zeros(self, height: int) -> State:
        """The initial state; rows of zeros share the memory of one, else a segment's first steps take the most."""
        if self._model.memory != "per_vertex":
            return self._model.initial_state(height)
        one = self._model.initial_state(1)
        return State(tuple(tuple(x.expand(height, *x.shape[1:]) for x in layer) for layer in one.layers))

    def keep(self, entering: Entering, state: State | None) -> None:
        """Carry the state of each node after the snapshot at which it entered; nothing where there is none."""
        if state is None or (state.per_vertex and not any(state.layers)):
            self.after = self._state = None
            return
        self._state = state
        self.after = _by_row(entering) if state.per_vertex else torch.tensor(entering[0][1])

    def drop(self) -> None:
        """Carry nothing: a segment ends, or another run begins."""
        self.keep((), None)

    def taken_out(self, rows: backprop.SurvivalRows) -> tuple[Tensor, Tensor, State] | None:
        """Numbers of the nodes that have state, (n',), after which snapshot, and their state."""
        if self._state is None or self.after is None:
            return None
        held = len(self.after) if self._state.per_vertex else 0
        return rows.vertices[:held], self.after, self._state

    def put_back(self, vertices: Tensor, after: Tensor, state: State) -> None:
        """State of a run that is resumed; its rows are put in order once the epoch's order is known."""
        self.after, self._waiting = after, (vertices, after, state)

    def take(self, rows: backprop.SurvivalRows) -> None:
        """A new epoch begins, or one is resumed."""
        if self._waiting is None:
            self.drop()
            return
        (vertices, after, state), self._waiting = self._waiting, None
        self._state, self.after = (state, after) if not state.per_vertex else _ordered(state, after, vertices, rows)


def _by_row(entering: Entering) -> Tensor:
    """(n,): the snapshot at which each row enters."""
    heights = [0, *(rows for rows, _ in entering)]
    counts = torch.tensor([newer - older for older, newer in pairwise(heights)])
    return torch.repeat_interleave(torch.tensor([snapshot for _, snapshot in entering]), counts)


def _ordered(state: State, after: Tensor, vertices: Tensor, rows: backprop.SurvivalRows) -> tuple[State, Tensor]:
    """The rows of own nodes among some, in the order of survival; -1 for those that are not among them."""
    place = rows.vertices.new_full((int(max(vertices.max(), rows.vertices.max())) + 1,), -1)
    place[vertices] = torch.arange(len(vertices), device=vertices.device)
    found = place[rows.vertices]
    at = found.clamp(min=0)
    own = torch.where(found.cpu() >= 0, after[at.cpu()], -1)
    return State(tuple(tuple(x.index_select(0, at) for x in layer) for layer in state.layers)), own


# Rows of a decayed snapshot: no neighbour is elsewhere, since edges between parts were dropped.


class LocalRows(NeighbourRows):
    """Own rows alone; the best are those of all ranks.

    Args:
        exchanger: gathers candidates.
        group: the ranks.
        vertices: (n,) the nodes' numbers in the graph, in the order of the rows.
    """

    def __init__(self, exchanger: Exchanger, group: Group, vertices: Tensor) -> None:
        self._exchanger, self._group, self._vertices = exchanger, group, vertices

    def candidates(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k best of every rank, by node."""
        vertices, order = torch.sort(self._vertices)
        rows = HaloRows(self._exchanger, self._group, _nowhere, vertices)
        return rows.candidates(x.index_select(0, order), scores.index_select(0, order), k)


def _nowhere(direction: str) -> Route:
    raise AssertionError("a decayed snapshot exchanges no rows")


# Decayed snapshots as spaces: the first nodes in the order of survival, and the edges among them.


class ShrunkenViews:
    """Makes the space of a decayed snapshot; norms are those of what is left of it.

    Args:
        graph: T snapshots.
        settings: of operators.
        exchanger: gathers candidates of all ranks.
        group: the ranks.
        directions: along which edges the model pulls.
    """

    def __init__(
        self,
        graph: DynamicGraph,
        settings: OperatorSettings,
        exchanger: Exchanger,
        group: Group,
        directions: tuple[str, ...],
    ) -> None:
        self._graph, self._settings, self._exchanger, self._group = graph, settings, exchanger, group
        self._shrinker, self._directions = Shrinker(graph.snapshots), directions
        self.edges = 0  # of the spaces made since this was set to 0

    def renumber(self, rows: backprop.SurvivalRows) -> None:
        """Take the order of an epoch."""
        self._rows = rows
        self._shrinker.renumber(rows.order)

    def keep_only(self, snapshots: range) -> None:
        """Let go of the edges of snapshots that the window has left."""
        self._shrinker.keep_only(snapshots)

    def view(self, t: int, rows: int, everywhere: int) -> SnapshotView:
        """Snapshot t with its first ``rows`` nodes here and ``everywhere`` on all ranks."""
        vertices = self._rows.vertices[:rows]
        edges = {direction: self._part(t, rows, direction) for direction in self._directions}
        self.edges += sum(len(part.indices) for part in edges.values())
        neighbours = LocalRows(self._exchanger, self._group, vertices)
        operators = Operators(LocalSource(partial(self._again, edges, t, rows), self._settings), self._settings)
        features = self._graph.features[t][self._rows.order.vertices[:rows]]
        inputs = torch.from_numpy(np.ascontiguousarray(features)).to(self._settings.device).to(self._settings.dtype)
        return SnapshotView(
            operators, range(t, t + 1), inputs, neighbours, num_nodes=everywhere, may_keep=lambda size: False
        )

    def _again(self, edges: dict[str, PartEdges], t: int, rows: int, direction: str) -> PartEdges:
        return edges.pop(direction) if direction in edges else self._part(t, rows, direction)

    def _part(self, t: int, rows: int, direction: str) -> PartEdges:
        found = self._shrinker.edges(t, rows, direction)
        return PartEdges(found.indptr, found.indices, found.weights, rows, found.degrees, found.other_degrees)


# Node parts that train on windows of snapshots: the newest whole, with exchanges, the older ones ever smaller.


class BatchRow(NamedTuple):
    """A row of the table ``batches``, without step and epoch."""

    target: int
    first: int
    full: int
    chunks: list[int | None]
    rows: int
    edges: int
    shrink_s: float
    sampled: list[int] | None


@dataclass(frozen=True, slots=True, eq=False)
class Cuts:
    """What windows are cut by, for P parts.

    Attributes:
        owner: (N,) the part of each node.
        chunking: of each part's nodes.
        parts: those of this rank.
        seed: of the run.
        directions: along which edges the model pulls.
    """

    owner: NDArray[np.int32]
    chunking: Chunking
    parts: range
    seed: int
    directions: tuple[str, ...]


class DecayedWindowStrategy(Strategy, Reconfigurable, Tunable, Carries, DescribesMemory):
    """One step for each labelled snapshot of the training split: forward through the window that it ends.

    Full snapshots exchange rows of remote neighbours; decayed ones have no edge between parts. State passes from step
    to step without its gradient. A node that the oldest snapshots of a window lack enters it late: it starts from the
    state that it had after the same earlier snapshot in the step before, or from zero, and at the start of a segment
    from zero in any case.

    Args:
        context: what it is built from.
        sequence: full snapshots of the own nodes of this rank; of all where there is one.
        exchanger: what the sequence exchanges rows by.
        shape: of the windows; can be changed between two steps.
        cuts: what they are cut by.
        pace: orders exchanges where there are several ranks.
        loss_at: ``last`` or ``all`` snapshots of a window. At ``all`` the loss is the mean over them, and that of a
            decayed snapshot is the mean over the labelled items that it keeps, on all ranks together.
        inherits: whether nodes that enter late inherit their state; else they start from zero.

    References: FlareDTDG sections 3.1 to 3.4, algorithm 1 (line 7: states are inherited). Algorithm 1 takes the loss
        "based on h^t", which reads as the newest snapshot's; the released code averages it over all snapshots of the
        window. Both are here. ``last`` is the default, so that full and decayed windows learn from the same labels.
    Differs from the paper: full snapshots keep the order of the graph, so that their operators are made once in a run;
        rows are put into the order of survival on their way through time.
    """

    def __init__(
        self,
        context: BuildContext,
        sequence: DeviceSequence | HaloSequence,
        exchanger: Exchanger,
        *,
        shape: Trapezoid,
        cuts: Cuts,
        pace: Pace,
        loss_at: str = "last",
        inherits: bool = True,
    ) -> None:
        self.context, self.shape, self.chunking = context, shape, cuts.chunking
        model, group, train = context.model, context.group, context.train
        self._model, self._sequence, self._task, self._train = model, sequence, context.task, train
        self._exchanger, self._group, self._cuts, self.pace = exchanger, group, cuts, pace
        self._loss_at, self._inherits = loss_at, inherits
        self._shrunken = ShrunkenViews(sequence.graph, sequence.settings, exchanger, group, cuts.directions)
        self._widths = model.facts.spatial if model.memory == "per_vertex" else ()
        self._epoch = -1
        self._rows: backprop.SurvivalRows
        self._everyone: SurvivalOrder | None = None
        self._shares: dict[tuple[int, int], float] = {}
        self._batches: list[BatchRow] = []
        self.carried = Carried(model)
        self._load_carried(context.state)
        for t in track(
            train, "snapshots are laid out"
        ):  # operators and the indices of exchanges are part of what making the layout costs
            sequence.view(t)

    def epoch(self, epoch: int) -> Sequence[backprop.WindowWork]:
        """The steps of an epoch, the later segment's first; the same on every rank."""
        works: list[backprop.WindowWork] = []
        for segment in segments(self._train, seed=self._cuts.seed, epoch=epoch):
            targets = [t for t in segment if self._task.labelled(t)]
            for target, after in zip(targets, [segment.start - 1, *targets], strict=False):
                number, groups = len(works), (len(works),) if self._group.rank == 0 else ()
                length, ends = min(target - segment.start + 1, self.shape.window), target == targets[-1]
                works.append(backprop.WindowWork(number, groups, 1, length, epoch, segment, target, after, ends))
        return works

    @property
    def piece_rows(self) -> int:
        """Most nodes that run through time at once."""
        return backprop.WIDER * STEP_NUMBERS[self._sequence.device.partition(":")[0]] // self._model.hidden

    def by_length(self) -> list[backprop.WindowWork]:
        """The first step of each length of a window, from one snapshot to all, of an epoch that is not cut."""
        groups = (0,) if self._group.rank == 0 else ()
        return [
            backprop.WindowWork(0, groups, 1, place + 1, 0, self._train, target, target - 1)
            for place, target in enumerate(self._train[: self.shape.window])
        ]

    def compute(self, work: Step, marks: StepMarks) -> StepResult:
        """This rank's share of the loss of a window, and of its gradients."""
        assert isinstance(work, backprop.WindowWork)
        self._exchanger.marks = marks
        self._take_epoch(work.epoch)
        batch = hybrid_batch(work.segment, work.target, self.shape, after=work.after)
        spaces = self._spaces(batch)
        marks("batch")
        run = self._run(batch)
        self._task.prepare(run.at)
        marks("transfer")
        entering = self._first_in([space.num_rows for space in spaces], batch.snapshots)
        loss, left = self._add_gradients(run, batch, spaces, self.carried.before(entering))
        self.carried.keep(entering, None if work.ends_segment else left)
        return StepResult(float(loss), len(work.groups), sum(space.num_rows for space in spaces))

    def tried(self, work: backprop.WindowWork, marks: StepMarks) -> StepResult:
        """A step that does not count, to see what it takes: as if a step before had left states for every node."""
        self._take_epoch(work.epoch)
        batch = hybrid_batch(work.segment, work.target, self.shape, after=work.after)
        heights = [*(self._rows.kept(count) for count in batch.counts), *[self._sequence.own] * batch.full]
        entering = self._first_in(heights, batch.snapshots)
        before = [(rows, snapshot - 1) for rows, snapshot in entering]
        left = self._model.initial_state(entering[-1][0])
        layers = tuple(tuple(x.detach().clone() for x in layer) for layer in left.layers)
        self.carried.keep(before, State(layers, left.per_vertex))
        del left, layers  # what is carried is in memory once
        return self.compute(work, marks)

    def shaped(self, full_snapshots: int, alpha: float) -> Trapezoid:
        """The shape with another K and alpha."""
        return replace(self.shape, full=full_snapshots, alpha=alpha)

    def forget(self) -> None:
        """Be as before the first step."""
        self._epoch = -1
        self.carried.drop()
        self.pace.forget()
        self.rows()

    def rows(self) -> RecordRows:
        """Return and forget the recorded rows, by table."""
        batches, self._batches = self._batches, []
        return {
            "links": [*self._exchanger.drain()],
            "exchanges": [*self._exchanger.times.drain()],
            "tasks": [*self.pace.drain()],
            "batches": [*batches],
        }

    # one step

    def _take_epoch(self, epoch: int) -> None:
        if epoch == self._epoch:
            return
        order = self._survival(self._cuts.parts, epoch)
        self._rows, self._epoch = backprop.SurvivalRows.of(order, self._sequence.device), epoch
        self._everyone, self._shares = None, {}
        self._shrunken.renumber(self._rows)
        self.carried.take(self._rows)

    def _survival(self, parts: range, epoch: int) -> SurvivalOrder:
        of = self._cuts
        return survival_order(of.owner, of.chunking, parts, seed=of.seed, epoch=epoch)

    def _first_in(self, heights: list[int], snapshots: range) -> Entering:
        """At which snapshot nodes enter the window that may have a state to start from."""
        return list(zip(heights, snapshots, strict=True))[: None if self._inherits else 1]

    def _spaces(self, batch: HybridBatch) -> list[SnapshotView]:
        """The snapshots of a window, oldest first."""
        started_s, self._shrunken.edges = time.perf_counter(), 0
        self._shrunken.keep_only(batch.snapshots)
        spaces = [
            self._shrunken.view(t, self._rows.kept(count), self._rows_everywhere(count))
            for t, count in zip(batch.decayed, batch.counts, strict=True)
        ]
        shrink_s = time.perf_counter() - started_s
        spaces += [self._sequence.view(t) for t in batch.snapshots[len(spaces) :]]
        kept = [*batch.counts, *[None] * batch.full]
        rows = sum(space.num_rows for space in spaces)
        first, edges = batch.snapshots.start, self._shrunken.edges
        self._batches.append(BatchRow(batch.target, first, batch.full, kept, rows, edges, shrink_s, None))
        return spaces

    def _rows_everywhere(self, count: int) -> int:
        """Rows on all ranks; only models that look for the best of all nodes ask."""
        if self._model.memory != "weights_from_data":
            return self._sequence.graph.num_nodes
        return int(self._of_all_parts().rows[count])

    def _of_all_parts(self) -> SurvivalOrder:
        if self._everyone is None:
            self._everyone = self._survival(range(self._cuts.chunking.parts), self._epoch)
        return self._everyone

    def _kept(self, t: int, count: int) -> float:
        """The share of a decayed snapshot's labelled items that its nodes hold, on all ranks together."""
        if (t, count) not in self._shares:
            order = self._of_all_parts()
            vertices = torch.from_numpy(order.vertices[: order.rows[count]].copy()).to(self._sequence.device)
            self._shares[t, count] = float(self._task.share(range(t, t + 1), vertices)[0])
        return self._shares[t, count]

    def _run(self, batch: HybridBatch) -> SequenceSegment:
        in_order = self._model.memory == "per_vertex"  # of survival
        vertices = self._rows.vertices if in_order else self._sequence.vertices
        kept = {}
        if self._loss_at == "all":
            kept = {t: self._kept(t, count) for t, count in zip(batch.decayed, batch.counts, strict=True)}
        sequence = NumberedSequence(self._sequence, vertices)
        return SequenceSegment(self._model, sequence, self._task, batch.snapshots, self._loss_at, kept)

    def _add_gradients(
        self, run: SequenceSegment, batch: HybridBatch, spaces: list[SnapshotView], begin: State
    ) -> tuple[Tensor, State | None]:
        if self._model.memory != "per_vertex":
            return backprop.add_gradients_window(run, spaces, batch.full, self._rows, begin, late=self._inherits)
        device, ranks = self._sequence.device, self._group.size
        heights, whole = [space.num_rows for space in spaces], self.shape
        most = largest_piece([heights[-1], *map(self._rows.kept, whole.counts)], whole.full, self.piece_rows)
        seam = backprop.WindowRedistribution(heights, batch.full, self._rows, device=device, most=int(most))
        make: backprop.MakeLayer = backprop.WindowLayer
        if ranks > 1:
            self.pace.begin(self._sizes(batch, spaces))
            make = partial(backprop.OverlappedLayer, pace=self.pace)
        leaving = heights[-1] if self._inherits else heights[0] * (len(spaces) == self.shape.window)
        return backprop.add_gradients_window_blocks(
            run, spaces, seam, begin, widths=self._widths, make=make, leaving=leaving
        )

    def _sizes(self, batch: HybridBatch, spaces: list[SnapshotView]) -> list[TaskSize]:
        """How much work each snapshot is, as the time predictor's input."""
        sequence = self._sequence
        assert isinstance(sequence, HaloSequence)
        share = sequence.own / sequence.graph.num_nodes
        sizes = []
        for t, space in zip(batch.snapshots, spaces, strict=True):
            is_full = t not in batch.decayed
            edges = int(sequence.graph.num_edges[t] * (share if is_full else share * space.num_rows / sequence.own))
            sizes.append(TaskSize(t, space.num_rows, edges, sequence.halo_rows(t) if is_full else None))
        return sizes

    # around training

    plan_kinds = ("partition", "chunks", "trapezoid")
    probed_plans = ("trapezoid",)
    row_memory: RowMemory | None = None  # of a step, once memory has been probed

    def probe_steps(self) -> Iterator[Callable[[StepMarks], Any]]:
        """Windows of all lengths: the worst need not be the longest, and no epoch need have all lengths."""
        learned = self.pace.predictor  # from steps of training; those of a probe are slower
        for step in self.by_length():
            self.forget()
            yield partial(self.tried, step)
        self.row_memory = measure(self)
        self.forget()
        self.pace.predictor = learned

    def probes_after(self, before: Strategy) -> bool:
        """Always: the event of the windows says what a step takes."""
        return True

    def plan_events(self) -> list[Event]:
        """The partition, its chunks, and the shape of the windows."""
        of = self.context
        assert of.partition is not None
        share = self.shape.full / max(len(of.train), 1)  # a snapshot is full in K of an epoch's steps
        return [
            partition_event(of, full_share=share),
            chunking_event(of.config["chunker"], of.graph, of.partition, self.chunking),
            self._window_event(of.partition),
        ]

    def _window_event(self, partition: Partition) -> Event:
        """The shape of the windows; chunks are taken as alike."""
        shape, memory, chunks = self.shape, self.row_memory, self.chunking.chunks
        nodes, most = len(partition.owner), int(partition.on_ranks(self._group.size).counts.max())
        kept = np.arange(chunks + 1) / chunks
        return TrapezoidFacts(
            window=shape.window,
            shape=Shape(shape.full, shape.alpha, shape.decay),
            chunks=chunks,
            nodes=nodes,
            row_counts=kept * nodes,
            rank_row_counts=kept * most,
            base_bytes=None if memory is None else memory.base_bytes,
            row_bytes=None if memory is None else memory.row_bytes,
            piece_bytes=0.0 if memory is None else memory.piece_bytes,
            piece_rows=self.piece_rows,
        )

    def apply_settings(self, config: RunConfig) -> None:
        """Give windows the shape that a config asks for."""
        self.shape = Trapezoid.of(config, chunks=self.shape.chunks)

    def tune(self, epoch: int, config: RunConfig, components: Any) -> tuple[Decision, dict[str, Any]] | None:
        """Look at the neighbours of K and alpha where it is due; collective."""
        if "tune" not in config.options["batching"]:
            return None

        def predicted(full_snapshots: int, alpha: float) -> float:
            assert self.row_memory is not None  # probed at the end of the first epoch, before
            return self.row_memory.peak_bytes(self.shaped(full_snapshots, alpha))

        decision = Tuner(config).end_epoch(epoch, partial(_trial_loss, self, components, epoch + 1), predicted)
        return None if decision is None else (decision.row, decision.changes)

    @property
    def at_rest(self) -> bool:
        """Whether no state is carried to the next step."""
        return self.carried.after is None

    def carried_state(self) -> dict[str, Any]:
        """The state that the next step inherits, of all ranks; collective."""
        found = self.carried.taken_out(self._rows) if self._epoch >= 0 else None
        if found is None:
            return {}
        vertices, after, state = found
        layers, group = state.layers, self._group
        if state.per_vertex:
            own = vertices.new_tensor([[len(vertices)]])
            counts = [int(number) for number in group.gather_rows(own, [1] * group.size)[:, 0]]
            both = group.gather_rows(torch.stack([vertices, after.to(vertices)], dim=1), counts)
            vertices, after = both[:, 0], both[:, 1]
            layers = tuple(tuple(group.gather_rows(x, counts) for x in layer) for layer in layers)
        tensors = [[x.cpu() for x in layer] for layer in layers]
        held = {"after": after.cpu(), "vertices": vertices.cpu(), "tensors": tensors, "per_vertex": state.per_vertex}
        return {CARRIED: held}

    def _load_carried(self, state: Mapping[str, Any]) -> None:
        """Restore the state that a checkpoint carried, where it has any."""
        if CARRIED not in state:
            return
        held, device = state[CARRIED], self.context.device
        layers = tuple(tuple(x.to(device) for x in layer) for layer in held["tensors"])
        after = torch.as_tensor(held["after"]).cpu()
        if held["per_vertex"] and not after.ndim:  # in checkpoints of schema 1, one number for all nodes
            after = after.repeat(len(held["vertices"]))
        self.carried.put_back(held["vertices"].to(device), after, State(layers, held["per_vertex"]))


def build(of: BuildContext) -> DecayedWindowStrategy:
    """Decayed windows over node partitions; collective.

    Raises:
        PartitionError: the chunks could not be made.
        DataError: the training split is shorter than a window, or a tuner has no validation split.
    """
    assert of.partition is not None
    config = of.config
    if config["window"] > len(of.train):
        raise DataError(
            f"window={config['window']} is beyond the training split's {len(of.train)} snapshots. Set a window of "
            f"{len(of.train)} or fewer, or cut the data finer (cut=...)."
        )
    if config["tune"] and not of.validation:
        raise DataError(
            f"tune=True is judged by the validation split, and protocol={config.protocol!r} leaves none. Choose "
            "another protocol (such as warm), cut the data finer (cut=...), or leave tune out."
        )
    chunking = shared_chunks(config, of.graph, of.partition, of.group)
    shape = Trapezoid.of(config, chunks=chunking.chunks)
    exchanger = Exchanger(of.group)
    pace = Pace(
        of.model,
        of.group,
        overlap=config["overlap"] != "off",
        seed=config.seed,
        itemsize=np.dtype(config["dtype"]).itemsize,
    )
    return DecayedWindowStrategy(
        of,
        own_nodes(of, exchanger, awaited=True),
        exchanger,
        shape=shape,
        cuts=Cuts(of.partition.owner, chunking, of.parts, config.seed, of.model.facts.directions),
        pace=pace,
        loss_at=config["loss_at"],
        inherits=config["late_state"] == "inherit",
    )


GIB = 1 << 30

# Auto-tuning of K and alpha at epoch boundaries: validation losses of trial epochs in, a change of settings out.


@dataclass(frozen=True, slots=True)
class TuningDecision:
    """One look at the neighbours of K and alpha, and what came of it.

    Attributes:
        policy: what decided.
        state: the present ``full_snapshots`` and ``alpha``, their predicted ``bytes``, and the budget ``most_bytes``.
        values: the present setting, then its neighbours: ``full_snapshots``, ``alpha``, predicted ``bytes`` and
            validation ``loss`` after a trial epoch, None where none was made because it needs more than the budget.
        action: ``full_snapshots`` and ``alpha`` from here on.
        reward: the present setting's loss less the chosen one's; 0 where it stays, negative only where the budget
            forced it, None where a trial diverged.
    """

    policy: str
    state: dict[str, Any]
    values: list[dict[str, Any]]
    action: dict[str, Any]
    reward: float | None

    @property
    def changes(self) -> dict[str, Any]:
        """Live settings that change, by name; empty where the setting stays."""
        return {name: value for name, value in self.action.items() if value != self.state[name]}

    @property
    def row(self) -> Decision:
        """Its row of the record table ``decisions``."""
        return Decision(self.policy, self.state, self.values, self.action, self.reward)


@dataclass(frozen=True, slots=True)
class Tuner:
    """Tunes K and alpha by the validation split, a step at a time; it remembers nothing, so resuming changes nothing.

    Every candidate is judged by what it does to training: the next epoch is tried with it, from the same parameters and
    moments, and the run's own evaluation of the validation split gives its loss. The trial is then taken back.

    Args:
        config: the settings as they are at the end of the epoch, with manual changes since.

    References: FlareDTDG section 3.5: it "periodically evaluates neighbouring settings on the validation set during
        training".
    Differs from the paper: it does not say how a setting is evaluated. Trials of an epoch, all from one start, are
        ours, and so is the least alpha that is tried, 0.1, with which the paper's tuning begins.
    """

    config: RunConfig

    def is_due(self, epoch: int) -> bool:
        """Whether the neighbours are looked at after this epoch: every ``tune_every``-th, where ``tune`` is on."""
        return bool(self.config["tune"]) and (epoch + 1) % int(self.config["tune_every"]) == 0

    def end_epoch(
        self, epoch: int, ask: Callable[[int, float], float], predicted: Callable[[int, float], float]
    ) -> TuningDecision | None:
        """Look at the neighbours where it is due; collective where ``ask`` is, and the same decision on every rank.

        Args:
            epoch: the one that just ended, from 0.
            ask: K, alpha -> validation loss after a trial epoch with that shape; the same on every rank.
            predicted: K, alpha -> peak bytes of a step on the largest rank; the same on every rank.

        Returns:
            What was found and decided; None where it is not due.
        """
        if not self.is_due(epoch):
            return None
        window, most_bytes = int(self.config["window"]), float(self.config["tune_memory_gib"]) * GIB
        at = Setting(min(int(self.config["full_snapshots"]), window), float(self.config["alpha"]))
        around = [setting for setting in neighbours(at, window=window) if self._fits(setting)]
        peaks = {setting: float(predicted(setting.full_snapshots, setting.alpha)) for setting in (at, *around)}
        chosen_from = candidates(
            at, window=window, predicted=lambda setting: peaks.get(setting, math.inf), most_bytes=most_bytes
        )
        losses = {setting: float(ask(setting.full_snapshots, setting.alpha)) for setting in (at, *chosen_from)}
        chosen = next_setting(at, losses, must_leave=peaks[at] > most_bytes)
        values = [
            _named(setting) | {"bytes": peaks[setting], "loss": _finite(losses.get(setting))} for setting in peaks
        ]
        state = _named(at) | {"bytes": peaks[at], "most_bytes": most_bytes}
        reward = _finite(losses[at] - losses[chosen]) if chosen != at else 0.0
        return TuningDecision("greedy", state, values, _named(chosen), reward)

    def _fits(self, setting: Setting) -> bool:
        """Whether the run can have it: some models need full snapshots where the loss is at the last one."""
        try:
            self.config.replace(**_named(setting))
        except UnsupportedError:
            return False
        return True


def _finite(value: float | None) -> float | None:
    """None for the loss of a trial that diverged."""
    return value if value is not None and math.isfinite(value) else None


def _named(setting: Setting) -> dict[str, Any]:
    return {"full_snapshots": setting.full_snapshots, "alpha": setting.alpha}


# Memory of a step as it follows from its rows, and the trials of a tuner.


LEAST_ALPHA = OPTIONS["alpha"].low or 0.0


def measure(strategy: DecayedWindowStrategy) -> RowMemory:
    """Memory of a step as it follows from its rows; collective.

    Windows of a few shapes are measured, whatever the present one: a run that is resumed or tuned gets the same.
    """
    of, shape, own = strategy.context, strategy.shape, []
    assert of.partition is not None
    decays = of.task.per_vertex or of.config["loss_at"] == "last"  # else the loss needs all nodes of each snapshot
    shapes = _measured(shape, decays=decays)
    for strategy.shape in shapes:
        own.append(_peak(strategy, strategy.by_length()[-1], of.device))
    strategy.shape = shape
    rows = torch.tensor([own], dtype=torch.float64, device=of.device)
    peaks = of.group.gather_rows(rows, [1] * of.group.size).max(dim=0).values.tolist()
    return RowMemory.through(
        list(zip(shapes, peaks, strict=True)),
        nodes=int(of.partition.on_ranks(of.group.size).counts.max()),
        chunks=strategy.chunking.chunks,
        piece_rows=strategy.piece_rows,
    )


def _measured(shape: Trapezoid, *, decays: bool) -> list[Trapezoid]:
    """Windows that differ in rows, and in how many run through how many snapshots together."""
    window, few = shape.window, min(2, shape.window)
    if shape.chunks == WHOLE_CHUNKS or not decays:  # snapshots are always full
        return [replace(shape, window=full, full=full) for full in sorted({1, few, window})]
    return [
        *(replace(shape, full=full, alpha=LEAST_ALPHA, decay="ladder") for full in sorted({1, few, window})),
        *(replace(shape, full=1, alpha=alpha, decay="text") for alpha in (0.1, 0.5)),
    ]


def _peak(strategy: DecayedWindowStrategy, work: backprop.WindowWork, device: str) -> int:
    """The peak bytes of a step on this rank."""

    def step() -> None:
        strategy.tried(work, StepMarks())

    strategy.forget()
    return peak_bytes(step, device=device)


def _trial_loss(strategy: DecayedWindowStrategy, built: Any, epoch: int, full_snapshots: int, alpha: float) -> float:
    """The validation loss, as the run is judged by it, after an epoch with windows of another shape; collective.

    The epoch is tried and taken back: parameters, moments and shape are then as they were, and nothing is recorded.
    """
    shape, model, optimizer = strategy.shape, built.model, built.optimizer
    parameters, moments = deepcopy(model.state_dict()), deepcopy(optimizer.state_dict())
    strategy.shape = strategy.shaped(full_snapshots, alpha)
    try:
        for work in strategy.epoch(epoch):
            built.gradients.zero()
            computed = strategy.compute(work, StepMarks())
            built.gradients.exchange(version=0, loss_sum=computed.loss_sum, groups=len(work.groups))
            optimizer.step()
        (scores,) = built.evaluator.evaluate(model, ("validation",))
    finally:
        strategy.shape = shape
        strategy.rows()
        model.load_state_dict(parameters)
        optimizer.load_state_dict(moments)
    return float("nan") if scores.loss is None else scores.loss
