"""Tables that the parsers of data files return: edges with times, and static graphs."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs.snapshot import check_arrays, check_ids, node_arrays

MAX_NODES = 2**31 - 1  # sources are kept as int32 in snapshots
MAX_ID = 2**31 - 1  # the largest node number in a file
SPLIT_TRAIN, SPLIT_VALIDATION, SPLIT_TEST, SPLIT_NONE = 0, 1, 2, -1


@dataclass(frozen=True, slots=True, eq=False)
class EdgeTable:
    """E edges with times, E at least 1, in the order of the file.

    Attributes:
        src: shape (E,), int64: sources of the file, at least 0; positions in ``node_ids`` where that is given.
        dst: shape (E,), int64: targets.
        time: shape (E,), int64 or finite float64, in the file's unit.
        weight: shape (E,), finite float64, of either sign; None where edges carry none.
        node_ids: shape (N,): ids of the nodes in the file, where ``src`` and ``dst`` are positions; else None.

    Raises:
        DataError: an array has the wrong type or shape, or a value is out of its range.
    """

    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    time: NDArray[Any]
    weight: NDArray[np.float64] | None = None
    node_ids: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        _check_edges(self, None)
        of_time = np.float64 if getattr(self.time, "dtype", None) == np.float64 else np.int64
        check_arrays(self, {"time": (of_time, self.src.shape, None), "weight": (np.float64, self.src.shape, None)})


@dataclass(frozen=True, slots=True, eq=False)
class StaticTable:
    """A static graph of N nodes and E edges, E at least 1; time is added later, by deleting edges.

    Attributes:
        src: shape (E,), int64: sources, 0 .. N - 1.
        dst: shape (E,), int64: targets.
        num_nodes: N.
        features: shape (N, F), finite float32; or None.
        classes: shape (N,), int16; -1 where unlabelled; or None.
        vertex_split: shape (N,), int8: 0 training, 1 validation, 2 test, -1 none of them; or None.
        node_ids: shape (N,): ids of the nodes in the file; or None.

    Raises:
        DataError: an array has the wrong type or shape, or a value is out of its range.
    """

    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    num_nodes: int
    features: NDArray[np.float32] | None = None
    classes: NDArray[np.int16] | None = None
    vertex_split: NDArray[np.int8] | None = None
    node_ids: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        value = self.num_nodes
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_NODES:
            raise DataError(f"num_nodes={value!r}; a whole number from 1 to {MAX_NODES:,} is needed.")
        _check_edges(self, value)
        check_arrays(self, node_arrays(value))


def _check_edges(table: EdgeTable | StaticTable, nodes: int | None) -> None:
    """Check ``src`` and ``dst``, which may not be empty, and ``node_ids``, which names each of ``nodes`` nodes."""
    if table.node_ids is not None:
        object.__setattr__(table, "node_ids", check_ids(table.node_ids, nodes))
        nodes = len(table.node_ids)
    bounds = 0, MAX_ID if nodes is None else nodes - 1
    check_arrays(table, {"src": (np.int64, (None,), bounds)})
    check_arrays(table, {"dst": (np.int64, table.src.shape, bounds)})
    if not len(table.src):
        raise DataError("src has no entries; a graph needs at least 1 edge.")


_LEAST = 10  # nodes of each kind: smaller tables are dense by chance
# of the ends of the two columns: in a graph of one kind, the last nodes may have no edge in one direction
_DIFFERENCE, _LEAST_DIFFERENCE = 0.01, 5
_ACTORS = r"user|customer|client|reviewer|rater|reader|listener|viewer|visitor|buyer|student|author|patient|editor"
_OBJECTS = (
    r"item|product|movie|film|book|song|track|artist|page|article|business|shop|merchant|course|video|thread|venue"
)


def warn_of_two_kinds(src: NDArray[Any], dst: NDArray[Any], columns: tuple[str, str]) -> None:
    """Warn where sources and targets look like nodes of two kinds that share ids.

    There are two signs. The ids of both columns count from 0 or 1 without a gap, but to different ends. Or the columns
    are named like users and items, and share ids.

    Args:
        src: ids of the sources, with or without repeats, int64 or text.
        dst: ids of the targets.
        columns: names of the two columns.
    """
    why = ""
    if src.dtype.kind == dst.dtype.kind == "i" and len(src):
        ends = _dense_range(src), _dense_range(dst)
        if ends[0] is not None and ends[1] is not None and ends[0][0] == ends[1][0]:
            (low, first), (_, second) = ends[0], ends[1]
            if abs(first - second) >= max(_LEAST_DIFFERENCE, _DIFFERENCE * max(first, second)):
                why = f"both count from {low} without a gap, to {first} and to {second}"
    if not why and _are_user_and_item(columns) and src.dtype.kind == dst.dtype.kind and np.isin(dst, src).any():
        why = "they are called so, and have ids in common"
    if why:
        warnings.warn(
            f"{columns[0]} and {columns[1]} look like nodes of two kinds: {why}. A node of one kind and a node of the "
            "other with the same id are one node now. Give bipartite=True if they are of two kinds, bipartite=False if "
            "they are not.",
            stacklevel=5,
        )


def _dense_range(ids: NDArray[np.int64]) -> tuple[int, int] | None:
    """Return the smallest and the largest id if the ids start at 0 or 1 and have no gap."""
    low, high = int(ids.min()), int(ids.max())
    if low not in (0, 1) or not _LEAST <= high - low + 1 <= len(ids):
        return None
    occurs = np.zeros(high + 1, dtype=bool)
    occurs[ids] = True
    return (low, high) if occurs[low:].all() else None


def _are_user_and_item(columns: tuple[str, str]) -> bool:
    first, second = (str(column).lower() for column in columns)
    return any(
        re.search(_ACTORS, one) and re.search(_OBJECTS, other_kind) and not re.search(_ACTORS, other_kind)
        for one, other_kind in ((first, second), (second, first))
    )
