"""Fold: the largest with the smallest, and like sums side by side."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import ArrayLike

from dtdg_lab.core.plans import Schedule
from dtdg_lab.scheduling.checks import Problem, checked
from dtdg_lab.scheduling.slots import Slots, finished


def schedule(
    times_s: ArrayLike,
    ranks: int,
    *,
    per_rank: int = 2,
    allreduce_s: float = 0.0,
    gap: float = 0.02,
    time_limit_s: float = 10.0,
    seed: int = 0,
    targets: int = 0,
) -> Schedule:
    """Sort groups, pair the largest with the smallest, sort the pairs by their sums, and deal these in runs of R.

    On a growing graph the sums are nearly alike, so nobody waits. Takes O(K log K), milliseconds for 10,000 groups.

    Args:
        times_s: (K,) predicted or measured seconds of each group.
        ranks: R.
        per_rank: L, most groups of a rank in an iteration. With 1 it is ``longest_first``; with 3 and more each
            further run of groups, the largest first, goes to the bundles with the smallest sums.
        allreduce_s: seconds of an exchange; the number of iterations is fixed by ``per_rank``, so only the gap
            reads it.
        gap: not used by this rule.
        time_limit_s: not used by this rule.
        seed: not used by this rule: nothing is drawn.
        targets: not used by this rule.

    Returns:
        ceil(K / (R L)) iterations. Where K does not fill them, the largest groups stay alone. Ties go to the lower
        group. The best schedule there is where K <= 2 R and L = 2.

    Raises:
        PlanError: a time is negative or not finite, or there is none.
        ConfigError: a knob has a value that is not allowed.

    References: ours.
    """
    since = time.perf_counter()
    problem = checked(
        times_s,
        ranks,
        per_rank=per_rank,
        allreduce_s=allreduce_s,
        gap=gap,
        time_limit_s=time_limit_s,
        seed=seed,
        targets=targets,
    )
    return finished(folded(problem, problem.fewest * problem.ranks), problem, since=since)


def folded(problem: Problem, bundles: int) -> Slots:
    """Groups in a number of bundles, at least ceil(K / L), dealt in runs of R; (ceil(bundles / R), R, L)."""
    groups, each = problem.groups, problem.per_rank
    lengths_s = np.append(problem.times_s, 0.0)
    longest_first = np.full(bundles * each, groups)
    longest_first[:groups] = np.argsort(-problem.times_s, kind="stable")
    rounds = longest_first.reshape(each, bundles)
    members = rounds.T.copy()
    sums = lengths_s[rounds[0]]
    for number, groups_of_round in enumerate(rounds[1:], start=1):
        smallest_first = np.argsort(sums, kind="stable")
        members[smallest_first, number] = groups_of_round
        sums[smallest_first] += lengths_s[groups_of_round]
    iterations = -(-bundles // problem.ranks)
    slots = np.full((iterations * problem.ranks, each), groups)
    slots[:bundles] = members[np.argsort(-sums, kind="stable")]
    return slots.reshape(iterations, problem.ranks, each)
