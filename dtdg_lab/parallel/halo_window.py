"""Vertex parts that train on windows of snapshots: the newest whole, with exchanges, the older ones ever smaller."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.batching.segments import hybrid_batch, segments
from dtdg_lab.batching.survival import survival_order
from dtdg_lab.batching.trapezoid import Trapezoid
from dtdg_lab.comm.group import Group
from dtdg_lab.core.batch_plans import Chunking, HybridBatch, SurvivalOrder
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.models.state import State
from dtdg_lab.parallel import trapezoid_blocks, trapezoid_plain
from dtdg_lab.parallel.carried import Carried, Entering
from dtdg_lab.parallel.device_sequence import DeviceSequence
from dtdg_lab.parallel.exchange import Exchanger
from dtdg_lab.parallel.halo_sequence import HaloSequence
from dtdg_lab.parallel.layer import STEP_NUMBERS
from dtdg_lab.parallel.layout import Computed, Marks, Work
from dtdg_lab.parallel.overlapped_layer import OverlappedLayer
from dtdg_lab.parallel.pace import Pace, TaskSize
from dtdg_lab.parallel.run import Run
from dtdg_lab.parallel.seam_width import seam_widths
from dtdg_lab.parallel.shrunken_spaces import ShrunkenSpaces
from dtdg_lab.parallel.space import SnapshotSpace
from dtdg_lab.parallel.survival_rows import SurvivalRows
from dtdg_lab.parallel.trapezoid_seam import WIDER, TrapezoidSeam
from dtdg_lab.parallel.window_layer import WindowLayer
from dtdg_lab.parallel.window_vertices import WindowVertices
from dtdg_lab.parallel.window_work import WindowWork
from dtdg_lab.tasks.task import Task

BatchRow = tuple[int, int, int, list[int | None], int, int, float]


@dataclass(frozen=True, slots=True, eq=False)
class Cuts:
    """What windows are cut by, for P parts.

    Attributes:
        owner: (N,) the part of each vertex.
        chunking: of each part's vertices.
        parts: those of this rank.
        seed: of the run.
        ways: along which edges the model pulls.
    """

    owner: NDArray[np.int32]
    chunking: Chunking
    parts: range
    seed: int
    ways: tuple[str, ...]


class HaloWindowLayout:
    """One step for each labelled snapshot of the training part: forward through the window that it ends.

    Full snapshots exchange rows of remote neighbours; decayed ones have no edge between parts. State passes from step
    to step without its gradient. A vertex that the oldest snapshots of a window lack enters it late: it starts from the
    state that it had after the same earlier snapshot in the step before, or from zero, and at the start of a segment
    from zero in any case.

    Args:
        model: any model.
        sequence: full snapshots of the own vertices of this rank; of all where there is one.
        task: what is predicted.
        train: the labelled snapshots of the training part.
        exchanger: what the sequence exchanges rows by.
        group: the ranks.
        shape: of the windows; may be set anew between two steps.
        cuts: what they are cut by.
        pace: orders exchanges where there are several ranks.
        loss_at: ``last`` or ``all`` snapshots of a window. At ``all`` the loss is the mean over them, and that of a
            decayed snapshot is the mean over the labelled items that it keeps, on all ranks together.
        inherits: whether vertices that enter late inherit their state; else they start from zero.

    References: FlareDTDG sections 3.1 to 3.4, algorithm 1 (line 7: states are inherited). Algorithm 1 takes the loss
        "based on h^t", which reads as the newest snapshot's; the released code averages it over all snapshots of the
        window. Both are here. ``last`` is the default, so that full and decayed windows learn from the same labels.
    Differs from the paper: full snapshots keep the order of the graph, so that their operators are made once in a run;
        rows are put into the order of survival on their way through time.
    """

    def __init__(
        self, model: DynamicModel, sequence: DeviceSequence | HaloSequence, task: Task, train: range,
        exchanger: Exchanger, *, group: Group, shape: Trapezoid, cuts: Cuts, pace: Pace,
        loss_at: str = "last", inherits: bool = True,
    ) -> None:  # fmt: skip
        self.shape = shape
        self._model, self._sequence, self._task, self._train = model, sequence, task, train
        self._exchanger, self._group, self._cuts, self.pace = exchanger, group, cuts, pace
        self._loss_at, self._inherits = loss_at, inherits
        self._shrunken = ShrunkenSpaces(sequence.graph, sequence.settings, exchanger, group, cuts.ways)
        self._widths = seam_widths(model) if model.memory == "per_vertex" else ()
        self._epoch = -1
        self._rows: SurvivalRows
        self._everyone: SurvivalOrder | None = None
        self._shares: dict[tuple[int, int], float] = {}
        self._batches: list[BatchRow] = []
        self.carried = Carried(model)
        for t in train:  # operators and the indices of exchanges are part of what making the layout costs
            sequence.space(t)

    def epoch(self, epoch: int) -> Sequence[WindowWork]:
        """The steps of an epoch, the later segment's first; the same on every rank."""
        works: list[WindowWork] = []
        for segment in segments(self._train, seed=self._cuts.seed, epoch=epoch):
            targets = [t for t in segment if self._task.labelled(t)]
            for target, after in zip(targets, [segment.start - 1, *targets], strict=False):
                number, own = len(works), self._group.rank == 0
                works.append(
                    WindowWork(
                        number, (number,) if own else (), 1, min(target - segment.start + 1, self.shape.window), epoch,
                        segment, target, after, target == targets[-1],
                    )
                )  # fmt: skip
        return works

    @property
    def piece_rows(self) -> int:
        """Most vertices that run through time at once."""
        return WIDER * STEP_NUMBERS[self._sequence.device.partition(":")[0]] // self._model.hidden

    def by_length(self) -> list[WindowWork]:
        """The first step of each length of a window, from one snapshot to all, of an epoch that is not cut."""
        groups = (0,) if self._group.rank == 0 else ()
        return [
            WindowWork(0, groups, 1, place + 1, 0, self._train, target, target - 1)
            for place, target in enumerate(self._train[: self.shape.window])
        ]

    def compute(self, work: Work, marks: Marks) -> Computed:
        """This rank's share of the loss of a window, and of its gradients."""
        assert isinstance(work, WindowWork)
        self._exchanger.marks = marks
        self._take_epoch(work.epoch)
        batch = self._batch(work)
        spaces = self._spaces(batch)
        marks("batch")
        run = self._run(batch)
        self._task.prepare(run.at)
        marks("transfer")
        entering = self._entering(batch, spaces)
        loss, left = self._add_gradients(run, batch, spaces, self.carried.before(entering))
        self.carried.keep(entering, None if work.ends_segment else left)
        return Computed(float(loss), len(work.groups), sum(space.num_rows for space in spaces))

    def tried(self, work: WindowWork, marks: Marks) -> Computed:
        """A step that does not count, to see what it takes: as if a step before had left states for every vertex."""
        self._take_epoch(work.epoch)
        batch = self._batch(work)
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

    def carried_state(self) -> tuple[Tensor, Tensor, State] | None:
        """What the next step inherits: of which vertices, after which snapshot of each, and their state."""
        return self.carried.taken_out(self._rows) if self._epoch >= 0 else None

    def forget(self) -> None:
        """Be as before the first step."""
        self._epoch = -1
        self.carried.drop()
        self.pace.forget()
        self.rows()

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """What was taken down since this was last asked."""
        batches, self._batches = self._batches, []
        return {
            "links": [*self._exchanger.drain()], "exchanges": [*self._exchanger.legs.drain()],
            "tasks": [*self.pace.drain()], "batches": [*batches],
        }  # fmt: skip

    # one step

    def _take_epoch(self, epoch: int) -> None:
        if epoch == self._epoch:
            return
        order = self._survival(self._cuts.parts, epoch)
        self._rows, self._epoch = SurvivalRows.of(order, self._sequence.device), epoch
        self._everyone, self._shares = None, {}
        self._shrunken.renumber(self._rows)
        self.carried.take(self._rows)

    def _survival(self, parts: range, epoch: int) -> SurvivalOrder:
        of = self._cuts
        return survival_order(of.owner, of.chunking, parts, seed=of.seed, epoch=epoch)

    def _batch(self, work: WindowWork) -> HybridBatch:
        shape = self.shape
        return hybrid_batch(
            work.segment, work.target, window=shape.window, full_snapshots=shape.full, counts_newest_first=shape.counts,
            after=work.after,
        )  # fmt: skip

    def _entering(self, batch: HybridBatch, spaces: list[SnapshotSpace]) -> Entering:
        """At which snapshot vertices enter the window that may have a state to start from."""
        return self._first_in([space.num_rows for space in spaces], batch.snapshots)

    def _first_in(self, heights: list[int], snapshots: range) -> Entering:
        return list(zip(heights, snapshots, strict=True))[: None if self._inherits else 1]

    def _spaces(self, batch: HybridBatch) -> list[SnapshotSpace]:
        """The snapshots of a window, oldest first."""
        started_s, self._shrunken.edges = time.perf_counter(), 0
        self._shrunken.keep_only(batch.snapshots)
        spaces = [
            self._shrunken.space(t, self._rows.kept(count), self._rows_everywhere(count))
            for t, count in zip(batch.decayed, batch.counts, strict=True)
        ]
        shrink_s = time.perf_counter() - started_s
        spaces += [self._sequence.space(t) for t in batch.snapshots[len(spaces) :]]
        kept = [*batch.counts, *[None] * batch.full]
        rows = sum(space.num_rows for space in spaces)
        self._batches.append(
            (batch.target, batch.snapshots.start, batch.full, kept, rows, self._shrunken.edges, shrink_s)
        )  # fmt: skip
        return spaces

    def _rows_everywhere(self, count: int) -> int:
        """Rows on all ranks; only models that look for the best of all vertices ask."""
        if self._model.memory != "weights_from_data":
            return self._sequence.graph.num_nodes
        return int(self._of_all_parts().rows[count])

    def _of_all_parts(self) -> SurvivalOrder:
        if self._everyone is None:
            self._everyone = self._survival(range(self._cuts.chunking.parts), self._epoch)
        return self._everyone

    def _kept(self, t: int, count: int) -> float:
        """The share of a decayed snapshot's labelled items that its vertices hold, on all ranks together."""
        if (t, count) not in self._shares:
            order = self._of_all_parts()
            vertices = torch.from_numpy(order.vertices[: order.rows[count]].copy()).to(self._sequence.device)
            self._shares[t, count] = float(self._task.share(range(t, t + 1), vertices)[0])
        return self._shares[t, count]

    def _run(self, batch: HybridBatch) -> Run:
        in_order = self._model.memory == "per_vertex"  # of survival
        vertices = self._rows.vertices if in_order else self._sequence.vertices
        kept = {}
        if self._loss_at == "all":
            kept = {t: self._kept(t, count) for t, count in zip(batch.decayed, batch.counts, strict=True)}
        sequence = WindowVertices(self._sequence, vertices)
        return Run(self._model, sequence, self._task, batch.snapshots, self._loss_at, kept)

    def _add_gradients(
        self, run: Run, batch: HybridBatch, spaces: list[SnapshotSpace], begin: State
    ) -> tuple[Tensor, State | None]:
        if self._model.memory != "per_vertex":
            return trapezoid_plain.add_gradients(run, spaces, batch.full, self._rows, begin, late=self._inherits)
        device, ranks = self._sequence.device, self._group.size
        heights, whole = [space.num_rows for space in spaces], self.shape
        of_whole = [*map(self._rows.kept, reversed(whole.counts)), *[heights[-1]] * whole.full]
        seam = TrapezoidSeam(heights, batch.full, self._rows, device=device, whole=of_whole)
        make: trapezoid_blocks.MakeLayer = WindowLayer
        if ranks > 1:
            self.pace.begin(self._sizes(batch, spaces))
            make = partial(OverlappedLayer, pace=self.pace)
        leaves = self._inherits or len(spaces) == self.shape.window
        return trapezoid_blocks.add_gradients(
            run, spaces, seam, begin, widths=self._widths, make=make, leaves=leaves, late=self._inherits
        )

    def _sizes(self, batch: HybridBatch, spaces: list[SnapshotSpace]) -> list[TaskSize]:
        """How much work each snapshot is, as the predictor of times is told."""
        sequence = self._sequence
        assert isinstance(sequence, HaloSequence)
        share = sequence.own / sequence.graph.num_nodes
        sizes = []
        for t, space in zip(batch.snapshots, spaces, strict=True):
            is_full = t not in batch.decayed
            edges = int(sequence.graph.num_edges[t] * (share if is_full else share * space.num_rows / sequence.own))
            sizes.append(TaskSize(t, space.num_rows, edges, sequence.halo_rows(t) if is_full else None))
        return sizes
