"""How a cache is made: counted, chosen, copied from the one that serves, and the rest fetched in bulk."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.feature_path import OwnerReply
from dtdg_lab.features.cache import FeatureCache
from dtdg_lab.features.fetched import Fetch, fetch_into
from dtdg_lab.features.hot_set import hot_set, hottest_first
from dtdg_lab.features.key_counts import key_counts
from dtdg_lab.features.keys import KeySpace
from dtdg_lab.features.window_plan import WindowPlan


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """A cache that is ready.

    Attributes:
        plan: what it was built for.
        cache: the rows.
        copied: rows taken over from the cache that served.
        fetched: rows fetched.
        by_owner: (P,) rows held of each part.
        rebuild_s: seconds it took, without waiting for batches to be sampled.
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
        part: its number.
        space: of all keys.
        features: F.

    References: GreenDyGNN section V-A, stage 2.
    """

    def __init__(self, part: int, space: KeySpace, features: int) -> None:
        self._part, self._space, self._features = part, space, features

    def build(
        self, plan: WindowPlan, asked: Sequence[NDArray[np.int64]], fetch: Fetch, serving: FeatureCache | None = None
    ) -> tuple[Built, list[OwnerReply]]:
        """The cache of a window, and what each owner sent for it.

        Args:
            plan: the window.
            asked: remote keys of each of its batches, distinct within a batch.
            fetch: asks other parts: once for all, one RPC for each.
            serving: the cache whose rows may be taken over.

        Raises:
            RunFailedError: an owner did not answer, or sent other rows than asked for.
        """
        began = time.perf_counter()
        keys, counts = key_counts(asked, self._space.size)
        owners = self._space.owners(keys)
        others = owners - (owners > self._part)
        hot = np.sort(hot_set(hottest_first(counts), others, plan.shares, plan.capacity))
        keys, owners = keys[hot], owners[hot]
        if serving is not None and len(serving):
            slots = serving.find(keys)
            rows = serving.rows[np.maximum(slots, 0)]  # in one pass; rows that are not held are overwritten below
            places = np.flatnonzero(slots < 0)
        else:
            rows, places = np.empty((len(keys), self._features), dtype=np.float32), np.arange(len(keys))
        replies = fetch_into(rows, places, keys[places], owners[places], fetch)
        built = Built(
            plan=plan,
            cache=FeatureCache(keys, rows, size=self._space.size),
            copied=len(keys) - len(places),
            fetched=len(places),
            by_owner=np.bincount(owners, minlength=self._space.parts),
            rebuild_s=time.perf_counter() - began,
        )
        return built, replies
