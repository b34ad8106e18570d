"""An edge from every vertex to itself, put into a matrix whose rows are some of the vertices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = tuple[NDArray[Any], NDArray[Any]]


def without_loops(indptr: NDArray[Any], indices: NDArray[Any], first: int) -> Rows:
    """The edges that are not self loops, where row i is vertex ``first + i``: offsets (n + 1,) and in-neighbours."""
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    kept = indices != rows + first
    if kept.all():
        return indptr, indices
    dropped = np.concatenate([[0], np.cumsum(~kept)])[indptr]
    return indptr - dropped.astype(indptr.dtype), indices[kept]


def with_self(indptr: NDArray[Any], indices: NDArray[Any], first: int) -> Rows:
    """Every row's own vertex before its in-neighbours; a self loop that is there stays beside it."""
    rows = len(indptr) - 1
    own = np.arange(first, first + rows, dtype=indices.dtype)
    offsets = indptr + np.arange(rows + 1, dtype=indptr.dtype)
    return offsets, put_first(offsets, indices, own)


def put_first(offsets: NDArray[Any], values: NDArray[Any], own: NDArray[Any]) -> NDArray[Any]:
    """Values of edges with one more in front of every row's.

    Args:
        offsets: (n + 1,) where rows begin with the additional value.
        values: (E,) in the order of rows.
        own: (n,) the additional ones.
    """
    found = np.empty(len(values) + len(own), dtype=values.dtype)
    others = np.ones(len(found), dtype=bool)
    others[offsets[:-1]] = False
    found[offsets[:-1]] = own
    found[others] = values
    return found
