"""The schedule of a run's snapshot groups: who computes what when, who waits, and what others would have done."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import panel as pn

from dtdg_lab.core import catalogue
from dtdg_lab.core.units import format_seconds
from dtdg_lab.dash.calibration import Calibration, calibrate
from dtdg_lab.dash.changes import ACTIVE
from dtdg_lab.dash.live import WholeCharts
from dtdg_lab.dash.opened import OpenedPage
from dtdg_lab.dash.schedule_asker import Outcome, Row, ScheduleAsker, Wanted
from dtdg_lab.views.layout import Figure
from dtdg_lab.views.schedule import Panel
from dtdg_lab.views.schedule_facts import ScheduleFacts, share
from dtdg_lab.views.simulation import epoch_times_figure
from dtdg_lab.views.theme import coloured

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run

ASK = "Other schedulers, other numbers of ranks: what would they come to with the times of this run's groups?"
COSTS = "Solving takes a core for some seconds, which a run under way on this machine then misses."
TOO_EARLY = "No group of this schedule has been timed yet: ask again after the first epoch."
_SHARED = 0.8  # processor seconds over wall-clock seconds below which ranks shared cores
_QUICK = (
    300  # blocks of a Gantt chart up to which a browser draws it eight times a second, and larger ones half as often
)
_HIGH, _ROW = 330, 17  # pixels: a chart, and a rank of the Gantt chart
_WORDS = {"font-size": "13px", "color": coloured("text")}
_PROBLEM = {"font-size": "13px", "color": coloured("problem")}


class SchedulePage:
    """Gantt chart as live as the run, and once a second the rest: imbalance, waste, group times, the other schedulers.

    ``defer(call)`` has a call made by the event loop. A thread asks the other schedulers, and predicts epochs on other
    numbers of ranks: when asked to, and of a run that is over when its page is opened.

    Args:
        runs: gives the session's runs, whose epochs are compared with those predicted; called by the thread.
        defer: see above.
    """

    def __init__(self, runs: Callable[[], Sequence[Run]], defer: Callable[[Callable[[], None]], None]) -> None:
        self._run: Run | None = None
        self._version = -1
        self._facts: ScheduleFacts | None = None
        self._gantt: Panel | None = None
        self._passed_over = False
        self._panels: list[Panel] = []
        self._epochs: Panel | None = None
        self._wanted: Wanted | None = None  # the newest request
        self._asked: ScheduleFacts | None = None  # the schedule it was about
        self._asker = ScheduleAsker(runs, lambda wanted, outcome: defer(lambda: self._came(wanted, outcome)))
        stretch = {"sizing_mode": "stretch_width", "margin": 0}
        self.gantt = WholeCharts(
            self.gantt_figures, self.gantt_sentences, defer=defer, chart_height=_HIGH, **stretch
        )  # fmt: skip
        self.charts = WholeCharts(self.figures, self.sentences, defer=defer, chart_height=_HIGH, **stretch)
        self._opened = [OpenedPage(self.gantt), OpenedPage(self.charts)]
        # StaticText and not panes: see dash.app
        self.words = pn.widgets.StaticText(value="", margin=(4, 10), styles=_WORDS, sizing_mode="stretch_width")
        self.button = pn.widgets.Button(label="Ask", color="primary", width=80, margin=(8, 8), visible=False)
        self.button.on_click(lambda event: defer(self._ask))
        self.status = pn.widgets.StaticText(
            value="", margin=(8, 10), styles=_WORDS, sizing_mode="stretch_width", visible=False
        )
        asking = pn.Row(self.button, self.status, **stretch)
        self.panel = pn.Column(self.words, self._opened[0].panel, asking, self._opened[1].panel, **stretch)
        self.follow(None)

    # what the run tells

    def follow(self, run: Run | None) -> None:
        """Show another run."""
        self._run, self._version, self._asked = run, -1, None
        self._take_schedule(None)
        self._gantt, self._panels = None, []
        self._say_what_there_is("")
        self._draw()

    def open(self) -> None:
        """Put the charts on the page; called again and again while its tab is open."""
        for page in self._opened:
            page.open()

    def update(self, *, slow: bool) -> None:
        """Draw the Gantt chart again where something changed, and where ``slow``, once a second, all that is slow."""
        run = self._run
        if run is None or (run.version == self._version and not slow):
            return
        self._passed_over = not slow and self._is_large and not self._passed_over
        if self._passed_over:
            return
        with run.lock:
            changed, self._version = run.version != self._version, run.version
            view = run.window.schedule
            facts = view.facts
            self._gantt = None if facts is None else view.gantt_panel()
            if slow:
                self._panels, words = view.panels()[1:], view.sentence()
        if facts is not self._facts:
            self._take_schedule(facts)
        if changed:
            self.gantt.redraw()
        if slow:
            self._say_what_there_is(words)
            self.charts.redraw()
            if facts is not None and facts is not self._asked and run.status not in ACTIVE:
                self._ask()

    @property
    def _is_large(self) -> bool:
        return self._gantt is not None and sum(len(trace["x"]) for trace in self._gantt[0]["data"]) > _QUICK

    def _take_schedule(self, facts: ScheduleFacts | None) -> None:
        """There is another schedule, or none: what was predicted from the last one goes."""
        self._facts, self._epochs, self._wanted = facts, None, None
        self._say(f"{ASK} {COSTS}")
        for widget in (self.button, self.status):
            widget.visible = facts is not None

    def _say_what_there_is(self, words: str) -> None:
        self.words.value = html.escape(words or _nothing(self._run), quote=False)

    # what a person asks, and what the thread answers

    def _ask(self) -> None:
        run = self._run
        if run is None:
            return
        with run.lock:
            known = calibrate(run.window.schedule)
            self._asked = run.window.schedule.facts
        if known is None:
            self._say(TOO_EARLY, problem=True)
            return
        self._wanted = Wanted(run, run.config, known)
        self._say(f"{ASK} Asking …")
        self._asker.ask(self._wanted)

    def _came(self, wanted: Wanted, outcome: Outcome) -> None:
        if wanted is not self._wanted or wanted.run is not self._run:
            return  # something else has been asked for since
        view = wanted.run.window.schedule
        with wanted.run.lock:
            current = view.facts is wanted.measured.facts
            if current:
                view.replayed(outcome.others)
                self._panels = view.panels()[1:]
        if not current:  # the next look sees the other schedule, and invites to ask again
            return
        if outcome.epochs:
            figure, words = epoch_times_figure(outcome.epochs)
            self._epochs = figure, f"{words} {basis_words(wanted.measured)}"
        self._say(outcome.why_not or _answered(wanted.measured, outcome.others), problem=bool(outcome.why_not))
        self.charts.redraw()

    def _say(self, text: str, *, problem: bool = False) -> None:
        self.status.param.update(value=html.escape(text, quote=False), styles=_PROBLEM if problem else _WORDS)

    # what is drawn

    def gantt_figures(self) -> dict[str, Figure]:
        """The Gantt chart, higher where there are many ranks; nothing where the run has no schedule."""
        if self._gantt is None or self._facts is None:
            return {}
        figure, height = self._gantt[0], max(_HIGH, _HIGH // 2 + _ROW * self._facts.ranks)
        return {"gantt": {**figure, "layout": {**figure["layout"], "height": height}}}

    def gantt_sentences(self) -> dict[str, str]:
        """What to look for in it."""
        return {} if self._gantt is None else {"gantt": self._gantt[1]}

    def figures(self) -> dict[str, Figure]:
        """The other charts by their place, and the epochs predicted."""
        return {name: figure for name, (figure, _) in self._named().items()}

    def sentences(self) -> dict[str, str]:
        """What to look for in each."""
        return {name: words for name, (_, words) in self._named().items()}

    def _named(self) -> dict[str, Panel]:
        named = {f"schedule-{place}": panel for place, panel in enumerate(self._panels)}
        return named if self._epochs is None else {**named, "schedule-epochs": self._epochs}

    def _draw(self) -> None:
        self.gantt.redraw()
        self.charts.redraw()

    def close(self) -> None:
        """End the thread."""
        self._asker.close()


def basis_words(known: Calibration) -> str:
    """What predictions are made from, and what they leave out."""
    facts, on = known.facts, f"{known.facts.ranks} rank{'s' if known.facts.ranks > 1 else ''}"
    more = f"{format_seconds(known.step_s)} of other work an iteration"
    if facts.ranks > 1:
        more = f"all-reduces of {format_seconds(known.exchange_s)} and {more}"
    text = f"From {known.scheduler}'s group times on {on}, {more}; a group is taken to need as long on any number."
    if facts.ranks == 1:
        text += " One rank has no all-reduce to measure: none is added."
    if known.processor is not None and known.processor < _SHARED:
        text += f" But these ranks had {share(known.processor)} of a core: with cores of their own they are faster."
    return text


def _answered(known: Calibration, others: Sequence[Row]) -> str:
    when = f"Asked with the group times up to epoch {known.epoch}" if known.epoch else "Asked with the times so far"
    return f"{when}: {len(others)} schedulers and the run's own on other numbers of ranks. Ask again for newer times."


def _nothing(run: Run | None) -> str:
    """Why there is no schedule, and what to do for one."""
    named = [name for name in catalogue.names("systems") if "scheduling" in catalogue.system(name).parts]
    do = f"Systems that schedule snapshot groups: {', '.join(named)}."
    if run is None:
        return f"No run yet. {do}"
    if run.status in ACTIVE and run.config.system in named:
        return "The run has not told its schedule yet."
    return f"This run has no schedule. {do}"
