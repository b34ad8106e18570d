"""Building of a cache: count, select, copy from the current cache, and fetch the rest in bulk."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.systems.feature_cache.pipeline.cached_rows import FeatureCache
from dtdg_lab.systems.feature_cache.pipeline.fetching import Fetch, OwnerReply, fetch_into
from dtdg_lab.systems.feature_cache.pipeline.hot_set import hot_set, hottest_first, key_counts
from dtdg_lab.systems.feature_cache.pipeline.keys import KeySpace
from dtdg_lab.systems.feature_cache.pipeline.window_plan import WindowPlan


@dataclass(frozen=True, slots=True, eq=False)
class BuiltCache:
    """A finished cache.

    Attributes:
        plan: its window.
        cache: the rows.
        copied: rows copied from the previous cache.
        fetched: rows fetched.
        by_owner: (P,) rows of each part.
        rebuild_s: seconds of building, without waiting for sampled batches.
    """

    plan: WindowPlan
    cache: FeatureCache
    copied: int
    fetched: int
    by_owner: NDArray[np.int64]
    rebuild_s: float


class CacheBuilder:
    """Builds the caches of a part.

    Args:
        part: its index.
        space: of all keys.
        features: F.

    References: GreenDyGNN section V-A, stage 2.
    """

    def __init__(self, part: int, space: KeySpace, features: int) -> None:
        self._part, self._space, self._features = part, space, features

    def build(
        self,
        plan: WindowPlan,
        batches: Sequence[NDArray[np.int64]],
        fetch: Fetch,
        serving: FeatureCache | None = None,
    ) -> tuple[BuiltCache, list[OwnerReply]]:
        """Build the cache of a window; also returns the replies of the owners.

        Args:
            plan: the window.
            batches: remote keys of each of its batches, distinct within a batch.
            fetch: requests rows from other parts: one RPC each, all at once.
            serving: the current cache, whose rows may be copied.

        Raises:
            RunFailedError: an owner did not answer, or returned the wrong rows.
        """
        began = time.perf_counter()
        keys, counts = key_counts(batches, self._space.size)
        owners = self._space.owners(keys)
        other_indices = owners - (owners > self._part)
        hot = np.sort(hot_set(hottest_first(counts), other_indices, plan.shares, plan.capacity))
        keys, owners = keys[hot], owners[hot]
        if serving is not None and len(serving):
            slots = serving.find(keys)
            rows = serving.rows[np.maximum(slots, 0)]  # in one pass; rows that are missing are overwritten below
            indices = np.flatnonzero(slots < 0)
        else:
            rows, indices = np.empty((len(keys), self._features), dtype=np.float32), np.arange(len(keys))
        replies = fetch_into(rows, indices, keys[indices], owners[indices], fetch)
        built = BuiltCache(
            plan=plan,
            cache=FeatureCache(keys, rows, size=self._space.size),
            copied=len(keys) - len(indices),
            fetched=len(indices),
            by_owner=np.bincount(owners, minlength=self._space.parts),
            rebuild_s=time.perf_counter() - began,
        )
        return built, replies
