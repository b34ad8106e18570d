"""Read snapshots of PyG, networkx, DGL, SciPy and NumPy. They are recognized by attributes; no library is imported."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs.build import KINDS
from dtdg_lab.graphs.edge_list import as_array, wrong_type

# One snapshot of a library.


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotParts:
    """One snapshot of n nodes and E edges.

    Attributes:
        title: its name in messages, such as ``snapshots[3]``.
        src: shape (E,): rows of the sources, 0 .. n - 1.
        dst: shape (E,): rows of the targets.
        num_nodes: n.
        node_data: name -> values, one row for each node.
        edge_data: name -> values, one row for each edge.
        names: names of the n nodes in the order of their rows; None where rows are node numbers of all snapshots.
    """

    title: str
    src: NDArray[Any]
    dst: NDArray[Any]
    num_nodes: int
    node_data: Mapping[str, Any] = field(default_factory=dict)
    edge_data: Mapping[str, Any] = field(default_factory=dict)
    names: list[Any] | None = None

    def __post_init__(self) -> None:
        for ends in (self.src, self.dst):
            outside = ends[(ends < 0) | (ends >= self.num_nodes)]
            if len(outside):
                raise DataError(
                    f"{self.title} has an edge of node {outside[0]}, and its {self.num_nodes} nodes are 0 to "
                    f"{self.num_nodes - 1}. Correct the edge, or give the snapshot more nodes."
                )

    def node_values(self, name: str, argument: str) -> NDArray[Any]:
        """Return the numbers of a node attribute, one row for each node; ``argument`` asks for it.

        Raises:
            DataError: there is no such attribute, or a node lacks it.
        """
        return self._values(argument, name, self.node_data, "node", self.num_nodes)

    def edge_weights(self, name: str) -> NDArray[np.float64]:
        """Return one weight for each edge, shape (E,).

        Raises:
            DataError: there is no such attribute, a weight is negative or not finite, or edges have several weights.
        """
        if not len(self.src):
            return np.zeros(0)
        weights = self._values("weight", name, self.edge_data, "edge", len(self.src))
        if weights.size != len(weights):
            raise DataError(
                f"{self.title}.{name} has shape {weights.shape}: vectors of edge features are not supported, one "
                "weight for each edge is. Keep one column under another name, such as data.edge_weight = "
                "data.edge_attr[:, 0], and give that name as weight=; or leave them out with weight=None."
            )
        if not (np.isfinite(weights) & (weights >= 0)).all():
            raise DataError(
                f"{self.title}.{name} has entries from {weights.min()} to {weights.max()}; a finite weight of at least "
                "0 for each edge is needed, because degrees are sums of weights. Drop such edges, shift the weights, "
                "or leave them out with weight=None."
            )
        return weights.reshape(-1).astype(np.float64)

    def _values(self, argument: str, name: str, data: Mapping[str, Any], owner: str, count: int) -> NDArray[Any]:
        title = f"{self.title}.{name}"
        if name not in data:
            names = ", ".join(sorted(map(str, data))) or "none"
            computed = f" {', '.join(KINDS[:-1])} can be computed." if argument == "features" else ""
            raise DataError(
                f"{self.title} has no {owner} attribute {name!r} for {argument}; it has {names}.{computed} Give it to "
                f"all snapshots, name another one, or leave it out with {argument}=None."
            )
        values = data[name]
        missing = [value is None for value in values] if isinstance(values, list) else []
        if any(missing):
            raise DataError(
                f"{self._spoken(owner, missing.index(True))} of {self.title} has no {name!r}, and others have: give "
                f"every {owner} one, or leave it out with {argument}=None."
            )
        array = as_array(values, title, "numbers")
        if array.dtype.kind not in "iufb":
            raise wrong_type(array, title, "numbers")
        if array.shape[:1] != (count,):
            raise DataError(
                f"{title} has shape {array.shape}; one row for each of the {count} {owner}s is needed. Values for a "
                f"whole snapshot are not supported: leave them out with {argument}=None."
            )
        return array

    def _spoken(self, owner: str, row: int) -> str:
        assert self.names is not None  # only libraries with names can lack single values
        if owner == "node":
            return f"node {self.names[row]!r}"
        return f"edge {self.names[self.src[row]]!r} to {self.names[self.dst[row]]!r}"


# The libraries.


@dataclass(frozen=True, slots=True)
class SnapshotLibrary:
    """A kind of snapshots.

    Attributes:
        title: name of several of its snapshots in messages.
        recognizes: returns True for its snapshots.
        read: converts a snapshot, given with its name in messages.
        features: conventional names of features.
        labels: conventional names of classes.
        targets: conventional names of numbers to predict.
        either: names of classes where values are whole numbers, else of targets.
        weights: conventional names of edge weights.
        is_matrix: whether entries of 1 are no weights.
    """

    title: str
    recognizes: Callable[[Any], bool]
    read: Callable[[Any, str], SnapshotParts]
    features: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    either: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    is_matrix: bool = False


def _several_types(title: str, advice: str) -> DataError:
    return DataError(
        f"{title} has several types of nodes or edges: heterogeneous graphs are not supported. Convert it with "
        f"{advice}, or give one type of edges between one type of nodes."
    )


def _ends(edge_index: Any, title: str) -> NDArray[np.int64]:
    """Return sources and targets, shape (2, E).

    Raises:
        DataError: the values are not whole, or have another shape.
    """
    array = as_array(edge_index, title, "whole numbers")
    if array.ndim != 2 or len(array) != 2:
        raise DataError(f"{title} has shape {array.shape}; (2, E) is needed: sources, then targets.")
    if array.size and array.dtype.kind not in "iu":
        raise wrong_type(array, title, "whole numbers")
    return array.astype(np.int64)


def _is_heterogeneous(snapshot: Any) -> bool:
    return hasattr(type(snapshot), "node_types") and hasattr(type(snapshot), "edge_types")


def _is_pyg(snapshot: Any) -> bool:
    return _is_heterogeneous(snapshot) or (hasattr(snapshot, "to_dict") and hasattr(snapshot, "edge_index"))


def _read_pyg(data: Any, title: str) -> SnapshotParts:
    if _is_heterogeneous(data):
        raise _several_types(title, "data.to_homogeneous()")
    # only a stored number: data.num_nodes guesses, with a warning, where none is stored
    stored = {name: value for name, value in data.to_dict().items() if value is not None}
    if "edge_index" not in stored:
        raise DataError(f"{title} has no edge_index; it has {', '.join(stored) or 'nothing'}. Give it one.")
    src, dst = _ends(stored.pop("edge_index"), f"{title}.edge_index")
    num_nodes = stored.pop("num_nodes", None)
    if num_nodes is None:
        rows = {name: np.shape(stored[name])[0] for name in ("x", "pos", "y") if np.ndim(stored.get(name, 0))}
        guess = max(int(max(src.max(initial=-1), dst.max(initial=-1))) + 1, rows.get("y", 0))
        num_nodes = rows.get("x", rows.get("pos", guess))
    return SnapshotParts(title, src, dst, int(num_nodes), stored, stored)


def _is_networkx(snapshot: Any) -> bool:
    return all(hasattr(snapshot, part) for part in ("is_directed", "is_multigraph", "nodes", "edges", "adj"))


def _read_networkx(graph: Any, title: str) -> SnapshotParts:
    names = list(graph.nodes)
    rows = {node: row for row, node in enumerate(names)}
    edges = list(graph.edges(data=True))
    src = np.array([rows[edge[0]] for edge in edges], dtype=np.int64)
    dst = np.array([rows[edge[1]] for edge in edges], dtype=np.int64)
    attributes = [edge[2] for edge in edges]
    if not graph.is_directed():
        back = np.flatnonzero(src != dst)
        src, dst = np.concatenate([src, dst[back]]), np.concatenate([dst, src[back]])
        attributes += [attributes[row] for row in back]
    nodes = [graph.nodes[node] for node in names]
    return SnapshotParts(title, src, dst, len(names), _columns(nodes), _columns(attributes), names)


def _columns(rows: list[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the values of every attribute that a row has; None in the rows without it."""
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(itertools.chain.from_iterable(rows))}


def _is_sparse(snapshot: Any) -> bool:
    return hasattr(snapshot, "tocoo") and hasattr(snapshot, "shape")


def _read_sparse(matrix: Any, title: str) -> SnapshotParts:
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        raise DataError(
            f"{title} has shape {matrix.shape}; a square adjacency is needed, one row and one column for each node."
        )
    entries = matrix.tocoo(copy=True)
    entries.sum_duplicates()
    entries.eliminate_zeros()
    return SnapshotParts(title, entries.row, entries.col, matrix.shape[0], edge_data={"data": entries.data})


def _is_array(snapshot: Any) -> bool:
    """Return True for matrices of NumPy, torch and similar; not for tables, whose names would be lost."""
    return len(getattr(snapshot, "shape", ())) == 2 and hasattr(snapshot, "__array__") and not hasattr(snapshot, "iloc")


def _is_dense(snapshot: Any) -> bool:
    return _is_array(snapshot) and snapshot.shape[0] == snapshot.shape[1]


def _read_dense(matrix: Any, title: str) -> SnapshotParts:
    array = as_array(matrix, title, "numbers")
    if array.dtype.kind not in "iufb":
        raise wrong_type(array, title, "numbers")
    src, dst = np.nonzero(array)
    return SnapshotParts(title, src, dst, len(array), edge_data={"data": array[src, dst]})


def _is_edge_index(snapshot: Any) -> bool:
    return _is_array(snapshot) and snapshot.shape[0] == 2


def _read_edge_index(edge_index: Any, title: str) -> SnapshotParts:
    src, dst = _ends(edge_index, title)
    return SnapshotParts(title, src, dst, int(max(src.max(initial=-1), dst.max(initial=-1))) + 1)


def _is_dgl(snapshot: Any) -> bool:
    return all(hasattr(snapshot, part) for part in ("edges", "num_nodes", "ndata", "edata"))


def _read_dgl(graph: Any, title: str) -> SnapshotParts:
    if len(getattr(graph, "ntypes", [""])) > 1 or len(getattr(graph, "etypes", [""])) > 1:
        raise _several_types(title, "dgl.to_homogeneous(graph)")
    src, dst = (as_array(ends, f"{title}.edges()", "whole numbers").astype(np.int64) for ends in graph.edges())
    return SnapshotParts(title, src, dst, int(graph.num_nodes()), graph.ndata, graph.edata)


DGL = SnapshotLibrary(
    "DGL graphs",
    _is_dgl,
    _read_dgl,
    features=("feat",),
    labels=("label",),
    targets=("target",),
    weights=("weight", "w", "feat"),
)
LIBRARIES = (
    SnapshotLibrary(
        "PyG Data",
        _is_pyg,
        _read_pyg,
        features=("x",),
        labels=("label",),
        either=("y",),
        weights=("edge_weight", "edge_attr"),
    ),
    SnapshotLibrary("networkx graphs", _is_networkx, _read_networkx, weights=("weight",)),
    DGL,
    SnapshotLibrary("sparse adjacencies", _is_sparse, _read_sparse, weights=("data",), is_matrix=True),
    SnapshotLibrary("dense adjacencies", _is_dense, _read_dense, weights=("data",), is_matrix=True),
    SnapshotLibrary("arrays of edges", _is_edge_index, _read_edge_index),
)
