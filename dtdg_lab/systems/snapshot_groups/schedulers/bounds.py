"""Lower bound of the makespan of any schedule, which can certify a schedule without a search."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.systems.snapshot_groups.schedulers.base import Problem, checked_times

CLOSE = 64  # iterations, and multiples of R, for which the bounds of few groups are evaluated


def lower_bound_s(times_s: ArrayLike, ranks: int, *, per_rank: int = 2, allreduce_s: float = 0.0) -> float:
    """Return a lower bound in seconds of any epoch of these groups.

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
    """Return :func:`lower_bound_s` of a validated problem, less 1e-12 of itself to allow for rounding errors."""
    longest_first = np.sort(problem.times_s)[::-1]
    sums = np.append(0.0, np.cumsum(longest_first))
    starts = np.arange(0, problem.groups, problem.share)
    heads = np.append(0.0, np.cumsum(longest_first[starts]))
    best = max(heads[-1], float((heads[:-1] + (sums[-1] - sums[starts]) / problem.ranks).max()))
    for head, start in zip(heads[:CLOSE], starts[:CLOSE], strict=False):
        best = max(best, float(head) + _few_groups(longest_first[start:], problem))
    # sums are rounded: a bound that is slightly too high would declare an optimal schedule impossible
    return float(best) * (1 - 1e-12) + problem.fewest * problem.allreduce_s


def _few_groups(times_s: NDArray[np.float64], problem: Problem) -> float:
    """Return bounds 2 and 3 for sorted times, the longest first."""
    ranks, groups = problem.ranks, len(times_s)
    best = 0.0
    for count in range(1, min(CLOSE, (groups - 1) // ranks) + 1):
        last = count * ranks  # of the groups 0 .. last some rank computes count + 1
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
