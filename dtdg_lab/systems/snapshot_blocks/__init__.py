"""ESDG: snapshots over ranks in blocks of time, redistributed to nodes for the recurrent layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.widgets.run_page import PageContext, RunPage


class SnapshotBlocksFamily(SystemFamily):
    """ESDG: snapshots over ranks in blocks of time, redistributed to nodes for the recurrent layer."""

    name = "snapshot_blocks"

    def page(self, context: PageContext) -> RunPage:
        """The page of its blocks of time."""
        from dtdg_lab.systems.snapshot_blocks.page import BlockPage

        return BlockPage(context)


FAMILY = SnapshotBlocksFamily()
