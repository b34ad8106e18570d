"""The edges of the last few intervals, kept sorted while intervals arrive and leave.

Sorting each window from scratch costs O(E log E) per snapshot; here only what arrives is sorted
(it comes sorted), and the rest is copied. Both ways of keeping a window are exact, whatever its length:

* without weights, the number of intervals that hold an edge is kept, and the edge goes when it falls to 0;
* with weights, every interval's weight is kept, and a window's weight is recomputed from them, oldest first, in
  float64. Adding what arrives and subtracting what leaves would drift: 1e9 + 1 - 1e9 is not 1 in float32.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.graphs.snapshot import distinct, sums_of_equal, targets


class SlidingEdges:
    """The union of the edges of the last ``length`` intervals, empty at first.

    Args:
        num_nodes: N.
        length: intervals an edge lives.
        weighted: whether intervals come with weights.
    """

    def __init__(self, num_nodes: int, length: int, *, weighted: bool) -> None:
        self.in_degree = np.zeros(num_nodes, dtype=np.int64)  # distinct edges into every node, shape (N,)
        self._length, self._weighted = length, weighted
        self._alive: deque[NDArray[np.int64]] = deque()
        self._keys = np.empty(0, dtype=np.int64)  # rising; with weights, once for each interval that holds the edge
        # beside every key: the intervals that hold it, or with weights its weight in one of them, oldest first
        self._values: NDArray[Any] = np.empty(0, dtype=np.float64 if weighted else np.int32)

    def __len__(self) -> int:
        """Intervals that are in the window: fewer than ``length`` at the beginning."""
        return len(self._alive)

    def push(self, keys: NDArray[np.int64], weights: NDArray[np.float32] | None) -> bool:
        """Add the edges of the next interval; those of the oldest leave where the window was full.

        Args:
            keys: shape (E,), rising, without duplicates.
            weights: shape (E,), where the window is weighted.

        Returns:
            Whether edges came or went.
        """
        leaving = self._alive.popleft() if len(self._alive) == self._length else _NONE
        self._alive.append(keys)
        if not len(keys) and not len(leaving):
            return False
        place, known = self._find(keys)
        out = np.searchsorted(self._keys, leaving)  # with weights, the first of equal keys is the one that leaves
        if weights is None:
            self._values[place[known]] += 1
            self._values[out] -= 1
            gone = self._values[out] == 0
            self._replace(out[gone], place[~known], keys[~known], 1)
            went = leaving[gone]
        else:
            self._replace(out, np.searchsorted(self._keys, keys, side="right"), keys, weights)
            went = leaving[~self._find(leaving)[1]]
        for changed, change in ((keys[~known], 1), (went, -1)):
            self.in_degree += change * np.bincount(targets(changed), minlength=len(self.in_degree))
        return True

    @property
    def keys(self) -> NDArray[np.int64]:
        """The keys of the window's distinct edges, rising."""
        return distinct(self._keys) if self._weighted else self._keys

    def sums(self) -> NDArray[np.float64]:
        """The sum of the weights of every distinct edge, or the number of intervals that hold it, in float64."""
        return sums_of_equal(self._keys, self._values) if self._weighted else self._values.astype(np.float64)

    def _find(self, keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Where each key stands or would stand, and whether it stands there."""
        place = np.searchsorted(self._keys, keys)
        known = np.zeros(len(keys), dtype=bool)
        inside = place < len(self._keys)
        known[inside] = self._keys[place[inside]] == keys[inside]
        return place, known

    def _replace(
        self, gone: NDArray[np.int64], place: NDArray[np.int64], keys: NDArray[np.int64], values: ArrayLike
    ) -> None:
        """Take entries out and put rising keys in, each before the entry that is now at its place.

        Gathering from where each entry stood takes half the time of masks: where[i] rises by 1 from one entry that
        stays to the next, by 1 more for every one between them that goes, and by 0 at one that comes.
        """
        new = place - np.searchsorted(gone, place) + np.arange(len(place))
        rises = np.ones(len(self._keys) - len(gone) + len(keys), dtype=np.intp)
        rises[new] = 0
        after = gone - np.arange(len(gone)) + np.searchsorted(place, gone, side="right")
        np.add.at(rises, after[after < len(rises)], 1)
        where = np.cumsum(rises) - 1
        for name, fresh in (("_keys", keys), ("_values", values)):
            present = getattr(self, name)
            merged = present.take(where, mode="clip") if len(present) else np.empty(len(where), present.dtype)
            merged[new] = fresh  # what was gathered there is any entry
            setattr(self, name, merged)


_NONE = np.empty(0, dtype=np.int64)
