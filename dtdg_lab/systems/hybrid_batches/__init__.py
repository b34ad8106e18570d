"""DynaHB: hybrid batches of some nodes in some snapshots, and policies that choose their size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.widgets.run_page import PageContext, RunPage


class HybridBatchesFamily(SystemFamily):
    """DynaHB: hybrid batches of some nodes in some snapshots, and policies that choose their size."""

    name = "hybrid_batches"

    def page(self, context: PageContext) -> RunPage:
        """The page of its batches."""
        from dtdg_lab.systems.hybrid_batches.page import BatchPage

        return BatchPage(context)


FAMILY = HybridBatchesFamily()
