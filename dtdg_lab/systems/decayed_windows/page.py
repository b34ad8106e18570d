"""Page Trapezoid: the batch in training, and what another shape of window would need before it is applied."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

import panel as pn

from dtdg_lab.core import catalogue
from dtdg_lab.core.options import option
from dtdg_lab.systems.decayed_windows import charts
from dtdg_lab.systems.decayed_windows.events import Shape, TrapezoidFacts
from dtdg_lab.widgets.controls import make_control
from dtdg_lab.widgets.live import tipped
from dtdg_lab.widgets.run_page import ACTIVE, STRETCH, PageContext, Panel, RunPage, text_line

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run


SETTINGS = ("full_snapshots", "alpha", "decay")


class DecayedWindowPage(RunPage):
    """The batch with handles and sliders for another shape, and the charts of a run's windows.

    A shape that is chosen here is drawn over the batch, with the rows and bytes that it is predicted to need. The run
    changes only when the shape is applied.
    """

    title, family = "Trapezoid", "decayed_windows"
    data = "window"

    def __init__(self, context: PageContext) -> None:
        super().__init__(context)
        self._read: TrapezoidFacts | None = None
        self._facts: TrapezoidFacts | None = None  # the same once the widgets show them
        self._batch: charts.Batch | None = None
        self._stood: Shape | None = None  # the run's shape as the widgets showed it last
        self._drawn: Shape | None = None
        self.shape = self.add_charts(360)
        self.shape.on_drag(self._dragged)
        self.needs = text_line(margin=(2, 10))
        self.full = pn.widgets.IntSlider(
            label="Full snapshots (K)", start=1, end=8, value=2, sizing_mode="stretch_width", margin=(3, 8)
        )
        self.full.stylesheets = [tipped(f"{option('full_snapshots').meaning} It is drawn at once; Apply requests it.")]
        self.alpha, self.decay = make_control(option("alpha")), make_control(option("decay"))
        self.button = pn.widgets.Button(label="Apply", color="primary", width=80, margin=(8, 8), disabled=True)
        self.button.stylesheets = [tipped("Request the drawn shape of the run, for its next step.")]
        self.button.on_click(lambda event: context.defer(self._request))
        self.back = pn.widgets.Button(label="Reset to the run", width=130, margin=(8, 8), disabled=True)
        self.back.stylesheets = [tipped("Draw the run's own shape again.")]
        self.back.on_click(lambda event: context.defer(self._take_back))
        widgets = (self.full, self.alpha.widget, self.decay.widget, self.button, self.back)
        self.choice = pn.Column(pn.Row(*widgets, **STRETCH), self.needs, visible=False, **STRETCH)
        self.lay_out(self.choice, self.shape, self.charts)

    def systems(self) -> list[str]:
        """Without those of sampled windows, which have no shape."""
        parallel = {name: catalogue.system(name).parts["parallel"] for name in super().systems()}
        return [name for name, layout in parallel.items() if layout == "halo_window"]

    # what the run has

    def follow(self, run: Run | None) -> None:
        """Show another run."""
        super().follow(run)
        self._batch = self._stood = None
        self._take(None)

    def update(self, runs: Sequence[Run] = (), *, slow: bool) -> None:
        """Draw what was chosen here at once, and what the run has done once a second."""
        if self._run is None:
            return
        known = self._version
        super().update(runs, slow=slow)
        if self._version != known:
            self._take(self._read)
        if self._version != known or self.proposed != self._drawn:
            self._draw_shape()
        elif slow:
            self._enable()

    def read(self, run: Run) -> tuple[dict[str, Panel], str]:
        """All charts but the shape, which is drawn with the one that is chosen here."""
        view = run.live.view("trapezoid")
        self._read, self._batch = view.facts, view.now
        panels = view.named_panels()
        panels.pop("shape", None)
        return panels, view.caption()

    def _take(self, facts: TrapezoidFacts | None) -> None:
        """Show the run's shape in the widgets, but not over another one that was chosen here."""
        untouched = self._stood is None or self.proposed is None
        self._facts = facts
        flat = {} if facts is None or self._run is None else self._run.config.flat
        read = [name for name in SETTINGS if name in flat]
        self.choice.visible = bool(read)
        for name, widget in zip(SETTINGS, (self.full, self.alpha.widget, self.decay.widget), strict=True):
            widget.visible = name in read
        if facts is None:
            self._stood = None
            return
        self.full.end = max(facts.window, 2)
        self._stood = facts.shape
        if untouched:
            self._put(facts.shape)

    # what a person chooses

    @property
    def chosen(self) -> Shape | None:
        """The shape that the widgets show; None where the run has no windows."""
        stood = self._stood
        if stood is None or self._facts is None:
            return None
        # a slider keeps three digits: if it was not moved, the run's own value counts
        alpha = stood.alpha if self.alpha.value == _rounded(stood.alpha) else self.alpha.value
        return Shape(min(int(self.full.value or 1), self._facts.window), alpha, self.decay.value)

    @property
    def proposed(self) -> Shape | None:
        """The chosen shape where it differs from the run's, else None."""
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
        self._put(charts.snapped(facts, chosen, handle, value))
        self._draw_shape()

    def _request(self) -> None:
        proposed, stood, run = self.proposed, self._stood, self._run
        if proposed is None or stood is None or run is None:
            return
        changes = {name: getattr(proposed, name) for name in SETTINGS if name in run.config.flat}
        self._context.apply({name: value for name, value in changes.items() if value != getattr(stood, name)})

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
        words = "" if self._facts is None else charts.proposal_words(self._facts, self._drawn)
        self.needs.value = html.escape(words, quote=False)
        self._enable()
        self.shape.draw(self._shape_panel())

    def _shape_panel(self) -> dict[str, Panel]:
        """The batch with the shape that is proposed; nothing where the run has no windows."""
        if self._facts is None or self._run is None:
            return {}
        handles = [name for name in ("full_snapshots", "alpha") if name in self._run.config.flat]
        caption = charts.shape_words(self._facts, self._batch)
        if self.choice.visible:
            caption += " Drag a circle to see what another shape would need."
        return {"shape": (charts.shape_figure(self._facts, self._batch, self._drawn, handles=handles), caption)}


def _rounded(alpha: float) -> float:
    """An alpha as its slider keeps it."""
    return float(f"{alpha:.3g}")
