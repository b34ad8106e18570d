"""Hybrid batches of a run: the batch in training beside those it replaces, reservoir, adjuster, and averaging."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import panel as pn

from dtdg_lab.core import catalogue
from dtdg_lab.dash.changes import ACTIVE
from dtdg_lab.dash.live import WholeCharts
from dtdg_lab.dash.live_knobs import LiveKnobs
from dtdg_lab.dash.opened import OpenedPage
from dtdg_lab.views.adjuster_verdict import adjuster_verdict
from dtdg_lab.views.hybrid import Panel
from dtdg_lab.views.layout import Figure
from dtdg_lab.views.theme import coloured

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run

KNOBS = ("batch_snapshots", "batch_vertices", "adjuster", "reservoir", "average_every_s")
JUDGED = 40  # newest runs of the session among which adjusters and fixed sizes are compared
_WORDS = {"font-size": "13px", "color": coloured("text")}


class BatchPage:
    """The map of vertices and snapshots that a step takes, live, and the charts of what makes and chooses batches.

    ``defer(call)`` has a call made by the event loop, ``apply(changes)`` asks the run for live changes.
    """

    def __init__(
        self, defer: Callable[[Callable[[], None]], None], apply: Callable[[dict[str, Any]], None]
    ) -> None:  # fmt: skip
        self._run: Run | None = None
        self._version = self._mapped = -1
        self._map: Panel | None = None
        self._panels: dict[str, Panel] = {}
        self._judged: tuple[Any, ...] = ()
        stretch = {"sizing_mode": "stretch_width", "margin": 0}
        self.map = WholeCharts(self.map_figures, self.map_sentences, defer=defer, chart_height=380, **stretch)
        self.charts = WholeCharts(self.figures, self.sentences, defer=defer, chart_height=330, **stretch)
        self._opened = [OpenedPage(self.map), OpenedPage(self.charts)]
        # StaticText and not panes: see dash.app
        self.words = pn.widgets.StaticText(value="", margin=(4, 10), styles=_WORDS, sizing_mode="stretch_width")
        self.verdict = pn.widgets.StaticText(
            value="", visible=False, margin=(2, 10), styles={**_WORDS, "font-weight": "bold"},
            sizing_mode="stretch_width",
        )  # fmt: skip
        self.knobs = LiveKnobs(KNOBS, apply)
        self.panel = pn.Column(
            self.words, self.verdict, self.knobs.panel, *(page.panel for page in self._opened), **stretch
        )
        self.follow(None)

    def follow(self, run: Run | None) -> None:
        """Show another run."""
        self._run, self._version, self._mapped = run, -1, -1
        self._map, self._panels = None, {}
        self.knobs.follow(run)
        self._say("")
        self.map.redraw()
        self.charts.redraw()

    def open(self) -> None:
        """Put the charts on the page; called again and again while its tab is open."""
        for page in self._opened:
            page.open()

    def update(self, runs: Sequence[Run] = (), *, slow: bool) -> None:
        """Draw the batch now in training; once a second, where ``slow``, all that changed.

        Args:
            runs: of the session, oldest first: adjusters are compared with fixed sizes among the newest of them.
            slow: whether a second has passed.
        """
        run = self._run
        if run is not None and run.version != self._mapped:
            with run.lock:
                self._mapped = run.version
                self._map = run.window.hybrid.map()
            self.map.redraw()
        if run is not None and slow and run.version != self._version:
            with run.lock:
                self._version = run.version
                view = run.window.hybrid
                self._panels, words = view.named_panels(), view.sentence()
            self._panels.pop("map", None)
            self._say(words)
            self.charts.redraw()
        if slow:
            self.knobs.update(run)
            self._judge(list(runs)[-JUDGED:])

    def _judge(self, runs: list[Run]) -> None:
        """Say how adjusters stand against the best fixed size among the session's runs, where both are there."""
        judged = tuple((run.id, len(run.window.loss.splits["validation"])) for run in runs)
        if judged == self._judged:
            return
        self._judged = judged
        with ExitStack() as locks:
            for lock in dict.fromkeys(run.lock for run in runs):
                locks.enter_context(lock)
            verdict = adjuster_verdict([(run.id, run.window) for run in runs])
        self.verdict.param.update(value=html.escape(verdict, quote=False), visible=bool(verdict))

    def _say(self, words: str) -> None:
        self.words.value = html.escape(words or _nothing(self._run), quote=False)

    def map_figures(self) -> dict[str, Figure]:
        """The batch now in training; nothing where the run has none."""
        return {} if self._map is None else {"batches-map": self._map[0]}

    def map_sentences(self) -> dict[str, str]:
        """How many targets it has."""
        return {} if self._map is None else {"batches-map": self._map[1]}

    def figures(self) -> dict[str, Figure]:
        """The other charts by name: one that becomes another kind of picture would be drawn wrongly."""
        return {f"batches-{name}": figure for name, (figure, _) in self._panels.items()}

    def sentences(self) -> dict[str, str]:
        """What to look for in each."""
        return {f"batches-{name}": words for name, (_, words) in self._panels.items()}


def _nothing(run: Run | None) -> str:
    """Why there are no hybrid batches, and what to do for some."""
    named = [name for name in catalogue.names("systems") if _has_batches(name)]
    do = f"Systems whose steps take some vertices in some snapshots: {', '.join(named)}."
    if run is None:
        return f"No run yet. {do}"
    if run.status in ACTIVE and run.config.system in named:
        return "The run has not told its batches yet."
    return f"This run has no hybrid batches. {do}"


def _has_batches(system: str) -> bool:
    return catalogue.system(system).parts.get("batching") == "hybrid"
