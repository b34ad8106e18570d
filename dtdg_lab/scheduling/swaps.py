"""Local search: swap a group of a slowest rank with a shorter one elsewhere, as long as that shortens the epoch."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.scheduling.checks import Problem
from dtdg_lab.scheduling.slots import Slots

WORK = 4_000_000  # slots looked at in all: about a tenth of a second


def swapped(slots: Slots, problem: Problem, *, until: float) -> Slots:
    """Better slots, by the best swap of each slowest rank's groups in turn; an empty slot counts as a group of 0 s.

    The work is bounded by a number of slots, so that the same input gives the same slots; ``until``, a time of
    ``time.perf_counter()``, only matters on a machine much slower than that.
    """
    slots = slots.copy()
    times_s = np.append(problem.times_s, 0.0)[slots]  # (iterations, R, L)
    work, better = 0, True
    while better and work < WORK:
        better = False
        for iteration in np.argsort(-times_s.sum(axis=2).max(axis=1), kind="stable").tolist():
            for place in range(problem.per_rank):
                work += times_s.size
                if work > WORK or time.perf_counter() > until:
                    return slots
                better |= _swap(slots, times_s, iteration, place)
    return slots


def _swap(slots: Slots, times_s: NDArray[np.float64], iteration: int, place: int) -> bool:
    """Swap the group in this place of the iteration's slowest rank with the best other; whether that helped."""
    loads = times_s.sum(axis=2)
    longest = loads.max(axis=1)
    rank = int(loads[iteration].argmax())
    others = np.delete(loads[iteration], rank)
    second = float(others.max()) if len(others) else 0.0
    less = times_s[iteration, rank, place] - times_s  # (iterations, R, L): what the slowest rank is relieved of
    own = np.maximum(second, longest[iteration] - less)  # this iteration afterwards
    raised = loads[:, :, None] + less
    change = own - longest[iteration] + np.maximum(raised - longest[:, None, None], 0.0)
    change[iteration] = np.maximum(own[iteration], raised[iteration]) - longest[iteration]
    change[less <= 0] = 0.0
    change[iteration, rank] = 0.0
    best = int(change.argmin())
    if change.flat[best] >= -1e-12 * longest.sum():
        return False
    here, there = (iteration, rank, place), np.unravel_index(best, change.shape)
    slots[here], slots[there] = slots[there], slots[here]
    times_s[here], times_s[there] = times_s[there], times_s[here]
    return True
