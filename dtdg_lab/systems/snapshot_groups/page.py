"""Page Schedule: measure group times, compare schedulers, and apply one."""

from __future__ import annotations

import html
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import panel as pn
from numpy.typing import NDArray

from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import LabError
from dtdg_lab.core.units import format_seconds
from dtdg_lab.dashboard.actions import ACTIVE, NewestFirst, describe
from dtdg_lab.dashboard.live import OpenedPage, WholeCharts
from dtdg_lab.systems.snapshot_groups.charts import (
    PSG,
    Epoch,
    Panel,
    ScheduleFacts,
    ScheduleView,
    epoch_times_figure,
    format_share,
    name_of,
)
from dtdg_lab.systems.snapshot_groups.schedulers.simulation import replay
from dtdg_lab.systems.snapshot_groups.time_model import predict_epochs
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.style import coloured

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run


# What a run's schedule view tells about its time: what schedules of the same groups can be judged by.


# settings in which runs may differ whose epochs are compared: numbers of ranks, and what a schedule was made from
_FREE = (
    "system",
    "ranks",
    "parts",
    "epochs",
    "scheduler",
    "groups_per_rank",
    "group_times",
    "profile_epochs",
    "schedule_gap",
    "schedule_limit_s",
    "schedule_targets",
)


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleCalibration:
    """Seconds that a run measured.

    Attributes:
        facts: of its schedule.
        times_s: (K,) of each group; as the scheduler knew it where not measured.
        exchange_s: of the all-reduce of an iteration, without waiting; 0 on one rank.
        step_s: of an iteration beside own work, waiting and all-reduce.
        epoch: from 1; the newest that was measured as a whole. 0 where there is none.
        epoch_s: of the steps of that epoch; None where there is none.
        processor: processor seconds over wall-clock seconds of the groups; None where unknown.
    """

    facts: ScheduleFacts
    times_s: NDArray[np.float64]
    exchange_s: float
    step_s: float
    epoch: int
    epoch_s: float | None
    processor: float | None

    @property
    def per_rank(self) -> int:
        """Most groups of a rank in an iteration."""
        return max(1, self.facts.per_rank * self.facts.parts // self.facts.ranks)

    @property
    def scheduler(self) -> str:
        """As the room ``scheduling`` calls it: round robin with one group a rank is ``psg``."""
        one = (self.facts.scheduler, self.per_rank) == ("round_robin", 1)
        return PSG if one else self.facts.scheduler


def calibrate(view: ScheduleView) -> ScheduleCalibration | None:
    """What the view knows now, the run's lock being held; None before a group of its schedule was measured."""
    facts = view.facts
    if facts is None or not np.isfinite(view.times.seconds(facts.groups)).any():
        return None
    drawn = view.gantt.shown(facts.groups)
    exchange_s = 0.0 if drawn is None or facts.ranks == 1 else _exchange_s(drawn)
    known = [each for each in view.balance.recent() if drawn is not None and each.epoch == drawn.number]
    rest_s = sum(each.time_s - each.critical_s for each in known) / max(1, sum(each.iterations for each in known))
    whole = [each for each in known if drawn is not None and _followed(drawn, facts)]
    whole = [each for each in whole if each.iterations == facts.iterations]
    return ScheduleCalibration(
        facts,
        view.times_s(),
        exchange_s,
        max(0.0, rest_s - exchange_s),
        whole[0].epoch + 1 if whole else 0,
        whole[0].time_s if whole else None,
        view.times.processor_share(),
    )


def measured_epochs(own: ScheduleCalibration, config: RunConfig, runs: Iterable[Run]) -> dict[int, float]:
    """Ranks -> seconds of an epoch that was measured on so many; of several runs the newest counts.

    Args:
        own: of the run on screen.
        config: its settings.
        runs: oldest first; those that differ in more than ranks are passed over, as are those scheduled otherwise.
    """
    found: dict[int, float] = {}
    for run in runs:
        if not _alike(run.config, config):
            continue
        with run.lock:
            other = calibrate(run.window.view("schedule"))
        if other is None or other.epoch_s is None or len(other.times_s) != len(own.times_s):
            continue
        if (other.scheduler, other.per_rank) == (own.scheduler, own.per_rank):
            found[other.facts.ranks] = other.epoch_s
    return found if own.epoch_s is None else {**found, own.facts.ranks: own.epoch_s}


def _alike(one: RunConfig, other: RunConfig) -> bool:
    first, second = ({name: value for name, value in each.flat.items() if name not in _FREE} for each in (one, other))
    return first == second


def _exchange_s(epoch: Epoch) -> float:
    """Mean seconds of an iteration's all-reduce, on the rank where it took longest."""
    steps: dict[int, dict[int, int]] = {}
    for block in epoch.of("communicate"):
        ranks = steps.setdefault(block.step, {})
        ranks[block.rank] = ranks.get(block.rank, 0) + block.end_ns - block.start_ns
    return fmean(max(ranks.values()) for ranks in steps.values()) / 1e9 if steps else 0.0


def _followed(epoch: Epoch, facts: ScheduleFacts) -> bool:
    """Whether all of the epoch's iterations were computed as the schedule says."""
    steps: dict[int, set[int]] = {}
    for block in epoch.of("group"):
        steps.setdefault(block.step, set()).add(block.group)
    done = [steps[step] for step in sorted(steps)]
    return not epoch.cut and done == [{group for part in row for group in part} for row in facts.assignment]


# Other schedulers and other numbers of ranks for a run's groups, asked by a thread: the page must not wait.


RANKS = (1, 2, 4, 8, 16)
TIME_LIMIT_S = 1.0  # for each scheduler that searches
_LOG = logging.getLogger(__name__)

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class WantedSchedule:
    """The run whose schedule is looked at, its settings then, and what it had measured."""

    run: Run
    config: RunConfig
    measured: ScheduleCalibration


@dataclass(frozen=True, slots=True)
class ScheduleAnswer:
    """Rows of ``scheduling.replay`` and of ``scheduling.epoch_times``; what could not be had is in ``why_not``."""

    others: tuple[Row, ...] = ()
    epochs: tuple[Row, ...] = ()
    why_not: str = ""


class ScheduleAsker:
    """Answers what was asked last; ``on_outcome(wanted, outcome)`` is called by the thread.

    Args:
        runs: gives the session's runs, oldest first, whose epochs are compared with; called by the thread.
        on_outcome: takes each answer.
    """

    def __init__(
        self, runs: Callable[[], Sequence[Run]], on_outcome: Callable[[WantedSchedule, ScheduleAnswer], None]
    ) -> None:
        self._runs, self._on_outcome = runs, on_outcome
        self._worker = NewestFirst(self._work, "dashboard-schedules")

    def ask(self, wanted: WantedSchedule) -> None:
        """Answer this next."""
        self._worker.ask(wanted)

    def close(self) -> None:
        """End the thread once it has finished what it does."""
        self._worker.close()

    def _work(self, wanted: WantedSchedule) -> None:
        self._on_outcome(wanted, self._answer(wanted))

    def _answer(self, wanted: WantedSchedule) -> ScheduleAnswer:
        problems: list[str] = []

        def tried(what: str, ask: Callable[[], tuple[Row, ...]]) -> tuple[Row, ...]:
            try:
                return ask()
            except Exception as error:  # one answer that fails leaves the other; there is no caller to raise to
                if not isinstance(error, LabError):
                    _LOG.exception("%s", what)
                problems.append(f"{what}: {describe(error)}")
                return ()

        others = tried("the other schedulers", lambda: _others(wanted, problems))
        epochs = tried("other numbers of ranks", lambda: self._epochs(wanted))
        return ScheduleAnswer(others, epochs, " ".join(problems))

    def _epochs(self, wanted: WantedSchedule) -> tuple[Row, ...]:
        known = wanted.measured
        measured = measured_epochs(known, wanted.config, self._runs())
        ranks = {*(count for count in RANKS if count <= len(known.times_s)), known.facts.ranks, *measured}
        found = predict_epochs(
            known.times_s,
            measured_on=known.facts.ranks,
            ranks=sorted(ranks),
            scheduler=known.scheduler,
            per_rank=known.per_rank,
            allreduce_s=known.exchange_s,
            step_s=known.step_s,
            measured_s=measured,
            time_limit_s=TIME_LIMIT_S,
            seed=wanted.config.seed,
        )
        return tuple(each.row() for each in found)


def _others(wanted: WantedSchedule, problems: list[str]) -> tuple[Row, ...]:
    """What the schedulers of the catalogue would come to, the one in use among them."""
    known = wanted.measured
    facts = known.facts

    def ask(schedulers: Sequence[str] | None) -> tuple[Row, ...]:
        found = replay(
            known.times_s,
            facts.ranks,
            per_rank=known.per_rank,
            allreduce_s=known.exchange_s,
            schedulers=schedulers,
            time_limit_s=TIME_LIMIT_S,
            seed=wanted.config.seed,
        )
        problems.extend(f"{name}: {why}" for name, why in found.missing)
        return tuple(found.rows())

    rows = ask(None)
    in_use = name_of(facts)
    return rows if any(row["scheduler"] == in_use for row in rows) else (*rows, *ask([in_use]))


# The schedule of a run's snapshot groups: who computes what when, who waits, and what others would have done.


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
        self._wanted: WantedSchedule | None = None  # the newest request
        self._asked: ScheduleFacts | None = None  # the schedule it was about
        self._asker = ScheduleAsker(runs, lambda wanted, outcome: defer(lambda: self._came(wanted, outcome)))
        stretch = {"sizing_mode": "stretch_width", "margin": 0}
        self.gantt = WholeCharts(self.gantt_figures, self.gantt_sentences, defer=defer, chart_height=_HIGH, **stretch)
        self.charts = WholeCharts(self.figures, self.captions, defer=defer, chart_height=_HIGH, **stretch)
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
            view = run.window.view("schedule")
            facts = view.facts
            self._gantt = None if facts is None else view.gantt_panel()
            if slow:
                self._panels, words = view.panels()[1:], view.caption()
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
            known = calibrate(run.window.view("schedule"))
            self._asked = run.window.view("schedule").facts
        if known is None:
            self._say(TOO_EARLY, problem=True)
            return
        self._wanted = WantedSchedule(run, run.config, known)
        self._say(f"{ASK} Asking …")
        self._asker.ask(self._wanted)

    def _came(self, wanted: WantedSchedule, outcome: ScheduleAnswer) -> None:
        if wanted is not self._wanted or wanted.run is not self._run:
            return  # something else has been asked for since
        view = wanted.run.window.view("schedule")
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

    def captions(self) -> dict[str, str]:
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


def basis_words(known: ScheduleCalibration) -> str:
    """What predictions are made from, and what they leave out."""
    facts, on = known.facts, f"{known.facts.ranks} rank{'s' if known.facts.ranks > 1 else ''}"
    more = f"{format_seconds(known.step_s)} of other work an iteration"
    if facts.ranks > 1:
        more = f"all-reduces of {format_seconds(known.exchange_s)} and {more}"
    text = f"From {known.scheduler}'s group times on {on}, {more}; a group is taken to need as long on any number."
    if facts.ranks == 1:
        text += " One rank has no all-reduce to measure: none is added."
    if known.processor is not None and known.processor < _SHARED:
        text += (
            f" But these ranks had {format_share(known.processor)} of a core: with cores of their own they are faster."
        )
    return text


def _answered(known: ScheduleCalibration, others: Sequence[Row]) -> str:
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
