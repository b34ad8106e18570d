"""ESDG: snapshots over ranks in blocks of time, redistributed to nodes for the recurrent layer."""

from __future__ import annotations

from dtdg_lab.systems.base import SystemFamily


class SnapshotBlocksFamily(SystemFamily):
    """ESDG: snapshots over ranks in blocks of time, redistributed to nodes for the recurrent layer."""

    name = "snapshot_blocks"


FAMILY = SnapshotBlocksFamily()
