"""Feature rows of a partition: own rows, fetched rows, the cache, its memory, and hot keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import psutil
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError, PlanError, RunFailedError
from dtdg_lab.core.feature_store import OwnerReply

# A cache of rows that other parts own: never changed, only replaced.


DENSE_KEYS = 2**22  # up to so many keys a slot for each is kept: 16 MB, and a look-up without a search


class FeatureCache:
    """Rows by key. Nothing in it changes, so any number of threads may read it and a swap is one assignment.

    Args:
        keys: (C,) ascending, distinct.
        rows: (C, F) float32; frozen here, not copied.
        size: of the key space.

    Raises:
        PlanError: keys are not ascending and distinct within the space, or there is not a row for each.
    """

    __slots__ = ("_slots", "keys", "rows")

    def __init__(self, keys: NDArray[np.int64], rows: NDArray[np.float32], *, size: int) -> None:
        if keys.ndim != 1 or rows.ndim != 2 or len(rows) != len(keys):
            raise PlanError(f"a cache of keys {keys.shape} and rows {rows.shape}: one row for each key is needed.")
        if len(keys) and (keys[0] < 0 or keys[-1] >= size or not (np.diff(keys) > 0).all()):
            raise PlanError(f"keys of a cache must ascend, distinct, from 0 to {size - 1}.")
        self.keys, self.rows = keys, rows
        for array in (keys, rows):
            array.setflags(write=False)
        self._slots: NDArray[np.int32] | None = None
        if size <= DENSE_KEYS:
            self._slots = np.full(size, -1, dtype=np.int32)
            self._slots[keys] = np.arange(len(keys), dtype=np.int32)

    @staticmethod
    def empty(features: int, *, size: int) -> FeatureCache:
        """A cache that holds nothing of F features."""
        return FeatureCache(np.empty(0, dtype=np.int64), np.empty((0, features), dtype=np.float32), size=size)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Of rows, keys and what finds them."""
        return self.rows.nbytes + self.keys.nbytes + (0 if self._slots is None else self._slots.nbytes)

    def find(self, keys: NDArray[np.int64]) -> NDArray[np.integer]:
        """Places (K,) in ``rows`` of keys (K,), -1 where a key is not held."""
        if self._slots is not None:
            return self._slots[keys]
        if not len(self.keys):
            return np.full(len(keys), -1)
        order = np.argsort(keys)  # a search in order reads memory in order, twice as fast
        asked, found = keys[order], np.empty(len(keys), dtype=np.int64)
        slots = np.minimum(np.searchsorted(self.keys, asked), len(self.keys) - 1)
        found[order] = np.where(self.keys[slots] == asked, slots, -1)
        return found


# Whether a cache fits into memory.


BUFFERS = 2  # the cache that serves, and the one being built


def check_cache_memory(capacity: int, row_bytes: int, *, caches: int = 1, available: int | None = None) -> None:
    """Refuse a cache larger than memory before anything is fetched.

    Args:
        capacity: rows of a cache.
        row_bytes: of a row.
        caches: on this machine.
        available: bytes of memory; None asks the operating system.

    Raises:
        ConfigError: the rows of both buffers would take more than is available.
    """
    available = int(psutil.virtual_memory().available) if available is None else available
    needed = capacity * row_bytes * BUFFERS * caches
    if needed > available:
        most = available // (row_bytes * BUFFERS * caches)
        raise ConfigError(
            f"cache_rows={capacity} is larger than memory: {BUFFERS} buffers of {capacity} rows of {row_bytes} bytes"
            f"{f' for each of {caches} parts' if caches > 1 else ''} need {needed / 1e9:.3g} GB, and "
            f"{available / 1e9:.3g} GB are available. Choose at most {most} rows."
        )


# Rows asked of their owners, put where they belong.


Fetch = Callable[[Mapping[int, NDArray[np.int64]]], dict[int, OwnerReply]]


def fetch_into(
    rows: NDArray[np.float32],
    places: NDArray[np.int64],
    keys: NDArray[np.int64],
    owners: NDArray[np.integer],
    fetch: Fetch,
) -> list[OwnerReply]:
    """Fetch the rows of some keys into ``rows[places]``: one RPC for each owner, all at once, none where none is due.

    Args:
        rows: (K, F) float32, written.
        places: (M,) where the rows belong.
        keys: (M,) theirs.
        owners: (M,) parts that own them.
        fetch: asks owners.

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
        rows[places[group]] = replies[owner].rows
    return [replies[owner] for owner in groups]


# The rows that a cache of some capacity should hold: the hottest ones, within every owner's share.


def quotas(capacity: int, shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """Rows (O,) for each of O owners: ``capacity`` rows by their shares, rounded by largest remainders.

    Raises:
        PlanError: the shares are not O numbers from 0 to 1 that sum to 1.
    """
    shares = np.asarray(shares, dtype=np.float64)
    if shares.ndim != 1 or not (shares >= 0).all() or (len(shares) and abs(shares.sum() - 1) > 1e-6):
        raise PlanError(f"shares {shares.tolist()} of a cache: one number from 0 to 1 for each owner, summing to 1.")
    exact = shares * capacity
    whole = np.floor(exact + 1e-9).astype(np.int64)  # 0.6 * 5 is 3, though binary fractions fall short of it
    left = capacity - int(whole.sum())
    if left > 0 and len(shares):
        whole[np.argsort(whole - exact, kind="stable")[:left]] += 1
    return whole


def hottest_first(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places (U,) of counts (U,), the largest first; of equal ones those of lower places first."""
    heat = -counts
    if len(counts) and counts.max() < 2**15:
        heat = heat.astype(np.int16)  # sorted by radix, several times faster
    return np.argsort(heat, kind="stable")


def hot_set(
    order: NDArray[np.int64], owners: NDArray[np.integer], shares: NDArray[np.float64], capacity: int
) -> NDArray[np.int64]:
    """Places (H,) of the keys to hold, H at most ``capacity``, in no order that matters.

    Of each owner the hottest keys within its quota are held; what owners leave unused goes to the hottest keys that
    are left, whoever owns them.

    Args:
        order: (U,) places of the keys, the hottest first, as :func:`hottest_first` has them.
        owners: (U,) place of each key's owner among O.
        shares: (O,) of the capacity.
        capacity: rows.

    References: GreenDyGNN section V-A, stage 2 (top-n hot nodes by access frequencies weighted per owner).
    Differs from the paper: an owner's weight is its share of the capacity; how weights enter there is not said.
    """
    if len(order) <= capacity:
        return order
    chosen, sorted_owners = np.zeros(len(order), dtype=bool), owners[order]
    for owner, quota in enumerate(quotas(capacity, shares)):
        chosen[np.flatnonzero(sorted_owners == owner)[:quota]] = True
    chosen[np.flatnonzero(~chosen)[: capacity - int(chosen.sum())]] = True
    return order[chosen]


# How often each key is asked for in some batches.


def key_counts(asked: Sequence[NDArray[np.int64]], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct keys (U,), ascending, and the number of batches (U,) that ask for each.

    Args:
        asked: keys of each batch, distinct within it, from 0 to ``size - 1``.
        size: of the key space.
    """
    whole = np.concatenate(asked) if asked else np.empty(0, dtype=np.int64)
    if size > max(8 * len(whole), 2**16):  # sorting what is asked then costs less than a counter for every key
        keys, counts = np.unique(whole, return_counts=True)
        return keys.astype(np.int64), counts.astype(np.int64)
    dense = np.bincount(whole, minlength=size)
    keys = np.flatnonzero(dense)
    return keys, dense[keys].astype(np.int64)


# Which row of features is asked for by which number, and which part owns it.


@dataclass(frozen=True, slots=True, eq=False)
class KeySpace:
    """Keys of all rows: node v of snapshot t is ``t * N + v``; features that never change have one snapshot.

    Attributes:
        owner: (N,) part of every node, from 0.
        parts: P, above every owner.
        snapshots: T where features differ between snapshots, else 1.
        places: (N,) number of each node among its part's, ascending.
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
                f"keys of owners {owner.shape}, parts={self.parts}, snapshots={self.snapshots}: one owner for each "
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
        """Keys (K,) of nodes (K,) in snapshots (K,), or all in one; the snapshot means nothing where T is 1."""
        vertices = np.asarray(vertices, dtype=np.int64)
        return vertices if self.snapshots == 1 else np.asarray(snapshots, dtype=np.int64) * self.nodes + vertices

    def vertices(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """The nodes (K,) of keys (K,)."""
        return keys if self.snapshots == 1 else keys % self.nodes

    def owners(self, keys: NDArray[np.int64]) -> NDArray[np.int32]:
        """The parts (K,) that own keys (K,)."""
        return self.owner[self.vertices(keys)]

    def own_places(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Place (K,) of each key among its owner's keys, as :meth:`of_part` lists them."""
        if self.snapshots == 1:
            return self.places[keys].astype(np.int64)
        snapshots, vertices = np.divmod(keys, self.nodes)
        return snapshots * self.sizes[self.owner[vertices]] + self.places[vertices]

    def of_part(self, part: int) -> NDArray[np.int64]:
        """All keys (K_p,) that a part owns, ascending: snapshot after snapshot."""
        vertices = np.flatnonzero(self.owner == part)
        return (np.arange(self.snapshots, dtype=np.int64)[:, None] * self.nodes + vertices).reshape(-1)


# The rows of features that a part owns.


@dataclass(frozen=True, slots=True, eq=False)
class OwnRows:
    """Rows of one part, found by key without a search.

    Attributes:
        part: its number.
        space: of all keys.
        rows: (K_p, F) float32, in the order of ``space.of_part(part)``; may be a memory map.

    Raises:
        PlanError: there is not one row of float32 for each of the part's keys.
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
                f"rows of part {self.part} are {self.rows.dtype} {self.rows.shape}: its {expected} keys need as many "
                "rows of float32."
            )

    @property
    def features(self) -> int:
        """F."""
        return self.rows.shape[1]

    def take(self, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        """Rows (K, F) of own keys (K,), in their order."""
        return self.rows[self.space.own_places(keys)]
