"""Loss and gradients of groups of consecutive snapshots, each from the initial state: what the group layouts share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor

from dtdg_lab.core.plans import SnapshotGroups
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.parallel import blocks, evolved, plain
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
    """

    model: DynamicModel
    sequence: Sequence
    task: Task
    groups: SnapshotGroups
    loss_at: str

    def compute(self, work: Work, marks: Marks) -> Computed:
        """Add the gradients of a step's groups to the parameters; one group's graph is alive at a time."""
        runs = [self._run(group) for group in work.groups]
        marks("batch")
        for run in runs:
            self.task.prepare(run.at)
            for t in run.snapshots:
                self.sequence.space(t)
        marks("transfer")
        loss_sum = sum(float(HOW[self.model.memory](run)) for run in runs)
        return Computed(loss_sum, len(runs), self.sequence.own * sum(len(run.snapshots) for run in runs))

    def _run(self, group: int) -> Run:
        snapshots = range(int(self.groups.start[group]), int(self.groups.stop[group]))
        return Run(self.model, self.sequence, self.task, snapshots, self.loss_at)
