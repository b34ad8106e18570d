"""Windows that slide over the training part, with sampled neighbours, on parts that are dealt anew in every epoch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from torch import Tensor

from dtdg_lab.core.errors import DataError, PlanError, UnsupportedError
from dtdg_lab.core.plans import Partition
from dtdg_lab.core.streams import generator
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.kernels.operator_settings import OperatorSettings
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.parallel import blocks, evolved
from dtdg_lab.parallel.layout import Computed, Marks, Work
from dtdg_lab.parallel.run import Run
from dtdg_lab.parallel.sampled_part import Drawing, SampledPart
from dtdg_lab.parallel.sampled_sequence import SampledSequence
from dtdg_lab.parallel.sampled_timeline import WindowTimeline
from dtdg_lab.tasks.task import Task


def _through_time(run: Run) -> Tensor:
    return blocks.add_gradients(run, WindowTimeline(run))


# memory of a model -> how a window of it is differentiated
_HOW: Mapping[str, Callable[[Run], Tensor]] = MappingProxyType(
    {"per_vertex": _through_time, "weights": evolved.add_gradients, "none": evolved.add_gradients}
)


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of a run, how their neighbours are drawn, and for whom.

    Attributes:
        train: the labelled snapshots of the training part.
        length: W, the snapshots of a whole window.
        fanout: the most in-neighbours drawn of a vertex for each layer.
        seed: of the run.
        partition: of the N vertices into P parts: the sizes of the parts that every epoch deals anew.
        parts: those of this rank.

    Raises:
        PlanError: no snapshot, or a length below 1.
        DataError: the window is longer than the training part.
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
                f"window={self.length} is beyond the training part's {len(self.train)} snapshots. Set a window of "
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


class SampledWindowLayout:
    """One step for each labelled snapshot: a window ends there, starts from state zero, and has its loss there alone.

    Each part trains its own vertices, all of them in every step, with copies of the neighbours drawn for them
    (:func:`dtdg_lab.batching.sampling.sampled_edges`), so that gradients alone are exchanged. What is drawn for a
    vertex depends on epoch, snapshot and layer, not on parts: shares of all parts add up to what one part of all
    vertices computes, on any number of ranks. Vertices are dealt to parts anew in every epoch, which counts as making
    the batch of its first step, as drawing does.

    Args:
        model: any whose memory is ``per_vertex``, ``weights`` or ``none``.
        graph: N vertices.
        task: what is predicted.
        windows: of the run.
        settings: of the operators, the same for all parts.
        counts_group: whether this rank counts the one group that all ranks compute together: true on one of them.

    Raises:
        UnsupportedError: the task needs all vertices at once, or the model remembers what its part may not hold.

    References: FlareDTDG sections 2.2 and 4.1, on DynaGraph (Guan et al. 2022): sliding windows of subgraph sequences,
    cached aggregations, random repartitioning in each epoch.

    Differs from the paper: it is known to us by what others tell of it. That a window ends at every snapshot, in order
    of time and shorter at the beginning (as many updates as hybrid batches have), that every vertex is a target, and
    that the pulls of a layer share what is drawn are ours.
    """

    def __init__(
        self,
        model: DynamicModel,
        graph: DynamicGraph,
        task: Task,
        windows: Windows,
        settings: OperatorSettings,
        *,
        counts_group: bool,
    ) -> None:
        if not task.per_vertex:
            raise UnsupportedError(
                f"task={task.name!r} on layout sampled_window: its loss needs all vertices at once, and each part "
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

    def epoch(self, epoch: int) -> Sequence[Work]:
        """A step for each labelled snapshot, in order of time; what is computed next is of this epoch."""
        self._epoch = epoch
        group = (0,) if self._counts_group else ()
        steps = range(len(self._windows.train))
        return tuple(Work(number, group, 1, len(self._windows.of(number))) for number in steps)

    def compute(self, work: Work, marks: Marks) -> Computed:
        """Gradients of this rank's parts, one part after another, in a window of the epoch last asked for."""
        started_s = time.perf_counter()
        if self._dealt != self._epoch:
            self._deal()
        window = self._windows.of(work.iteration)
        # where vertices remember nothing, only the weights go through time, and they see no neighbours
        needed = window if self._model.memory == "per_vertex" else window[-1:]
        counted = [sequence.sample(needed) for sequence in self._sequences]
        rows, edges = (sum(of) for of in zip(*counted, strict=True))
        took_s = time.perf_counter() - started_s
        marks("batch")
        runs = [Run(self._model, sequence, self._task, window, "last") for sequence in self._sequences]
        self._task.prepare(window[-1:])
        for sequence in self._sequences:
            sequence.bring(needed)
        marks("transfer")
        loss_sum = sum(float(_HOW[self._model.memory](run)) for run in runs)
        whole: list[None] = [None] * len(window)
        self._rows.append((window[-1], window.start, len(window), whole, rows, edges, took_s))
        return Computed(loss_sum, len(work.groups), sum(run.own * len(window) for run in runs))

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
            windows.train, model.layers, model.hops_per_layer, model.memory == "per_vertex", windows.fanout,
            windows.seed, epoch,
        )  # fmt: skip
        dealt = windows.dealt(epoch)
        for part in windows.parts:
            own = SampledPart(self._graph, dealt.vertices(part), drawing)
            self._sequences.append(SampledSequence(self._graph, own, self._settings))
        self._dealt = epoch
