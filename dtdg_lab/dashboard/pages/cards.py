"""System cards in the dashboard: one system at a time, with live charts instead of static ones."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import panel as pn

from dtdg_lab.cards.card import MOST, PAPERS, TEXTS, Card, run_cards
from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import LabError
from dtdg_lab.visualization.chart import CaptionedFigure, Chart
from dtdg_lab.visualization.palette import coloured
from dtdg_lab.widgets.chart_cards import PanelCharts
from dtdg_lab.widgets.controls import tipped
from dtdg_lab.widgets.run_page import STRETCH, Page, text_line

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run


_WORDS = {"font-size": "13px", "color": coloured("soft")}
_CARD = {"color": coloured("text"), "overflow-x": "auto", "max-width": "100%"}
# full width: lines of code scroll, and text is not cut off
_AS_WIDE = ".bk-clearfix { display: block !important; }"


class _CardResult(NamedTuple):
    """The thread's result for a system."""

    system: str
    html: str
    panels: list[CaptionedFigure]
    note: str


class CardPage(Page):
    """A choice of systems by paper, the charts of the chosen system, and its card below them.

    A thread makes the cards. If the run on display has the chosen system, the card shows that run's charts.
    ``defer(call)`` lets the event loop make a call.
    """

    title = "Papers"
    needs_settings = False

    def __init__(self, defer: Callable[[Callable[[], None]], None]) -> None:
        super().__init__()
        self._defer = defer
        self._run: Run | None = None
        self._version = -1
        self._asked = ""
        self._result: _CardResult | None = None
        self._of_run: dict[Chart, CaptionedFigure] = {}
        self._maker = self.in_background(self._make, "paper-cards")
        self.system = pn.widgets.Select(label="System", groups=_by_paper(), width=260, margin=(3, 8))
        self.system.stylesheets = [tipped("System whose card is shown. The run does not change.")]
        self.system.param.watch(lambda event: defer(self._ask), "value")
        self.words = text_line(margin=(2, 10), styles=_WORDS)
        # its formulas are TeX, which Bokeh's MathJax renders
        self.card = text_line(styles=_CARD, stylesheets=[_AS_WIDE])
        self.charts = PanelCharts("card", defer=defer, chart_height=320, **STRETCH)
        self.panel = pn.Column(self.system, self.words, self.place(self.charts), self.card, **STRETCH)

    def follow(self, run: Run | None) -> None:
        """Show another run's charts on the card of its system, which becomes the chosen one."""
        self._run, self._version, self._of_run = run, -1, {}
        if run is not None and run.config.system in TEXTS:
            self.system.value = run.config.system
        self._draw()

    def open(self) -> None:
        """Show the card and its charts."""
        if not self._asked:
            self._ask()
        super().open()

    def update(self, runs: Sequence[Run] = (), *, slow: bool) -> None:
        """Draw what the run has recorded since the last call, once per second."""
        run = self._run
        if not slow or run is None or run.version == self._version:
            return
        with run.lock:
            self._version = run.version
            same = run.config.system == self.system.value
            try:
                self._of_run = _first(run_cards(catalogue.system(self.system.value), run)) if same else {}
            except LabError:  # the run has recorded nothing yet, so the small graph's charts stay
                self._of_run = {}
        self._draw()

    @property
    def _name(self) -> str:
        """Name of the system and its kind of charts: a run's and the small graph's charts need different names."""
        return f"{self.system.value}-{'run' if self._of_run else 'small'}"

    @property
    def _panels(self) -> list[CaptionedFigure]:
        if self._of_run:
            return list(self._of_run.values())
        return self._result.panels if self._result and self._result.system == self.system.value else []

    def _ask(self) -> None:
        """Request the chosen card, unless it was already requested."""
        name = self.system.value
        if name != self._asked:
            self._asked, self._version, self._of_run = name, -1, {}
            self._show_text(f"{name}: drawing …")
            self._maker.ask(name)

    def _make(self, name: str) -> None:
        """Make a card in the thread; never raises."""
        try:
            card = Card(name)
            panels = card.pictures
            result = _CardResult(name, card.html(root=None), panels, card.note)
        except (LabError, OSError, ValueError) as error:
            result = _CardResult(name, "", [], f"The card of {name} could not be made: {error}")
        self._defer(lambda: self._take_result(result))

    def _take_result(self, result: _CardResult) -> None:
        if result.system == self._asked:
            self._result = result
            self.card.value = result.html
            self._draw()

    def _draw(self) -> None:
        if self._of_run and self._run is not None:
            self._show_text(f"Charts of run {self._run.id}.")
        elif self._result and self._result.system == self.system.value:
            self._show_text(self._result.note)
        wide = [f"{self._name}-{index}" for index, chart in enumerate(self._of_run) if chart.section == "picture"]
        self.charts.draw({f"{self._name}-{index}": panel for index, panel in enumerate(self._panels)}, wide)

    def _show_text(self, text: str) -> None:
        self.words.value = html.escape(text, quote=False)


def _first(cards: Mapping[Chart, CaptionedFigure]) -> dict[Chart, CaptionedFigure]:
    """Return the main pictures, which are as wide as the page, and the first few of the other charts."""
    pictures = {chart: panel for chart, panel in cards.items() if chart.section == "picture"}
    other_charts = [chart for chart in cards if chart not in pictures]
    return pictures | {chart: cards[chart] for chart in other_charts[:MOST]}


def _by_paper() -> dict[str, dict[str, str]]:
    """Return the systems by paper, for a menu."""
    return {
        paper["name"]: {name: name for name, text in TEXTS.items() if text.paper is paper} for paper in PAPERS.values()
    }
