"""Remote keys of the next batches, and the misses that a cache of any window would leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.systems.feature_cache.pipeline.cached_rows import FeatureCache
from dtdg_lab.systems.feature_cache.pipeline.hot_set import hot_set, hottest_first, key_counts
from dtdg_lab.systems.feature_cache.pipeline.keys import KeySpace


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """Predicted counts of a window and an allocation; vectors have an element for each of the P - 1 other parts.

    Attributes:
        steps: counted steps: those of the window, or fewer if not all are sampled yet.
        requested: rows per step requested from each part, on average.
        missed: of these, rows that the cache would not contain.
        fetched: rows that the rebuild would fetch.
        copied: rows that it would copy from the current cache.
    """

    steps: int
    requested: NDArray[np.float64]
    missed: NDArray[np.float64]
    fetched: NDArray[np.float64]
    copied: int


@dataclass(frozen=True, slots=True, eq=False)
class _Counted:
    """Distinct keys (U,) of some batches: counts, owners, the hottest first, and which are not in the cache."""

    counts: NDArray[np.int64]
    owners: NDArray[np.integer]
    order: NDArray[np.int64]
    new: NDArray[np.bool_]


class Lookahead:
    """Batches that are sampled already, counted on demand.

    Args:
        first: step of the first of them.
        batches: remote keys of each, distinct within a batch.
        space: of all keys.
        part: the part that trains them.
        capacity: rows of the cache.
        serving: the current cache.
    """

    def __init__(
        self,
        first: int,
        batches: Sequence[NDArray[np.int64]],
        space: KeySpace,
        *,
        part: int,
        capacity: int,
        serving: FeatureCache | None,
    ) -> None:
        self.first, self.capacity = first, capacity
        self._asked, self._space, self._part, self._serving = tuple(batches), space, part, serving
        self._counted: dict[int, _Counted] = {}
        self._known: dict[tuple[int, bytes], Outlook] = {}

    @property
    def steps(self) -> int:
        """Number of sampled batches; a longer window is evaluated on these only."""
        return len(self._asked)

    def outlook(self, window: int, shares: NDArray[np.float64]) -> Outlook:
        """Return predicted counts of W steps from ``first`` with shares (P - 1,) of the cache.

        All are 0 if no batch is sampled yet.
        """
        steps = min(window, self.steps)
        key = steps, np.asarray(shares, dtype=np.float64).tobytes()
        if key not in self._known:
            self._known[key] = self._look(steps, shares)
        return self._known[key]

    def _look(self, steps: int, shares: NDArray[np.float64]) -> Outlook:
        num_others = self._space.parts - 1
        if not steps:
            return Outlook(0, np.zeros(num_others), np.zeros(num_others), np.zeros(num_others), 0)
        if steps not in self._counted:
            self._counted[steps] = self._count(steps)
        counted = self._counted[steps]
        hot = hot_set(counted.order, counted.owners, shares, self.capacity)
        owners = counted.owners[hot]
        requested = np.bincount(counted.owners, weights=counted.counts, minlength=num_others)
        served = np.bincount(owners, weights=counted.counts[hot], minlength=num_others)
        fetched = np.bincount(owners, weights=counted.new[hot], minlength=num_others).astype(np.float64)
        return Outlook(steps, requested / steps, (requested - served) / steps, fetched, len(hot) - int(fetched.sum()))

    def _count(self, steps: int) -> _Counted:
        keys, counts = key_counts(self._asked[:steps], self._space.size)
        owners = self._space.owners(keys)
        new = np.ones(len(keys), dtype=bool) if self._serving is None else self._serving.find(keys) < 0
        return _Counted(counts, owners - (owners > self._part), hottest_first(counts), new)
