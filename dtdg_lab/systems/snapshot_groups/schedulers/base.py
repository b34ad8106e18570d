"""What schedulers share: validation, slots, bounds, outcomes, lookup, longest-first rule, simulation, replay."""

from __future__ import annotations

import functools
import heapq
import inspect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.config import catalogue
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.core.errors import ConfigError, NotAvailableError, PlanError, shortened
from dtdg_lab.core.plans import Schedule

# The input of a scheduler, validated once for all of them.


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Groups to be scheduled: K groups on R ranks, at most L groups per rank and iteration.

    Attributes:
        times_s: (K,) predicted or measured seconds of each group; at least 0. Kept as a read-only copy.
        ranks: R.
        per_rank: L.
        allreduce_s: seconds of the gradient exchange that ends every iteration.
        gap: how far above a bound a search may stop, relative to that bound.
        time_limit_s: seconds a search may take.
        seed: of the random numbers.
        targets: that DyGNeX-G tries per iteration; 0 limits them to about a second of work.
        settings: options of the run that the scheduler's entry names, by name.
        since: ``time.perf_counter()`` when scheduling began.

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
        for name, least in (("ranks", 1), ("per_rank", 1), ("seed", 0), ("targets", 0)):
            given = getattr(self, name)
            if isinstance(given, bool) or not isinstance(given, Integral) or given < least:
                raise ConfigError(f"{name} is {shortened(given)}: a whole number of at least {least} is allowed.")
            object.__setattr__(self, name, int(given))
        for name in ("allreduce_s", "gap", "time_limit_s"):
            given = getattr(self, name)
            if isinstance(given, bool) or not isinstance(given, Real) or not math.isfinite(given) or given < 0:
                raise ConfigError(f"{name} is {shortened(given)}: a finite number of at least 0 is allowed.")
            object.__setattr__(self, name, float(given))
        if self.time_limit_s == 0:
            raise ConfigError(
                "time_limit_s is 0: a search needs some time. Set it above 0, or choose scheduler 'fold'."
            )

    @property
    def until(self) -> float:
        """Value of ``time.perf_counter()`` at which the time limit is over."""
        return self.since + self.time_limit_s

    @property
    def groups(self) -> int:
        """K."""
        return len(self.times_s)

    @property
    def share(self) -> int:
        """R L, the most groups of an iteration."""
        return self.ranks * self.per_rank

    @property
    def fewest(self) -> int:
        """The fewest iterations that hold all groups, ceil(K / (R L))."""
        return -(-self.groups // self.share)

    @property
    def most(self) -> int:
        """The maximum number of iterations that some optimal schedule needs.

        With L >= 2, two iterations of at most R groups each can be merged without taking longer: first place one
        group per rank, then stack the two iterations. So some optimal schedule has at most one iteration of fewer
        than R + 1 groups.
        """
        if self.per_rank == 1:
            return self.fewest
        return max(self.fewest, (self.groups - 1) // (self.ranks + 1) + 1)


def checked_times(times_s: ArrayLike) -> NDArray[np.float64]:
    """A read-only copy, (K,) float64.

    Raises:
        PlanError: it is not a non-empty vector of finite numbers of at least 0.
    """
    try:
        own = np.array(times_s, np.float64)
    except (TypeError, ValueError) as error:
        raise PlanError(f"times_s must hold the seconds of each group, not {shortened(times_s)}.") from error
    if own.ndim != 1 or not len(own):
        raise PlanError(
            f"times_s has shape {own.shape}: a vector with the seconds of at least one group is needed. "
            "Are there enough snapshots for one group?"
        )
    wrong = np.flatnonzero(~(np.isfinite(own) & (own >= 0)))
    if len(wrong):
        described = ", ".join(f"group {group}: {own[group]} s" for group in wrong[:4])
        raise PlanError(
            f"{len(wrong)} of {len(own)} group times are negative or not finite ({described}). "
            "They must be finite seconds of at least 0. Profile these groups again, or predict their times."
        )
    with np.errstate(over="ignore"):
        total = own.sum()
    if not np.isfinite(total):
        raise PlanError("the sum of the group times exceeds the range of float64. Are they in seconds?")
    own.setflags(write=False)
    return own


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerFacts:
    """What is known of a scheduler beforehand.

    Attributes:
        uses_times: whether the times of groups affect its schedules; where they do not, its iterations are full.
        searches: whether it may stop at the time limit, so that equal runs may have different schedules.
        chooses: whether it only chooses among other schedulers, so that a comparison of all leaves it out.
        most_groups: above this number a comparison of all leaves it out, because it takes too long; None: never.
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
    """Make a scheduler ``schedule(times_s, ranks, **options)``, whose arguments are the attributes of a `Problem`.

    Args:
        rule: solves the problem. Its docstring says what it makes of the options; it ignores those that are not listed.
        facts: attributes of :class:`SchedulerFacts`, as in ``@scheduler(uses_times=False)``.
    """
    if rule is None:
        return functools.partial(scheduler, **facts)

    @functools.wraps(rule)
    def schedule(times_s: NDArray[np.float64], ranks: int, **options: Any) -> Schedule:
        return rule(Problem(times_s, ranks, **options))

    own = inspect.signature(schedule, follow_wrapped=False)  # its arguments are not those of the rule
    vars(schedule).update(facts=SchedulerFacts(**facts), __signature__=own)
    return schedule


def facts_of(name: str) -> SchedulerFacts:
    """Return what is known of a scheduler of the catalogue beforehand."""
    facts: SchedulerFacts = catalogue.entry("scheduling", name).load().facts
    return facts


# A lower bound of the makespan, which can certify a schedule without a search.


CLOSE = 64  # iterations, and multiples of R, for which the bounds of few groups are evaluated


def lower_bound_s(times_s: ArrayLike, ranks: int, *, per_rank: int = 2, allreduce_s: float = 0.0) -> float:
    """Lower bound in seconds of any epoch of these groups.

    Let t_0 >= t_1 >= ... be the sorted times, B = R L, and let iterations be numbered by their largest group, the
    largest first. The first i iterations hold at most i B groups, so the largest group of iteration i is at least
    t_{iB}. So the first j iterations take at least H_j = t_0 + t_B + ... + t_{(j-1)B}. The other iterations hold at
    least K - jB groups; put in order, none of them is shorter than its counterpart in t_{jB}, t_{jB+1}, .... So for
    every j the epoch takes at least H_j plus a bound for those, and the best j counts. Bounds of n groups
    u_0 >= u_1 >= ... in any number of iterations:

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
    """:func:`lower_bound_s` of a validated problem, rounded down by 1e-12 of itself to allow for rounding errors."""
    longest_first = np.sort(problem.times_s)[::-1]
    before = np.append(0.0, np.cumsum(longest_first))
    starts = np.arange(0, problem.groups, problem.share)
    heads = np.append(0.0, np.cumsum(longest_first[starts]))
    best = max(heads[-1], float((heads[:-1] + (before[-1] - before[starts]) / problem.ranks).max()))
    for head, start in zip(heads[:CLOSE], starts[:CLOSE], strict=False):
        best = max(best, float(head) + _few_groups(longest_first[start:], problem))
    # sums are rounded: a bound that is slightly too high would declare an optimal schedule impossible
    return float(best) * (1 - 1e-12) + problem.fewest * problem.allreduce_s


def _few_groups(times_s: NDArray[np.float64], problem: Problem) -> float:
    """Bounds 2 and 3 for sorted times, the longest first."""
    ranks, groups = problem.ranks, len(times_s)
    best = 0.0
    for more in range(1, min(CLOSE, (groups - 1) // ranks) + 1):
        last = more * ranks  # of the groups 0 .. last some rank computes more + 1
        best = max(best, float(times_s[last - more : last + 1].sum()))
    if problem.per_rank == 2 and groups > ranks:
        padded = np.zeros(2 * ranks)
        padded[: min(groups, 2 * ranks)] = times_s[: 2 * ranks]
        best = max(best, float((padded[:ranks] + padded[: ranks - 1 : -1]).max()))
    return best


def relative_gap(makespan_s: float, bound_s: float) -> float:
    """(makespan - bound) / bound, at least 0; 0.0 if both are 0 or differ only by rounding."""
    if makespan_s <= bound_s * (1 + 4e-12):
        return 0.0
    return (makespan_s - bound_s) / bound_s if bound_s > 0 else float("inf")


# Metrics of a schedule for given group times: epoch time, throughput, imbalance, idle time, distance from a bound.


MEANINGS: Mapping[str, str] = MappingProxyType(catalogue.DECLARED["snapshot_groups"]["columns"]["schedules"])


@dataclass(frozen=True, slots=True)
class ScheduleOutcome:
    """Metrics of one schedule's epoch; ``MEANINGS`` describes each of them.

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
        """Plain values by name, for tables and events; None in place of infinity."""
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
    solve_s: float | None = None,
) -> ScheduleOutcome:
    """The metrics of ``schedule`` for groups that take ``times_s``.

    Args:
        scheduler: name of the scheduler.
        schedule: of K groups on R ranks.
        times_s: (K,) seconds of each group, not all 0; not necessarily those the schedule was made for.
        per_rank: maximum number of groups per rank and iteration.
        allreduce_s: seconds of the gradient all-reduce that ends an iteration.
        bound_s: lower bound of the epoch's seconds for these times.
        solve_s: seconds the scheduler took; by default the schedule's own.
    """
    loads = schedule.loads(times_s)
    slowest, alone = loads.max(axis=1), float(np.sum(times_s))
    busy = float(slowest.sum())
    makespan = busy + allreduce_s * len(loads)
    per_epoch = loads.sum(axis=0)
    mean = loads.mean(axis=1)
    uneven = np.divide(slowest, mean, out=np.ones_like(mean), where=mean > 0)
    least = float(per_epoch.min())
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
        throughput=alone / (ranks * makespan),
        bound_throughput=alone / (ranks * bound_s),
        imbalance=float(per_epoch.max()) / least if least > 0 else float("inf"),
        iteration_imbalance=busy / float(mean.sum()),
        worst_iteration_imbalance=float(uneven.max()),
        idle_share=max(0.0, 1 - alone / (ranks * busy)),
        targets=schedule.targets,
        solve_s=schedule.seconds if solve_s is None else solve_s,
        notes=schedule.notes,
    )


# A schedule under construction: slots (iterations, R, L) that each hold a group's index, or K if empty.


Slots = NDArray[np.int64]


def loads_s(slots: Slots, problem: Problem) -> NDArray[np.float64]:
    """Seconds of each rank in each iteration, (iterations, R)."""
    loads: NDArray[np.float64] = np.append(problem.times_s, 0.0)[slots].sum(axis=2)
    return loads


def makespan_s(slots: Slots, problem: Problem) -> float:
    """Seconds of the epoch: the straggler of each iteration, plus the all-reduce of each non-empty iteration."""
    held = int((slots < problem.groups).any(axis=(1, 2)).sum())
    return float(loads_s(slots, problem).max(axis=1).sum()) + held * problem.allreduce_s


def from_rows(rows: list[list[tuple[int, ...]]], problem: Problem) -> Slots:
    """Slots from rows of ranks' groups; a row may list fewer ranks than there are, the others are idle."""
    slots = np.full((len(rows), problem.ranks, problem.per_rank), problem.groups, np.int64)
    for iteration, row in enumerate(rows):
        for rank, groups in enumerate(row):
            slots[iteration, rank, : len(groups)] = groups
    return slots


def finished(
    slots: Slots, problem: Problem, *, notes: str = "", bound_s: float | None = None, targets: int | None = None
) -> Schedule:
    """The schedule of these slots without empty iterations, with its certified gap.

    Args:
        slots: (iterations, R, L).
        problem: the problem that they solve.
        notes: remarks for the reader.
        bound_s: a tighter bound than :func:`problem_bound_s`, if a search has found one.
        targets: that DyGNeX-G tried per iteration; None if it did not run.
    """
    groups = problem.groups
    rows = tuple(
        tuple(tuple(group for group in rank if group < groups) for rank in row)
        for row in slots[(slots < groups).any(axis=(1, 2))].tolist()
    )
    bound_s = problem_bound_s(problem) if bound_s is None else bound_s
    gap = relative_gap(makespan_s(slots, problem), bound_s)
    return Schedule(rows, groups, notes, gap, time.perf_counter() - problem.since, targets)


# Run a scheduler by name on group times: shared by simulation, replay and prediction.


PSG = "psg"


def named(scheduler: str, per_rank: int) -> tuple[str, int]:
    """The catalogue's name of a scheduler and its groups per rank: ``psg`` is round_robin with one."""
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
    name, most = named(scheduler, per_rank)
    entry = catalogue.entry("scheduling", name)
    run = entry.load()
    if "schedule_targets" not in entry.options:
        options.pop("targets", None)
    settings = {name: OPTIONS[name].default for name in entry.options} | dict(settings)
    begun = time.perf_counter()
    made: Schedule = run(times_s, ranks, per_rank=most, settings=settings, **options)
    return replace(made, seconds=time.perf_counter() - begun)


def times_of(times_s: ArrayLike) -> NDArray[np.float64]:
    """(K,) seconds as an array; some groups may take no time, but not all.

    Raises:
        PlanError: ``times_s`` is empty, a time is negative or not finite, or all are 0.
    """
    times = checked_times(times_s)
    if not times.any():
        raise PlanError("all group times are 0 s, so there is nothing to compare. Profile them, or predict them.")
    return times


# Longest groups first: each iteration takes the longest groups left, so that its ranks finish at similar times.


@scheduler
def schedule_longest_first(problem: Problem) -> Schedule:
    """Sort groups by time, cut into iterations of R L, and give each to the least loaded rank.

    Options:
        per_rank: L, the maximum number of groups per rank and iteration.
        allreduce_s: seconds of an all-reduce; ``per_rank`` fixes the number of iterations, so only the gap
            uses it.

    Returns:
        ceil(K / (R L)) iterations. Ties are broken by the lower group and the lower rank.

    References: Graham 1969 (longest processing time first), applied to each iteration, since an iteration synchronises.
    """
    return finished(longest_first_slots(problem), problem)


def longest_first_slots(problem: Problem) -> Slots:
    """The slots of :func:`schedule_longest_first`."""
    slots = np.full((problem.fewest, problem.ranks, problem.per_rank), problem.groups)
    order = np.argsort(-problem.times_s, kind="stable").tolist()
    times_s = problem.times_s.tolist()
    for iteration in range(problem.fewest):
        least_loaded = [(0.0, rank, 0) for rank in range(problem.ranks)]  # in order, so a heap already
        for group in order[iteration * problem.share : (iteration + 1) * problem.share]:
            load_s, rank, held = heapq.heappop(least_loaded)
            slots[iteration, rank, held] = group
            if held + 1 < problem.per_rank:
                heapq.heappush(least_loaded, (load_s + times_s[group], rank, held + 1))
    return slots


# How the other schedulers would have performed with the group times of a run.


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


def _is_compared(name: str, groups: int) -> bool:
    """Return whether a comparison of all schedulers has this one; round_robin is listed as psg."""
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
    if schedulers is None:
        schedulers = (PSG, *(name for name in catalogue.names("scheduling") if _is_compared(name, len(times))))
    for name in schedulers:
        try:
            found += simulate(times, ranks=(ranks,), schedulers=(name,), **options)
        except NotAvailableError as error:
            missing.append((name, str(error)))
    if not found:
        raise NotAvailableError(" ".join(why for _, why in missing) or "no scheduler was given: name at least one.")
    return ScheduleReplay(tuple(found), tuple(missing))


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
