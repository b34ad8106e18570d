"""Build a DynamicGraph from base intervals, in memory or through files. All data sets take this path."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError, UnknownNameError
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.graph_data import GraphHash, LabelHash
from dtdg_lab.graphs.intervals import IntervalEdges, IntervalStream
from dtdg_lab.graphs.snapshot import LARGEST, Snapshot, over_time, read_only
from dtdg_lab.graphs.storage import FOLLOWING, Draft, meta_of, put_snapshot
from dtdg_lab.graphs.windowing import FeatureSmoother, GraphSmoother, IntervalWindow, Windows, check_room

# Node features of one window: degrees, a constant, or the features of the data set.


KINDS = ("log_degrees", "degrees", "one_hot_degree", "constant", "given")
ONE_HOT_CLASSES = 64


class FeatureRows:
    """Node features of each window, in order.

    ``degrees`` are the in-degree and the out-degree, sums of weights where edges carry any, raw as in the papers;
    ``log_degrees`` are log(1 + degree). ``one_hot_degree`` is the number of out-neighbours, one-hot in 64 classes;
    the last is "63 or more". ``constant`` is 1. ``given`` are those of the stream: where they change over time,
    a window has the value of its newest base interval.

    Args:
        stream: the data, for ``given``.
        kind: one of these names.

    Raises:
        UnknownNameError: another kind.
        DataError: ``given`` for data that gives none.

    Source: degrees of DynaHB and FlareDTDG; one-hot out-degree of EvolveGCN's released code; constant of ROLAND.

    Differs from the paper: EvolveGCN's one-hot is as wide as the largest degree at any time, later ones included; here
    the width is fixed, so that it reveals nothing of the future.
    """

    def __init__(self, stream: IntervalStream, kind: str) -> None:
        if kind not in KINDS:
            raise UnknownNameError("value of features", kind, KINDS)
        if kind == "given" and stream.features is None:
            raise DataError(
                "features='given', and this data set gives none. Choose features='log_degrees' or another kind, or "
                "give features of shape (N, F) or (B, N, F) with the edges."
            )
        self._stream, self._kind = stream, kind
        self._before: tuple[Snapshot, NDArray[np.float32]] | None = None

    @property
    def static(self) -> NDArray[np.float32] | None:
        """The features of all windows, shape (N, F), where they never change; else None."""
        if self._kind == "constant":
            return np.ones((self._stream.num_nodes, 1), dtype=np.float32)
        features = self._stream.features
        return features if self._kind == "given" and features is not None and features.ndim == 2 else None

    @property
    def width(self) -> int:
        """F, the number of features."""
        if self._kind == "given" and self._stream.features is not None:
            return int(self._stream.features.shape[-1])
        return {"one_hot_degree": ONE_HOT_CLASSES, "constant": 1}.get(self._kind, 2)

    def row(self, graph: Snapshot, newest: int) -> NDArray[np.float32]:
        """Return the features of one window, shape (N, F), where they are not static.

        Args:
            graph: the window.
            newest: number of its newest base interval.
        """
        if self._kind == "given":
            assert self._stream.features is not None  # seen in the constructor
            return self._stream.features[newest]
        if self._before is None or graph is not self._before[0]:  # windows in which nothing changes are one graph
            self._before = graph, self._of_degrees(graph)
        return self._before[1]

    def _of_degrees(self, graph: Snapshot) -> NDArray[np.float32]:
        if self._kind == "one_hot_degree":
            return _one_hot(np.bincount(graph.indices, minlength=graph.num_nodes))
        degrees = np.stack([graph.in_degrees(), graph.out_degrees()], axis=1)
        return narrowed(np.log1p(degrees) if self._kind == "log_degrees" else degrees)


def narrowed(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Convert values of at least 0 to float32.

    Raises:
        DataError: a value is too large for float32.
    """
    largest = float(values.max(initial=0.0))
    if largest > LARGEST:
        raise DataError(f"a degree is {largest}; at most 3.4e38 can be kept. Scale the weights down.")
    return values.astype(np.float32)


def _one_hot(degrees: NDArray[np.int64]) -> NDArray[np.float32]:
    features = np.zeros((len(degrees), ONE_HOT_CLASSES), dtype=np.float32)
    features[np.arange(len(degrees)), np.minimum(degrees, ONE_HOT_CLASSES - 1)] = 1
    return features


# The label of each window, the persistence baseline, and the edges that the label counts.
#
# Without given targets the label at window t is log(1 + in-degree in window t + 1), and its persistence log(1 +
# in-degree in window t). The last window is then only a label. With ``strict_label`` only edges of the newest base
# interval of each window count. Where edges live long, neighbouring windows share nearly all edges, and persistence is
# hard to beat.
#
# Given targets belong to base intervals. Window t takes the targets of its newest base interval. Where ``min_edges``
# drops a window, its targets are dropped too. The label of the window before then comes from the next window kept.
#
# Source: SYSTEMS.md, "Data conventions of the papers" (targets of DynaHB and FlareDTDG); the strict label is ours.


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """A window with its label.

    Attributes:
        window: the window.
        targets: shape (N,), float32.
        persistence: shape (N,), float32: the prediction of ``targets`` by the current values.
        following: the edges that the label counts; None where targets are given.
    """

    window: IntervalWindow
    targets: NDArray[np.float32]
    persistence: NDArray[np.float32]
    following: Snapshot | None


def labelled(windows: Iterable[IntervalWindow], stream: IntervalStream, *, strict_label: bool) -> Iterator[Labelled]:
    """Yield labelled windows, oldest first: all windows where targets are given, else all but the last."""
    if stream.targets is not None:
        for window in windows:
            target, expected = stream.targets[window.newest], _expected(stream, window.newest)
            yield Labelled(window, target, expected, None)
        return
    for (step, _, today), (_, following, tomorrow) in itertools.pairwise(_counted(windows, strict_label)):
        yield Labelled(step, tomorrow, today, following)


def _counted(
    windows: Iterable[IntervalWindow], strict_label: bool
) -> Iterator[tuple[IntervalWindow, Snapshot, NDArray[np.float32]]]:
    """Yield each window with the edges that a label counts and with the label. Unchanged windows share both."""
    previous: Snapshot | None = None
    for window in windows:
        graph = window.base if strict_label else window.graph
        if graph is not previous:
            previous, label = graph, log_in_degrees(graph)
        yield window, graph, label


def log_in_degrees(graph: Snapshot) -> NDArray[np.float32]:
    """Return log(1 + in-degree) of every node, shape (N,). Where edges carry weights, degrees are sums of weights."""
    return np.log1p(graph.in_degrees()).astype(np.float32)


def _expected(stream: IntervalStream, newest: int) -> NDArray[np.float32]:
    """Return the persistence of a given target: the given persistence, else the target of the base interval before.

    The first base interval has none before it; its persistence is 0.
    """
    assert stream.targets is not None  # seen by the caller
    if stream.persistence is not None:
        return stream.persistence[newest]
    return stream.targets[newest - 1] if newest else np.zeros_like(stream.targets[0])


# Collectors of a graph's steps: arrays in memory, or growing files.


ARRAYS = ("features", "targets", "persistence", "node_ids", "classes", "vertex_split")  # in the order of the hash


@dataclass(frozen=True, slots=True, eq=False)
class BuiltSnapshot:
    """A labelled snapshot and the arrays that change with it.

    Attributes:
        graph: the snapshot.
        rows: arrays of this step, by name. All steps of a graph have the same names.
        following: the edges that the label counts, or None.
        own_label: whether ``following`` must be stored; otherwise it equals the next snapshot.
    """

    graph: Snapshot
    rows: Mapping[str, NDArray[Any]]
    following: Snapshot | None
    own_label: bool


class MemoryCollector:
    """Collects the steps in memory.

    Args:
        max_steps: upper bound of the number of steps.
    """

    def __init__(self, max_steps: int) -> None:
        self.steps = 0
        self._max_steps = max_steps
        self._graphs: list[Snapshot] = []
        self._following: list[Snapshot] = []
        self._rows: dict[str, NDArray[Any]] = {}

    def add(self, step: BuiltSnapshot) -> None:
        """Add the next step."""
        for name, row in step.rows.items():
            if name not in self._rows:
                self._rows[name] = self._reserve(name, row)
            self._rows[name][self.steps] = row
        self._graphs.append(step.graph)
        if step.following is not None:
            if not step.own_label:
                self._following.clear()  # only the last is extra
            self._following.append(step.following)
        self.steps += 1

    def _reserve(self, name: str, row: NDArray[Any]) -> NDArray[Any]:
        """Reserve memory for all rows. The system allocates only pages that are written."""
        try:
            return np.empty((self._max_steps, *row.shape), dtype=row.dtype)
        except MemoryError as error:
            raise DataError(
                f"{name} of up to {self._max_steps:,} snapshots of shape {row.shape} does not fit into memory: "
                f"{error}. Cut fewer intervals."
            ) from error

    def finish(self, fixed: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> DynamicGraph:
        """Return the graph.

        Args:
            fixed: arrays that do not change over time, by name.
            facts: the other fields of DynamicGraph.
        """
        arrays = {name: read_only(rows[: self.steps]) for name, rows in self._rows.items()}
        for name, array in fixed.items():
            vertices = name in ("node_ids", "vertex_split")
            arrays[name] = (
                array
                if vertices
                else over_time(read_only(array), name=name, dtype=array.dtype, steps=self.steps, shape=array.shape)
            )
        following = self._following
        if following and len(following) < self.steps:
            following = [*self._graphs[1:], *following]
        return DynamicGraph.trusted(
            snapshots=tuple(self._graphs), following=tuple(following) or None, **arrays, **facts
        )


class FileCollector:
    """Appends the steps to the files of a graph's folder, and hashes them on the way.

    Args:
        draft: the draft of the graph's folder.
        edge_life: base intervals an edge lives, for the hash.
    """

    def __init__(self, draft: Draft, edge_life: int) -> None:
        self.steps = 0
        self._draft = draft
        self._hash, self._labels = GraphHash(edge_life), LabelHash(edge_life)
        self._before: BuiltSnapshot | None = None

    def add(self, step: BuiltSnapshot) -> None:
        """Add the next step."""
        put_snapshot(self._draft, step.graph)
        self._hash.snapshot(step.graph)
        for name, row in step.rows.items():
            self._draft.file(name, row.dtype, row.shape).extend(row[np.newaxis])
        self._follow(step)
        self.steps += 1

    def finish(self, fixed: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> DynamicGraph:
        """Move the folder into place and map it; arguments as for :class:`MemoryCollector`."""
        for name, array in fixed.items():
            self._draft.put(name, array)
        self._follow(None)
        self._draft.close_files()
        for name in ARRAYS:
            if name in self._draft.files:
                file = self._draft.files[name]
                self._hash.pieces(name, file.dtype, file.shape, file.pieces())
        if f"{FOLLOWING}indptr" in self._draft.files:
            self._hash.labels(self._labels)
        return DynamicGraph.load(self._draft.finish(meta_of(facts, self._hash.hexdigest())))

    def _follow(self, step: BuiltSnapshot | None) -> None:
        """Store the label graph of the step before ``step``; None marks the end."""
        previous, self._before = self._before, step
        if previous is None or previous.following is None:
            return
        self._labels.follow(previous.following, None if step is None else step.graph)
        if previous.own_label or step is None:
            put_snapshot(self._draft, previous.following, FOLLOWING)


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
    """Build a graph from B base intervals: windows, features and labels, one window at a time.

    Args:
        stream: the base intervals, with any given features, targets and classes.
        name: the graph's name in runs and reports.
        source: where the data came from, in words.
        edge_life: base intervals an edge lives; B - edge_life + 1 windows result.
        smoothing_window: w of the M-transform of graph and features; 1 is none. The labels are not smoothed.
        min_edges: windows with fewer edges are dropped before labels are taken.
        features: ``log_degrees``, ``degrees``, ``one_hot_degree``, ``constant`` or ``given``.
        strict_label: count only edges of the newest base interval in the label.
        into: a folder to write the graph into while it is built. Memory then holds ``edge_life`` base intervals and
            one window at a time, and the returned graph is mapped from the folder. None builds it in memory.

    Returns:
        All windows kept, where targets are given; else all but the last, which is only a label.

    Raises:
        DataError: too few base intervals, or windows with enough edges; ``features='given'`` where none are; more than
            memory or disk can hold; or the folder cannot be written.
        UnknownNameError: no such ``features``.
    """
    if isinstance(stream, IntervalEdges):
        stream = stream.stream()
    if smoothing_window < 1 or min_edges < 0:
        raise DataError(
            f"smoothing_window={smoothing_window} must be at least 1, and min_edges={min_edges} at least 0."
        )
    kinds, windows = FeatureRows(stream, features), Windows(stream, edge_life, min_edges)
    if not min_edges:  # else the number of windows kept is unknown
        check_room(windows.most, stream.num_nodes, 0 if kinds.static is not None else kinds.width, into)
    facts = {"name": name, "source": source, "edge_life": edge_life, "strict_label": strict_label}
    with contextlib.nullcontext() if into is None else Draft(Path(into)) as draft:
        collector = MemoryCollector(windows.most) if draft is None else FileCollector(draft, edge_life)
        for step in _steps(windows, kinds, smoothing_window, strict_label):
            collector.add(step)
        if not collector.steps:
            raise _no_labelled_window(windows)
        return collector.finish(_fixed(stream, kinds), {**facts, "counts": windows.counts})


def _steps(windows: Windows, kinds: FeatureRows, smoothing_window: int, strict_label: bool) -> Iterator[BuiltSnapshot]:
    """Yield the labelled windows as steps, with the edges that each label counts."""
    stream = windows.stream
    graphs = GraphSmoother(stream.num_nodes, smoothing_window, weighted=stream.weighted)
    features = FeatureSmoother(smoothing_window)
    static, smooth = kinds.static is not None, smoothing_window > 1
    # where the label counts the whole next snapshot, it is already stored
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
    """Return the arrays that do not change over time."""
    classes = stream.classes if stream.classes is not None and stream.classes.ndim == 1 else None
    arrays = {
        "features": kinds.static,
        "node_ids": stream.node_ids,
        "classes": classes,
        "vertex_split": stream.vertex_split,
    }
    return {name: array for name, array in arrays.items() if array is not None}


def _no_labelled_window(windows: Windows) -> DataError:
    """Explain why no window can be labelled."""
    counts, has_targets = windows.counts, windows.stream.targets is not None
    total = counts.windows + counts.dropped
    condition = f", {counts.windows} of them with min_edges={windows.min_edges} edges" if windows.min_edges else ""
    needed = "at least 1 is needed" if has_targets else "at least 2 are needed, because the last one is only a label"
    setting = " or min_edges" if condition else ""
    return DataError(
        f"{counts.intervals} base intervals make {total} snapshot{'s' * (total != 1)} with edge_life="
        f"{windows.edge_life}{condition}; {needed}. Cut more intervals, or lower edge_life{setting}."
    )
