"""Longest groups first: each iteration takes the longest groups left, so that what waits together is alike."""

from __future__ import annotations

import heapq
import time

import numpy as np
from numpy.typing import ArrayLike

from dtdg_lab.core.plans import Schedule
from dtdg_lab.systems.snapshot_groups.schedulers.base import Problem, Slots, checked, finished


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
    """Sort groups by time, cut into iterations of R L, and give each to the least loaded rank.

    Args:
        times_s: (K,) predicted or measured seconds of each group.
        ranks: R.
        per_rank: L, most groups of a rank in an iteration.
        allreduce_s: seconds of an exchange; the number of iterations is fixed by ``per_rank``, so only the gap
            reads it.
        gap: not used by this rule.
        time_limit_s: not used by this rule.
        seed: not used by this rule: nothing is drawn.
        targets: not used by this rule.

    Returns:
        ceil(K / (R L)) iterations. Ties go to the lower group and the lower rank.

    Raises:
        PlanError: a time is negative or not finite, or there is none.
        ConfigError: a knob has a value that is not allowed.

    References: Graham 1969 (longest processing time first), applied to each iteration, which is what waits together.
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
    return finished(dealt_longest_first(problem), problem, since=since)


def dealt_longest_first(problem: Problem) -> Slots:
    """The slots of :func:`schedule`."""
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
