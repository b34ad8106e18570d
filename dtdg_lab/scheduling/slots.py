"""A schedule while it is made: slots (iterations, R, L) that hold a group's number each, or K where they are empty."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.plans import Schedule
from dtdg_lab.scheduling.bounds import problem_bound_s, relative_gap
from dtdg_lab.scheduling.checks import Problem

Slots = NDArray[np.int64]


def loads_s(slots: Slots, problem: Problem) -> NDArray[np.float64]:
    """Seconds of each rank in each iteration, (iterations, R)."""
    loads: NDArray[np.float64] = np.append(problem.times_s, 0.0)[slots].sum(axis=2)
    return loads


def makespan_s(slots: Slots, problem: Problem) -> float:
    """Seconds of the epoch: each iteration's slowest rank, plus the exchange of every iteration that holds a group."""
    held = int((slots < problem.groups).any(axis=(1, 2)).sum())
    return float(loads_s(slots, problem).max(axis=1).sum()) + held * problem.allreduce_s


def from_rows(rows: list[list[tuple[int, ...]]], problem: Problem) -> Slots:
    """Slots of rows of ranks' groups; a row may name fewer ranks than there are, the rest is idle."""
    slots = np.full((len(rows), problem.ranks, problem.per_rank), problem.groups, np.int64)
    for iteration, row in enumerate(rows):
        for rank, groups in enumerate(row):
            slots[iteration, rank, : len(groups)] = groups
    return slots


def from_schedule(schedule: Schedule, problem: Problem) -> Slots:
    """The slots of a finished schedule."""
    return from_rows([list(row) for row in schedule.assignment], problem)


def finished(
    slots: Slots,
    problem: Problem,
    *,
    since: float,
    notes: str = "",
    bound_s: float | None = None,
    targets: int | None = None,
) -> Schedule:
    """The schedule of these slots, without empty iterations, certified by a bound.

    Args:
        slots: (iterations, R, L).
        problem: what they are for.
        since: ``time.perf_counter()`` when making began.
        notes: what a reader must know.
        bound_s: a bound at least as high as that of ``bounds``, where a search has found one.
        targets: that DyGNeX-G tried in an iteration; None where it was not asked.
    """
    groups = problem.groups
    rows = tuple(
        tuple(tuple(group for group in rank if group < groups) for rank in row)
        for row in slots[(slots < groups).any(axis=(1, 2))].tolist()
    )
    bound_s = problem_bound_s(problem) if bound_s is None else bound_s
    gap = relative_gap(makespan_s(slots, problem), bound_s)
    return Schedule(rows, groups, notes, gap, time.perf_counter() - since, targets)
