"""DyGNeX, PSG and BLAD: groups of snapshots, scheduled over ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.widgets.run_page import PageContext, RunPage


class SnapshotGroupsFamily(SystemFamily):
    """DyGNeX, PSG and BLAD: groups of snapshots, scheduled over ranks."""

    name = "snapshot_groups"

    def page(self, context: PageContext) -> RunPage:
        """The page of its schedule and group times."""
        from dtdg_lab.systems.snapshot_groups.page import SchedulePage

        return SchedulePage(context)


FAMILY = SnapshotGroupsFamily()
