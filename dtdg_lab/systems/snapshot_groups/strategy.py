"""Data parallelism over time: parts compute whole snapshot groups, by a schedule that follows from measured times."""

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
    """Return the groups of ``window`` consecutive snapshots of the training split, one every ``stride`` snapshots.

    Raises:
        DataError: the training split has room for fewer than two groups.

    References: DyGNeX section 3; stride 1 is ours, from its Table 6 (SYSTEMS.md section 3).
    """
    groups = max(0, (len(train) - window) // stride + 1)
    if groups < LEAST_GROUPS:
        raise DataError(
            f"the training split of {len(train)} snapshots has only {groups} groups of group_window={window} at "
            f"group_stride={stride}, but {LEAST_GROUPS} groups ({window + stride} snapshots) are needed. "
            "Set a smaller group_window or group_stride, or use more snapshots (cut=...)."
        )
    start = np.arange(train.start, train.stop - window + 1, stride, dtype=np.int64)
    return SnapshotGroups(start, start + window)


class SnapshotGroupStrategy(Strategy, Replannable, ObservesSteps):
    """Each part computes its scheduled groups from a zero state; the gradients of a step are averaged.

    Args:
        context: the run's model, graph, task and settings; every kind of memory is exact. With option ``pipelined``
            ``groups_per_rank`` groups are computed at once, each from its own copy of the data (BLAD).
        scheduling: assigns groups to parts and steps.
    """

    plan_kinds = ("schedule",)

    def __init__(self, context: BuildContext, scheduling: GroupScheduling) -> None:
        config, self.scheduling, self._parts = context.config, scheduling, context.parts
        at_once = config["groups_per_rank"] if config["pipelined"] else 1
        self._runner = GroupRunner(
            context.model,
            context.sequence,
            context.task,
            scheduling.groups,
            config["loss_at"],
            [context.sequence.twin() for _ in range(at_once - 1)],
            context.group.device_clock,
        )
        self._group_times = config["group_times"]
        self.use(scheduling.schedule)

    def use(self, schedule: Schedule) -> None:
        """Use another schedule of the same groups and parts from the next epoch on."""
        self._steps = tuple(
            Step(number, tuple(group for part in self._parts for group in row[part]), sum(map(len, row)))
            for number, row in enumerate(schedule.assignment)
        )

    def epoch(self, epoch: int) -> Sequence[Step]:
        """Return this rank's steps under the current schedule."""
        return self._steps

    def compute(self, work: Step, marks: StepMarks) -> StepResult:
        """Add the gradients of this rank's groups of one step."""
        return self._runner.compute(work, marks)

    def rows(self) -> RecordRows:
        """Return the times at which groups were computed, and forget them."""
        return {"groups": self._runner.clock.drain()}

    # the schedule, which follows from measured times

    @property
    def epoch_changes(self) -> dict[str, Any]:
        """The setting that requests measured times."""
        return {"group_times": self._group_times}

    def on_step_end(self, outcome: StepOutcome) -> None:
        """Add the times of the step's groups and of its exchange."""
        self.scheduling.observe(outcome.rows.get("groups", ()), outcome.communicate_s)

    def on_epoch_end(self) -> tuple[str, ...]:
        """Adopt a schedule from measured times as soon as they are complete; collective."""
        if not self.scheduling.end_epoch():
            return ()
        self.use(self.scheduling.schedule)
        return self.plan_kinds

    def adopt_plan(self, recorded: Mapping[str, Any]) -> tuple[str, ...]:
        """Use the schedule of the replayed run."""
        self.scheduling.repeat(recorded)
        self.use(self.scheduling.schedule)
        return self.plan_kinds

    def plan_events(self) -> list[Event]:
        """Return the event of the current schedule."""
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
