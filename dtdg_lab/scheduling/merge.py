"""Merge iterations that are no more than half full: never slower, and one exchange less."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.scheduling.checks import Problem
from dtdg_lab.scheduling.slots import Slots


def merged(slots: Slots, problem: Problem) -> Slots:
    """Slots with at most one iteration of R groups or fewer, and none without any, where L >= 2.

    Two iterations of at most R groups each: spread one a rank, then laid on each other, the longest on the shortest.
    No rank takes longer than both iterations did.
    """
    groups, ranks = problem.groups, problem.ranks
    slots = slots[(slots < groups).any(axis=(1, 2))]
    if problem.per_rank == 1:
        return slots
    few = (slots < groups).sum(axis=(1, 2)) <= ranks
    kept = list(slots[~few])
    waiting = [row[row < groups] for row in slots[few]]
    while len(waiting) > 1:
        both = np.concatenate([waiting.pop(), waiting.pop()])
        if len(both) <= ranks:
            waiting.append(both)
        else:
            kept.append(_laid(both, problem))
    return np.array(kept + [_laid(rest, problem) for rest in waiting])


def _laid(groups: NDArray[np.int64], problem: Problem) -> NDArray[np.int64]:
    """One iteration (R, L) of at most 2 R groups: the longest one a rank, the others with the shortest of these."""
    longest_first = groups[np.argsort(-problem.times_s[groups], kind="stable")]
    ranks = problem.ranks
    row = np.full((ranks, problem.per_rank), problem.groups)
    row[: min(len(groups), ranks), 0] = longest_first[:ranks]
    rest = longest_first[ranks:]
    row[ranks - len(rest) :, 1] = rest[::-1]
    return row
