"""DyGNeX-G: greedy pairing of snapshot groups by time (DyGNeX section 4.3)."""

from __future__ import annotations

import functools
import heapq
import importlib.util
import time
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.core.plans import Schedule
from dtdg_lab.systems.snapshot_groups.schedulers.base import (
    Problem,
    Slots,
    checked,
    finished,
    from_rows,
    longest_first_slots,
)

# Algorithm 2's choice of an iteration, exactly: every pick is a closest pair of the groups left, found with a heap.


INTERPRETED_GROUPS = 100  # up to here Python itself takes less time than importing numba does
WORK = 50_000_000  # steps for all targets of an epoch: what a second allows, about
PICK = 16  # steps that finding a pair takes, beside one for each group of a target
LEAST_TARGETS = 8


def targets_within(groups: int, ranks: int) -> int:
    """How many targets each iteration may try so that the epoch takes about a second: by counts, never by a clock.

    Args:
        groups: K.
        ranks: R.

    Returns:
        K, which means all, where that many are within ``WORK``; else as many as are, and at least 8.
    """
    left = np.arange(groups, ranks, -2 * ranks, dtype=np.float64)  # at the start of each iteration
    steps = left + PICK * ranks
    if float((left * steps).sum()) <= WORK:
        return groups
    return min(groups, max(LEAST_TARGETS, int(WORK / steps.sum())))


class Pairs:
    """Chooses iterations of R pairs from sorted groups, and forgets the groups it has chosen.

    Args:
        times_s: (n,) seconds, ascending; group k of them is called k + 1 here, 0 is the zero group.
        ranks: R.
        targets: most targets that an iteration tries, at least 1: all of them, or as many at even distances,
            from the longest group alone to the two longest.

    Raises:
        NotAvailableError: there are more than 100 groups, and numba is not installed.
    """

    def __init__(self, times_s: NDArray[np.float64], ranks: int, targets: int) -> None:
        self._ranks, self._targets = ranks, targets
        self._times = np.append(0.0, times_s)
        self._kept = np.arange(len(times_s) + 1)
        self._compiled = len(times_s) > INTERPRETED_GROUPS
        self._choose = compiled() if self._compiled else choose

    @property
    def left(self) -> int:
        """Groups that are not chosen yet."""
        return len(self._kept) - 1

    def groups_left(self) -> list[int]:
        """The groups that are not chosen yet, ascending."""
        return [int(group) for group in self._kept[1:]]

    def choose(self) -> list[tuple[int, int]]:
        """The target and its R - 1 pairs, or fewer where groups run out, with the least waste; now taken."""
        times_s = self._times[self._kept]
        ends = np.searchsorted(times_s, times_s, side="right") - 1
        room = [np.empty(len(times_s), np.int64) for _ in range(4)]
        rows = [np.empty((self._ranks, 2), np.int64) for _ in range(2)]
        given: list[Any] = [times_s, ends, *room, np.empty(len(times_s)), *rows]
        if not self._compiled:
            given = [each.tolist() for each in given]
        most_s = float(times_s[-2 * self._ranks :].sum())  # what R ranks compute at most
        found = self._choose(self._ranks, self._targets, most_s, *given)
        chosen = np.asarray(given[-1])[:found]
        pairs = self._kept[chosen].tolist()
        self._kept = np.delete(self._kept, chosen[chosen > 0])
        return [(int(head), int(tail)) for head, tail in pairs]


def choose(  # noqa: PLR0912, PLR0915, PLR0917 - one function of positional arguments is what numba compiles
    ranks: int,
    targets: int,
    most_s: float,
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
    """Algorithm 2's loop over targets for one iteration; how many pairs it leaves in ``best``.

    The two pointers of GetGroupPair find, of all pairs of free groups, the one whose sum is closest to the target; of
    equally close ones that with the lowest head, then the highest tail. Here every head has its best tail, found with
    one sweep, and a heap orders heads by distance. Groups only become fewer, so a head's distance only grows: one whose
    tail is taken gets its next best when it comes to the top. A pick takes O(log n), a target O(n + R log n), unless
    many heads share a best tail.

    It runs compiled or as it is, with the same result: lists serve as well as arrays.

    Args:
        ranks: R.
        targets: how many to try.
        most_s: what the longest 2 R groups take.
        times: (n + 1,) seconds, ascending, the zero group first.
        ends: (n + 1,) the last group that takes as long.
        down: (n + 1,) room: the nearest free group at or below, by way of others.
        up: (n + 1,) room: the same above; the longest group, which is never free, ends it.
        high: (n + 1,) room: of each head the last group with which it does not exceed the target.
        tails: (n + 1,) room: of each head its best tail.
        gaps: (n + 1,) room: of each head that is far from the target, how far.
        trial: (R, 2) room.
        best: (R, 2) filled with the chosen pairs, the target's members first.
    """
    longest = len(times) - 1
    tried = min(targets, longest)
    least, found = np.inf, 0
    for number in range(tried):
        partner = number * (longest - 1) // max(1, tried - 1)
        target = times[partner] + times[longest]
        slack = 1e-9 * ranks * target  # more than the rounding of a sum of R numbers of the target's size
        if least == 0 or target * ranks - most_s > least + slack:
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
        place, below = 0, longest - 1
        near, farther = 2 * ranks * (times[longest] - times[1]) / longest**2, 0  # in dense sums more than R are as near
        heap = [(0.0, 0)]
        heap.pop()
        while count < ranks:
            sweeping = place < longest
            if sweeping:  # every head once, then those of the heap
                head = place
                place += 1
                gaps[head] = -1.0
                if up[head] != head:
                    continue
                while below > 0 and times[head] + times[below] > target:
                    below -= 1
                high[head] = below
            else:
                while farther > 0 and (len(heap) == 0 or heap[0][0] > near):
                    before, near = near, max(8 * near, 1e-9 * target)
                    for head in range(longest):
                        if before < gaps[head] <= near:
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
                    if slowest * count - total > least + slack:
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
        if slowest * count - total > least + slack or slowest * ranks - total > least + slack:
            continue
        waste, lost = (ranks - count) * slowest, 0.0  # Neumaier's sum, so that equal wastes are equal
        for row in range(count):
            seconds = slowest - (times[trial[row][0]] + times[trial[row][1]])
            both = waste + seconds
            lost += (waste - both) + seconds if waste >= seconds else (seconds - both) + waste
            waste = both
        waste += lost
        if waste < least:
            least, found = waste, count
            for row in range(count):
                best[row][0] = trial[row][0]
                best[row][1] = trial[row][1]
    return found


@functools.cache
def compiled() -> Any:
    """:func:`choose`, compiled by numba, which keeps it in a folder for later processes where it finds one."""
    if importlib.util.find_spec("numba") is None:
        raise NotAvailableError(
            f"DyGNeX-G of more than {INTERPRETED_GROUPS} groups needs numba, which is not installed. Install it (pip "
            "install 'numba>=0.63'), or choose scheduler 'fold' or 'longest_first'."
        )
    import numba

    return numba.njit(cache=True)(choose)


# DyGNeX-G: iteration after iteration, the target and the pairs close to it that waste least.


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
        return finished(longest_first_slots(problem), problem, since=since, notes=notes)
    tried = targets_of(problem)
    described = [] if tried == problem.groups else [f"{tried:,} of up to {problem.groups:,} targets in each iteration."]
    described += [f"Algorithm 2 makes pairs: at most 2 of {per_rank} groups a rank are used."] if per_rank > 2 else []
    return finished(greedy(problem), problem, since=since, notes=" ".join(described), targets=tried)


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
