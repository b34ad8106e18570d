"""DyGNeX-G: greedy pairing of snapshot groups by time (DyGNeX section 4.3)."""

from __future__ import annotations

import functools
import heapq
import importlib.util
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.core.plans import Schedule
from dtdg_lab.systems.snapshot_groups.schedulers.base import Problem, Slots, finished, from_rows, scheduler
from dtdg_lab.systems.snapshot_groups.schedulers.longest_first import longest_first_slots

# The exact choice of an iteration in Algorithm 2: a heap finds each closest pair of the remaining groups.


INTERPRETED_GROUPS = 100  # up to this number of groups, plain Python is faster than importing numba
WORK = 50_000_000  # steps for all targets of an epoch: about a second
PICK = 16  # steps to find a pair, besides one per group and target
LEAST_TARGETS = 8


def targets_within(groups: int, ranks: int) -> int:
    """Return the number of targets that an iteration can try within about a second per epoch, by operation counts.

    Args:
        groups: K.
        ranks: R.

    Returns:
        K (all) if that fits into ``WORK``; otherwise as many as fit, and at least 8.
    """
    remaining = np.arange(groups, ranks, -2 * ranks, dtype=np.float64)  # at the start of each iteration
    steps = remaining + PICK * ranks
    if float((remaining * steps).sum()) <= WORK:
        return groups
    return min(groups, max(LEAST_TARGETS, int(WORK / steps.sum())))


class Pairs:
    """Sorted groups from which iterations of R pairs are chosen and removed.

    Args:
        times_s: (n,) seconds, ascending; group k has number k + 1 here, and 0 is the zero group.
        ranks: R.
        targets: maximum number of targets that an iteration tries, at least 1: all of them, or a subset at equal
            distances, from the longest group alone to the two longest.

    Raises:
        NotAvailableError: more than 100 groups were given and numba is not installed.
    """

    def __init__(self, times_s: NDArray[np.float64], ranks: int, targets: int) -> None:
        self._ranks, self._targets = ranks, targets
        self._times = np.append(0.0, times_s)
        self._free = np.arange(len(times_s) + 1)
        self._compiled = len(times_s) > INTERPRETED_GROUPS
        self._choose = compiled() if self._compiled else choose

    @property
    def count(self) -> int:
        """Number of remaining groups."""
        return len(self._free) - 1

    def groups_left(self) -> list[int]:
        """Return the remaining groups, ascending."""
        return [int(group) for group in self._free[1:]]

    def choose(self) -> list[tuple[int, int]]:
        """Remove and return the target and its R - 1 pairs with the least waste, or fewer if groups run out."""
        times_s = self._times[self._free]
        ends = np.searchsorted(times_s, times_s, side="right") - 1
        workspace = [np.empty(len(times_s), np.int64) for _ in range(4)]
        rows = [np.empty((self._ranks, 2), np.int64) for _ in range(2)]
        arrays: list[Any] = [times_s, ends, *workspace, np.empty(len(times_s)), *rows]
        if not self._compiled:
            arrays = [array.tolist() for array in arrays]
        capacity_s = float(times_s[-2 * self._ranks :].sum())  # the most that R ranks can compute
        count = self._choose(self._ranks, self._targets, capacity_s, *arrays)
        members = np.asarray(arrays[-1])[:count]
        pairs = self._free[members].tolist()
        self._free = np.delete(self._free, members[members > 0])
        return [(int(head), int(tail)) for head, tail in pairs]


def choose(  # noqa: PLR0912, PLR0915, PLR0917 - numba compiles one function with positional arguments
    ranks: int,
    targets: int,
    capacity_s: float,
    times: Any,
    ends: Any,
    down: Any,
    up: Any,
    high: Any,
    tails: Any,
    gaps: Any,
    trial: Any,
    best: Any,
) -> int:
    """Choose one iteration by Algorithm 2's loop over targets; return the number of pairs written to ``best``.

    The two pointers of GetGroupPair find the pair of free groups whose sum is closest to the target; of equally close
    ones, the pair with the lowest head, then the highest tail. Here one sweep finds the best tail of every head, and a
    heap orders heads by distance. Groups are only removed, so a head's distance only grows. If its tail is taken, a
    head gets its next best tail when it reaches the top. A pick takes O(log n), a target O(n + R log n), unless many
    heads share a best tail.

    The function runs compiled or interpreted, with lists or with arrays, with the same result.

    Args:
        ranks: R.
        targets: number of targets to try.
        capacity_s: seconds of the longest 2 R groups.
        times: (n + 1,) seconds, ascending, the zero group first.
        ends: (n + 1,) the last group of equal time.
        down: (n + 1,) workspace: the nearest free group at or below, with path compression.
        up: (n + 1,) workspace: the same above; the longest group, which is never free, ends it.
        high: (n + 1,) workspace: for each head, the last group with which it does not exceed the target.
        tails: (n + 1,) workspace: the best tail of each head.
        gaps: (n + 1,) workspace: the distance of each head that is far from the target.
        trial: (R, 2) workspace.
        best: (R, 2) output: the chosen pairs, the target's members first.
    """
    longest = len(times) - 1
    tried = min(targets, longest)
    least_waste, best_count = np.inf, 0
    for number in range(tried):
        partner = number * (longest - 1) // max(1, tried - 1)
        target = times[partner] + times[longest]
        slack = 1e-9 * ranks * target  # more than the rounding of a sum of R numbers of the target's size
        if least_waste == 0 or target * ranks - capacity_s > least_waste + slack:
            break  # targets ascend, and every rank waits for the target
        for group in range(longest + 1):
            down[group] = group
            up[group] = group
        down[longest] = longest - 1
        if partner > 0:
            down[partner] = partner - 1
            up[partner] = partner + 1
        trial[0][0] = partner
        trial[0][1] = longest
        count, slowest, total = 1, target, target
        position, below = 0, longest - 1
        near, farther = (
            2 * ranks * (times[longest] - times[1]) / longest**2,
            0,
        )  # dense sums: more than R are this near
        heap = [(0.0, 0)]
        heap.pop()
        while count < ranks:
            sweeping = position < longest
            if sweeping:  # every head once, then the heads of the heap
                head = position
                position += 1
                gaps[head] = -1.0
                if up[head] != head:
                    continue
                while below > 0 and times[head] + times[below] > target:
                    below -= 1
                high[head] = below
            else:
                while farther > 0 and (len(heap) == 0 or heap[0][0] > near):
                    nearer, near = near, max(8 * near, 1e-9 * target)
                    for head in range(longest):
                        if nearer < gaps[head] <= near:
                            heapq.heappush(heap, (gaps[head], head))
                            farther -= 1
                if len(heap) == 0:
                    break
                head = heapq.heappop(heap)[1]
                tail = tails[head]
                if head > 0 and up[head] != head:
                    continue
                if up[tail] == tail:
                    trial[count][0] = head
                    trial[count][1] = tail
                    count += 1
                    down[tail] = tail - 1
                    up[tail] = tail + 1
                    seconds = times[head] + times[tail]
                    slowest = max(slowest, seconds)
                    total += seconds
                    if slowest * count - total > least_waste + slack:
                        break  # waste only grows with every pair
                    if head > 0:
                        down[head] = head - 1
                        up[head] = head + 1
                        continue
            tail, distance = -1, np.inf
            lower = high[head]
            while down[lower] != lower:
                down[lower] = down[down[lower]]
                lower = down[lower]
            if lower > head:
                tail = lower
                distance = target - (times[head] + times[lower])
            upper = max(high[head], head) + 1
            while up[upper] != upper:
                up[upper] = up[up[upper]]
                upper = up[upper]
            if upper < longest and times[head] + times[upper] - target <= distance:
                seconds = times[head] + times[upper]
                distance = seconds - target
                while upper < longest and times[head] + times[upper] == seconds:
                    tail = ends[upper]
                    while down[tail] != tail:
                        down[tail] = down[down[tail]]
                        tail = down[tail]
                    upper = tail + 1
                    while up[upper] != upper:
                        up[upper] = up[up[upper]]
                        upper = up[upper]
            if tail > head:
                tails[head] = tail
                if sweeping and distance > near:
                    gaps[head] = distance
                    farther += 1
                else:
                    heapq.heappush(heap, (distance, head))
        if slowest * count - total > least_waste + slack or slowest * ranks - total > least_waste + slack:
            continue
        waste, lost = ((ranks - count) * slowest, 0.0)  # Neumaier's sum, so that equal wastes are equal
        for row in range(count):
            seconds = slowest - (times[trial[row][0]] + times[trial[row][1]])
            both = waste + seconds
            lost += (waste - both) + seconds if waste >= seconds else (seconds - both) + waste
            waste = both
        waste += lost
        if waste < least_waste:
            least_waste, best_count = waste, count
            for row in range(count):
                best[row][0] = trial[row][0]
                best[row][1] = trial[row][1]
    return best_count


@functools.cache
def compiled() -> Any:
    """Return :func:`choose` compiled by numba, which caches it on disk for later processes if it can."""
    if importlib.util.find_spec("numba") is None:
        raise NotAvailableError(
            f"DyGNeX-G of more than {INTERPRETED_GROUPS} groups needs numba, which is not installed. Install it (pip "
            "install 'numba>=0.63'), or choose scheduler 'fold' or 'longest_first'."
        )
    import numba

    return numba.njit(cache=True)(choose)


# DyGNeX-G: in each iteration, the target and the pairs close to it with the least waste.


@scheduler
def schedule(problem: Problem) -> Schedule:
    """Algorithm 2: combine the longest group with another, find R - 1 pairs close to that sum, minimise waste.

    Options:
        per_rank: L, the maximum number of groups per rank and iteration. The algorithm makes pairs: with 1 it equals
            ``longest_first``, above 2 it still makes pairs and says so in the notes.
        allreduce_s: seconds of an all-reduce; the algorithm ignores it, only the gap uses it.
        targets: maximum number of targets that an iteration tries; K or more for all. 0 tries all if that takes about
            a second (K = 1,000 on 4 ranks), otherwise as many as fit, at equal distances.

    Returns:
        At most ceil(K / R) iterations; the last groups, at most R, take one rank each. Ties are broken by the lower
        group. ``targets`` of the schedule is the number tried. The same input always gives the same schedule.

    Raises:
        NotAvailableError: more than 100 groups were given and numba is not installed.

    References: DyGNeX section 4.3, algorithm 2.

    Differs from the paper: its listing neither removes chosen groups nor initialises the least waste of an iteration.
    Here the target's members and every chosen group are excluded at once, the zero group may serve many ranks, the
    least waste starts at infinity in each iteration, ties are broken by the lower index, and the last R groups take
    one rank each. If all targets would take longer than about a second, only some are tried.
    """
    if problem.per_rank == 1:
        notes = "Algorithm 2 makes pairs; with one group per rank it reduces to longest first."
        return finished(longest_first_slots(problem), problem, notes=notes)
    tried = targets_of(problem)
    remarks = [] if tried == problem.groups else [f"{tried:,} of up to {problem.groups:,} targets in each iteration."]
    if problem.per_rank > 2:
        remarks.append(f"Algorithm 2 makes pairs: at most 2 of {problem.per_rank} groups per rank are used.")
    return finished(greedy(problem), problem, notes=" ".join(remarks), targets=tried)


def targets_of(problem: Problem) -> int:
    """Return the number of targets that an iteration tries; K if it tries all."""
    return min(problem.targets, problem.groups) or targets_within(problem.groups, problem.ranks)


def greedy(problem: Problem) -> Slots:
    """Return the slots of :func:`schedule`, for L >= 2."""
    order = np.argsort(problem.times_s, kind="stable")
    pairs = Pairs(problem.times_s[order], problem.ranks, targets_of(problem))
    rows: list[list[tuple[int, ...]]] = []
    while pairs.count > problem.ranks:
        rows.append([tuple(int(order[group - 1]) for group in pair if group) for pair in pairs.choose()])
    rows.append([(int(order[group - 1]),) for group in pairs.groups_left()])
    return from_rows([row for row in rows if row], problem)
