"""The graph of one time window, as compressed sparse rows of in-neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs.arrays import frozen


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """N vertices and E directed edges: row v lists the in-neighbours (sources) of v, sorted, without duplicates.

    Self loops may occur and E may be 0. The arrays are read-only; writable ones are copied.

    Attributes:
        indptr: shape (N + 1,), int64: the in-neighbours of v are ``indices[indptr[v]:indptr[v + 1]]``.
        indices: shape (E,), int32: the sources of the edges.
        weights: shape (E,), float32, finite and at least 0; None where edges carry no weight.

    Raises:
        DataError: an array has the wrong type, shape or order; the message names the first wrong row.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    weights: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        indptr = frozen(self.indptr, name="indptr", dtype=np.int64, shape=(None,))
        indices = frozen(self.indices, name="indices", dtype=np.int32, shape=(None,))
        object.__setattr__(self, "indptr", indptr)
        object.__setattr__(self, "indices", indices)
        _check_rows(indptr, indices)
        if self.weights is not None:
            weights = frozen(self.weights, name="weights", dtype=np.float32, shape=(len(indices),))
            object.__setattr__(self, "weights", weights)
            wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
            if len(wrong):
                raise DataError(
                    f"weights[{wrong[0]}] is {weights[wrong[0]]}; finite weights of at least 0 are needed, because "
                    "degrees are sums of weights and are square-rooted. Drop such edges, or shift the weights."
                )

    @classmethod
    def trusted(
        cls, indptr: NDArray[np.int64], indices: NDArray[np.int32], weights: NDArray[np.float32] | None = None
    ) -> Snapshot:
        """A snapshot of read-only arrays that are known to be right: only types and lengths are looked at.

        For arrays that the lab has just built, or has written to disk itself: no page of them is read.

        Raises:
            DataError: an array has the wrong type or length, or could be changed.
        """
        fits = indptr.dtype == np.int64 and indices.dtype == np.int32 and len(indptr) > 1
        if weights is not None:
            fits = fits and weights.dtype == np.float32 and weights.shape == indices.shape
        if not fits or any(array is not None and array.flags.writeable for array in (indptr, indices, weights)):
            raise DataError("these arrays are no snapshot: int64 (N + 1,), int32 (E,), float32 (E,), all read-only.")
        snapshot = object.__new__(cls)
        for name, array in (("indptr", indptr), ("indices", indices), ("weights", weights)):
            object.__setattr__(snapshot, name, array)
        return snapshot

    def __reduce__(self) -> tuple[Any, ...]:
        # numpy forgets the read-only flag in a pickle; going through the constructor puts it back
        return (Snapshot, (self.indptr, self.indices, self.weights))

    def __repr__(self) -> str:
        weighted = ", weighted" if self.weights is not None else ""
        return f"Snapshot({self.num_nodes:,} vertices, {self.num_edges:,} edges{weighted})"

    @property
    def num_nodes(self) -> int:
        """N, the number of vertices."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """E, the number of distinct directed edges."""
        return len(self.indices)

    def equals(self, other: Snapshot) -> bool:
        """Whether the other one holds the same edges and weights, over as many vertices."""
        if self is other:
            return True
        if self.num_edges != other.num_edges or (self.weights is None) != (other.weights is None):
            return False
        mine, theirs = (self.indptr, self.indices, self.weights), (other.indptr, other.indices, other.weights)
        return all(a is None or b is None or np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))

    def rows(self) -> NDArray[np.int64]:
        """The target vertex of every edge, shape (E,), in the order of ``indices``."""
        return np.repeat(np.arange(self.num_nodes, dtype=np.int64), np.diff(self.indptr))

    def in_degrees(self) -> NDArray[np.float64]:
        """The sum of the weights of the edges into every vertex, or their number without weights; shape (N,)."""
        if self.weights is None:
            return np.diff(self.indptr).astype(np.float64)
        return np.bincount(self.rows(), weights=self.weights, minlength=self.num_nodes).astype(np.float64)

    def out_degrees(self) -> NDArray[np.float64]:
        """The sum of the weights of the edges out of every vertex, or their number without weights; shape (N,)."""
        return np.bincount(self.indices, weights=self.weights, minlength=self.num_nodes).astype(np.float64)


def _check_rows(indptr: NDArray[np.int64], indices: NDArray[np.int32]) -> None:
    edges = len(indices)
    if len(indptr) < 2:
        raise DataError(f"indptr has {len(indptr)} entries; a snapshot of N vertices needs N + 1, with N at least 1.")
    if indptr[0] != 0 or indptr[-1] != edges or (np.diff(indptr) < 0).any():
        raise DataError(
            f"indptr runs from {indptr[0]} to {indptr[-1]}; it must start at 0, never fall, and end at the number of "
            f"edges, {edges}."
        )
    if edges and not (indices.min() >= 0 and indices.max() < len(indptr) - 1):
        raise DataError(
            f"indices run from {indices.min()} to {indices.max()}; vertices are numbered 0 to {len(indptr) - 2}."
        )
    falls = indices[1:] <= indices[:-1]
    starts = indptr[1:-1]
    falls[starts[(starts > 0) & (starts < edges)] - 1] = False
    if falls.any():
        row = int(np.searchsorted(indptr, np.flatnonzero(falls)[0], side="right")) - 1
        raise DataError(
            f"row {row} is not sorted or holds a duplicate: its in-neighbours begin with "
            f"{indices[indptr[row] : indptr[row + 1]][:8].tolist()}. Sort each row and merge duplicates "
            "(graph builders do both)."
        )
