"""Page Schedule: the schedule of a run's snapshot groups, its group times, and what other schedulers would give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import panel as pn
from numpy.typing import NDArray

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.units import format_seconds
from dtdg_lab.systems.snapshot_groups import charts
from dtdg_lab.systems.snapshot_groups.events import ScheduleFacts
from dtdg_lab.systems.snapshot_groups.schedulers.base import replay
from dtdg_lab.systems.snapshot_groups.time_model import predict_epochs
from dtdg_lab.visualization.charts import Panel
from dtdg_lab.visualization.layout import share
from dtdg_lab.widgets.live import tipped
from dtdg_lab.widgets.run_page import ACTIVE, STRETCH, PageContext, RunPage, describe, show_text, text_line

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run


# What a run has measured: schedules of the same groups are compared by it.


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
    def scheduler(self) -> str:
        """As the room ``scheduling`` calls it: round robin with one group a rank is ``psg``."""
        one = (self.facts.scheduler, self.facts.rank_groups) == ("round_robin", 1)
        return charts.PSG if one else self.facts.scheduler


def calibrate(view: charts.ScheduleView) -> ScheduleCalibration | None:
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
            other = calibrate(run.live.view("schedule"))
        if other is None or other.epoch_s is None or len(other.times_s) != len(own.times_s):
            continue
        if (other.scheduler, other.facts.rank_groups) == (own.scheduler, own.facts.rank_groups):
            found[other.facts.ranks] = other.epoch_s
    return found if own.epoch_s is None else {**found, own.facts.ranks: own.epoch_s}


def _alike(one: RunConfig, other: RunConfig) -> bool:
    first, second = ({name: value for name, value in each.flat.items() if name not in _FREE} for each in (one, other))
    return first == second


def _exchange_s(epoch: charts.Epoch) -> float:
    """Mean seconds of an iteration's all-reduce, on the rank where it took longest."""
    steps: dict[int, dict[int, int]] = {}
    for block in epoch.of("communicate"):
        ranks = steps.setdefault(block.step, {})
        ranks[block.rank] = ranks.get(block.rank, 0) + block.end_ns - block.start_ns
    return fmean(max(ranks.values()) for ranks in steps.values()) / 1e9 if steps else 0.0


def _followed(epoch: charts.Epoch, facts: ScheduleFacts) -> bool:
    """Whether all of the epoch's iterations were computed as the schedule says."""
    steps: dict[int, set[int]] = {}
    for block in epoch.of("group"):
        steps.setdefault(block.step, set()).add(block.group)
    done = [steps[step] for step in sorted(steps)]
    return not epoch.cut and done == [{group for part in row for group in part} for row in facts.assignment]


# Other schedulers and other numbers of ranks for a run's groups.


RANKS = (1, 2, 4, 8, 16)
TIME_LIMIT_S = 1.0  # for each scheduler that searches

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


def _answer(wanted: WantedSchedule, runs: Callable[[], Sequence[Run]]) -> ScheduleAnswer:
    """In the thread. ``runs`` gives the session's runs, oldest first, whose epochs are compared with."""
    problems: list[str] = []

    def tried(what: str, ask: Callable[[], tuple[Row, ...]]) -> tuple[Row, ...]:
        try:
            return ask()
        except Exception as error:  # one answer that fails leaves the other; there is no caller to raise to
            problems.append(f"{what}: {describe(error, what)}")
            return ()

    others = tried("the other schedulers", lambda: _others(wanted, problems))
    epochs = tried("other numbers of ranks", lambda: _epochs(wanted, runs()))
    return ScheduleAnswer(others, epochs, " ".join(problems))


def _epochs(wanted: WantedSchedule, runs: Iterable[Run]) -> tuple[Row, ...]:
    """Epochs on other numbers of ranks, predicted, with those that were measured."""
    known = wanted.measured
    measured = measured_epochs(known, wanted.config, runs)
    ranks = {*(count for count in RANKS if count <= len(known.times_s)), known.facts.ranks, *measured}
    found = predict_epochs(
        known.times_s,
        measured_on=known.facts.ranks,
        ranks=sorted(ranks),
        scheduler=known.scheduler,
        per_rank=known.facts.rank_groups,
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
            per_rank=known.facts.rank_groups,
            allreduce_s=known.exchange_s,
            schedulers=schedulers,
            time_limit_s=TIME_LIMIT_S,
            seed=wanted.config.seed,
        )
        problems.extend(f"{name}: {why}" for name, why in found.missing)
        return tuple(found.rows())

    rows = ask(None)
    in_use = charts.name_of(facts)
    return rows if any(row["scheduler"] == in_use for row in rows) else (*rows, *ask([in_use]))


# The schedule of a run's snapshot groups: who computes what when, who waits, and what others would have done.


ASK = "How long would an epoch of this run take with other schedulers, or on other numbers of ranks?"
COSTS = "The solvers use one core for some seconds. A run on this machine is slower meanwhile."
TOO_EARLY = "No group of this schedule has been timed yet. Ask again after the first epoch."
_SHARED = 0.8  # processor seconds over wall-clock seconds below which ranks shared cores
_QUICK = 300  # blocks of a Gantt chart up to which it is drawn eight times a second; larger ones half as often
_HIGH, _ROW = 330, 17  # pixels: a chart, and a rank of the Gantt chart


class SchedulePage(RunPage):
    """The Gantt chart as live as the run; imbalance, waste, group times and the other schedulers once a second.

    A thread asks the other schedulers, and predicts epochs on other numbers of ranks. It does so on request, and for a
    run that is over when its page is opened.
    """

    title, family = "Schedule", "snapshot_groups"
    data = "schedule"

    def __init__(self, context: PageContext) -> None:
        super().__init__(context)
        self._facts: ScheduleFacts | None = None
        self._shown: Panel | None = None  # the Gantt chart
        self._passed_over = False
        self._panels: list[Panel] = []
        self._epochs: Panel | None = None
        self._wanted: WantedSchedule | None = None  # the newest request
        self._asked: ScheduleFacts | None = None  # the schedule it was about
        self._worker = self.in_background(self._work, "dashboard-schedules")
        self.gantt = self.add_charts(_HIGH)
        self.button = pn.widgets.Button(label="Ask", color="primary", width=80, margin=(8, 8), visible=False)
        self.button.stylesheets = [tipped("Schedule the measured group times by other schedulers and on other ranks.")]
        self.button.on_click(lambda event: context.defer(self._ask))
        self.status = text_line(margin=(8, 10), visible=False)
        self.lay_out(self.gantt, pn.Row(self.button, self.status, **STRETCH), self.charts)

    # what the run has

    def follow(self, run: Run | None) -> None:
        """Show another run."""
        super().follow(run)
        self._asked, self._shown, self._panels = None, None, []
        self._take_schedule(None)

    def update(self, runs: Sequence[Run] = (), *, slow: bool) -> None:
        """Draw the Gantt chart again where something changed, and the rest once a second."""
        run = self._run
        if run is None or (run.version == self._version and not slow):
            return
        self._passed_over = not slow and self._is_large and not self._passed_over
        if self._passed_over:
            return
        with run.lock:
            changed, self._version = run.version != self._version, run.version
            view = run.live.view("schedule")
            facts = view.facts
            self._shown = None if facts is None else view.gantt_panel()
            if slow:
                self._panels, words = view.panels()[1:], view.caption()
        if facts is not self._facts:
            self._take_schedule(facts)
        if changed:
            self._draw_gantt()
        if slow:
            self.say(words)
            self._draw()
            if facts is not None and facts is not self._asked and run.status not in ACTIVE:
                self._ask()

    @property
    def _is_large(self) -> bool:
        return self._shown is not None and sum(len(trace["x"]) for trace in self._shown[0]["data"]) > _QUICK

    def _take_schedule(self, facts: ScheduleFacts | None) -> None:
        """There is another schedule, or none: predictions from the last one are dropped."""
        self._facts, self._epochs, self._wanted = facts, None, None
        show_text(self.status, f"{ASK} {COSTS}")
        for widget in (self.button, self.status):
            widget.visible = facts is not None

    # what a person asks, and what the thread answers

    def _ask(self) -> None:
        run = self._run
        if run is None:
            return
        with run.lock:
            known = calibrate(run.live.view("schedule"))
            self._asked = run.live.view("schedule").facts
        if known is None:
            show_text(self.status, TOO_EARLY, problem=True)
            return
        self._wanted = WantedSchedule(run, run.config, known)
        show_text(self.status, f"{ASK} Computing …")
        self._worker.ask(self._wanted)

    def _work(self, wanted: WantedSchedule) -> None:
        """In the thread."""
        outcome = _answer(wanted, self._context.runs)
        self._context.defer(lambda: self._came(wanted, outcome))

    def _came(self, wanted: WantedSchedule, outcome: ScheduleAnswer) -> None:
        if wanted is not self._wanted or wanted.run is not self._run:
            return  # there is a newer request
        view = wanted.run.live.view("schedule")
        with wanted.run.lock:
            current = view.facts is wanted.measured.facts
            if current:
                view.replayed(outcome.others)
                self._panels = view.panels()[1:]
        if not current:  # the next update sees the new schedule, and offers to ask again
            return
        if outcome.epochs:
            figure, words = charts.epoch_times_figure(outcome.epochs)
            self._epochs = figure, f"{words} {basis_words(wanted.measured)}"
        show_text(
            self.status, outcome.why_not or _answered(wanted.measured, outcome.others), problem=bool(outcome.why_not)
        )
        self._draw()

    # what is drawn

    def _draw_gantt(self) -> None:
        """The Gantt chart, higher where there are many ranks."""
        if self._shown is None or self._facts is None:
            self.gantt.draw({})
            return
        figure, caption = self._shown
        height = max(_HIGH, _HIGH // 2 + _ROW * self._facts.ranks)
        self.gantt.draw({"gantt": ({**figure, "layout": {**figure["layout"], "height": height}}, caption)})

    def _draw(self) -> None:
        """The other charts, and the epochs predicted."""
        panels = {str(place): panel for place, panel in enumerate(self._panels)}
        self.charts.draw(panels if self._epochs is None else {**panels, "epochs": self._epochs})


def basis_words(known: ScheduleCalibration) -> str:
    """What predictions are made from, and what they leave out."""
    facts, on = known.facts, f"{known.facts.ranks} rank{'s' if known.facts.ranks > 1 else ''}"
    more = f"{format_seconds(known.step_s)} of other work an iteration"
    if facts.ranks > 1:
        more = f"all-reduces of {format_seconds(known.exchange_s)} and {more}"
    text = f"From {known.scheduler}'s group times on {on}, {more}; group times are assumed not to depend on it."
    if facts.ranks == 1:
        text += " One rank has no all-reduce to measure: none is added."
    if known.processor is not None and known.processor < _SHARED:
        text += f" But these ranks had {share(known.processor)} of a core: each with its own core is faster."
    return text


def _answered(known: ScheduleCalibration, others: Sequence[Row]) -> str:
    when = f"Asked with the group times up to epoch {known.epoch}" if known.epoch else "Asked with the times so far"
    return f"{when}: {len(others)} schedulers and the run's own on other numbers of ranks. Ask again for newer times."
