"""FlareDTDG: decayed windows over node partitions with a halo."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import DataError
from dtdg_lab.core.preparation import track
from dtdg_lab.engine.capabilities import Carries, DecisionRow, DescribesMemory, Reconfigurable, Tunable
from dtdg_lab.engine.exchange.exchanger import Exchanger
from dtdg_lab.engine.exchange.halo import HaloSequence, own_nodes
from dtdg_lab.engine.exchange.overlap import Pace, TaskSize
from dtdg_lab.engine.segment import SequenceSegment
from dtdg_lab.engine.strategy import BuildContext, RecordRows, Step, StepMarks, StepResult, Strategy, loss_sum
from dtdg_lab.engine.views.device_sequence import DeviceSequence
from dtdg_lab.engine.views.sequence import NumberedSequence
from dtdg_lab.engine.views.snapshot_view import SnapshotView
from dtdg_lab.kernels.parallel_map import STEP_NUMBERS
from dtdg_lab.kernels.uploads import as_tensor
from dtdg_lab.models.base import State
from dtdg_lab.records.events import Event
from dtdg_lab.systems.decayed_windows import backprop, tuner
from dtdg_lab.systems.decayed_windows.carried_state import CarriedState, Entering
from dtdg_lab.systems.decayed_windows.chunks import Chunking, chunking_event, shared_chunks
from dtdg_lab.systems.decayed_windows.events import Shape, TrapezoidFacts
from dtdg_lab.systems.decayed_windows.shrinking import ShrunkenViews, SurvivalOrder, SurvivalRows, survival_order
from dtdg_lab.systems.decayed_windows.window import BatchRow, Trapezoid, Window, segments, window_at
from dtdg_lab.systems.decayed_windows.workload import RowMemory, largest_piece, probe_shapes, windows_volume
from dtdg_lab.training.memory import peak_bytes
from dtdg_lab.training.partition import partition_event

COUNTED_EPOCHS = 200  # each epoch cuts the training split at random; the mean step of more hardly differs


@dataclass(frozen=True, slots=True)
class WindowStep(Step):
    """A step whose window is determined when it runs, since the window's shape may change before then.

    Attributes:
        epoch: index of the epoch, which determines the shuffle of chunks.
        segment: of the training split; the window does not extend beyond it.
        target: newest snapshot of the window.
        after: the previous target in this segment, or the snapshot before the segment.
        ends_segment: True if no later target of the segment follows.
        following: target of the next step if it is of the same segment, else None.
    """

    epoch: int = 0
    segment: range = range(0)
    target: int = 0
    after: int = -1
    ends_segment: bool = False
    following: int | None = None


class DecayedWindowStrategy(Strategy, Reconfigurable, Tunable, Carries, DescribesMemory):
    """One step for each labelled snapshot of the training split, with the window that ends there.

    Full snapshots exchange rows of remote neighbours; decayed ones have no edges between parts. State passes from step
    to step without its gradient. A node that the oldest snapshots of a window lack enters it late. It starts from its
    state in the previous step after the same earlier snapshot, or from zero (``late_state``); at the start of a segment
    always from zero. With ``loss_at="all"`` the loss is the mean over the window's snapshots. The loss of a decayed
    snapshot is the mean over the labelled items that it keeps, on all ranks together.

    Args:
        context: the run's model, graph, task and settings.
        sequence: full snapshots of the own nodes of this rank; of all nodes with one rank.
        exchanger: exchanges rows for the sequence.
        chunking: of each part's nodes.
        pace: schedules exchanges if there are several ranks.
        loads_ahead: whether a thread cuts out the snapshots that the next window shrinks first (section 3.5).

    Attributes:
        shape: of the windows; can be changed between two steps.
        row_memory: of a step, once memory has been probed.

    References: FlareDTDG sections 3.1 to 3.4, algorithm 1 (line 7: states are inherited). Algorithm 1 takes the loss
        "based on h^t", which reads as the newest snapshot's; the released code averages over all snapshots of the
        window. Both are available. ``last`` is the default, so that full and decayed windows learn from the same
        labels.
    Differs from the paper: full snapshots keep the order of the graph, so their operators are built once in a run.
        Rows are permuted into the order of survival for the temporal part.
    """

    plan_kinds = ("partition", "chunks", "trapezoid")
    probed_plans = ("trapezoid",)
    _rows: SurvivalRows

    def __init__(
        self,
        context: BuildContext,
        sequence: DeviceSequence | HaloSequence,
        exchanger: Exchanger,
        *,
        chunking: Chunking,
        pace: Pace,
        loads_ahead: bool = False,
    ) -> None:
        self.context, self.chunking, self.pace = context, chunking, pace
        self.shape = Trapezoid.of(context.config, chunks=chunking.chunks)
        self.row_memory: RowMemory | None = None
        model, group = context.model, context.group
        self._model, self._sequence, self._task, self._train = model, sequence, context.task, context.train
        self._exchanger, self._group, self._loss_at = exchanger, group, context.config["loss_at"]
        self._inherits = context.config["late_state"] == "inherit"
        self._views = ShrunkenViews(
            sequence.graph, sequence.settings, exchanger, group, model.facts.directions, ahead=loads_ahead
        )
        self._widths = model.facts.spatial if model.memory == "per_vertex" else ()
        self._epoch = -1
        self._global_order: SurvivalOrder | None = None
        self._label_shares: dict[tuple[int, int], float] = {}
        self._batches: list[BatchRow] = []
        self.carried = CarriedState(model)
        self.carried.load_state_dict(context.state, context.device)
        # building operators and exchange indices counts towards the time of the layout
        for t in track(context.train, "snapshots are laid out"):
            sequence.view(t)

    def epoch(self, epoch: int) -> Sequence[WindowStep]:
        """Return the steps of an epoch, the later segment's first; the same on every rank."""
        steps: list[WindowStep] = []
        for segment in segments(self._train, seed=self.context.config.seed, epoch=epoch):
            targets = [t for t in segment if self._task.labelled(t)]
            neighbours = zip(targets, [segment.start - 1, *targets], [*targets[1:], None], strict=False)
            for target, after, following in neighbours:
                number, groups = len(steps), (len(steps),) if self._group.rank == 0 else ()
                length, ends = min(target - segment.start + 1, self.shape.window), following is None
                steps.append(WindowStep(number, groups, 1, length, epoch, segment, target, after, ends, following))
        return steps

    @property
    def piece_rows(self) -> int:
        """Maximum number of nodes that run through time at once."""
        return backprop.WIDER * STEP_NUMBERS[self._sequence.device.partition(":")[0]] // self._model.hidden

    def by_length(self) -> list[WindowStep]:
        """Return the first step of each window length, from one snapshot to W, in an uncut epoch."""
        groups = (0,) if self._group.rank == 0 else ()
        return [
            WindowStep(0, groups, 1, length, 0, self._train, target, target - 1)
            for length, target in enumerate(self._train[: self.shape.window], 1)
        ]

    def compute(self, step: Step, marks: StepMarks) -> StepResult:
        """Add this rank's share of the gradients of a window's loss."""
        assert isinstance(step, WindowStep)
        self._exchanger.marks = marks
        self._begin_epoch(step.epoch)
        window = window_at(step.segment, step.target, self.shape, after=step.after)
        views = self._window_views(window)
        self._prepare(step)
        marks("batch")
        run = self._segment(window)
        self._task.prepare(run.at)
        marks("transfer")
        entering = entries([view.num_rows for view in views], window.snapshots, inherits=self._inherits)
        loss, state = self._add_gradients(run, window, views, self.carried.before(entering))
        self.carried.keep(entering, None if step.ends_segment else state)
        return StepResult(
            loss_sum([loss], self._sequence.device), len(step.groups), sum(view.num_rows for view in views)
        )

    def try_step(self, step: WindowStep, marks: StepMarks) -> StepResult:
        """Compute a step without recording it, as if the step before had left states for every node."""
        self._begin_epoch(step.epoch)
        window = window_at(step.segment, step.target, self.shape, after=step.after)
        heights = [*map(self._rows.num_rows, window.counts), *[self._sequence.own] * window.full]
        entering = entries(heights, window.snapshots, inherits=self._inherits)
        initial = self._model.initial_state(entering[-1][0])
        layers = tuple(tuple(x.detach().clone() for x in layer) for layer in initial.layers)
        self.carried.keep([(rows, snapshot - 1) for rows, snapshot in entering], State(layers, initial.per_vertex))
        del initial, layers  # hold the carried state in memory only once
        return self.compute(step, marks)

    def try_longest(self) -> None:
        """Compute a step over the longest window without recording it."""
        self.try_step(self.by_length()[-1], StepMarks())

    def forget(self) -> None:
        """Reset the state to that before the first step."""
        self._epoch = -1
        self.carried.drop()
        self.pace.forget()
        self.rows()

    def close(self) -> None:
        """Stop the loader's thread; idempotent."""
        self._views.close()

    def rows(self) -> RecordRows:
        """Return the recorded rows by table, and forget them."""
        batches, self._batches = self._batches, []
        return {
            "links": [*self._exchanger.drain()],
            "exchanges": self._exchanger.times.drain(),
            "tasks": self.pace.drain(),
            "batches": batches,
        }

    # one step

    def _begin_epoch(self, epoch: int) -> None:
        if epoch == self._epoch:
            return
        self._epoch, self._global_order, self._label_shares = epoch, None, {}
        self._rows = SurvivalRows.of(self._survival_order(self.context.parts), self._sequence.device)
        self._views.renumber(self._rows)
        self.carried.begin_epoch(self._rows)

    def _survival_order(self, parts: range) -> SurvivalOrder:
        partition = self.context.partition
        assert partition is not None
        seed = self.context.config.seed
        return survival_order(partition.owner, self.chunking, parts, seed=seed, epoch=self._epoch)

    def _order_of_all_parts(self) -> SurvivalOrder:
        if self._global_order is None:
            self._global_order = self._survival_order(range(self.chunking.parts))
        return self._global_order

    def _window_views(self, window: Window) -> list[SnapshotView]:
        """Return the views of a window's snapshots, oldest first."""
        started_s, self._views.edges = time.perf_counter(), 0
        self._views.keep_only(window.snapshots)
        views = [
            self._views.view(t, self._rows.num_rows(count), self._num_nodes(count))
            for t, count in zip(window.decayed, window.counts, strict=True)
        ]
        self._views.forget_requests()
        shrink_s = time.perf_counter() - started_s
        views += [self._sequence.view(t) for t in window.snapshots[len(views) :]]
        chunks, rows = [*window.counts, *[None] * window.full], sum(view.num_rows for view in views)
        first, edges = window.snapshots.start, self._views.edges
        self._batches.append(BatchRow(window.target, first, window.full, chunks, rows, edges, shrink_s, None))
        return views

    def _prepare(self, step: WindowStep) -> None:
        """Have the snapshots that the next window shrinks first cut out while this step computes."""
        if step.following is not None:
            window = window_at(step.segment, step.following, self.shape, after=step.target)
            for t, count in zip(window.decayed, window.counts, strict=True):
                self._views.prepare(t, self._rows.num_rows(count))

    def _num_nodes(self, count: int) -> int:
        """Return the rows on all ranks; only models that pick the k best of all nodes need the exact number."""
        if self._model.memory != "weights_from_data":
            return self._sequence.graph.num_nodes
        return int(self._order_of_all_parts().rows[count])

    def _label_share(self, t: int, count: int) -> float:
        """Return the share of a decayed snapshot's labelled items that its nodes keep, on all ranks together."""
        if (t, count) not in self._label_shares:
            order = self._order_of_all_parts()
            vertices = as_tensor(order.vertices[: order.rows[count]])
            self._label_shares[t, count] = float(self._task.share(range(t, t + 1), vertices)[0])
        return self._label_shares[t, count]

    def _segment(self, window: Window) -> SequenceSegment:
        vertices = self._rows.vertices if self._model.memory == "per_vertex" else self._sequence.vertices
        shares = {}
        if self._loss_at == "all":
            counts = zip(window.decayed, window.counts, strict=True)
            shares = {t: self._label_share(t, count) for t, count in counts}
        sequence = NumberedSequence(self._sequence, vertices)
        return SequenceSegment(self._model, sequence, self._task, window.snapshots, self._loss_at, shares)

    def _add_gradients(
        self, run: SequenceSegment, window: Window, views: list[SnapshotView], begin: State
    ) -> tuple[Tensor, State | None]:
        if self._model.memory != "per_vertex":
            return backprop.add_gradients_window(run, views, window.full, self._rows, begin, late=self._inherits)
        heights, shape = [view.num_rows for view in views], self.shape
        max_rows = largest_piece([heights[-1], *map(self._rows.num_rows, shape.counts)], shape.full, self.piece_rows)
        redistribution = backprop.WindowRedistribution(
            heights, window.full, self._rows, device=self._sequence.device, max_rows=int(max_rows)
        )
        make: backprop.MakeLayer = backprop.WindowLayer
        if self._group.size > 1:
            self.pace.begin(self._task_sizes(window, views))
            make = partial(backprop.OverlappedLayer, pace=self.pace)
        leaving = heights[-1] if self._inherits else heights[0] * (len(views) == shape.window)
        return backprop.add_gradients_window_blocks(
            run, views, redistribution, begin, widths=self._widths, make=make, leaving=leaving
        )

    def _task_sizes(self, window: Window, views: list[SnapshotView]) -> list[TaskSize]:
        """Return the size of each snapshot's task, the time predictor's input."""
        sequence = self._sequence
        assert isinstance(sequence, HaloSequence)
        share = sequence.own / sequence.graph.num_nodes
        sizes = []
        for t, view in zip(window.snapshots, views, strict=True):
            is_full = t not in window.decayed
            edges = int(sequence.graph.num_edges[t] * (share if is_full else share * view.num_rows / sequence.own))
            sizes.append(TaskSize(t, view.num_rows, edges, sequence.halo_rows(t) if is_full else None))
        return sizes

    # memory

    def probe_steps(self) -> Iterator[Callable[[StepMarks], Any]]:
        """Yield windows of all lengths, because the worst need not be the longest, and an epoch may lack some."""
        predictor = self.pace.predictor  # keep the one fitted to training steps; steps of a probe are slower
        for step in self.by_length():
            self.forget()
            yield partial(self.try_step, step)
        self.row_memory = measure_memory(self)
        self.forget()
        self.pace.predictor = predictor

    def probes_after(self, previous: Strategy) -> bool:
        """Return True: the event of the windows contains the measured memory."""
        return True

    # plans and settings

    def plan_events(self) -> list[Event]:
        """Return the partition, its chunks, and the shape of the windows."""
        context = self.context
        assert context.partition is not None
        return [
            partition_event(context, sent=self._sent_bytes()),
            chunking_event(context.config["chunker"], context.graph, context.partition, self.chunking),
            self._window_event(),
        ]

    def _sent_bytes(self) -> dict[str, NDArray[np.floating]]:
        """Return the bytes of halo rows of the mean step, pass -> (L, R, R), of the run's first ``COUNTED_EPOCHS``."""
        context = self.context
        assert context.partition is not None
        epochs = range(min(context.config.epochs, COUNTED_EPOCHS))
        steps = [step for epoch in epochs for step in self.epoch(epoch)]
        volume = windows_volume(
            context.graph.snapshots,
            context.partition.on_ranks(self._group.size),
            context.model.facts,
            [window_at(step.segment, step.target, self.shape, after=step.after) for step in steps],
            first=context.train.start,
            loss_at=self._loss_at,
            reuse=context.config["halo_reuse"],
        )
        sent_bytes = volume.bytes(np.dtype(context.config["dtype"]).itemsize)
        return {name: sent_bytes[name] / max(len(steps), 1) for name in ("forward", "backward")}

    def _window_event(self) -> Event:
        """Return the shape of the windows, with all chunks taken as equally large."""
        shape, memory, chunks = self.shape, self.row_memory, self.chunking.chunks
        shares, nodes = np.arange(chunks + 1) / chunks, len(self.chunking.chunk)
        return TrapezoidFacts(
            window=shape.window,
            shape=Shape(shape.full, shape.alpha, shape.decay),
            chunks=chunks,
            nodes=nodes,
            row_counts=shares * nodes,
            rank_row_counts=shares * self.largest_rank_nodes,
            base_bytes=None if memory is None else memory.base_bytes,
            row_bytes=None if memory is None else memory.row_bytes,
            piece_bytes=0.0 if memory is None else memory.piece_bytes,
            piece_rows=self.piece_rows,
        )

    @property
    def largest_rank_nodes(self) -> int:
        """Own nodes of the largest rank."""
        assert self.context.partition is not None
        return int(self.context.partition.on_ranks(self._group.size).counts.max())

    def apply_settings(self, config: RunConfig) -> None:
        """Set the shape of the windows from a config."""
        self.shape = Trapezoid.of(config, chunks=self.shape.chunks)

    def tune(self, epoch: int, config: RunConfig, components: Any) -> tuple[DecisionRow, dict[str, Any]] | None:
        """Evaluate the neighbours of K and alpha if tuning is due; collective."""
        if not tuner.is_due(config, epoch):
            return None

        def shaped(setting: tuner.Setting) -> Trapezoid:
            return replace(self.shape, full=setting.full_snapshots, alpha=setting.alpha)

        def peak(setting: tuner.Setting) -> float:
            assert self.row_memory is not None  # probed at the end of the first epoch
            return self.row_memory.peak_bytes(shaped(setting))

        decision = tuner.decide(config, lambda setting: self._trial_loss(components, epoch + 1, shaped(setting)), peak)
        changes = {name: value for name, value in decision.action.items() if value != decision.state[name]}
        return decision, changes

    def _trial_loss(self, components: Any, epoch: int, trial_shape: Trapezoid) -> float:
        """Return the validation loss after an epoch with windows of another shape; collective.

        Parameters, optimizer state and shape are restored after the epoch, and nothing is recorded.
        """
        shape, model, optimizer = self.shape, components.model, components.optimizer
        parameters, moments = deepcopy(model.state_dict()), deepcopy(optimizer.state_dict())
        self.shape = trial_shape
        try:
            for step in self.epoch(epoch):
                components.gradients.zero()
                result = self.compute(step, StepMarks())
                components.gradients.exchange(version=0, loss_sum=result.loss_sum, groups=len(step.groups))
                optimizer.step()
            (scores,) = components.evaluator.evaluate(model, ("validation",))
        finally:
            self.shape = shape
            self.rows()
            model.load_state_dict(parameters)
            optimizer.load_state_dict(moments)
        return float("nan") if scores.loss is None else scores.loss

    # carried state

    @property
    def at_rest(self) -> bool:
        """True if no state is carried to the next step."""
        return self.carried.after is None

    def carried_state(self) -> dict[str, Any]:
        """Return the carried state of all ranks; collective."""
        return self.carried.state_dict(self._rows, self._group) if self._epoch >= 0 else {}


def entries(heights: list[int], snapshots: range, *, inherits: bool) -> Entering:
    """Return the snapshots at which nodes enter that may have a state to start from."""
    return list(zip(heights, snapshots, strict=True))[: None if inherits else 1]


def measure_memory(strategy: DecayedWindowStrategy) -> RowMemory:
    """Measure steps over windows of a few shapes, and fit their memory to their rows; collective."""
    context, shape, own_peaks = strategy.context, strategy.shape, []
    # with loss_at="all", a task whose loss is joint needs all nodes in every snapshot
    shapes = probe_shapes(shape, decays=context.task.per_vertex or context.config["loss_at"] == "last")
    for strategy.shape in shapes:
        strategy.forget()
        own_peaks.append(peak_bytes(strategy.try_longest, device=context.device))
    strategy.shape = shape
    gathered = context.group.gather_rows(
        torch.tensor([own_peaks], dtype=torch.float64, device=context.device), [1] * context.group.size
    )
    return RowMemory.through(
        list(zip(shapes, gathered.max(dim=0).values.tolist(), strict=True)),
        nodes=strategy.largest_rank_nodes,
        chunks=strategy.chunking.chunks,
        piece_rows=strategy.piece_rows,
    )


def build(context: BuildContext) -> DecayedWindowStrategy:
    """Build decayed windows over node partitions; collective.

    Raises:
        PartitionError: the chunks could not be made.
        DataError: the training split is shorter than a window, or a tuner has no validation split.
    """
    config, partition, snapshots = context.config, context.partition, len(context.train)
    assert partition is not None
    if config["window"] > snapshots:
        raise DataError(
            f"window={config['window']} exceeds the training split of {snapshots} snapshots. Set a window of "
            f"{snapshots} or fewer, or use more snapshots (cut=...)."
        )
    if config["tune"] and not context.validation:
        raise DataError(
            f"tune=True needs a validation split, but protocol={config.protocol!r} has none. Choose another protocol "
            "(such as warm), use more snapshots (cut=...), or set tune=False."
        )
    chunking = shared_chunks(config, context.graph, partition, context.group)
    exchanger, itemsize = Exchanger(context.group), np.dtype(config["dtype"]).itemsize
    overlap = config["overlap"] != "off"
    pace = Pace(context.model, context.group, overlap=overlap, itemsize=itemsize)
    sequence = own_nodes(context, exchanger, awaited=True)
    loads_ahead = not context.device.startswith("cpu")
    return DecayedWindowStrategy(context, sequence, exchanger, chunking=chunking, pace=pace, loads_ahead=loads_ahead)
