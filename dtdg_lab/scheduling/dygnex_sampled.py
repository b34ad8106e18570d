"""Algorithm 2's choice of an iteration where there are too many pairs to look at: a sample of targets and heads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.streams import generator
from dtdg_lab.scheduling.dygnex_pairs import Pair

HEADS = 64  # heads looked at for each rank; more make sums closer by less than what profiles are sure of


class SampledPairs:
    """Like :class:`ExactPairs`, but tries a few targets, and for each a sample of heads with two tails each.

    Args:
        times_s: (n,) seconds, ascending; group k of them is called k + 1 here, 0 is the zero group.
        ranks: R.
        targets: how many targets an iteration tries.
        seed: of the draws.
    """

    def __init__(self, times_s: NDArray[np.float64], ranks: int, targets: int, seed: int) -> None:
        self._ranks = ranks
        self._targets = targets
        self._draw = generator(seed, "schedule/targets")
        self._groups = np.arange(len(times_s) + 1)  # those left, the zero group first
        self._times = np.append(0.0, times_s)

    @property
    def left(self) -> int:
        """Groups that are not chosen yet."""
        return len(self._groups) - 1

    def groups_left(self) -> list[int]:
        """The groups that are not chosen yet, ascending."""
        return [int(group) for group in self._groups[1:]]

    def choose(self) -> list[Pair]:
        """A target and R - 1 pairs close to it, or fewer where groups run out, with little waste; now taken."""
        times_s = self._times[self._groups]
        longest = len(times_s) - 1
        drawn = self._draw.choice(longest, min(self._targets, longest), replace=False)
        least, chosen = np.inf, np.zeros((0, 2), np.int64)
        most_s = times_s[-2 * self._ranks :].sum()  # what R ranks compute at most
        for partner in [0, *np.sort(drawn[drawn > 0]).tolist()]:  # targets ascend, and every rank waits for the target
            if (times_s[partner] + times_s[longest]) * self._ranks - most_s > least:
                break
            pairs = self._picks(times_s, partner, longest)
            sums = times_s[pairs].sum(axis=1)
            waste = sums.max() * self._ranks - sums.sum()
            if waste < least:
                least, chosen = waste, pairs
        picked = [(int(head), int(tail)) for head, tail in self._groups[chosen].tolist()]
        self._groups = np.delete(self._groups, chosen[chosen > 0])
        return picked

    def _picks(self, times_s: NDArray[np.float64], partner: int, longest: int) -> NDArray[np.int64]:
        """The target's members and R - 1 pairs, (R, 2) or fewer, as places in ``times_s``."""
        target_s = times_s[partner] + times_s[longest]
        free = np.ones(len(times_s), bool)
        free[[partner, longest]] = False
        free[0] = True
        picks = [(partner, longest)]
        while len(picks) < self._ranks:
            places = np.flatnonzero(free)
            if len(places) == 1:  # the zero group alone
                break
            for head, tail in self._closest(times_s[places], target_s):
                pair = int(places[head]), int(places[tail])
                if free[pair[0]] and free[pair[1]]:
                    picks.append(pair)
                    free[list(pair)] = False
                    free[0] = True
                if len(picks) == self._ranks:
                    break
        return np.array(picks, np.int64)

    def _closest(self, times_s: NDArray[np.float64], target_s: float) -> list[tuple[int, int]]:
        """Pairs of places whose sums come close to the target, the closest first; at least one."""
        most = max(HEADS * self._ranks, 4 * HEADS)
        heads = np.arange(len(times_s))
        if len(heads) > most:
            heads = np.append(0, 1 + np.sort(self._draw.choice(len(heads) - 1, most, replace=False)))
        after = np.searchsorted(times_s, target_s - times_s[heads])
        head = np.concatenate([heads, heads, [0]])
        tail = np.concatenate([after - 1, np.minimum(after, len(times_s) - 1), [len(times_s) - 1]])
        valid = head < tail
        head, tail = head[valid], tail[valid]
        distance = np.abs(times_s[head] + times_s[tail] - target_s)
        few = min(len(distance), 8 * self._ranks)
        near = np.argpartition(distance, few - 1)[:few]
        near = near[np.lexsort((near, distance[near]))]
        return list(zip(head[near].tolist(), tail[near].tolist(), strict=True))
