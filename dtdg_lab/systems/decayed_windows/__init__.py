"""FlareDTDG and DynaGraph: windows of full and decayed or sampled snapshots over node partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.widgets.run_page import PageContext, RunPage


class DecayedWindowsFamily(SystemFamily):
    """FlareDTDG and DynaGraph: windows of full and decayed or sampled snapshots over node partitions."""

    name = "decayed_windows"

    def page(self, context: PageContext) -> RunPage:
        """The page of its windows."""
        from dtdg_lab.systems.decayed_windows.page import DecayedWindowPage

        return DecayedWindowPage(context)


FAMILY = DecayedWindowsFamily()
