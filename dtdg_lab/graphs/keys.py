"""An edge as one whole number, target * 2^32 + source: sorting the numbers sorts the rows of a snapshot."""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs.arrays import give_up
from dtdg_lab.graphs.snapshot import Snapshot

TARGET_BITS = 32
LARGEST = float(np.finfo(np.float32).max)  # weights and degrees are kept as float32
_SOURCE_HALF = 0 if sys.byteorder == "little" else 1


def keys_of(src: ArrayLike, dst: ArrayLike) -> NDArray[np.int64]:
    """The keys of E edges, shape (E,), in their order."""
    keys = np.asarray(dst).astype(np.int64)
    keys <<= TARGET_BITS
    keys += np.asarray(src).astype(np.int64, copy=False)
    return keys


def edge_keys(snapshot: Snapshot) -> NDArray[np.int64]:
    """The keys of a snapshot's edges, shape (E,), rising."""
    return keys_of(snapshot.indices, snapshot.rows()) if snapshot.num_edges else np.empty(0, dtype=np.int64)


def sources(keys: NDArray[np.int64]) -> NDArray[np.int32]:
    """The sources of keys, shape (E,), a copy."""
    return np.ascontiguousarray(keys).view(np.int32)[_SOURCE_HALF::2].copy()


def targets(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """The targets of keys, shape (E,)."""
    return keys >> TARGET_BITS


def sums_of_equal(keys: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sums of the values of equal keys, in their order; ``keys`` never fall."""
    starts = np.flatnonzero(_firsts(keys))
    return np.add.reduceat(values, starts) if len(starts) else np.zeros(0)


def distinct(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each key once; ``keys`` never fall."""
    return keys[_firsts(keys)]


def _firsts(keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which keys are the first of equal ones; ``keys`` never fall."""
    firsts = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=firsts[1:])
    return firsts


def snapshot_of_keys(keys: NDArray[np.int64], weight: NDArray[np.float64] | None, num_nodes: int) -> Snapshot:
    """The snapshot of edges given as keys, in any order and with duplicates; weights are summed in their order.

    Args:
        keys: shape (E,).
        weight: shape (E,), float64, or None.
        num_nodes: N.
    """
    weights = None
    if weight is None:
        keys = np.sort(keys)
    else:
        order = np.argsort(keys, kind="stable")  # stable: sums are always taken in the same order
        keys = keys[order]
        weights = finite_weights(sums_of_equal(keys, weight[order]))
    keys = distinct(keys)
    return snapshot_of_rows(np.bincount(targets(keys), minlength=num_nodes), keys, weights)


def finite_weights(sums: NDArray[np.float64]) -> NDArray[np.float32]:
    """Sums of weights in the type that snapshots keep, shape (E,).

    Raises:
        DataError: a sum is too large for it.
    """
    largest = float(sums.max(initial=0.0))
    if largest > LARGEST:
        raise DataError(f"weights of equal edges sum to {largest}; at most 3.4e38 can be kept. Scale the weights down.")
    return sums.astype(np.float32)


def snapshot_of_rows(
    in_degree: NDArray[np.int64], keys: NDArray[np.int64], weights: NDArray[np.float32] | None
) -> Snapshot:
    """The snapshot of rising keys without duplicates; ``in_degree`` counts the keys of every target, shape (N,)."""
    indptr = np.zeros(len(in_degree) + 1, dtype=np.int64)
    np.cumsum(in_degree, out=indptr[1:])
    return Snapshot.trusted(give_up(indptr), give_up(sources(keys)), None if weights is None else give_up(weights))
