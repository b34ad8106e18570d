"""DynaGraph: windows of snapshots with sampled neighbours, on parts that are redrawn in every epoch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.core.errors import DataError, PlanError, UnsupportedError
from dtdg_lab.core.plans import Partition
from dtdg_lab.core.rng import generator
from dtdg_lab.engine.backprop import evolving_weights, time_blocks
from dtdg_lab.engine.backprop.timeline import TimeBlock, Timeline
from dtdg_lab.engine.exchange.redistribution import AllToAllPhase, BlockRows, Moved, OfRows
from dtdg_lab.engine.minibatch.neighbour_sampling import Drawing, SampledPart, SampledSnapshot, check_in_edges
from dtdg_lab.engine.segment import SequenceSegment
from dtdg_lab.engine.strategy import (
    BuildContext,
    RecordRows,
    Step,
    StepMarks,
    StepResult,
    Strategy,
    check_per_vertex,
    loss_sum,
)
from dtdg_lab.engine.views.part_edges import LocalSource, PartEdges
from dtdg_lab.engine.views.sequence import SnapshotSequence
from dtdg_lab.engine.views.snapshot_view import NeighbourRows, SnapshotView
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.kernels.operators import Operators, OperatorSettings, keep_freed_memory
from dtdg_lab.kernels.parallel_map import parallel_map
from dtdg_lab.kernels.uploads import upload
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.systems.decayed_windows.window import BatchRow
from dtdg_lab.tasks.base import Task

# Snapshots of a sampled part. Windows slide over them, so snapshots that two windows share are computed once.


class SampledSequence(SnapshotSequence):
    """Snapshots of a sampled part (see :class:`dtdg_lab.engine.views.sequence.SnapshotSequence`).

    A snapshot's edges are drawn when a window first contains it, and discarded when no window does. Aggregated
    features depend on no parameter and are kept likewise, so overlapping windows compute them once. Layer l of L, with
    h hops each, sees the nodes within (L - l) h hops: the first rows of its input. Nothing is exchanged. For models
    with a state per node, the first layer's views have as many rows as each snapshot needs, later layers' equally many.

    Args:
        graph: N nodes.
        part: its nodes, and the sampling settings.
        settings: of the operators, including device and type of tensors.
    """

    where = "layout sampled_window, where each part computes its own rows"
    instead = "system='full-history' (halo_window)"

    def __init__(self, graph: DynamicGraph, part: SampledPart, settings: OperatorSettings) -> None:
        keep_freed_memory()
        self.part, self.settings, self.own = part, settings, part.own
        self.device, self.dtype = settings.device, settings.dtype
        self.vertices: Tensor | None = upload(part.vertices, self.device)
        self._graph = graph
        self._sampled: dict[int, SampledSnapshot] = {}
        self._views: dict[int, list[SnapshotView]] = {}

    def sample(self, needed: range) -> tuple[int, list[int]]:
        """Draw the missing snapshots of a window, and discard all others.

        Returns:
            Rows of all snapshots, including copies of neighbours, and edges of each snapshot over all layers.
        """
        for t in [t for t in self._sampled if t not in needed]:
            del self._sampled[t]
            self._views.pop(t, None)
        samples = [self._sample(t) for t in needed]
        return sum(len(sample.vertices) for sample in samples), [sample.num_edges for sample in samples]

    def _sample(self, t: int) -> SampledSnapshot:
        if t not in self._sampled:
            self._sampled[t] = self.part.snapshot(t)
        return self._sampled[t]

    def bring(self, needed: range) -> None:
        """Copy these snapshots to the device."""
        for t in needed:
            self._layer_views(t)

    def view(self, t: int) -> SnapshotView:
        """Return snapshot t as seen by the first layer."""
        return self._layer_views(t)[0]

    def stacks(self, snapshots: range, layer: int) -> list[SnapshotView]:
        """Return the views of consecutive snapshots for one layer, unstacked: other windows start elsewhere."""
        return [self._layer_views(t)[layer] for t in snapshots]

    def _layer_views(self, t: int) -> list[SnapshotView]:
        if t not in self._views:
            sample = self._sample(t)
            self._views[t] = [self._layer_view(t, sample, layer) for layer in range(self.part.drawing.layers)]
        return self._views[t]

    def _layer_view(self, t: int, sample: SampledSnapshot, layer: int) -> SnapshotView:
        source = LocalSource(partial(self._edges, t, sample, layer), self.settings)
        operators, snapshots = Operators(source, self.settings), range(t, t + 1)
        if layer:  # only the first layer reads features
            no_inputs = torch.empty(sample.rows(layer), 0, dtype=self.dtype, device=self.device)
            return SnapshotView(operators, snapshots, no_inputs, NeighbourRows(), num_nodes=self.own)
        features = upload(self._graph.features[t][sample.vertices], self.device).to(self.dtype)
        return SnapshotView(
            operators, snapshots, features, NeighbourRows(), num_nodes=self.own, may_keep=lambda size: True
        )

    def _edges(self, t: int, sample: SampledSnapshot, layer: int, direction: str) -> PartEdges:
        """Return the edges of the nodes that a layer sees; rows that are not needed for its output are empty."""
        if direction != "in":
            raise PlanError(f"sampled snapshots have no edges along {direction!r}: only in-neighbours are sampled.")
        edges, rows = sample.edges[layer], sample.rows(layer)
        vertices, offsets = sample.vertices[:rows], self._graph.snapshots[t].indptr
        indptr = np.pad(edges.indptr, (0, rows + 1 - len(edges.indptr)), mode="edge")
        degrees, counts = self._degrees(t, vertices), offsets[vertices + 1] - offsets[vertices]
        return PartEdges(indptr, edges.indices, edges.weights, rows, *degrees, counts, self._graph.weighted)

    def _degrees(self, t: int, vertices: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return in-degrees and out-degrees of some nodes in the whole snapshot; NaN if not needed."""
        snapshot = self._graph.snapshots[t]
        if snapshot.weights is None:
            in_degrees = (snapshot.indptr[vertices + 1] - snapshot.indptr[vertices]).astype(np.float64)
        else:
            in_degrees = snapshot.in_degrees()[vertices]
        if self.settings.norm == "in_out":
            return in_degrees, snapshot.out_degrees()[vertices]
        return in_degrees, np.broadcast_to(np.float64(np.nan), in_degrees.shape)


# A window of a sampled part as one block of time, whose snapshots have different numbers of rows.


T = TypeVar("T")


class WindowTimeline(Timeline):
    """A window as one block of time without redistribution (see :class:`dtdg_lab.engine.backprop.timeline.Timeline`).

    Args:
        run: the window's segment, on a :class:`SampledSequence`.
    """

    def open(self, number: int, pass_name: str) -> TimeBlock:
        """Return the whole window."""
        run = self._run
        stacks = [run.sequence.stacks(run.snapshots, layer) for layer in range(run.model.layers)]
        rows = [views[0].num_rows for views in stacks[1:]]
        return TimeBlock(run.snapshots, stacks, [*rows, run.own], _UnevenRows(stacks[0], device=run.sequence.device))


class _UnevenRows(BlockRows):
    """Rows without redistribution; the first layer's snapshots have different numbers of rows.

    Args:
        views: the snapshots as seen by the first layer, one each.
        device: of the computation.
    """

    def __init__(self, views: Sequence[SnapshotView], *, device: str) -> None:
        super().__init__(views, device=device, alone=False)
        self._heights = [view.num_rows for view in views]

    def to_snapshots(
        self, work: OfRows[T], pieces: Sequence[slice], phase: AllToAllPhase, *, like: Tensor, height: int
    ) -> Moved[T]:
        """Write the gradients of the first layer's rows per snapshot; the base class handles other phases."""
        if phase.layer > 0 or not phase.backward:
            return super().to_snapshots(work, pieces, phase, like=like, height=height)
        out = [like.new_zeros(rows, phase.width) for rows in self._heights]

        def write(rows: slice) -> T:
            parts, rest = work(rows)
            for snapshot, part in zip(out, parts, strict=True):
                snapshot[rows] = part
            return rest

        return out, parallel_map(write, pieces, device=self._device)


# Sliding windows over the training split with sampled neighbours, on parts that are assigned again in every epoch.


# model.memory -> function that adds the gradients of a window
_ADD_GRADIENTS: Mapping[str, Callable[[SequenceSegment], Tensor]] = MappingProxyType(
    {
        "per_vertex": lambda run: time_blocks.add_gradients_blocks(run, WindowTimeline(run)),
        "weights": evolving_weights.add_gradients_evolved,
        "none": evolving_weights.add_gradients_evolved,
    }
)


@dataclass(frozen=True, slots=True)
class SampledWindows:
    """The windows of a run, and how neighbours are sampled.

    Attributes:
        train: the labelled snapshots of the training split.
        length: W, the snapshots of a whole window.
        fanout: maximum number of in-neighbours sampled per node and layer.
        seed: of the run.
        partition: of the N nodes into P parts; each epoch draws new parts of the same sizes.
        parts: the parts of this rank.

    Raises:
        DataError: the window is longer than the training split.
    """

    train: range
    length: int
    fanout: int
    seed: int
    partition: Partition
    parts: range

    def __post_init__(self) -> None:
        if self.length > len(self.train):
            raise DataError(
                f"window={self.length} exceeds the training split of {len(self.train)} snapshots. Set a window of "
                f"{len(self.train)} or fewer, or use more snapshots (cut=...)."
            )

    def of(self, number: int) -> range:
        """Return the window that ends at a step's snapshot; it is shorter at the start of the sequence."""
        target = self.train[number]
        return range(max(self.train.start, target - self.length + 1), target + 1)

    def dealt(self, epoch: int) -> Partition:
        """Return random parts of an epoch, with the sizes of the partition; the same on every rank."""
        order = generator(self.seed, "dynagraph/deal", epoch).permutation(len(self.partition.owner))
        return Partition(self.partition.owner[order], self.partition.parts, data_hash=self.partition.data_hash)


class SampledWindowStrategy(Strategy):
    """One step per labelled snapshot: its window ends there, starts from a zero state, and has its loss there alone.

    Each part trains all of its own nodes in every step, with copies of their sampled neighbours, so only gradients are
    exchanged. A node's sample depends on epoch, snapshot and layer, not on parts. So the gradients of all parts sum to
    those of a single part, on any number of ranks. Nodes are assigned to parts again in every epoch; the time counts
    towards the first step's batch, as sampling does.

    Args:
        model: a model whose memory is ``per_vertex``, ``weights`` or ``none``.
        graph: N nodes.
        task: the training task.
        windows: the windows of the run.
        settings: of the operators, the same for all parts.
        counts_group: True on the one rank that counts the group that all ranks compute together.

    Raises:
        UnsupportedError: the task needs all nodes at once, or the model's state needs nodes outside the part.

    References: FlareDTDG sections 2.2 and 4.1, on DynaGraph (Guan et al. 2022): sliding windows of subgraph sequences,
    cached aggregations, random repartitioning in each epoch.

    Differs from the paper: we know DynaGraph only from descriptions in other papers. Our choices: windows end at every
    snapshot, in order of time and shorter at the beginning (the same number of updates as with hybrid batches); every
    node is a target; the operators of a layer share one sample.
    """

    def __init__(
        self,
        model: DynamicModel,
        graph: DynamicGraph,
        task: Task,
        windows: SampledWindows,
        settings: OperatorSettings,
        *,
        counts_group: bool,
    ) -> None:
        where, why = "on layout sampled_window", ", and each part computes only its own"
        check_per_vertex(task, where, why, "system='full-history' (halo_window)")
        if model.memory not in _ADD_GRADIENTS:
            raise UnsupportedError(
                f"a model with memory={model.memory!r} on layout sampled_window, which supports "
                f"{', '.join(_ADD_GRADIENTS)}: a part only has its sampled nodes. Choose system='full-history' "
                "(halo_window), or another model."
            )
        self._model, self._graph, self._task, self._windows = model, graph, task, windows
        self._settings, self._counts_group = settings, counts_group
        self._epoch, self._dealt = 0, -1
        self._sequences: list[SampledSequence] = []
        self._rows: list[BatchRow] = []

    def epoch(self, epoch: int) -> Sequence[Step]:
        """Return a step per labelled snapshot, in order of time; later computations use the parts of this epoch."""
        self._epoch = epoch
        group = (0,) if self._counts_group else ()
        steps = range(len(self._windows.train))
        return tuple(Step(number, group, 1, len(self._windows.of(number))) for number in steps)

    def compute(self, step: Step, marks: StepMarks) -> StepResult:
        """Add the gradients of this rank's parts, one after another, in a window of the current epoch."""
        started_s = time.perf_counter()
        if self._dealt != self._epoch:
            self._deal()
        window = self._windows.of(step.iteration)
        # if the model has no state per node, only the weights evolve over time, and they see no neighbours
        needed = window if self._model.memory == "per_vertex" else window[-1:]
        rows, edges = zip(*(sequence.sample(needed) for sequence in self._sequences), strict=True)
        sampled = [0] * (len(window) - len(needed)) + [sum(part_edges) for part_edges in zip(*edges, strict=True)]
        sample_s = time.perf_counter() - started_s
        marks("batch")
        runs = [SequenceSegment(self._model, sequence, self._task, window, "last") for sequence in self._sequences]
        self._task.prepare(window[-1:])
        for sequence in self._sequences:
            sequence.bring(needed)
        marks("transfer")
        losses = [_ADD_GRADIENTS[self._model.memory](run) for run in runs]
        chunks: list[int | None] = [None] * len(window)
        self._rows.append(
            BatchRow(window[-1], window.start, len(window), chunks, sum(rows), sum(sampled), sample_s, sampled)
        )
        return StepResult(
            loss_sum(losses, self._settings.device), len(step.groups), sum(run.own * len(window) for run in runs)
        )

    def rows(self) -> RecordRows:
        """Return the new rows of ``batches``, and forget them.

        Rows include copies of neighbours, edges are summed over layers, and seconds cover assigning and sampling.
        """
        rows, self._rows = self._rows, []
        return {"batches": rows}

    def _deal(self) -> None:
        self._sequences.clear()  # first, since memory may not suffice for both
        windows, model, epoch = self._windows, self._model, self._epoch
        drawing = Drawing(
            windows.train,
            model.layers,
            model.facts.hops_per_layer,
            model.memory == "per_vertex",
            windows.fanout,
            windows.seed,
            epoch,
        )
        dealt = windows.dealt(epoch)
        for number in windows.parts:
            part = SampledPart(self._graph, dealt.vertices(number), drawing)
            self._sequences.append(SampledSequence(self._graph, part, self._settings))
        self._dealt = epoch


def build(context: BuildContext) -> SampledWindowStrategy:
    """Build sampled windows, whose parts are drawn again in each epoch.

    Raises:
        UnsupportedError: the model pulls along out-edges.
    """
    assert context.partition is not None
    config, sequence = context.config, context.sequence
    check_in_edges(context.model.facts.directions, config.system)
    windows = SampledWindows(
        context.train, config["window"], config["fanout"], config.seed, context.partition, context.parts
    )
    return SampledWindowStrategy(
        context.model, sequence.graph, context.task, windows, sequence.settings, counts_group=context.group.rank == 0
    )
