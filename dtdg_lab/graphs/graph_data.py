"""The data of a dynamic graph: its arrays, the values derived from them, their hash and their checks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import DataError, shortened
from dtdg_lab.graphs.snapshot import (
    Snapshot,
    check_arrays,
    check_finite,
    check_ids,
    check_range,
    frozen,
    node_arrays,
    over_time,
    read_only,
    repeats,
    stored_once,
)
from dtdg_lab.graphs.windowing import CutCounts

# SHA-256 of a dynamic graph, updated in pieces. It is the same for a graph in memory and one that is being written.


class GraphHash:
    """Hash of a graph's arrays. It depends on the order of the calls."""

    def __init__(self, edge_life: int) -> None:
        self._digest = hashlib.sha256(json.dumps(["dtdg-lab graph", 1, edge_life]).encode())

    def snapshot(self, snapshot: Snapshot) -> None:
        """Hash one snapshot."""
        self.array("indptr", snapshot.indptr)
        self.array("indices", snapshot.indices)
        if snapshot.weights is not None:
            self.array("weights", snapshot.weights)

    def array(self, label: str, array: NDArray[np.generic]) -> None:
        """Hash a whole array under a label."""
        self.pieces(label, array.dtype, array.shape, [array])

    def pieces(
        self, label: str, dtype: np.dtype[np.generic], shape: tuple[int, ...], pieces: Iterable[NDArray[np.generic]]
    ) -> None:
        """Hash an array of this type and shape from its pieces, in order."""
        self._digest.update(f"{label}{dtype.str}{shape}".encode())
        for piece in pieces:
            if piece.size:
                self._digest.update(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)

    def labels(self, labels: LabelHash) -> None:
        """Hash the label graphs."""
        self._digest.update(f"following{labels.hexdigest()}".encode())

    def hexdigest(self) -> str:
        """Return the hash in hexadecimal."""
        return self._digest.hexdigest()


class LabelHash(GraphHash):
    """Hash of label graphs. A label graph that equals the next snapshot may be that snapshot or a copy."""

    def follow(self, following: Snapshot, after: Snapshot | None) -> None:
        """Hash the next label graph; ``after`` is the snapshot after its own, None for the last."""
        if after is not None and following.equals(after):
            self.array("next", _NOTHING)
        else:
            self.snapshot(following)


_NOTHING = np.empty(0, dtype=np.uint8)


@dataclass(frozen=True, eq=False)
class GraphData:
    """The fields of a :class:`~dtdg_lab.graphs.dynamic_graph.DynamicGraph`, and the values derived from them.

    Raises:
        DataError: arrays do not fit together, or hold values that are not allowed.
    """

    name: str
    snapshots: tuple[Snapshot, ...]
    features: NDArray[np.float32]
    targets: NDArray[np.float32]
    persistence: NDArray[np.float32]
    source: str
    edge_life: int
    node_ids: NDArray[Any] | None = None
    strict_label: bool = False
    following: tuple[Snapshot, ...] | None = None
    classes: NDArray[np.int16] | None = None
    vertex_split: NDArray[np.int8] | None = None
    counts: CutCounts | None = None

    def __post_init__(self) -> None:
        check_graph(self)

    @classmethod
    def trusted(cls, **fields: Any) -> Self:
        """Return a graph of valid fields, without any check: no page of an array is read.

        For graphs that the lab has just built, or has written to disk.
        """
        graph = object.__new__(cls)
        for name, field in cls.__dataclass_fields__.items():
            graph.__dict__[name] = fields.pop(name, field.default)
        graph.__dict__.update(fields)  # cached properties, such as data_hash
        return graph

    def __reduce__(self) -> tuple[Any, ...]:
        # pickles lose numpy's read-only flag and expand views; the constructor restores both
        arrays = {"features": stored_once(self.features)}
        if self.classes is not None:
            arrays["classes"] = stored_once(self.classes)
        return (type(self), tuple(arrays.get(name, getattr(self, name)) for name in self.__dataclass_fields__))

    def __repr__(self) -> str:
        edges = self.num_edges
        return (
            f"DynamicGraph({self.name!r}: {self.num_snapshots} labelled snapshots, {self.num_nodes:,} nodes, "
            f"{edges.min():,} to {edges.max():,} edges, {self.num_features} features, edge life {self.edge_life}; "
            f"{self.source})"
        )

    @property
    def num_nodes(self) -> int:
        """N, the number of nodes over all time."""
        return self.snapshots[0].num_nodes

    @property
    def num_snapshots(self) -> int:
        """T, the number of labelled snapshots."""
        return len(self.snapshots)

    @property
    def num_features(self) -> int:
        """F, the number of features of a node."""
        return self.features.shape[2]

    @cached_property
    def num_classes(self) -> int:
        """The number of classes, 0 where nodes have none."""
        return 0 if self.classes is None else int(stored_once(self.classes).max(initial=-1)) + 1

    @property
    def weighted(self) -> bool:
        """Whether edges carry weights."""
        return self.snapshots[0].weights is not None

    @property
    def static_features(self) -> bool:
        """Whether features never change, and are held once."""
        return repeats(self.features)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks that this graph has labels for."""
        conditions = {"following": self.following is not None, "classes": self.num_classes > 0}
        return catalogue.tasks_with([label for label, is_held in conditions.items() if is_held])

    @cached_property
    def num_edges(self) -> NDArray[np.int64]:
        """Distinct directed edges of every snapshot, shape (T,)."""
        return read_only(np.array([snapshot.num_edges for snapshot in self.snapshots], dtype=np.int64))

    @property
    def follows_next(self) -> bool:
        """Whether the label at t counts the edges of snapshot t + 1. Only the last of ``following`` is then extra."""
        return self.following is not None and all(
            graph is later for graph, later in zip(self.following, self.snapshots[1:], strict=False)
        )

    @property
    def extra_following(self) -> tuple[Snapshot, ...]:
        """Snapshots of ``following`` to store beside ``snapshots``: the last, or all T of them."""
        return (self.following or ())[-1:] if self.follows_next else self.following or ()

    @cached_property
    def data_hash(self) -> str:
        """SHA-256 of all arrays and ``edge_life``, in hexadecimal. Name and source do not matter."""
        digest = GraphHash(self.edge_life)
        for snapshot in self.snapshots:
            digest.snapshot(snapshot)
        for label, array in self.arrays():
            digest.array(label, array)
        if self.following is not None:
            labels = LabelHash(self.edge_life)
            for following, after in zip(self.following, (*self.snapshots[1:], None), strict=True):
                labels.follow(following, after)
            digest.labels(labels)
        return digest.hexdigest()

    def arrays(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """Yield the arrays other than the snapshots, by name. Unchanging arrays have one entry for all steps."""
        yield "features", stored_once(self.features)
        yield "targets", self.targets
        yield "persistence", self.persistence
        if self.node_ids is not None:
            yield "node_ids", self.node_ids
        if self.classes is not None:
            yield "classes", stored_once(self.classes)
        if self.vertex_split is not None:
            yield "vertex_split", self.vertex_split


# Checks of the fields of a dynamic graph.


def check_graph(graph: GraphData) -> None:
    """Check all fields of a graph under construction, and replace its arrays by read-only ones.

    Raises:
        DataError: fields do not fit together, or hold values that are not allowed.
    """
    _check_facts(graph)
    _set(graph, "snapshots", _listed("snapshots", graph.snapshots))
    check_snapshots("snapshots", graph.snapshots, graph.snapshots)
    if graph.edge_life < 1:
        raise DataError(f"edge_life={graph.edge_life}; at least 1 base interval is needed.")
    steps, nodes = len(graph.snapshots), graph.snapshots[0].num_nodes
    features = over_time(graph.features, name="features", dtype=np.float32, steps=steps, shape=(nodes, None))
    check_finite("features", stored_once(features))
    _set(graph, "features", features)
    for name in ("targets", "persistence"):
        array = frozen(getattr(graph, name), name=name, dtype=np.float32, shape=(steps, nodes))
        check_finite(name, array)
        _set(graph, name, array)
    if graph.node_ids is not None:
        _set(graph, "node_ids", check_ids(graph.node_ids, nodes))
    if graph.classes is not None:
        classes = over_time(graph.classes, name="classes", dtype=np.int16, steps=steps, shape=(nodes,))
        check_range("classes", stored_once(classes), -1, np.iinfo(np.int16).max)
        _set(graph, "classes", classes)
    if graph.vertex_split is not None:
        check_arrays(graph, {"vertex_split": node_arrays(nodes)["vertex_split"]})
    if graph.following is not None:
        _set(graph, "following", _following(graph, _listed("following", graph.following)))


def _check_facts(graph: GraphData) -> None:
    requirements: tuple[tuple[str, tuple[type, ...], str], ...] = (
        ("name", (str,), "text"),
        ("source", (str,), "text"),
        ("edge_life", (int, np.integer), "a whole number"),
        ("strict_label", (bool,), "True or False"),
    )
    for field, kinds, description in requirements:
        value = getattr(graph, field)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise DataError(f"{field}={shortened(value)} is of type {type(value).__name__}; {description} is needed.")


def _listed(name: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, Iterable):
        raise DataError(f"{name} is of type {type(value).__name__}; a list of Snapshots is needed.")
    return tuple(value)


def check_snapshots(name: str, snapshots: tuple[Snapshot, ...], like: tuple[Snapshot, ...]) -> None:
    """Refuse entries that are no snapshots, or differ from ``like[0]`` in nodes or in having weights.

    Raises:
        DataError: an entry does not fit; the message names the first.
    """
    if not snapshots:
        raise DataError("a dynamic graph needs at least 1 labelled snapshot; 0 were given. Cut more windows.")
    for t, snapshot in enumerate(snapshots):
        if not isinstance(snapshot, Snapshot):
            raise DataError(f"{name}[{t}] is a {type(snapshot).__name__}; a Snapshot is needed.")
        if snapshot.num_nodes != like[0].num_nodes:
            raise DataError(
                f"{name}[{t}] has {snapshot.num_nodes} nodes and snapshots[0] has {like[0].num_nodes}; "
                "all must be over the same nodes. Number them over all time."
            )
        if name == "snapshots" and (snapshot.weights is None) != (like[0].weights is None):
            raise DataError(f"{name}[{t}] and snapshots[0] differ in having weights; give all of them weights or none.")


def _following(graph: GraphData, following: tuple[Snapshot, ...]) -> tuple[Snapshot, ...]:
    """Check the label graphs. One that equals the next snapshot is replaced by it, so that equal graphs hash alike."""
    if len(following) != len(graph.snapshots):
        raise DataError(
            f"following has {len(following)} snapshots and there are {len(graph.snapshots)} labelled ones; "
            "one label graph for each is needed."
        )
    check_snapshots("following", following, graph.snapshots)
    later = (*graph.snapshots[1:], following[-1])
    return tuple(b if a.equals(b) else a for a, b in zip(following, later, strict=True))


def _set(graph: GraphData, name: str, value: Any) -> None:
    object.__setattr__(graph, name, value)
