"""Edges assigned to base intervals: in memory (IntervalEdges), or as a stream of intervals (IntervalStream)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs.checks import check_finite, check_ids, check_range
from dtdg_lab.graphs.edge_list import check_weights
from dtdg_lab.graphs.snapshot import Snapshot, frozen, keys_of, snapshot_of_keys


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class IntervalStream:
    """B base intervals over nodes 0 .. N - 1, one snapshot after the other, and what is given with them.

    Only the snapshots stream: what is given beside them is as large as the features of the graph, and is held.

    Attributes:
        num_intervals: B.
        num_nodes: N.
        weighted: whether the snapshots carry weights.
        make: restarts the sequence and yields its B snapshots in order, duplicates merged.
        node_ids: shape (N,): ids in the source, or None.
        features: float32, shape (B, N, F), or (N, F) where they never change; None where there are none.
        targets: float32, shape (B, N): the value to predict at a base interval; None: the next in-degree is.
        persistence: float32, shape (B, N): what "tomorrow is like today" predicts for ``targets``.
        classes: int16, shape (B, N), or (N,) where they never change; -1 is unlabelled.
        vertex_split: int8, shape (N,): 0 trains, 1 validates, 2 tests, -1 none.
        rows: edges in the source, duplicates included; None if unknown.

    Raises:
        DataError: an array has the wrong type or shape, or holds a value that is not allowed.
    """

    num_intervals: int
    num_nodes: int
    weighted: bool
    make: Callable[[], Iterator[Snapshot]]
    node_ids: NDArray[Any] | None = None
    features: NDArray[np.float32] | None = None
    targets: NDArray[np.float32] | None = None
    persistence: NDArray[np.float32] | None = None
    classes: NDArray[np.int16] | None = None
    vertex_split: NDArray[np.int8] | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        if self.num_intervals < 1 or self.num_nodes < 1:
            raise DataError(
                f"{self.num_intervals} base intervals over {self.num_nodes} nodes: at least 1 of each is needed."
            )
        steps, nodes = self.num_intervals, self.num_nodes
        if self.node_ids is not None:
            object.__setattr__(self, "node_ids", check_ids(self.node_ids, nodes))
        features = () if self.features is None or np.ndim(self.features) == 2 else (steps,)
        classes = () if self.classes is None or np.ndim(self.classes) == 1 else (steps,)
        wanted: tuple[tuple[str, Any, tuple[int | None, ...]], ...] = (
            ("features", np.float32, (*features, nodes, None)),
            ("targets", np.float32, (steps, nodes)),
            ("persistence", np.float32, (steps, nodes)),
            ("classes", np.int16, (*classes, nodes)),
            ("vertex_split", np.int8, (nodes,)),
        )
        for name, dtype, shape in wanted:
            if getattr(self, name) is not None:
                array = frozen(getattr(self, name), name=name, dtype=dtype, shape=shape)
                if dtype == np.float32:
                    check_finite(name, array)
                object.__setattr__(self, name, array)
        for name, high in (("classes", np.iinfo(np.int16).max), ("vertex_split", 2)):
            if getattr(self, name) is not None:
                check_range(name, getattr(self, name), -1, high)
        if self.persistence is not None and self.targets is None:
            raise DataError("persistence is given without targets; it says what is expected of targets that are given.")


@dataclass(frozen=True, slots=True, eq=False)
class IntervalEdges:
    """E edges assigned to B base intervals, over nodes 0 .. N - 1.

    Attributes:
        src: shape (E,): sources.
        dst: shape (E,): targets.
        interval: shape (E,): base interval of every edge, 0 .. B - 1.
        num_intervals: B.
        num_nodes: N.
        weight: shape (E,), or None.
        node_ids: shape (N,): ids in the source, or None.

    Raises:
        DataError: vectors of different lengths, or numbers outside their range.
    """

    src: NDArray[Any]
    dst: NDArray[Any]
    interval: NDArray[Any]
    num_intervals: int
    num_nodes: int
    weight: NDArray[Any] | None = None
    node_ids: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        limits = (("src", self.num_nodes), ("dst", self.num_nodes), ("interval", self.num_intervals))
        for name, limit in limits:
            array = getattr(self, name)
            if array.shape != self.src.shape or array.ndim != 1:
                raise DataError(f"{name} has shape {array.shape} and src {self.src.shape}; equal vectors are needed.")
            if array.dtype.kind not in "iu":
                raise DataError(f"{name} has type {array.dtype}; whole numbers are needed.")
            if len(array) and not (array.min() >= 0 and array.max() < limit):
                raise DataError(f"{name} runs from {array.min()} to {array.max()}; 0 to {limit - 1} is allowed.")
        if self.weight is not None:
            if self.weight.shape != self.src.shape:
                raise DataError(
                    f"weight has shape {self.weight.shape}; one weight for each of {len(self.src)} edges is needed."
                )
            check_weights(self.weight)

    def stream(self, **given: Any) -> IntervalStream:
        """The same intervals one after the other; ``given`` are features, targets and so on of IntervalStream."""
        return IntervalStream(
            num_intervals=self.num_intervals,
            num_nodes=self.num_nodes,
            weighted=self.weight is not None,
            make=self.snapshots,
            node_ids=self.node_ids,
            rows=len(self.src),
            **given,
        )

    def snapshots(self) -> Iterator[Snapshot]:
        """One snapshot for each base interval, duplicates merged; B of them, those without edges one and the same."""
        src, dst, interval, weight = self.src, self.dst, self.interval, self.weight
        if (np.diff(interval) < 0).any():
            order = np.argsort(interval, kind="stable")
            src, dst, interval = src[order], dst[order], interval[order]
            weight = None if weight is None else weight[order]
        bounds = np.searchsorted(interval, np.arange(self.num_intervals + 1)).tolist()
        none = np.empty(0, dtype=np.int64)
        empty = snapshot_of_keys(none, None if weight is None else none.astype(np.float64), self.num_nodes)
        for start, stop in itertools.pairwise(bounds):
            if start == stop:
                yield empty
                continue
            part = None if weight is None else weight[start:stop].astype(np.float64)
            yield snapshot_of_keys(keys_of(src[start:stop], dst[start:stop]), part, self.num_nodes)
