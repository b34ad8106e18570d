"""Simulation of schedules on many ranks, and replay of measured group times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from numpy.typing import ArrayLike

from dtdg_lab.core import catalogue
from dtdg_lab.core.errors import ConfigError, NotAvailableError, PlanError
from dtdg_lab.systems.snapshot_groups.schedulers.base import (
    PSG,
    ScheduleOutcome,
    lower_bound_s,
    named,
    outcome,
    solve,
    times_of,
)

# How the other schedulers would have performed with the group times of a run.


_ILP = "dygnex_ilp"
_ILP_MOST = 100  # groups: the paper solves the integer programme below this number, and uses the greedy rule from it
_CHOOSERS = ("round_robin", "dygnex_auto")  # round_robin is listed as psg; dygnex_auto only picks one of the others


@dataclass(frozen=True, slots=True)
class ScheduleReplay:
    """The outcome of each scheduler for the same times.

    Attributes:
        outcomes: in the requested order.
        missing: scheduler and the reason why it could not run.
    """

    outcomes: tuple[ScheduleOutcome, ...]
    missing: tuple[tuple[str, str], ...] = ()

    @property
    def best(self) -> ScheduleOutcome:
        """The shortest epoch; the first of equal ones."""
        return min(self.outcomes, key=lambda each: each.makespan_s)

    def rows(self) -> list[dict[str, Any]]:
        """Plain values, a row per outcome; :data:`base.MEANINGS` describes the columns."""
        return [each.row() for each in self.outcomes]


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
    """Run each scheduler on the same groups, and compare.

    Args:
        times_s: (K,) measured or predicted seconds of each group.
        ranks: R of the run.
        per_rank: maximum number of groups per rank and iteration; ``psg`` has one.
        allreduce_s: seconds of the gradient all-reduce that ends an iteration; not counted on one rank.
        schedulers: ``psg`` or names of the catalogue. By default ``psg`` and the whole catalogue, except schedulers
            that only choose among others; the integer programme only up to 100 groups (the paper's rule).
        time_limit_s: for each scheduler that searches.
        **options: see :func:`simulate`.

    Raises:
        PlanError: times are negative or not finite, or all are 0.
        ConfigError: ``ranks`` is below 1.
        UnknownNameError: the scheduler is unknown.
        NotAvailableError: none of the schedulers is installed.
    """
    times = times_of(times_s)
    if ranks < 1:
        raise ConfigError(f"a replay on {ranks} ranks: at least 1 is needed.")
    options |= {"per_rank": per_rank, "allreduce_s": allreduce_s, "time_limit_s": time_limit_s}
    found: list[ScheduleOutcome] = []
    missing: list[tuple[str, str]] = []
    for name in _all(len(times)) if schedulers is None else schedulers:
        try:
            found += simulate(times, ranks=(ranks,), schedulers=(name,), **options)
        except NotAvailableError as error:
            missing.append((name, str(error)))
    if not found:
        raise NotAvailableError(" ".join(why for _, why in missing) or "no scheduler was given: name at least one.")
    return ScheduleReplay(tuple(found), tuple(missing))


def _all(groups: int) -> tuple[str, ...]:
    known = [name for name in catalogue.names("scheduling") if name not in _CHOOSERS]
    return (PSG, *(name for name in known if name != _ILP or groups <= _ILP_MOST))


# Outcomes of schedulers on many ranks from group times alone: the simulation of Figure 5.
#
# Simulated: in each iteration every rank computes its groups one after another, and all wait for the straggler; then
# the gradients are all-reduced in ``allreduce_s``. Not simulated: loading of data, slow ranks, ranks that share cores
# or caches, an all-reduce that overlaps with computing or takes longer on more ranks, and evaluation between epochs.


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
    """One outcome for each number of ranks and scheduler, in this order.

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
        ConfigError: no rank or scheduler is given, or a number of ranks is below 1.
        UnknownNameError: the scheduler is unknown.

    References: DyGNeX section 5.4 and Figure 5.
    """
    times = times_of(times_s)
    seen = times if seen_s is None else times_of(seen_s)
    if seen.shape != times.shape:
        raise PlanError(f"seen_s has {len(seen)} groups and times_s {len(times)}: give each group one time in both.")
    if not ranks or min(ranks) < 1 or not schedulers:
        raise ConfigError(
            f"simulation of {list(schedulers)} on {list(ranks)} ranks: at least one of both is needed, and ranks of at "
            "least 1."
        )
    outcomes = []
    for count in ranks:
        exchange = allreduce_s if count > 1 else 0.0
        bound = lower_bound_s(times, count, per_rank=per_rank, allreduce_s=exchange)
        for name in schedulers:
            plan = solve(name, seen, count, per_rank=per_rank, allreduce_s=exchange, **options)
            most = named(name, per_rank)[1]
            outcomes.append(outcome(name, plan, times, per_rank=most, allreduce_s=exchange, bound_s=bound))
    return tuple(outcomes)
