"""Schedule under construction: slots (iterations, R, L) that each hold a group's index, or K if empty."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.plans import Schedule
from dtdg_lab.systems.snapshot_groups.schedulers.base import Problem
from dtdg_lab.systems.snapshot_groups.schedulers.bounds import problem_bound_s, relative_gap

Slots = NDArray[np.int64]


def loads_s(slots: Slots, problem: Problem) -> NDArray[np.float64]:
    """Return the seconds of each rank in each iteration, (iterations, R)."""
    loads: NDArray[np.float64] = np.append(problem.times_s, 0.0)[slots].sum(axis=2)
    return loads


def makespan_s(slots: Slots, problem: Problem) -> float:
    """Return the epoch's seconds: the straggler of each iteration, and the all-reduce of each non-empty one."""
    iterations = int((slots < problem.groups).any(axis=(1, 2)).sum())
    return float(loads_s(slots, problem).max(axis=1).sum()) + iterations * problem.allreduce_s


def from_rows(rows: list[list[tuple[int, ...]]], problem: Problem) -> Slots:
    """Return slots from rows of ranks' groups; ranks that a row does not list are idle."""
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
