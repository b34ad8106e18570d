"""Blocks of time of a run: who owns what when, what ranks send and hide, what is held, what is brought."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import TYPE_CHECKING

import panel as pn

from dtdg_lab.core import catalogue
from dtdg_lab.dash.changes import ACTIVE
from dtdg_lab.dash.live import WholeCharts
from dtdg_lab.dash.opened import OpenedPage
from dtdg_lab.views.blocks import Panel
from dtdg_lab.views.layout import Figure
from dtdg_lab.views.theme import coloured

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run

_WORDS = {"font-size": "13px", "color": coloured("text")}


class BlockPage:
    """The panels of a run's blocks, with what they are in words; brought up to date while the page is open.

    ``defer(call)`` has a call made by the event loop.
    """

    def __init__(self, defer: Callable[[Callable[[], None]], None]) -> None:
        self._run: Run | None = None
        self._version = -1
        self._panels: dict[str, Panel] = {}
        stretch = {"sizing_mode": "stretch_width", "margin": 0}
        self.charts = WholeCharts(self.figures, self.sentences, defer=defer, chart_height=330, **stretch)
        self._opened = OpenedPage(self.charts)
        # StaticText and not panes: see dash.app
        self.words = pn.widgets.StaticText(value="", margin=(4, 10), styles=_WORDS, sizing_mode="stretch_width")
        self.panel = pn.Column(self.words, self._opened.panel, **stretch)
        self.follow(None)

    def follow(self, run: Run | None) -> None:
        """Show another run."""
        self._run, self._version, self._panels = run, -1, {}
        self._say("")
        self.charts.redraw()

    def open(self) -> None:
        """Put the charts on the page; called again and again while its tab is open."""
        self._opened.open()

    def update(self) -> None:
        """Draw again what changed; whole figures, so at most once a second."""
        run = self._run
        if run is None or run.version == self._version:
            return
        with run.lock:
            self._version = run.version
            view = run.window.blocks
            self._panels, words = view.named_panels(), view.sentence()
        self._say(words)
        self.charts.redraw()

    def _say(self, words: str) -> None:
        self.words.value = html.escape(words or _nothing(self._run), quote=False)

    def figures(self) -> dict[str, Figure]:
        """The panels by name: a chart that becomes another kind of picture would be drawn wrongly."""
        return {f"blocks-{name}": figure for name, (figure, _) in self._panels.items()}

    def sentences(self) -> dict[str, str]:
        """What to look for in each panel."""
        return {f"blocks-{name}": words for name, (_, words) in self._panels.items()}


def _nothing(run: Run | None) -> str:
    """Why there are no blocks, and what to do for some."""
    named = [name for name in catalogue.names("systems") if _has_blocks(name)]
    do = f"Systems that compute a sequence in blocks of time: {', '.join(named)}."
    if run is None:
        return f"No run yet. {do}"
    if run.status in ACTIVE and run.config.system in named:
        return "The run has not told its blocks yet."
    return f"This run has no blocks of time. {do}"


def _has_blocks(system: str) -> bool:
    return "blocks" in catalogue.entry("parallel", catalogue.system(system).parts["parallel"]).options
