"""Base intervals to a DynamicGraph: the one path all data sets take, in memory or through files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs.collect import BuiltSnapshot, FileCollector, MemoryCollector
from dtdg_lab.graphs.dynamic_graph import DynamicGraph, labelled
from dtdg_lab.graphs.features import FeatureRows
from dtdg_lab.graphs.intervals import IntervalEdges, IntervalStream
from dtdg_lab.graphs.smoothing import FeatureSmoother, GraphSmoother
from dtdg_lab.graphs.windowing import Windows, check_room

# raise it when windows, features or labels change, so that graphs cut by older code are not taken from a cache
BUILD_VERSION = 2


def build_graph(
    stream: IntervalStream | IntervalEdges,
    *,
    name: str,
    source: str,
    edge_life: int = 1,
    smoothing_window: int = 1,
    min_edges: int = 0,
    features: str = "log_degrees",
    strict_label: bool = False,
    into: Path | None = None,
) -> DynamicGraph:
    """Windows, features and labels of edges that are assigned to B base intervals, generated one by one.

    Args:
        stream: the base intervals, and what is given with them.
        name: what runs and reports call the graph.
        source: where the data came from, in words.
        edge_life: base intervals an edge lives; B - edge_life + 1 windows result.
        smoothing_window: w of the M-transform of graph and features; 1 is none. The labels are not smoothed.
        min_edges: windows with fewer edges are left out, before labels are taken.
        features: ``log_degrees``, ``degrees``, ``one_hot_degree``, ``constant`` or ``given``.
        strict_label: count only edges of the newest base interval in the label.
        into: a folder to write the graph into while it is made: memory then holds ``edge_life`` base intervals and a
            window at a time, and what comes back is mapped from the folder. None builds it in memory.

    Returns:
        All windows that are left, where targets are given; else all but the last, which is only a label.

    Raises:
        DataError: too few base intervals, or windows with enough edges; ``features='given'`` where none are; more than
            memory or disk can hold; or the folder cannot be written.
        UnknownNameError: no such ``features``.
    """
    if isinstance(stream, IntervalEdges):
        stream = stream.stream()
    if smoothing_window < 1 or min_edges < 0:
        raise DataError(f"smoothing_window={smoothing_window} is to be at least 1, and min_edges={min_edges} 0.")
    kinds, windows = FeatureRows(stream, features), Windows(stream, edge_life, min_edges)
    if not min_edges:  # else the number that is left is unknown
        check_room(windows.most, stream.num_nodes, 0 if kinds.static is not None else kinds.width, into)
    facts = {"name": name, "source": source, "edge_life": edge_life, "strict_label": strict_label}
    with MemoryCollector(windows.most) if into is None else FileCollector(Path(into), edge_life) as collector:
        for step in _steps(windows, kinds, smoothing_window, strict_label):
            collector.add(step)
        if not collector.steps:
            raise _too_few(windows)
        return collector.finish(_fixed(stream, kinds), {**facts, "counts": windows.counts})


def _steps(windows: Windows, kinds: FeatureRows, smoothing_window: int, strict_label: bool) -> Iterator[BuiltSnapshot]:
    """The labelled windows as steps, with the edges that each label counts."""
    stream = windows.stream
    graphs = GraphSmoother(stream.num_nodes, smoothing_window, weighted=stream.weighted)
    features = FeatureSmoother(smoothing_window)
    static, smooth = kinds.static is not None, smoothing_window > 1
    # where the label counts the next snapshot as it is, that is stored already
    own_label = smooth or (strict_label and windows.edge_life > 1)
    for item in labelled(windows, stream, strict_label=strict_label):
        graph, newest = item.window.graph, item.window.newest
        rows = {} if static else {"features": kinds.row(graph, newest)}
        if smooth:
            rows = {name: features.push(row) for name, row in rows.items()}
            graph = graphs.push(graph)
        rows |= {"targets": item.targets, "persistence": item.persistence}
        if stream.classes is not None and stream.classes.ndim == 2:
            rows["classes"] = stream.classes[newest]
        yield BuiltSnapshot(graph, rows, item.following, own_label)


def _fixed(stream: IntervalStream, kinds: FeatureRows) -> dict[str, NDArray[Any]]:
    """The arrays that are the same at all times."""
    classes = stream.classes if stream.classes is not None and stream.classes.ndim == 1 else None
    arrays = {
        "features": kinds.static,
        "node_ids": stream.node_ids,
        "classes": classes,
        "vertex_split": stream.vertex_split,
    }
    return {name: array for name, array in arrays.items() if array is not None}


def _too_few(windows: Windows) -> DataError:
    """What to say where no window can be labelled."""
    counts, given = windows.counts, windows.stream.targets is not None
    made = counts.windows + counts.dropped
    left = f", {counts.windows} of them with min_edges={windows.min_edges} edges" if windows.min_edges else ""
    needed = "at least 1 is needed" if given else "at least 2 are needed, because the last one is only a label"
    return DataError(
        f"{counts.intervals} base intervals make {made} snapshot{'s' * (made != 1)} with edge_life="
        f"{windows.edge_life}{left}; {needed}. Cut more intervals, or lower edge_life{' or min_edges' if left else ''}."
    )
