"""Dashboard on one session: its head, settings and the log of changes on the left, the open view on the right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import panel as pn

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ControlError, LabError
from dtdg_lab.dashboard.actions import Actions, Steering, unless_over
from dtdg_lab.dashboard.engine_list import list_engines
from dtdg_lab.dashboard.live_page import LivePage
from dtdg_lab.dashboard.notebook import NotebookColumn, load_resources, remove_resources
from dtdg_lab.dashboard.page_facts import PauseClock, RunFilesReader, SessionWatch, run_facts, session_facts
from dtdg_lab.dashboard.page_updates import PageUpdates
from dtdg_lab.dashboard.pages.cards import CardPage
from dtdg_lab.dashboard.pages.checkpoints import Branch
from dtdg_lab.dashboard.pages.code import CodePage
from dtdg_lab.dashboard.pages.compare import ComparePage, RunsPage
from dtdg_lab.dashboard.pages.data import GraphPage
from dtdg_lab.dashboard.pages.partition import PartitionPage
from dtdg_lab.dashboard.pages.race import RacePage
from dtdg_lab.dashboard.pages.study import StudyPage
from dtdg_lab.dashboard.settings import Settings
from dtdg_lab.dashboard.states import PageFacts, head_of
from dtdg_lab.datasets.names import default_dataset
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.visualization.run_names import system_title
from dtdg_lab.widgets.controls import folded
from dtdg_lab.widgets.header import Header
from dtdg_lab.widgets.links import LinkEditor
from dtdg_lab.widgets.navigation import Navigation
from dtdg_lab.widgets.run_page import ACTIVE, STRETCH, Page, describe

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run
    from dtdg_lab.cluster.session import Session


TITLE = "DTDG Lab"
WATCH_TICKS = 2  # ticks between two looks at the session
SLOW_TICKS = 8  # ticks between two looks at the cluster, the comparison and, when idle, anything
LIVE = "Live"
_PAGE = ":host { container-type: inline-size; padding: 8px 12px 24px; }"
_BODY = """:host { display: grid !important; gap: 10px 14px; align-items: start; margin-top: 8px;
  grid-template: "left tiles" auto "left picture" auto "left rest" 1fr / auto minmax(0, 1fr); }
:host(.one) { grid-template: "left page" auto / auto minmax(0, 1fr); }
:host(.wide) { grid-template: "page" auto / minmax(0, 1fr); }
@container (max-width: 760px) { :host {
  grid-template: "tiles" auto "picture" auto "left" auto "rest" auto / minmax(0, 1fr); }
  :host(.one) { grid-template: "page" auto "left" auto / minmax(0, 1fr); } }"""
_LEFT = """:host { grid-area: left; width: 252px !important; min-width: 0 !important; gap: 10px; }
@container (max-width: 1200px) { :host { width: 218px !important; } }
@container (max-width: 760px) { :host { width: auto !important; } }"""


def _in_area(name: str) -> str:
    return f":host {{ grid-area: {name}; min-width: 0 !important; gap: 10px; }}"


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
        self._problem = ""
        self._is_stopping = False  # since a click here
        self._trouble = ""  # of the session, as it was shown last
        self.actions = Actions(self._show_problem)
        self.watch = SessionWatch(session)
        self.watch.look()
        self._run: Run | None = None
        self._status = ""
        self._graph_is_here = False
        self._settled: set[int] = set()  # versions of own changes whose outcome was taken over
        self._ticks = 0
        self._closed = False
        later = self.actions.later
        self.steering = Steering(self.actions, self._was_refused)
        self.files = RunFilesReader(self.actions)
        self.header = Header(self._hear_header, defer=later, **STRETCH)
        self.live = LivePage(
            later, self._request, self._show_problem, lambda: [run for run in session.runs if run is not self._run]
        )
        titles = (LIVE, "Data", "Partition", "Compare", "Papers", "Code")
        self.navigation = Navigation(self._choose_card, self.open_view, titles, defer=later, **STRETCH)
        start = config or self._first_config()
        self.settings = Settings(
            session.ranks,
            start,
            self._setting_changed,
            defer=later,
            on_cards=self.navigation.draw,
            on_preview=self._preview,
        )
        self.graph = GraphPage(self.settings, later)
        self.last_runs = RunsPage(self.actions, session.runs_dir)
        race = RacePage(self.settings, session, self.actions, runs_dir=session.runs_dir)
        self.compare = ComparePage([self.last_runs, race, StudyPage(later, session.runs_dir / "studies")])
        self.pages: dict[str, Page] = {
            "Data": self.graph,
            "Partition": PartitionPage(self.settings, later),
            "Compare": self.compare,
            "Papers": CardPage(later),
            "Code": CodePage(self.settings),
        }
        self.branch = Branch(self.settings, session, self.actions, self._clear_problem)
        self.links = LinkEditor(later, self._request)
        self.slow_links = folded("Slow links", self.links.panel)
        self._pause_clock = PauseClock()
        self.settings.watch(self._settings_changed)
        self.layout = self._lay_out()
        self.open_view(LIVE)
        self.live.follow(None, start)
        self._updates = PageUpdates(self.tick, self.layout)
        self.tick()
        self._updates.start()

    def _first_config(self) -> RunConfig:
        if self.watch.state.run is not None:
            return self.watch.state.run.config
        try:
            dataset = default_dataset()
        except LabError as error:
            self._show_problem(str(error))
            dataset = "growing"
        system = next(family.first_visit for family in catalogue.families() if family.first_visit)
        # the generator's default changes so little from snapshot to snapshot that persistence is nearly perfect, and
        # with the default learning rate the test loss ends above persistence
        learnable = {"churn": 0.9, "learning_rate": 3e-3} if dataset == "growing" else {}
        return RunConfig(system=system, dataset=dataset, ranks=self.session.ranks, epochs=300, **learnable)

    def _lay_out(self) -> pn.Column:
        settings, live = self.settings, self.live
        folds = (self.slow_links, settings.layout.fixed, settings.layout.more, self.branch.panel)
        for fold in folds:
            fold.margin = 0
        sections = (settings.layout.box, live.log, *folds)
        self.left = pn.Column(*sections, margin=0, stylesheets=[_LEFT])
        live.tiles.stylesheets = [_in_area("tiles")]
        live.picture.stylesheets = [_in_area("picture") + ":host { gap: 0; }"]
        live.rest.stylesheets = [_in_area("rest")]
        views = pn.Column(*(page.panel for page in self.pages.values()), **STRETCH, stylesheets=[_in_area("page")])
        self._views = views
        self._body = pn.Column(self.left, live.tiles, live.picture, live.rest, views, **STRETCH, stylesheets=[_BODY])
        return NotebookColumn(
            self.header, self.navigation, self._body, sizing_mode="stretch_width", stylesheets=[_PAGE]
        )

    # what a person does

    def open_view(self, title: str) -> None:
        """Open one of the views."""
        self.navigation.open(title)
        is_live = title == LIVE
        for part in (self.live.tiles, self.live.rest):
            part.visible = is_live
        self._show_picture()
        self._views.visible = not is_live
        for name, page in self.pages.items():
            page.panel.visible = name == title
        if not is_live:
            self.pages[title].open()
        self._show_settings()

    def _show_settings(self) -> None:
        """Show the settings, with the log of changes, beside the views that need them."""
        if self.navigation.view == LIVE:
            is_shown, classes = True, []
        else:
            is_shown = self.pages[self.navigation.view].needs_settings
            classes = ["one" if is_shown else "wide"]
        if (self.left.visible, self._body.css_classes) != (is_shown, classes):
            self.left.visible, self._body.css_classes = is_shown, classes

    def _show_picture(self) -> None:
        """Show the picture where the view has one; some systems have none."""
        is_shown = self.navigation.view == LIVE and bool(self.live.charts.picture.specs)
        if self.live.picture.visible != is_shown:
            self.live.picture.visible = is_shown

    def _choose_card(self, name: str) -> None:
        self.settings.choose_card(name)

    def _hear_header(self, message: Mapping[str, Any]) -> None:
        run = self._run
        if "name" not in message:
            self.act(message["action"])
        elif run is not None:
            rename = partial(RunDirectory(run.path).rename, message["name"])
            self.actions.do("Rename", rename, then=lambda _: self.files.read())

    def act(self, action: str) -> None:
        """Do what a button or an entry of the menu asks for."""
        if action not in ("details", "engines"):
            self._clear_problem()
        run, session = self._run, self.session
        if action == "run":
            try:
                config = self.settings.config()
            except LabError as error:
                self._show_problem(str(error))
                return
            self.actions.do("Run", lambda: session.train(config))
        elif action == "repair":
            self.actions.do("Restart engines", session.repair)
        elif action == "engines":
            self.header.tell_details("Engines", list_engines(self.watch.state.engines))
        elif action == "resume" and run is None and self.watch.state.interrupted is not None:
            self.actions.do("Resume", partial(session.resume, self.watch.state.interrupted))
        elif action == "compare":
            self.compare.choice.value = self.last_runs.title
            self.open_view("Compare")
        elif run is not None:
            self._act_on(run, action)
        self._draw_head()

    def _act_on(self, run: Run, action: str) -> None:
        if action in ("pause", "stop", "resume"):
            self._is_stopping = action == "stop"
            requests: dict[str, Callable[[], Any]] = {
                "pause": partial(unless_over, run, run.unpause if run.status == "paused" else run.pause),
                "stop": partial(unless_over, run, run.stop),
                "resume": run.resume,
            }
            self.actions.do(action.capitalize(), requests[action], then=lambda _: self.header.show_again())
        elif action == "report":
            then, otherwise = self.header.open_page, self.header.close_page
            self.actions.do("Open the report", lambda: _report_of(run), then=then, otherwise=otherwise)
        elif action == "details":
            details = f"{run.reason}\n\nFolder: {run.path}"
            self.header.tell_details("Why the run ended", details)
        elif action in ("copy_id", "copy_folder"):
            self.header.copy(run.id if action == "copy_id" else str(run.path))

    def _setting_changed(self, name: str, value: Any) -> None:
        self.live.charts.end_drag()
        self._request({name: value})

    def _preview(self, name: str, value: Any) -> None:
        """Draw what a setting would mean while its slider is dragged."""
        if self.navigation.view == LIVE:
            self.live.charts.preview({name: value})

    def _settings_changed(self) -> None:
        """Draw what the settings mean while there is no run, and suggest what to try in the next one."""
        if self._run is not None and self._run.status in ACTIVE:
            return
        try:
            config = self.settings.config()
        except LabError:  # incompatible settings: Run says why
            return
        if self._run is None:
            self.live.wait_with(config)
        else:
            self.live.suggest_for(config)
            self.live.charts.end_drag()  # of a slider: its value is for the next run
        self._draw_head()

    def _request(self, changes: Mapping[str, Any]) -> None:
        """Change settings: of the run under way, else of the next one."""
        run = self._run
        if run is None or run.status not in ACTIVE:
            self.settings.run_is_on(False)  # which has ended since the last look, perhaps
            self.settings.take(changes)
        elif changes:
            self._clear_problem()
            self.steering.request(run, changes)

    def _was_refused(self, run: Run, names: Sequence[str]) -> None:
        """Show the run's own values again after a request was refused at once."""
        for name in names:
            self.settings.refused(name, run.config)

    def _show_problem(self, text: str) -> None:
        self._problem, self._is_stopping = text, False

    def _clear_problem(self) -> None:
        self._problem = ""

    # what the session does

    def tick(self) -> None:
        """Bring the page up to date; called eight times a second by the event loop."""
        try:
            self._tick()
        except Exception as error:  # the event loop could not handle it: the page shows it
            self._show_problem(describe(error, "the dashboard could not be brought up to date"))

    def _tick(self) -> None:
        self._updates.stop_where_nobody_looks()
        cards = self.live.charts.others
        if cards.awaited:
            return  # a page that loads would miss what is changed now, and show the old state for ever
        if cards.loaded:
            self._remove_resources()
        polled = self.actions.poll()
        slow = self._ticks % SLOW_TICKS == 0
        self._ticks += 1
        if polled or self._ticks % WATCH_TICKS == 0:
            self.watch.wake()
        session_state = self.watch.state
        if session_state.run is not self._run:
            self._follow(session_state.run)
        if session_state.problem != self._trouble:
            if session_state.problem:
                self._show_problem(session_state.problem)
            elif self._problem == self._trouble:  # it is over
                self._clear_problem()
            self._trouble = session_state.problem
        self._update_view(slow=slow)
        self._show_picture()
        self.branch.update(slow=slow)
        if slow:
            self.links.update(self._run)
            self.slow_links.visible = self.links.panel.visible
        if slow or polled or self._ticks % 2:
            self._refresh()

    def _remove_resources(self) -> None:
        displays, self._resources = self._resources, []
        remove_resources(displays)

    def _update_view(self, *, slow: bool) -> None:
        """Bring the view that is open up to date; where ``slow``, once a second, all of it."""
        if self.navigation.view == LIVE:
            self.live.tick()
            return
        page = self.pages[self.navigation.view]
        page.open()
        self._show_settings()
        self.watch.with_runs = page.compares_runs
        page.update(self.watch.state.runs, slow=slow)

    def _follow(self, run: Run | None) -> None:
        self._clear_problem()
        self._trouble = ""  # which is shown again if it continues
        is_resumed = run is not None and self._run is not None and run.id == self._run.id
        self._run, self._status, self._graph_is_here, self._is_stopping = run, "", False, False
        if not is_resumed:
            self.steering.follow()
        self._settled.clear()
        self.files.follow(None if run is None else run.path)
        for page in (*self.pages.values(), self.branch):
            page.follow(run)
        self.live.follow(run, self.settings.config() if run is None else run.config)
        self.links.follow(run)
        self.slow_links.visible = self.links.panel.visible
        if run is not None:
            self.slow_links.collapsed = "features" not in catalogue.system(run.config.system).parts
            self.settings.load(run.config)
            self.settings.touched()

    def _refresh(self) -> None:
        """Bring the head, the settings and the texts of the run up to date."""
        run = self._run
        status = "" if run is None else run.status
        active = status in ACTIVE
        if status != self._status:
            self._status = status
            self.settings.run_is_on(active)
            self.settings.layout.say_next_run(bool(status) and not active)
            self.navigation.be_idle(run is None)
            self.files.read()
            self.live.charts.draw_again()
        if run is not None and active:
            previous_config = self.settings.of_run
            self.settings.follow(run.config)
            if previous_config != run.config:
                self.settings.touched()
        if self.left.visible:  # with the log of changes
            self.live.update(self.steering.own, slow=self._ticks % SLOW_TICKS == 1, is_active=active)
        if run is not None:
            self._settle(run, active=active)
        if run is not None and not self._graph_is_here and run.live.steps:
            self._graph_is_here = True
            self.graph.again()
        self._draw_head()

    def _settle(self, run: Run, *, active: bool) -> None:
        """Show the run's values where what was chosen for the end of an epoch was applied, or will not be."""
        for change in self.live.changes:
            is_open = change.outcome in ("asked", "waiting")
            if is_open or change.version not in self.steering.own or change.version in self._settled:
                continue
            self._settled.add(change.version)
            for name in filter(self.settings.is_waiting, change.changes):
                if active:
                    self.settings.refused(name, run.config)
                else:  # what was chosen is for the next run now
                    self.settings.settled(name)

    def _draw_head(self) -> None:
        session_state, run = self.watch.state, self._run
        facts: PageFacts = session_facts(session_state)
        if run is not None:
            with run.lock:
                facts = run_facts(facts, run, self.files.facts, self._pause_clock.look(run.status))
            if self._is_stopping and facts.status in ("running", "paused"):
                facts = replace(facts, status="stopping")
        free = facts.ready and facts.engines_ready == facts.engines and not self.actions.busy
        self.branch.enable(facts.status or "idle", free=free)
        self.header.draw(
            head_of(
                replace(
                    facts,
                    system=system_title(self.settings.system),
                    is_other=run is not None and run.config.system != self.settings.system,
                    busy=self.actions.busy,
                    page_is_busy=self.live.charts.order.is_busy,
                    problem=self._problem,
                )
            )
        )

    # where it is shown

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        self._check_open()
        self._updates.start()
        for cards in (self.live.charts.picture, self.live.charts.others):
            cards.expect()
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
        self._updates.stop()
        self._remove_resources()
        for page in (*self.pages.values(), self.branch):
            page.close()
        self.files.close()
        self.live.charts.close()
        self.watch.close()
        self.actions.close()


def _report_of(run: Run) -> str:
    """Return the report of a run as HTML; it is written first where the run has none yet."""
    directory = RunDirectory(run.path)
    path = directory.report_file if directory.report_file.is_file() else StoredRun(directory).report()
    return path.read_text(encoding="utf-8")
