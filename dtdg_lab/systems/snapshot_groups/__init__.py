"""DyGNeX, PSG and BLAD: groups of snapshots, scheduled over ranks."""

from __future__ import annotations

from dtdg_lab.systems.base import SystemFamily


class SnapshotGroupsFamily(SystemFamily):
    """DyGNeX, PSG and BLAD: groups of snapshots, scheduled over ranks."""

    name = "snapshot_groups"


FAMILY = SnapshotGroupsFamily()
