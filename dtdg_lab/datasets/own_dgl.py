"""The user's own snapshots as DGL has them. DGL itself is not imported: what its graphs answer is enough."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import DataError, shortened
from dtdg_lab.datasets.arguments import known_only
from dtdg_lab.datasets.own import built, from_edges
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.given import as_array
from dtdg_lab.graphs.intervals import IntervalEdges


def from_dgl(
    graphs: Sequence[Any],
    features: str | None = "feat",
    labels: str | ArrayLike | None = None,
    *,
    weight: str | None = None,
    name: str = "mine",
    **building: Any,
) -> DynamicGraph:
    """A dynamic graph from a list of DGLGraphs over the same N vertices, one for each of B base intervals.

    Args:
        graphs: the graphs, oldest first, at least two, each with one type of vertex and of edge.
        features: name in ``ndata`` of the features, shape (N, F) in every graph; None takes log-degrees.
        labels: name in ``ndata`` of the classes, shape (N,); or an array, shape (N,) or (B, N); None where there are
            none.
        weight: name in ``edata`` of the weights, shape (E,); None where edges carry none.
        name: what runs and reports call the graph.
        **building: ``edge_life``, ``smoothing_window``, ``min_edges``, ``strict_label`` of :func:`from_edges`.

    Raises:
        DataError: graphs do not fit together, or lack what is asked for.
        ConfigError: an option is out of its bounds.
    """
    known_only(building, from_dgl, from_edges, but=("cut", "cut_by", "interval", "drop_first", "drop_partial"))
    for key, asked in (("features", features), ("weight", weight)):
        if not isinstance(asked, str | None):
            raise DataError(
                f"{key}={shortened(asked)} is of type {type(asked).__name__}; the name under which every graph has "
                "it is needed, or None."
            )
    graphs = _listed(graphs)
    _check(graphs)
    ends = [tuple(_vertices(vector, place) for vector in graph.edges()) for place, graph in enumerate(graphs)]
    edges = IntervalEdges(
        src=np.concatenate([src for src, _ in ends]), dst=np.concatenate([dst for _, dst in ends]),
        interval=np.repeat(np.arange(len(graphs)), [len(src) for src, _ in ends]),
        num_intervals=len(graphs), num_nodes=int(graphs[0].num_nodes()),
        weight=None if weight is None else _weights(graphs, weight),
    )  # fmt: skip
    given = None if features is None else _stacked(graphs, features)
    classes = _stacked(graphs, labels) if isinstance(labels, str) else labels
    source = f"{len(graphs)} DGL graphs ({len(edges.src):,} edges)"
    return built(edges, given, classes, name=name, source=source, **building)


def _listed(graphs: Any) -> list[Any]:
    if isinstance(graphs, (str, bytes, Mapping)) or _is_graph(graphs) or not isinstance(graphs, Iterable):
        raise DataError(
            f"graphs is {shortened(graphs)}, of type {type(graphs).__name__}; a list of DGLGraphs is needed, one for "
            "each interval of time."
        )
    return list(graphs)


def _is_graph(graph: Any) -> bool:
    return all(hasattr(graph, part) for part in ("edges", "num_nodes", "ndata", "edata"))


def _check(graphs: list[Any]) -> None:
    if len(graphs) < 2:
        raise DataError(f"{len(graphs)} DGL graphs; at least 2 are needed, one for each interval of time.")
    for place, graph in enumerate(graphs):
        if not _is_graph(graph):
            raise DataError(f"graphs[{place}] is a {type(graph).__name__}; a DGLGraph is needed.")
        if len(getattr(graph, "ntypes", [""])) > 1 or len(getattr(graph, "etypes", [""])) > 1:
            raise DataError(
                f"graphs[{place}] has several types of vertices or edges; one of each is needed: dgl.to_homogeneous."
            )
        if graph.num_nodes() != graphs[0].num_nodes():
            raise DataError(
                f"graphs[{place}] has {graph.num_nodes()} vertices and graphs[0] has {graphs[0].num_nodes()}; all must "
                "be over the same vertices. Number them over all time."
            )


def _stacked(graphs: list[Any], name: str) -> NDArray[Any]:
    """What ``ndata[name]`` holds: of one graph where it is the same in all, else of each."""
    arrays = [_found(graph.ndata, name, f"graphs[{place}].ndata") for place, graph in enumerate(graphs)]
    if any(array.shape != arrays[0].shape for array in arrays):
        raise DataError(f"ndata[{name!r}] has the shapes {sorted({array.shape for array in arrays})}; one is needed.")
    same = all(np.array_equal(array, arrays[0]) for array in arrays[1:])
    return arrays[0] if same else np.stack(arrays)


def _weights(graphs: list[Any], name: str) -> NDArray[np.float64]:
    arrays = [_found(graph.edata, name, f"graphs[{place}].edata") for place, graph in enumerate(graphs)]
    for place, array in enumerate(arrays):
        if array.ndim and array.size == len(array) and array.dtype.kind in "iuf":
            if (np.isfinite(array) & (array >= 0)).all():
                continue
            found = f"entries from {array.min(initial=0)} to {array.max(initial=0)}"
        else:
            found = f"shape {array.shape} and type {array.dtype}"
        raise DataError(
            f"graphs[{place}].edata[{name!r}] has {found}; one finite weight of at least 0 for each edge is needed."
        )
    return np.concatenate([array.reshape(-1) for array in arrays]).astype(np.float64)


def _found(data: Any, name: str, where: str) -> NDArray[Any]:
    if name not in data:
        raise DataError(
            f"{where} holds no {name!r}; it holds {', '.join(map(str, data)) or 'nothing'}. Name one of them, or None."
        )
    return as_array(data[name], f"{where}[{name!r}]", "numbers")


def _vertices(ends: Any, place: int) -> NDArray[np.int64]:
    """The ends of a graph's edges, as they are numbered there."""
    return as_array(ends, f"graphs[{place}].edges()", "whole numbers").astype(np.int64)
