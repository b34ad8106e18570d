"""Pages Compare and Code: runs, races and studies, one of them at a time; the settings as code."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import panel as pn

from dtdg_lab.core.errors import LabError
from dtdg_lab.dashboard.settings import Settings, as_cell, as_json
from dtdg_lab.visualization.energy import SO_FAR, energy_panel, energy_rows
from dtdg_lab.visualization.loss import compare_figure, ground_words, wall_time_figure, wall_time_words
from dtdg_lab.visualization.series import XAxis
from dtdg_lab.visualization.style import coloured
from dtdg_lab.widgets.live import WholeCharts, labelled, tipped
from dtdg_lab.widgets.run_page import Page, Pages

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run

COMPARED = 6


class ComparePage(Pages):
    """Comparisons of several kinds; one is shown at a time.

    Args:
        parts: the pages of the kinds.
    """

    def __init__(self, parts: Sequence[Page]) -> None:
        super().__init__("Compare", parts)
        tips = "Which runs are compared: those of this session, those of a race, or those of a study."
        self.choice = pn.widgets.RadioButtonGroup(
            options=[*self.parts], value=parts[0].title, margin=(4, 8), stylesheets=[labelled("Compare"), tipped(tips)]
        )
        self.panel.insert(0, self.choice)

    def shown(self) -> list[Page]:
        """The chosen part."""
        return [self.parts[self.choice.value]]


class RunsPage(Page):
    """The last runs beside each other: validation losses, all losses over wall time, and energy by phase."""

    title = "Runs"
    compares_runs = True

    def __init__(self, defer: Callable[[Callable[[], None]], None]) -> None:
        super().__init__()
        self._drawn: tuple[Any, ...] = ()
        self._x: XAxis = "steps"
        self.figure = compare_figure([])
        self.wall_time, self.words = wall_time_figure([]), wall_time_words([])
        self.energy, self.spent = energy_panel([], SO_FAR)
        self.charts = WholeCharts(
            lambda: {"compare": self.figure, "wall-time": self.wall_time, "energy-by-run": self.energy},
            lambda: {"wall-time": self.words, "energy-by-run": self.spent},
            defer=defer,
            chart_height=620,
            sizing_mode="stretch_width",
        )
        self.panel = self.place(self.charts)

    def over(self, x: XAxis) -> None:
        """Draw the losses over ``steps`` or ``seconds``."""
        self._x = x

    def update(self, runs: Sequence[Run] = (), *, slow: bool) -> None:
        """Draw again where something changed; costs a whole figure, so at most once a second."""
        if not slow:
            return
        last = list(runs)[-COMPARED:]
        drawn = (self._x, *((run.id, run.version) for run in last))
        if drawn == self._drawn:
            return
        with ExitStack() as locks:
            for lock in dict.fromkeys(run.lock for run in last):
                locks.enter_context(lock)
            labelled = [(run.id, run.live) for run in last]
            self.figure = compare_figure(labelled, self._x)
            self.wall_time = wall_time_figure(labelled)
            self.words = f"{ground_words(labelled)} {wall_time_words(labelled)}"
            self.energy, self.spent = energy_panel(energy_rows(labelled), SO_FAR)
        self._drawn = drawn
        self.charts.redraw()


class CodePage(Page):
    """The present settings as a Python cell and as JSON."""

    title = "Code"

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        self.cell = pn.widgets.StaticText(value="", sizing_mode="stretch_width")
        self.json = pn.widgets.StaticText(value="", sizing_mode="stretch_width")
        self.panel = pn.Row(
            pn.Column("#### As a cell", self.cell, sizing_mode="stretch_width"),
            pn.Column("#### As JSON, for `python -m dtdg_lab run CONFIG.json`", self.json, sizing_mode="stretch_width"),
            sizing_mode="stretch_width",
        )
        settings.watch(self._write)
        self._write()

    def _write(self) -> None:
        """The settings of the controls, or why they are no valid run."""
        try:
            config = self._settings.config()
        except LabError as error:
            self.cell.value, self.json.value = _block(str(error)), ""
            return
        self.cell.value, self.json.value = _block(as_cell(config)), _block(as_json(config))


def _block(text: str) -> str:
    edge, back = coloured("line"), coloured("back")
    style = f"font-size:12px;background:{back};border:1px solid {edge};padding:10px;white-space:pre-wrap"
    return f'<pre class="dl-code" style="{style}">{html.escape(text)}</pre>'
