"""Other schedulers and other numbers of ranks for a run's groups, by the times that it measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.systems.snapshot_groups import captions
from dtdg_lab.systems.snapshot_groups.balance import balance_of
from dtdg_lab.systems.snapshot_groups.epoch_blocks import shown_epoch
from dtdg_lab.systems.snapshot_groups.events import ScheduleFacts
from dtdg_lab.systems.snapshot_groups.gantt import TONES, bound_end
from dtdg_lab.systems.snapshot_groups.group_times import EPOCHS, group_times
from dtdg_lab.systems.snapshot_groups.picture import is_scheduled
from dtdg_lab.systems.snapshot_groups.schedulers.base import PSG, ScheduleOutcome, replay
from dtdg_lab.systems.snapshot_groups.time_model import EpochTime, predict_epochs
from dtdg_lab.visualization.axes import NAMES, time_unit
from dtdg_lab.visualization.chart import FIRST_STEP, NOTHING_YET, Chart, ChartOptions, Key, Question, card
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.numbers import percent_text, seconds_text
from dtdg_lab.visualization.palette import TEXT_COLOUR, WARNING_COLOUR
from dtdg_lab.visualization.traces import Drawn, bars, label, level_bars, points, rule

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables

RANKS = (1, 2, 4, 8, 16)
TIME_LIMIT_S = 1.0  # for each scheduler that searches
TOO_EARLY = "No group of this schedule has been timed yet. Ask again after the first epoch."
ASK_FIRST = "Appears once you compare schedulers"
_HIGH = 190  # pixels: a row for each scheduler
_WIDE = 0.36  # of the room of a number of ranks, that a bar takes
_EQUAL = 5e-4  # relative difference below which two epochs are equally long
_USED, _OTHER = TONES["group that the others wait for"][0], TONES["group"][0]
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
class ScheduleMeasurements:
    """Seconds that a run measured of the groups of its schedule.

    Attributes:
        schedule: whose groups they are.
        times_s: (K,) of each group; as the scheduler knew it where not measured.
        exchange_s: of the all-reduce of an iteration, without waiting; 0 on one rank.
        step_s: of an iteration beside own work, waiting and all-reduce.
        epoch_s: of the steps of the last epoch that was computed as the schedule says; None where there is none.
        seed: of the run.
    """

    schedule: ScheduleFacts
    times_s: NDArray[np.float64]
    exchange_s: float
    step_s: float
    epoch_s: float | None
    seed: int

    @property
    def name(self) -> str:
        """Name of the scheduler."""
        return scheduler_name(self.schedule)


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleQuestion:
    """What is asked about a run.

    Attributes:
        run: what it measured.
        epochs_s: ranks -> seconds of an epoch that was measured on so many.
    """

    run: ScheduleMeasurements
    epochs_s: Mapping[int, float]


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleAnswer:
    """What other schedulers and other numbers of ranks would give.

    Attributes:
        schedule: about which it was asked.
        schedulers: one outcome each, the one in use among them.
        epochs: one for each number of ranks.
        missing: schedulers that are not installed.
    """

    schedule: ScheduleFacts
    schedulers: tuple[ScheduleOutcome, ...]
    epochs: tuple[EpochTime, ...]
    missing: tuple[str, ...] = ()


def scheduler_name(schedule: ScheduleFacts) -> str:
    """Return the scheduler as a replay names it: round robin with one group a rank is the system ``psg``."""
    return PSG if (schedule.scheduler, schedule.rank_groups) == ("round_robin", 1) else schedule.scheduler


def measurements(tables: RunTables) -> ScheduleMeasurements | None:
    """Return what a run has measured; None before a group of its schedule was."""
    times, blocks = group_times(tables), shown_epoch(tables)
    if times is None or blocks is None or not np.isfinite(times.seconds).any():
        return None
    schedule, balance = times.schedule, balance_of(tables, blocks.epoch)
    exchange_s = blocks.exchange_s() if schedule.ranks > 1 else 0.0
    rest_s = (balance.time_s - balance.critical_s) / balance.iterations if balance else 0.0
    is_followed = blocks.schedule is schedule and blocks.follows_schedule()
    is_timed = balance is not None and balance.iterations == schedule.iterations
    return ScheduleMeasurements(
        schedule=schedule,
        times_s=times.best_s,
        exchange_s=exchange_s,
        step_s=max(0.0, rest_s - exchange_s),
        epoch_s=balance.time_s if balance and is_followed and is_timed else None,
        seed=tables.config.seed,
    )


def prepare(tables: RunTables, others: Sequence[RunTables] = ()) -> ScheduleQuestion:
    """Return what to ask about a run.

    Args:
        tables: of the run.
        others: tables of runs whose epochs are compared with, oldest first; the newest of a number of ranks counts.

    Raises:
        NotAvailableError: no group was measured yet.
    """
    run = measurements(tables)
    if run is None:
        raise NotAvailableError(TOO_EARLY)
    epochs_s: dict[int, float] = {}
    for other in others:
        known = measurements(other) if is_scheduled(other) and _alike(other.config, tables.config) else None
        if known is None or known.epoch_s is None or len(known.times_s) != len(run.times_s):
            continue
        if (known.name, known.schedule.rank_groups) == (run.name, run.schedule.rank_groups):
            epochs_s[known.schedule.ranks] = known.epoch_s
    if run.epoch_s is not None:
        epochs_s[run.schedule.ranks] = run.epoch_s
    return ScheduleQuestion(run, epochs_s)


def answer(question: ScheduleQuestion) -> ScheduleAnswer:
    """Schedule the measured groups by every scheduler, and predict epochs on other numbers of ranks.

    Raises:
        LabError: no scheduler could be asked.
    """
    run = question.run
    schedule = run.schedule
    looks: dict[str, Any] = {"per_rank": schedule.rank_groups, "time_limit_s": TIME_LIMIT_S, "seed": run.seed}
    replayed = replay(run.times_s, schedule.ranks, allreduce_s=run.exchange_s, **looks)
    outcomes = replayed.outcomes
    if all(outcome.scheduler != run.name for outcome in outcomes):
        own = replay(run.times_s, schedule.ranks, allreduce_s=run.exchange_s, schedulers=[run.name], **looks)
        outcomes = (*outcomes, *own.outcomes)
    counts = {*(count for count in RANKS if count <= len(run.times_s)), schedule.ranks, *question.epochs_s}
    epochs = predict_epochs(
        run.times_s,
        measured_on=schedule.ranks,
        ranks=sorted(counts),
        scheduler=run.name,
        allreduce_s=run.exchange_s,
        step_s=run.step_s,
        measured_s=question.epochs_s,
        **looks,
    )
    return ScheduleAnswer(schedule, outcomes, epochs, tuple(name for name, _ in replayed.missing))


def _alike(one: RunConfig, other: RunConfig) -> bool:
    first, second = (
        {name: value for name, value in config.flat.items() if name not in _FREE} for config in (one, other)
    )
    return first == second


# Charts of the answer.


@dataclass(frozen=True, slots=True)
class _Epoch:
    """An epoch by one scheduler."""

    name: str
    seconds: float
    solve_s: float | None = None


def other_schedulers_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return a bar for each scheduler; before it was asked, for the one in use and for round robin."""
    epochs, bound_s, used = _epochs_by_scheduler(tables, options)
    title, end = "Other schedulers", bound_end(bound_s)
    keys: list[Key] = [("in use", _USED, "box"), ("other", _OTHER, "box"), (end.name, end.colour, "dash")]
    if not epochs:
        return card([], title, unit="ms per epoch", empty=FIRST_STEP, height=_HIGH, yaxis=NAMES)
    unit, factor = time_unit(max(epoch.seconds for epoch in epochs))
    is_measured = _answer_of(tables, options) is not None
    times_text = f"the median times of {EPOCHS} epochs" if is_measured else "the times that the scheduler knew"
    texts = [
        f"{percent_text(max(0.0, epoch.seconds / bound_s - 1))} above the bound" if bound_s > 0 else ""
        for epoch in epochs
    ]
    solved = ["" if e.solve_s is None else f", solved in {seconds_text(e.solve_s)}" for e in epochs]
    data = level_bars(
        "predicted epoch",
        [epoch.name for epoch in epochs],
        [round(epoch.seconds * factor, 5) for epoch in epochs],
        [_USED if epoch.name == used else _OTHER for epoch in epochs],
        f"%{{y}}: %{{x:.4g}} {unit}%{{customdata}}<extra></extra>",
        customdata=solved,
        text=texts,
        **{"textposition": "inside", "insidetextanchor": "start", "textangle": 0, "width": 0.8},
        **{"constraintext": "none", "textfont": {"size": 10.5, "color": TEXT_COLOUR}},
    )
    return card(
        [data],
        title,
        keys=keys,
        x_title=f"{unit} per epoch with exchanges, by {times_text}",
        xaxis={"rangemode": "tozero"},
        yaxis=NAMES,
        margin={"l": 96},
        height=_HIGH,
        shapes=[rule(x=bound_s * factor, colour=end.colour, width=1.8, dash=end.dash)],
        annotations=_missing_note(tables, options),
    )


def other_schedulers_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return how long an epoch by the best other scheduler would take."""
    epochs, _, used = _epochs_by_scheduler(tables, options)
    mine = next((epoch for epoch in epochs if epoch.name == used), None)
    if mine is None:
        return NOTHING_YET
    others = [epoch for epoch in epochs if epoch.name != used]
    if not others:
        return captions.NO_OTHER_SCHEDULER.format(name=used, time=seconds_text(mine.seconds))
    best = min(others, key=lambda epoch: epoch.seconds)
    change, time = best.seconds / mine.seconds - 1, seconds_text(best.seconds)
    if abs(change) < _EQUAL:
        return captions.EQUAL_SCHEDULER.format(name=best.name, time=time)
    words = "less" if change < 0 else "more"
    return captions.OTHER_SCHEDULER.format(
        name=best.name, time=time, share=percent_text(abs(change)), less_or_more=words
    )


def other_ranks_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return predicted epochs by number of ranks, beside those that were measured."""
    epochs, title = _epochs_by_ranks(tables, options), "Other numbers of ranks"
    keys: list[Key] = [("predicted", _OTHER, "box"), ("measured", _USED, "box"), ("bound", WARNING_COLOUR, "line")]
    looks: Drawn = {"xaxis": {"type": "category", "showgrid": False}, "x_title": "ranks", "keys": keys}
    if not epochs:
        return card([], title, unit="ms per epoch", empty=ASK_FIRST, **looks)
    unit, factor = time_unit(max(epoch.predicted_s for epoch in epochs))
    ranks, hover = [str(epoch.ranks) for epoch in epochs], f"%{{x}} ranks: %{{y:.4g}} {unit}"
    predicted = [round(epoch.predicted_s * factor, 5) for epoch in epochs]
    measured = [None if epoch.measured_s is None else round(epoch.measured_s * factor, 5) for epoch in epochs]
    dash = {"symbol": "line-ew", "line": {"color": WARNING_COLOUR, "width": 2.5}}
    bounds = [round(epoch.bound_s * factor, 5) for epoch in epochs]
    data = [
        bars("predicted", ranks, predicted, _OTHER, hover, width=_WIDE, offset=-_WIDE),
        bars("measured", ranks, measured, _USED, hover, width=_WIDE, offset=0),
        points("bound", ranks, bounds, WARNING_COLOUR, hover, size=22, marker=dash),
    ]
    return card(data, title, unit=f"{unit} per epoch", yaxis={"rangemode": "tozero"}, **looks)


def other_ranks_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return how long an epoch on more ranks would take, twice as many if that was predicted."""
    epochs = _epochs_by_ranks(tables, options)
    if not epochs:
        return NOTHING_YET
    more = [epoch for epoch in epochs if epoch.ranks > tables.ranks] or [epochs[-1]]
    words = captions.OTHER_RANKS if more[0].ranks > 1 else captions.ONE_RANK
    return words.format(ranks=more[0].ranks, time=seconds_text(more[0].predicted_s))


def _answer_of(tables: RunTables, options: ChartOptions) -> ScheduleAnswer | None:
    """Return the answer about the schedule in use; None where it was not asked about this one."""
    known = options.answers.get(COMPARE.name)
    return known if known is not None and known.schedule is tables.event(ScheduleFacts) else None


def _epochs_by_scheduler(tables: RunTables, options: ChartOptions) -> tuple[list[_Epoch], float, str]:
    """Return predicted epochs, their bound in seconds, and the name of the scheduler in use."""
    times, known = group_times(tables), _answer_of(tables, options)
    if known is not None:
        outcomes = [_Epoch(each.scheduler, each.makespan_s, each.solve_s) for each in known.schedulers]
        return outcomes, known.schedulers[0].bound_s, scheduler_name(known.schedule)
    if times is None or times.scale is None:
        return [], 0.0, ""
    schedule, scale, used = times.schedule, times.scale, scheduler_name(times.schedule)
    epochs = [_Epoch(used, scale * schedule.makespan_s, schedule.solve_s)]
    if schedule.psg_makespan_s is not None and used != PSG:
        epochs.insert(0, _Epoch(PSG, scale * schedule.psg_makespan_s))
    return epochs, scale * schedule.bound_s, used


def _epochs_by_ranks(tables: RunTables, options: ChartOptions) -> Sequence[EpochTime]:
    known = _answer_of(tables, options)
    return () if known is None else known.epochs


def _missing_note(tables: RunTables, options: ChartOptions) -> Iterable[Drawn]:
    """Return a note about schedulers that could not be asked."""
    known = _answer_of(tables, options)
    if known is None or not known.missing:
        return []
    place: Drawn = {"xref": "paper", "yref": "paper", "xanchor": "right", "yanchor": "bottom"}
    return [label(f"not installed: {', '.join(known.missing)}", 1, 0, **place)]


COMPARE = Question(
    name="schedulers",
    label="Compare schedulers",
    help="Uses one core for some seconds.",
    prepare=prepare,
    answer=answer,
)
OTHER_SCHEDULERS = Chart(
    name="other_schedulers",
    title="Other schedulers",
    figure=other_schedulers_figure,
    caption=other_schedulers_caption,
    place="folded",
    shown=is_scheduled,
    help="How long an epoch of the same groups would take, each scheduled by itself.",
    question=COMPARE,
)
OTHER_RANKS = Chart(
    name="other_ranks",
    title="Other numbers of ranks",
    figure=other_ranks_figure,
    caption=other_ranks_caption,
    place="folded",
    shown=is_scheduled,
    help="Predicted from the group times of this run, which are taken to be the same on any number of ranks.",
    question=COMPARE,
)
