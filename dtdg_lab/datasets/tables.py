"""What the parsers of data files give: edges with times, sequences already cut, and static graphs.

All arrays are read-only numpy; writable ones are copied. Shapes, types and ranges are checked when a table is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs.snapshot import check_finite, check_ids, check_range, frozen

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
        _ids_checked(self)
        edges = self.src.shape
        most = MAX_ID + 1 if self.node_ids is None else len(self.node_ids)
        _set(self, "time", np.float64 if getattr(self.time, "dtype", None) == np.float64 else np.int64, edges)
        _in_range(self, "src", 0, most)
        _in_range(self, "dst", 0, most)
        _finite(self, "time")
        if self.weight is not None:
            _set(self, "weight", np.float64, edges)
            _finite(self, "weight")


@dataclass(frozen=True, slots=True, eq=False)
class StepTable:
    """A sequence already cut into B steps over N nodes, with E edges over all steps, E at least 1.

    Attributes:
        src: shape (E,), int64: sources, 0 .. N - 1.
        dst: shape (E,), int64: targets.
        step: shape (E,), int64: step of every edge, 0 .. B - 1, never falling.
        num_steps: B.
        num_nodes: N.
        weight: shape (E,), finite float64; or None.
        features: shape (B, N, F), or (N, F) where they never change, finite float32; or None.
        targets: shape (B, N), finite float32: the value to predict at step b from the graph and features of step b.
        persistence: shape (B, N), finite float32: what a prediction that nothing changes would say; or None.
        classes: shape (B, N), or (N,) where they never change, int16; -1 where unlabelled; or None.
        node_ids: shape (N,): what the file calls the nodes; or None.

    Raises:
        DataError: an array has the wrong type or shape, or a value is out of its range.
    """

    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    step: NDArray[np.int64]
    num_steps: int
    num_nodes: int
    weight: NDArray[np.float64] | None = None
    features: NDArray[np.float32] | None = None
    targets: NDArray[np.float32] | None = None
    persistence: NDArray[np.float32] | None = None
    classes: NDArray[np.int16] | None = None
    node_ids: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        _count(self, "num_steps")
        _count(self, "num_nodes")
        _ids_checked(self, nodes=self.num_nodes)
        _in_range(self, "src", 0, self.num_nodes)
        _in_range(self, "dst", 0, self.num_nodes)
        _set(self, "step", np.int64, self.src.shape)
        _in_range(self, "step", 0, self.num_steps)
        falls = np.flatnonzero(np.diff(self.step) < 0)
        if len(falls):
            raise DataError(
                f"step[{falls[0] + 1}] is {self.step[falls[0] + 1]}, after {self.step[falls[0]]}; "
                "steps must not fall. Sort the edges by step."
            )
        if self.weight is not None:
            _set(self, "weight", np.float64, self.src.shape)
            _finite(self, "weight")
        each = (self.num_steps, self.num_nodes)
        for name, fixed, moving in (
            ("features", (self.num_nodes, None), (*each, None)),
            ("targets", None, each),
            ("persistence", None, each),
            ("classes", (self.num_nodes,), each),
        ):
            _optional(self, name, fixed, moving)


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
        _count(self, "num_nodes")
        _ids_checked(self, nodes=self.num_nodes)
        _in_range(self, "src", 0, self.num_nodes)
        _in_range(self, "dst", 0, self.num_nodes)
        _optional(self, "features", (self.num_nodes, None), None)
        _optional(self, "classes", (self.num_nodes,), None)
        if self.vertex_split is not None:
            _set(self, "vertex_split", np.int8, (self.num_nodes,))
            _in_range(self, "vertex_split", SPLIT_NONE, SPLIT_TEST + 1)


Table = EdgeTable | StepTable | StaticTable


def _ids_checked(table: Table, *, nodes: int | None = None) -> None:
    """Check ``src`` and ``dst``, which may not be empty, and ``node_ids``, which names each of ``nodes`` nodes."""
    _set(table, "src", np.int64, (None,))
    _set(table, "dst", np.int64, table.src.shape)
    if not len(table.src):
        raise DataError("src has no entries; a graph needs at least 1 edge.")
    if table.node_ids is not None:
        object.__setattr__(table, "node_ids", check_ids(table.node_ids, nodes))


def _count(table: Table, name: str) -> None:
    value = getattr(table, name)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_NODES:
        raise DataError(f"{name}={value!r}; a whole number from 1 to {MAX_NODES:,} is needed.")


def _set(table: Table, name: str, dtype: DTypeLike, shape: tuple[int | None, ...]) -> None:
    array = frozen(getattr(table, name), name=name, dtype=dtype, shape=shape)
    object.__setattr__(table, name, array)


def _optional(
    table: Table, name: str, fixed: tuple[int | None, ...] | None, moving: tuple[int | None, ...] | None
) -> None:
    """Check an array that may be None and may have one of two shapes: never changing, or one row a step."""
    given = getattr(table, name)
    if given is None:
        return
    shape = next((shape for shape in (fixed, moving) if shape is not None and len(shape) == np.ndim(given)), None)
    if name == "classes":
        _set(table, name, np.int16, shape or fixed or moving or ())
        _in_range(table, name, -1, np.iinfo(np.int16).max + 1)
    else:
        _set(table, name, np.float32, shape or fixed or moving or ())
        _finite(table, name)


def _in_range(table: Table, name: str, least: int, end: int) -> None:
    """Refuse values outside ``least .. end - 1``, naming the first."""
    check_range(name, getattr(table, name), least, end - 1)


def _finite(table: Table, name: str) -> None:
    """Refuse NaN and infinite values, naming the first."""
    if getattr(table, name).dtype.kind == "f":
        check_finite(name, getattr(table, name))
