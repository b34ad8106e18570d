"""Edges of decayed snapshots: prefixes of one numbering, sliced from each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.batch_plans import SurvivalOrder
from dtdg_lab.core.errors import PlanError
from dtdg_lab.graphs.snapshot import Snapshot

WAYS = ("in", "out")
_NOT_HERE = np.iinfo(np.int32).max  # the number of a vertex that the order lacks: beyond every prefix


@dataclass(frozen=True, slots=True, eq=False)
class ShrunkenEdges:
    """The E edges among n vertices, each vertex with those that it pulls along; read-only.

    Attributes:
        indptr: (n + 1,) int64: vertex i pulls from ``indices[indptr[i]:indptr[i + 1]]``.
        indices: (E,) int32, 0 to n - 1; a row's are in the order of the snapshot's row (``in``) or ascending (``out``).
        weights: (E,) float32, or None where edges carry no weight.
        degrees: (n,) float64: weighted degree along this way, of these edges alone.
        other_degrees: (n,) float64: the same along the other way.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    weights: NDArray[np.float32] | None
    degrees: NDArray[np.float64]
    other_degrees: NDArray[np.float64]

    @property
    def rows(self) -> int:
        """Vertices n."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Edges E."""
        return len(self.indices)


class Shrinker:
    """Decayed snapshots as prefixes of an order of vertices.

    All snapshots of an epoch share one numbering, so a prefix of a snapshot is cut out of a longer one by comparing
    numbers: the first rows, and of their columns those below n. The longest prefix asked for is taken from the graph,
    every later one from the prefix before it. A prefix longer than the one kept is taken from the graph again.

    Args:
        snapshots: of the same N vertices.

    References: FlareDTDG section 3.3.
    Differs from the paper: numbers are given to a snapshot's edges when it is first asked for, and only to those of its
    prefix, rather than to all edges of all snapshots before the epoch.
    """

    def __init__(self, snapshots: Sequence[Snapshot]) -> None:
        self._snapshots = snapshots
        self._order: SurvivalOrder | None = None
        self._number = np.empty(0, np.int32)
        self._one_part = True
        self._kept: dict[tuple[int, str], ShrunkenEdges] = {}

    def renumber(self, order: SurvivalOrder) -> None:
        """Take the order of an epoch; what was cut out under another one is let go.

        Raises:
            PlanError: it names vertices that the snapshots lack.
        """
        nodes = self._snapshots[0].num_nodes
        if len(order.vertices) and not (order.vertices.min() >= 0 and order.vertices.max() < nodes):
            raise PlanError(
                f"the order holds vertices {order.vertices.min()} to {order.vertices.max()}; those of the snapshots "
                f"are numbered 0 to {nodes - 1}."
            )
        self._kept.clear()
        self._order = order
        self._number = np.full(nodes, _NOT_HERE, np.int32)
        self._number[order.vertices] = np.arange(len(order.vertices), dtype=np.int32)
        self._one_part = bool((order.parts == order.parts[:1]).all())

    def edges(self, t: int, rows: int, way: str = "in") -> ShrunkenEdges:
        """The edges of snapshot t among the first ``rows`` vertices of the order, within one part each.

        Costs O(edges of the prefix of t that was asked for before); the first time, O(edges into these vertices).

        Args:
            t: number of a snapshot.
            rows: n, 0 to all.
            way: ``in``: a vertex pulls from its in-neighbours; ``out``: from its out-neighbours.

        Raises:
            PlanError: no order was given, it has fewer vertices, or there is no such snapshot or way.
        """
        if self._order is None:
            raise PlanError("edges of a decayed snapshot need an order of vertices: call renumber first.")
        if not 0 <= rows <= len(self._order.vertices) or not 0 <= t < len(self._snapshots) or way not in WAYS:
            raise PlanError(
                f"edges {way!r} of the first {rows} vertices in snapshot {t}: the order has "
                f"{len(self._order.vertices)}, there are {len(self._snapshots)} snapshots, and ways are 'in', 'out'."
            )
        kept = self._kept.get((t, way))
        if kept is not None and kept.rows == rows:
            return kept
        if kept is not None and kept.rows > rows:
            made = _sliced(kept, rows)
        else:
            made = self._taken(self._snapshots[t], rows, self._order) if way == "in" else _turned(self.edges(t, rows))
        self._kept[t, way] = made
        return made

    def keep_only(self, snapshots: range) -> None:
        """Let go of the prefixes of all other snapshots: those that a window has left."""
        for key in [key for key in self._kept if key[0] not in snapshots]:
            del self._kept[key]

    def _taken(self, snapshot: Snapshot, rows: int, order: SurvivalOrder) -> ShrunkenEdges:
        """Cut a prefix out of the whole graph."""
        own = order.vertices[:rows]
        starts = snapshot.indptr[own]
        bounds = np.zeros(rows + 1, np.int64)
        np.cumsum(snapshot.indptr[own + 1] - starts, out=bounds[1:])
        lengths = np.diff(bounds)
        at = np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], lengths)
        numbers = self._number.take(snapshot.indices.take(at))  # take: several times as fast as square brackets
        held = numbers < rows
        if not self._one_part:
            row_parts = np.repeat(order.parts[:rows], lengths)
            held &= order.parts[np.where(held, numbers, 0)] == row_parts
        chosen = np.flatnonzero(held)
        weights = None if snapshot.weights is None else snapshot.weights.take(at.take(chosen))
        return _edges(_held_before(held, bounds), numbers.take(chosen), weights)


def _sliced(edges: ShrunkenEdges, rows: int) -> ShrunkenEdges:
    """A shorter prefix: the first rows, and of their columns those among the rows."""
    bounds = edges.indptr[: rows + 1]
    head = edges.indices[: bounds[-1]]
    held = head < rows
    chosen = np.flatnonzero(held)
    weights = None if edges.weights is None else edges.weights.take(chosen)
    return _edges(_held_before(held, bounds), head.take(chosen), weights)


def _turned(edges: ShrunkenEdges) -> ShrunkenEdges:
    """The same edges along the other way."""
    rows = np.repeat(np.arange(edges.rows, dtype=np.int32), np.diff(edges.indptr))
    order = np.argsort(edges.indices, kind="stable")  # stable: a row's columns ascend
    weights = None if edges.weights is None else edges.weights[order]
    indptr = np.zeros(edges.rows + 1, np.int64)
    np.cumsum(np.bincount(edges.indices, minlength=edges.rows), out=indptr[1:])
    return _read_only(ShrunkenEdges(indptr, rows[order], weights, edges.other_degrees, edges.degrees))


def _held_before(held: NDArray[np.bool_], bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many are held before each of the bounds."""
    before = np.zeros(len(held) + 1, np.int64)
    np.cumsum(held, out=before[1:])
    return before[bounds]


def _edges(indptr: NDArray[np.int64], indices: NDArray[np.int32], weights: NDArray[np.float32] | None) -> ShrunkenEdges:
    """Edges that vertices pull along, with the degrees that these alone give them."""
    rows = len(indptr) - 1
    if weights is None:
        degrees = np.diff(indptr).astype(np.float64)
    else:
        degrees = np.bincount(np.repeat(np.arange(rows), np.diff(indptr)), weights, rows).astype(np.float64)
    other = np.bincount(indices, weights, rows).astype(np.float64)
    return _read_only(ShrunkenEdges(indptr, indices, weights, degrees, other))


def _read_only(edges: ShrunkenEdges) -> ShrunkenEdges:
    for array in (edges.indptr, edges.indices, edges.weights, edges.degrees, edges.other_degrees):
        if array is not None:
            array.setflags(write=False)
    return edges
