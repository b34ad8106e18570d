"""Dashboard: cards of systems above, controls on the left, live charts on the right, on one session."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import panel as pn

from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ControlError, LabError
from dtdg_lab.core.events import PAGE
from dtdg_lab.dashboard.actions import Actions, Change, Changes, SessionWatch, status_html
from dtdg_lab.dashboard.pages.cards import CardPage
from dtdg_lab.dashboard.pages.checkpoints import Branch
from dtdg_lab.dashboard.pages.compare import CodePage, ComparePage, RunsPage
from dtdg_lab.dashboard.pages.data import GraphPage
from dtdg_lab.dashboard.pages.partition import PartitionPage
from dtdg_lab.dashboard.pages.race import RacePage
from dtdg_lab.dashboard.pages.study import StudyPage
from dtdg_lab.dashboard.settings import Settings
from dtdg_lab.datasets.names import default_dataset
from dtdg_lab.visualization.layout import join_words
from dtdg_lab.visualization.run_window import RunWindow
from dtdg_lab.visualization.series import XAxis
from dtdg_lab.widgets.live import LiveCharts, ThemeSwitch, labelled, tipped
from dtdg_lab.widgets.run_page import (
    ACTIVE,
    ALERT,
    STRETCH,
    Page,
    PageContext,
    Pages,
    RunPage,
    ViewsPage,
    alert_html,
    describe,
)

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run
    from dtdg_lab.cluster.session import Session


# Panel and Plotly for the page that will show the dashboard, without the internet.


_KEY = "dtdg_lab.dashboard.page"


def load_resources() -> list[str]:
    """Send a notebook page what charts need, once per page; a served page gets it from its server.

    In a notebook everything is sent inline (18 MB), so that nothing is asked of the internet. A page that was
    reloaded has lost it; it is known by the new session of its front end, and gets it again.

    Returns:
        The displays that hold what was sent, for :func:`remove_resources`.
    """
    page = _notebook_page() if pn.state.curdoc is None else None
    if page is None:
        pn.extension("plotly", "mathjax")
    elif pn.state.cache.get(_KEY) != page or "plotly" not in pn.extension._loaded_extensions:
        from IPython.display import publish_display_data
        from IPython.utils.capture import capture_output

        with capture_output(stdout=False, stderr=False) as sent:
            pn.extension("plotly", "mathjax", inline=True)
        pn.state.cache[_KEY] = page
        displays = [f"{_KEY}-{page}-{number}" for number in range(len(sent.outputs))]
        for display, output in zip(displays, sent.outputs, strict=True):
            publish_display_data(output.data, output.metadata, transient={"display_id": display})
        return displays
    return []


def remove_resources(displays: Sequence[str]) -> None:
    """Remove from the notebook what its page has executed: saved with it, it would take 20 MB."""
    from IPython.display import publish_display_data

    for display in displays:
        publish_display_data({"text/plain": ""}, transient={"display_id": display}, update=True)


class _NotebookColumn(pn.Column):
    """A column whose style sheets are put into a notebook page at once.

    Panel replaces those of one model at a time, and Bokeh collects all models after each: 25 s for the dashboard.
    """

    def _render_model(self, doc: Any = None, comm: Any = None) -> Any:
        model: Any = super()._render_model(doc, comm)
        if pn.config.inline:
            with model.document.models.freeze():
                _share_inline_stylesheets(model)
        return model


def _share_inline_stylesheets(root: Any) -> None:
    """Replace every style sheet that has an address by its text, one model for each address."""
    from bokeh.models.css import ImportedStyleSheet
    from bokeh.models.ui import UIElement
    from panel.io.notebook import replace_inline_css

    inline: dict[str, Any] = {}
    for model in root.select({"type": UIElement}):
        for sheet in model.stylesheets:
            if isinstance(sheet, ImportedStyleSheet) and sheet.url not in inline:
                inline[sheet.url] = replace_inline_css(sheet)
        model.stylesheets = [inline.get(getattr(sheet, "url", ""), sheet) for sheet in model.stylesheets]


def _notebook_page() -> str | None:
    """The session of the front end that runs the present cell; None outside of notebooks."""
    if "IPython" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    header = shell.get_parent().get("header", {})
    return str(header.get("session", "unknown"))


TITLE = "DTDG Lab"
PERIOD_MS = 125
CHART_HEIGHT = 262  # pixels: two rows of charts with their captions are seen at 1400 x 900
WATCH_TICKS = 2  # ticks between two looks at the session
SLOW_TICKS = 8  # ticks between two looks at the cluster, the comparison and, when idle, anything
GONE_TICKS = 480  # a minute without any display ends the updates
_STATUS = {"font-size": "13px", "min-height": "76px"}
_ALERT = {**ALERT, "box-sizing": "border-box", "width": "285px"}
# Headers that do not fit go into a second line. A tab that is not open takes no height: else the longest one would
# make every page as long
_TABS = """:host(.bk-above) .bk-headers-wrapper { flex-wrap: wrap; overflow: visible; }
:host > [style*="visibility: hidden"] { max-height: 0; overflow: hidden; }"""
_BUTTONS = (  # name, label, colour, tooltip
    ("run", "Run", "success", "Start a run with the settings below."),
    ("pause", "Pause", "default", "Pause the run before its next step, or continue it. Settings can change meanwhile."),
    ("stop", "Stop", "danger", "End the run after its present step. It is kept, and can be resumed."),
    (
        "resume",
        "Resume",
        "primary",
        "Continue a stopped, failed or interrupted run from its last checkpoint.",
    ),
    ("repair", "Repair", "warning", "Start new engines in place of dead ones. The run can then be resumed."),
)
_AXIS_TIP = "Draw losses over steps, or over seconds since the start. The charts change at once."


class CommonPage(Page):
    """The four live charts that every run has."""

    title = "Common charts"

    def __init__(self, charts: LiveCharts) -> None:
        super().__init__()
        self.panel = charts

    def follow(self, run: Run | None) -> None:
        """Show another run."""
        self.panel.follow(run)

    def update(self, runs: Sequence[Run] = (), *, slow: bool) -> None:
        """Send what is new."""
        self.panel.update()


class LivePage(Pages):
    """The charts that every run has, and under them the pages of families that have anything of the run's system."""

    def __init__(self, common: CommonPage, of_families: Sequence[RunPage]) -> None:
        super().__init__("Live", [common, *of_families])
        self._common, self._of_families = common, of_families
        self._run: Run | None = None

    def follow(self, run: Run | None) -> None:
        """Show another run."""
        self._run = run
        super().follow(run)

    def shown(self) -> list[Page]:
        """The common charts, and what the run's present system has."""
        run = self._run
        return [self._common, *(page for page in self._of_families if run is not None and page.serves(run.config))]


class Dashboard:
    """Sees and steers the runs of one session, in a notebook cell or on a served page.

    As the last expression of a cell it shows itself; ``layout`` is the Panel object, ``widget`` the same as an
    ipywidget. Several dashboards of one session agree: each follows the session's run, wherever it was started or
    changed. Nothing is trained here, and requests are made off the event loop.

    Args:
        session: whose runs are shown.
        config: settings that the controls begin with; else those of the session's newest run, else a suggestion.
    """

    def __init__(self, session: Session, config: RunConfig | None = None) -> None:
        self._resources = load_resources()
        self.session = session
        self.actions = Actions(self._show_problem)
        self.watch = SessionWatch(session)
        self.watch.look()
        self._run: Run | None = None
        self._version = -1
        self._config: RunConfig | None = None
        self._changes = Changes(self._change_ended)
        self._unsent: dict[tuple[str, ...], dict[str, Any]] = {}  # by run and names; newest values of waiting requests
        self._unsent_lock = threading.Lock()
        self._described = self._trouble = ""
        self._of_run = ""  # what was shown last about the run that is followed: its failure, or a refusal
        self._refusal: tuple[str, float] | None = None  # what is shown, and seconds of the newest change by then
        self._graph_is_here = False
        self._ticks = self._gone = 0
        self._closed = False
        self._callback: Any = None
        # StaticText and not panes: see widgets.run_page.text_line
        self.alert = pn.widgets.StaticText(value="", visible=False, margin=(4, 8), styles=_ALERT)
        start = config or self._first_config()
        self.settings = Settings(
            session.ranks, start, lambda name, value: self._apply({name: value}), defer=self.actions.later
        )
        self.charts = LiveCharts(RunWindow(start), defer=self.actions.later, chart_height=CHART_HEIGHT, **STRETCH)
        self.graph = GraphPage(self.settings, self.actions.later)
        self.last_runs = RunsPage(self.actions, session.runs_dir)
        self.opened = self._make_pages()  # in the order of their tabs
        self.pages = {page.title: page for page in self.opened}
        for several in self.opened:
            self.pages |= several.parts if isinstance(several, Pages) else {}
        self.branch = Branch(self.settings, session, self.actions, self._clear_problem)
        self.status = pn.widgets.StaticText(value="", margin=(2, 10), styles=_STATUS)
        self.axis = pn.widgets.RadioButtonGroup(
            options=["steps", "seconds"],
            value="steps",
            margin=(2, 8),
            stylesheets=[labelled("Loss over"), tipped(_AXIS_TIP)],
        )
        self.axis.param.watch(lambda event: self.actions.later(partial(self._draw_over, event.new)), "value")
        self.buttons = {name: self._button(name, *about) for name, *about in _BUTTONS}
        self.layout = self._lay_out()
        self.tick()
        self._start()

    def _first_config(self) -> RunConfig:
        if self.watch.seen.run is not None:
            return self.watch.seen.run.config
        try:
            dataset = default_dataset()
        except LabError as error:
            self._show_problem(str(error))
            dataset = "growing"
        # the generator's default changes so little from snapshot to snapshot that persistence is nearly perfect, and
        # with the default learning rate the test loss ends above persistence
        learnable = {"churn": 0.9, "learning_rate": 3e-3} if dataset == "growing" else {}
        return RunConfig(dataset=dataset, ranks=self.session.ranks, epochs=300, **learnable)

    def _make_pages(self) -> list[Page]:
        """The page of each tab; those of the families of systems are parts of the first."""
        later, session = self.actions.later, self.session
        context = PageContext(later, self._apply, lambda: session.runs)
        of_families = [family.page(context) or ViewsPage(context, family.name) for family in catalogue.families()]
        race = RacePage(self.settings, session, self.actions, runs_dir=session.runs_dir)
        return [
            LivePage(CommonPage(self.charts), of_families),
            self.graph,
            PartitionPage(self.settings, later),
            ComparePage([self.last_runs, race, StudyPage(later, session.runs_dir / "studies")]),
            CardPage(later),
            CodePage(self.settings),
        ]

    def _button(self, name: str, words: str, kind: str, tip: str) -> pn.widgets.Button:
        looks = {"sizing_mode": "stretch_width", "margin": (3, 4), "stylesheets": [tipped(tip)]}
        button = pn.widgets.Button(label=words, color=kind, **looks)
        button.on_click(lambda event: self.actions.later(partial(self._clicked, name)))
        return button

    def _lay_out(self) -> pn.Column:
        rows = [
            pn.Row(*(self.buttons[name] for name in names), margin=(0, 4), sizing_mode="stretch_width")
            for names in (("run", "pause", "stop"), ("resume", "repair"))
        ]
        axis = pn.Row(pn.pane.HTML("Loss over", margin=(8, 0, 0, 10)), self.axis, margin=0)
        theme = ThemeSwitch(margin=(6, 10), width=200)
        of_settings = self.settings
        controls = (of_settings.panel, axis, of_settings.data, of_settings.more, self.branch.panel, theme)
        left = pn.Column(*rows, self.status, self.alert, *controls, width=305, margin=(0, 8, 0, 0))
        self.tabs = pn.Tabs(*((page.title, page.panel) for page in self.opened), **STRETCH, stylesheets=[_TABS])
        below = pn.Row(left, self.tabs, sizing_mode="stretch_width", margin=0)
        return _NotebookColumn(of_settings.cards, below, sizing_mode="stretch_width", margin=4)

    # what a person does

    def _clicked(self, name: str) -> None:
        self._clear_problem()
        run, session = self._run, self.session
        if name == "run":
            try:
                config = self.settings.config()
            except LabError as error:
                self._show_problem(str(error))
                return
            self.actions.do("Run", lambda: session.train(config))
        elif name == "repair":
            self.actions.do("Repair", session.repair)
        elif run is None and self.watch.seen.interrupted is not None:
            self.actions.do("Resume", partial(session.resume, self.watch.seen.interrupted))
        elif run is not None:
            requests: dict[str, Callable[[], Any]] = {
                "pause": run.unpause if run.status == "paused" else run.pause,
                "stop": run.stop,
                "resume": run.resume,
            }
            self.actions.do(name.capitalize(), requests[name])
        self._refresh_state()

    def _draw_over(self, x: XAxis) -> None:
        """Draw losses over steps or seconds."""
        self.charts.over(x)
        self.last_runs.over(x)

    def _apply(self, changes: dict[str, Any]) -> None:
        """Change live settings of the run under way, all by one request.

        While an earlier request for the same settings waits to be sent, it gets the new values: a held arrow key makes
        many.
        """
        run = self._run
        if run is None or not changes:
            return
        self._clear_problem()
        names = (run.id, *sorted(changes))
        with self._unsent_lock:
            if names in self._unsent:
                self._unsent[names] = changes
                return
            self._unsent[names] = changes

        def send() -> tuple[dict[str, Any], int]:
            with self._unsent_lock:
                newest = self._unsent.pop(names)
            return newest, run.set(**newest, by=PAGE)

        def refused() -> None:
            for name in changes:
                self.settings.refused(name, run.config)
            self._is_refusal(run)

        self.actions.do(f"Set {join_words([*changes])}", send, then=partial(self._was_asked, run), otherwise=refused)

    def _was_asked(self, run: Run, sent: tuple[dict[str, Any], int]) -> None:
        if run is not self._run:
            return
        changes, version = sent
        with run.lock:
            for name, value in changes.items():
                at_epoch_end = self.settings.controls[name].option.live == "epoch"
                self._changes.add(name, value, version, run, at_epoch_end=at_epoch_end)
        self._refresh_state()

    def _change_ended(self, change: Change) -> None:
        """A change that waited for the end of the epoch was made, or will not be."""
        run = self._run
        if run is None:
            return
        if change.state == "refused":
            self.settings.refused(change.name, run.config)
            self._described = run.reason
            self._show_problem(run.reason)
            self._is_refusal(run)
        else:
            self.settings.settled(change.name)

    def _is_refusal(self, run: Run) -> None:
        """What is shown now is a refusal: it disappears with the next change that the run makes."""
        self._refusal = self.alert.value, _newest_change_s(run)
        self._of_run = self.alert.value

    def _forget_refusal(self, run: Run) -> None:
        """Hide a refusal once the run has made a later change, wherever it was requested."""
        if self._refusal is None:
            return
        shown, then_s = self._refusal
        if shown != self.alert.value:  # something else is shown
            self._refusal = None
        elif _newest_change_s(run) > then_s:
            self._refusal = None
            self._clear_problem()

    def _show_problem(self, text: str) -> None:
        self.alert.param.update(value=alert_html(text), visible=True)

    def _clear_problem(self) -> None:
        self.alert.param.update(value="", visible=False)

    # what the session does

    def tick(self) -> None:
        """Bring the page up to date; called eight times a second by the event loop."""
        try:
            self._tick()
        except Exception as error:  # the event loop could not handle it: the page shows it
            self._show_problem(describe(error, "the dashboard could not be brought up to date"))

    def _tick(self) -> None:
        self._stop_where_nobody_looks()
        if self.charts.awaited:
            return  # a page that loads would miss what is changed now, and show the old state for ever
        if self.charts.loaded:
            self._remove_resources()
        polled = self.actions.poll()
        slow = self._ticks % SLOW_TICKS == 0
        self._ticks += 1
        if polled or self._ticks % WATCH_TICKS == 0:
            self.watch.wake()
        seen = self.watch.seen
        if seen.problem != self._trouble:
            self._trouble = seen.problem
            if seen.problem:
                self._show_problem(seen.problem)
        if seen.run is not self._run:
            self._follow(seen.run)
        self._update_page(slow=slow)
        self.branch.update(slow=slow)
        run = self._run
        if slow or polled or (run is not None and run.version != self._version and self._ticks % 2):
            self._refresh_state()

    def _remove_resources(self) -> None:
        displays, self._resources = self._resources, []
        remove_resources(displays)

    def _update_page(self, *, slow: bool) -> None:
        """Bring the page that is open up to date; where ``slow``, once a second, all of it."""
        page = self.opened[self.tabs.active]
        page.open()
        self.watch.with_runs = page.compares_runs
        page.update(self.watch.seen.runs, slow=slow)

    def _follow(self, run: Run | None) -> None:
        if self.alert.value == self._of_run:  # of another run, or of an attempt before
            self._clear_problem()
        self._run, self._version, self._described, self._graph_is_here = run, -1, "", False
        self._refusal = None
        self._changes.forget()
        for page in (*self.opened, self.branch):
            page.follow(run)
        if run is not None:
            self._config = run.config
            self.settings.load(run.config)
            self.settings.touched()

    def _refresh_state(self) -> None:
        """Status line, buttons, and live settings as the run has them."""
        run, engines = self._run, self.watch.seen.engines
        state = "idle" if run is None else run.status
        active = state in ACTIVE
        self.settings.run_is_on(active)
        if run is None:
            left = self.watch.seen.interrupted
            self.status.value = status_html(None, engines, self._changes, ready=self.watch.seen.ready, left=left)
        else:
            self._version = run.version
            self._changes.look(run, state)
            if active:
                before, self._config = self._config, run.config
                self.settings.follow(self._config)
                if before != self._config:
                    self.settings.touched()
            with run.lock:
                self.status.value = status_html(run, engines, self._changes, ready=self.watch.seen.ready)
                begun = run.live.progress.step > 0
            self._tell_failure(run, state)
            if begun and not self._graph_is_here:
                self._graph_is_here = True
                self.graph.again()
        self._enable(state, active)

    def _tell_failure(self, run: Run, state: str) -> None:
        """Show once why a run failed, or why something was refused."""
        if not run.reason and self._described:  # the run has made a later change, and forgotten what it refused
            if self.alert.value == alert_html(self._described):
                self._clear_problem()
            self._described = ""
        self._forget_refusal(run)
        ends = {"failed": f"Run {run.id} failed: ", "interrupted": f"Run {run.id} was "}
        if run.reason and run.reason != self._described and state in (*ends, *ACTIVE):
            self._described = run.reason
            self._show_problem(ends.get(state, "") + run.reason)
            self._of_run = self.alert.value
            if state not in ends:
                self._is_refusal(run)

    def _enable(self, state: str, active: bool) -> None:
        engines = self.watch.seen.engines
        whole = bool(engines) and all(engines.values())
        busy = self.actions.busy
        free = self.watch.seen.ready and whole and not busy
        self.buttons["run"].disabled = active or not free
        self.branch.enable(state, free=free)
        self.buttons["pause"].param.update(
            disabled=busy or state not in ("running", "paused"), label="Continue" if state == "paused" else "Pause"
        )
        self.buttons["stop"].disabled = state not in ("starting", "running", "paused")
        left = self._run is None and self.watch.seen.interrupted is not None
        self.buttons["resume"].param.update(
            visible=left or state in ("stopped", "failed", "interrupted"), disabled=busy or not whole
        )
        broken = bool(engines) and (not whole or bool(self.watch.seen.problem))
        self.buttons["repair"].param.update(visible=broken, disabled=busy or active)

    # where it is shown

    def _start(self) -> None:
        if self._callback is None:
            self._gone = 0
            self._callback = pn.state.add_periodic_callback(self.tick, period=PERIOD_MS)

    def _stop_where_nobody_looks(self) -> None:
        """A cell that was run again leaves a dashboard without any display: it must not be updated for ever."""
        self._gone = 0 if self.layout._models else self._gone + 1
        if self._gone > GONE_TICKS:
            self._stop()

    def _stop(self) -> None:
        if self._callback is not None:
            self._callback.stop()
            self._callback = None

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        self._check_open()
        self._start()
        self.charts.expect()
        return self.layout._repr_mimebundle_(include, exclude)

    def servable(self, title: str = TITLE) -> Any:
        """Show the dashboard on the page that ``panel serve`` makes of this program or notebook."""
        self._check_open()
        return self.layout.servable(title=title)

    @property
    def widget(self) -> Any:
        """The dashboard as an ipywidget, to be put beside others."""
        self._check_open()
        return pn.ipywidget(self.layout)

    def _check_open(self) -> None:
        if self._closed:
            raise ControlError("this dashboard is closed: create a new one with lab.Dashboard(session).")

    def close(self) -> None:
        """End the updates, for good; the session and its runs go on."""
        self._closed = True
        self._stop()
        self._remove_resources()
        for page in (*self.opened, self.branch):
            page.close()
        self.watch.close()
        self.actions.close()


def _newest_change_s(run: Run) -> float:
    """Seconds of the run at which it made its newest change; below 0 before the first."""
    with run.lock:
        return max((mark.seconds for mark in run.live.marks), default=-1.0)
