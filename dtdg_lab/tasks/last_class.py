"""Persistence for classes: a vertex is what it was when last seen, as surely as that held in the training part."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class LastClass:
    """Predicts the last known class of a vertex; where none is known, how often each class occurs in training.

    For a loss it needs probabilities: the last class k keeps the share p of the training part's labels that equal the
    last known class, the others divide 1 - p as they occur. Shares are (count + 1) / (total + number of outcomes), so
    that none is 0.

    Args:
        counts: labels of each class in the training part, (C,).
        train: the training part, which p is taken from.
        row: gives the classes that are known at a snapshot once it is over, (N,), -1 where not.

    Source: ours.
    """

    def __init__(self, counts: Ints, train: range, row: Callable[[int], Ints]) -> None:
        self._row = row
        self._share = (counts + 1) / (counts.sum() + len(counts))
        stayed = seen = 0
        for t, last in zip(train, self.before(train), strict=True):
            now = row(t)
            both = (now >= 0) & (last >= 0)
            stayed, seen = stayed + int((now[both] == last[both]).sum()), seen + int(both.sum())
        self._stays = (stayed + 1) / (seen + 2)

    def before(self, snapshots: range) -> Iterator[Ints]:
        """For each of these snapshots, what is known of every vertex before it, (N,), -1 where nothing is."""
        last: Ints | None = None
        for t in range(snapshots.stop):
            now = self._row(t)
            last = np.full_like(now, -1) if last is None else last
            if t >= snapshots.start:
                yield last
            last = np.where(now >= 0, now, last)

    def cross_entropies(self, true: Ints, last: Ints) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of persistence and of the constant prediction, for each item, (n,)."""
        constant = -np.log(self._share[true])
        others = np.maximum(1 - self._share[last], np.finfo(float).tiny)
        chance = np.where(true == last, self._stays, (1 - self._stays) * self._share[true] / others)
        return np.where(last >= 0, -np.log(chance), constant), constant
