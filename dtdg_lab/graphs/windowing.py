"""Edges cut into windows of equal time or equal counts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs.intervals import IntervalStream
from dtdg_lab.graphs.sliding import SlidingEdges
from dtdg_lab.graphs.snapshot import Snapshot, edge_keys, finite_weights, snapshot_of_rows

# What was counted while a graph was cut, and can no longer be counted from its snapshots.


@dataclass(frozen=True, slots=True, kw_only=True)
class CutCounts:
    """Sizes of the whole sequence a graph was cut from, the last window included, which is only a label.

    Attributes:
        rows: edges in the source, duplicates included; None if unknown.
        intervals: B, base intervals.
        interval_edges: distinct edges of each base interval, summed over the B intervals (the papers' E).
        windows: S, windows that were kept.
        dropped: windows left out for having too few edges.
        window_edges: distinct edges of each kept window, summed over the S windows (the papers' EL).
    """

    rows: int | None
    intervals: int
    interval_edges: int
    windows: int
    dropped: int
    window_edges: int


# Room for a graph under construction: one that cannot fit is refused before it fills the memory or the disk.


def check_room(steps: int, nodes: int, features: int, into: Path | None) -> None:
    """Refuse a graph whose node values alone, whatever its edges, are larger than the place they are to go.

    Args:
        steps: T, snapshots that will be kept.
        nodes: N.
        features: feature values per node and snapshot; 0 if features never change.
        into: the folder that the graph is written to; None where it is held in memory.

    Raises:
        DataError: the message has the sizes.
    """
    values = features + 2  # with the target and its persistence, float32
    needed = steps * nodes * (4 * values + (8 if into is not None else 0))  # in files every row pointer is there, too
    if into is None:
        have, place = memory_bytes(), "this machine has {} of memory"
    else:
        have, place = free_bytes(into), f"{into.parent} has {{}} free"
    if needed > have:
        raise DataError(
            f"{steps:,} snapshots of {nodes:,} nodes, with {values} numbers each, take {_size(needed)}, and "
            f"{place.format(_size(have))}. Cut fewer intervals, set min_edges to leave empty ones out, or choose "
            "features='constant'."
        )


def memory_bytes() -> int:
    """Memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_bytes(folder: Path) -> int:
    """Free space on the disk that will hold a folder, which need not be there yet."""
    place = Path(os.path.abspath(folder))
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


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
class Window:
    """One window: ``graph`` merges ``edge_life`` base intervals, ``base`` is the newest, of number ``newest``."""

    newest: int
    graph: Snapshot
    base: Snapshot


class Windows:
    """The windows of a sequence, one after the other; ``counts`` describes them once all have been generated.

    Args:
        stream: B base intervals.
        edge_life: base intervals an edge lives, 1 .. B.
        min_edges: windows with fewer edges are left out.

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

    def __iter__(self) -> Iterator[Window]:
        """The windows that have enough edges, oldest first."""
        self._interval_edges = self._windows = self._window_edges = 0
        for window in self._all():
            if window.graph.num_edges < self.min_edges:
                continue
            self._windows += 1
            self._window_edges += window.graph.num_edges
            yield window

    @property
    def most(self) -> int:
        """At most so many of them can be labelled: all where targets are given, else all but the last."""
        return self.stream.num_intervals - self.edge_life + (self.stream.targets is not None)

    @property
    def counts(self) -> CutCounts:
        """Sizes of the whole sequence, after it has been gone through."""
        made = self.stream.num_intervals - self.edge_life + 1
        return CutCounts(
            rows=self.stream.rows,
            intervals=self.stream.num_intervals,
            interval_edges=self._interval_edges,
            windows=self._windows,
            dropped=made - self._windows,
            window_edges=self._window_edges,
        )

    def _all(self) -> Iterator[Window]:
        stream = self.stream
        alive = SlidingEdges(stream.num_nodes, self.edge_life, weighted=stream.weighted)
        graph: Snapshot | None = None
        for number, base in enumerate(self._base()):
            self._interval_edges += base.num_edges
            if self.edge_life == 1:
                yield Window(number, base, base)
                continue
            if alive.push(edge_keys(base), base.weights):
                graph = None  # the one before is no longer the window's
            if number >= self.edge_life - 1:
                if graph is None:
                    weights = finite_weights(alive.sums()) if stream.weighted else None
                    graph = snapshot_of_rows(alive.in_degree, alive.keys, weights)
                yield Window(number, graph, base)

    def _base(self) -> Iterator[Snapshot]:
        """The base intervals, checked against what the stream says of itself."""
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
            raise DataError(f"the stream gave other than the {stream.num_intervals} base intervals it says it has.")
