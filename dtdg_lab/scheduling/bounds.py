"""What no schedule can beat: a lower bound of the makespan, which certifies a schedule without any search."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.plans import Schedule
from dtdg_lab.scheduling.checks import Problem, checked

CLOSE = 64  # iterations and multiples of R within which the bounds of few groups are looked at


def lower_bound_s(times_s: ArrayLike, ranks: int, *, per_rank: int = 2, allreduce_s: float = 0.0) -> float:
    """Seconds that every epoch of these groups takes at least.

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

    With L = 1 the bound is met: cutting the sorted times in runs of R is best. The exchange adds ``allreduce_s`` for
    each of at least ceil(K / B) iterations.

    Args:
        times_s: (K,) seconds of each group.
        ranks: R.
        per_rank: L, most groups of a rank in an iteration.
        allreduce_s: seconds of the exchange that ends an iteration.

    Raises:
        PlanError: a time is negative or not finite, or there is none.
        ConfigError: a knob has a value that is not allowed.

    References: 1 and 2 are the classical bounds of P||Cmax (Graham 1969; Dell'Amico, Martello 1995, L2); the sum
        over iterations and 3 are ours.
    """
    given = {"per_rank": per_rank, "allreduce_s": allreduce_s, "gap": 0.0, "time_limit_s": 1.0, "seed": 0}
    return problem_bound_s(checked(times_s, ranks, **given))  # type: ignore[arg-type]


def problem_bound_s(problem: Problem) -> float:
    """:func:`lower_bound_s` of what has been checked already; exact arithmetic aside, rounded down by 1e-12 of it."""
    longest_first = np.sort(problem.times_s)[::-1]
    before = np.append(0.0, np.cumsum(longest_first))
    starts = np.arange(0, problem.groups, problem.share)
    heads = np.append(0.0, np.cumsum(longest_first[starts]))
    best = max(heads[-1], float((heads[:-1] + (before[-1] - before[starts]) / problem.ranks).max()))
    for head, start in zip(heads[:CLOSE], starts[:CLOSE], strict=False):
        best = max(best, float(head) + _few_groups(longest_first[start:], problem))
    # sums are rounded: a bound that is one rounding too high would call a best schedule impossible
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


def certified_gap(schedule: Schedule, times_s: ArrayLike, *, per_rank: int = 2, allreduce_s: float = 0.0) -> float:
    """How far a schedule's makespan is above :func:`lower_bound_s`, relative to that bound: at most so far from best.

    0.0 where nothing takes any time.
    """
    bound_s = lower_bound_s(times_s, schedule.parts, per_rank=per_rank, allreduce_s=allreduce_s)
    return relative_gap(schedule.makespan_s(np.asarray(times_s, np.float64), allreduce_s=allreduce_s), bound_s)


def relative_gap(makespan_s: float, bound_s: float) -> float:
    """(makespan - bound) / bound, at least 0; 0.0 for two zeros, and within roundings of the sums."""
    if makespan_s <= bound_s * (1 + 4e-12):
        return 0.0
    return (makespan_s - bound_s) / bound_s if bound_s > 0 else float("inf")
