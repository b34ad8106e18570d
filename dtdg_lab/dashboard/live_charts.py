"""The charts of a page: which cards there are, and which figure is drawn and sent next."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs.charts import all_rollups, charts_of, draw, held
from dtdg_lab.visualization.chart import Chart, ChartOptions, Question, card
from dtdg_lab.widgets.chart_cards import CardActions, CardSpec, ChartCards, DrawingOrder, Toggle, encoded
from dtdg_lab.widgets.component import Defer
from dtdg_lab.widgets.run_page import STRETCH, BackgroundWorker, describe

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run


STEPS_SENT = 50  # number of newest pictures whose steps are remembered, in case one of their handles is taken
PREVIEW_S = 5.0  # how long a proposal stays after its release, unless it is applied earlier
TOGGLES: Mapping[str, tuple[tuple[str, Any], ...]] = {  # option -> label and value of each entry of a card's menu
    "x": (("Over steps", "steps"), ("Over seconds", "seconds")),
    "linear": (("Logarithmic axis", False), ("Linear axis", True)),
    "whole_run": (("Last 500 steps", False), ("Whole run", True)),
}

Changes = Mapping[str, Any]
_QuestionOfRun = tuple[Question, RunTables, AbstractContextManager[Any]]


@dataclass(slots=True)
class _ChartState:
    """The choices of a viewer for one chart, and its figure as last sent."""

    options: ChartOptions = field(default_factory=ChartOptions)
    version: int = -1
    step: int = -1
    sent: tuple[str, str] | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)


class LiveCharts:
    """The cards of one run, its picture and all other charts, which are drawn one at a time.

    Args:
        defer: lets the event loop make a call.
        request: function called with the changes of settings that a person requests in a chart.
        problem: function called with a description of what went wrong.
        other_runs: returns the session's other runs, for questions that compare; it may read from disk.

    Attributes:
        ended: whether the run has ended.
    """

    def __init__(
        self,
        defer: Defer,
        request: Callable[[dict[str, Any]], None],
        problem: Callable[[str], None],
        other_runs: Callable[[], Sequence[Run]] = tuple,
    ) -> None:
        self._request, self._problem, self.ended = request, problem, False
        self.order = DrawingOrder()
        self._defer, self._others = defer, other_runs
        actions = CardActions(
            grip=self._grip,
            drag=self._drag,
            release=self._release,
            cancel=self._cancel,
            click=self._click,
            freeze=self._freeze,
            option=self._choose,
            ask=self._ask,
        )
        self.picture, self.others = (ChartCards(self.order, actions, defer=defer, **STRETCH) for _ in range(2))
        self._name = ""
        self._tables: RunTables | None = None
        self._lock: AbstractContextManager[Any] = threading.Lock()
        self._charts: dict[str, Chart] = {}
        self._states: dict[str, _ChartState] = {}
        self._system = ""
        self._frozen: dict[str, int] = {}  # frozen chart -> its step
        self._asked: set[str] = set()  # names of questions that are being answered
        self._answers: dict[str, Any] = {}
        self._worker: BackgroundWorker[_QuestionOfRun] = BackgroundWorker(self._answer, "dashboard-answers")
        self._preview: tuple[dict[str, Any], float] = ({}, 0.0)  # the proposal, and until when it is shown
        self._preview_step: int | None = None  # step of the pictures during a proposal
        self._steps_sent: dict[int, int] = {}  # number of a message -> step of its picture
        self._gripped_step: int | None = None  # step of the picture whose handle was taken

    @property
    def tables(self) -> RunTables | None:
        """The tables that are drawn."""
        return self._tables

    def follow(self, name: str, tables: RunTables, lock: AbstractContextManager[Any]) -> None:
        """Draw the charts of a run with this name; its tables are read under a lock."""
        self._name, self._tables, self._lock, self._system = name, tables, lock, ""
        for forgotten in (self._frozen, self._asked, self._answers):
            forgotten.clear()
        self._preview, self._preview_step, self.ended = ({}, 0.0), None, False
        self._lay_out()
        for chart, state in self._states.items():
            state.version, state.sent = -1, None
            self.order.force(chart)

    def wait_with(self, config: RunConfig) -> None:
        """Draw what is known before a run with these settings."""
        self.follow("", RunTables(config, rollups=all_rollups()), threading.Lock())

    def preview(self, changes: Changes) -> None:
        """Draw at once in the picture what settings would mean; empty changes remove the proposal."""
        if not changes or self._tables is None:
            self._preview_step = None
        elif self._preview_step is None:
            with self._lock:
                gripped, self._gripped_step = self._gripped_step, None
                self._preview_step = self._tables.common_step if gripped is None else gripped
        self._preview = (dict(changes), math.inf)
        for name in self.picture.specs:
            if name in self.order.in_view():
                self._send(name, time.monotonic(), forced=True, urgent=True)

    def end_drag(self) -> None:
        """Let the proposal stay for a while, until it is applied."""
        self._preview = (self._preview[0], time.monotonic() + PREVIEW_S)

    def tick(self) -> None:
        """Send the chart whose turn it is, if it has changed."""
        tables = self._tables
        if tables is None:
            return
        with self._lock:
            system = tables.system
        if system != self._system:
            self._lay_out()
        self._end_preview()
        now_s = time.monotonic()
        if not self.order.is_free(now_s):
            return
        for name, forced in self.order.due(now_s):
            if name in self._frozen and not forced:
                continue
            if forced or self._states[name].version != tables.version:
                self.order.looked(name, now_s)
                if self._send(name, now_s, forced=forced):
                    return

    def _send(self, name: str, now_s: float, *, forced: bool, urgent: bool = False) -> bool:
        """Draw a figure, and send it if it is forced or has changed; return whether it was sent."""
        state = self._states[name]
        offered = state.metrics
        if name in self._frozen and state.sent is not None and not urgent:  # a frozen chart came into view
            text, caption = state.sent
            cards = self.picture if name in self.picture.specs else self.others
            cards.send(name, text, caption, self.order.sent(name, now_s))
            return True
        figure, caption = self._draw(name)
        if state.metrics != offered:
            self._lay_out()
        text = encoded(figure)
        if not forced and state.sent == (text, caption):
            return False
        state.sent = (text, caption)
        number = self.order.sent(name, now_s)
        if name in self.picture.specs:
            self._steps_sent[number] = state.step if self._preview_step is None else self._preview_step
            if len(self._steps_sent) > STEPS_SENT:
                del self._steps_sent[min(self._steps_sent)]
            self.picture.send(name, text, caption, number, urgent=urgent)
        else:
            self.others.send(name, text, caption, number, urgent=urgent)
        return True

    def _draw(self, name: str) -> tuple[Mapping[str, Any], str]:
        tables, chart, state = self._tables, self._charts[name], self._states[name]
        assert tables is not None
        changes, _ = self._preview
        step = self._frozen.get(name) if self._preview_step is None else self._preview_step
        options = replace(state.options, preview=changes, step=step, ended=self.ended)
        options = replace(options, answers=dict(self._answers))
        with self._lock:
            state.version, state.step = tables.version, tables.common_step
            try:
                if tables.own_steps:
                    options = replace(options, x="seconds")
                state.metrics = chart.metrics(tables)
                return draw(chart, tables, options)
            except (
                Exception
            ) as error:  # other charts must continue, so the card shows the error and the log the traceback
                is_known = state.sent is not None and state.sent[1] == describe(error, "")
                text = describe(error, "" if is_known else f"the chart {name} cannot be drawn")
                return card([], chart.title, empty="This chart can't be drawn."), text

    def draw_again(self) -> None:
        """Draw all charts again, for example after the end of a run."""
        for state in self._states.values():
            state.version = -1

    def age_frozen(self) -> None:
        """Update how old frozen pictures are; called about once per second."""
        if self._frozen:
            self._lay_out()

    # cards

    def _lay_out(self) -> None:
        tables = self._tables
        assert tables is not None
        with self._lock:
            self._system = tables.system
            charts = charts_of(tables)
            step = tables.common_step
        self._charts = {chart.name: chart for chart in charts}
        self._states = {name: self._states.get(name, _ChartState()) for name in self._charts}
        pictures = [chart for chart in charts if chart.section == "picture"]
        self.order.place(list(self._charts), {chart.name for chart in pictures})
        idea = catalogue.family(catalogue.system(self._system).family).sentence(self._system)
        self.picture.lay_out([self._spec(chart, step, idea=idea) for chart in pictures])
        self.others.lay_out([self._spec(chart, step) for chart in charts if chart.section != "picture"])

    def _spec(self, chart: Chart, step: int, idea: str = "") -> CardSpec:
        options = self._states[chart.name].options
        toggles = tuple(
            Toggle(label, option, value)
            for option in chart.toggles
            for label, value in TOGGLES[option]
            if getattr(options, option) != value and not (option == "linear" and options.metric)
        )
        metrics = self._states[chart.name].metrics
        toggles += tuple(Toggle(label, "metric", name) for name, label in metrics.items() if name != options.metric)
        ago = ""
        if chart.name in self._frozen:
            frozen = self._frozen[chart.name]
            ago = f"step {frozen:,}, {max(0, step - frozen):,} steps ago"
        spec = CardSpec(
            name=chart.name,
            run=self._name,
            title=chart.title,
            section=chart.section,
            help=chart.help,
            idea=idea,
            ago=ago,
            toggles=toggles,
        )
        question = chart.question
        if question is None or question.name in self._answers:
            return spec
        return replace(spec, ask=question.label, ask_help=question.help, asking=question.name in self._asked)

    # a person's actions in a chart

    def _grip(self, chart: str, number: int) -> None:
        self._gripped_step = self._steps_sent.get(number)

    def _drag(self, chart: str, handle: str, value: float) -> None:
        self.preview({handle: _typed(handle, value)})

    def _release(self, chart: str, handle: str, value: float) -> None:
        changes = {handle: _typed(handle, value)}
        self.preview(changes)
        self.end_drag()
        self._request(changes)

    def _cancel(self, chart: str) -> None:
        self.preview({})

    def _click(self, chart: str, x: Any, y: Any, customdata: Any) -> None:
        """Request the changes of settings that a point has as data."""
        if isinstance(customdata, dict):
            self._request(customdata)

    def _ask(self, chart: str) -> None:
        if chart not in self._charts:  # the system has changed since the page was drawn
            return
        question, tables = self._charts[chart].question, self._tables
        if question is not None and tables is not None and question.name not in self._asked:
            self._asked.add(question.name)
            self._worker.ask((question, tables, self._lock))
            self._lay_out()

    def _answer(self, request: _QuestionOfRun) -> None:
        """Answer a question in the thread."""
        question, tables, lock = request
        try:
            other_runs = self._others()
            with held(lock, *(run.lock for run in other_runs)):
                prepared = question.prepare(tables, [run.live for run in other_runs])
            answer = question.answer(prepared)
        except Exception as error:  # there is no caller, so the page shows the error
            text = describe(error, f"the question {question.name} could not be answered")
            self._defer(lambda: self._fail(question, text))
            return
        self._defer(lambda: self._take(question, tables, answer))

    def _take(self, question: Question, tables: RunTables, answer: Any) -> None:
        if tables is self._tables:
            self._answers[question.name] = answer
            self._end_asking(question)

    def _fail(self, question: Question, text: str) -> None:
        self._end_asking(question)
        self._problem(text)

    def _end_asking(self, question: Question) -> None:
        self._asked.discard(question.name)
        for chart in self._charts.values():
            if chart.question is question:
                self.order.force(chart.name)
        self._lay_out()

    def close(self) -> None:
        """End the thread."""
        self._worker.close()

    def _end_preview(self) -> None:
        """Remove a proposal that was applied, was not applied for some time, or is shown on no display."""
        changes, until_s = self._preview
        if not changes or self._tables is None:
            return
        with self._lock:
            is_applied = all(self._tables.config.flat.get(name) == value for name, value in changes.items())
        if is_applied or time.monotonic() > until_s or not self.order.in_view():
            self.preview({})

    def _freeze(self, chart: str, on: bool) -> None:
        if on and chart in self._states:  # otherwise the system has changed since the page was drawn
            self._frozen[chart] = self._states[chart].step
        else:
            self._frozen.pop(chart, None)
        self._lay_out()

    def _choose(self, chart: str, option: str, value: Any) -> None:
        state = self._states.get(chart)
        if state is None:  # the system has changed since the page was drawn
            return
        state.options, state.sent = replace(state.options, **{option: value}), None
        self.order.force(chart)
        self._lay_out()


def _typed(setting: str, value: float) -> Any:
    """Return the position of a handle as a value of its setting."""
    kind = OPTIONS[setting].kind if setting in OPTIONS else float
    return round(value) if kind is int else float(f"{value:.3g}")


class FigureCards:
    """Several rows of cards, each a separate component, so that other things can be between them.

    Args:
        rows: the cards.
        actions: functions that are called for a person's actions on the cards.
        defer: lets the event loop make a call.
    """

    def __init__(self, rows: Sequence[Sequence[CardSpec]], actions: CardActions, defer: Defer) -> None:
        self.order = DrawingOrder()
        self.components = tuple(ChartCards(self.order, actions, defer=defer, **STRETCH) for _ in rows)
        self._of: dict[str, ChartCards] = {}
        self._shown: dict[str, tuple[str, str]] = {}
        self._sent: dict[str, tuple[str, str]] = {}
        for component, specs in zip(self.components, rows, strict=True):
            component.lay_out(specs)
            self._of |= dict.fromkeys((spec.name for spec in specs), component)
        self.order.place(list(self._of))

    def show(self, name: str, figure: Mapping[str, Any], caption: str, *, urgent: bool = False) -> None:
        """Show a figure when its turn comes, or at once if it is urgent."""
        self._shown[name] = encoded(figure), caption
        if urgent and name in self.order.in_view():
            self._send(name, urgent=True)

    def tick(self) -> None:
        """Send the figure whose turn it is, if it has changed."""
        now_s = time.monotonic()
        if not self.order.is_free(now_s):
            return
        for name, is_forced in self.order.due(now_s):
            if name in self._shown and (is_forced or self._sent.get(name) != self._shown[name]):
                self._send(name)
                return

    def _send(self, name: str, *, urgent: bool = False) -> None:
        self._sent[name] = self._shown[name]
        number = self.order.sent(name, time.monotonic())
        self._of[name].send(name, *self._shown[name], number, urgent=urgent)
