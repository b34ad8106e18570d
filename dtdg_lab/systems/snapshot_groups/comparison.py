"""Other schedulers and other numbers of ranks for a run's groups, based on its measured times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, NotAvailableError, PlanError
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.snapshot_groups.balance import balance_of
from dtdg_lab.systems.snapshot_groups.events import ScheduleFacts
from dtdg_lab.systems.snapshot_groups.gantt import TONES, bound_end, shown_epoch
from dtdg_lab.systems.snapshot_groups.group_times import EPOCHS, group_times
from dtdg_lab.systems.snapshot_groups.schedule_chart import is_scheduled
from dtdg_lab.systems.snapshot_groups.schedulers.base import PSG, lower_bound_s, named, solve, times_of
from dtdg_lab.systems.snapshot_groups.schedulers.simulation import ScheduleOutcome, replay
from dtdg_lab.visualization.axes import NAMES, time_unit
from dtdg_lab.visualization.chart import FIRST_STEP, NOTHING_YET, Chart, ChartOptions, Figure, Key, Question, card
from dtdg_lab.visualization.numbers import percent_text, seconds_text
from dtdg_lab.visualization.palette import TEXT_COLOUR, WARNING_COLOUR
from dtdg_lab.visualization.traces import Attributes, bars, label, level_bars, points, rule

_NOTHING: Mapping[int, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class EpochTime:
    """A predicted epoch on a number of ranks.

    Attributes:
        scheduler: name of the scheduler.
        ranks: R.
        iterations: iterations of the epoch.
        predicted_s: seconds of the epoch.
        bound_s: lower bound of these seconds by the same model.
        allreduce_s: seconds per iteration, as assumed for R ranks.
        speedup: relative to one rank that computes all groups in the fewest possible iterations.
        measured_s: seconds of a run on R ranks, if given.
        error: predicted over measured, minus 1; None without a measurement.
    """

    scheduler: str
    ranks: int
    iterations: int
    predicted_s: float
    bound_s: float
    allreduce_s: float
    speedup: float
    measured_s: float | None
    error: float | None

    def row(self) -> dict[str, Any]:
        """Return plain values by name."""
        return asdict(self)


def predict_epochs(
    times_s: ArrayLike,
    *,
    measured_on: int,
    ranks: Sequence[int] = (1, 2, 4),
    scheduler: str = "best_of",
    per_rank: int = 2,
    allreduce_s: float | Mapping[int, float] = 0.0,
    step_s: float = 0.0,
    measured_s: Mapping[int, float] = _NOTHING,
    time_limit_s: float = 1.0,
    seed: int = 0,
) -> tuple[EpochTime, ...]:
    """Predict epoch times on ``ranks`` from a run's group times, its all-reduce, and the rest of its iterations.

    A group is assumed to take the same time on any number of ranks. That holds if each rank has its own cores or GPU,
    but not if ranks share them. Waiting follows from the schedule. An all-reduce measured on one number of ranks is
    scaled to others by the bytes of a ring, 2 (R - 1) / R of the gradients; its latency is not modelled.

    Args:
        times_s: compute seconds of each group: (K,), or (M, K) from M epochs. With several epochs, the schedule is made
            from their medians and evaluated on each epoch's own times, so that waiting caused by noise is counted.
        measured_on: number of ranks of the measured run.
        ranks: numbers of ranks to predict for.
        scheduler: ``psg`` or a name of the catalogue.
        per_rank: maximum number of groups per rank and iteration; ``psg`` has one.
        allreduce_s: seconds of an all-reduce without waiting, as measured on ``measured_on`` ranks; or by number of
            ranks, for every requested number above 1.
        step_s: other seconds of an iteration, such as the optimiser's.
        measured_s: number of ranks -> epoch seconds of runs to compare with.
        time_limit_s: time limit of schedulers that search.
        seed: seed of randomised schedulers.

    Raises:
        PlanError: times are negative, not finite or all 0, or have the wrong shape.
        ConfigError: a number of ranks is below 1, an all-reduce is missing, negative or measured on one rank, or a
            measured epoch took no time.
    """
    epochs = _epochs(times_s)
    _check(ranks, measured_on, step_s, measured_s)
    typical = np.median(epochs, axis=0)
    per_rank = named(scheduler, per_rank)[1]
    one_rank_s = float(epochs.sum(axis=1).mean()) + step_s * -(-len(typical) // per_rank)
    predictions = []
    for count in ranks:
        exchange_s = _allreduce(allreduce_s, measured_on, count)
        end_s = exchange_s + step_s  # of an iteration
        settings: dict[str, Any] = {"per_rank": per_rank, "allreduce_s": end_s}
        plan = solve(scheduler, typical, count, time_limit_s=time_limit_s, seed=seed, **settings)
        predicted_s = float(np.mean([plan.makespan_s(times, allreduce_s=end_s) for times in epochs]))
        epoch_s = measured_s.get(count)
        predictions.append(
            EpochTime(
                scheduler=scheduler,
                ranks=count,
                iterations=len(plan.assignment),
                predicted_s=predicted_s,
                bound_s=float(np.mean([lower_bound_s(times, count, **settings) for times in epochs])),
                allreduce_s=exchange_s,
                speedup=one_rank_s / predicted_s,
                measured_s=epoch_s,
                error=None if epoch_s is None else predicted_s / epoch_s - 1,
            )
        )
    return tuple(predictions)


def _check(ranks: Sequence[int], measured_on: int, step_s: float, measured_s: Mapping[int, float]) -> None:
    if not ranks or min(*ranks, measured_on) < 1:
        raise ConfigError(f"ranks={list(ranks)}, measured_on={measured_on}: give numbers of at least 1.")
    if any(not epoch_s > 0 for epoch_s in measured_s.values()):
        raise ConfigError(f"measured_s={dict(measured_s)}: give seconds above 0.")
    if not step_s >= 0:
        raise ConfigError(f"step_s={step_s}: give seconds of at least 0.")


def _epochs(times_s: ArrayLike) -> NDArray[np.float64]:
    """Return the (M, K) seconds of each group in each epoch."""
    times = np.asarray(times_s, dtype=np.float64)
    if times.ndim > 2 or not times.size:
        raise PlanError(f"times_s has shape {times.shape}. Give (groups,) or (epochs, groups).")
    return np.stack([times_of(epoch) for epoch in np.atleast_2d(times)])


def _allreduce(measured: float | Mapping[int, float], measured_on: int, ranks: int) -> float:
    """Return the seconds of an all-reduce among ``ranks``."""
    if ranks == 1:
        return 0.0
    if isinstance(measured, Mapping):
        if ranks not in measured:
            raise ConfigError(
                f"allreduce_s is given for {sorted(measured)} ranks, but not for {ranks}. Add it, or give one number."
            )
        seconds = float(measured[ranks])
    elif measured_on == 1 and measured:
        raise ConfigError("one rank has no all-reduce to measure. Give seconds by number of ranks, such as {2: 0.01}.")
    else:
        seconds = float(measured) * ((ranks - 1) / ranks) / ((measured_on - 1) / measured_on) if measured else 0.0
    if not 0 <= seconds < np.inf:
        raise ConfigError(f"allreduce_s={seconds} on {ranks} ranks: give seconds of at least 0.")
    return seconds


RANKS = (1, 2, 4, 8, 16)
TIME_LIMIT_S = 1.0  # of each scheduler that searches
TOO_EARLY = "No group of this schedule has been timed yet. Ask again after the first epoch."
ASK_FIRST = "Appears once you compare schedulers"
_HEIGHT = 190  # pixels, for one row per scheduler
_BAR_WIDTH = 0.36  # share of the space of a number of ranks
_EQUAL = 5e-4  # relative difference below which two epochs are equal
_USED_COLOUR, _OTHER_COLOUR = TONES["group that the others wait for"][0], TONES["group"][0]
# compared runs may differ in these settings: numbers of ranks, and inputs of the scheduler
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
    """Measured times of the groups of a run's schedule.

    Attributes:
        schedule: the schedule of the groups.
        times_s: (K,) seconds of each group; the scheduler's assumption if not measured.
        exchange_s: seconds of an iteration's all-reduce, without waiting; 0 on one rank.
        step_s: other seconds of an iteration, besides own work, waiting and all-reduce.
        epoch_s: seconds of the steps of the last epoch that followed the schedule, if any.
        seed: seed of the run.
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
    """The data of a question about a run's schedule.

    Attributes:
        run: measurements of the run.
        epochs_s: number of ranks -> measured seconds of an epoch.
    """

    run: ScheduleMeasurements
    epochs_s: Mapping[int, float]


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleAnswer:
    """Epochs with other schedulers and other numbers of ranks.

    Attributes:
        schedule: the schedule in question.
        schedulers: one outcome per scheduler, including the one in use.
        epochs: one per number of ranks.
        missing: schedulers that are not installed.
    """

    schedule: ScheduleFacts
    schedulers: tuple[ScheduleOutcome, ...]
    epochs: tuple[EpochTime, ...]
    missing: tuple[str, ...] = ()


def scheduler_name(schedule: ScheduleFacts) -> str:
    """Return the scheduler's name in a replay: round robin with one group per rank is the system ``psg``."""
    return PSG if (schedule.scheduler, schedule.rank_groups) == ("round_robin", 1) else schedule.scheduler


def measurements(tables: RunTables) -> ScheduleMeasurements | None:
    """Return the measurements of a run; None before a group of its schedule was measured."""
    times, blocks = group_times(tables), shown_epoch(tables)
    if times is None or blocks is None or not np.isfinite(times.seconds).any():
        return None
    schedule, balance = times.schedule, balance_of(tables, blocks.epoch)
    exchange_s = blocks.exchange_s() if schedule.ranks > 1 else 0.0
    rest_s, epoch_s = 0.0, None
    if balance is not None:
        rest_s = (balance.time_s - balance.critical_s) / balance.iterations
        is_followed = blocks.schedule is schedule and blocks.follows_schedule()
        epoch_s = balance.time_s if is_followed and balance.iterations == schedule.iterations else None
    return ScheduleMeasurements(
        schedule=schedule,
        times_s=times.best_s,
        exchange_s=exchange_s,
        step_s=max(0.0, rest_s - exchange_s),
        epoch_s=epoch_s,
        seed=tables.config.seed,
    )


def prepare(tables: RunTables, compared: Sequence[RunTables] = ()) -> ScheduleQuestion:
    """Collect the data of the question.

    Args:
        tables: tables of the run.
        compared: tables of the compared runs, oldest first; for each number of ranks the newest counts.

    Raises:
        NotAvailableError: no group was measured yet.
    """
    run = measurements(tables)
    if run is None:
        raise NotAvailableError(TOO_EARLY)
    epochs_s: dict[int, float] = {}
    for peer_tables in compared:
        if not is_scheduled(peer_tables) or not _has_equal_settings(peer_tables.config, tables.config):
            continue
        peer = measurements(peer_tables)
        if peer is None or peer.epoch_s is None or len(peer.times_s) != len(run.times_s):
            continue
        if (peer.name, peer.schedule.rank_groups) == (run.name, run.schedule.rank_groups):
            epochs_s[peer.schedule.ranks] = peer.epoch_s
    if run.epoch_s is not None:
        epochs_s[run.schedule.ranks] = run.epoch_s
    return ScheduleQuestion(run, epochs_s)


def answer(question: ScheduleQuestion) -> ScheduleAnswer:
    """Schedule the measured groups by every scheduler, and predict epochs on other numbers of ranks.

    Raises:
        LabError: no scheduler could run.
    """
    run = question.run
    schedule = run.schedule
    options: dict[str, Any] = {
        "per_rank": schedule.rank_groups,
        "allreduce_s": run.exchange_s,
        "time_limit_s": TIME_LIMIT_S,
        "seed": run.seed,
    }
    replayed = replay(run.times_s, schedule.ranks, **options)
    outcomes = replayed.outcomes
    if all(outcome.scheduler != run.name for outcome in outcomes):
        outcomes += replay(run.times_s, schedule.ranks, schedulers=[run.name], **options).outcomes
    counts = {*(count for count in RANKS if count <= len(run.times_s)), schedule.ranks, *question.epochs_s}
    epochs = predict_epochs(
        run.times_s,
        measured_on=schedule.ranks,
        ranks=sorted(counts),
        scheduler=run.name,
        step_s=run.step_s,
        measured_s=question.epochs_s,
        **options,
    )
    return ScheduleAnswer(schedule, outcomes, epochs, tuple(name for name, _ in replayed.missing))


def _has_equal_settings(*configs: RunConfig) -> bool:
    first, second = ({name: config.flat[name] for name in config.flat if name not in _FREE} for config in configs)
    return first == second


# Charts of the answer.


@dataclass(frozen=True, slots=True)
class _Epoch:
    """The epoch of one scheduler."""

    name: str
    seconds: float
    solve_s: float | None = None


def other_schedulers_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Draw a bar per scheduler; without an answer, only for the one in use and for round robin."""
    epochs, bound_s, used = _epochs_by_scheduler(tables, options)
    title, end = "Other schedulers", bound_end(bound_s)
    keys: list[Key] = [("in use", _USED_COLOUR, "box"), ("other", _OTHER_COLOUR, "box"), (end.name, end.colour, "dash")]
    if not epochs:
        return card([], title, unit="ms per epoch", empty=FIRST_STEP, height=_HEIGHT, yaxis=NAMES)
    unit, factor = time_unit(max(epoch.seconds for epoch in epochs))
    is_measured = _answer_of(tables, options) is not None
    times_text = f"the median times of {EPOCHS} epochs" if is_measured else "the times that the scheduler knew"
    texts = [
        f"{percent_text(max(0.0, epoch.seconds / bound_s - 1))} above the bound" if bound_s > 0 else ""
        for epoch in epochs
    ]
    solve_texts = ["" if e.solve_s is None else f", solved in {seconds_text(e.solve_s)}" for e in epochs]
    data = level_bars(
        "predicted epoch",
        [epoch.name for epoch in epochs],
        [round(epoch.seconds * factor, 5) for epoch in epochs],
        [_USED_COLOUR if epoch.name == used else _OTHER_COLOUR for epoch in epochs],
        f"%{{y}}: %{{x:.4g}} {unit}%{{customdata}}<extra></extra>",
        customdata=solve_texts,
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
        height=_HEIGHT,
        shapes=[rule(x=bound_s * factor, colour=end.colour, width=1.8, dash=end.dash)],
        annotations=_missing_note(tables, options),
    )


def other_schedulers_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return a sentence on the epoch of the best other scheduler."""
    epochs, _, used = _epochs_by_scheduler(tables, options)
    current = next((epoch for epoch in epochs if epoch.name == used), None)
    if current is None:
        return NOTHING_YET
    alternatives = [epoch for epoch in epochs if epoch.name != used]
    if not alternatives:
        return f"{used} is in use and should take {seconds_text(current.seconds)} per epoch."
    best = min(alternatives, key=lambda epoch: epoch.seconds)
    change, time = best.seconds / current.seconds - 1, seconds_text(best.seconds)
    if abs(change) < _EQUAL:
        return f"{best.name} would take {time}, no less than the scheduler in use."
    return f"{best.name} would take {time}, {percent_text(abs(change))} {'less' if change < 0 else 'more'}."


def other_ranks_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Draw predicted epochs by number of ranks, beside measured ones."""
    epochs, title = _epochs_by_ranks(tables, options), "Other numbers of ranks"
    keys: list[Key] = [
        ("predicted", _OTHER_COLOUR, "box"),
        ("measured", _USED_COLOUR, "box"),
        ("bound", WARNING_COLOUR, "line"),
    ]
    style: Attributes = {"xaxis": {"type": "category", "showgrid": False}, "x_title": "ranks", "keys": keys}
    if not epochs:
        return card([], title, unit="ms per epoch", empty=ASK_FIRST, **style)
    unit, factor = time_unit(max(epoch.predicted_s for epoch in epochs))
    ranks, hover = [str(epoch.ranks) for epoch in epochs], f"%{{x}} ranks: %{{y:.4g}} {unit}"
    predicted = [round(epoch.predicted_s * factor, 5) for epoch in epochs]
    measured = [None if epoch.measured_s is None else round(epoch.measured_s * factor, 5) for epoch in epochs]
    dash = {"symbol": "line-ew", "line": {"color": WARNING_COLOUR, "width": 2.5}}
    bounds = [round(epoch.bound_s * factor, 5) for epoch in epochs]
    data = [
        bars("predicted", ranks, predicted, _OTHER_COLOUR, hover, width=_BAR_WIDTH, offset=-_BAR_WIDTH),
        bars("measured", ranks, measured, _USED_COLOUR, hover, width=_BAR_WIDTH, offset=0),
        points("bound", ranks, bounds, WARNING_COLOUR, hover, size=22, marker=dash),
    ]
    return card(data, title, unit=f"{unit} per epoch", yaxis={"rangemode": "tozero"}, **style)


def other_ranks_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return a sentence on the epoch on more ranks, twice as many if predicted."""
    epochs = _epochs_by_ranks(tables, options)
    if not epochs:
        return NOTHING_YET
    epoch = next((epoch for epoch in epochs if epoch.ranks > tables.ranks), epochs[-1])
    ranks = f"{epoch.ranks} ranks" if epoch.ranks > 1 else "one rank"
    return f"On {ranks} an epoch would take about {seconds_text(epoch.predicted_s)}."


def _answer_of(tables: RunTables, options: ChartOptions) -> ScheduleAnswer | None:
    """Return the answer about the schedule in use, if there is one."""
    answer = options.answers.get(COMPARE.name)
    return answer if answer is not None and answer.schedule is tables.event(ScheduleFacts) else None


def _epochs_by_scheduler(tables: RunTables, options: ChartOptions) -> tuple[list[_Epoch], float, str]:
    """Return the predicted epochs, their bound in seconds, and the name of the scheduler in use."""
    times, answer = group_times(tables), _answer_of(tables, options)
    if answer is not None:
        epochs = [_Epoch(outcome.scheduler, outcome.makespan_s, outcome.solve_s) for outcome in answer.schedulers]
        return epochs, answer.schedulers[0].bound_s, scheduler_name(answer.schedule)
    if times is None or times.scale is None:
        return [], 0.0, ""
    schedule, scale, used = times.schedule, times.scale, scheduler_name(times.schedule)
    epochs = [_Epoch(used, scale * schedule.makespan_s, schedule.solve_s)]
    if schedule.psg_makespan_s is not None and used != PSG:
        epochs.insert(0, _Epoch(PSG, scale * schedule.psg_makespan_s))
    return epochs, scale * schedule.bound_s, used


def _epochs_by_ranks(tables: RunTables, options: ChartOptions) -> Sequence[EpochTime]:
    answer = _answer_of(tables, options)
    return () if answer is None else answer.epochs


def _missing_note(tables: RunTables, options: ChartOptions) -> Iterable[Attributes]:
    """Return a note on schedulers that are not installed."""
    answer = _answer_of(tables, options)
    if answer is None or not answer.missing:
        return []
    position: Attributes = {"xref": "paper", "yref": "paper", "xanchor": "right", "yanchor": "bottom"}
    return [label(f"not installed: {', '.join(answer.missing)}", 1, 0, **position)]


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
    section="folded",
    applies=is_scheduled,
    help="How long an epoch of the same groups would take, each scheduled by itself.",
    question=COMPARE,
)
OTHER_RANKS = Chart(
    name="other_ranks",
    title="Other numbers of ranks",
    figure=other_ranks_figure,
    caption=other_ranks_caption,
    section="folded",
    applies=is_scheduled,
    help="Predicted from the group times of this run, assumed to be the same on any number of ranks.",
    question=COMPARE,
)
