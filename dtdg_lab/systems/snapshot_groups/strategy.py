"""Whole snapshot groups on each part: data parallelism over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.plans import Schedule, SnapshotGroups
from dtdg_lab.engine.backprop.reference import GroupRunner
from dtdg_lab.engine.graph_view import DeviceSequence
from dtdg_lab.engine.strategy import BuildContext, Step, StepMarks, StepOutcome, StepResult, Strategy
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.systems.snapshot_groups.group_schedule import GroupScheduling
from dtdg_lab.tasks.base import Task

LEAST_GROUPS = 2  # one group is the whole part: nothing to deal out


def snapshot_groups(train: range, *, window: int, stride: int) -> SnapshotGroups:
    """Groups of ``window`` consecutive snapshots of the training split, one at every ``stride`` snapshots.

    Raises:
        DataError: the training split has room for fewer than two groups.

    References: DyGNeX section 3; stride 1 is ours, from its Table 6 (SYSTEMS.md section 3).
    """
    groups = max(0, (len(train) - window) // stride + 1)
    if groups < LEAST_GROUPS:
        raise DataError(
            f"the training split has {len(train)} snapshots, room for {groups} groups of group_window={window} that "
            f"start at every group_stride={stride}; at least {LEAST_GROUPS} groups, {window + stride} snapshots, are "
            "needed. Set a smaller group_window or group_stride, or cut the data finer (cut=...)."
        )
    start = np.arange(train.start, train.stop - window + 1, stride, dtype=np.int64)
    return SnapshotGroups(start, start + window)


class SnapshotGroupStrategy(Strategy):
    """Each part computes its scheduled groups from state zero; the gradients of all groups of a step are averaged.

    Args:
        model: any model; group layouts carry every kind of memory exactly.
        sequence: the graph on this rank's device, all nodes.
        task: what is predicted.
        groups: K snapshot groups.
        schedule: which part computes which group when, for P parts.
        parts: the parts this rank executes, of P.
        loss_at: ``last`` or ``all`` snapshots of a group.
        pipelined: whether the groups of a step are in work together, all their activations alive (BLAD).
    """

    def __init__(
        self,
        model: DynamicModel,
        sequence: DeviceSequence,
        task: Task,
        groups: SnapshotGroups,
        schedule: Schedule,
        *,
        parts: range,
        loss_at: str = "last",
        pipelined: bool = False,
    ) -> None:
        self._runner = GroupRunner(model, sequence, task, groups, loss_at, pipelined)
        self._parts = parts
        self.use(schedule)

    def use(self, schedule: Schedule) -> None:
        """Compute by another schedule from the next epoch on; for the same groups and parts."""
        self._works = tuple(
            Step(i, tuple(g for part in self._parts for g in row[part]), sum(map(len, row)))
            for i, row in enumerate(schedule.assignment)
        )

    def epoch(self, epoch: int) -> Sequence[Step]:
        """This rank's steps, by the schedule in use."""
        return self._works

    def compute(self, work: Step, marks: StepMarks) -> StepResult:
        """Gradients of this rank's groups of one step."""
        return self._runner.compute(work, marks)

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """When each group was computed, since this was last asked."""
        return {"groups": [*self._runner.clock.drain()]}

    # the schedule, which follows from measured times

    plan_kinds = ("schedule",)
    scheduling: GroupScheduling

    @property
    def epoch_changes(self) -> dict[str, Any]:
        """The setting that asks for measured times."""
        return {"group_times": self.context.config["group_times"]}

    def on_step_end(self, outcome: StepOutcome) -> None:
        """Add the times of the step's groups and of its exchange."""
        self.scheduling.observe(outcome.rows.get("groups", ()), outcome.communicate_s)

    def on_epoch_end(self) -> tuple[str, ...]:
        """Adopt a schedule by measured times once they are known; collective."""
        if not self.scheduling.end_epoch():
            return ()
        self.use(self.scheduling.schedule)
        return self.plan_kinds

    def adopt_plan(self, recorded: Mapping[str, Any]) -> tuple[str, ...]:
        """Use the schedule of a run that is replayed."""
        self.scheduling.take(recorded)
        self.use(self.scheduling.schedule)
        return self.plan_kinds

    def plan_events(self) -> list[tuple[str, dict[str, Any]]]:
        """The schedule in force."""
        return [("schedule", self.scheduling.to_dict())]

    def state_dict(self) -> dict[str, Any]:
        """Measured times and the schedule."""
        return self.scheduling.state_dict()


def build(of: BuildContext) -> SnapshotGroupStrategy:
    """The strategy of a run, with a schedule that is the same on all ranks; collective.

    Raises:
        DataError: the training split has room for fewer than two groups.
        PlanError: the schedule could not be made.
    """
    config = of.config
    groups = snapshot_groups(of.train, window=config["group_window"], stride=config["group_stride"])
    scheduling = GroupScheduling(config, of.graph, groups, of.group, device=of.device, state=of.state)
    made = SnapshotGroupStrategy(
        of.model,
        of.sequence,
        of.task,
        groups,
        scheduling.schedule,
        parts=of.parts,
        loss_at=config["loss_at"],
        pipelined=config["pipelined"],
    )
    made.scheduling = scheduling
    return made
