"""Selection of the rows of a cache: the hottest ones, within every owner's share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError


def quotas(capacity: int, shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return rows (O,) per owner: ``capacity`` rows divided by their shares, rounded by largest remainders.

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
    chosen, sorted_owners = np.zeros(len(order), dtype=bool), owners[order]
    for owner, quota in enumerate(quotas(capacity, shares)):
        chosen[np.flatnonzero(sorted_owners == owner)[:quota]] = True
    chosen[np.flatnonzero(~chosen)[: capacity - int(chosen.sum())]] = True
    return order[chosen]


def key_counts(asked: Sequence[NDArray[np.int64]], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return distinct keys (U,), ascending, and the number of batches (U,) that need each.

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
