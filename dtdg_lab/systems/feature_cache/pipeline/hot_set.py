"""Selection of the rows of a cache: the hottest ones, within every owner's share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


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
    selected, sorted_owners = np.zeros(len(order), dtype=bool), owners[order]
    for owner, quota in enumerate(quotas(capacity, shares)):
        selected[np.flatnonzero(sorted_owners == owner)[:quota]] = True
    selected[np.flatnonzero(~selected)[: capacity - int(selected.sum())]] = True
    return order[selected]


def key_counts(batches: Sequence[NDArray[np.int64]], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return distinct keys (U,), ascending, and the number of batches (U,) that need each.

    Args:
        batches: keys of each batch, distinct within it, from 0 to ``size - 1``.
        size: of the key space.
    """
    all_keys = np.concatenate(batches) if batches else np.empty(0, dtype=np.int64)
    if size > max(8 * len(all_keys), 2**16):  # sorting the keys is cheaper than a counter for every possible key
        keys, counts = np.unique(all_keys, return_counts=True)
        return keys.astype(np.int64), counts.astype(np.int64)
    dense = np.bincount(all_keys, minlength=size)
    keys = np.flatnonzero(dense)
    return keys, dense[keys].astype(np.int64)
