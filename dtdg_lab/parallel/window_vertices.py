"""A rank's own vertices as a run over a window sees them: in the order in which it computes them."""

from __future__ import annotations

from torch import Tensor

from dtdg_lab.parallel.device_sequence import DeviceSequence
from dtdg_lab.parallel.halo_sequence import HaloSequence
from dtdg_lab.parallel.space import SnapshotSpace


class WindowVertices:
    """The sequence (see :class:`dtdg_lab.parallel.sequence.Sequence`) of a run whose spaces are made by its layout.

    Args:
        of: has full snapshots.
        vertices: (n,) numbers of the own vertices, in the run's order; None where they are all, in order.
    """

    def __init__(self, of: DeviceSequence | HaloSequence, vertices: Tensor | None) -> None:
        self._of, self.vertices = of, vertices
        self.device, self.dtype, self.own, self.collective = of.device, of.dtype, of.own, of.collective

    def space(self, t: int) -> SnapshotSpace:
        """A full snapshot."""
        return self._of.space(t)

    def stacks(self, snapshots: range, layer: int = 0) -> list[SnapshotSpace]:
        """Full snapshots."""
        return self._of.stacks(snapshots, layer)

    def any_rank(self, flag: bool) -> bool:
        """As the sequence says."""
        return self._of.any_rank(flag)

    def join(self, z: Tensor) -> Tensor:
        """All vertices' rows, of own rows by number."""
        return self._of.join(z)

    def has_turn(self, t: int) -> bool:
        """As the sequence says."""
        return self._of.has_turn(t)
