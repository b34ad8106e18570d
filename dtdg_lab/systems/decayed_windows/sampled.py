"""DynaGraph: sampled windows of snapshots."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.core.errors import DataError, PlanError, UnsupportedError
from dtdg_lab.core.plans import Partition
from dtdg_lab.core.rng import generator
from dtdg_lab.engine.backprop import evolving_weights as evolved
from dtdg_lab.engine.backprop import time_blocks as blocks
from dtdg_lab.engine.backprop.time_blocks import Here
from dtdg_lab.engine.graph_view import AllHere, Apart, SnapshotView
from dtdg_lab.engine.halo_exchange import LocalSource, PartEdges
from dtdg_lab.engine.sampled_blocks import Drawing, SampledPart, SampledSnapshot
from dtdg_lab.engine.strategy import (
    AllToAllPhase,
    BuildContext,
    SequenceSegment,
    StackedView,
    Step,
    StepMarks,
    StepResult,
    Strategy,
    TimeBlock,
    in_order,
)
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.kernels.operators import Operators, OperatorSettings, keep_freed_memory
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.tasks.base import Task

# A sampled part's snapshots as spaces, kept while windows slide over them: what two windows share is made once.


class SampledSequence(Apart):
    """Snapshots of a sampled part as spaces (see :class:`dtdg_lab.engine.strategy.SnapshotSequence`).

    A snapshot's edges are drawn when a window first has it, and let go when no later window has it. So are pulls of
    its features, which no parameter changes: windows that overlap aggregate them once. Layer l of L, of h hops each,
    sees the nodes within (L - l) h hops, the first rows of its input. Nothing is exchanged. Where nodes are
    run through time, the first layer's spaces have as many rows as each snapshot needs, the others' equally many.

    Args:
        graph: N nodes.
        part: which of them are computed, and what is drawn for them.
        settings: of the operators; they say where tensors live, and their type.
    """

    where = "layout sampled_window, where each part computes its own rows"
    instead = "system='full-history' (halo_window)"

    def __init__(self, graph: DynamicGraph, part: SampledPart, settings: OperatorSettings) -> None:
        keep_freed_memory()
        self.part, self.settings, self.own = part, settings, part.own
        self.device, self.dtype = settings.device, settings.dtype
        self.vertices: Tensor | None = torch.tensor(part.vertices, device=self.device)
        self._graph = graph
        self._sampled: dict[int, SampledSnapshot] = {}
        self._spaces: dict[int, list[SnapshotView]] = {}

    def sample(self, needed: range) -> tuple[int, int]:
        """Draw what is missing of some snapshots, and let go of all others.

        Returns:
            rows and edges of the snapshots, those of all layers, copies of neighbours among them.
        """
        for t in [t for t in self._sampled if t not in needed]:
            del self._sampled[t]
            self._spaces.pop(t, None)
        for t in needed:
            if t not in self._sampled:
                self._sampled[t] = self.part.snapshot(t)
        held = [self._sampled[t] for t in needed]
        return sum(len(of.vertices) for of in held), sum(of.num_edges for of in held)

    def bring(self, needed: range) -> None:
        """Move what these snapshots need onto the device."""
        for t in needed:
            self._of(t)

    def view(self, t: int) -> SnapshotView:
        """Snapshot t as the first layer sees it."""
        return self._of(t)[0]

    def stacks(self, snapshots: range, layer: int) -> list[SnapshotView]:
        """Consecutive snapshots for one layer, each by itself: another window begins elsewhere."""
        return [self._of(t)[layer] for t in snapshots]

    def _of(self, t: int) -> list[SnapshotView]:
        if t not in self._spaces:
            if t not in self._sampled:
                self._sampled[t] = self.part.snapshot(t)
            held = self._sampled[t]
            self._spaces[t] = [self._space(t, held, layer) for layer in range(self.part.drawing.layers)]
        return self._spaces[t]

    def _space(self, t: int, held: SampledSnapshot, layer: int) -> SnapshotView:
        source = LocalSource(lambda way: self._edges(t, held, layer), self.settings)
        operators, once = Operators(source, self.settings), range(t, t + 1)
        if layer:  # only the first layer is fed features
            unfed = torch.empty(held.rows(layer), 0, dtype=self.dtype, device=self.device)
            return SnapshotView(operators, once, unfed, AllHere(), num_nodes=self.own)
        features = torch.tensor(self._graph.features[t][held.vertices], device=self.device).to(self.dtype)
        return SnapshotView(operators, once, features, AllHere(), num_nodes=self.own, may_keep=lambda size: True)

    def _edges(self, t: int, held: SampledSnapshot, layer: int) -> PartEdges:
        """Edges of the nodes that a layer sees; rows of those that need not be right after it are empty."""
        edges, rows = held.edges[layer], held.rows(layer)
        indptr = np.pad(edges.indptr, (0, rows + 1 - len(edges.indptr)), mode="edge")
        return PartEdges(indptr, edges.indices, edges.weights, rows, *self._degrees(t, held.vertices[:rows]))

    def _degrees(self, t: int, vertices: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """In-degrees and out-degrees of some nodes in the whole snapshot; not numbers where nobody asks for them."""
        snapshot = self._graph.snapshots[t]
        if snapshot.weights is None:
            into = (snapshot.indptr[vertices + 1] - snapshot.indptr[vertices]).astype(np.float64)
        else:
            into = snapshot.in_degrees()[vertices]
        if self.settings.norm == "in_out":
            return into, snapshot.out_degrees()[vertices]
        return into, np.broadcast_to(np.float64(np.nan), into.shape)


# A window of a sampled part as one block of time, whose snapshots have each their own number of rows.


T = TypeVar("T")


class WindowTimeline:
    """A window as one block of time, nothing of which moves (see :class:`dtdg_lab.engine.strategy.Timeline`).

    Args:
        run: of the window, on a :class:`SampledSequence`.
    """

    def __init__(self, run: SequenceSegment) -> None:
        self._run = run

    def __len__(self) -> int:
        return 1

    def open(self, number: int, way: str) -> TimeBlock:
        """All of it."""
        run = self._run
        stacks = [run.sequence.stacks(run.snapshots, layer) for layer in range(run.model.layers)]
        read = [spaces[0].num_rows for spaces in stacks[1:]]
        return TimeBlock(run.snapshots, stacks, [*read, run.own], _Uneven(stacks[0], device=run.sequence.device))

    def turn(self, number: int) -> None:
        """Nobody asks."""


class _Uneven(Here):
    """Rows are already where they are wanted; the first layer's snapshots have each their own number of them.

    Args:
        spaces: the snapshots as the first layer sees them, one each.
        device: where work is done.
    """

    def __init__(self, spaces: Sequence[StackedView], *, device: str) -> None:
        super().__init__(spaces, device=device, alone=False)
        self._heights = [space.num_rows for space in spaces]

    def to_snapshots(
        self,
        work: Callable[[slice], tuple[Tensor, T]],
        pieces: Sequence[slice],
        leg: AllToAllPhase,
        *,
        like: Tensor,
        height: int,
    ) -> tuple[list[Tensor], list[T]]:
        """Gradients of the first layer's rows, where they belong; else as everywhere."""
        if leg.layer > 0 or not leg.backward:
            return super().to_snapshots(work, pieces, leg, like=like, height=height)
        out = [like.new_zeros(rows, leg.width) for rows in self._heights]

        def write(rows: slice) -> T:
            found, rest = work(rows)
            for whole, here in zip(out, found, strict=True):
                whole[rows] = here
            return rest

        return out, in_order(write, pieces, device=self._device)


# Windows that slide over the training split, with sampled neighbours, on parts that are dealt anew in every epoch.


def _through_time(run: SequenceSegment) -> Tensor:
    return blocks.add_gradients_blocks(run, WindowTimeline(run))


# memory of a model -> how a window of it is differentiated
_HOW: Mapping[str, Callable[[SequenceSegment], Tensor]] = MappingProxyType(
    {"per_vertex": _through_time, "weights": evolved.add_gradients_evolved, "none": evolved.add_gradients_evolved}
)


@dataclass(frozen=True, slots=True)
class SampledWindows:
    """The windows of a run, how their neighbours are drawn, and for whom.

    Attributes:
        train: the labelled snapshots of the training split.
        length: W, the snapshots of a whole window.
        fanout: the most in-neighbours drawn of a node for each layer.
        seed: of the run.
        partition: of the N nodes into P parts: the sizes of the parts that every epoch deals anew.
        parts: those of this rank.

    Raises:
        PlanError: no snapshot, or a length below 1.
        DataError: the window is longer than the training split.
    """

    train: range
    length: int
    fanout: int
    seed: int
    partition: Partition
    parts: range

    def __post_init__(self) -> None:
        if not self.train or self.length < 1:
            raise PlanError(f"windows of {self.length} of {len(self.train)} snapshots: both must be at least 1.")
        if self.length > len(self.train):
            raise DataError(
                f"window={self.length} is beyond the training split's {len(self.train)} snapshots. Set a window of "
                f"{len(self.train)} or fewer, or cut the data finer (cut=...)."
            )

    def of(self, number: int) -> range:
        """The window of a step: it ends at the step's snapshot, and is shorter at the beginning of the sequence."""
        target = self.train[number]
        return range(max(self.train.start, target - self.length + 1), target + 1)

    def dealt(self, epoch: int) -> Partition:
        """Parts of an epoch: at random, as large as those of the partition; the same for every rank."""
        order = generator(self.seed, "dynagraph/deal", epoch).permutation(len(self.partition.owner))
        return Partition(self.partition.owner[order], self.partition.parts, data_hash=self.partition.data_hash)


class SampledWindowStrategy(Strategy):
    """One step for each labelled snapshot: a window ends there, starts from state zero, and has its loss there alone.

    Each part trains its own nodes, all of them in every step, with copies of the neighbours drawn for them
    (:func:`dtdg_lab.engine.minibatches.sampled_edges`), so that gradients alone are exchanged. What is drawn for a
    node depends on epoch, snapshot and layer, not on parts: shares of all parts add up to what one part of all
    nodes computes, on any number of ranks. Nodes are dealt to parts anew in every epoch, which counts as making
    the batch of its first step, as drawing does.

    Args:
        model: any whose memory is ``per_vertex``, ``weights`` or ``none``.
        graph: N nodes.
        task: what is predicted.
        windows: of the run.
        settings: of the operators, the same for all parts.
        counts_group: whether this rank counts the one group that all ranks compute together: true on one of them.

    Raises:
        UnsupportedError: the task needs all nodes at once, or the model remembers what its part may not hold.

    References: FlareDTDG sections 2.2 and 4.1, on DynaGraph (Guan et al. 2022): sliding windows of subgraph sequences,
    cached aggregations, random repartitioning in each epoch.

    Differs from the paper: it is known to us by what others tell of it. That a window ends at every snapshot, in order
    of time and shorter at the beginning (as many updates as hybrid batches have), that every node is a target, and
    that the pulls of a layer share what is drawn are ours.
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
        if not task.per_vertex:
            raise UnsupportedError(
                f"task={task.name!r} on layout sampled_window: its loss needs all nodes at once, and each part "
                "computes its own alone. Choose system='full-history' (halo_window), or another task."
            )
        if model.memory not in _HOW:
            raise UnsupportedError(
                f"a model that remembers {model.memory} on layout sampled_window, which carries {', '.join(_HOW)}: "
                "a part has only what is sampled. Choose system='full-history' (halo_window), or another model."
            )
        self._model, self._graph, self._task, self._windows = model, graph, task, windows
        self._settings, self._counts_group = settings, counts_group
        self._epoch, self._dealt = 0, -1
        self._sequences: list[SampledSequence] = []
        self._rows: list[tuple[Any, ...]] = []

    def epoch(self, epoch: int) -> Sequence[Step]:
        """A step for each labelled snapshot, in order of time; what is computed next is of this epoch."""
        self._epoch = epoch
        group = (0,) if self._counts_group else ()
        steps = range(len(self._windows.train))
        return tuple(Step(number, group, 1, len(self._windows.of(number))) for number in steps)

    def compute(self, work: Step, marks: StepMarks) -> StepResult:
        """Gradients of this rank's parts, one part after another, in a window of the epoch last asked for."""
        started_s = time.perf_counter()
        if self._dealt != self._epoch:
            self._deal()
        window = self._windows.of(work.iteration)
        # where nodes remember nothing, only the weights go through time, and they see no neighbours
        needed = window if self._model.memory == "per_vertex" else window[-1:]
        counted = [sequence.sample(needed) for sequence in self._sequences]
        rows, edges = (sum(of) for of in zip(*counted, strict=True))
        took_s = time.perf_counter() - started_s
        marks("batch")
        runs = [SequenceSegment(self._model, sequence, self._task, window, "last") for sequence in self._sequences]
        self._task.prepare(window[-1:])
        for sequence in self._sequences:
            sequence.bring(needed)
        marks("transfer")
        loss_sum = sum(float(_HOW[self._model.memory](run)) for run in runs)
        whole: list[None] = [None] * len(window)
        self._rows.append((window[-1], window.start, len(window), whole, rows, edges, took_s))
        return StepResult(loss_sum, len(work.groups), sum(run.own * len(window) for run in runs))

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """``batches``: the windows computed since this was last asked.

        Rows count copies of neighbours, edges those drawn for all layers, and the seconds are of dealing and drawing.
        """
        taken, self._rows = self._rows, []
        return {"batches": taken}

    def _deal(self) -> None:
        self._sequences.clear()  # first: there may be no room for both
        windows, model, epoch = self._windows, self._model, self._epoch
        drawing = Drawing(
            windows.train,
            model.layers,
            model.hops_per_layer,
            model.memory == "per_vertex",
            windows.fanout,
            windows.seed,
            epoch,
        )
        dealt = windows.dealt(epoch)
        for part in windows.parts:
            own = SampledPart(self._graph, dealt.vertices(part), drawing)
            self._sequences.append(SampledSequence(self._graph, own, self._settings))
        self._dealt = epoch


def build(of: BuildContext) -> SampledWindowStrategy:
    """Sampled windows, whose partition is made again in each epoch."""
    assert of.partition is not None
    config = of.config
    windows = SampledWindows(of.train, config["window"], config["fanout"], config.seed, of.partition, of.parts)
    return SampledWindowStrategy(
        of.model, of.sequence.graph, of.task, windows, of.sequence.settings, counts_group=of.group.rank == 0
    )
