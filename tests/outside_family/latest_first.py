"""A scheduler outside the package: the latest groups first."""

from __future__ import annotations

from dtdg_lab.core.plans import Schedule
from dtdg_lab.systems.snapshot_groups.schedulers.base import Problem, scheduler


@scheduler(uses_times=False)
def latest_first(problem: Problem) -> Schedule:
    """Assign groups to ranks in turn, from the last to the first."""
    order = list(reversed(range(problem.groups)))
    ranks, share = problem.ranks, problem.share
    rows = [order[first : first + share] for first in range(0, len(order), share)]
    return Schedule(tuple(tuple(tuple(row[rank::ranks]) for rank in range(ranks)) for row in rows), len(order))
