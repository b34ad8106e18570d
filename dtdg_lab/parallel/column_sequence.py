"""A rank's vertices that run through time, beside its snapshots: what the loss of the snapshot layout is taken over."""

from __future__ import annotations

from collections import abc

import torch
from torch import Tensor

from dtdg_lab.parallel.sequence import Sequence, StackedSpace


class ColumnSequence:
    """A rank's snapshots as it has them, and a chunk of their vertices (see ``parallel.sequence``).

    Args:
        snapshots: spaces of the rank's rows.
        vertices: (m,) the chunk's numbers in the graph.
    """

    def __init__(self, snapshots: Sequence, vertices: range) -> None:
        self._snapshots = snapshots
        self.device, self.dtype, self.collective = snapshots.device, snapshots.dtype, snapshots.collective
        self.own = len(vertices)
        self.vertices: Tensor | None = torch.arange(vertices.start, vertices.stop, device=snapshots.device)

    def space(self, t: int) -> StackedSpace:
        """Snapshot t, its rows here."""
        return self._snapshots.space(t)

    def stacks(self, snapshots: range, layer: int) -> abc.Sequence[StackedSpace]:
        """Consecutive snapshots, their rows here."""
        return self._snapshots.stacks(snapshots, layer)

    def any_rank(self, flag: bool) -> bool:
        """Whether any rank that shares the snapshots says so."""
        return self._snapshots.any_rank(flag)

    def join(self, z: Tensor) -> Tensor:
        """Rows of own snapshots with those of the ranks that share them."""
        return self._snapshots.join(z)

    def has_turn(self, t: int) -> bool:
        """Whether this rank, of those that share the snapshot, computes what needs all of its vertices."""
        return self._snapshots.has_turn(t)
