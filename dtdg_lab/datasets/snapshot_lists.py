"""Build dynamic graphs from lists of snapshots: PyG Data, networkx graphs, matrices, DGLGraphs, arrays of edges."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import DataError, shortened
from dtdg_lab.datasets.node_values import MOST_CLASSES
from dtdg_lab.datasets.snapshot_libraries import DGL, LIBRARIES, SnapshotLibrary, SnapshotParts
from dtdg_lab.datasets.user_data import CUTTING, built, check_folder, from_edges, known_only
from dtdg_lab.graphs.build import KINDS
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.edge_list import as_array, read_ids, wrong_type
from dtdg_lab.graphs.intervals import MAX_INTERVALS, IntervalEdges
from dtdg_lab.graphs.node_numbers import read_nodes
from dtdg_lab.graphs.snapshot import read_only

AUTO = "auto"


def from_snapshots(
    snapshots: Iterable[Any],
    features: str | ArrayLike | Mapping[Any, ArrayLike] | None = AUTO,
    labels: str | ArrayLike | Mapping[Any, int] | None = AUTO,
    *,
    targets: str | ArrayLike | None = AUTO,
    weight: str | None = AUTO,
    nodes: Sequence[Any] | NDArray[Any] | None = None,
    name: str = "mine",
    **building: Any,
) -> DynamicGraph:
    """Return a dynamic graph from a list of B snapshots, oldest first, each one base interval.

    The snapshots are all of one kind:

    * PyG ``Data``, as in a list, a data set or a signal of PyG-Temporal. Nodes are numbered by position.
    * networkx graphs. Nodes are matched by name, and may come and go. An undirected edge counts in both directions.
      Parallel edges of a multigraph are merged and their weights summed, whatever their keys.
    * Square SciPy sparse matrices or NumPy arrays. A nonzero entry in row i and column j is an edge from i to j; its
      value is the weight, and matrices that only hold 0 and 1 have none.
    * DGLGraphs, with nodes numbered by position.
    * Arrays or tensors of shape (2, E), as PyG's ``edge_index``: sources, then targets.

    Where nodes are numbered by position, the largest snapshot decides their number. Heterogeneous graphs and vectors
    of edge features are not supported. ``auto`` takes conventional attributes: of PyG ``x``, ``y``, ``label`` and
    ``edge_weight`` or an ``edge_attr`` of one column; of DGL ``feat``, ``target``, ``label`` and ``weight``, ``w`` or
    ``feat``; of networkx ``weight``. ``graph.source`` names the attributes that were taken.

    Args:
        snapshots: the snapshots, at least two.
        features: the name of a node attribute of F numbers in all snapshots; or features as in :func:`from_edges`:
            ``log_degrees`` and its like, an array or a mapping from ids. None, or ``auto`` where there are none,
            takes log-degrees.
        labels: the name of a node attribute that holds classes; or labels as in :func:`from_edges`. ``auto`` takes
            ``label``, or a ``y`` of whole numbers. A node that a snapshot lacks has no class there.
        targets: the name of a node attribute that holds the number to predict; or an array of shape (B, N). ``auto``
            takes ``target``, or a ``y`` of floats. None predicts the next in-degree, as :func:`from_edges` does.
        weight: the name of an edge attribute that holds one number of at least 0 for each edge. None takes none.
        nodes: all N nodes over all time in the requested order, including those without an edge. For snapshots with
            positions they are the names of the positions.
        name: the graph's name in runs and reports.
        **building: ``edge_life``, ``smoothing_window``, ``min_edges``, ``strict_label`` and ``folder`` of
            :func:`from_edges`.

    Raises:
        DataError: snapshots are of several kinds, do not fit together, or lack a requested attribute.
        ConfigError: an option is out of its bounds.
    """
    known_only(building, from_snapshots, from_edges, but=CUTTING)
    check_folder(building.get("folder"))
    sequence = _read("snapshots", snapshots, LIBRARIES, "graphs", nodes)
    return sequence.build(features, labels, targets, weight, name=name, **building)


def from_dgl(
    graphs: Iterable[Any],
    features: str | None = "feat",
    labels: str | ArrayLike | None = None,
    *,
    weight: str | None = None,
    name: str = "mine",
    **building: Any,
) -> DynamicGraph:
    """Return a dynamic graph from a list of B DGLGraphs, oldest first, each one base interval.

    Args:
        graphs: the graphs, at least two, each with one type of node and of edge.
        features: name in ``ndata`` of the features, shape (N, F) in every graph; None takes log-degrees.
        labels: name in ``ndata`` of the classes, shape (N,); or an array, shape (N,) or (B, N); None where there are
            none.
        weight: name in ``edata`` of the weights, shape (E,); None where edges carry none.
        name: the graph's name in runs and reports.
        **building: ``edge_life``, ``smoothing_window``, ``min_edges``, ``strict_label`` and ``folder`` of
            :func:`from_edges`.

    Raises:
        DataError: graphs do not fit together, or lack a requested attribute.
        ConfigError: an option is out of its bounds.
    """
    known_only(building, from_dgl, from_edges, but=CUTTING)
    check_folder(building.get("folder"))
    if not isinstance(features, str | None):
        raise _no_name("features", features)
    return _read("graphs", graphs, (DGL,), "DGLGraphs").build(
        features, labels, targets=None, weight=weight, name=name, **building
    )


def _no_name(argument: str, value: Any) -> DataError:
    return DataError(
        f"{argument}={shortened(value)} is of type {type(value).__name__}; the name under which every snapshot has "
        "it is needed, or None."
    )


# A list of snapshots: of one library, with nodes numbered over all time.


def _read(
    argument: str, snapshots: Any, libraries: tuple[SnapshotLibrary, ...], needed: str, nodes: Any = None
) -> _SnapshotList:
    """Read the snapshots of an argument.

    Raises:
        DataError: the argument is no list of at least two snapshots of one library.
    """
    one = any(library.recognizes(snapshots) for library in LIBRARIES)
    if one or isinstance(snapshots, (str, bytes, Mapping)) or not isinstance(snapshots, Iterable):
        raise DataError(
            f"{argument} is {'one snapshot' if one else shortened(snapshots)}, of type {type(snapshots).__name__}; a "
            f"list of {needed} is needed, one for each interval of time."
        )
    items = list(itertools.islice(snapshots, MAX_INTERVALS + 1))
    if len(items) > MAX_INTERVALS:
        raise DataError(f"{argument} has more than {MAX_INTERVALS:,} snapshots, which is the most that are allowed.")
    library = _library_of(argument, items, libraries)
    if len(items) < 2:
        title = library.title if library else "snapshots"
        raise DataError(f"{len(items)} {title}; at least 2 are needed, one for each interval of time.")
    assert library is not None  # there are items
    parts = [library.read(item, f"{argument}[{position}]") for position, item in enumerate(items)]
    return _SnapshotList(library, parts, nodes)


def _library_of(argument: str, items: list[Any], libraries: tuple[SnapshotLibrary, ...]) -> SnapshotLibrary | None:
    """Return the common library of all items; None without items.

    Raises:
        DataError: an item is of no library, or items are of several.
    """
    common = list(libraries)
    for position, item in enumerate(items):
        fitting = [library for library in libraries if library.recognizes(item)]
        if not fitting:
            raise DataError(
                f"{argument}[{position}] is a {type(item).__name__}{_shape(item)}; it can be one of: "
                f"{_list([*libraries])}. Convert it to one of them."
            )
        if not any(library in common for library in fitting):
            raise DataError(
                f"{argument}[{position}] is of another kind ({_list(fitting)}) than {argument}[0] ({_list(common)}); "
                "all must be of one kind. Convert them to one."
            )
        common = [library for library in common if library in fitting]
    if items and len(common) > 1:
        raise DataError(
            f"all {len(items)} entries of {argument} have shape (2, 2): they may be two edges each, or adjacencies of "
            "two nodes. Give adjacencies as SciPy matrices, and edges as PyG Data."
        )
    return common[0] if items else None


def _shape(item: Any) -> str:
    return f" of shape {tuple(item.shape)}" if isinstance(getattr(item, "shape", None), tuple) else ""


def _list(libraries: list[SnapshotLibrary]) -> str:
    return ", ".join(library.title for library in libraries)


class _SnapshotList:
    """B snapshots of one library, over N nodes.

    Args:
        library: library of all snapshots.
        snapshots: the snapshots, oldest first.
        nodes: the nodes in the requested order; None takes sorted names, or positions.

    Raises:
        DataError: there are no nodes, or ``nodes`` does not have all of them.
    """

    def __init__(self, library: SnapshotLibrary, snapshots: list[SnapshotParts], nodes: Any) -> None:
        self._library, self._snapshots = library, snapshots
        ids = None if nodes is None else _distinct_ids(_as_list(nodes), "nodes")
        if snapshots[0].names is None:
            largest = max(snapshots, key=lambda parts: parts.num_nodes)
            if ids is not None and len(ids) < largest.num_nodes:
                raise DataError(
                    f"nodes names {len(ids)} nodes, and {largest.title} has {largest.num_nodes}. Name all of them."
                )
            self._num_nodes = largest.num_nodes if ids is None else len(ids)
            self._nodes = [np.arange(parts.num_nodes) for parts in snapshots]
        else:
            ids, numbers = _number_names(snapshots, ids)
            self._num_nodes = len(ids)
            self._nodes = [np.array([numbers[name] for name in parts.names or ()], dtype=int) for parts in snapshots]
        if not self._num_nodes:
            raise DataError(f"the {len(snapshots)} {library.title} have no nodes.")
        self._ids = ids

    def build(
        self, features: Any, labels: Any, targets: Any, weight: Any, *, name: str, **building: Any
    ) -> DynamicGraph:
        """Return the dynamic graph; arguments as for :func:`from_snapshots`."""
        weight_name = self._weight_name(weight)
        feature_name = self._name(features, self._library.features)
        label_name = self._name(labels, (*self._library.labels, *self._either("iub", targets)))
        target_name = self._name(targets, (*self._library.targets, *self._either("f", labels)))
        weights = None if weight_name is None else self._weights(weight_name)
        edges = IntervalEdges(
            src=np.concatenate([nodes[parts.src] for parts, nodes in self._pairs()]),
            dst=np.concatenate([nodes[parts.dst] for parts, nodes in self._pairs()]),
            interval=np.repeat(np.arange(len(self._snapshots)), [len(parts.src) for parts in self._snapshots]),
            num_intervals=len(self._snapshots),
            num_nodes=self._num_nodes,
            weight=weights,
            node_ids=self._ids,
            targets=self._targets(targets, target_name),
        )
        uses = {"weights": weights is not None and weight_name, "features": feature_name, "classes": label_name}
        phrases = [f"{len(edges.src):,} edges"]
        phrases += [f"{use} from {used}" for use, used in {**uses, "targets": target_name}.items() if used]
        return built(
            edges,
            self._features(feature_name) if feature_name else None if _is_auto(features) else features,
            self._classes(label_name) if label_name else None if _is_auto(labels) else labels,
            name=name,
            source=f"{len(self._snapshots)} {self._library.title} ({', '.join(phrases)})",
            **building,
        )

    def _pairs(self) -> Iterable[tuple[SnapshotParts, NDArray[np.int64]]]:
        return zip(self._snapshots, self._nodes, strict=True)

    def _name(self, value: Any, conventional: tuple[str, ...]) -> str | None:
        """Return the name of the requested node attribute, or None without one."""
        if _is_auto(value):
            return next((name for name in conventional if self._any_node_has(name)), None)
        is_kind = isinstance(value, str) and value in KINDS and not self._any_node_has(value)
        return value if isinstance(value, str) and not is_kind else None

    def _any_node_has(self, name: str) -> bool:
        return any(name in parts.node_data for parts in self._snapshots)

    def _either(self, kinds: str, alternative: Any) -> list[str]:
        """Return names that may hold classes or targets, where their values are of these NumPy kinds.

        Args:
            kinds: NumPy kinds of classes, or of targets.
            alternative: the argument for the other of the two; its name is excluded.
        """
        names = [name for name in self._library.either if self._any_node_has(name)]
        if isinstance(alternative, str):
            names = [name for name in names if name != alternative]
        return [name for name in names if self._type(name).kind in kinds]

    def _type(self, name: str) -> np.dtype[Any]:
        values = [parts.node_data[name] for parts in self._snapshots if name in parts.node_data]
        return np.result_type(*(as_array(value, name, "numbers") for value in values))

    def _weight_name(self, weight: Any) -> str | None:
        if not isinstance(weight, str | None):
            raise _no_name("weight", weight)
        if not _is_auto(weight):
            return weight
        names = [name for name in self._library.weights if any(name in parts.edge_data for parts in self._snapshots)]
        for name in names:
            self._weights(name)  # refuses vectors, which would be lost
        return names[0] if names else None

    def _weights(self, name: str) -> NDArray[np.float64] | None:
        weights = np.concatenate([parts.edge_weights(name) for parts in self._snapshots])
        return None if self._library.is_matrix and (weights == 1).all() else weights

    def _features(self, name: str) -> NDArray[Any]:
        tables = self._tables(name, "features")
        for t, table in tables.items():
            if table.ndim != 2:
                raise DataError(
                    f"{self._snapshots[t].title}.{name} has shape {table.shape}; a row of F numbers for each node is "
                    f"needed: reshape({len(table)}, -1)."
                )
        return self._over_time(name, tables)

    def _classes(self, name: str) -> NDArray[Any]:
        columns = self._node_columns(name, "labels")
        shape = (len(self._snapshots), self._num_nodes)
        classes = np.full(shape, -1, dtype=np.result_type(np.int64, *columns.values()))
        for t, column in columns.items():
            classes[t, self._nodes[t]] = column
        if classes.max() > MOST_CLASSES and name in self._library.either:
            raise DataError(
                f"{name} holds {classes.max()}: classes are whole numbers from 0 to {MOST_CLASSES}. For numbers to "
                f"predict give targets={name!r}; leave them out with labels=None."
            )
        return classes[0] if (classes == classes[0]).all() else classes

    def _targets(self, targets: Any, name: str | None) -> NDArray[np.float32] | None:
        shape = (len(self._snapshots), self._num_nodes)
        if name is not None:
            values = np.broadcast_to(self._over_time(name, self._node_columns(name, "targets")), shape)
        elif targets is None or _is_auto(targets):
            return None
        else:
            values = as_array(targets, "targets", "numbers")
            if values.dtype.kind not in "iufb":
                raise wrong_type(values, "targets", "numbers")
        with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused
            return read_only(values.astype(np.float32))

    def _tables(self, name: str, argument: str) -> dict[int, NDArray[Any]]:
        """Return a row for each node of each snapshot that has nodes, by the snapshot's number."""
        return {t: parts.node_values(name, argument) for t, parts in enumerate(self._snapshots) if parts.num_nodes}

    def _node_columns(self, name: str, argument: str) -> dict[int, NDArray[Any]]:
        """Return a number for each node of each snapshot that has nodes, by the snapshot's number."""
        tables = self._tables(name, argument)
        for t, table in tables.items():
            if table.size != len(table):
                raise DataError(
                    f"{self._snapshots[t].title}.{name} has shape {table.shape}; one value for each node is needed: "
                    f"choose a column, such as {name}[:, 0]."
                )
        return {t: table.reshape(-1) for t, table in tables.items()}

    def _over_time(self, name: str, tables: dict[int, NDArray[Any]]) -> NDArray[Any]:
        """Return the rows of all N nodes: one table where rows never change, else one for each snapshot.

        Raises:
            DataError: rows have several lengths, or the row of a node that a snapshot lacks is unknown.
        """
        shapes = sorted({table.shape[1:] for table in tables.values()})
        if len(shapes) > 1:
            raise DataError(f"rows of {name!r} have the shapes {shapes}; all snapshots must have the same.")
        constant = np.zeros((self._num_nodes, *shapes[0]), dtype=np.result_type(*tables.values()))
        is_known = np.zeros(self._num_nodes, dtype=bool)
        for t, table in tables.items():
            nodes = self._nodes[t]
            is_repeated = is_known[nodes]
            if not np.array_equal(constant[nodes[is_repeated]], table[is_repeated]):
                break
            constant[nodes], is_known[nodes] = table, True
        else:
            if not is_known.all():
                raise DataError(
                    f"{self._spoken(int(is_known.argmin()))} is in no snapshot, so that it has no {name!r}. Give an "
                    "array with a row for each node."
                )
            return constant
        for parts, nodes in self._pairs():
            if len(nodes) < self._num_nodes:
                absent = int(np.setdiff1d(np.arange(self._num_nodes), nodes)[0])
                raise DataError(
                    f"{parts.title} has {len(nodes)} of {self._num_nodes} nodes: what {name!r} of "
                    f"{self._spoken(absent)} is there is unknown, because it changes over time. Give every snapshot "
                    "all nodes, or an array with a row for each node."
                )
        changing = np.empty((len(tables), *constant.shape), dtype=constant.dtype)
        for t, table in tables.items():
            changing[t, self._nodes[t]] = table
        return changing

    def _spoken(self, node: int) -> str:
        return f"node {node if self._ids is None else repr(self._ids[node].item())}"


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == AUTO


def _as_list(nodes: Any) -> list[Any]:
    if isinstance(nodes, int | np.integer) and not isinstance(nodes, bool):
        nodes = read_nodes(nodes, "nodes")
    if isinstance(nodes, (str, bytes)) or not isinstance(nodes, Iterable):
        raise DataError(f"nodes is {shortened(nodes)}; a list of all nodes is needed.")
    return nodes.tolist() if hasattr(nodes, "tolist") else list(nodes)


def _distinct_ids(names: list[Any], argument: str) -> NDArray[Any]:
    """Return nodes as whole numbers or text: names of other types, or of several, as their text.

    Raises:
        DataError: two names have the same text, or one is too long.
    """
    if not all(isinstance(name, str) for name in names):
        is_whole = all(isinstance(name, (int, np.integer)) and not isinstance(name, bool) for name in names)
        names = [int(name) if is_whole else str(name) for name in names]
    ids = read_ids(names, argument)
    values, counts = np.unique(ids, return_counts=True)
    if (counts > 1).any():
        raise DataError(
            f"{argument} has two nodes {values[counts.argmax()].item()!r}, as text. Give every node a name of its own."
        )
    return ids


def _number_names(snapshots: list[SnapshotParts], nodes: NDArray[Any] | None) -> tuple[NDArray[Any], dict[Any, int]]:
    """Return the ids of all nodes, and the number of every name.

    Args:
        snapshots: the snapshots, with names.
        nodes: the ids in the requested order; None sorts them.

    Raises:
        DataError: a node is not among ``nodes``.
    """
    names = list(dict.fromkeys(itertools.chain.from_iterable(parts.names or () for parts in snapshots)))
    ids = _distinct_ids(names, "snapshots")
    ordered = np.sort(ids) if nodes is None else nodes
    numbers = {node: number for number, node in enumerate(ordered.tolist())}
    for name, node in zip(names, ids.tolist(), strict=True):
        if node not in numbers:
            raise DataError(f"node {name!r} of the snapshots is not in nodes. Name all nodes, or give no nodes.")
    return ordered, {name: numbers[node] for name, node in zip(names, ids.tolist(), strict=True)}
