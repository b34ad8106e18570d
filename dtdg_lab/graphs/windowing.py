"""Edges cut into windows of equal time or equal counts."""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs.intervals import IntervalStream
from dtdg_lab.graphs.snapshot import (
    Snapshot,
    distinct,
    edge_keys,
    finite_weights,
    places_of,
    snapshot_of_rows,
    sums_of_equal,
    targets,
)

# The edges of the last few intervals, kept sorted while intervals arrive and leave.
#
# Sorting each window from scratch costs O(E log E) per snapshot; here only what arrives is sorted
# (it comes sorted), and the rest is copied. Both ways of keeping a window are exact, whatever its length:
#
# * without weights, the number of intervals that hold an edge is kept, and the edge goes when it falls to 0;
# * with weights, every interval's weight is kept, and a window's weight is recomputed from them, oldest first, in
#   float64. Adding what arrives and subtracting what leaves would drift: 1e9 + 1 - 1e9 is not 1 in float32.


class SlidingEdges:
    """The union of the edges of the last ``length`` intervals, empty at first.

    Args:
        num_nodes: N.
        length: intervals an edge lives.
        weighted: whether intervals come with weights.
    """

    def __init__(self, num_nodes: int, length: int, *, weighted: bool) -> None:
        self.in_degree = np.zeros(num_nodes, dtype=np.int64)  # distinct edges into every node, shape (N,)
        self._length, self._weighted = length, weighted
        self._alive: deque[NDArray[np.int64]] = deque()
        self._keys = np.empty(0, dtype=np.int64)  # rising; with weights, once for each interval that holds the edge
        # beside every key: the intervals that hold it, or with weights its weight in one of them, oldest first
        self._values: NDArray[Any] = np.empty(0, dtype=np.float64 if weighted else np.int32)

    def __len__(self) -> int:
        """Count the intervals in the window: fewer than ``length`` at the beginning."""
        return len(self._alive)

    def push(self, keys: NDArray[np.int64], weights: NDArray[np.float32] | None) -> bool:
        """Add the edges of the next interval. Where the window was full, remove those of the oldest interval.

        Args:
            keys: shape (E,), rising, without duplicates.
            weights: shape (E,), where the window is weighted.

        Returns:
            Whether edges were added or removed.
        """
        leaving = self._alive.popleft() if len(self._alive) == self._length else _NONE
        self._alive.append(keys)
        if not len(keys) and not len(leaving):
            return False
        positions, is_known = places_of(self._keys, keys)
        out = np.searchsorted(self._keys, leaving)  # with weights, the first of equal keys is the one that leaves
        if weights is None:
            self._values[positions[is_known]] += 1
            self._values[out] -= 1
            gone = self._values[out] == 0
            self._replace(out[gone], positions[~is_known], keys[~is_known], 1)
            went = leaving[gone]
        else:
            self._replace(out, np.searchsorted(self._keys, keys, side="right"), keys, weights)
            went = leaving[~places_of(self._keys, leaving)[1]]
        for changed, change in ((keys[~is_known], 1), (went, -1)):
            self.in_degree += change * np.bincount(targets(changed), minlength=len(self.in_degree))
        return True

    @property
    def keys(self) -> NDArray[np.int64]:
        """Rising keys of the window's distinct edges."""
        return distinct(self._keys) if self._weighted else self._keys

    def sums(self) -> NDArray[np.float64]:
        """Return the sum of the weights of every distinct edge, or the number of intervals that hold it, in float64."""
        return sums_of_equal(self._keys, self._values) if self._weighted else self._values.astype(np.float64)

    def snapshot(self) -> Snapshot:
        """Return the window's edges, with summed weights where edges carry weights."""
        return snapshot_of_rows(self.in_degree, self.keys, finite_weights(self.sums()) if self._weighted else None)

    def _replace(
        self, gone: NDArray[np.int64], positions: NDArray[np.int64], keys: NDArray[np.int64], values: ArrayLike
    ) -> None:
        """Remove entries, and insert each rising key before the entry at its position.

        Gathering entries from their old positions takes half the time of masks. From one kept entry to the next the
        old position rises by 1, and by 1 more for every removed entry between them. At an inserted one it rises by 0.
        """
        new = positions - np.searchsorted(gone, positions) + np.arange(len(positions))
        rises = np.ones(len(self._keys) - len(gone) + len(keys), dtype=np.intp)
        rises[new] = 0
        after = gone - np.arange(len(gone)) + np.searchsorted(positions, gone, side="right")
        np.add.at(rises, after[after < len(rises)], 1)
        edge_index = np.cumsum(rises) - 1
        for name, fresh in (("_keys", keys), ("_values", values)):
            present = getattr(self, name)
            merged = present.take(edge_index, mode="clip") if len(present) else np.empty(len(edge_index), present.dtype)
            merged[new] = fresh  # overwrites arbitrary gathered entries
            setattr(self, name, merged)


_NONE = np.empty(0, dtype=np.int64)


# Counts of the cut, which the snapshots no longer tell.


@dataclass(frozen=True, slots=True, kw_only=True)
class CutCounts:
    """Sizes of the whole sequence a graph was cut from, the last window included, which is only a label.

    Attributes:
        rows: edges in the source, duplicates included; None if unknown.
        intervals: B, base intervals.
        interval_edges: distinct edges of each base interval, summed over the B intervals (the papers' E).
        windows: S, windows kept.
        dropped: windows with too few edges.
        window_edges: distinct edges of each kept window, summed over the S windows (the papers' EL).
    """

    rows: int | None
    intervals: int
    interval_edges: int
    windows: int
    dropped: int
    window_edges: int


# Space for a graph under construction: a graph that cannot fit is refused before it fills the memory or the disk.


def check_room(steps: int, nodes: int, features: int, into: Path | None) -> None:
    """Refuse a graph whose node values alone exceed the memory or the free disk space.

    Args:
        steps: T, snapshots that will be kept.
        nodes: N.
        features: feature values per node and snapshot; 0 if features never change.
        into: the graph's folder; None where it is held in memory.

    Raises:
        DataError: the graph does not fit; the message has the sizes.
    """
    values = features + 2  # with the target and its persistence, float32
    needed = steps * nodes * (4 * values + (8 if into is not None else 0))  # in files every row pointer is there, too
    if into is None:
        have, location = memory_bytes(), "this machine has {} of memory"
    else:
        have, location = free_bytes(into), f"{into.parent} has {{}} free"
    if needed > have:
        raise DataError(
            f"{steps:,} snapshots of {nodes:,} nodes, with {values} numbers each, take {_size(needed)}, and "
            f"{location.format(_size(have))}. Cut fewer intervals, set min_edges to leave empty ones out, or choose "
            "features='constant'."
        )


def memory_bytes() -> int:
    """Return the bytes of memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_bytes(folder: Path) -> int:
    """Return the free bytes of the disk of a folder, which need not exist yet."""
    path = Path(os.path.abspath(folder))
    while not os.path.exists(path):  # also False where a folder may not be entered; writing there raises the error
        path = path.parent
    return shutil.disk_usage(path).free


def _size(count: int) -> str:
    return f"{count / 1e9:.3g} GB"


# From base intervals to windows of ``edge_life`` of them.
#
# Window i holds the edges of base intervals i .. i + edge_life - 1, so B intervals make B - edge_life + 1 windows and
# an edge lives in ``edge_life`` of them, fewer at the two ends. Duplicates are merged; where edges carry weights these
# are summed. Self loops are kept, and so are windows without edges, unless ``min_edges`` leaves them out.
#
# Source: the edge-life windows of ESDG section 5.4 and of the released code of DynaHB and FlareDTDG.
#
# Differs from the papers: ``min_edges`` counts the distinct edges of a window, the released code counts duplicates too;
# and ESDG also keeps the first windows, which have fewer than ``edge_life`` base intervals.


@dataclass(frozen=True, slots=True, eq=False)
class IntervalWindow:
    """One window: ``graph`` merges ``edge_life`` base intervals; ``base`` is the newest one, number ``newest``."""

    newest: int
    graph: Snapshot
    base: Snapshot


class Windows:
    """The windows of a sequence, in order; ``counts`` is complete once all have been generated.

    Args:
        stream: B base intervals.
        edge_life: base intervals an edge lives, 1 .. B.
        min_edges: windows with fewer edges are dropped.

    Raises:
        DataError: there are fewer base intervals than ``edge_life``.
    """

    def __init__(self, stream: IntervalStream, edge_life: int, min_edges: int = 0) -> None:
        if not 1 <= edge_life <= stream.num_intervals:
            raise DataError(
                f"edge_life={edge_life} with {stream.num_intervals} base intervals: allowed 1 to "
                f"{stream.num_intervals}. Lower edge_life, or cut more intervals."
            )
        self.stream, self.edge_life, self.min_edges = stream, edge_life, min_edges
        self._interval_edges = self._windows = self._window_edges = 0

    def __iter__(self) -> Iterator[IntervalWindow]:
        """Yield the windows that have enough edges, oldest first."""
        self._interval_edges = self._windows = self._window_edges = 0
        for window in self._all():
            if window.graph.num_edges < self.min_edges:
                continue
            self._windows += 1
            self._window_edges += window.graph.num_edges
            yield window

    @property
    def most(self) -> int:
        """Largest number of labelled windows: all where targets are given, else all but the last."""
        return self.stream.num_intervals - self.edge_life + (self.stream.targets is not None)

    @property
    def counts(self) -> CutCounts:
        """Sizes of the whole sequence, once all windows have been generated."""
        total = self.stream.num_intervals - self.edge_life + 1
        return CutCounts(
            rows=self.stream.rows,
            intervals=self.stream.num_intervals,
            interval_edges=self._interval_edges,
            windows=self._windows,
            dropped=total - self._windows,
            window_edges=self._window_edges,
        )

    def _all(self) -> Iterator[IntervalWindow]:
        stream = self.stream
        alive = SlidingEdges(stream.num_nodes, self.edge_life, weighted=stream.weighted)
        graph: Snapshot | None = None
        for number, base in enumerate(self._base()):
            self._interval_edges += base.num_edges
            if self.edge_life == 1:
                yield IntervalWindow(number, base, base)
                continue
            if alive.push(edge_keys(base), base.weights):
                graph = None  # the one before is no longer the window's
            if number >= self.edge_life - 1:
                if graph is None:
                    graph = alive.snapshot()
                yield IntervalWindow(number, graph, base)

    def _base(self) -> Iterator[Snapshot]:
        """Yield the base intervals, checked against the attributes of the stream."""
        stream, number = self.stream, -1
        for number, base in enumerate(stream.make()):
            if base.num_nodes != stream.num_nodes or (base.weights is not None) != stream.weighted:
                raise DataError(
                    f"base interval {number} has {base.num_nodes} nodes and weighted={base.weights is not None}; "
                    f"the stream says {stream.num_nodes} nodes and weighted={stream.weighted}."
                )
            if number == stream.num_intervals:
                break
            yield base
        if number != stream.num_intervals - 1:
            raise DataError(f"the stream did not yield the {stream.num_intervals} base intervals of num_intervals.")


# The M-transform of TM-GCN over time: each snapshot and its features become the mean of the last w.
#
# Row t of M (counted from 1) has M[t, k] = 1 / min(w, t) for max(1, t - w + 1) <= k <= t and 0 elsewhere. At the
# beginning the mean is over fewer than w snapshots. An edge without weight counts as 1; smoothed snapshots always carry
# weights. Sums are taken in float64, oldest first, and divided once: 1/w is never rounded before.
#
# Source: ESDG sections 5.3 (the matrix M) and 5.4 (A and X are transformed), after TM-GCN (Malik et al. 2021).
#
# Differs from the paper: labels are not smoothed; they count the edges of the next snapshot.


class GraphSmoother:
    """Mean of the adjacency matrices of the last w snapshots.

    Args:
        num_nodes: N.
        window: w, at least 1.
        weighted: whether the snapshots carry weights.
    """

    def __init__(self, num_nodes: int, window: int, *, weighted: bool) -> None:
        self._alive = SlidingEdges(num_nodes, window, weighted=weighted)

    def push(self, snapshot: Snapshot) -> Snapshot:
        """Add the next snapshot and return the weighted mean that ends with it."""
        self._alive.push(edge_keys(snapshot), snapshot.weights)
        mean = finite_weights(self._alive.sums() / len(self._alive))
        return snapshot_of_rows(self._alive.in_degree, self._alive.keys, mean)


class FeatureSmoother:
    """Mean of the features of the last w snapshots, which are all held.

    Args:
        window: w, at least 1.
    """

    def __init__(self, window: int) -> None:
        self._alive: deque[NDArray[np.float32]] = deque(maxlen=window)

    def push(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Add features of shape (N, F) and return the mean that ends with them."""
        self._alive.append(features)
        total = np.zeros(features.shape, dtype=np.float64)
        for row in self._alive:
            total += row
        return (total / len(self._alive)).astype(np.float32)


# Smoothing of snapshots that models ask for.
#
# Data sets are loaded smoothed (options ``edge_life`` and ``smoothing_window``); here one graph is smoothed several
# ways to be compared.


def lived(snapshots: Sequence[Snapshot], edge_life: int) -> Iterator[Snapshot]:
    """Yield, for each snapshot, the sum of the last ``edge_life`` ones; of fewer at the beginning.

    Where edges carry no weight the sum is the union, as in the lab's data sets.

    References: ESDG section 5.4 (EvolveGCN).
    """
    alive = SlidingEdges(snapshots[0].num_nodes, edge_life, weighted=snapshots[0].weights is not None)
    for snapshot in snapshots:
        alive.push(edge_keys(snapshot), snapshot.weights)
        yield alive.snapshot()


def averaged(snapshots: Sequence[Snapshot], window: int) -> Iterator[Snapshot]:
    """Yield, for each snapshot, the mean of the last ``window`` ones.

    References: ESDG section 5.4 (TM-GCN).
    """
    smoother = GraphSmoother(snapshots[0].num_nodes, window, weighted=snapshots[0].weights is not None)
    for snapshot in snapshots:
        yield smoother.push(snapshot)
