"""Loss and gradients of groups of consecutive snapshots, each from the initial state: what the group layouts share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from torch import Tensor

from dtdg_lab.core.plans import SnapshotGroups
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.parallel import blocks, evolved, pipelined, plain
from dtdg_lab.parallel.group_clock import GroupClock
from dtdg_lab.parallel.layout import Computed, Marks, Work
from dtdg_lab.parallel.run import Run
from dtdg_lab.parallel.sequence import Sequence
from dtdg_lab.tasks.task import Task

# memory of a model -> how a run of it is differentiated; all give what ``plain`` gives
HOW: Mapping[str, Callable[[Run], Tensor]] = MappingProxyType(
    {
        "per_vertex": blocks.add_gradients,
        "weights": evolved.add_gradients,
        "none": evolved.add_gradients,
        "weights_from_data": plain.add_gradients,
        "neighbourhood": plain.add_gradients,
    }
)


def bring(run: Run) -> None:
    """Move what a run needs onto the device, as far as it is kept there."""
    run.task.prepare(run.at)
    if HOW[run.model.memory] is plain.add_gradients:
        for t in run.snapshots:
            run.sequence.space(t)
        return
    for layer in range(run.model.layers):
        run.sequence.stacks(run.snapshots, layer)


@dataclass(slots=True)
class GroupRunner:
    """Forward and backward of whole groups.

    A group's loss is the mean of the task's over the snapshots where loss is taken and that have labelled items.

    Attributes:
        model: any model.
        sequence: the graph on this rank's device, all vertices or some.
        task: what is predicted.
        groups: K groups of consecutive snapshots.
        loss_at: ``last`` or ``all`` snapshots of a group.
        pipelined: whether a step's groups are in work together (:mod:`dtdg_lab.parallel.pipelined`), or one by one.
        clock: times the groups.
    """

    model: DynamicModel
    sequence: Sequence
    task: Task
    groups: SnapshotGroups
    loss_at: str
    pipelined: bool = False
    clock: GroupClock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = GroupClock(self.sequence.device)

    def compute(self, work: Work, marks: Marks) -> Computed:
        """Add the gradients of a step's groups to the parameters; one group's graph is alive at a time, or all are."""
        runs = [self._run(group) for group in work.groups]
        marks("batch")
        for run in runs:
            bring(run)
        marks("transfer")
        loss_sum = 0.0
        if self.pipelined:
            with self.clock.of(work.groups):
                loss_sum = float(pipelined.add_gradients(runs))
        else:
            for group, run in zip(work.groups, runs, strict=True):
                with self.clock.of([group]):
                    loss_sum += float(HOW[self.model.memory](run))
        return Computed(loss_sum, len(runs), self.sequence.own * sum(len(run.snapshots) for run in runs))

    def _run(self, group: int) -> Run:
        snapshots = range(int(self.groups.start[group]), int(self.groups.stop[group]))
        return Run(self.model, self.sequence, self.task, snapshots, self.loss_at)
