"""A sequence of snapshots with features and next-step labels: what every system trains on."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import DataError, shortened
from dtdg_lab.core.units import as_path
from dtdg_lab.graphs.intervals import IntervalStream
from dtdg_lab.graphs.snapshot import (
    Snapshot,
    check_arrays,
    check_finite,
    check_ids,
    check_range,
    frozen,
    give_up,
    node_arrays,
    over_time,
    repeats,
    stored_once,
)
from dtdg_lab.graphs.windowing import CutCounts, Window

if TYPE_CHECKING:
    from dtdg_lab.graphs.statistics import GraphStatistics


# SHA-256 of a dynamic graph, taken in pieces: the same for a graph in memory and for one that is being written.


class GraphHash:
    """The hash of a graph's arrays; the order of the calls is part of it."""

    def __init__(self, edge_life: int) -> None:
        self._digest = hashlib.sha256(json.dumps(["dtdg-lab graph", 1, edge_life]).encode())

    def snapshot(self, snapshot: Snapshot) -> None:
        """Enter one snapshot."""
        self.array("indptr", snapshot.indptr)
        self.array("indices", snapshot.indices)
        if snapshot.weights is not None:
            self.array("weights", snapshot.weights)

    def array(self, label: str, array: NDArray[np.generic]) -> None:
        """Enter a whole array under a label."""
        self.pieces(label, array.dtype, array.shape, [array])

    def pieces(
        self, label: str, dtype: np.dtype[np.generic], shape: tuple[int, ...], pieces: Iterable[NDArray[np.generic]]
    ) -> None:
        """Enter an array of this type and shape that comes in pieces, in order."""
        self._digest.update(f"{label}{dtype.str}{shape}".encode())
        for piece in pieces:
            if piece.size:
                self._digest.update(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)

    def labels(self, labels: LabelHash) -> None:
        """Enter the label graphs."""
        self._digest.update(f"following{labels.hexdigest()}".encode())

    def hexdigest(self) -> str:
        """Return the hash in hexadecimal."""
        return self._digest.hexdigest()


class LabelHash(GraphHash):
    """The hash of label graphs: the same whether those that equal the next snapshot are that snapshot or a copy."""

    def follow(self, following: Snapshot, after: Snapshot | None) -> None:
        """Enter the next label graph; ``after`` is the snapshot after its own, None at the last."""
        if after is not None and following.equals(after):
            self.array("next", _NOTHING)
        else:
            self.snapshot(following)


_NOTHING = np.empty(0, dtype=np.uint8)


@dataclass(frozen=True, eq=False)
class DynamicGraph:
    """T labelled snapshots of one graph over N nodes, with F features and one target per node and snapshot.

    Frozen: all arrays are read-only. Two graphs with equal ``data_hash`` hold the same data.

    Attributes:
        name: what runs and reports call it.
        snapshots: the T labelled snapshots, oldest first, all over the same N nodes.
        features: shape (T, N, F), float32; (N, F) is taken too, and repeated over time by a view.
        targets: shape (T, N), float32: the label at t, taken from the snapshot after t where it is not given.
        persistence: shape (T, N), float32: what "tomorrow is like today" predicts for ``targets``.
        source: where the data came from, in words.
        edge_life: base intervals an edge lives; neighbouring snapshots share all but one of them.
        node_ids: shape (N,): the nodes' ids in the source; None where there are none.
        strict_label: whether targets count only edges of the newest base interval.
        following: T snapshots: the edges that the label at t counts, which link prediction predicts; None where
            targets are given and there are none.
        classes: shape (T, N), int16, -1 where unlabelled; (N,) is taken too; None where there are none.
        vertex_split: shape (N,), int8: 0 trains, 1 validates, 2 tests, -1 none of them; None where there is none.
        counts: sizes of the whole sequence the graph was cut from, where it was cut.

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
    def trusted(cls, **fields: Any) -> DynamicGraph:
        """Return a graph of fields that are known to be right: nothing is checked and no page of an array is read.

        For graphs that the lab has just built, or has written to disk itself.
        """
        graph = object.__new__(cls)
        for name, field in cls.__dataclass_fields__.items():
            graph.__dict__[name] = fields.pop(name, field.default)
        graph.__dict__.update(fields)  # cached properties, such as data_hash
        return graph

    def __reduce__(self) -> tuple[Any, ...]:
        # numpy forgets the read-only flag in a pickle, and expands views; going through the constructor helps both
        arrays = {"features": stored_once(self.features)}
        if self.classes is not None:
            arrays["classes"] = stored_once(self.classes)
        return (DynamicGraph, tuple(arrays.get(name, getattr(self, name)) for name in self.__dataclass_fields__))

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
        """Whether features are the same at all times, and held once."""
        return repeats(self.features)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks whose labels this graph holds."""
        conditions = {"following": self.following is not None, "classes": self.num_classes > 0}
        return catalogue.tasks_with([label for label, is_held in conditions.items() if is_held])

    @cached_property
    def num_edges(self) -> NDArray[np.int64]:
        """Distinct directed edges of every snapshot, shape (T,)."""
        return give_up(np.array([snapshot.num_edges for snapshot in self.snapshots], dtype=np.int64))

    @property
    def follows_next(self) -> bool:
        """Whether the label at t counts the edges of snapshot t + 1: only the last of ``following`` is extra then."""
        return self.following is not None and all(
            graph is later for graph, later in zip(self.following, self.snapshots[1:], strict=False)
        )

    @property
    def extra_following(self) -> tuple[Snapshot, ...]:
        """What has to be kept of ``following`` beside the snapshots: the last, or all T of them."""
        return (self.following or ())[-1:] if self.follows_next else self.following or ()

    @cached_property
    def data_hash(self) -> str:
        """SHA-256 of all arrays and ``edge_life``, in hexadecimal; name and source do not enter."""
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
        """Return the arrays beside the snapshots that there are, by name; what never changes is given once."""
        yield "features", stored_once(self.features)
        yield "targets", self.targets
        yield "persistence", self.persistence
        if self.node_ids is not None:
            yield "node_ids", self.node_ids
        if self.classes is not None:
            yield "classes", stored_once(self.classes)
        if self.vertex_split is not None:
            yield "vertex_split", self.vertex_split

    def describe(self) -> GraphStatistics:
        """Statistics of the graph: sizes, overlap of consecutive snapshots, degrees, baselines; print it to read it."""
        from dtdg_lab.graphs.statistics import describe

        return describe(self)

    def to_pyg(self) -> list[Any]:
        """Return the T snapshots as PyG ``Data``, oldest first: copies on the CPU.

        Each has ``edge_index`` (2, E) with the source and the target of every edge, ``x`` (N, F), ``y`` (N,) with the
        targets of the step, ``num_nodes``, ``edge_weight`` (E,) where edges carry weights, and ``label`` (N,) where
        nodes have classes, -1 where unknown. Features that never change are one tensor in all of them.

        Raises:
            NotAvailableError: PyG cannot be imported; the message has the command that installs it.
        """
        from dtdg_lab.graphs.conversion import pyg_data

        return pyg_data(self)

    def to_dgl(self) -> list[Any]:
        """Return the T snapshots as DGLGraphs, oldest first: copies on the CPU.

        Each has ``ndata["feat"]`` (N, F), ``ndata["target"]`` (N,) with the targets of the step, ``edata["weight"]``
        (E,) where edges carry weights, and ``ndata["label"]`` (N,) where nodes have classes, -1 where unknown.

        Raises:
            NotAvailableError: DGL cannot be imported; the message has the command that installs it.
        """
        from dtdg_lab.graphs.conversion import dgl_graphs

        return dgl_graphs(self)

    def save(self, folder: str | Path) -> Path:
        """Write the graph into ``folder``: .npy files and meta.json, all of them or nothing.

        A graph already saved there is replaced; readers that have it mapped keep the old one.

        Raises:
            DataError: the folder holds something else, or cannot be written, or is no path.
        """
        from dtdg_lab.graphs.storage import save

        return save(self, as_path(folder, "folder"))

    @classmethod
    def load(cls, folder: str | Path, mmap: bool = True, *, source: str | None = None) -> DynamicGraph:
        """Read what :meth:`save` wrote; with ``mmap`` the pages are read when used and shared by all processes.

        ``source`` replaces the stored words on where the data came from. ``data_hash`` is the stored one. The arrays
        were checked before they were written: here only their types and lengths are.

        Raises:
            DataError: the folder holds no graph, or a damaged one, or is no path.
        """
        from dtdg_lab.graphs.storage import load

        return load(as_path(folder, "folder"), mmap=mmap, source=source)

    def store(self, root: str | Path | None = None) -> str:
        """Keep the graph on this machine under its data hash and return the name it can be loaded by.

        Args:
            root: the cache folder; by default $DTDG_LAB_CACHE, or ~/.cache/dtdg-lab.

        Returns:
            ``"graph:<hash16>"``, which ``lab.datasets.load`` and ``RunConfig(dataset=...)`` take.

        Raises:
            DataError: the folder cannot be written.
        """
        from dtdg_lab.graphs.storage import graph_folder, holds_graph

        key = self.data_hash[:16]
        folder = graph_folder(key, root)
        if not holds_graph(folder):
            self.save(folder)
        return f"graph:{key}"


# The label of every window, the baseline that stands beside it, and the edges that the label counts.
#
# Without given targets the label at window t is log(1 + in-degree in window t + 1), and its persistence log(1 +
# in-degree in window t), so that the last window is only a label. With ``strict_label`` only edges that the newest base
# interval of those windows holds count: with edges that live long, neighbouring windows share nearly all of them, and
# persistence is hard to beat.
#
# What is given is given for base intervals; window t takes what belongs to its newest one. Windows that ``min_edges``
# leaves out take theirs with them, and the label of the window before comes from the next one that is kept.
#
# Source: SYSTEMS.md, "Data conventions of the papers" (targets of DynaHB and FlareDTDG); the strict label is ours.


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """A window with its label.

    Attributes:
        window: the window.
        targets: shape (N,), float32.
        persistence: shape (N,), float32: what "tomorrow is like today" predicts for ``targets``.
        following: the edges that the label counts; None where targets are given.
    """

    window: Window
    targets: NDArray[np.float32]
    persistence: NDArray[np.float32]
    following: Snapshot | None


def labelled(windows: Iterable[Window], stream: IntervalStream, *, strict_label: bool) -> Iterator[Labelled]:
    """Yield windows with their labels, oldest first: all with given targets, else all but the last."""
    if stream.targets is not None:
        for window in windows:
            target, expected = stream.targets[window.newest], _expected(stream, window.newest)
            yield Labelled(window, target, expected, None)
        return
    for (step, _, today), (_, following, tomorrow) in itertools.pairwise(_counted(windows, strict_label)):
        yield Labelled(step, tomorrow, today, following)


def _counted(windows: Iterable[Window], strict_label: bool) -> Iterator[tuple[Window, Snapshot, NDArray[np.float32]]]:
    """Yield every window with the edges that a label counts, and the label; both are reused while nothing changes."""
    previous: Snapshot | None = None
    for window in windows:
        graph = window.base if strict_label else window.graph
        if graph is not previous:
            previous, label = graph, log_in_degrees(graph)
        yield window, graph, label


def log_in_degrees(graph: Snapshot) -> NDArray[np.float32]:
    """log(1 + in-degree) of every node, shape (N,), weighted where edges carry weights."""
    return np.log1p(graph.in_degrees()).astype(np.float32)


def _expected(stream: IntervalStream, newest: int) -> NDArray[np.float32]:
    """Return the persistence of a given target: that given, else the target one base interval before.

    The first base interval has none before it; there it says 0.
    """
    assert stream.targets is not None  # seen by the caller
    if stream.persistence is not None:
        return stream.persistence[newest]
    return stream.targets[newest - 1] if newest else np.zeros_like(stream.targets[0])


# What the parts of a dynamic graph must be, looked at when somebody gives them.


def check_graph(graph: DynamicGraph) -> None:
    """Check all fields of a graph under construction and put read-only arrays in their place.

    Raises:
        DataError: fields do not fit together, or hold values that are not allowed.
    """
    _check_facts(graph)
    _set(graph, "snapshots", _listed("snapshots", graph.snapshots))
    check_snapshots("snapshots", graph.snapshots, graph.snapshots)
    if graph.edge_life < 1:
        raise DataError(f"edge_life={graph.edge_life}: an edge lives at least 1 base interval.")
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


def _check_facts(graph: DynamicGraph) -> None:
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
    """Refuse anything that is no snapshot, or not over the nodes of ``like[0]``, or has weights where that has none.

    Raises:
        DataError: naming the first that does not fit.
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


def _following(graph: DynamicGraph, following: tuple[Snapshot, ...]) -> tuple[Snapshot, ...]:
    """Check the label graphs; one that equals the next snapshot becomes it: equal graphs have equal hashes."""
    if len(following) != len(graph.snapshots):
        raise DataError(
            f"following has {len(following)} snapshots and there are {len(graph.snapshots)} labelled ones; "
            "one label graph for each is needed."
        )
    check_snapshots("following", following, graph.snapshots)
    later = (*graph.snapshots[1:], following[-1])
    return tuple(b if a.equals(b) else a for a, b in zip(following, later, strict=True))


def _set(graph: DynamicGraph, name: str, value: Any) -> None:
    object.__setattr__(graph, name, value)
