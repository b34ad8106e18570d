"""Vertex parts that exchange the rows of remote neighbours at every pull: full batch, nothing computed twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.parallel import blocks, stepwise
from dtdg_lab.parallel.block_timeline import BlockTimeline
from dtdg_lab.parallel.device_sequence import DeviceSequence
from dtdg_lab.parallel.exchange import Exchanger
from dtdg_lab.parallel.grouped import HOW, bring
from dtdg_lab.parallel.halo_sequence import HaloSequence
from dtdg_lab.parallel.layout import Computed, Marks, Unmarked, Work
from dtdg_lab.parallel.run import Run
from dtdg_lab.tasks.task import Task


class HaloVertexLayout:
    """One step an epoch: each rank computes its own vertices in the whole training part, loss at every snapshot.

    The parts of a rank are one: their rows lie side by side, and only rows of other ranks are exchanged. So losses and
    gradients are those of :class:`dtdg_lab.parallel.single.SingleLayout` whatever the parts, for every memory.

    Args:
        model: any model.
        sequence: the own vertices of this rank (``HaloSequence``), or all of them where there is one rank.
        task: what is predicted.
        train: the labelled snapshots of the training part.
        exchanger: what the sequence exchanges rows by.
        plan: blocks of time, of one of which activations are kept; every rank has all snapshots of a block.
        counts_group: whether this rank counts the one group that all ranks compute together: true on one of them.

    References: ADGNN-T as DynaHB section 7.1 describes it (vertex parts, communication, no redundant computation).
    """

    def __init__(
        self, model: DynamicModel, sequence: DeviceSequence | HaloSequence, task: Task, train: range,
        exchanger: Exchanger, *, plan: SnapshotBlocks, counts_group: bool,
    ) -> None:  # fmt: skip
        self._run = Run(model, sequence, task, train, "all")
        self._marks: Marks = Unmarked()
        self._plan, self._sequence = plan, sequence
        self._exchanger, self._counts_group = exchanger, counts_group
        self._bring()  # the indices of exchanges are part of what making the layout costs

    def epoch(self, epoch: int) -> Sequence[Work]:
        """The one step, the same every epoch."""
        return (Work(0, (0,) if self._counts_group else (), 1),)

    def compute(self, work: Work, marks: Marks) -> Computed:
        """This rank's share of the loss and of the gradients of the whole sequence."""
        run, self._exchanger.marks, self._marks = self._run, marks, marks
        marks("batch")
        self._bring()
        marks("transfer")
        loss = float(self._add_gradients())
        return Computed(loss, len(work.groups), run.own * len(run.snapshots))

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """Rows and bytes sent to each rank since this was last asked."""
        return {"links": [*self._exchanger.drain()], "exchanges": [*self._exchanger.legs.drain()]}

    def _bring(self) -> None:
        """Spaces as they will be asked for: of all snapshots, or of those of each block."""
        run, plan = self._run, self._plan
        if plan.blocks == 1 or run.model.memory != "per_vertex":
            bring(run)
            return
        run.task.prepare(run.at)
        for number in range(plan.blocks):
            self._sequence.stacks(plan.block(number), 0)

    def _add_gradients(self) -> Tensor:
        run, plan = self._run, self._plan
        if plan.blocks == 1 or run.model.memory in ("weights", "none"):  # these keep one snapshot's activations anyway
            self._turned(0, "forward")
            return HOW[run.model.memory](run)
        if run.model.memory == "per_vertex":
            timeline = BlockTimeline(
                plan, 0, self._sequence, run, bring=lambda own: None, moves=None, one_by_one=False
            )  # fmt: skip
            timeline.marks, timeline.turned = self._marks, self._turned
            return blocks.add_gradients(run, timeline)
        return stepwise.add_gradients(run, [plan.block(number) for number in range(plan.blocks)], self._begin)

    def _begin(self, number: int, way: str) -> None:
        self._marks.block(number, way)
        self._turned(number, way)

    def _turned(self, number: int, way: str) -> None:
        if way != "backward":
            self._exchanger.forward_way = way
