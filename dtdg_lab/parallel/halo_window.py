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
from dtdg_lab.core.batch_plans import Chunking, HybridBatch
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.models.state import State
from dtdg_lab.parallel import trapezoid_blocks, trapezoid_plain
from dtdg_lab.parallel.carried import Carried
from dtdg_lab.parallel.device_sequence import DeviceSequence
from dtdg_lab.parallel.exchange import Exchanger
from dtdg_lab.parallel.halo_sequence import HaloSequence
from dtdg_lab.parallel.layer import STEP_NUMBERS
from dtdg_lab.parallel.layout import Computed, Marks, Unmarked, Work
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
    """One step for each labelled snapshot of the training part: loss at it, forward through the window it ends.

    Full snapshots exchange rows of remote neighbours; decayed ones have no edge between parts. State goes on from step
    to step without its gradient, of the vertices that the oldest snapshot of the window keeps.

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
        validation: snapshots that :meth:`validation_loss` asks about.

    References: FlareDTDG sections 3.2 to 3.4, algorithm 1. What the paper leaves open: the loss is taken at the newest
        snapshot alone.
    Differs from the paper: full snapshots keep the order of the graph, so that their operators are made once in a run;
        rows are put into the order of survival on their way through time.
    """

    def __init__(
        self, model: DynamicModel, sequence: DeviceSequence | HaloSequence, task: Task, train: range,
        exchanger: Exchanger, *, group: Group, shape: Trapezoid, cuts: Cuts, pace: Pace,
        validation: range = range(0),
    ) -> None:  # fmt: skip
        self.shape = shape
        self._model, self._sequence, self._task, self._train = model, sequence, task, train
        self._exchanger, self._group, self._cuts, self.pace = exchanger, group, cuts, pace
        self._validation = validation
        self._shrunken = ShrunkenSpaces(sequence.graph, sequence.settings, exchanger, group, cuts.ways)
        self._widths = seam_widths(model) if model.memory == "per_vertex" else ()
        self._epoch = -1
        self._rows: SurvivalRows
        self._everywhere: NDArray[np.int64] | None = None
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
        self._task.prepare(range(batch.target, batch.target + 1))
        marks("transfer")
        loss, after = self._add_gradients(batch, spaces)
        self.carried.keep(None if work.ends_segment else batch.snapshots.start, after)
        return Computed(float(loss), len(work.groups), sum(space.num_rows for space in spaces))

    def validation_loss(self, full_snapshots: int, alpha: float, *, epoch: int = 0) -> float:
        """The mean loss at the validation part's snapshots, forward through windows of another shape; collective.

        The part is one segment, begun a window before it from the state at the start; the test part is not looked at.
        Chunks survive as in ``epoch``.
        """
        shape = self.shaped(full_snapshots, alpha)
        before, self._exchanger.marks = max(0, self._validation.start - shape.window + 1), Unmarked()
        segment, total, counted = range(before, self._validation.stop), 0.0, 0
        self._take_epoch(epoch)
        carried = Carried(self._model)
        with torch.no_grad():
            for target in self._validation:
                if not self._task.labelled(target):
                    continue
                batch = self._hybrid(segment, target, target - 1, shape)
                spaces = self._spaces(batch)
                begin = carried.before(batch, spaces[0].num_rows)
                loss, after = trapezoid_plain.window_loss(
                    self._run(batch, survival=False), spaces, batch.full, self._rows, begin
                )
                carried.keep(batch.snapshots.start, after)
                total, counted = total + float(loss), counted + 1
        self.rows()
        sums = torch.tensor([total], dtype=torch.float64, device=self._sequence.device)
        self._group.all_reduce(sums)
        return float(sums[0]) / max(counted, 1)

    def shaped(self, full_snapshots: int, alpha: float) -> Trapezoid:
        """The shape with another K and alpha."""
        return replace(self.shape, full=full_snapshots, alpha=alpha)

    def carried_state(self) -> tuple[int, Tensor, State] | None:
        """What the next step goes on with: after which snapshot, of which vertices, and their state."""
        held = self.carried.taken_out(self._rows) if self._epoch >= 0 else None
        return None if held is None or self.carried.after is None else (self.carried.after, *held)

    def forget(self) -> None:
        """Be as before the first step."""
        self._epoch = -1
        self.carried.keep(None, None)
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
        self._rows, self._epoch, self._everywhere = SurvivalRows.of(order, self._sequence.device), epoch, None
        self._shrunken.renumber(self._rows)
        self.carried.take(self._rows)

    def _survival(self, parts: range, epoch: int) -> Any:
        of = self._cuts
        return survival_order(of.owner, of.chunking, parts, seed=of.seed, epoch=epoch)

    def _batch(self, work: WindowWork) -> HybridBatch:
        return self._hybrid(work.segment, work.target, work.after, self.shape)

    def _hybrid(self, segment: range, target: int, after: int, shape: Trapezoid) -> HybridBatch:
        return hybrid_batch(
            segment, target, window=shape.window, full_snapshots=shape.full, counts_newest_first=shape.counts,
            after=after,
        )  # fmt: skip

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
        if self._everywhere is None:
            self._everywhere = self._survival(range(self._cuts.chunking.parts), self._epoch).rows
        return int(self._everywhere[count])

    def _run(self, batch: HybridBatch, *, survival: bool) -> Run:
        vertices = self._rows.vertices if survival else self._sequence.vertices
        return Run(self._model, WindowVertices(self._sequence, vertices), self._task, batch.snapshots, "last")

    def _add_gradients(self, batch: HybridBatch, spaces: list[SnapshotSpace]) -> tuple[Tensor, State | None]:
        begin = self.carried.before(batch, spaces[0].num_rows)
        if self._model.memory != "per_vertex":
            run = self._run(batch, survival=False)
            return trapezoid_plain.add_gradients(run, spaces, batch.full, self._rows, begin)
        device, ranks = self._sequence.device, self._group.size
        heights, whole = [space.num_rows for space in spaces], self.shape
        of_whole = [*map(self._rows.kept, reversed(whole.counts)), *[heights[-1]] * whole.full]
        seam = TrapezoidSeam(heights, batch.full, self._rows, device=device, whole=of_whole)
        make: trapezoid_blocks.MakeLayer = WindowLayer
        if ranks > 1:
            self.pace.begin(self._sizes(batch, spaces))
            make = partial(OverlappedLayer, pace=self.pace)
        run = self._run(batch, survival=True)
        return trapezoid_blocks.add_gradients(
            run, spaces, seam, begin, widths=self._widths, make=make, leaves=len(spaces) == self.shape.window
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
