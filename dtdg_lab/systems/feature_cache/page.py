"""Page Features: what caches and links do, with boxes for the delay and rate of each link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dtdg_lab.widgets.links import LinkEditor
from dtdg_lab.widgets.run_page import PageContext, Panel, RunPage

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run
    from dtdg_lab.core.config import RunConfig


class FeaturePage(RunPage):
    """Fetched features: when caches are rebuilt, how links are slowed down, and the effect of both."""

    title, family = "Features", "feature_cache"
    data = "feature"

    def __init__(self, context: PageContext) -> None:
        super().__init__(context)
        self.editor = LinkEditor(context.defer, context.apply)
        self.lay_out(self.editor.panel, self.charts)

    def serves(self, config: RunConfig) -> bool:
        """Its own systems, and others whose links can be slowed down one by one."""
        return super().serves(config) or "links" in config.flat

    def follow(self, run: Run | None) -> None:
        """Show another run."""
        super().follow(run)
        self.editor.follow(run)

    def update(self, runs: Sequence[Run] = (), *, slow: bool) -> None:
        """Show links and charts as they are, once a second."""
        if slow:
            self.editor.update(self._run)
            super().update(runs, slow=slow)

    def read(self, run: Run) -> tuple[dict[str, Panel], str]:
        """The charts of features and links, and energy by phase."""
        view, energy = run.live.view("features"), run.live.view("phase_energy")
        panels = view.named_panels()
        if panels and energy.joules():
            panels["energy"] = (energy.figure(), energy.caption())
        return panels, view.caption()
