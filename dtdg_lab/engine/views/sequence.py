"""Interface of training sequences: the rows of some nodes, and views with their neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.engine.views.snapshot_view import SnapshotView
from dtdg_lab.kernels.operators import OperatorSettings


class SnapshotSequence:
    """Snapshots as views, for the nodes that this rank (or one part) trains.

    This base class exchanges nothing between ranks.

    Attributes:
        device: device of tensors.
        dtype: type of features and products.
        settings: settings of the operators, with the limits of what is kept.
        own: number of nodes whose loss is computed here, n. They are the first rows of every view.
        vertices: (n,) their numbers in the graph; None for all N in order.
        host_vertices: the same numbers on the CPU, for sequences of batches.
        collective: whether views exchange rows with other ranks when a model pulls, forward and backward. All ranks
            must then make the same calls in the same order, one at a time.
        where: name of the sequence in the message of :meth:`join`; empty if all nodes are here.
        instead: system that serves losses of all nodes at once, for the message.
    """

    device: str
    dtype: torch.dtype
    settings: OperatorSettings
    own: int
    vertices: Tensor | None
    host_vertices: Tensor | None = None
    collective: bool = False
    where: ClassVar[str] = ""
    instead: ClassVar[str] = "system='adgnn-t' (halo_vertex)"

    def view(self, t: int) -> SnapshotView:
        """Return snapshot t for all layers of the model."""
        raise NotImplementedError

    def stacks(self, snapshots: range, layer: int) -> Sequence[SnapshotView]:
        """Return views of consecutive snapshots for one layer, some stacked; all layers stack alike.

        A layer's view may have fewer rows than the previous layer's. Its input is then the first rows of each snapshot
        of the previous output. The first ``own`` rows of the last layer's output count.
        """
        raise NotImplementedError

    def any_rank(self, flag: bool) -> bool:
        """Return whether the flag is set on any rank; collective if the sequence is."""
        return flag

    def join(self, z: Tensor) -> Tensor:
        """Join the rows of all N nodes, in order, from every rank: (S, n, F) -> (S, N, F); differentiable.

        Collective if the sequence is.

        Raises:
            UnsupportedError: the sequence has only some nodes and exchanges no rows.
        """
        if self.where:
            raise UnsupportedError(
                f"a loss that needs all nodes at once is not possible on {self.where}. Choose {self.instead}, or "
                "another task."
            )
        return z

    def has_turn(self, t: int) -> bool:
        """Return whether this rank computes losses that need all nodes of snapshot t; True on exactly one rank."""
        return True


class NumberedSequence(SnapshotSequence):
    """A sequence with other loss nodes, in the given order.

    Args:
        sequence: sequence whose snapshots are computed.
        vertices: (n,) numbers of the nodes; None for the own nodes of the sequence, in order.
    """

    def __init__(self, sequence: SnapshotSequence, vertices: Tensor | None) -> None:
        self._sequence, self.vertices = sequence, vertices
        self.device, self.dtype, self.collective = sequence.device, sequence.dtype, sequence.collective
        self.settings = sequence.settings
        self.own = sequence.own if vertices is None else len(vertices)

    def view(self, t: int) -> SnapshotView:
        """Return the view of the underlying sequence."""
        return self._sequence.view(t)

    def stacks(self, snapshots: range, layer: int) -> Sequence[SnapshotView]:
        """Return the stacks of the underlying sequence."""
        return self._sequence.stacks(snapshots, layer)

    def any_rank(self, flag: bool) -> bool:
        """Return the answer of the underlying sequence."""
        return self._sequence.any_rank(flag)

    def join(self, z: Tensor) -> Tensor:
        """Join rows by the underlying sequence."""
        return self._sequence.join(z)

    def has_turn(self, t: int) -> bool:
        """Return the answer of the underlying sequence."""
        return self._sequence.has_turn(t)
