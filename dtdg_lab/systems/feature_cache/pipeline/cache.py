"""The cache of rows that other parts own: selecting its rows, building it, and looking keys up."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.kernels.device_memory import device_memory
from dtdg_lab.systems.feature_cache.pipeline.fetching import Fetch, OwnerReply, fetch_into
from dtdg_lab.systems.feature_cache.pipeline.keys import KeySpace
from dtdg_lab.systems.feature_cache.pipeline.window_plan import WindowPlan

DENSE_KEYS = 2**22  # maximum number of keys with a dense index: 16 MB, and look-ups without a search


class FeatureCache:
    """Feature rows by key, immutable: reading is thread-safe, and a swap is one assignment.

    Args:
        keys: (C,) ascending, distinct.
        rows: (C, F) float32; made read-only, not copied.
        size: size of the key space.
    """

    __slots__ = ("_slots", "keys", "rows")

    def __init__(self, keys: NDArray[np.int64], rows: NDArray[np.float32], *, size: int) -> None:
        self.keys, self.rows = keys, rows
        for array in (keys, rows):
            array.setflags(write=False)
        self._slots: NDArray[np.int32] | None = None
        if size <= DENSE_KEYS:
            self._slots = np.full(size, -1, dtype=np.int32)
            self._slots[keys] = np.arange(len(keys), dtype=np.int32)

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, keys: NDArray[np.int64]) -> NDArray[np.integer]:
        """Return row indices (K,) of keys (K,), -1 for keys that are not in the cache."""
        if self._slots is not None:
            return self._slots[keys]
        if not len(self.keys):
            return np.full(len(keys), -1)
        order = np.argsort(keys)  # searching in order accesses memory sequentially, twice as fast
        sorted_keys, rows = keys[order], np.empty(len(keys), dtype=np.int64)
        slots = np.minimum(np.searchsorted(self.keys, sorted_keys), len(self.keys) - 1)
        rows[order] = np.where(self.keys[slots] == sorted_keys, slots, -1)
        return rows


BUFFERS = 2  # the current cache, and the one being built


def check_cache_memory(capacity: int, row_bytes: int, *, caches: int = 1, available: int | None = None) -> None:
    """Raise if a cache is larger than memory, before anything is fetched.

    Args:
        capacity: rows of a cache.
        row_bytes: bytes of a row.
        caches: number of caches on this machine.
        available: bytes of memory; None asks the operating system, and its limit for this process.

    Raises:
        ConfigError: the rows of both buffers exceed the available memory.
    """
    available = device_memory("cpu").free_bytes if available is None else available
    needed = capacity * row_bytes * BUFFERS * caches
    if needed > available:
        max_rows = available // (row_bytes * BUFFERS * caches)
        raise ConfigError(
            f"cache_rows={capacity} exceeds memory: {BUFFERS} buffers of {capacity} rows of {row_bytes} bytes"
            f"{f' for each of {caches} parts' if caches > 1 else ''} need {needed / 1e9:.3g} GB, and "
            f"{available / 1e9:.3g} GB are available. Choose at most {max_rows} rows."
        )


def quotas(capacity: int, shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return rows (O,) per owner: ``capacity`` rows divided by their shares, rounded by largest remainders."""
    exact = shares * capacity
    rounded = np.floor(exact + 1e-9).astype(np.int64)  # 0.6 * 5 is 3, although binary fractions are slightly less
    remainder = capacity - int(rounded.sum())
    if remainder > 0 and len(shares):
        rounded[np.argsort(rounded - exact, kind="stable")[:remainder]] += 1
    return rounded


def hottest_first(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return indices (U,) of counts (U,), the largest first; ties in ascending order."""
    heat = -counts
    if len(counts) and counts.max() < 2**15:
        heat = heat.astype(np.int16)  # radix sort, several times faster
    return np.argsort(heat, kind="stable")


def hot_set(
    order: NDArray[np.int64], owners: NDArray[np.integer], shares: NDArray[np.float64], capacity: int
) -> NDArray[np.int64]:
    """Return indices (H,) of the keys to cache, H at most ``capacity``, in arbitrary order.

    Each owner's hottest keys within its quota are cached. Unused quotas go to the hottest remaining keys of any owner.

    Args:
        order: (U,) indices of the keys, the hottest first, as from :func:`hottest_first`.
        owners: (U,) index of each key's owner among O.
        shares: (O,) shares of the capacity.
        capacity: rows.

    References: GreenDyGNN section V-A, stage 2 (top-n hot nodes by access frequencies weighted per owner).
    Differs from the paper: an owner's weight is its share of the capacity; the paper does not specify its use.
    """
    if len(order) <= capacity:
        return order
    selected, sorted_owners = np.zeros(len(order), dtype=bool), owners[order]
    for owner, quota in enumerate(quotas(capacity, shares)):
        selected[np.flatnonzero(sorted_owners == owner)[:quota]] = True
    selected[np.flatnonzero(~selected)[: capacity - int(selected.sum())]] = True
    return order[selected]


def key_counts(batches: Sequence[NDArray[np.int64]], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return distinct keys (U,), ascending, and the number of batches (U,) that need each.

    Args:
        batches: keys of each batch, distinct within it, from 0 to ``size - 1``.
        size: size of the key space.
    """
    all_keys = np.concatenate(batches) if batches else np.empty(0, dtype=np.int64)
    if size > max(8 * len(all_keys), 2**16):  # sorting is cheaper than a counter for every possible key
        keys, counts = np.unique(all_keys, return_counts=True)
        return keys.astype(np.int64), counts.astype(np.int64)
    dense = np.bincount(all_keys, minlength=size)
    keys = np.flatnonzero(dense)
    return keys, dense[keys].astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class BuiltCache:
    """A finished cache.

    Attributes:
        plan: the plan of its window.
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
        """Build the cache of a window; also return the replies of the owners.

        Args:
            plan: the plan of the window.
            batches: remote keys of each of its batches, distinct within a batch.
            fetch: requests rows from other parts: one RPC per part, all at once.
            serving: the current cache, whose rows may be copied.

        Raises:
            RunFailedError: an owner did not answer, or returned the wrong rows.
        """
        start = time.perf_counter()
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
            rebuild_s=time.perf_counter() - start,
        )
        return built, replies
