"""Decayed snapshots: edges that are prefixes of one node order, and the order in which nodes survive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.rng import generator
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.exchange.exchanger import Exchanger, Route
from dtdg_lab.engine.exchange.halo import HaloRows
from dtdg_lab.engine.views.part_edges import LocalSource, PartEdges
from dtdg_lab.engine.views.snapshot_view import NeighbourRows, SnapshotView
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels.operators import Operators, OperatorSettings
from dtdg_lab.kernels.uploads import upload
from dtdg_lab.systems.decayed_windows.chunks import Chunking


@dataclass(frozen=True, slots=True, eq=False)
class SurvivalOrder:
    """The own nodes of one rank by survival time, longest first: a decayed snapshot has a prefix of them.

    Attributes:
        vertices: (n,) int64, ordered by the position of their chunk in its part's shuffle, then part, then number.
        parts: (n,) int32, the part of each node.
        rows: (C + 1,) int64: the first c chunks of the rank's parts have ``rows[c]`` nodes.

    References: FlareDTDG section 3.3 (survival time, global remapping).
    """

    vertices: NDArray[np.int64]
    parts: NDArray[np.int32]
    rows: NDArray[np.int64]


def survival_order(
    owner: NDArray[np.int32], chunking: Chunking, parts: range, *, seed: int, epoch: int
) -> SurvivalOrder:
    """Order the nodes of some parts by how long their chunks survive, the longest first.

    A part's chunks are shuffled by its own random stream, independent of the other parts on the rank.

    Args:
        owner: (N,) the part of each node.
        chunking: the chunks of these nodes, of the same partition.
        parts: consecutive parts, such as those of a rank.
        seed: of the run.
        epoch: index of the epoch.

    Raises:
        PlanError: a chunk has no nodes.

    References: FlareDTDG section 3.3 (steps 1 and 2 of figure 4).
    Differs from the paper: each part has its own shuffle, so ranks need not exchange it.
    """
    chunks = chunking.chunks
    positions = np.empty((len(parts), chunks), np.int64)
    for row, part in zip(positions, parts, strict=True):
        row[generator(seed, "batching/survival", epoch, part).permutation(chunks)] = np.arange(chunks)
    vertices = np.flatnonzero((owner >= parts.start) & (owner < parts.stop))
    local_part = owner[vertices] - np.int32(parts.start)
    key = positions[local_part, chunking.chunk[vertices]] * len(parts) + local_part
    sizes = np.bincount(key, minlength=chunks * len(parts))
    if not sizes.all():
        part = int(np.flatnonzero(sizes == 0)[0]) % len(parts) + parts.start
        raise PlanError(f"a chunk of part {part} has no nodes. Make the chunks from this partition.")
    order = np.argsort(key.astype(np.uint16) if len(sizes) <= 1 << 16 else key, kind="stable")  # 16 bits: radix sort
    rows = np.concatenate([[0], np.cumsum(sizes.reshape(chunks, len(parts)).sum(axis=1))])
    return SurvivalOrder(vertices[order], owner[vertices][order], rows)


@dataclass(frozen=True, slots=True, eq=False)
class SurvivalRows:
    """An order of survival as index tensors; n own nodes, whose rows in full snapshots are ordered by number.

    Attributes:
        order: on the host.
        vertices: (n,) int64, the nodes' numbers in the graph.
        full_rows: (n,) int64: the row in a full snapshot of each node in this order.
        positions: (n,) int64: the position in this order of each row of a full snapshot.
    """

    order: SurvivalOrder
    vertices: Tensor
    full_rows: Tensor
    positions: Tensor

    @classmethod
    def of(cls, order: SurvivalOrder, device: str) -> SurvivalRows:
        """Return the order as tensors on ``device``."""
        positions = np.argsort(order.vertices)
        tensors = (upload(array, device) for array in (order.vertices, np.argsort(positions), positions))
        return cls(order, *tensors)

    def num_rows(self, chunks: int) -> int:
        """Return the number of rows of a snapshot that has the first ``chunks`` chunks of every part."""
        return int(self.order.rows[chunks])


_OUTSIDE = np.iinfo(np.int32).max  # index of a node that is not in the order: beyond every prefix


@dataclass(frozen=True, slots=True, eq=False)
class ShrunkenEdges:
    """The E edges among n nodes, grouped by the aggregating node; read-only.

    Attributes:
        indptr: (n + 1,) int64: node i aggregates from ``indices[indptr[i]:indptr[i + 1]]``.
        indices: (E,) int32, 0 to n - 1; sorted as in the snapshot's row (``in``) or ascending (``out``).
        weights: (E,) float32, or None for unweighted edges.
        degrees: (n,) float64: weighted degree in this direction, over these edges alone.
        other_degrees: (n,) float64: the same in the opposite direction.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    weights: NDArray[np.float32] | None
    degrees: NDArray[np.float64]
    other_degrees: NDArray[np.float64]

    @property
    def rows(self) -> int:
        """Nodes n."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Edges E."""
        return len(self.indices)


class Shrinker:
    """Decayed snapshots as prefixes of an order of nodes.

    All snapshots of an epoch share one order. So a prefix is cut out of a longer one by comparing indices: its first
    rows, and of their columns those below n. A snapshot's first prefix is taken from the graph, each shorter one from
    the prefix before it. A prefix longer than the stored one is taken from the graph again.

    Args:
        snapshots: of the same N nodes.

    References: FlareDTDG section 3.3.
    Differs from the paper: only the edges of a prefix are renumbered, when they are first needed. The paper renumbers
    all edges of all snapshots before the epoch.
    """

    _order: SurvivalOrder

    def __init__(self, snapshots: Sequence[Snapshot]) -> None:
        self._snapshots = snapshots
        self._number = np.empty(0, np.int32)
        self._one_part = True
        self._prefixes: dict[tuple[int, str], ShrunkenEdges] = {}

    def renumber(self, order: SurvivalOrder) -> None:
        """Set the order of an epoch before :meth:`edges`; edges of the previous order are discarded."""
        self._prefixes.clear()
        self._order = order
        self._number = np.full(self._snapshots[0].num_nodes, _OUTSIDE, np.int32)
        self._number[order.vertices] = np.arange(len(order.vertices), dtype=np.int32)
        self._one_part = bool((order.parts == order.parts[:1]).all())

    def edges(self, t: int, rows: int, direction: str = "in") -> ShrunkenEdges:
        """Return the edges of snapshot t among the first ``rows`` nodes of the order; edges between parts are dropped.

        Costs O(edges of the stored prefix of t); the first time, O(edges into these nodes).

        Args:
            t: index of a snapshot.
            rows: n, 0 to all.
            direction: ``in``: a node aggregates from its in-neighbours; ``out``: from its out-neighbours.
        """
        prefix = self._prefixes.get((t, direction))
        if prefix is not None and prefix.rows == rows:
            return prefix
        if prefix is not None and prefix.rows > rows:
            prefix = _sliced(prefix, rows)
        elif direction == "in":
            prefix = self._cut_out(self._snapshots[t], rows)
        else:
            prefix = _reversed(self.edges(t, rows))
        self._prefixes[t, direction] = prefix
        return prefix

    def keep_only(self, snapshots: range) -> None:
        """Discard the prefixes of all other snapshots."""
        self._prefixes = {key: prefix for key, prefix in self._prefixes.items() if key[0] in snapshots}

    def _cut_out(self, snapshot: Snapshot, rows: int) -> ShrunkenEdges:
        """Cut a prefix out of the whole graph."""
        vertices, parts = self._order.vertices[:rows], self._order.parts[:rows]
        starts = snapshot.indptr[vertices]
        bounds = _cumulative(snapshot.indptr[vertices + 1] - starts)
        lengths = np.diff(bounds)
        edges = np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], lengths)
        numbers = self._number.take(snapshot.indices.take(edges))  # take is several times faster than indexing
        inside = numbers < rows
        if not self._one_part:
            inside &= parts[np.where(inside, numbers, 0)] == np.repeat(parts, lengths)
        selected = np.flatnonzero(inside)
        weights = None if snapshot.weights is None else snapshot.weights.take(edges.take(selected))
        return _with_degrees(_cumulative(inside)[bounds], numbers.take(selected), weights)


def _sliced(edges: ShrunkenEdges, rows: int) -> ShrunkenEdges:
    """Return a shorter prefix of the same snapshot."""
    bounds = edges.indptr[: rows + 1]
    head = edges.indices[: bounds[-1]]
    inside = head < rows
    selected = np.flatnonzero(inside)
    weights = None if edges.weights is None else edges.weights.take(selected)
    return _with_degrees(_cumulative(inside)[bounds], head.take(selected), weights)


def _reversed(edges: ShrunkenEdges) -> ShrunkenEdges:
    """Return the same edges in the opposite direction."""
    rows = np.repeat(np.arange(edges.rows, dtype=np.int32), np.diff(edges.indptr))
    order = np.argsort(edges.indices, kind="stable")  # stable: a row's columns ascend
    weights = None if edges.weights is None else edges.weights[order]
    indptr = _cumulative(np.bincount(edges.indices, minlength=edges.rows))
    return _read_only(ShrunkenEdges(indptr, rows[order], weights, edges.other_degrees, edges.degrees))


def _cumulative(counts: NDArray[np.integer] | NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the exclusive prefix sums, followed by the total."""
    sums = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums


def _with_degrees(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], weights: NDArray[np.float32] | None
) -> ShrunkenEdges:
    """Return the edges with the degrees that they alone induce."""
    rows = len(indptr) - 1
    if weights is None:
        degrees = np.diff(indptr).astype(np.float64)
    else:
        degrees = np.bincount(np.repeat(np.arange(rows), np.diff(indptr)), weights, rows).astype(np.float64)
    reverse_degrees = np.bincount(indices, weights, rows).astype(np.float64)
    return _read_only(ShrunkenEdges(indptr, indices, weights, degrees, reverse_degrees))


def _read_only(edges: ShrunkenEdges) -> ShrunkenEdges:
    for array in (edges.indptr, edges.indices, edges.weights, edges.degrees, edges.other_degrees):
        if array is not None:
            array.setflags(write=False)
    return edges


# Views of decayed snapshots.


class LocalRows(NeighbourRows):
    """Own rows alone: edges between parts were dropped. Candidates for the k best rows come from all ranks.

    Args:
        exchanger: gathers candidates.
        group: the ranks.
        vertices: (n,) the nodes' numbers in the graph, in the order of the rows.
    """

    def __init__(self, exchanger: Exchanger, group: Group, vertices: Tensor) -> None:
        self._exchanger, self._group, self._vertices = exchanger, group, vertices

    def candidates(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k best of every rank, by node."""
        vertices, order = torch.sort(self._vertices)
        rows = HaloRows(self._exchanger, self._group, _no_route, vertices)
        return rows.candidates(x.index_select(0, order), scores.index_select(0, order), k)


def _no_route(direction: str) -> Route:
    raise AssertionError("a decayed snapshot exchanges no rows")


class ShrunkenViews:
    """Builds the view of a decayed snapshot: its first nodes in the order of survival, and the edges among them.

    Norms are computed from the remaining edges.

    Args:
        graph: T snapshots.
        settings: of operators.
        exchanger: gathers candidates of all ranks.
        group: the ranks.
        directions: edge directions that the model aggregates along.

    Attributes:
        edges: number of edges of the views made since it was set to 0.
    """

    _rows: SurvivalRows

    def __init__(
        self,
        graph: DynamicGraph,
        settings: OperatorSettings,
        exchanger: Exchanger,
        group: Group,
        directions: tuple[str, ...],
    ) -> None:
        self._graph, self._settings, self._exchanger, self._group = graph, settings, exchanger, group
        self._shrinker, self._directions = Shrinker(graph.snapshots), directions
        self.edges = 0

    def renumber(self, rows: SurvivalRows) -> None:
        """Set the order of an epoch before :meth:`view`."""
        self._rows = rows
        self._shrinker.renumber(rows.order)

    def keep_only(self, snapshots: range) -> None:
        """Discard the edges of all other snapshots."""
        self._shrinker.keep_only(snapshots)

    def view(self, t: int, rows: int, num_nodes: int) -> SnapshotView:
        """Return the view of snapshot t with its first ``rows`` nodes on this rank and ``num_nodes`` on all ranks."""
        edges = {direction: self._part_edges(t, rows, direction) for direction in self._directions}
        self.edges += sum(len(part.indices) for part in edges.values())

        def part_edges(direction: str) -> PartEdges:  # first the edges above; later calls cut them out again
            return edges.pop(direction) if direction in edges else self._part_edges(t, rows, direction)

        operators = Operators(LocalSource(part_edges, self._settings), self._settings)
        features = self._graph.features[t][self._rows.order.vertices[:rows]]
        inputs = upload(features, self._settings.device).to(self._settings.dtype)
        neighbours = LocalRows(self._exchanger, self._group, self._rows.vertices[:rows])
        return SnapshotView(
            operators, range(t, t + 1), inputs, neighbours, num_nodes=num_nodes, may_keep=lambda size: False
        )

    def _part_edges(self, t: int, rows: int, direction: str) -> PartEdges:
        edges = self._shrinker.edges(t, rows, direction)
        return PartEdges(edges.indptr, edges.indices, edges.weights, rows, edges.degrees, edges.other_degrees)
