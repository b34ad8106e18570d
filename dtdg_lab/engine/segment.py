"""Consecutive snapshots trained from the initial state, however their gradients are computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dtdg_lab.models.base import DynamicModel, State
from dtdg_lab.tasks.base import Rows, Task

if TYPE_CHECKING:
    from dtdg_lab.engine.views.sequence import SnapshotSequence


@dataclass(frozen=True)
class SequenceSegment:
    """Snapshots trained from the initial state.

    The loss is the mean of the task's over the snapshots it is taken at, without those that have no labelled item, as
    evaluations have it; 0 where none has any.

    Attributes:
        model: whose parameters' gradients are wanted.
        sequence: the graph on this device, all nodes or some.
        task: what is predicted.
        snapshots: S consecutive ones.
        loss_at: ``last`` or ``all`` of them.
        kept: of snapshots that have some nodes alone, the share of their labelled items that these hold, on all
            ranks together; their loss is the mean over what is kept.
    """

    model: DynamicModel
    sequence: SnapshotSequence
    task: Task
    snapshots: range
    loss_at: str
    kept: Mapping[int, float] = field(default_factory=dict)

    @property
    def at(self) -> range:
        """The snapshots where loss is taken."""
        return self.snapshots if self.loss_at == "all" else self.snapshots[-1:]

    @cached_property
    def num_labelled(self) -> int:
        """How many of the snapshots where loss is taken have labelled items."""
        return sum(self.task.labelled(t) and self.kept.get(t, 1.0) > 0 for t in self.at)

    @property
    def own(self) -> int:
        """n, the nodes whose loss is computed here."""
        return self.sequence.own

    def initial_state(self) -> State:
        """Return the state before the segment, for every row of its views."""
        return self.model.initial_state(self.sequence.view(self.snapshots[0]).num_rows)

    def layer_state(self, layer: int, rows: int) -> State:
        """Return the state before the segment of the rows that a layer runs through time; other layers are not read."""
        return self.model.initial_state(rows)

    def through_time(self, layer: int, x: Tensor, state: State, rows: slice) -> tuple[Tensor, State]:
        """Run a layer's temporal part: (S, n, C) -> (S, n, H) and the state after it; ``rows`` are its nodes."""
        return self.model.temporal_sequence(layer, x, state)

    def loss(self, z: Tensor, snapshots: range, rows: Rows) -> Tensor:
        """Return what some nodes at some snapshots add to the loss of the segment, a scalar.

        A task that needs all nodes at once gets them, joined from all ranks, for the snapshots that are this rank's
        turn.

        Args:
            z: their readout, (S', n, outputs).
            snapshots: S' of those where loss is taken.
            rows: which of the own nodes they are; all of them where the task is not ``per_vertex``.
        """
        if self.task.per_vertex:
            vertices = self.sequence.vertices
            losses = self.task.loss(z, snapshots, rows if vertices is None else vertices[rows])
        else:
            losses = self._joint_losses(z, snapshots)
        if self.kept:
            shares = [self.kept.get(t, 1.0) or 1.0 for t in snapshots]  # where nothing is held, the loss is 0
            losses = losses / losses.new_tensor(shares)
        return losses.sum() / max(self.num_labelled, 1)

    def snapshot(self, t: int, state: State) -> tuple[Tensor, State]:
        """Run a snapshot through all layers: hidden rows of its view's nodes, and the state after it."""
        space = self.sequence.view(t)
        return self.model.snapshot(space, space.inputs, state)

    def loss_of(self, t: int, h: Tensor) -> Tensor | None:
        """Return a snapshot's share of the loss, from its hidden rows; None where no loss is taken."""
        if t not in self.at:
            return None
        return self.loss(self.model.readout(h[: self.own]).unsqueeze(0), range(t, t + 1), slice(0, self.own))

    def _joint_losses(self, z: Tensor, snapshots: range) -> Tensor:
        joined = self.sequence.join(z)
        everyone = slice(0, joined.shape[1])
        losses = [
            self.task.loss(joined[index : index + 1], range(t, t + 1), everyone).sum()
            for index, t in enumerate(snapshots)
            if self.sequence.has_turn(t)
        ]
        # without a turn the joined rows still take part in backward, which every rank must
        return torch.stack(losses) if losses else joined.sum() * 0
