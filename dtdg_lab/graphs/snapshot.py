"""The graph of one time window, as compressed sparse rows of in-neighbours."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dtdg_lab.core.errors import DataError

# Read-only arrays, and the checks that every array of a graph passes.


_AT_ONCE = 2**20  # entries checked at once


def frozen(array: Any, *, name: str, dtype: DTypeLike, shape: Sequence[int | None]) -> NDArray[Any]:
    """Return the array, checked, contiguous and read-only.

    A writable array is copied, so that its owner can go on changing it; a read-only one (a memory map, or an array
    its maker has given up) is shared.

    Args:
        array: the given array.
        name: its name in messages.
        dtype: the required type; nothing is converted, so that no value is rounded silently.
        shape: the required shape; None fits any length.

    Raises:
        DataError: it is no array, has another type or shape, or entries are masked.
    """
    required = np.dtype(dtype)
    refuse_masked(array, name)
    if not isinstance(array, np.ndarray):
        raise DataError(
            f"{name} is a {type(array).__name__}; a numpy array of {required} is needed: use np.asarray(...)."
        )
    if array.dtype != required:
        raise DataError(f"{name} has type {array.dtype}; {required} is needed: convert it with .astype(np.{required}).")
    fits = array.ndim == len(shape) and all(want in (None, have) for have, want in zip(array.shape, shape, strict=True))
    if not fits:
        required_shape = ", ".join("any" if want is None else str(want) for want in shape)
        raise DataError(
            f"{name} has shape {array.shape}; ({required_shape}{',' if len(shape) == 1 else ''}) is needed."
        )
    if array.flags.writeable:
        array = np.array(array, order="C")
        array.setflags(write=False)
    # asarray turns a memory map into a plain array over the same pages
    return np.asarray(np.ascontiguousarray(array))


def refuse_masked(array: Any, name: str) -> None:
    """Refuse an array with masked entries: numpy would read the values under the mask.

    Raises:
        DataError: entries are masked; the message names the first.
    """
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        mask = np.ma.getmaskarray(array)
        first = ", ".join(str(coordinate) for coordinate in np.argwhere(mask)[0])
        raise DataError(
            f"{name}[{first}] is masked ({int(mask.sum())} of {mask.size} entries are); all must have values. "
            "Drop what is masked, in all vectors alike, with array[keep], keep = ~np.ma.getmaskarray(array); or fill "
            "it with array.filled(value)."
        )


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Make an array read-only and return it, for arrays that their maker does not change again."""
    array.setflags(write=False)
    return array


def over_time(array: Any, *, name: str, dtype: DTypeLike, steps: int, shape: Sequence[int | None]) -> NDArray[Any]:
    """Return a checked, read-only array with one entry of ``shape`` for each of T steps.

    An array of ``shape`` itself stands for all steps: it is repeated by a view, which takes no memory.

    Returns:
        Shape (T, *shape).

    Raises:
        DataError: as :func:`frozen`.
    """
    if isinstance(array, np.ndarray) and array.ndim == len(shape) + 1 and repeats(array):
        array = array[0]
    if isinstance(array, np.ndarray) and array.ndim == len(shape):
        one = frozen(array, name=name, dtype=dtype, shape=shape)
        return np.broadcast_to(one, (steps, *one.shape))
    return frozen(array, name=name, dtype=dtype, shape=(steps, *shape))


def repeats(array: NDArray[Any]) -> bool:
    """Return whether an array over time is one entry that a view repeats."""
    return array.size > 0 and array.strides[0] == 0


def stored_once(array: NDArray[Any]) -> NDArray[Any]:
    """Return the part of an array over time to keep: its only entry where it repeats, else all of it."""
    return array[0] if repeats(array) else array


def check_ids(node_ids: Any, nodes: int | None) -> NDArray[Any]:
    """Return the ids of N nodes, read-only; None fits any number of them.

    Raises:
        DataError: they are neither whole numbers nor text, or not N of them.
    """
    kind = np.asarray(node_ids).dtype
    if kind.kind not in "iuU":
        raise DataError(f"node_ids has type {kind}; whole numbers or text are needed.")
    return frozen(node_ids, name="node_ids", dtype=kind, shape=(nodes,))


def check_finite(name: str, array: NDArray[Any]) -> None:
    """Refuse NaN and infinite values, naming the first.

    Raises:
        DataError: there is one.
    """
    step = max(1, _AT_ONCE * len(array) // max(1, array.size))  # no array of flags as large as the data
    for start in range(0, len(array), step):
        bad = ~np.isfinite(array[start : start + step])
        if bad.any():
            first, *rest = (int(i) for i in np.argwhere(bad)[0])
            index = (start + first, *rest)
            raise DataError(
                f"{name}{list(index)} is {array[index]}; finite numbers are needed. Replace missing values before, or "
                "leave the rows out."
            )


def check_range(name: str, array: NDArray[Any], low: int, high: int) -> None:
    """Refuse values outside ``low`` to ``high``, naming the first.

    Raises:
        DataError: there is one.
    """
    if array.size and (array.min() < low or array.max() > high):
        index = tuple(int(i) for i in np.argwhere((array < low) | (array > high))[0])
        raise DataError(f"{name}{list(index)} is {array[index]}; {low} to {high} is allowed.")


Wanted = tuple[Any, tuple[int | None, ...], tuple[int, int] | None]  # type, shape, and least and largest value


def check_arrays(holder: Any, requirements: Mapping[str, Wanted]) -> None:
    """Check the arrays of a frozen dataclass that are not None, and replace them by read-only ones.

    Args:
        holder: the dataclass.
        requirements: attribute -> type, shape (see :func:`frozen`), and bounds of whole numbers; floats must be finite.

    Raises:
        DataError: an array has another type or shape, or a value that is not allowed.
    """
    for name, (dtype, shape, bounds) in requirements.items():
        if getattr(holder, name) is not None:
            array = frozen(getattr(holder, name), name=name, dtype=dtype, shape=shape)
            object.__setattr__(holder, name, array)
            if bounds is not None:
                check_range(name, array, *bounds)
            elif array.dtype.kind == "f":
                check_finite(name, array)


def node_arrays(nodes: int, steps: int | None = None, holder: Any = None) -> dict[str, Wanted]:
    """Return the requirements of the arrays of N nodes, and of T steps where given, for :func:`check_arrays`.

    Args:
        nodes: N.
        steps: T; None where nothing changes.
        holder: has ``features`` and ``classes``, which may have one entry for all steps.
    """
    over = () if steps is None else (steps,)
    features, classes = (
        over if np.ndim(getattr(holder, name, 0)) > entry else () for name, entry in (("features", 2), ("classes", 1))
    )
    return {
        "features": (np.float32, (*features, nodes, None), None),
        "classes": (np.int16, (*classes, nodes), (-1, np.iinfo(np.int16).max)),
        "vertex_split": (np.int8, (nodes,), (-1, 2)),
        **dict.fromkeys(("targets", "persistence") if over else (), (np.float32, (*over, nodes), None)),
    }


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """N nodes and E directed edges: row v lists the in-neighbours (sources) of v, sorted, without duplicates.

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
        """Return a snapshot of valid, read-only arrays. Only types and lengths are checked: no page is read.

        For arrays that the lab has just built, or has written to disk.

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
        # pickles lose numpy's read-only flag; the constructor restores it
        return (Snapshot, (self.indptr, self.indices, self.weights))

    def __repr__(self) -> str:
        weighted = ", weighted" if self.weights is not None else ""
        return f"Snapshot({self.num_nodes:,} nodes, {self.num_edges:,} edges{weighted})"

    @property
    def num_nodes(self) -> int:
        """N, the number of nodes."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """E, the number of distinct directed edges."""
        return len(self.indices)

    def equals(self, other: Snapshot) -> bool:
        """Return whether both have the same edges and weights, over as many nodes."""
        if self is other:
            return True
        if self.num_edges != other.num_edges or (self.weights is None) != (other.weights is None):
            return False
        mine, theirs = (self.indptr, self.indices, self.weights), (other.indptr, other.indices, other.weights)
        return all(a is None or b is None or np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))

    def rows(self) -> NDArray[np.int64]:
        """Return the target node of every edge, shape (E,), in the order of ``indices``."""
        return np.repeat(np.arange(self.num_nodes, dtype=np.int64), np.diff(self.indptr))

    def in_degrees(self) -> NDArray[np.float64]:
        """Return the sum of the weights of the edges into every node, or their number without weights; shape (N,)."""
        if self.weights is None:
            return np.diff(self.indptr).astype(np.float64)
        return np.bincount(self.rows(), weights=self.weights, minlength=self.num_nodes).astype(np.float64)

    def out_degrees(self) -> NDArray[np.float64]:
        """Return the sum of the weights of the edges out of every node, or their number without weights; shape (N,)."""
        return np.bincount(self.indices, weights=self.weights, minlength=self.num_nodes).astype(np.float64)


def _check_rows(indptr: NDArray[np.int64], indices: NDArray[np.int32]) -> None:
    edges = len(indices)
    if len(indptr) < 2:
        raise DataError(f"indptr has {len(indptr)} entries; a snapshot of N nodes needs N + 1, with N at least 1.")
    if indptr[0] != 0 or indptr[-1] != edges or (np.diff(indptr) < 0).any():
        raise DataError(
            f"indptr runs from {indptr[0]} to {indptr[-1]}; it must start at 0, never fall, and end at the number of "
            f"edges, {edges}."
        )
    if edges and not (indices.min() >= 0 and indices.max() < len(indptr) - 1):
        raise DataError(
            f"indices run from {indices.min()} to {indices.max()}; nodes are numbered 0 to {len(indptr) - 2}."
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


# The edges of a snapshot as sorted numbers, to look up millions of pairs at once.


Ints = NDArray[np.int64]


class EdgeSet:
    """The E edges of a snapshot that are no self loops, among the N (N - 1) ordered pairs of different nodes.

    Pair (u, v) has the number u (N - 1) + v, one less where v > u, so that the pairs from a source are consecutive.

    Args:
        snapshot: N nodes.

    Attributes:
        num_nodes: N.
        numbers: shape (E,), sorted: the edges.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.num_nodes = snapshot.num_nodes
        src, dst = snapshot.indices, snapshot.rows()
        different = src != dst
        self.numbers: Ints = read_only(np.sort(self.number(src[different], dst[different])))

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def absent(self) -> int:
        """Number of pairs of different nodes that are no edges."""
        return self.num_nodes * (self.num_nodes - 1) - len(self)

    def number(self, src: NDArray[np.integer], dst: NDArray[np.integer]) -> Ints:
        """Return the numbers of pairs of different nodes; any shape."""
        return src.astype(np.int64) * (self.num_nodes - 1) + dst - (dst > src)

    def pairs(self, numbers: Ints) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return sources and targets of pairs given by number; any shape."""
        src, dst = np.divmod(numbers, max(self.num_nodes - 1, 1))
        dst += dst >= src
        return src.astype(np.int32), dst.astype(np.int32)

    def holds(self, src: NDArray[np.integer], dst: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Return which pairs of different nodes are edges; any shape."""
        numbers = self.number(src, dst)
        if not len(self):
            return np.zeros(numbers.shape, dtype=bool)
        positions = np.minimum(np.searchsorted(self.numbers, numbers), len(self) - 1)
        return np.asarray(self.numbers[positions] == numbers)

    def nth_absent(self, order: Ints) -> Ints:
        """Return the numbers of absent pairs, given their ranks 0 .. absent - 1 among them; any shape.

        The edge with number e and rank j has e - j absent pairs before it.
        """
        gaps = self.numbers - np.arange(len(self))
        return np.asarray(order) + np.searchsorted(gaps, order, side="right")

    def absent_from(self, sources: NDArray[np.int32]) -> tuple[Ints, Ints]:
        """Return, for each source, the rank of its first absent pair and the number of its absent pairs; (U,) each."""
        first = np.asarray(sources, dtype=np.int64) * (self.num_nodes - 1)
        edges_before = np.searchsorted(self.numbers, first)
        edges_after = np.searchsorted(self.numbers, first + self.num_nodes - 1)
        return first - edges_before, self.num_nodes - 1 - (edges_after - edges_before)


# An edge as one whole number, target * 2^32 + source: sorting the numbers sorts the rows of a snapshot.


TARGET_BITS = 32
LARGEST = float(np.finfo(np.float32).max)  # weights and degrees are kept as float32
_SOURCE_HALF = 0 if sys.byteorder == "little" else 1


def keys_of(src: ArrayLike, dst: ArrayLike) -> NDArray[np.int64]:
    """Return the keys of E edges, shape (E,), in their order."""
    keys = np.asarray(dst).astype(np.int64)
    keys <<= TARGET_BITS
    keys += np.asarray(src).astype(np.int64, copy=False)
    return keys


def edge_keys(snapshot: Snapshot) -> NDArray[np.int64]:
    """Return the keys of a snapshot's edges, shape (E,), rising."""
    return keys_of(snapshot.indices, snapshot.rows()) if snapshot.num_edges else np.empty(0, dtype=np.int64)


def sources(keys: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the sources of keys, shape (E,), a copy."""
    return np.ascontiguousarray(keys).view(np.int32)[_SOURCE_HALF::2].copy()


def targets(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the targets of keys, shape (E,)."""
    return keys >> TARGET_BITS


def stable_order(nodes: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the stable order that sorts nodes below 2^31, shape (E,).

    numpy sorts 16-bit numbers by counting, in a fifth of the time of comparisons.
    """
    order = np.argsort(nodes.astype(np.uint16), kind="stable")
    if len(nodes) and nodes.max() >= 1 << 16:
        order = order[np.argsort((nodes >> 16).astype(np.uint16)[order], kind="stable")]
    return order


def sums_of_equal(keys: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums of the values of equal keys, in their order; ``keys`` never fall."""
    starts = np.flatnonzero(_firsts(keys))
    return np.add.reduceat(values, starts) if len(starts) else np.zeros(0)


def distinct(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return each key once; ``keys`` never fall."""
    return keys[_firsts(keys)]


def places_of(keys: NDArray[np.int64], queries: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the position of each query among rising ``keys``, and whether the query is one of them."""
    positions = np.searchsorted(keys, queries)
    is_present = positions < len(keys)
    is_present[is_present] = keys[positions[is_present]] == queries[is_present]
    return positions, is_present


def _firsts(keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which keys are the first of equal ones; ``keys`` never fall."""
    firsts = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=firsts[1:])
    return firsts


def snapshot_of_keys(keys: NDArray[np.int64], weight: NDArray[np.float64] | None, num_nodes: int) -> Snapshot:
    """Return the snapshot of edges given as keys, in any order and with duplicates; weights are summed in their order.

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
    """Return sums of weights in the type that snapshots keep, shape (E,).

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
    """Return the snapshot of rising keys without duplicates; ``in_degree`` counts each target's keys, (N,)."""
    indptr = np.zeros(len(in_degree) + 1, dtype=np.int64)
    np.cumsum(in_degree, out=indptr[1:])
    return Snapshot.trusted(
        read_only(indptr), read_only(sources(keys)), None if weights is None else read_only(weights)
    )
