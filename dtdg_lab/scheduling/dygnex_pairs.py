"""Algorithm 2's choice of an iteration, exactly: all pairs sorted by sum, walked outwards from each target."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Pair = tuple[int, int]  # two numbers of sorted groups, the shorter first; 0 is the zero group

FEW_STEPS = 400  # pairs looked at for a pick before two pointers over the groups left are quicker


class ExactPairs:
    """Chooses iterations of R pairs from sorted groups, and forgets the groups it has chosen.

    The two pointers of GetGroupPair meet a closest pair, and among equally close ones the one with the lowest head,
    then the highest tail (sums grow in both, so a pointer that would pass by it had met an equally close pair before).
    So walking all pairs sorted by sum outwards from the target, ties in that order, gives the same picks.

    Args:
        times_s: (n,) seconds, ascending; group k of them is called k + 1 here, 0 is the zero group.
        ranks: R.
    """

    def __init__(self, times_s: NDArray[np.float64], ranks: int) -> None:
        self._ranks = ranks
        self._span = len(times_s) + 1
        self._times = [0.0, *times_s.tolist()]
        self._taken = bytearray(self._span)  # a group chosen in an earlier iteration, or picked for this target
        self._left = self._span - 1
        heads, tails = np.triu_indices(self._span, 1)
        sums = np.append(0.0, times_s)[heads] + np.append(0.0, times_s)[tails]
        codes = heads * self._span + (self._span - 1 - tails)  # ascending: lowest head, then highest tail
        order = np.lexsort((codes, sums))
        self._all = sums[order], codes[order]
        self._packed = self._left
        self._sums, self._codes = self._all[0].tolist(), self._all[1].tolist()
        self._kept = list(range(self._span))  # the zero group and those left, ascending

    @property
    def left(self) -> int:
        """Groups that are not chosen yet."""
        return self._left

    def groups_left(self) -> list[int]:
        """The groups that are not chosen yet, ascending."""
        return self._kept[1:]

    def choose(self) -> list[Pair]:
        """The target and its R - 1 pairs, or fewer where groups run out, with the least waste; now taken."""
        alive = self.groups_left()
        most_s = sum(self._times[group] for group in alive[-2 * self._ranks :])  # what R ranks compute at most
        longest = alive.pop()
        least, chosen = math.inf, []
        for partner in [0, *alive]:  # targets ascend, and every rank waits for the target
            members = (partner, longest)
            if least == 0 or self._sum(members) * self._ranks - most_s > least + self._slack(self._sum(members)):
                break
            picks = self._picks(members, least)
            if picks is not None and (waste := self._waste([members, *picks])) < least:
                least, chosen = waste, [members, *picks]
        for pair in chosen:
            self._mark(pair, 1)
        self._kept = [group for group in self._kept if not self._taken[group]]
        self._left = len(self._kept) - 1
        self._pack()
        return chosen

    def _sum(self, pair: Pair) -> float:
        return self._times[pair[0]] + self._times[pair[1]]

    def _waste(self, pairs: list[Pair]) -> float:
        """Seconds that R ranks wait in all: idle ones wait for the longest sum, the others for what they lack of it."""
        sums = [self._sum(pair) for pair in pairs] + [0.0] * (self._ranks - len(pairs))
        return math.fsum(max(sums) - sum_s for sum_s in sums)

    def _slack(self, target_s: float) -> float:
        """More than the rounding of a sum of R numbers of the target's size."""
        return 1e-9 * self._ranks * target_s

    def _mark(self, pair: Pair, value: int) -> None:
        for group in pair:
            if group:  # the zero group serves any number of ranks
                self._taken[group] = value

    def _picks(self, members: Pair, least: float) -> list[Pair] | None:
        """R - 1 pairs one after another, each the closest to the target of those left; None once too wasteful."""
        target_s = self._sum(members)
        # waste only grows with every pair; the slack keeps what rounding alone makes worse
        longest_s, sum_s, enough = target_s, target_s, least + self._slack(target_s)
        picked: list[Pair] = []
        self._mark(members, 1)
        try:
            walk, steps = self._walk(target_s), 0
            while len(picked) < self._ranks - 1:
                pair = None
                for head, tail in walk:
                    steps += 1
                    if not self._taken[head] and not self._taken[tail]:
                        pair = (head, tail)
                        break
                    if steps > FEW_STEPS * (len(picked) + 1):
                        pair = self._two_pointers(target_s)
                        break
                if pair is None:
                    break
                self._mark(pair, 1)
                picked.append(pair)
                longest_s, sum_s = max(longest_s, self._sum(pair)), sum_s + self._sum(pair)
                if longest_s * (len(picked) + 1) - sum_s > enough:
                    return None
            if longest_s * self._ranks - sum_s > enough:
                return None
            return picked
        finally:
            for pair in picked:
                self._mark(pair, 0)
            self._mark(members, 0)

    def _walk(self, target_s: float) -> Iterator[Pair]:
        """All pairs, those closest to the target first; equally close ones by head, then by tail from the highest."""
        sums, codes, span = self._sums, self._codes, self._span
        above = bisect_left(sums, target_s)
        below = above - 1
        while below >= 0 or above < len(sums):
            down = target_s - sums[below] if below >= 0 else math.inf
            up = sums[above] - target_s if above < len(sums) else math.inf
            distance, runs = min(down, up), []
            while below >= 0 and target_s - sums[below] == distance:  # runs of one sum are in the right order
                first = bisect_left(sums, sums[below])
                runs.append(range(first, below + 1))
                below = first - 1
            while above < len(sums) and sums[above] - target_s == distance:
                after = bisect_right(sums, sums[above])
                runs.append(range(above, after))
                above = after
            entries = runs[0] if len(runs) == 1 else heapq.merge(*runs, key=codes.__getitem__)
            for entry in entries:
                head, back = divmod(codes[entry], span)
                yield head, span - 1 - back

    def _two_pointers(self, target_s: float) -> Pair | None:
        """GetGroupPair over the groups left, as printed; None where no group is left."""
        times, taken = self._times, self._taken
        groups = [group for group in self._kept if not taken[group]]
        head, tail = 0, len(groups) - 1
        closest, best = math.inf, None
        while head < tail:
            sum_s = times[groups[head]] + times[groups[tail]]
            if abs(sum_s - target_s) < closest:
                closest, best = abs(sum_s - target_s), (groups[head], groups[tail])
            if sum_s < target_s:
                head += 1
            else:
                tail -= 1
        return best

    def _pack(self) -> None:
        """Drop the pairs of chosen groups from the lists once they are about half."""
        if self._left > 0.7 * self._packed:
            return
        sums, codes = self._all
        taken = np.frombuffer(bytes(self._taken), np.uint8)
        heads, back = np.divmod(codes, self._span)
        keep = (taken[heads] == 0) & (taken[self._span - 1 - back] == 0)
        self._all = sums[keep], codes[keep]
        self._packed = self._left
        self._sums, self._codes = self._all[0].tolist(), self._all[1].tolist()
