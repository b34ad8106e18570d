"""What the parsers of data files give: edges with times, and static graphs; cut sequences are IntervalEdges.

All arrays are read-only numpy; writable ones are copied. Shapes, types and ranges are checked when a table is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs.snapshot import check_arrays, check_ids, node_arrays

MAX_NODES = 2**31 - 1  # sources are kept as int32 in snapshots
MAX_ID = 2**31 - 1  # the largest number a file may call a node by
SPLIT_TRAIN, SPLIT_VALIDATION, SPLIT_TEST, SPLIT_NONE = 0, 1, 2, -1


@dataclass(frozen=True, slots=True, eq=False)
class EdgeTable:
    """E edges with times, E at least 1, in the order of the file.

    Attributes:
        src: shape (E,), int64: sources as the file has them, at least 0; positions in ``node_ids`` where that is given.
        dst: shape (E,), int64: targets.
        time: shape (E,), int64 or finite float64, in the file's unit.
        weight: shape (E,), finite float64, of either sign; None where edges carry none.
        node_ids: shape (N,): what the file calls the nodes, where ``src`` and ``dst`` are positions; else None.

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
        node_ids: shape (N,): what the file calls the nodes; or None.

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
