"""Page Blocks: owners over time, bytes sent and hidden, memory held, data transferred."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdg_lab.widgets.run_page import PageContext, Panel, RunPage

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run


class BlockPage(RunPage):
    """The charts of a run's blocks of time."""

    title, family = "Blocks", "snapshot_blocks"
    data = "block"

    def __init__(self, context: PageContext) -> None:
        super().__init__(context)
        self.lay_out(self.charts)

    def read(self, run: Run) -> tuple[dict[str, Panel], str]:
        """The charts of its blocks."""
        view = run.live.view("blocks")
        return view.named_panels(), view.caption()
