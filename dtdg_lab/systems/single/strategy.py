"""The whole training sequence as one batch in one process: the reference of all systems."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dtdg_lab.core.plans import SnapshotGroups
from dtdg_lab.engine.backprop.reference import GroupRunner
from dtdg_lab.engine.strategy import BuildContext, Step, StepMarks, StepResult, Strategy
from dtdg_lab.engine.views.device_sequence import DeviceSequence
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.records.events import Event
from dtdg_lab.systems.single.events import SnapshotTimes
from dtdg_lab.systems.single.snapshot_times import time_snapshots
from dtdg_lab.tasks.base import Task


class SingleStrategy(Strategy):
    """One step an epoch: back-propagation through the whole training split, loss at every snapshot.

    Args:
        model: any model.
        sequence: the graph on this device.
        task: what is predicted.
        train: the labelled snapshots of the training split.
    """

    plan_kinds: tuple[str, ...] = (SnapshotTimes.kind,)

    def __init__(self, model: DynamicModel, sequence: DeviceSequence, task: Task, train: range) -> None:
        self._model, self._sequence, self._train = model, sequence, train
        groups = SnapshotGroups(np.array([train.start]), np.array([train.stop]))
        self._runner = GroupRunner(model, sequence, task, groups, "all")

    def epoch(self, epoch: int) -> Sequence[Step]:
        """Return the one step, the same every epoch."""
        return (Step(0, (0,), 1),)

    def compute(self, work: Step, marks: StepMarks) -> StepResult:
        """Add the gradients of the whole sequence."""
        return self._runner.compute(work, marks)

    def plan_events(self) -> list[Event]:
        """Time the forward pass of each snapshot; training does not depend on it."""
        return [time_snapshots(self._model, self._sequence, self._train)]


def build(context: BuildContext) -> SingleStrategy:
    """Build the strategy that trains on the whole training split as one batch."""
    return SingleStrategy(context.model, context.sequence, context.task, context.train)
