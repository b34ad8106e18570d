"""Decayed snapshots: edges that are prefixes of one node order, and the order in which nodes survive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.rng import generator
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.exchange.exchanger import Exchanger, Route
from dtdg_lab.engine.exchange.halo import HaloRows
from dtdg_lab.engine.loader import Loader
from dtdg_lab.engine.views.snapshot_view import NeighbourRows, SnapshotView
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels.device_snapshot import DeviceSnapshot, edge_rows
from dtdg_lab.kernels.operators import Operators, OperatorSettings, SnapshotSource, checked
from dtdg_lab.kernels.uploads import as_tensor, upload
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
    """The E edges among n nodes, grouped by the aggregating node; read-only by convention.

    Attributes:
        indptr: (n + 1,) int32: node i aggregates from ``indices[indptr[i]:indptr[i + 1]]``.
        indices: (E,) int32, 0 to n - 1; in each row in the order of the snapshot.
        weights: (E,) float32, or None for unweighted edges.
        levels: (E,) int32: the larger of an edge's two nodes; the first k nodes have the edges with a level below k.
        counts: (n + 1,) int64 or longer, on the host: number of edges among the first 0, 1, 2 .. nodes.
    """

    indptr: Tensor
    indices: Tensor
    weights: Tensor | None
    levels: Tensor
    counts: NDArray[np.int64]

    @classmethod
    def of(
        cls, indptr: NDArray[np.int64], indices: NDArray[np.int32], weights: NDArray[np.float32] | None
    ) -> ShrunkenEdges:
        """Return edges in these host arrays, whose memory is shared where possible."""
        rows = len(indptr) - 1
        kind = np.int32 if len(indices) <= _OUTSIDE else np.int64  # torch needs one type for both
        levels = np.maximum(indices, np.repeat(np.arange(rows, dtype=np.int32), np.diff(indptr)))
        return cls(
            as_tensor(indptr.astype(kind)),
            as_tensor(indices.astype(kind, copy=False)),
            None if weights is None else as_tensor(weights),
            as_tensor(levels),
            _cumulative(np.bincount(levels, minlength=rows)),
        )

    @property
    def rows(self) -> int:
        """Nodes n."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Edges E."""
        return len(self.indices)

    def on(self, device: str) -> ShrunkenEdges:
        """Return the edges on a device."""
        weights = None if self.weights is None else upload(self.weights, device)
        indptr, indices, levels = (upload(x, device) for x in (self.indptr, self.indices, self.levels))
        return ShrunkenEdges(indptr, indices, weights, levels, self.counts)

    def first(self, rows: int) -> ShrunkenEdges:
        """Return the edges among the first ``rows`` nodes: a slice of rows, and of their edges those that stay.

        The number of edges is known on the host, so that the host never waits for the device.
        """
        count, inside = int(self.counts[rows]), self.levels < rows
        before = inside.new_zeros(len(inside) + 1, dtype=torch.int64)  # edges that stay, before each edge
        torch.cumsum(inside, 0, out=before[1:])
        places = torch.where(inside, before[:-1], count)  # the others overwrite each other behind the last

        def compacted(values: Tensor) -> Tensor:
            return values.new_empty(count + 1).scatter_(0, places, values)[:count]

        indptr = before.index_select(0, self.indptr[: rows + 1])
        weights = None if self.weights is None else compacted(self.weights)
        indices, levels = compacted(self.indices), compacted(self.levels)
        return ShrunkenEdges(indptr.to(self.indptr.dtype), indices, weights, levels, self.counts)


@dataclass(frozen=True, slots=True, eq=False)
class Numbering:
    """The numbers of nodes in an order, for cutting its prefixes out of snapshots.

    Attributes:
        order: of survival.
        numbers: (N,) int32: the position of each node in the order, far beyond its end if it has none.
        is_one_part: True if all its nodes are of one part.
    """

    order: SurvivalOrder
    numbers: NDArray[np.int32]
    is_one_part: bool

    @classmethod
    def of(cls, order: SurvivalOrder, num_nodes: int) -> Numbering:
        """Number the nodes of an order among N nodes."""
        numbers = np.full(num_nodes, _OUTSIDE, np.int32)
        numbers[order.vertices] = np.arange(len(order.vertices), dtype=np.int32)
        return cls(order, numbers, bool((order.parts == order.parts[:1]).all()))

    def cut_out(self, snapshot: Snapshot, rows: int) -> ShrunkenEdges:
        """Return the edges of a snapshot among the first ``rows`` nodes, on the host; edges between parts are dropped.

        Costs O(edges into these nodes).
        """
        vertices, parts = self.order.vertices[:rows], self.order.parts[:rows]
        starts = snapshot.indptr[vertices]
        bounds = _cumulative(snapshot.indptr[vertices + 1] - starts)
        lengths = np.diff(bounds)
        edges = np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], lengths)
        numbers = self.numbers.take(snapshot.indices.take(edges))  # take is several times faster than indexing
        inside = numbers < rows
        if not self.is_one_part:
            inside &= parts[np.where(inside, numbers, 0)] == np.repeat(parts, lengths)
        selected = np.flatnonzero(inside)
        weights = None if snapshot.weights is None else snapshot.weights.take(edges.take(selected))
        return ShrunkenEdges.of(_cumulative(inside)[bounds], numbers.take(selected), weights)


class Shrinker:
    """Decayed snapshots as prefixes of an order of nodes, on a device.

    All snapshots of an epoch share one order. So a prefix is cut out of a longer one by comparing indices: its first
    rows, and of their columns those below n. A snapshot's first prefix is cut out of the graph on the host and copied,
    each shorter one out of the prefix before it, on the device. A prefix longer than the stored one is cut out of the
    graph again.

    Args:
        snapshots: of the same N nodes.
        device: of the edges.
        loader: cuts first prefixes out ahead of time; None to cut each one out when it is asked for.

    References: FlareDTDG section 3.3.
    Differs from the paper: only the edges of a prefix are renumbered, when they are first needed. The paper renumbers
    all edges of all snapshots before the epoch.
    """

    _numbering: Numbering

    def __init__(self, snapshots: Sequence[Snapshot], device: str = "cpu", loader: Loader | None = None) -> None:
        self._snapshots, self._device = snapshots, device
        self._loader = Loader(ahead=False) if loader is None else loader
        self._prefixes: dict[int, ShrunkenEdges] = {}

    def renumber(self, order: SurvivalOrder) -> None:
        """Set the order of an epoch before :meth:`edges`; edges of the previous order are discarded."""
        self._prefixes.clear()
        self._loader.forget()
        self._numbering = Numbering.of(order, self._snapshots[0].num_nodes)

    def edges(self, t: int, rows: int) -> ShrunkenEdges:
        """Return the edges of snapshot t among the first ``rows`` nodes of the order; edges between parts are dropped.

        Costs O(edges of the stored prefix of t); the first time, O(edges into these nodes).

        Args:
            t: index of a snapshot.
            rows: n, 0 to all.
        """
        prefix = self._prefixes.get(t)
        if prefix is None or prefix.rows < rows:
            prefix = self._loader.take(("edges", t, rows), self._cutting(t, rows)).on(self._device)
        elif prefix.rows > rows:
            prefix = prefix.first(rows)
        self._prefixes[t] = prefix
        return prefix

    def prepare(self, t: int, rows: int) -> None:
        """Have the first ``rows`` nodes of snapshot t cut out ahead of time, unless they are a part of a prefix."""
        prefix = self._prefixes.get(t)
        if prefix is None or prefix.rows < rows:
            self._loader.request(("edges", t, rows), self._cutting(t, rows))

    def keep_only(self, snapshots: range) -> None:
        """Discard the prefixes of all other snapshots."""
        self._prefixes = {t: prefix for t, prefix in self._prefixes.items() if t in snapshots}

    def _cutting(self, t: int, rows: int) -> Callable[[], ShrunkenEdges]:
        return partial(self._numbering.cut_out, self._snapshots[t], rows)


def _cumulative(counts: NDArray[np.integer] | NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the exclusive prefix sums, followed by the total."""
    sums = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums


class PrefixSource(SnapshotSource):
    """Edges of a decayed snapshot, with the degrees that they alone induce, summed in double precision.

    Args:
        edges: of n nodes.
        settings: of operators.
    """

    def __init__(self, edges: ShrunkenEdges, settings: OperatorSettings) -> None:
        snapshot = DeviceSnapshot(edges.indptr, edges.indices, edges.weights)
        super().__init__(snapshot, range(edges.rows), settings)
        self._edges = snapshot

    def row_degrees(self, direction: str) -> Tensor:
        """Return the weighted degree of each node along a direction, (n,)."""
        return self.column_degrees(direction)

    def column_degrees(self, direction: str) -> Tensor:
        """Return the weighted degree of each node along a direction, (n,).

        Raises:
            UnsupportedError: there is no such direction.
        """
        if direction not in self._degrees:
            degrees = self._sums(self._edges, is_in=checked(direction) == "in")
            self._degrees[direction] = degrees.to(self._settings.dtype)
        return self._degrees[direction]

    @staticmethod
    def _sums(edges: DeviceSnapshot, *, is_in: bool) -> Tensor:
        if edges.weights is None and is_in:
            return edges.indptr.diff()
        nodes = edge_rows(edges.indptr, edges.num_edges) if is_in else edges.indices
        ones = edges.indptr.new_ones(1, dtype=torch.float64).expand(edges.num_edges)
        sums = edges.indptr.new_zeros(edges.num_nodes, dtype=torch.float64)
        return sums.index_add_(0, nodes, ones if edges.weights is None else edges.weights.double())


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
        ahead: whether a thread prepares snapshots ahead of time.

    Attributes:
        edges: number of edges of the views made since it was set to 0, over all directions.
    """

    _rows: SurvivalRows

    def __init__(
        self,
        graph: DynamicGraph,
        settings: OperatorSettings,
        exchanger: Exchanger,
        group: Group,
        directions: tuple[str, ...],
        *,
        ahead: bool = False,
    ) -> None:
        self._graph, self._settings, self._exchanger, self._group = graph, settings, exchanger, group
        self._loader = Loader(ahead=ahead)
        self._shrinker = Shrinker(graph.snapshots, settings.device, self._loader)
        self._num_directions, self._is_static = len(directions), graph.static_features
        self._inputs: dict[int, Tensor] = {}
        self.edges = 0

    def renumber(self, rows: SurvivalRows) -> None:
        """Set the order of an epoch before :meth:`view`."""
        self._rows = rows
        self._inputs.clear()
        self._shrinker.renumber(rows.order)

    def keep_only(self, snapshots: range) -> None:
        """Discard the edges and features of all other snapshots."""
        self._shrinker.keep_only(snapshots)
        if not self._is_static:
            self._inputs = {t: inputs for t, inputs in self._inputs.items() if t in snapshots}

    def view(self, t: int, rows: int, num_nodes: int) -> SnapshotView:
        """Return the view of snapshot t with its first ``rows`` nodes on this rank and ``num_nodes`` on all ranks."""
        edges = self._shrinker.edges(t, rows)
        self.edges += edges.num_edges * self._num_directions
        operators = Operators(PrefixSource(edges, self._settings), self._settings)
        neighbours = LocalRows(self._exchanger, self._group, self._rows.vertices[:rows])
        inputs, snapshots = self._first_inputs(t, rows), range(t, t + 1)
        return SnapshotView(operators, snapshots, inputs, neighbours, num_nodes=num_nodes, may_keep=lambda size: False)

    def prepare(self, t: int, rows: int) -> None:
        """Prepare what :meth:`view` needs of a snapshot that no view has shown, while this step computes."""
        self._shrinker.prepare(t, rows)
        if not self._is_static and t not in self._inputs:
            self._loader.request(("features", t, rows), self._gathering(t, rows))

    def forget_requests(self) -> None:
        """Forget what was prepared and not taken, for a window whose shape has changed since."""
        self._loader.forget()

    def close(self) -> None:
        """Stop preparing ahead; idempotent."""
        self._loader.close()

    def _first_inputs(self, t: int, rows: int) -> Tensor:
        """Return the features of the first ``rows`` nodes: a prefix of those of the view before, where it has them."""
        if self._is_static:  # all snapshots share one tensor
            if not self._inputs:
                self._inputs[0] = self._moved(self._gathering(0, len(self._rows.vertices))())
            return self._inputs[0][:rows]
        inputs = self._inputs.get(t)
        if inputs is None or len(inputs) < rows:
            inputs = self._moved(self._loader.take(("features", t, rows), self._gathering(t, rows)))
        elif len(inputs) > rows:
            inputs = inputs[:rows].clone()  # the rest is freed
        self._inputs[t] = inputs
        return inputs

    def _gathering(self, t: int, rows: int) -> Callable[[], NDArray[np.float32]]:
        features, vertices = self._graph.features, self._rows.order.vertices[:rows]
        return lambda: features[t][vertices]

    def _moved(self, features: NDArray[np.float32]) -> Tensor:
        return upload(features, self._settings.device).to(self._settings.dtype)
