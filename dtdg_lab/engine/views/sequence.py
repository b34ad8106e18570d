"""What the engine asks of a training sequence: some nodes' rows, and views that have their neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.engine.views.snapshot_view import SnapshotView


class SnapshotSequence:
    """Snapshots as spaces, for the nodes that this rank (or one part) trains.

    This base exchanges nothing: each rank computes by itself.

    Attributes:
        device: where tensors live.
        dtype: of features and products.
        own: n, the nodes whose loss is computed here. They are the first rows of every space.
        vertices: (n,) their numbers in the graph; None where they are all N, in order.
        collective: whether spaces exchange rows with other ranks while a model pulls, in forward and in backward. Then
            every rank must ask the same of its sequence in the same order, one thing after another.
        where: what holds some of the nodes alone, for a message; empty where all are here.
        instead: the system that serves losses of all nodes at once.
    """

    device: str
    dtype: torch.dtype
    own: int
    vertices: Tensor | None
    collective: bool = False
    where: ClassVar[str] = ""
    instead: ClassVar[str] = "system='adgnn-t' (halo_vertex)"

    def view(self, t: int) -> SnapshotView:
        """Snapshot t for all layers of the model."""
        raise NotImplementedError

    def stacks(self, snapshots: range, layer: int) -> Sequence[SnapshotView]:
        """Consecutive snapshots for one layer of the model, some stacked; every layer stacks the same ones.

        A layer's space may have fewer rows than the space of the layer before it: of the earlier layer's output the
        first rows of each snapshot are then its input. After the last layer the first ``own`` rows count.
        """
        raise NotImplementedError

    def any_rank(self, flag: bool) -> bool:
        """Return whether the flag is set on any rank that takes part; collective where the sequence is."""
        return flag

    def join(self, z: Tensor) -> Tensor:
        """Rows of all N nodes of the graph, in order, from every rank's own: (S, n, F) -> (S, N, F); differentiable.

        Collective where the sequence is.

        Raises:
            UnsupportedError: other nodes' rows are not computed here, and no rows are exchanged.
        """
        if self.where:
            raise UnsupportedError(
                f"a loss that needs all nodes at once, on {self.where}. Choose {self.instead}, or another task."
            )
        return z

    def has_turn(self, t: int) -> bool:
        """Return whether what needs all nodes of snapshot t at once is computed here; true on one rank."""
        return True


class NumberedSequence(SnapshotSequence):
    """Another sequence whose loss is taken over these nodes, in this order.

    Args:
        of: whose snapshots are computed.
        vertices: (n,) numbers of the nodes; None for the own nodes of the sequence, in order.
    """

    def __init__(self, sequence: SnapshotSequence, vertices: Tensor | None) -> None:
        self._of, self.vertices = sequence, vertices
        self.device, self.dtype, self.collective = sequence.device, sequence.dtype, sequence.collective
        self.own = sequence.own if vertices is None else len(vertices)

    def view(self, t: int) -> SnapshotView:
        """Return the view of the other sequence."""
        return self._of.view(t)

    def stacks(self, snapshots: range, layer: int) -> Sequence[SnapshotView]:
        """Return the stacks of the other sequence."""
        return self._of.stacks(snapshots, layer)

    def any_rank(self, flag: bool) -> bool:
        """Return the answer of the other sequence."""
        return self._of.any_rank(flag)

    def join(self, z: Tensor) -> Tensor:
        """Join rows by the other sequence."""
        return self._of.join(z)

    def has_turn(self, t: int) -> bool:
        """Return the answer of the other sequence."""
        return self._of.has_turn(t)
