"""From base intervals to windows of ``edge_life`` of them.

Window i holds the edges of base intervals i .. i + edge_life - 1, so B intervals make B - edge_life + 1 windows and an
edge lives in ``edge_life`` of them, fewer at the two ends. Duplicates are merged; where edges carry weights these are
summed. Self loops are kept, and so are windows without edges, unless ``min_edges`` leaves them out.

Source: the edge-life windows of ESDG section 5.4 and of the released code of DynaHB and FlareDTDG.

Differs from the papers: ``min_edges`` counts the distinct edges of a window, the released code counts duplicates too;
and ESDG also keeps the first windows, which have fewer than ``edge_life`` base intervals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs.cut_counts import CutCounts
from dtdg_lab.graphs.intervals import IntervalStream
from dtdg_lab.graphs.keys import edge_keys, finite_weights, snapshot_of_rows
from dtdg_lab.graphs.sliding import SlidingEdges
from dtdg_lab.graphs.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """One window: ``graph`` merges ``edge_life`` base intervals, ``base`` is the newest, of number ``newest``."""

    newest: int
    graph: Snapshot
    base: Snapshot


class Windows:
    """The windows of a sequence, one after the other; ``counts`` tells about them once they have all gone by.

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
            rows=self.stream.rows, intervals=self.stream.num_intervals, interval_edges=self._interval_edges,
            windows=self._windows, dropped=made - self._windows, window_edges=self._window_edges,
        )  # fmt: skip

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
                    f"base interval {number} has {base.num_nodes} vertices and weighted={base.weights is not None}; "
                    f"the stream says {stream.num_nodes} vertices and weighted={stream.weighted}."
                )
            if number == stream.num_intervals:
                break
            yield base
        if number != stream.num_intervals - 1:
            raise DataError(f"the stream gave other than the {stream.num_intervals} base intervals it says it has.")
