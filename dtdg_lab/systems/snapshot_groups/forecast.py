"""Work of an epoch of snapshot groups, and ``lab.estimate.schedules``: schedulers on up to a thousand ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from dtdg_lab.core.errors import ConfigError, PlanError, UnknownNameError
from dtdg_lab.systems.snapshot_groups.growing_times import CURVES, group_times, growth, snapshot_times
from dtdg_lab.systems.snapshot_groups.schedulers import base, simulation
from dtdg_lab.systems.snapshot_groups.simulation_chart import simulation_figure
from dtdg_lab.systems.workload import ASSUMED_COMPUTE, EpochWork, Facts, GroupWork, Numbers, Row, curve_row, plain_work
from dtdg_lab.visualization.chart import Figure
from dtdg_lab.visualization.studies.result import StudyResult

if TYPE_CHECKING:
    from dtdg_lab.forecast.rates import Rates


LEAST_GROUPS = 2


@dataclass(frozen=True, slots=True, eq=False)
class ScheduledGroups(GroupWork):
    """Snapshot groups with the scheduler of a config.

    Attributes:
        scheduler: name of the scheduler.
        per_rank: maximum groups per rank and iteration.
        parts: P.
        seed: seed of randomised schedulers.
    """

    scheduler: str
    per_rank: int
    parts: int
    seed: int

    def epoch(self, times_s: Numbers, ranks: int) -> tuple[float, float | None, float]:
        """Return the seconds of the schedule, their bound, and the imbalance."""
        if self.parts != ranks:  # a rank computes several parts sequentially
            return float(times_s.sum()) / ranks, None, 1.0
        (outcome,) = simulation.simulate(
            times_s,
            ranks=(ranks,),
            schedulers=(self.scheduler,),
            per_rank=self.per_rank,
            time_limit_s=1.0,
            seed=self.seed,
        )
        return outcome.makespan_s, outcome.bound_s, outcome.imbalance


def group_work(facts: Facts) -> EpochWork:
    """Predict the work of the training split's snapshot groups; their assignment to ranks follows later from times.

    References: DyGNeX sections 3 and 4.
    """
    config, ranks = facts.config, facts.ranks
    window, stride = int(config["group_window"]), int(config["group_stride"])
    starts = np.arange(0, len(facts.train) - window + 1, stride)
    if len(starts) < LEAST_GROUPS:
        raise PlanError(
            f"system={config.system!r} needs two groups of {window} snapshots, but there are {len(facts.train)} "
            "training snapshots. Set a smaller group_window, or use more snapshots (cut=...)."
        )
    running = np.concatenate([[0], np.cumsum(facts.edges)])
    edges = (running[starts + window] - running[starts]).astype(float)
    rows = np.full(len(starts), float(window * facts.graph.num_nodes))
    per_rank = int(config["groups_per_rank"])
    at_once = per_rank if config["pipelined"] else 1
    weighed = facts.passes(edges, rows, float(window), 1.0)
    sizes = weighed @ np.array(ASSUMED_COMPUTE)
    most_groups = base.named(config["scheduler"], per_rank)[1]
    steps = len(base.solve(config["scheduler"], sizes, config.parts, per_rank=most_groups, time_limit_s=1.0).assignment)
    fixed = (
        steps == -(-len(starts) // (config.parts * most_groups)) and not base.facts_of(config["scheduler"]).uses_times
    )
    alive = np.tile([rows[0] * at_once, float(edges.max()) * at_once], (ranks, 1))
    share = np.full(ranks, 1 / ranks)
    return plain_work(
        facts,
        steps=steps,
        edges=edges.sum() * share,
        rows=rows.sum() * share,
        snapshots=len(starts) * window * share,
        pieces=len(starts) * share,
        alive=alive,
        exact=frozenset({"bytes"}) if fixed else frozenset(),
        groups=ScheduledGroups(weighed, str(config["scheduler"]), per_rank, config.parts, config.seed),
    )


MEASURED = "given"
SHOWN = (
    "curve",
    "ranks",
    "scheduler",
    "iterations",
    "makespan_s",
    "over_bound",
    "throughput",
    "imbalance",
    "idle_share",
    "targets",
    "solve_s",
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ScheduleStudy(StudyResult):
    """Outcomes of schedulers on growing graphs, by growth curve.

    Attributes:
        outcomes: curve -> one outcome per number of ranks and scheduler.
        described: title of the study.
    """

    outcomes: Mapping[str, tuple[simulation.ScheduleOutcome, ...]]
    described: str
    meanings = simulation.MEANINGS
    html_columns = SHOWN
    missing = "infinite"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per curve, number of ranks and scheduler; columns ``curve`` and ``MEANINGS``."""
        return [{"curve": curve} | outcome.row() for curve, outcomes in self.outcomes.items() for outcome in outcomes]

    @property
    def figure(self) -> Figure:
        """Throughput and imbalance over the number of ranks, as in Figure 5, as a plotly figure dict."""
        simulated = {outcome.ranks for outcomes in self.outcomes.values() for outcome in outcomes}
        paper = {} if MEASURED in self.outcomes else simulation.PAPER_THROUGHPUT
        return simulation_figure(self.rows, paper={count: paper[count] for count in paper if count in simulated})

    def summary(self) -> str:
        """Return the throughput of a rank by number of ranks and scheduler, relative to a single rank, as text."""
        frame = self.table.rename(columns={"bound_throughput": "bound"})
        shares = frame.pivot_table(index=["curve", "ranks"], columns="scheduler", values="throughput", sort=False)
        shares["bound"] = frame.groupby(["curve", "ranks"])["bound"].first()
        what = "throughput of a rank, relative to one rank alone, by growth (or given times)"
        return f"{self.described}\n{what}\n{shares.to_string(float_format=lambda share: f'{share:.1%}')}"


def simulate_schedules(
    times_s: ArrayLike | None = None,
    *,
    curves: Sequence[str] = tuple(CURVES),
    snapshots: int = 10_000,
    window: int = 4,
    stride: int = 1,
    noise: float = 0.05,
    foresight: bool = True,
    ranks: Sequence[int] = simulation.RANKS,
    schedulers: Sequence[str] = simulation.SCHEDULERS,
    per_rank: int = 2,
    allreduce_s: float = 0.0,
    time_limit_s: float = 10.0,
    seed: int = 0,
    targets: int = 0,
) -> ScheduleStudy:
    """Simulate throughput per rank and imbalance of schedulers on many ranks, from group times alone.

    :mod:`dtdg_lab.systems.snapshot_groups.schedulers.simulation` describes the simulation and its limits.

    Args:
        times_s: (K,) seconds of each group, measured by a run, or of a growing graph by a fitted model (see
            ``modelled_times`` of :mod:`dtdg_lab.systems.snapshot_groups.growing_times`); by default of synthetic
            growing graphs.
        curves: how the graphs grow: ``linear`` (the last snapshot is 10 times the first) and ``exponential`` (20).
        snapshots: T of a growing graph.
        window: snapshots of a group; a group starts every ``stride``.
        stride: see ``window``.
        noise: relative standard deviation of a snapshot's time.
        foresight: True if schedulers know the noise, as in the paper; False if they only know the growth.
        ranks: numbers of ranks.
        schedulers: ``psg``, or names in the catalogue's section ``scheduling``.
        per_rank: maximum groups per rank and iteration; ``psg`` has one.
        allreduce_s: seconds of the exchange that ends an iteration, on more than one rank.
        time_limit_s: time limit of schedulers that search.
        seed: seed of the noise and of randomised schedulers.
        targets: number that DyGNeX-G tries in an iteration, alone and in ``best_of``; more than a few dozen do not
            help. 0 chooses by the numbers of groups and ranks: all if that takes about a second, otherwise as many as
            fit. Each row has the number tried.

    Raises:
        ConfigError: there is nothing to simulate, or a number is invalid.
        UnknownNameError: a curve or scheduler is unknown.
        PlanError: times are negative, not finite or all 0.

    References: DyGNeX section 5.4, Figure 5; it does not give its growth curve, so two of ours replace it.
    """
    run = partial(
        simulation.simulate,
        ranks=ranks,
        schedulers=schedulers,
        per_rank=per_rank,
        allreduce_s=allreduce_s,
        time_limit_s=time_limit_s,
        seed=seed,
        targets=targets,
    )
    exchange = f"an all-reduce of {allreduce_s:g} s" if allreduce_s else "all-reduces of zero cost"
    if times_s is not None:
        simulated = run(times_s)
        return ScheduleStudy(
            {MEASURED: simulated}, f"Simulated from {simulated[0].groups:,} given times, with {exchange}."
        )
    grown, outcomes = _grown(curves), {}
    for curve in curves:
        times = group_times(snapshot_times(snapshots, curve, noise=noise, seed=seed), window=window, stride=stride)
        forecast_s = None if foresight else group_times(growth(snapshots, curve), window=window, stride=stride)
        outcomes[curve] = run(times, seen_s=forecast_s)
    graphs = f"{window} snapshots, one every {stride}, of graphs whose growth is {grown}, with {noise:.0%} of noise"
    knowledge = f"{'' if foresight else 'not '}known to the schedulers"
    return ScheduleStudy(outcomes, f"Simulated from {len(times):,} groups of {graphs} {knowledge}, and {exchange}.")


def _grown(curves: Sequence[str]) -> str:
    if not curves:
        raise ConfigError(f"curves is empty. Choose from {', '.join(CURVES)}.")
    for curve in curves:
        if curve not in CURVES:
            raise UnknownNameError("growth curve", curve, CURVES)
    return " or ".join(f"{curve} to {CURVES[curve]:g} times the first size" for curve in curves)


# Curves of ``Forecast.curves``: epochs of a graph's groups, and efficiency on a longer sequence that grows likewise.


CURVE_SCHEDULERS = ("psg", "longest_first", "dygnex_greedy")
GROWN_SCHEDULERS = ("psg", "longest_first", "fold")  # fast ones, for thousands of groups
QUICK_GROWN, GROWN = 2_000, 10_000  # snapshots of the grown sequence; 10,000 is DyGNeX's number


def schedule_curves(facts: Facts, ranks: Sequence[int], rates: Rates, *, quick: bool) -> list[Row]:
    """Return epoch seconds of a graph's groups by scheduler, and efficiency on a longer sequence of like growth."""
    groups = group_work(facts).groups
    assert groups is not None
    alone_s, exchange = groups.passes @ rates.scaling.compute, rates.allreduce(facts)
    rows = []
    for count in ranks:
        rows += schedule_rows(alone_s * rates.factor("psg", count), (count,), exchange, quantity="epoch_s")
    config = facts.config
    grown = grown_times(
        alone_s * rates.factor("psg", 2),
        QUICK_GROWN if quick else GROWN,
        window=config["group_window"],
        seed=config.seed,
    )
    schedulers = GROWN_SCHEDULERS if quick else (*GROWN_SCHEDULERS, "dygnex_greedy")
    return rows + schedule_rows(grown, ranks, exchange, quantity="efficiency", schedulers=schedulers)


def schedule_rows(
    times_s: Numbers,
    ranks: Sequence[int],
    allreduce_s: Callable[[int], float],
    *,
    quantity: str,
    schedulers: Sequence[str] = CURVE_SCHEDULERS,
) -> list[Row]:
    """Return results of schedulers on group times, and their lower bound.

    Args:
        times_s: (K,) seconds of each group on one rank.
        ranks: numbers of ranks.
        allreduce_s: number of ranks -> seconds of an exchange of gradients.
        quantity: ``epoch_s``, or ``efficiency``: throughput per rank over that of a single rank.
        schedulers: names of schedulers.
    """
    name = "makespan_s" if quantity == "epoch_s" else "throughput"
    bound = "bound_s" if quantity == "epoch_s" else "bound_throughput"
    rows: list[Row] = []
    for count in ranks:
        simulated = simulation.simulate(times_s, ranks=(count,), schedulers=schedulers, allreduce_s=allreduce_s(count))
        rows += [
            curve_row(quantity, outcome.scheduler, count, float(getattr(outcome, name)), "simulated")
            for outcome in simulated
        ]
        rows.append(curve_row(quantity, "bound of schedules", count, float(getattr(simulated[0], bound)), "formula"))
    return rows


def grown_times(times_s: Numbers, snapshots: int, *, window: int, seed: int) -> Numbers:
    """Return the (snapshots - window + 1,) seconds of the groups of a longer sequence that grows likewise, with noise.

    Args:
        times_s: (K,) seconds of this sequence's groups, in order of time.
        snapshots: T of the longer sequence.
        window: snapshots of a group.
        seed: seed of the noise, 5 %.

    References: DyGNeX section 5.4 simulates 10,000 snapshots. The noise, and linear growth from this sequence's first
        to its last group, are ours.
    """
    first, last = float(times_s[0]), float(times_s[-1])
    if len(times_s) > 1:  # fit a line, since a single group may be an outlier
        slope, start = np.polyfit(np.arange(len(times_s)), times_s, 1)
        shortest = float(times_s.min())
        first, last = max(float(start), shortest), max(float(start + slope * (len(times_s) - 1)), shortest)
    snapshot_s = snapshot_times(snapshots, "linear", last=last / first, seed=seed)
    return group_times(snapshot_s, window=window) * (first / window)
