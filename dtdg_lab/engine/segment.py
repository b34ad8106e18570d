"""Consecutive snapshots trained from the initial state, independent of the method of backpropagation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dtdg_lab.kernels.uploads import upload
from dtdg_lab.models.base import DynamicModel, State
from dtdg_lab.tasks.base import Rows, Task

if TYPE_CHECKING:
    from dtdg_lab.engine.views.sequence import SnapshotSequence


@dataclass(frozen=True)
class SequenceSegment:
    """Snapshots trained from the initial state.

    The loss is the task's loss, averaged over the loss snapshots that have labelled items; 0 if none has.

    Attributes:
        model: model to differentiate.
        sequence: the graph on this device, all nodes or some.
        task: the task.
        snapshots: S consecutive snapshots.
        loss_at: loss snapshots, ``last`` or ``all``.
        labelled_shares: snapshot -> share of labelled items that the nodes here hold on all ranks together, where only
            some nodes are used; the loss is the mean over these items.
    """

    model: DynamicModel
    sequence: SnapshotSequence
    task: Task
    snapshots: range
    loss_at: str
    labelled_shares: Mapping[int, float] = field(default_factory=dict)

    @property
    def at(self) -> range:
        """The loss snapshots."""
        return self.snapshots if self.loss_at == "all" else self.snapshots[-1:]

    @cached_property
    def num_labelled(self) -> int:
        """Number of loss snapshots with labelled items."""
        return sum(self.task.labelled(t) and self.labelled_shares.get(t, 1.0) > 0 for t in self.at)

    @property
    def own(self) -> int:
        """Number of nodes whose loss is computed here, n."""
        return self.sequence.own

    def initial_state(self) -> State:
        """Return the state before the segment, for every row of its views."""
        return self.model.initial_state(self.sequence.view(self.snapshots[0]).num_rows)

    def layer_state(self, layer: int, rows: int) -> State:
        """Return the state before the segment for the rows that a layer runs through time; only this layer counts."""
        return self.model.initial_state(rows)

    def through_time(self, layer: int, x: Tensor, state: State, rows: slice) -> tuple[Tensor, State]:
        """Run a layer's temporal part: (S, n, C) -> (S, n, H) and the state after it; ``rows`` are its nodes."""
        return self.model.temporal_sequence(layer, x, state)

    def loss(self, z: Tensor, snapshots: range, rows: Rows) -> Tensor:
        """Return the contribution of some nodes and snapshots to the loss, a scalar.

        A task that is not ``per_vertex`` gets all nodes, joined from all ranks, in the snapshots of this rank's turn.

        Args:
            z: readout of the nodes, (S', n, outputs).
            snapshots: S' loss snapshots.
            rows: indices among the own nodes; all of them if the task is not ``per_vertex``.
        """
        if self.task.per_vertex:
            vertices = self.sequence.vertices
            losses = self.task.loss(z, snapshots, rows if vertices is None else vertices[rows])
        else:
            losses = self._joint_losses(z, snapshots)
        if self.labelled_shares:
            shares = [
                self.labelled_shares.get(t, 1.0) or 1.0 for t in snapshots
            ]  # if no labelled item is kept, the loss is 0
            losses = losses / upload(torch.tensor(shares, dtype=losses.dtype), self.sequence.device)
        return losses.sum() / max(self.num_labelled, 1)

    def snapshot(self, t: int, state: State) -> tuple[Tensor, State]:
        """Run a snapshot through all layers; return the hidden rows of its view's nodes, and the state after it."""
        view = self.sequence.view(t)
        return self.model.snapshot(view, view.inputs, state)

    def loss_of(self, t: int, h: Tensor) -> Tensor | None:
        """Return a snapshot's share of the loss, from its hidden rows; None if it is no loss snapshot."""
        if t not in self.at:
            return None
        return self.loss(self.model.readout(h[: self.own]).unsqueeze(0), range(t, t + 1), slice(0, self.own))

    def _joint_losses(self, z: Tensor, snapshots: range) -> Tensor:
        joined = self.sequence.join(z)
        all_nodes = slice(0, joined.shape[1])
        losses = [
            self.task.loss(joined[index : index + 1], range(t, t + 1), all_nodes).sum()
            for index, t in enumerate(snapshots)
            if self.sequence.has_turn(t)
        ]
        # every rank must take part in backward, also without a turn
        return torch.stack(losses) if losses else joined.sum() * 0
