"""Edges along which one part of a partition pulls, from its own rows and from other parts' rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import HaloPlan, Partition
from dtdg_lab.graphs.snapshot import Snapshot, read_only
from dtdg_lab.kernels.operators import OperatorSettings, checked
from dtdg_lab.kernels.spmm import Adjacency
from dtdg_lab.kernels.uploads import upload
from dtdg_lab.partition.measures import distinct_rows, pulls_of


@dataclass(frozen=True, slots=True, eq=False)
class PartEdges:
    """n rows and the E edges that they aggregate over, with M columns; the first n columns are the rows themselves.

    Attributes:
        indptr: (n + 1,) int64: row i pulls from ``indices[indptr[i]:indptr[i + 1]]``.
        indices: (E,) int32, columns 0 to M - 1, in each row in the order of the whole graph.
        weights: (E,) float32, or None if edges carry no weight.
        columns: number of columns, M.
        degrees: (M,) float64: weighted degree of each column along this direction, in the whole graph.
        other_degrees: (M,) float64: the same along the other direction.
        neighbours: (n,) neighbours of each row in the whole graph, if edges are sampled: weights are then scaled by
            neighbours over sampled neighbours. None without sampling.
        weighted: whether edges of the graph carry weights; else weights come from sampling alone.

    Raises:
        PlanError: the arrays do not fit together.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    weights: NDArray[np.float32] | None
    columns: int
    degrees: NDArray[np.float64]
    other_degrees: NDArray[np.float64]
    neighbours: NDArray[Any] | None = None
    weighted: bool = True

    def __post_init__(self) -> None:
        edges, columns = len(self.indices), self.columns
        lengths = (len(self.indptr) - 1, int(self.indptr[-1]), len(self.degrees), len(self.other_degrees))
        if lengths[0] > columns or lengths[1] != edges or lengths[2] != columns or lengths[3] != columns:
            raise PlanError(
                f"{lengths[0]} rows with {lengths[1]} edges do not fit {edges} indices, {columns} columns and degrees "
                f"of {lengths[2]} and {lengths[3]} columns: rows are the first columns, and every column has two "
                "degrees."
            )
        if self.weights is not None and self.weights.shape != self.indices.shape:
            raise PlanError(f"{len(self.weights)} weights for {edges} edges. Give one weight for each edge, or none.")
        if self.neighbours is not None and len(self.neighbours) != lengths[0]:
            raise PlanError(f"neighbours has {len(self.neighbours)} entries for {lengths[0]} rows. Give one a row.")
        if edges and not (self.indices.min() >= 0 and self.indices.max() < columns):
            raise PlanError(
                f"edges come from columns {self.indices.min()} to {self.indices.max()}, but columns are 0 to "
                f"{columns - 1}."
            )

    @property
    def rows(self) -> int:
        """Number of rows, n."""
        return len(self.indptr) - 1

    def first(self, rows: int) -> PartEdges:
        """Return the first ``rows`` rows, over the same columns."""
        end = int(self.indptr[rows])
        return PartEdges(
            self.indptr[: rows + 1],
            self.indices[:end],
            None if self.weights is None else self.weights[:end],
            self.columns,
            self.degrees,
            self.other_degrees,
            None if self.neighbours is None else self.neighbours[:rows],
            self.weighted,
        )


class LocalSource:
    """Edges of one part as an :class:`dtdg_lab.kernels.operators.EdgeSource`.

    Row i is column i. Degrees are those of the whole graph, even if some edges are missing here: a mean over a
    truncated neighbourhood divides by the true degree.

    Args:
        edges: returns the edges along a direction, ``in`` or ``out``; called for each on first use, and again after
            ``release``. The two directions may have different columns.
        settings: backend, type and device of the products.
    """

    first = 0

    def __init__(self, edges: Callable[[str], PartEdges], settings: OperatorSettings) -> None:
        self._load_edges, self._settings = edges, settings
        self._edges: dict[str, PartEdges] = {}
        self._adjacencies: dict[str, Adjacency] = {}

    def adjacency(self, direction: str) -> Adjacency:
        """Return the adjacency along which rows pull, (n, M).

        Raises:
            UnsupportedError: there is no such direction.
        """
        if direction not in self._adjacencies:
            edges, make = self._of(direction), self._settings.adjacency
            self._adjacencies[direction] = make(edges.indptr, edges.indices, edges.weights, columns=edges.columns)
        return self._adjacencies[direction]

    def row_degrees(self, direction: str) -> Tensor:
        """Return the weighted degree of each row along a direction, (n,), in the whole graph."""
        edges = self._of(direction)
        return self._moved(edges.degrees[: edges.rows])

    def column_degrees(self, direction: str) -> Tensor:
        """Return the weighted degree of each column of ``adjacency("in")`` along a direction, (M,), in the graph."""
        into = self._of("in")
        return self._moved(into.degrees if checked(direction) == "in" else into.other_degrees)

    def sampled_share(self, direction: str) -> Tensor | None:
        """Return the sampled share of each row's neighbours, (n,), 1 for no sample; None without sampling."""
        edges = self._of(direction)
        if edges.neighbours is None:
            return None
        counts = np.diff(edges.indptr)
        return self._moved(np.where(counts > 0, counts / np.maximum(edges.neighbours, 1), 1.0))

    def own_weights(self, direction: str) -> Tensor | None:
        """Return the weight of each edge in the graph, (E,); None if edges carry no weight."""
        weights, share = self.adjacency(direction).weights, self.sampled_share(direction)
        if weights is None or share is None:
            return weights
        return (
            weights * share.index_select(0, self.adjacency(direction).edge_rows())
            if self._of(direction).weighted
            else None
        )

    def release(self) -> None:
        """Free all edges and adjacencies; they are rebuilt on demand."""
        self._edges.clear()
        self._adjacencies.clear()

    def _of(self, direction: str) -> PartEdges:
        if direction not in self._edges:
            self._edges[direction] = self._load_edges(checked(direction))
        return self._edges[direction]

    def _moved(self, degrees: NDArray[np.float64]) -> Tensor:
        return upload(degrees, self._settings.device).to(self._settings.dtype)


def part_edges(
    snapshots: Sequence[Snapshot], partition: Partition, part: int, direction: str = "in"
) -> tuple[PartEdges, HaloPlan]:
    """Return a part's edges in S stacked snapshots, and the halo plan of the rows that it receives.

    Row and column s n + i belong to own node i (of n, ascending) in snapshot s. After these S n columns come the
    received rows, ordered by owner, then snapshot, then node, as in :class:`dtdg_lab.core.plans.HaloPlan`.

    Args:
        snapshots: S snapshots of the same N nodes.
        partition: partition of the nodes into P parts.
        part: number of the part.
        direction: ``in``: a node pulls from its in-neighbours; ``out``: from its out-neighbours.

    Raises:
        PlanError: the partition has other nodes, there are no snapshots, or there is no such part or direction.
    """
    if not snapshots or not 0 <= part < partition.parts:
        raise PlanError(
            f"part {part} in {len(snapshots)} snapshots does not exist. Choose a part from 0 to {partition.parts - 1} "
            "and at least one snapshot."
        )
    exchanged = [_exchanged(snapshot, partition, part, direction) for snapshot in snapshots]
    vertices = partition.vertices(part)
    sent, send_order, send_counts = _by_part([send for send, _ in exchanged], partition.parts)
    received, order, receive_counts = _by_part([receive for _, receive in exchanged], partition.parts)
    position = np.empty_like(order)
    position[order] = np.arange(len(order))  # of each received row, in snapshot order
    bounds = np.cumsum([0, *(len(receive[1]) for _, receive in exchanged)])

    number = np.zeros(len(partition.owner), np.int64)  # column of each node in the current snapshot
    number[vertices] = np.arange(len(vertices))
    stacked_own = np.repeat(np.arange(len(snapshots)) * len(vertices), [len(send[1]) for send, _ in exchanged])
    plan = HaloPlan(part, (stacked_own + number[sent])[send_order], send_counts, receive_counts)

    columns = len(snapshots) * len(vertices) + len(received)
    degrees = np.empty((2, columns))
    pieces = []
    for s, snapshot in enumerate(snapshots):
        first = s * len(vertices)
        halo = received[bounds[s] : bounds[s + 1]]
        halo_columns = len(snapshots) * len(vertices) + position[bounds[s] : bounds[s + 1]]
        lengths, sources, weights = _pulls(snapshot, vertices, direction)
        number[vertices] = np.arange(first, first + len(vertices))
        number[halo] = halo_columns
        pieces.append((lengths, number[sources].astype(np.int32), weights))
        for row, degree in zip(degrees, _degrees(snapshot, direction), strict=True):
            row[first : first + len(vertices)] = degree[vertices]
            row[halo_columns] = degree[halo]
    return _joined(pieces, columns, degrees), plan


Ends = tuple[NDArray[np.int64], NDArray[np.int64]]


def _exchanged(snapshot: Snapshot, partition: Partition, part: int, direction: str) -> tuple[Ends, Ends]:
    """Return the rows that a part sends and receives in one snapshot, as (other part, node), sorted."""
    to, source = pulls_of(snapshot, partition, direction)
    owners = partition.owner[source]
    cut = np.flatnonzero((to != owners) & ((to == part) | (owners == part)))
    to_part, rows = distinct_rows(to[cut], source[cut], partition)
    is_received = to_part == part
    received = rows[is_received]
    return (to_part[~is_received], rows[~is_received]), (partition.owner[received].astype(np.int64), received)


def _by_part(ends: list[Ends], parts: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Concatenate the nodes of all snapshots; return them, their order by part, and the count of each part."""
    owners = np.concatenate([part_ids for part_ids, _ in ends])
    vertices = np.concatenate([vertex for _, vertex in ends])
    return vertices, np.argsort(owners, kind="stable"), np.bincount(owners, minlength=parts)


def _pulls(
    snapshot: Snapshot, own_vertices: NDArray[np.int64], direction: str
) -> tuple[NDArray[np.int64], NDArray[Any], Any]:
    """Return the number of edges that each node pulls along, (n,), their sources, ascending, (E,), and weights."""
    indptr, vertices = snapshot.indptr, snapshot.num_nodes
    if direction == "in":
        lengths = np.diff(indptr)[own_vertices]
        starts = np.cumsum(lengths) - lengths
        edges = np.repeat(indptr[own_vertices] - starts, lengths) + np.arange(lengths.sum())
        return lengths, snapshot.indices[edges], None if snapshot.weights is None else snapshot.weights[edges]
    is_own = np.zeros(vertices, bool)
    is_own[own_vertices] = True
    edges = np.flatnonzero(is_own[snapshot.indices])
    pulling = snapshot.indices[edges]
    keys = pulling * np.int64(vertices) + snapshot.rows()[edges]
    lengths = np.bincount(pulling, minlength=vertices)[own_vertices]
    if snapshot.weights is None:
        keys.sort()  # sorting is several times faster than finding the order
        return lengths, keys % vertices, None
    order = np.argsort(keys)
    return lengths, keys[order] % vertices, snapshot.weights[edges[order]]


def _degrees(snapshot: Snapshot, direction: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the weighted degrees of all nodes along the direction and along the other one, (N,) each."""
    into, out = snapshot.in_degrees(), snapshot.out_degrees()
    return (into, out) if direction == "in" else (out, into)


def _joined(pieces: list[tuple[NDArray[np.int64], NDArray[np.int32], Any]], columns: int, degrees: Any) -> PartEdges:
    """Concatenate the rows of snapshots."""
    indptr = read_only(np.cumsum(np.concatenate([[0], *(lengths for lengths, _, _ in pieces)])))
    indices = read_only(np.concatenate([indices for _, indices, _ in pieces]))
    weights = [part for _, _, part in pieces if part is not None]
    joined = read_only(np.concatenate(weights)) if weights else None
    return PartEdges(indptr, indices, joined, columns, *read_only(degrees))
