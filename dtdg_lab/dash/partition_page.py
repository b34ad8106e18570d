"""Vertex partitions: measured before a run uses them, side by side, and under the microscope as a run has them."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import TYPE_CHECKING

import panel as pn

from dtdg_lab.core import catalogue
from dtdg_lab.core.errors import LabError
from dtdg_lab.dash import choices
from dtdg_lab.dash.live import WholeCharts
from dtdg_lab.dash.opened import OpenedPage
from dtdg_lab.dash.partition_measurer import Outcome, PartitionMeasurer, Wanted
from dtdg_lab.dash.partition_table import READING, table_html
from dtdg_lab.dash.settings import PARTS, Settings
from dtdg_lab.dash.theme import labelled
from dtdg_lab.views.layout import Figure
from dtdg_lab.views.partition import Panel, panels
from dtdg_lab.views.partition_facts import PartitionFacts
from dtdg_lab.views.partition_words import head_words
from dtdg_lab.views.theme import coloured

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run

AS_SET = "as set on the left"
RUN = "this run"
FEWEST = 2
FIRST = "Choose partitioners and press Measure: each one's parts are made and counted before a run pays for them."
_WORDS = {"font-size": "13px", "color": coloured("text")}
_SMALL = {"font-size": "11.5px", "color": coloured("soft")}
_SCROLLING = {"overflow-x": "auto", "max-width": "100%"}
_PROBLEM = {"font-size": "13px", "color": coloured("problem")}


class PartitionPage:
    """Choice of data, parts and partitioners; a table of what each would cost; the microscope of the one looked at.

    A run that has a partition is one of those that can be looked at. ``defer(call)`` has a call made by the event
    loop; partitions are made and measured by a thread.
    """

    def __init__(self, settings: Settings, defer: Callable[[Callable[[], None]], None]) -> None:
        self._settings = settings
        self._wanted: Wanted | None = None
        self._measured: dict[str, PartitionFacts] = {}
        self._refused: dict[str, str] = {}
        self._panels: dict[str, list[Panel]] = {}  # of partitions measured, once they were looked at
        self._run: Run | None = None
        self._run_panels: list[Panel] = []
        self._run_words = ""
        self._version = -1
        self._measurer = PartitionMeasurer(
            lambda wanted, outcome: defer(lambda: self._came(wanted, outcome)),
            lambda wanted, why_not: defer(lambda: self._ended(wanted, why_not)),
        )
        self._make_widgets(defer)
        self.charts = WholeCharts(
            self.figures, self.sentences, defer=defer, chart_height=330, sizing_mode="stretch_width", margin=0,
        )  # fmt: skip
        self._opened = OpenedPage(self.charts)
        self.panel = self._lay_out()
        settings.watch(self._follow_settings)
        self._follow_settings()

    def _make_widgets(self, defer: Callable[[Callable[[], None]], None]) -> None:
        named = [name for name in catalogue.names("partition") if name != "file"]
        data = {"The settings": {AS_SET: ""}, **choices.dataset_choices()}
        self.data = pn.widgets.Select(
            label="Data",
            groups=data,
            value="",
            sizing_mode="stretch_width",
            min_width=100,
            max_width=190,
            margin=(3, 8),
        )
        offered = [parts for parts in PARTS if parts >= FEWEST]
        self.parts = pn.widgets.Select(label="Parts", options=offered, value=FEWEST, width=80, margin=(3, 8))
        self.partitioners = pn.widgets.CheckBoxGroup(
            options=list(catalogue.names("partition")), value=named, inline=True, margin=(0, 8, 4, 8),
            sizing_mode="stretch_width", 
            stylesheets=[".bk-input-group.bk-inline { flex-wrap: wrap; }", labelled("Partitioners to measure")],
        )  # fmt: skip
        self.button = pn.widgets.Button(label="Measure", color="primary", width=100, margin=(20, 8, 0, 8))
        self.button.on_click(lambda event: defer(self._measure))
        # StaticText and not panes: see dash.app
        self.status = pn.widgets.StaticText(value=FIRST, margin=(2, 10), styles=_WORDS, sizing_mode="stretch_width")
        self.table = pn.widgets.StaticText(
            value="", visible=False, margin=(2, 8), styles=_SCROLLING, sizing_mode="stretch_width"
        )
        self.reading = pn.widgets.StaticText(
            value=READING, visible=False, margin=(2, 10), styles=_SMALL, sizing_mode="stretch_width"
        )
        self.looked_at = pn.widgets.RadioButtonGroup(
            options=[RUN], value=RUN, visible=False, margin=(4, 8), stylesheets=[labelled("Partition looked at")]
        )
        self.looked_at.param.watch(lambda event: defer(self._draw), "value")
        self.words = pn.widgets.StaticText(value="", margin=(2, 10), styles=_WORDS, sizing_mode="stretch_width")

    def _lay_out(self) -> pn.Column:
        asked = pn.Row(self.data, self.parts, self.button, margin=0, sizing_mode="stretch_width")
        return pn.Column(
            asked, self.partitioners, self.status, self.table, self.reading, self.looked_at, self.words,
            self._opened.panel, sizing_mode="stretch_width", margin=0,
        )  # fmt: skip

    # what a person does

    def _follow_settings(self) -> None:
        """Where a run would have several parts, stand at so many."""
        try:
            config = self._settings.config()
        except LabError:  # settings that do not go together: the page As code says so
            return
        if config.parts in self.parts.options and self._wanted is None:
            self.parts.value = config.parts

    def _measure(self) -> None:
        """Ask the thread; what was measured before goes."""
        names = tuple(name for name in catalogue.names("partition") if name in self.partitioners.value)
        try:
            config = self._settings.config()
            if self.data.value:
                task = choices.dataset_tasks(self.data.value)[0]  # partitions do not depend on it
                config = config.replace(dataset=self.data.value, task=task)
        except LabError as error:
            self._say(str(error), problem=True)
            return
        if not names:
            self._say("No partitioner is chosen: tick at least one.", problem=True)
            return
        self._wanted = Wanted(config, self.parts.value, names)
        self._measured, self._refused, self._panels = {}, {}, {}
        self._say(f"{_what(self._wanted)}: measuring …")
        self._tell()
        self._measurer.ask(self._wanted)

    # what the thread tells

    def _came(self, wanted: Wanted, outcome: Outcome) -> None:
        if wanted is not self._wanted:
            return  # another measurement has been asked for since
        if outcome.facts is None:
            self._refused[outcome.partitioner] = outcome.why_not
        else:
            self._measured[outcome.partitioner] = outcome.facts
        self._tell()

    def _ended(self, wanted: Wanted, why_not: str) -> None:
        if wanted is not self._wanted:
            return
        if why_not:
            self._say(f"{_what(wanted)}: {why_not}", problem=True)
            self._wanted = None
        else:
            self._say(f"{_what(wanted)}:")
        self._tell()

    def _tell(self) -> None:
        """Table and choice of the one looked at, as far as partitions have been measured."""
        wanted = self._wanted
        waiting = [
            name for name in (wanted.partitioners if wanted else ())
            if name not in self._measured and name not in self._refused
        ]  # fmt: skip
        self.table.param.update(value=table_html(self._measured, self._refused, waiting), visible=wanted is not None)
        self.reading.visible = wanted is not None
        self._offer()

    def _say(self, text: str, *, problem: bool = False) -> None:
        self.status.param.update(value=html.escape(text, quote=False), styles=_PROBLEM if problem else _WORDS)

    def _offer(self) -> None:
        """What can be looked at: the run's own partition, and the measured ones."""
        offered = [*([RUN] if self._run_panels else []), *self._measured]
        if offered != self.looked_at.options or not self.looked_at.visible:
            kept = self.looked_at.value if self.looked_at.value in offered else (offered or [RUN])[0]
            self.looked_at.param.update(options=offered or [RUN], value=kept, visible=bool(offered))
        self._draw()

    # what the run tells

    def follow(self, run: Run | None) -> None:
        """Show another run."""
        self._run, self._run_panels, self._run_words, self._version = run, [], "", -1
        self._offer()

    def open(self) -> None:
        """Put the charts on the page; called again and again while its tab is open."""
        self._opened.open()

    def update(self) -> None:
        """Draw the run's partition again where something changed; whole figures, so at most once a second."""
        run = self._run
        if run is None or run.version == self._version:
            return
        with run.lock:
            self._version = run.version
            view = run.window.partition
            found, words = view.panels(), view.sentence()
        is_new = bool(found) != bool(self._run_panels)
        self._run_panels, self._run_words = found, words
        if is_new:
            self._offer()
        elif self.looked_at.value == RUN:
            self._draw()

    # what is drawn

    @property
    def shown(self) -> list[Panel]:
        """The panels of the partition looked at."""
        name = self.looked_at.value
        if name == RUN:
            return self._run_panels
        if name in self._measured and name not in self._panels:
            self._panels[name] = panels(self._measured[name])
        return self._panels.get(name, [])

    def figures(self) -> dict[str, Figure]:
        """The microscope's panels by their place."""
        return {f"partition-{place}": _narrow(figure) for place, (figure, _) in enumerate(self.shown)}

    def sentences(self) -> dict[str, str]:
        """What to look for in each panel."""
        return {f"partition-{place}": words for place, (_, words) in enumerate(self.shown)}

    def _draw(self) -> None:
        chosen = self.looked_at.value
        facts = self._measured.get(chosen)
        words = self._run_words if chosen == RUN else head_words(facts) if facts is not None else ""
        self.words.value = html.escape(words, quote=False)
        self.charts.redraw()

    def close(self) -> None:
        """End the thread."""
        self._measurer.close()


def _narrow(figure: Figure) -> Figure:
    """The figure for a card: what its title ends with, as which partition it is of, stands on a second line."""
    layout = figure["layout"]
    first, told, rest = layout["title"]["text"].partition(" · ")
    if not told:
        return figure
    title = {**layout["title"], "text": f"{first}<br>{rest}", "y": 0.93}  # plotly.js puts the last line there
    margin = {**layout["margin"], "t": 52}
    return {**figure, "layout": {**layout, "title": title, "margin": margin}}


def _what(wanted: Wanted) -> str:
    """Data, parts and the model that pulls, in words."""
    config = wanted.config
    data = choices.dataset_label(config.dataset)
    layers = f"{config.layers} layer{'s' if config.layers > 1 else ''}"
    return f"{data} in {wanted.parts} parts, for {config.model} with {layers}"
