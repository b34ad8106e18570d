"""Longest groups first: each iteration takes the longest remaining groups, so its ranks finish at similar times."""

from __future__ import annotations

import heapq

import numpy as np

from dtdg_lab.core.plans import Schedule
from dtdg_lab.systems.snapshot_groups.schedulers.base import Problem, Slots, finished, scheduler


@scheduler
def schedule_longest_first(problem: Problem) -> Schedule:
    """Sort groups by time, cut them into iterations of R L, and give each group to the least loaded rank.

    Options:
        per_rank: L, the maximum number of groups per rank and iteration.
        allreduce_s: seconds of an all-reduce; only the gap uses it, since ``per_rank`` fixes the number of iterations.

    Returns:
        ceil(K / (R L)) iterations. Ties are broken by the lower group and the lower rank.

    References: Graham 1969 (longest processing time first), applied to each iteration, since an iteration synchronises.
    """
    return finished(longest_first_slots(problem), problem)


def longest_first_slots(problem: Problem) -> Slots:
    """Return the slots of :func:`schedule_longest_first`."""
    slots = np.full((problem.fewest, problem.ranks, problem.per_rank), problem.groups)
    order = np.argsort(-problem.times_s, kind="stable").tolist()
    times_s = problem.times_s.tolist()
    for iteration in range(problem.fewest):
        least_loaded = [(0.0, rank, 0) for rank in range(problem.ranks)]  # sorted, so already a heap
        for group in order[iteration * problem.share : (iteration + 1) * problem.share]:
            load_s, rank, slot = heapq.heappop(least_loaded)
            slots[iteration, rank, slot] = group
            if slot + 1 < problem.per_rank:
                heapq.heappush(least_loaded, (load_s + times_s[group], rank, slot + 1))
    return slots
