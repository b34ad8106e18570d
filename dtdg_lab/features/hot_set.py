"""The rows that a cache of some capacity should hold: the hottest ones, within every owner's share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError


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
