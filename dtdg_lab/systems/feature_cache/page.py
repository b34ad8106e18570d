"""Page Features: what caches and links do, with the live settings of cache, links and power."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dtdg_lab.widgets.controls import LinkEditor, LiveWidgets
from dtdg_lab.widgets.run_page import PageContext, Panel, RunPage

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run


CACHE = ("cache_policy", "cache_window", "cache_bias")
LINKS = ("congestion", "congestion_ms", "congestion_mbit")
POWER = ("power_idle_w", "power_max_w", "power_gpu_idle_w", "power_gpu_max_w")


class FeaturePage(RunPage):
    """Fetched features: when caches are rebuilt, how links are slowed down, and the effect of both."""

    title, family = "Features", "feature_cache"
    data, subject = "feature", "remote features"

    def __init__(self, context: PageContext) -> None:
        super().__init__(context)
        self.cache, self.links, self.power = (LiveWidgets(names, context.apply) for names in (CACHE, LINKS, POWER))
        self.editor = LinkEditor(context.defer, context.apply)
        self.lay_out(self.cache.panel, self.links.panel, self.editor.panel, self.charts, self.power.panel)

    def follow(self, run: Run | None) -> None:
        """Show another run."""
        super().follow(run)
        for part in (self.cache, self.links, self.editor):
            part.follow(run)
        self.power.follow(run if _is_steered(run) else None)

    def update(self, runs: Sequence[Run] = (), *, slow: bool) -> None:
        """Show settings and charts as they are, once a second."""
        if not slow:
            return
        for part in (self.cache, self.links, self.editor):
            part.update(self._run)
        self.power.update(self._run if _is_steered(self._run) else None)
        super().update(runs, slow=slow)

    def read(self, run: Run) -> tuple[dict[str, Panel], str]:
        """The charts of features and links, and energy by phase."""
        view, energy = run.live.view("features"), run.live.view("phase_energy")
        panels = view.named_panels()
        if panels and energy.joules():
            panels["energy"] = (energy.figure(), energy.caption())
        return panels, view.caption()

    def nothing(self) -> str:
        """As of other pages, with the links that a run without remote features may have."""
        run = self._run
        if run is None or run.config.system in self.systems() or "links" not in run.config.flat:
            return super().nothing()
        return f"{super().nothing()} Its links can still be slowed down here."


def _is_steered(run: Run | None) -> bool:
    """Whether a run has caches or links to be set: only then are the constants of power shown beside them."""
    return run is not None and any(name in run.config.flat for name in (*CACHE, *LINKS))
