"""Feature rows of a partition: own rows, fetched rows, the cache, its memory, and hot keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import psutil
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError, PlanError, RunFailedError
from dtdg_lab.systems.feature_cache.actions import OwnerReply

# A cache of rows that other parts own: immutable, and replaced as a whole.


DENSE_KEYS = 2**22  # up to this number, a dense index of all keys is stored: 16 MB, and look-ups without a search


class FeatureCache:
    """Rows by key. It is immutable, so it is thread-safe to read, and a swap is one assignment.

    Args:
        keys: (C,) ascending, distinct.
        rows: (C, F) float32; made read-only, not copied.
        size: of the key space.

    Raises:
        PlanError: keys are not ascending and distinct within the space, or rows and keys differ in number.
    """

    __slots__ = ("_slots", "keys", "rows")

    def __init__(self, keys: NDArray[np.int64], rows: NDArray[np.float32], *, size: int) -> None:
        if keys.ndim != 1 or rows.ndim != 2 or len(rows) != len(keys):
            raise PlanError(f"a cache of keys {keys.shape} and rows {rows.shape}: one row per key is needed.")
        if len(keys) and (keys[0] < 0 or keys[-1] >= size or not (np.diff(keys) > 0).all()):
            raise PlanError(f"keys of a cache must be ascending and distinct, from 0 to {size - 1}.")
        self.keys, self.rows = keys, rows
        for array in (keys, rows):
            array.setflags(write=False)
        self._slots: NDArray[np.int32] | None = None
        if size <= DENSE_KEYS:
            self._slots = np.full(size, -1, dtype=np.int32)
            self._slots[keys] = np.arange(len(keys), dtype=np.int32)

    @staticmethod
    def empty(features: int, *, size: int) -> FeatureCache:
        """An empty cache of F features."""
        return FeatureCache(np.empty(0, dtype=np.int64), np.empty((0, features), dtype=np.float32), size=size)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Bytes of rows, keys and index."""
        return self.rows.nbytes + self.keys.nbytes + (0 if self._slots is None else self._slots.nbytes)

    def find(self, keys: NDArray[np.int64]) -> NDArray[np.integer]:
        """Row indices (K,) of keys (K,), -1 for keys that are not in the cache."""
        if self._slots is not None:
            return self._slots[keys]
        if not len(self.keys):
            return np.full(len(keys), -1)
        order = np.argsort(keys)  # searching in order accesses memory sequentially, twice as fast
        asked, found = keys[order], np.empty(len(keys), dtype=np.int64)
        slots = np.minimum(np.searchsorted(self.keys, asked), len(self.keys) - 1)
        found[order] = np.where(self.keys[slots] == asked, slots, -1)
        return found


# Whether a cache fits into memory.


BUFFERS = 2  # the current cache, and the one being built


def check_cache_memory(capacity: int, row_bytes: int, *, caches: int = 1, available: int | None = None) -> None:
    """Reject a cache larger than memory before anything is fetched.

    Args:
        capacity: rows of a cache.
        row_bytes: of a row.
        caches: number of caches on this machine.
        available: bytes of memory; None asks the operating system.

    Raises:
        ConfigError: the rows of both buffers exceed the available memory.
    """
    available = int(psutil.virtual_memory().available) if available is None else available
    needed = capacity * row_bytes * BUFFERS * caches
    if needed > available:
        most = available // (row_bytes * BUFFERS * caches)
        raise ConfigError(
            f"cache_rows={capacity} exceeds memory: {BUFFERS} buffers of {capacity} rows of {row_bytes} bytes"
            f"{f' for each of {caches} parts' if caches > 1 else ''} need {needed / 1e9:.3g} GB, and "
            f"{available / 1e9:.3g} GB are available. Choose at most {most} rows."
        )


# Fetching rows from their owners into an array.


Fetch = Callable[[Mapping[int, NDArray[np.int64]]], dict[int, OwnerReply]]


def fetch_into(
    rows: NDArray[np.float32],
    indices: NDArray[np.int64],
    keys: NDArray[np.int64],
    owners: NDArray[np.integer],
    fetch: Fetch,
) -> list[OwnerReply]:
    """Fetch the rows of some keys into ``rows[indices]``: one RPC per owner, all at once.

    Args:
        rows: (K, F) float32, output.
        indices: (M,) row indices of the keys.
        keys: (M,) keys of the rows.
        owners: (M,) parts that own them.
        fetch: requests rows from owners.

    Raises:
        RunFailedError: an owner did not answer, or returned the wrong rows.
    """
    if not len(keys):
        return []
    order = np.argsort(owners, kind="stable")
    asked, starts = np.unique(owners[order], return_index=True)
    groups = dict(zip(asked.tolist(), np.split(order, starts[1:]), strict=True))
    replies = fetch({owner: keys[group] for owner, group in groups.items()})
    for owner, group in groups.items():
        sent = replies[owner].rows.shape if owner in replies else "nothing"
        if sent != (len(group), rows.shape[1]):
            raise RunFailedError(
                f"part {owner} sent {sent} for {len(group)} rows of {rows.shape[1]} features. Is it of another run?"
            )
        rows[indices[group]] = replies[owner].rows
    return [replies[owner] for owner in groups]


# Selection of the rows of a cache: the hottest ones, within every owner's share.


def quotas(capacity: int, shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """Rows (O,) per owner: ``capacity`` rows divided by their shares, rounded by largest remainders.

    Raises:
        PlanError: the shares are not O numbers from 0 to 1 that sum to 1.
    """
    shares = np.asarray(shares, dtype=np.float64)
    if shares.ndim != 1 or not (shares >= 0).all() or (len(shares) and abs(shares.sum() - 1) > 1e-6):
        raise PlanError(f"shares {shares.tolist()} of a cache: one number from 0 to 1 per owner, summing to 1.")
    exact = shares * capacity
    whole = np.floor(exact + 1e-9).astype(np.int64)  # 0.6 * 5 is 3, although binary fractions are slightly less
    left = capacity - int(whole.sum())
    if left > 0 and len(shares):
        whole[np.argsort(whole - exact, kind="stable")[:left]] += 1
    return whole


def hottest_first(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices (U,) of counts (U,), the largest first; ties in ascending order."""
    heat = -counts
    if len(counts) and counts.max() < 2**15:
        heat = heat.astype(np.int16)  # radix sort, several times faster
    return np.argsort(heat, kind="stable")


def hot_set(
    order: NDArray[np.int64], owners: NDArray[np.integer], shares: NDArray[np.float64], capacity: int
) -> NDArray[np.int64]:
    """Indices (H,) of the keys to cache, H at most ``capacity``, in arbitrary order.

    The hottest keys of each owner within its quota are cached; unused quotas go to the hottest remaining keys of any
    owner.

    Args:
        order: (U,) indices of the keys, the hottest first, as from :func:`hottest_first`.
        owners: (U,) index of each key's owner among O.
        shares: (O,) of the capacity.
        capacity: rows.

    References: GreenDyGNN section V-A, stage 2 (top-n hot nodes by access frequencies weighted per owner).
    Differs from the paper: an owner's weight is its share of the capacity; the paper does not specify its use.
    """
    if len(order) <= capacity:
        return order
    chosen, sorted_owners = np.zeros(len(order), dtype=bool), owners[order]
    for owner, quota in enumerate(quotas(capacity, shares)):
        chosen[np.flatnonzero(sorted_owners == owner)[:quota]] = True
    chosen[np.flatnonzero(~chosen)[: capacity - int(chosen.sum())]] = True
    return order[chosen]


# The number of batches that need each key.


def key_counts(asked: Sequence[NDArray[np.int64]], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct keys (U,), ascending, and the number of batches (U,) that need each.

    Args:
        asked: keys of each batch, distinct within it, from 0 to ``size - 1``.
        size: of the key space.
    """
    whole = np.concatenate(asked) if asked else np.empty(0, dtype=np.int64)
    if size > max(8 * len(whole), 2**16):  # sorting the keys is cheaper than a counter for every possible key
        keys, counts = np.unique(whole, return_counts=True)
        return keys.astype(np.int64), counts.astype(np.int64)
    dense = np.bincount(whole, minlength=size)
    keys = np.flatnonzero(dense)
    return keys, dense[keys].astype(np.int64)


# The numbering of feature rows, and the parts that own them.


@dataclass(frozen=True, slots=True, eq=False)
class KeySpace:
    """Keys of all rows: node v of snapshot t has key ``t * N + v``; static features have one snapshot.

    Attributes:
        owner: (N,) part of every node, from 0.
        parts: P, above every owner.
        snapshots: T if features differ between snapshots, otherwise 1.
        places: (N,) index of each node among its part's, ascending.
        sizes: (P,) nodes of each part.

    Raises:
        PlanError: an owner is not a part, or there is no node, part or snapshot.
    """

    owner: NDArray[np.int32]
    parts: int
    snapshots: int = 1
    places: NDArray[np.int32] = field(init=False)
    sizes: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        owner = np.array(self.owner, dtype=np.int32)
        if owner.ndim != 1 or not len(owner) or self.parts < 1 or self.snapshots < 1:
            raise PlanError(
                f"keys of owners {owner.shape}, parts={self.parts}, snapshots={self.snapshots}: one owner per "
                "node and at least one node, part and snapshot are needed."
            )
        if owner.min() < 0 or owner.max() >= self.parts:
            raise PlanError(f"owners from {owner.min()} to {owner.max()}: parts are 0 to {self.parts - 1}.")
        order, sizes = np.argsort(owner, kind="stable"), np.bincount(owner, minlength=self.parts)
        places = np.empty(len(owner), dtype=np.int32)
        places[order] = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        for name, own in (("owner", owner), ("places", places), ("sizes", sizes.astype(np.int64))):
            own.setflags(write=False)
            object.__setattr__(self, name, own)

    @property
    def nodes(self) -> int:
        """N."""
        return len(self.owner)

    @property
    def size(self) -> int:
        """Number of keys: they are 0 to ``size - 1``."""
        return self.nodes * self.snapshots

    def key(self, vertices: NDArray[np.int64], snapshots: NDArray[np.int64] | int = 0) -> NDArray[np.int64]:
        """Keys (K,) of nodes (K,) in snapshots (K,), or all in one; the snapshot is ignored if T is 1."""
        vertices = np.asarray(vertices, dtype=np.int64)
        return vertices if self.snapshots == 1 else np.asarray(snapshots, dtype=np.int64) * self.nodes + vertices

    def vertices(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """The nodes (K,) of keys (K,)."""
        return keys if self.snapshots == 1 else keys % self.nodes

    def owners(self, keys: NDArray[np.int64]) -> NDArray[np.int32]:
        """The parts (K,) that own keys (K,)."""
        return self.owner[self.vertices(keys)]

    def own_places(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Index (K,) of each key among its owner's keys, in the order of :meth:`of_part`."""
        if self.snapshots == 1:
            return self.places[keys].astype(np.int64)
        snapshots, vertices = np.divmod(keys, self.nodes)
        return snapshots * self.sizes[self.owner[vertices]] + self.places[vertices]

    def of_part(self, part: int) -> NDArray[np.int64]:
        """All keys (K_p,) of a part, ascending: one snapshot after another."""
        vertices = np.flatnonzero(self.owner == part)
        return (np.arange(self.snapshots, dtype=np.int64)[:, None] * self.nodes + vertices).reshape(-1)


# The feature rows that a part owns.


@dataclass(frozen=True, slots=True, eq=False)
class OwnRows:
    """Rows of one part, accessed by key without a search.

    Attributes:
        part: its index.
        space: of all keys.
        rows: (K_p, F) float32, in the order of ``space.of_part(part)``; may be a memory map.

    Raises:
        PlanError: rows are not float32, or not one for each of the part's keys.
    """

    part: int
    space: KeySpace
    rows: NDArray[np.float32]

    def __post_init__(self) -> None:
        if not 0 <= self.part < self.space.parts:
            raise PlanError(f"part {self.part}: parts are 0 to {self.space.parts - 1}.")
        expected = int(self.space.sizes[self.part]) * self.space.snapshots
        if self.rows.ndim != 2 or len(self.rows) != expected or self.rows.dtype != np.float32:
            raise PlanError(
                f"rows of part {self.part} are {self.rows.dtype} {self.rows.shape}: its {expected} keys need the same "
                "number of float32 rows."
            )

    @property
    def features(self) -> int:
        """F."""
        return self.rows.shape[1]

    def take(self, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        """Rows (K, F) of own keys (K,), in the same order."""
        return self.rows[self.space.own_places(keys)]
