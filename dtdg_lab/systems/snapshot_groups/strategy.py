"""Whole snapshot groups on each part: data parallelism over time, with a schedule that follows from measured times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.plans import Schedule, SnapshotGroups
from dtdg_lab.engine.backprop.reference import GroupRunner
from dtdg_lab.engine.capabilities import ObservesSteps, Replannable, StepOutcome
from dtdg_lab.engine.strategy import BuildContext, RecordRows, Step, StepMarks, StepResult, Strategy
from dtdg_lab.records.events import Event
from dtdg_lab.systems.snapshot_groups.group_scheduling import GroupScheduling

LEAST_GROUPS = 2  # a single group leaves nothing to schedule


def snapshot_groups(train: range, *, window: int, stride: int) -> SnapshotGroups:
    """Return groups of ``window`` consecutive snapshots of the training split, one at every ``stride`` snapshots.

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


class SnapshotGroupStrategy(Strategy, Replannable, ObservesSteps):
    """Strategy in which each part computes its scheduled groups from state zero; gradients of a step are averaged.

    Args:
        context: what it is built from; group layouts carry every kind of memory exactly. With option ``pipelined`` the
            groups of a step are in work together, all their activations alive (BLAD).
        scheduling: which part computes which group when, for P parts.
    """

    plan_kinds = ("schedule",)

    def __init__(self, context: BuildContext, scheduling: GroupScheduling) -> None:
        config, self.scheduling, self._parts = context.config, scheduling, context.parts
        self._runner = GroupRunner(
            context.model, context.sequence, context.task, scheduling.groups, config["loss_at"], config["pipelined"]
        )
        self._group_times = config["group_times"]
        self.use(scheduling.schedule)

    def use(self, schedule: Schedule) -> None:
        """Compute by another schedule of the same groups and parts, from the next epoch on."""
        self._steps = tuple(
            Step(number, tuple(group for part in self._parts for group in row[part]), sum(map(len, row)))
            for number, row in enumerate(schedule.assignment)
        )

    def epoch(self, epoch: int) -> Sequence[Step]:
        """Return this rank's steps, by the schedule in use."""
        return self._steps

    def compute(self, work: Step, marks: StepMarks) -> StepResult:
        """Add the gradients of this rank's groups of one step."""
        return self._runner.compute(work, marks)

    def rows(self) -> RecordRows:
        """Return and forget when each group was computed."""
        return {"groups": [*self._runner.clock.drain()]}

    # the schedule, which follows from measured times

    @property
    def epoch_changes(self) -> dict[str, Any]:
        """The setting that asks for measured times."""
        return {"group_times": self._group_times}

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
        self.scheduling.repeat(recorded)
        self.use(self.scheduling.schedule)
        return self.plan_kinds

    def plan_events(self) -> list[Event]:
        """Return the schedule in use."""
        return [self.scheduling.event()]

    def state_dict(self) -> dict[str, Any]:
        """Return measured times and the schedule."""
        return self.scheduling.state_dict()


def build(context: BuildContext) -> SnapshotGroupStrategy:
    """Build the strategy of a run, with a schedule that is the same on all ranks; collective.

    Raises:
        DataError: the training split has room for fewer than two groups.
        PlanError: the schedule could not be made.
    """
    config = context.config
    groups = snapshot_groups(context.train, window=config["group_window"], stride=config["group_stride"])
    scheduling = GroupScheduling(
        config, context.graph, groups, context.group, device=context.device, state=context.state
    )
    return SnapshotGroupStrategy(context, scheduling)
