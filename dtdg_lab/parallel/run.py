"""A run of consecutive snapshots from the initial state: what is to be differentiated, however it is computed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from dtdg_lab.models.base import DynamicModel
from dtdg_lab.parallel.device_sequence import DeviceSequence
from dtdg_lab.tasks.task import Task


@dataclass(frozen=True)
class Run:
    """Snapshots trained from the initial state.

    The loss is the mean of the task's over the snapshots it is taken at, without those that have no labelled item, as
    evaluations have it; 0 where none has any.

    Attributes:
        model: whose parameters' gradients are wanted.
        sequence: the graph on this device, all vertices.
        task: what is predicted.
        snapshots: S consecutive ones.
        loss_at: ``last`` or ``all`` of them.
    """

    model: DynamicModel
    sequence: DeviceSequence
    task: Task
    snapshots: range
    loss_at: str

    @property
    def at(self) -> range:
        """The snapshots where loss is taken."""
        return self.snapshots if self.loss_at == "all" else self.snapshots[-1:]

    @cached_property
    def num_labelled(self) -> int:
        """How many of the snapshots where loss is taken have labelled items."""
        return sum(self.task.labelled(t) for t in self.at)

    @property
    def num_rows(self) -> int:
        """N, the vertices."""
        return len(self.sequence.rows)

    def loss(self, z: Tensor, snapshots: range, rows: slice) -> Tensor:
        """What some vertices at some snapshots add to the loss of the run, a scalar.

        Args:
            z: their readout, (S', n, outputs).
            snapshots: S' of those where loss is taken.
            rows: the n vertices.
        """
        return self.task.loss(z, snapshots, rows).sum() / max(self.num_labelled, 1)
