"""Features that parts ask each other for: knobs of cache, links and power, and what caches and links are now."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import panel as pn

from dtdg_lab.core import catalogue
from dtdg_lab.dash.changes import ACTIVE
from dtdg_lab.dash.link_editor import LinkEditor
from dtdg_lab.dash.live import WholeCharts
from dtdg_lab.dash.live_knobs import LiveKnobs
from dtdg_lab.dash.opened import OpenedPage
from dtdg_lab.views.fetched_features import Panel
from dtdg_lab.views.layout import Figure
from dtdg_lab.views.theme import coloured

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run

CACHE = ("cache_policy", "cache_window", "cache_bias")
LINKS = ("congestion", "congestion_ms", "congestion_mbit")
POWER = ("power_idle_w", "power_max_w", "power_gpu_idle_w", "power_gpu_max_w")
_WORDS = {"font-size": "13px", "color": coloured("text")}


class FeaturePage:
    """The features of a run: what decides when its caches are rebuilt, how slow links are made, and what comes of it.

    Args:
        defer: has a call made by the event loop.
        apply: asks the run for live changes.
    """

    def __init__(
        self, defer: Callable[[Callable[[], None]], None], apply: Callable[[dict[str, Any]], None]
    ) -> None:  # fmt: skip
        self._run: Run | None = None
        self._version = -1
        self._panels: dict[str, Panel] = {}
        stretch = {"sizing_mode": "stretch_width", "margin": 0}
        self.charts = WholeCharts(self.figures, self.sentences, defer=defer, chart_height=330, **stretch)
        self._opened = OpenedPage(self.charts)
        # StaticText and not panes: see dash.app
        self.words = pn.widgets.StaticText(value="", margin=(4, 10), styles=_WORDS, sizing_mode="stretch_width")
        self.cache, self.links, self.power = (LiveKnobs(names, apply) for names in (CACHE, LINKS, POWER))
        self.editor = LinkEditor(defer, apply)
        self.panel = pn.Column(
            self.words, self.cache.panel, self.links.panel, self.editor.panel, self._opened.panel, self.power.panel,
            **stretch,
        )  # fmt: skip
        self.follow(None)

    def follow(self, run: Run | None) -> None:
        """Show another run."""
        self._run, self._version, self._panels = run, -1, {}
        for part in (self.cache, self.links, self.editor):
            part.follow(run)
        self.power.follow(run if _has_knobs(run) else None)
        self._say("")
        self.charts.redraw()

    def open(self) -> None:
        """Put the charts on the page; called again and again while its tab is open."""
        self._opened.open()

    def update(self) -> None:
        """Draw again what changed; whole figures, so at most once a second."""
        run = self._run
        for part in (self.cache, self.links, self.editor):
            part.update(run)
        self.power.update(run if _has_knobs(run) else None)
        if run is None or run.version == self._version:
            return
        with run.lock:
            self._version = run.version
            view, energy = run.window.features, run.window.phase_energy
            self._panels, words = view.named_panels(), view.sentence()
            if self._panels and energy.joules():
                self._panels["energy"] = (energy.figure(), energy.sentence())
        self._say(words)
        self.charts.redraw()

    def _say(self, words: str) -> None:
        self.words.value = html.escape(words or _nothing(self._run), quote=False)

    def figures(self) -> dict[str, Figure]:
        """The panels by name: a chart that becomes another kind of picture would be drawn wrongly."""
        return {f"features-{name}": figure for name, (figure, _) in self._panels.items()}

    def sentences(self) -> dict[str, str]:
        """What to look for in each panel."""
        return {f"features-{name}": words for name, (_, words) in self._panels.items()}


def _has_knobs(run: Run | None) -> bool:
    """Whether a run has caches or links that can be changed: else constants of power belong elsewhere."""
    return run is not None and any(name in run.config.flat for name in (*CACHE, *LINKS))


def _nothing(run: Run | None) -> str:
    """Why no features are fetched, and what to do for some."""
    named = [name for name in catalogue.names("systems") if _fetches(name)]
    do = f"Systems whose parts ask each other for features: {', '.join(named)}."
    if run is None:
        return f"No run yet. {do}"
    if run.status in ACTIVE and run.config.system in named:
        return "The run has not told its features yet."
    slow = " Its links can be made slow here all the same." if "links" in run.config.flat else ""
    return f"This run fetches no features.{slow} {do}"


def _fetches(system: str) -> bool:
    return catalogue.system(system).parts["parallel"] == "remote_feature"
