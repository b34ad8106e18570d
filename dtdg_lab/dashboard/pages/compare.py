"""Page Compare: runs, races or studies, one kind at a time; runs are compared by reaching a target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import panel as pn

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import LabError
from dtdg_lab.dashboard.actions import Actions
from dtdg_lab.dashboard.live_charts import FigureCards
from dtdg_lab.dashboard.run_list import MOST, ListedRun, RunChoice, ended_text, read_listed, started_text
from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs.charts import held
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.stored_run import open_run
from dtdg_lab.visualization.chart import Figure
from dtdg_lab.visualization.run_names import differing_names
from dtdg_lab.visualization.studies.comparison import (
    ComparedRuns,
    Spending,
    arrivals,
    compare_runs,
    count_changes,
    difference_of_data,
    headline,
    notice,
    settings_table,
    target_text,
    verdicts,
)
from dtdg_lab.visualization.studies.comparison_charts import (
    energy_caption,
    energy_card,
    loss_caption,
    loss_card,
    target_of,
    trade_caption,
    trade_card,
)
from dtdg_lab.widgets.chart_cards import CardActions, CardSpec
from dtdg_lab.widgets.comparison import ArrivalTable, ComparisonHead, RunList, RunRow
from dtdg_lab.widgets.component import Message
from dtdg_lab.widgets.controls import labelled, tipped
from dtdg_lab.widgets.run_page import STRETCH, Page

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run

LISTED = 100  # number of newest stored runs that are listed
HINT = f"Tick up to {MOST}. Names are yours to change."
LONELY = "Train or open a second run to compare."
TICK = {0: "Tick two runs to compare them.", 1: "Tick a second run to compare."}  # by the number of ticked runs
READING, UNREADABLE = "reading…", "can't be read"
DRAG = "Drag the line to set the target."
OVER_LABELS: Mapping[str, str] = {"seconds": "seconds", "joules": "joules", "bytes": "bytes sent", "steps": "steps"}
CHOICES = (
    ("over", "Validation loss over", OVER_LABELS),
    ("draw", "Draw", {"smooth": "smoothed", "all": "every evaluation"}),
)
_GRID = """:host { display: grid !important; grid-template-columns: 252px minmax(0, 1fr); gap: 10px 14px;
  align-items: start; }
@container (max-width: 760px) { :host { grid-template-columns: minmax(0, 1fr); } }"""
_RIGHT = ":host { gap: 10px; min-width: 0 !important; }"


class ComparePage(Page):
    """Comparisons of several kinds; one of them is shown.

    Args:
        parts: the pages of the kinds.
    """

    title = "Compare"

    def __init__(self, parts: Sequence[Page]) -> None:
        super().__init__()
        self.parts = {part.title: part for part in parts}
        tips = "Which runs are compared: single runs, those of a race, or those of a study."
        self.choice = pn.widgets.RadioButtonGroup(
            options=[*self.parts], value=parts[0].title, margin=(4, 8), stylesheets=[labelled("Compare"), tipped(tips)]
        )
        self.panel = pn.Column(self.choice, *(part.panel for part in parts), **STRETCH)

    @property
    def chosen(self) -> Page:
        """The part that is shown."""
        return self.parts[self.choice.value]

    def open(self) -> None:
        """Show the chosen part with its charts."""
        self.compares_runs, self.needs_settings = self.chosen.compares_runs, self.chosen.needs_settings
        for part in self.parts.values():
            if part.panel.visible != (part is self.chosen):
                part.panel.visible = part is self.chosen
        self.chosen.open()

    def follow(self, run: Run | None) -> None:
        """Show another run."""
        for part in self.parts.values():
            part.follow(run)

    def update(self, runs: Sequence[Run] = (), *, slow: bool) -> None:
        """Show what has changed in the chosen part."""
        self.chosen.update(runs, slow=slow)

    def close(self) -> None:
        """End the threads of all parts."""
        for part in self.parts.values():
            part.close()


@dataclass(slots=True)
class _StoredRuns:
    """Stored runs and names that the reading thread has read.

    Attributes:
        listed: id of a stored run -> its entry in the list.
        tables: id of a run that was opened -> its tables.
        problems: id of a run that could not be opened -> the reason.
        names: id of a run of the session -> the name that a person gave it.
    """

    listed: dict[str, ListedRun] = field(default_factory=dict)
    tables: dict[str, RunTables] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _ReadRequest:
    """A request to the reading thread: tables of stored runs, and names of the session's runs."""

    stored: tuple[Path, ...]
    session: tuple[Path, ...]


class RunsPage(Page):
    """Runs of the session and stored runs, compared by when and at what cost they reach a target.

    Args:
        actions: makes requests.
        runs_dir: the folder of stored runs, of this session and of earlier ones.
    """

    title = "Runs"
    compares_runs = True
    needs_settings = False

    def __init__(self, actions: Actions, runs_dir: Path) -> None:
        super().__init__()
        self._actions, self._runs_dir = actions, runs_dir
        self._choice, self._read = RunChoice(), _StoredRuns()
        self._session: dict[str, Run] = {}
        self._over: Spending = "seconds"
        self._is_smooth = True
        self._target: float | None = None
        self._target_before: float | None = None  # the target before it is dragged
        self._reference: RunConfig | None = None
        self._names: dict[str, str] = {}
        self._named: tuple[Any, ...] = ()
        self._drawing_key: tuple[Any, ...] = ()
        self._loss: Figure = loss_card(compare_runs([]))
        self._reader = self.in_background(self._read_runs, "dashboard-compare")
        self.list = RunList(self._hear_list, defer=actions.later, **STRETCH)
        self.list.draw([], HINT)
        self.head = ComparisonHead(self._hear_head, defer=actions.later, **STRETCH)
        self.table = ArrivalTable(lambda message: None, defer=actions.later, **STRETCH)
        card_actions = CardActions(drag=self._drag, release=self._release, cancel=self._cancel)
        self.cards = FigureCards(
            [
                [CardSpec(name="losses", run="", title="Validation loss", section="whole", idea=DRAG)],
                [
                    CardSpec(name="energy-shares", run="", title="Where the energy went", section="supporting"),
                    CardSpec(name="loss-and-energy", run="", title="Loss against energy", section="supporting"),
                ],
            ],
            card_actions,
            actions.later,
        )
        losses, energy = self.cards.components
        right = pn.Column(self.head, losses, self.table, energy, **STRETCH, stylesheets=[_RIGHT])
        grid = pn.Column(self.list, right, **STRETCH, stylesheets=[_GRID])
        self.panel = pn.Column(grid, **STRETCH)

    def update(self, runs: Sequence[Run] = (), *, slow: bool) -> None:
        """Send the figure whose turn it is; once per second, list the runs and compare them again."""
        if slow:
            self._session = {run.id: run for run in runs}
            self._ask()
            self._show()
        self.cards.tick()

    # reading, in a thread

    def _ask(self) -> None:
        """Let the thread list the stored runs, and open those that are compared."""
        unknown = [name for name in self._choice.colours if name not in self._session and name in self._read.listed]
        stored = [self._read.listed[name].path for name in unknown if name not in self._read.tables]
        session = [run.path for run in self._session.values()]
        self._reader.ask(_ReadRequest(tuple(stored), tuple(session)))

    def _read_runs(self, request: _ReadRequest) -> None:
        state, read = self._read, _StoredRuns()
        ended = sorted((file.parent for file in self._runs_dir.glob("*/summary.json")), reverse=True)[:LISTED]
        for path in ended:
            run = state.listed.get(path.name)
            read.listed[path.name] = read_listed(path) if run is None else run
        read.names = {path.name: RunDirectory(path).name() for path in request.session}
        self._actions.later(partial(self._take, read))
        for path in request.stored:
            if path.name in state.problems:
                continue
            if self._reader.overtaken:
                return
            opened = _StoredRuns()
            try:
                opened.tables[path.name] = open_run(path).live
            except LabError as error:  # the list says why
                opened.problems[path.name] = str(error)
            self._actions.later(partial(self._take, opened))

    def _take(self, read: _StoredRuns) -> None:
        state = self._read
        changed = False
        if read.listed or read.names:
            listed = {name: state.listed.get(name, run) for name, run in read.listed.items()}
            changed = listed != state.listed or read.names != state.names
            state.listed, state.names = listed, read.names
        state.tables |= read.tables
        state.problems |= read.problems
        for name in read.problems:
            self._choice.tick(name, False)
        if changed or read.tables or read.problems:
            self._show()

    # a person's actions

    def _hear_list(self, message: Message) -> None:
        if "tick" in message:
            self._choice.tick(message["tick"], bool(message["on"]))
            self._show()
            self._ask()
            return
        name, new_name = message["rename"], message["name"]
        run = self._session.get(name)
        path = self._read.listed[name].path if run is None else run.path
        self._actions.do(
            "Rename", partial(RunDirectory(path).rename, new_name), then=lambda _: self._take_name(name, new_name)
        )

    def _take_name(self, run_id: str, name: str) -> None:
        if run_id in self._session:
            self._read.names[run_id] = name
        else:
            run = self._read.listed[run_id]
            self._read.listed[run_id] = ListedRun(run.id, run.path, run.config, run.ended, name, run.problem)
        self._show()

    def _hear_head(self, message: Message) -> None:
        if message["name"] == "over":
            self._over = message["value"]
        else:
            self._is_smooth = message["value"] == "smooth"
        self._show()

    def _drag(self, chart: str, handle: str, value: float) -> None:
        if self._target_before is None:
            self._target_before = self._target
        self._target = target_of(value, self._loss)
        self._show(is_urgent=True)

    def _release(self, chart: str, handle: str, value: float) -> None:
        self._target, self._target_before = target_of(value, self._loss), None
        self._show(is_urgent=True)

    def _cancel(self, chart: str) -> None:
        self._target, self._target_before = self._target_before, None
        self._show(is_urgent=True)

    # display

    def _show(self, *, is_urgent: bool = False) -> None:
        """Show the list, and the comparison if anything has changed."""
        session = [self._listed(run) for run in reversed(self._session.values())]
        stored = [run for name, run in self._read.listed.items() if name not in self._session]
        reasons = self._choice.choose(session, stored)
        colours = self._choice.colours
        self._name(session, stored)
        listed = {run.id: run for run in (*session, *stored)}
        compared = [listed[run_id] for run_id in colours]
        self._forget_target(compared)
        self._list(session, stored, reasons)
        tables = {run.id: self._tables(run.id) for run in compared}
        runs = {name: run_tables for name, run_tables in tables.items() if run_tables is not None}
        versions = tuple(
            (name, run_tables.version, colours[name], self._names[name]) for name, run_tables in runs.items()
        )
        is_alone = not any(self._can_tick(run, reasons) for run in (*session, *stored) if run.id not in colours)
        drawing_key = (self._over, self._is_smooth, self._target, versions, is_alone)
        if drawing_key == self._drawing_key:
            return
        self._drawing_key = drawing_key
        with self._locked(runs):
            named = [(self._names[name], run_tables) for name, run_tables in runs.items()]
            comparison = compare_runs(named, self._target, [colours[name] for name in runs])
            self._draw(comparison, is_alone=is_alone, is_urgent=is_urgent)

    def _can_tick(self, run: ListedRun, reasons: Mapping[str, str]) -> bool:
        """Return whether a run that is not compared could be compared."""
        return not (run.problem or run.id in self._read.problems or reasons.get(run.id))

    def _draw(self, comparison: ComparedRuns, *, is_alone: bool, is_urgent: bool) -> None:
        """Draw a comparison; the caller holds the locks of its runs.

        Args:
            comparison: comparison of the ticked runs.
            is_alone: whether there is no other run that could be ticked.
            is_urgent: whether the losses are drawn at once.
        """
        self._loss = loss_card(comparison, self._over, is_smooth=self._is_smooth)
        count = len(comparison.runs)
        headline_text = headline(comparison, self._over) if count > 1 else LONELY if is_alone else TICK[count]
        self.head.draw(
            CHOICES,
            {"over": self._over, "draw": "smooth" if self._is_smooth else "all"},
            headline=" ".join(filter(None, (headline_text, verdicts(comparison)))),
            notice=notice(comparison),
            table=settings_table(comparison),
        )
        target = "" if comparison.target is None else f"target: a loss of {target_text(comparison)}"
        self.table.draw(arrivals(comparison) if comparison.target is not None else [], target)
        self.cards.show("losses", self._loss, loss_caption(comparison), urgent=is_urgent)
        self.cards.show("energy-shares", energy_card(comparison), energy_caption(comparison))
        self.cards.show("loss-and-energy", trade_card(comparison), trade_caption(comparison))

    def _listed(self, run: Run) -> ListedRun:
        """Return a run of the session as an entry of the list."""
        with run.lock:
            config, epoch = run.live.started_config, run.live.progress.epoch
        return ListedRun(run.id, run.path, config, ended_text(run.status, epoch), self._read.names.get(run.id, ""))

    def _tables(self, run_id: str) -> RunTables | None:
        """Return the tables of a run; None if they were not read yet, or cannot be read."""
        run = self._session.get(run_id)
        return self._read.tables.get(run_id) if run is None else run.live

    @contextmanager
    def _locked(self, run_ids: Mapping[str, Any]) -> Iterator[None]:
        """Hold the locks of those runs of the session that are among the given ones."""
        with held(*(run.lock for name, run in self._session.items() if name in run_ids)):
            yield

    def _forget_target(self, compared: Sequence[ListedRun]) -> None:
        """Forget the target if it was set for losses of other data."""
        reference = compared[0].config if compared else None
        if reference is not None and self._reference is not None and difference_of_data(reference, self._reference):
            self._target = self._target_before = None
        self._reference = reference or self._reference

    def _name(self, session: Sequence[ListedRun], stored: Sequence[ListedRun]) -> None:
        """Name the compared runs by how they differ, and each other run by how it differs from these."""
        readable = {run.id: run for run in (*session, *stored) if run.config is not None}
        compared = sorted(
            run_id for run_id in readable if run_id in self._choice.colours
        )  # by time, so the second gets (2)
        state = (tuple((run.id, run.name) for run in readable.values()), tuple(compared))
        if state == self._named:
            return
        self._named = state
        configs = [config for run_id in compared if (config := readable[run_id].config) is not None]
        given_names = [readable[run_id].name for run_id in compared]
        self._names = dict(zip(compared, differing_names(configs, given_names), strict=True))
        for run_id, run in readable.items():
            if run_id not in self._names and run.config is not None:
                self._names[run_id] = differing_names([*configs, run.config], [*given_names, run.name])[-1]

    def _list(self, session: Sequence[ListedRun], stored: Sequence[ListedRun], reasons: Mapping[str, str]) -> None:
        today = date.today()
        groups = [
            (title, [self._row(run, reasons.get(run.id, ""), today) for run in runs])
            for title, runs in (("This session", session), ("Earlier", stored))
            if runs
        ]
        self.list.draw(groups, HINT)

    def _row(self, run: ListedRun, reason: str, today: date) -> RunRow:
        colour, tables = self._choice.colours.get(run.id, ""), self._tables(run.id)
        problem = run.problem or self._read.problems.get(run.id, "")
        state = run.ended
        if problem:
            state = UNREADABLE
        elif reason:
            state = f"{reason}: can't be compared"
        elif colour and tables is None:
            state = READING
        elif colour and tables is not None:
            with self._locked({run.id: run}):
                changes = count_changes(tables)
            state = f"{changes} change{'s' * (changes > 1)} while training" if changes else state
        return RunRow(
            id=run.id,
            name=self._names.get(run.id, run.id),
            given=run.name,
            detail=" · ".join(filter(None, (started_text(run.id, today), state))),
            ticked=bool(colour),
            disabled=not colour and bool(problem or reason or self._choice.is_full),
            colour=colour,
            tone="bad" if problem else "off" if reason or state == READING else "",
            tooltip=problem,
        )
