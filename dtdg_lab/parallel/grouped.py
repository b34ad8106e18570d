"""Running a group of consecutive snapshots from state zero: what the group layouts share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dtdg_lab.core.plans import SnapshotGroups
from dtdg_lab.models.base import DynamicModel, run_straight
from dtdg_lab.parallel.device_sequence import DeviceSequence
from dtdg_lab.parallel.layout import Computed, Mark, Work


@dataclass(slots=True)
class GroupRunner:
    """Forward and backward of whole groups.

    A group's loss is the mean over the snapshots where loss is taken of the mean over vertices of the squared error.
    """

    model: DynamicModel
    sequence: DeviceSequence
    groups: SnapshotGroups
    loss_at: str

    def loss(self, group: int) -> Tensor:
        """The group's loss, a scalar with its history."""
        start, stop = int(self.groups.start[group]), int(self.groups.stop[group])
        first = self.sequence.space(start)
        state = self.model.initial_state(first.num_rows)
        losses = []
        for t in range(start, stop):
            space = self.sequence.space(t)
            h, state = run_straight(self.model.snapshot(space, space.inputs, state))
            if self.loss_at == "all" or t == stop - 1:
                losses.append(torch.nn.functional.mse_loss(self.model.readout(h), space.targets))
        return torch.stack(losses).mean()

    def compute(self, work: Work, mark: Mark) -> Computed:
        """Add the gradients of a step's groups to the parameters; one group's graph is alive at a time."""
        snapshots = [range(int(self.groups.start[g]), int(self.groups.stop[g])) for g in work.groups]
        mark("batch")
        for t in (t for group in snapshots for t in group):
            self.sequence.space(t)
        mark("transfer")
        loss_sum = 0.0
        for group in work.groups:
            loss = self.loss(group)
            loss.backward()
            loss_sum += float(loss.detach())
        rows = len(self.sequence.rows)
        return Computed(loss_sum, len(work.groups), rows * sum(len(group) for group in snapshots))
