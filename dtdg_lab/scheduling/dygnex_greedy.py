"""DyGNeX-G: iteration after iteration, the target and the pairs close to it that waste least."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import ArrayLike

from dtdg_lab.core.plans import Schedule
from dtdg_lab.scheduling.checks import Problem, checked
from dtdg_lab.scheduling.dygnex_pairs import Pairs, targets_within
from dtdg_lab.scheduling.longest_first import dealt_longest_first
from dtdg_lab.scheduling.slots import Slots, finished, from_rows


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
    """Algorithm 2: combine the longest group with each other one, find R - 1 pairs close to that sum, waste least.

    Args:
        times_s: (K,) predicted or measured seconds of each group.
        ranks: R.
        per_rank: L, most groups of a rank in an iteration. The algorithm makes pairs: with 1 it makes the same as
            ``longest_first``, above 2 it still makes pairs and says so in the notes.
        allreduce_s: seconds of an exchange; the algorithm does not weigh it, only the gap reads it.
        gap: not used by this rule.
        time_limit_s: not used by this rule; its work is bounded by K and R.
        seed: not used by this rule: nothing is drawn.
        targets: most targets that an iteration tries; K or more for all. 0 leaves it to K and R: all where that takes
            about a second (K = 1,000 on 4 ranks), else as many as do. Fewer targets are at even distances.

    Returns:
        At most ceil(K / R) iterations; the last groups, at most R, take one rank each. Ties go to the lower group.
        ``targets`` of the schedule says how many were tried. The same input always gives the same schedule.

    Raises:
        PlanError: a time is negative or not finite, or there is none.
        ConfigError: a knob has a value that is not allowed.
        NotAvailableError: there are more than 100 groups, and numba is not installed.

    References: DyGNeX section 4.3, algorithm 2.

    Differs from the paper: its listing neither removes what it picks nor initialises the least waste of an iteration.
    Here the target's members and every picked group are excluded at once, the zero group may serve many ranks, the
    least waste starts at infinity in each iteration, ties go to the lower index, and the last R groups take one rank
    each. Where all targets would take longer than about a second, some of them are tried, not all.
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
    if per_rank == 1:
        notes = "Algorithm 2 makes pairs; with one group a rank nothing is left of it but longest first."
        return finished(dealt_longest_first(problem), problem, since=since, notes=notes)
    tried = targets_of(problem)
    told = [] if tried == problem.groups else [f"{tried:,} of up to {problem.groups:,} targets in each iteration."]
    told += [f"Algorithm 2 makes pairs: at most 2 of {per_rank} groups a rank are used."] if per_rank > 2 else []
    return finished(greedy(problem), problem, since=since, notes=" ".join(told), targets=tried)


def targets_of(problem: Problem) -> int:
    """Most targets that an iteration tries; K where it tries all."""
    return min(problem.targets, problem.groups) or targets_within(problem.groups, problem.ranks)


def greedy(problem: Problem) -> Slots:
    """The slots of :func:`schedule`, where L >= 2."""
    order = np.argsort(problem.times_s, kind="stable")
    pairs = Pairs(problem.times_s[order], problem.ranks, targets_of(problem))
    rows: list[list[tuple[int, ...]]] = []
    while pairs.left > problem.ranks:
        rows.append([tuple(int(order[group - 1]) for group in pair if group) for pair in pairs.choose()])
    rows.append([(int(order[group - 1]),) for group in pairs.groups_left()])
    return from_rows([row for row in rows if row], problem)
