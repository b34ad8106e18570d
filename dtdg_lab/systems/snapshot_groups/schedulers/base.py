"""Interface of schedulers: the problem that they solve, a schedule under construction, and a lower bound."""

from __future__ import annotations

import functools
import inspect
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.config import catalogue
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.core.errors import ConfigError, PlanError, shortened
from dtdg_lab.core.plans import Schedule


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Groups to be scheduled: K groups on R ranks, at most L groups per rank and iteration.

    A run schedules its parts, which are the ranks here: a rank of the run may execute several.

    Attributes:
        times_s: (K,) predicted or measured seconds of each group; at least 0. Kept as a read-only copy.
        ranks: R.
        per_rank: L.
        allreduce_s: seconds of the gradient exchange that ends every iteration.
        gap: relative distance from a bound at which a search may stop.
        time_limit_s: seconds a search may take.
        seed: seed of the random numbers.
        targets: number that DyGNeX-G tries per iteration; 0 limits them to about a second of work.
        settings: options of the run that the scheduler's entry names, by name.
        since: ``time.perf_counter()`` at the start of scheduling.

    Raises:
        PlanError: ``times_s`` is not a non-empty vector of finite numbers of at least 0.
        ConfigError: another attribute has an invalid value.
    """

    times_s: NDArray[np.float64]
    ranks: int
    per_rank: int = 2
    allreduce_s: float = 0.0
    gap: float = 0.02
    time_limit_s: float = 10.0
    seed: int = 0
    targets: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    since: float = field(default_factory=time.perf_counter, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "times_s", checked_times(self.times_s))
        for name, minimum in (("ranks", 1), ("per_rank", 1), ("seed", 0), ("targets", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
                raise ConfigError(f"{name}={shortened(value)}: give a whole number of at least {minimum}.")
            object.__setattr__(self, name, int(value))
        for name in ("allreduce_s", "gap", "time_limit_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value) or value < 0:
                raise ConfigError(f"{name}={shortened(value)}: give a finite number of at least 0.")
            object.__setattr__(self, name, float(value))
        if self.time_limit_s == 0:
            raise ConfigError("time_limit_s=0 leaves no time for a search. Set it above 0, or choose scheduler 'fold'.")

    @property
    def until(self) -> float:
        """Value of ``time.perf_counter()`` at which the time limit ends."""
        return self.since + self.time_limit_s

    @property
    def groups(self) -> int:
        """Number of groups K."""
        return len(self.times_s)

    @property
    def share(self) -> int:
        """R L, the maximum number of groups in an iteration."""
        return self.ranks * self.per_rank

    @property
    def fewest(self) -> int:
        """The minimum number of iterations for all groups, ceil(K / (R L))."""
        return -(-self.groups // self.share)

    @property
    def most(self) -> int:
        """The maximum number of iterations that some optimal schedule needs.

        With L >= 2, two iterations of at most R groups each can be merged without taking longer: place one group per
        rank, then stack the two iterations. So some optimal schedule has at most one iteration of fewer than R + 1
        groups.
        """
        if self.per_rank == 1:
            return self.fewest
        return max(self.fewest, (self.groups - 1) // (self.ranks + 1) + 1)


def checked_times(times_s: ArrayLike) -> NDArray[np.float64]:
    """Return a read-only copy, (K,) float64.

    Raises:
        PlanError: it is not a non-empty vector of finite numbers of at least 0.
    """
    try:
        times = np.array(times_s, np.float64)
    except (TypeError, ValueError) as error:
        raise PlanError(f"times_s must hold the seconds of each group, not {shortened(times_s)}.") from error
    if times.ndim != 1 or not len(times):
        raise PlanError(
            f"times_s has shape {times.shape}. Give a vector with the seconds of at least one group. "
            "Are there enough snapshots for one group?"
        )
    wrong = np.flatnonzero(~(np.isfinite(times) & (times >= 0)))
    if len(wrong):
        examples = ", ".join(f"group {group}: {times[group]} s" for group in wrong[:4])
        raise PlanError(
            f"{len(wrong)} of {len(times)} group times are negative or not finite ({examples}). "
            "They must be finite seconds of at least 0. Profile these groups again, or predict their times."
        )
    with np.errstate(over="ignore"):
        total = times.sum()
    if not np.isfinite(total):
        raise PlanError("the sum of the group times exceeds the range of float64. Are they in seconds?")
    times.setflags(write=False)
    return times


def times_of(times_s: ArrayLike) -> NDArray[np.float64]:
    """Return (K,) seconds as an array; some groups may take no time, but not all.

    Raises:
        PlanError: ``times_s`` is empty, a time is negative or not finite, or all are 0.
    """
    times = checked_times(times_s)
    if not times.any():
        raise PlanError("all group times are 0 s, so schedules cannot be compared. Profile or predict the times.")
    return times


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerFacts:
    """Properties of a scheduler that are known before it runs.

    Attributes:
        uses_times: True if group times affect its schedules; if False, its iterations are full.
        searches: True if it may stop at the time limit, so that equal runs may have different schedules.
        chooses: True if it only chooses among other schedulers; a comparison of all leaves it out.
        most_groups: number of groups above which a comparison of all leaves it out as too slow; None for no limit.
    """

    uses_times: bool = True
    searches: bool = False
    chooses: bool = False
    most_groups: int | None = None


@overload
def scheduler(rule: Callable[[Problem], Schedule]) -> Callable[..., Schedule]: ...


@overload
def scheduler(**facts: Any) -> Callable[[Callable[[Problem], Schedule]], Callable[..., Schedule]]: ...


def scheduler(rule: Callable[[Problem], Schedule] | None = None, **facts: Any) -> Any:
    """Turn a rule into a scheduler ``schedule(times_s, ranks, **options)`` with the fields of a `Problem` as arguments.

    Args:
        rule: solves the problem. Its docstring describes its use of the options; it ignores unlisted ones.
        facts: attributes of :class:`SchedulerFacts`, as in ``@scheduler(uses_times=False)``.
    """
    if rule is None:
        return functools.partial(scheduler, **facts)

    @functools.wraps(rule)
    def schedule(times_s: NDArray[np.float64], ranks: int, **options: Any) -> Schedule:
        return rule(Problem(times_s, ranks, **options))

    signature = inspect.signature(schedule, follow_wrapped=False)  # its arguments are not those of the rule
    vars(schedule).update(facts=SchedulerFacts(**facts), __signature__=signature)
    return schedule


def facts_of(name: str) -> SchedulerFacts:
    """Return the declared properties of a scheduler of the catalogue."""
    facts: SchedulerFacts = catalogue.entry("scheduling", name).load().facts
    return facts


PSG = "psg"


def named(scheduler: str, per_rank: int) -> tuple[str, int]:
    """Return the catalogue's name of a scheduler and its groups per rank: ``psg`` is round_robin with one."""
    return ("round_robin", 1) if scheduler == PSG else (scheduler, per_rank)


def solve(
    scheduler: str,
    times_s: ArrayLike,
    ranks: int,
    *,
    per_rank: int = 2,
    settings: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> Schedule:
    """Run a scheduler; the schedule includes the seconds it took.

    Args:
        scheduler: ``psg``, or a name of the catalogue's kind ``scheduling``.
        times_s: (K,) seconds of each group.
        ranks: R.
        per_rank: maximum number of groups per rank and iteration; ``psg`` always has one.
        settings: options of the run by name; defaults are filled in.
        **options: further attributes of a :class:`Problem`.

    Raises:
        UnknownNameError: the scheduler is unknown.
        NotAvailableError: a package that it needs is not installed.
    """
    name, groups_per_rank = named(scheduler, per_rank)
    entry = catalogue.entry("scheduling", name)
    run = entry.load()
    if "schedule_targets" not in entry.options:
        options.pop("targets", None)
    settings = {name: OPTIONS[name].default for name in entry.options} | dict(settings)
    began_s = time.perf_counter()
    schedule: Schedule = run(times_s, ranks, per_rank=groups_per_rank, settings=settings, **options)
    return replace(schedule, seconds=time.perf_counter() - began_s)


CLOSE = 64  # number of iterations, and multiples of R, for which the bounds of few groups are evaluated


def lower_bound_s(times_s: ArrayLike, ranks: int, *, per_rank: int = 2, allreduce_s: float = 0.0) -> float:
    """Return a lower bound in seconds of any epoch of these groups.

    Let t_0 >= t_1 >= ... be the sorted times, B = R L, and let iterations be numbered by their largest group, the
    largest first. The first i iterations hold at most i B groups, so the largest group of iteration i is at least
    t_{iB}. So the first j iterations take at least H_j = t_0 + t_B + ... + t_{(j-1)B}. The other iterations contain at
    least K - jB groups; in descending order, none of them is shorter than its counterpart in t_{jB}, t_{jB+1}, .... So
    for every j the epoch takes at least H_j plus a bound for these groups, and the best j counts. Bounds of n groups

    1. load: sum(u) / R, since no iteration is shorter than its ranks' mean;
    2. few ranks: a rank's own time over the epoch is at most the makespan, and of the h R + 1 largest groups some
       rank computes h + 1, which take at least the sum of the h + 1 smallest of them;
    3. pairs (L = 2): u_i + u_{2R-1-i} for i < R. Call the i + 1 groups of at least a = u_i long, and the 2R - i groups
       of at least b = u_{2R-1-i} relevant. If a long and a relevant group are in different iterations, these take at
       least a + b. Else all relevant groups are in one iteration. If there a long group shares a rank with a relevant
       one, this rank takes a + b. Else the i + 1 long ones fill a rank each, and R - i - 1 ranks hold at most
       2R - 2i - 2 of the 2R - 2i - 1 relevant others: a contradiction. So fold is best where K <= 2R.

    With L = 1 the bound is tight: cutting the sorted times in runs of R is optimal. The all-reduce adds ``allreduce_s``
    for each of at least ceil(K / B) iterations.

    Args:
        times_s: (K,) seconds of each group.
        ranks: R.
        per_rank: L, the maximum number of groups per rank and iteration.
        allreduce_s: seconds of the gradient all-reduce that ends an iteration.

    Raises:
        PlanError: a time is negative or not finite, or ``times_s`` is empty.
        ConfigError: an option has an invalid value.

    References: 1 and 2 are the classical bounds of P||Cmax (Graham 1969; Dell'Amico, Martello 1995, L2); the sum
        over iterations and 3 are ours.
    """
    return problem_bound_s(Problem(checked_times(times_s), ranks, per_rank, allreduce_s))


def problem_bound_s(problem: Problem) -> float:
    """Return :func:`lower_bound_s` of a validated problem, reduced by a factor of 1e-12 for rounding errors."""
    longest_first = np.sort(problem.times_s)[::-1]
    sums = np.append(0.0, np.cumsum(longest_first))
    starts = np.arange(0, problem.groups, problem.share)
    heads = np.append(0.0, np.cumsum(longest_first[starts]))
    best = max(heads[-1], float((heads[:-1] + (sums[-1] - sums[starts]) / problem.ranks).max()))
    for head, start in zip(heads[:CLOSE], starts[:CLOSE], strict=False):
        best = max(best, float(head) + _few_groups(longest_first[start:], problem))
    # sums are rounded: a bound slightly too high would call an optimal schedule impossible
    return float(best) * (1 - 1e-12) + problem.fewest * problem.allreduce_s


def _few_groups(times_s: NDArray[np.float64], problem: Problem) -> float:
    """Return bounds 2 and 3 for sorted times, the longest first."""
    ranks, groups = problem.ranks, len(times_s)
    best = 0.0
    for count in range(1, min(CLOSE, (groups - 1) // ranks) + 1):
        last = count * ranks  # some rank computes count + 1 of the groups 0 .. last
        best = max(best, float(times_s[last - count : last + 1].sum()))
    if problem.per_rank == 2 and groups > ranks:
        padded = np.zeros(2 * ranks)
        padded[: min(groups, 2 * ranks)] = times_s[: 2 * ranks]
        best = max(best, float((padded[:ranks] + padded[: ranks - 1 : -1]).max()))
    return best


def relative_gap(makespan_s: float, bound_s: float) -> float:
    """Return (makespan - bound) / bound, at least 0; 0.0 if both are 0 or differ only by rounding."""
    if makespan_s <= bound_s * (1 + 4e-12):
        return 0.0
    return (makespan_s - bound_s) / bound_s if bound_s > 0 else float("inf")


Slots = NDArray[np.int64]


def loads_s(slots: Slots, problem: Problem) -> NDArray[np.float64]:
    """Return the (iterations, R) seconds of each rank."""
    loads: NDArray[np.float64] = np.append(problem.times_s, 0.0)[slots].sum(axis=2)
    return loads


def makespan_s(slots: Slots, problem: Problem) -> float:
    """Return the epoch's seconds: the straggler of each iteration, and the all-reduce of each non-empty one."""
    iterations = int((slots < problem.groups).any(axis=(1, 2)).sum())
    return float(loads_s(slots, problem).max(axis=1).sum()) + iterations * problem.allreduce_s


def from_rows(rows: list[list[tuple[int, ...]]], problem: Problem) -> Slots:
    """Return the slots of rows of groups by rank; ranks missing from a row are idle."""
    slots = np.full((len(rows), problem.ranks, problem.per_rank), problem.groups, np.int64)
    for iteration, row in enumerate(rows):
        for rank, groups in enumerate(row):
            slots[iteration, rank, : len(groups)] = groups
    return slots


def finished(
    slots: Slots, problem: Problem, *, notes: str = "", bound_s: float | None = None, targets: int | None = None
) -> Schedule:
    """Return the schedule of these slots without empty iterations, with its certified gap.

    Args:
        slots: (iterations, R, L).
        problem: the problem that they solve.
        notes: remarks for the reader.
        bound_s: a tighter bound than :func:`problem_bound_s`, if a search has found one.
        targets: number that DyGNeX-G tried per iteration; None if it did not run.
    """
    groups = problem.groups
    rows = tuple(
        tuple(tuple(group for group in rank if group < groups) for rank in row)
        for row in slots[(slots < groups).any(axis=(1, 2))].tolist()
    )
    bound_s = problem_bound_s(problem) if bound_s is None else bound_s
    gap = relative_gap(makespan_s(slots, problem), bound_s)
    return Schedule(rows, groups, notes, gap, time.perf_counter() - problem.since, targets)
