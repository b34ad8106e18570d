"""Windows of full and decayed snapshots: what is in the batch now, and what another shape would need if it were set."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import panel as pn

from dtdg_lab.core import catalogue
from dtdg_lab.core.options import option
from dtdg_lab.dashboard.actions import ACTIVE
from dtdg_lab.dashboard.live import OpenedPage, WholeCharts
from dtdg_lab.dashboard.settings import make_control
from dtdg_lab.systems.decayed_windows.charts import (
    Batch,
    Panel,
    Shape,
    TrapezoidFacts,
    proposal_words,
    shape_figure,
    shape_words,
    snapped,
)
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.style import coloured

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run


KNOBS = ("full_snapshots", "alpha", "decay")
_WORDS = {"font-size": "13px", "color": coloured("text")}


class TrapezoidPage:
    """The batch with handles and sliders for another shape, and the charts of a run's windows.

    A shape that is chosen here is drawn over the batch, with the rows and bytes it is predicted to need; nothing is
    changed before it is applied.

    Args:
        defer: has a call made by the event loop.
        apply: asks the run for settings, by name, that take effect at one step.
    """

    def __init__(self, defer: Callable[[Callable[[], None]], None], apply: Callable[[dict[str, Any]], None]) -> None:
        self._run: Run | None = None
        self._version = -1
        self._facts: TrapezoidFacts | None = None
        self._batch: Batch | None = None
        self._stood: Shape | None = None  # the run's shape as the widgets were told last
        self._drawn: Shape | None = None
        self._panels: dict[str, Panel] = {}
        self._apply = apply
        stretch = {"sizing_mode": "stretch_width", "margin": 0}
        self.shape = WholeCharts(self.shape_figures, self.shape_sentences, defer=defer, chart_height=360, **stretch)
        self.shape.on_drag(self._dragged)
        self.charts = WholeCharts(self.figures, self.captions, defer=defer, chart_height=330, **stretch)
        self._opened = [OpenedPage(self.shape), OpenedPage(self.charts)]
        # StaticText and not panes: see dash.app
        self.words = pn.widgets.StaticText(value="", margin=(4, 10), styles=_WORDS, sizing_mode="stretch_width")
        self.needs = pn.widgets.StaticText(value="", margin=(2, 10), styles=_WORDS, sizing_mode="stretch_width")
        self.full = pn.widgets.IntSlider(
            label="Full snapshots (K)", start=1, end=8, value=2, sizing_mode="stretch_width", margin=(3, 8)
        )
        self.alpha, self.decay = make_control(option("alpha")), make_control(option("decay"))
        self.button = pn.widgets.Button(label="Apply", color="primary", width=80, margin=(8, 8), disabled=True)
        self.button.on_click(lambda event: defer(self._ask))
        self.back = pn.widgets.Button(label="As the run has it", width=130, margin=(8, 8), disabled=True)
        self.back.on_click(lambda event: defer(self._take_back))
        widgets = (self.full, self.alpha.widget, self.decay.widget, self.button, self.back)
        self.choice = pn.Column(pn.Row(*widgets, **stretch), self.needs, visible=False, **stretch)
        self.panel = pn.Column(self.words, self.choice, self._opened[0].panel, self._opened[1].panel, **stretch)
        self.follow(None)

    # what the run tells

    def follow(self, run: Run | None) -> None:
        """Show another run."""
        self._run, self._version, self._panels = run, -1, {}
        self._batch = self._stood = None
        self._take(None)
        self._say("")
        self.shape.redraw()
        self.charts.redraw()

    def open(self) -> None:
        """Put the charts on the page; called again and again while its tab is open."""
        for page in self._opened:
            page.open()

    def update(self, *, slow: bool) -> None:
        """Draw what was chosen here at once, and once a second, where ``slow``, what the run has told since."""
        run = self._run
        if run is None:
            return
        if slow and run.version != self._version:
            with run.lock:
                self._version = run.version
                view = run.window.view("trapezoid")
                facts, self._batch, self._panels, words = view.facts, view.now, view.named_panels(), view.caption()
            self._panels.pop("shape", None)
            self._take(facts)
            self._say(words)
            self.charts.redraw()
            self._draw_shape()
        elif self.proposed != self._drawn:
            self._draw_shape()
        if slow:
            self._enable()

    def _take(self, facts: TrapezoidFacts | None) -> None:
        """Put the widgets at the run's shape, but not over another one that was chosen here."""
        untouched = self._stood is None or self.proposed is None
        self._facts = facts
        read = () if facts is None or self._run is None else [name for name in KNOBS if name in self._run.config.flat]
        self.choice.visible = bool(read)
        for name, widget in zip(KNOBS, (self.full, self.alpha.widget, self.decay.widget), strict=True):
            widget.visible = name in read
        if facts is None:
            self._stood = None
            return
        self.full.end = max(facts.window, 2)
        self._stood = facts.shape
        if untouched:
            self._put(facts.shape)

    def _say(self, words: str) -> None:
        self.words.value = html.escape(words or _nothing(self._run), quote=False)

    # what a person chooses

    @property
    def chosen(self) -> Shape | None:
        """The shape that the widgets stand at; None where the run has no windows."""
        stood = self._stood
        if stood is None or self._facts is None:
            return None
        # a slider keeps three digits: one that was not moved stands for the run's own value
        alpha = stood.alpha if self.alpha.value == _rounded(stood.alpha) else self.alpha.value
        return Shape(min(int(self.full.value or 1), self._facts.window), alpha, self.decay.value)

    @property
    def proposed(self) -> Shape | None:
        """The same where it is another than the run's."""
        chosen = self.chosen
        return None if chosen == self._stood else chosen

    def _put(self, shape: Shape) -> None:
        self.full.value = min(max(shape.full_snapshots, self.full.start), self.full.end)
        self.alpha.show(_rounded(shape.alpha))
        self.decay.show(shape.decay)

    def _dragged(self, handle: str, value: float) -> None:
        """A handle of the figure was dragged to a value of its axis."""
        chosen, facts = self.chosen, self._facts
        if chosen is None or facts is None:
            return
        self._put(snapped(facts, chosen, handle, value))
        self._draw_shape()

    def _ask(self) -> None:
        proposed, stood, run = self.proposed, self._stood, self._run
        if proposed is None or stood is None or run is None:
            return
        changes = {name: getattr(proposed, name) for name in KNOBS if getattr(proposed, name) != getattr(stood, name)}
        self._apply({name: value for name, value in changes.items() if name in run.config.flat})

    def _take_back(self) -> None:
        if self._stood is not None:
            self._put(self._stood)
            self._draw_shape()

    def _enable(self) -> None:
        differs = self.proposed is not None
        self.back.disabled = not differs
        self.button.disabled = not differs or self._run is None or self._run.status not in ACTIVE

    # what is drawn

    def _draw_shape(self) -> None:
        self._drawn = self.proposed
        words = "" if self._facts is None else proposal_words(self._facts, self._drawn)
        self.needs.value = html.escape(words, quote=False)
        self._enable()
        self.shape.redraw()

    def shape_figures(self) -> dict[str, Figure]:
        """The batch with the shape that is proposed; nothing where the run has no windows."""
        if self._facts is None or self._run is None:
            return {}
        handles = [name for name in ("full_snapshots", "alpha") if name in self._run.config.flat]
        return {"trapezoid-shape": shape_figure(self._facts, self._batch, self._drawn, handles=handles)}

    def shape_sentences(self) -> dict[str, str]:
        """What is in the batch."""
        if self._facts is None:
            return {}
        handles = " Drag a circle to see what another shape would need." if self.choice.visible else ""
        return {"trapezoid-shape": shape_words(self._facts, self._batch) + handles}

    def figures(self) -> dict[str, Figure]:
        """The other charts by name: one that becomes another kind of picture would be drawn wrongly."""
        return {f"trapezoid-{name}": figure for name, (figure, _) in self._panels.items()}

    def captions(self) -> dict[str, str]:
        """What to look for in each."""
        return {f"trapezoid-{name}": words for name, (_, words) in self._panels.items()}


def _rounded(alpha: float) -> float:
    """An alpha as its slider keeps it."""
    return float(f"{alpha:.3g}")


def _nothing(run: Run | None) -> str:
    """Why there are no windows, and what to do for some."""
    named = [name for name in catalogue.names("systems") if _has_windows(name)]
    do = f"Systems whose steps take a window of full and decayed snapshots: {', '.join(named)}."
    if run is None:
        return f"No run yet. {do}"
    if run.status in ACTIVE and run.config.system in named:
        return "The run has not told its windows yet."
    return f"This run has no windows of full and decayed snapshots. {do}"


def _has_windows(system: str) -> bool:
    return catalogue.system(system).parts["parallel"] == "halo_window"
