"""Outcomes of schedulers on many ranks from group times alone: the simulation of Figure 5, and replays of a run.

In each iteration every rank computes its groups sequentially, and all wait for the straggler. Then gradients are
all-reduced in ``allreduce_s``. Not simulated: loading data, slow ranks, ranks that share cores or caches, an all-reduce
that overlaps with computing or takes longer on more ranks, and evaluation between epochs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import ConfigError, NotAvailableError, PlanError
from dtdg_lab.core.plans import Schedule
from dtdg_lab.systems.snapshot_groups.schedulers.base import PSG, facts_of, lower_bound_s, named, solve, times_of

MEANINGS: Mapping[str, str] = MappingProxyType(catalogue.DECLARED["snapshot_groups"]["columns"]["schedules"])


@dataclass(frozen=True, slots=True)
class ScheduleOutcome:
    """Metrics of one schedule's epoch; ``MEANINGS`` describes them.

    ``imbalance`` is infinite if a rank computes nothing in the whole epoch.
    """

    scheduler: str
    ranks: int
    per_rank: int
    groups: int
    iterations: int
    makespan_s: float
    bound_s: float
    over_bound: float
    throughput: float
    bound_throughput: float
    imbalance: float
    iteration_imbalance: float
    worst_iteration_imbalance: float
    idle_share: float
    targets: int | None
    solve_s: float
    notes: str = ""

    def row(self) -> dict[str, Any]:
        """Return the metrics by name, for tables and events; None instead of infinity."""
        values = asdict(self)
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in values.items()
        }


def outcome(
    scheduler: str,
    schedule: Schedule,
    times_s: NDArray[np.float64],
    *,
    per_rank: int,
    allreduce_s: float,
    bound_s: float,
) -> ScheduleOutcome:
    """Return the metrics of ``schedule`` for groups that take ``times_s``.

    Args:
        scheduler: name of the scheduler.
        schedule: schedule of K groups on R ranks.
        times_s: (K,) seconds of each group, not all 0; they may differ from the scheduler's times.
        per_rank: maximum number of groups per rank and iteration.
        allreduce_s: seconds of the gradient all-reduce that ends an iteration.
        bound_s: lower bound of the epoch's seconds for these times.
    """
    loads = schedule.loads(times_s)
    slowest, total = loads.max(axis=1), float(np.sum(times_s))
    busy = float(slowest.sum())
    makespan = busy + allreduce_s * len(loads)
    per_epoch = loads.sum(axis=0)
    mean = loads.mean(axis=1)
    uneven = np.divide(slowest, mean, out=np.ones_like(mean), where=mean > 0)
    shortest = float(per_epoch.min())
    ranks = schedule.parts
    return ScheduleOutcome(
        scheduler=scheduler,
        ranks=ranks,
        per_rank=per_rank,
        groups=schedule.groups,
        iterations=len(loads),
        makespan_s=makespan,
        bound_s=bound_s,
        over_bound=makespan / bound_s,
        throughput=total / (ranks * makespan),
        bound_throughput=total / (ranks * bound_s),
        imbalance=float(per_epoch.max()) / shortest if shortest > 0 else float("inf"),
        iteration_imbalance=busy / float(mean.sum()),
        worst_iteration_imbalance=float(uneven.max()),
        idle_share=max(0.0, 1 - total / (ranks * busy)),
        targets=schedule.targets,
        solve_s=schedule.seconds,
        notes=schedule.notes,
    )


RANKS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
SCHEDULERS = (PSG, "longest_first", "fold", "dygnex_greedy", "best_of")
PAPER_THROUGHPUT = MappingProxyType({512: 0.95, 1024: 0.85})  # DyGNeX-G, section 5.4; the curve's growth is not given


def simulate(
    times_s: ArrayLike,
    *,
    ranks: Sequence[int] = RANKS,
    schedulers: Sequence[str] = SCHEDULERS,
    per_rank: int = 2,
    allreduce_s: float = 0.0,
    seen_s: ArrayLike | None = None,
    **options: Any,
) -> tuple[ScheduleOutcome, ...]:
    """Simulate schedules, and return an outcome for each number of ranks and scheduler, in this order.

    Args:
        times_s: (K,) seconds that each group takes.
        ranks: numbers of ranks R. One rank needs no all-reduce.
        schedulers: ``psg``, or names of the catalogue's kind ``scheduling``.
        per_rank: maximum number of groups per rank and iteration; ``psg`` has one.
        allreduce_s: seconds of the gradient all-reduce that ends an iteration, the same on every number of ranks.
        seen_s: (K,) seconds that schedulers assume; ``times_s`` by default, as in the paper.
        **options: ``gap``, ``time_limit_s``, ``seed`` and ``targets`` of
            :class:`~dtdg_lab.systems.snapshot_groups.schedulers.base.Problem`.

    Raises:
        PlanError: times are negative or not finite, or all are 0, or the two vectors differ in length.
        ConfigError: ranks or schedulers are missing, or a number of ranks is below 1.
        UnknownNameError: a scheduler is unknown.

    References: DyGNeX section 5.4 and Figure 5.
    """
    times = times_of(times_s)
    assumed = times if seen_s is None else times_of(seen_s)
    if assumed.shape != times.shape:
        raise PlanError(
            f"seen_s has {len(assumed)} groups, but times_s has {len(times)}. Give each group one time in both."
        )
    if not ranks or min(ranks) < 1 or not schedulers:
        raise ConfigError(
            f"schedulers={list(schedulers)}, ranks={list(ranks)}: give at least one of each, and ranks of at least 1."
        )
    outcomes = []
    for count in ranks:
        exchange = allreduce_s if count > 1 else 0.0
        bound = lower_bound_s(times, count, per_rank=per_rank, allreduce_s=exchange)
        for name in schedulers:
            plan = solve(name, assumed, count, per_rank=per_rank, allreduce_s=exchange, **options)
            groups_per_rank = named(name, per_rank)[1]
            outcomes.append(outcome(name, plan, times, per_rank=groups_per_rank, allreduce_s=exchange, bound_s=bound))
    return tuple(outcomes)


# Outcomes of the other schedulers for the group times of a run.


@dataclass(frozen=True, slots=True)
class ScheduleReplay:
    """Outcomes of several schedulers for the same times.

    Attributes:
        outcomes: in the requested order.
        missing: schedulers that could not run, with the reason.
    """

    outcomes: tuple[ScheduleOutcome, ...]
    missing: tuple[tuple[str, str], ...] = ()

    @property
    def best(self) -> ScheduleOutcome:
        """The outcome with the shortest epoch; of equal ones, the first."""
        return min(self.outcomes, key=lambda outcome: outcome.makespan_s)

    def rows(self) -> list[dict[str, Any]]:
        """Return the outcomes' metrics; :data:`MEANINGS` describes the columns."""
        return [outcome.row() for outcome in self.outcomes]


def _is_compared(name: str, groups: int) -> bool:
    """Return True if a comparison of all schedulers includes this one; round_robin is listed as psg."""
    facts = facts_of(name)
    return named(PSG, 1)[0] != name and not facts.chooses and (facts.most_groups is None or groups <= facts.most_groups)


def replay(
    times_s: ArrayLike,
    ranks: int,
    *,
    per_rank: int = 2,
    allreduce_s: float = 0.0,
    schedulers: Sequence[str] | None = None,
    time_limit_s: float = 1.0,
    **options: Any,
) -> ScheduleReplay:
    """Run several schedulers on the same groups, for comparison.

    Args:
        times_s: (K,) measured or predicted seconds of each group.
        ranks: R of the run.
        per_rank: maximum number of groups per rank and iteration; ``psg`` has one.
        allreduce_s: seconds of the gradient all-reduce that ends an iteration; not counted on one rank.
        schedulers: ``psg`` or names of the catalogue. By default ``psg`` and the whole catalogue, except schedulers
            that only choose among others, and without the integer programme above 100 groups (the paper's rule).
        time_limit_s: time limit of each scheduler that searches.
        **options: see :func:`simulate`.

    Raises:
        PlanError: times are negative or not finite, or all are 0.
        ConfigError: ``ranks`` is below 1.
        UnknownNameError: a scheduler is unknown.
        NotAvailableError: no scheduler is installed.
    """
    times = times_of(times_s)
    if ranks < 1:
        raise ConfigError(f"ranks={ranks}: give at least 1.")
    options |= {"per_rank": per_rank, "allreduce_s": allreduce_s, "time_limit_s": time_limit_s}
    outcomes: list[ScheduleOutcome] = []
    missing: list[tuple[str, str]] = []
    if schedulers is None:
        schedulers = (PSG, *(name for name in catalogue.names("scheduling") if _is_compared(name, len(times))))
    for name in schedulers:
        try:
            outcomes += simulate(times, ranks=(ranks,), schedulers=(name,), **options)
        except NotAvailableError as error:
            missing.append((name, str(error)))
    if not outcomes:
        raise NotAvailableError(" ".join(reason for _, reason in missing) or "schedulers is empty: give at least one.")
    return ScheduleReplay(tuple(outcomes), tuple(missing))
