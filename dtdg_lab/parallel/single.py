"""The whole training sequence as one batch in one process: the reference of all systems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dtdg_lab.core.plans import SnapshotGroups
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.parallel.device_sequence import DeviceSequence
from dtdg_lab.parallel.grouped import GroupRunner
from dtdg_lab.parallel.layout import Computed, Marks, Work
from dtdg_lab.tasks.task import Task


class SingleLayout:
    """One step an epoch: back-propagation through the whole training part, loss at every snapshot.

    Args:
        model: any model.
        sequence: the graph on this device.
        task: what is predicted.
        train: the labelled snapshots of the training part.
    """

    def __init__(self, model: DynamicModel, sequence: DeviceSequence, task: Task, train: range) -> None:
        groups = SnapshotGroups(np.array([train.start]), np.array([train.stop]))
        self._runner = GroupRunner(model, sequence, task, groups, "all")

    def epoch(self, epoch: int) -> Sequence[Work]:
        """The one step, the same every epoch."""
        return (Work(0, (0,), 1),)

    def compute(self, work: Work, marks: Marks) -> Computed:
        """Gradients of the whole sequence."""
        return self._runner.compute(work, marks)

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """None: gradients alone are exchanged."""
        return {}
