"""Halo exchange between node partitions (ADGNN-T): the rows of each layer, and their record of bytes and times."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.core.errors import PlanError, UnsupportedError
from dtdg_lab.core.plans import HaloPlan, Partition
from dtdg_lab.distributed.all_to_all import Arrived, PendingRows
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine import graph_view
from dtdg_lab.engine.graph_view import DeviceSequence, NeighbourRows, SnapshotView, StoredSequence
from dtdg_lab.engine.record_rows import ExchangeRow, LinkRow
from dtdg_lab.engine.strategy import BuildContext, StepMarks
from dtdg_lab.engine.turns import pause
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot, give_up
from dtdg_lab.kernels.operators import Operators, OperatorSettings, checked, keep_freed_memory
from dtdg_lab.kernels.spmm import Adjacency
from dtdg_lab.partition.halo import distinct_rows, pulls_of

# Seconds in which rows travelled, and how much of them the rank stood still for, by layer, pass and collective.


class CollectiveTimes:
    """What has been waited for since the last drain. Seconds in which several exchanges travel count once."""

    def __init__(self) -> None:
        self._flights: dict[tuple[int, str, str], list[tuple[float, float, float]]] = {}  # begin, end, exposed

    def add(self, layer: int, pass_name: str, collective: str, found: Arrived) -> None:
        """Note an exchange that has been waited for."""
        flight = (found.started_s, found.started_s + found.in_flight_s, found.exposed_s)
        self._flights.setdefault((layer, pass_name, collective), []).append(flight)

    def drain(self) -> list[ExchangeRow]:
        """Return and forget the times, by layer, pass and collective."""
        times, self._flights = self._flights, {}
        return [
            ExchangeRow(*key, len(flights), covered_s(flights), sum(exposed_s for *_, exposed_s in flights))
            for key, flights in times.items()
        ]


def covered_s(flights: list[tuple[float, float, float]]) -> float:
    """Seconds in which at least one of some intervals (begin, end, ..) lies."""
    total, until = 0.0, float("-inf")
    for begin, end, _ in sorted(flights):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


# Rows of one rank's nodes where another rank's nodes pull from them; gradients go back the way they came.


_PASSES = ("forward", "backward", "rerun")
NO_LAYER = -1  # rows of all nodes are no layer's halo


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """A halo plan on a device: made once where the same rows are exchanged again and again.

    Attributes:
        send: (s,) int64 rows to be sent, those for rank 0 first.
        send_counts: (R,) rows for each rank.
        receive_counts: (R,) rows from each.
        least_rows: rows that a tensor must have to be sent from.
    """

    send: Tensor
    send_counts: tuple[int, ...]
    receive_counts: tuple[int, ...]
    least_rows: int

    @classmethod
    def of(cls, plan: HaloPlan, device: str | torch.device = "cpu") -> Route:
        """The plan's rows as a tensor on ``device``."""
        send = torch.tensor(plan.send, device=device)
        return cls(
            send,
            tuple(plan.send_counts.tolist()),
            tuple(plan.receive_counts.tolist()),
            int(plan.send.max(initial=-1)) + 1,
        )

    def added_up(self, rows: Tensor, shape: Sequence[int]) -> Tensor:
        """What came back of the rows sent, added up where each was sent from: (s, F) -> ``shape``."""
        total = rows.new_zeros(shape)
        # rank by rank: within one rank's rows none comes twice, so that a sum has the same order on every device
        for index, part in zip(self.send.split(self.send_counts), rows.split(self.send_counts), strict=True):
            total.index_add_(0, index, part)
        return total


@dataclass(frozen=True, slots=True)
class Started:
    """An exchange that was started: its rows on their way, and what it is noted as."""

    pending: PendingRows
    layer: int
    pass_name: str
    collective: str


class Exchanger:
    """Exchanges rows with the other ranks, in forward and in backward, and takes down what went where.

    Every rank must ask the same in the same order, also where it has nothing to send: backward follows the order of
    forward in reverse, so ranks whose tensors are made by the same operations stay in step. Ranks that do not are found
    out by what travels in front of the rows (:func:`dtdg_lab.distributed.all_to_all.start_rows`). On a GPU backward
    runs in a
    thread of autograd's while the one that asked for it waits: one thread at a time is here.

    Args:
        group: the processes; rank r executes part r of the plans.
        marks: called where an exchange begins and ends; may be replaced.
        name: of its exchanges in records.
        ranks: by its place in the group, each one's number in records; the places themselves where None.

    Attributes:
        marks: as above.
        forward_way: pass in records: ``forward``, or ``rerun`` while a time block is recomputed.
        links: (layer, that or ``backward``) -> (2, R) rows and bytes sent to each rank since the last drain.
            Rows that :meth:`gather` sends without a layer are only in the group's bytes.
        times: seconds of all of them.
    """

    def __init__(
        self, group: Group, marks: StepMarks | None = None, *, name: str = "halo", ranks: Sequence[int] | None = None
    ) -> None:
        self.marks = StepMarks() if marks is None else marks
        self.times, self._name, self._ranks = CollectiveTimes(), name, range(group.size) if ranks is None else ranks
        self.forward_pass = "forward"
        self.links: dict[tuple[int, str], NDArray[np.int64]] = {}
        self._group = group
        self._exchanges = 0

    def pull(self, x: Tensor, plan: HaloPlan | Route, layer: int) -> Tensor:
        """Rows that this rank's nodes pull from and other ranks own, (h, F); differentiable once.

        Args:
            x: (S n, F) this rank's own rows, of S stacked snapshots; of 4 or 8 bytes a number.
            plan: for these snapshots, and for as many parts as there are ranks.
            layer: of the model, for the record.

        Raises:
            PlanError: the plan is not for this number of ranks or rows.
            RunFailedError: another rank is in another exchange.
        """
        return self._between_ranks(x, self.checked(x, plan), layer)

    def checked(self, x: Tensor, plan: HaloPlan | Route) -> Route:
        """The route of a plan that fits the ranks and the rows.

        Raises:
            PlanError: it does not.
        """
        route = plan if isinstance(plan, Route) else Route.of(plan, x.device)
        if len(route.send_counts) != self._group.size or route.least_rows > len(x):
            raise PlanError(
                f"a halo plan for {len(route.send_counts)} part(s) and {route.least_rows} or more own rows does not "
                f"fit {self._group.size} rank(s) and {len(x)} own rows. Make it of a partition merged by "
                "Partition.on_ranks, for the snapshots that are stacked."
            )
        return route

    def gather(self, x: Tensor, counts: Sequence[int], layer: int = NO_LAYER) -> Tensor:
        """All ranks' rows in rank order, (sum(counts), F); differentiable once: gradients are summed over ranks.

        Args:
            x: (n, F) this rank's rows.
            counts: (R,) rows of each rank.
            layer: of the model, for the record; if missing, it is not recorded in links.

        Raises:
            PlanError: the counts do not fit the ranks or the rows.
            RunFailedError: another rank is in another exchange.
        """
        rank, ranks = self._group.rank, self._group.size
        if len(counts) != ranks or counts[rank] != len(x):
            raise PlanError(
                f"rank {rank} has {len(x)} rows, but the counts of {ranks} rank(s) are said to be {list(counts)}. "
                "Give the rows of every rank, in rank order."
            )
        if ranks == 1:
            return x
        others = [0 if other == rank else 1 for other in range(ranks)]
        send = torch.arange(len(x), device=x.device).repeat(ranks - 1)
        mine, theirs = [len(x) * one for one in others], [int(n) * one for n, one in zip(counts, others, strict=True)]
        rows = self._between_ranks(x, Route(send, tuple(mine), tuple(theirs), len(x)), layer)
        lower, higher = rows.split([sum(theirs[:rank]), sum(theirs[rank:])])
        return torch.cat([lower, x, higher])

    def drain(self) -> list[LinkRow]:
        """Return and forget what each link carried; links without rows are left out."""
        links, self.links = self.links, {}
        return [
            LinkRow(layer, pass_name, to, int(rows), int(moved))
            for (layer, pass_name), sent in links.items()
            for to, (rows, moved) in zip(self._ranks, sent.T, strict=True)
            if rows
        ]

    def _between_ranks(self, x: Tensor, route: Route, layer: int) -> Tensor:
        if self._group.size == 1:  # a single rank
            return x.new_zeros((0, *x.shape[1:]))
        flight = PendingExchange(self, route, layer)
        received: Tensor = _Land.apply(_Leave.apply(x, flight), flight)
        return received

    def start(
        self, rows: Tensor, send: Sequence[int], receive: Sequence[int], layer: int, pass_name: str, *, name: str = ""
    ) -> Started:
        """Let rows leave; every rank must start the same exchanges in the same order, and finish each once.

        What a rank sends itself moves nowhere. ``name`` replaces that of the exchanger in records.
        """
        place = (self._exchanges, layer, _PASSES.index(pass_name))
        self._exchanges += 1
        if layer != NO_LAYER:
            link = self.links.setdefault((layer, pass_name), np.zeros((2, self._group.size), dtype=np.int64))
            row_bytes = math.prod(rows.shape[1:]) * rows.element_size()
            moved = [0 if to == self._group.rank else count for to, count in enumerate(send)]
            link += np.outer([1, row_bytes], moved)
        pending = self._group.start_exchange(rows, send, receive, tag=place)
        return Started(pending, layer, pass_name, name or self._name)

    def finish(self, started: Started) -> Arrived:
        """Wait for what was started; only what is stood still for counts as an exchange in the step's phases."""
        self.marks("compute")
        found = started.pending.wait()
        self.marks.exchange(found.wait_s)
        self.times.add(started.layer, started.pass_name, started.collective, found)
        return found


def refuse_second_gradients() -> None:
    """Called in backward of what crosses ranks.

    Raises:
        UnsupportedError: the gradient is to have a gradient.
    """
    if torch.is_grad_enabled():
        raise UnsupportedError(
            "a gradient of a gradient was asked for (create_graph=True), and rows that cross ranks have only a "
            "first one. Leave create_graph out, or run on one rank."
        )


# Pulls: rows leave in one node of the graph and arrive in another, and what lies between runs meanwhile.
#
# Backward runs nodes in reverse order of their making. The gradient of what arrived leaves where the rows arrived and
# is waited for where they left, so that whatever was computed in between in forward is computed in between in backward.


class PendingExchange:
    """The exchange of one aggregation: what it brings is waited for after it was started.

    Attributes:
        in_flight_s: seconds that its rows took forward; None before they were waited for.
        exposed_s: of these, what the rank stood still for.

    References: FlareDTDG section 3.4 (a snapshot's forward awaits its exchange).
    """

    def __init__(self, exchanger: Exchanger, route: Route, layer: int) -> None:
        self.exchanger, self.route, self.layer = exchanger, route, layer
        self.in_flight_s: float | None = None
        self.exposed_s = 0.0
        self._started: Started | None = None

    def start(self, rows: Tensor, *, back: bool = False) -> None:
        """Let own rows leave, or the gradients of those that came in."""
        send, receive, pass_name = self.route.send_counts, self.route.receive_counts, self.exchanger.forward_pass
        if back:
            send, receive, pass_name = receive, send, "backward"
        self._started = self.exchanger.start(rows, send, receive, self.layer, pass_name)

    def wait(self) -> Arrived:
        """Wait for what was started, and let go of it."""
        assert self._started is not None
        started, self._started = self._started, None
        return self.exchanger.finish(started)


class _Leave(torch.autograd.Function):
    """Forward: own rows go out. Backward: the gradient of those that came in has come back, and is added up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, flight: PendingExchange) -> Tensor:
        ctx.flight, ctx.shape = flight, x.shape
        flight.start(x.index_select(0, flight.route.send))
        return x.new_zeros(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.flight.route.added_up(ctx.flight.wait().rows, ctx.shape), None


class _Land(torch.autograd.Function):
    """Forward: others' rows come in. Backward: their gradient goes out."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, flight: PendingExchange) -> Tensor:
        ctx.flight, found = flight, flight.wait()
        flight.in_flight_s, flight.exposed_s = found.in_flight_s, found.exposed_s
        return found.rows

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        refuse_second_gradients()
        ctx.flight.start(gradients[0], back=True)
        return gradients[0].new_zeros(0), None


# Neighbours' rows that other ranks own, exchanged at every pull by indices computed once.


class HaloRows(NeighbourRows):
    """Own rows first, then those received (see :class:`dtdg_lab.core.plans.HaloPlan`). Collective.

    Args:
        exchanger: sends and receives rows, in forward and in backward.
        group: the ranks it does so between.
        route: gives the exchange of these snapshots along a direction, ``in`` or ``out``.
        vertices: (n,) the own nodes' numbers in the graph, ascending.
        number: the layer of the model that exchanges are counted for.
        awaited: whether other functions compute while rows are on their way, where this one has turns; else a pull
            waits for them.
    """

    all_here = False

    def __init__(
        self,
        exchanger: Exchanger,
        group: Group,
        route: Callable[[str], Route],
        vertices: Tensor,
        number: int = 0,
        *,
        awaited: bool = False,
    ) -> None:
        self._exchanger, self._group, self._route = exchanger, group, route
        self._vertices, self._number, self._awaited = vertices, number, awaited

    def joined(self, x: Tensor, direction: str) -> Tensor:
        """Own rows and those of remote neighbours: (n, F) -> (n + h, F)."""
        if not self._awaited:
            return torch.cat([x, self._exchanger.pull(x, self._route(direction), self._number)])
        flight = PendingExchange(self._exchanger, self._exchanger.checked(x, self._route(direction)), self._number)
        left = _Leave.apply(x, flight)
        pause(flight)  # once its rows have left
        return torch.cat([x, _Land.apply(left, flight)])

    def candidates(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k best of every rank, by node: (R k, F) and (R k,), differentiable."""
        best = torch.sort(scores, descending=True, stable=True).indices[:k]
        numbers = self._vertices.new_full((k, 1), torch.iinfo(self._vertices.dtype).max)
        numbers[: len(best), 0] = self._vertices[best]
        each = [k] * self._group.size
        joined = self._exchanger.gather(graph_view.best_filled(x, scores, k), each)
        order = torch.argsort(self._group.gather_rows(numbers, each)[:, 0], stable=True)
        joined = joined.index_select(0, order)
        return joined[:, :-1], joined[:, -1]

    def layer(self, number: int) -> HaloRows:
        """The same rows, counted for another layer."""
        return HaloRows(self._exchanger, self._group, self._route, self._vertices, number, awaited=self._awaited)


# The edges that one part of a partition pulls along, over its own rows and those that it gets from other parts.


@dataclass(frozen=True, slots=True, eq=False)
class PartEdges:
    """n rows and the E edges that they aggregate over, with M columns; the first n columns are the rows themselves.

    Attributes:
        indptr: (n + 1,) int64: row i pulls from ``indices[indptr[i]:indptr[i + 1]]``.
        indices: (E,) int32, columns, 0 to M - 1; a row's are in the order of the whole graph's row.
        weights: (E,) float32, or None where edges carry no weight.
        columns: M.
        degrees: (M,) float64: weighted degree of each column along this direction, in the whole graph.
        other_degrees: (M,) float64: the same along the other direction.
        neighbours: (n,) neighbours of each row in the whole graph where some of them were drawn: each weight is then
            multiplied by them over the drawn ones. None where edges are as in the graph.
        weighted: whether edges of the graph carry weights; else weights are of the drawing alone.

    Raises:
        PlanError: the arrays do not fit.
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
        found = (len(self.indptr) - 1, int(self.indptr[-1]), len(self.degrees), len(self.other_degrees))
        if found[0] > columns or found[1] != edges or found[2] != columns or found[3] != columns:
            raise PlanError(
                f"{found[0]} rows of {found[1]} edges do not fit {edges} indices, {columns} columns and degrees of "
                f"{found[2]} and {found[3]} columns: rows are the first columns, and every column has two degrees."
            )
        if self.weights is not None and self.weights.shape != self.indices.shape:
            raise PlanError(f"{len(self.weights)} weights of {edges} edges: each edge needs one, or none has any.")
        if self.neighbours is not None and len(self.neighbours) != found[0]:
            raise PlanError(f"neighbours of {len(self.neighbours)} rows, where there are {found[0]}: give one a row.")
        if edges and not (self.indices.min() >= 0 and self.indices.max() < columns):
            raise PlanError(
                f"edges come from columns {self.indices.min()} to {self.indices.max()}; there are 0 to {columns - 1}."
            )

    @property
    def rows(self) -> int:
        """Rows n."""
        return len(self.indptr) - 1

    def first(self, rows: int) -> PartEdges:
        """The first rows, over the same columns."""
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
    """Edges of one part as operators ask for them (see :class:`dtdg_lab.kernels.operators.EdgeSource`).

    Row i is column i. Its degree is that of the whole graph also where some of its edges are not here: means over a
    neighbourhood that is cut off then divide by the true degree.

    Args:
        edges: gives the edges along a direction, ``in`` or ``out``; called once for each, when first needed, and again
            after ``release``. The two directions may have different columns.
        settings: backend, type and device of the products.
    """

    first = 0

    def __init__(self, edges: Callable[[str], PartEdges], settings: OperatorSettings) -> None:
        self._give, self._settings = edges, settings
        self._edges: dict[str, PartEdges] = {}
        self._made: dict[str, Adjacency] = {}

    def adjacency(self, direction: str) -> Adjacency:
        """The edges that rows pull along, (n, M).

        Raises:
            UnsupportedError: there is no such direction.
        """
        if direction not in self._made:
            of, make = self._of(direction), self._settings.adjacency
            self._made[direction] = make(of.indptr, of.indices, of.weights, columns=of.columns)
        return self._made[direction]

    def row_degrees(self, direction: str) -> Tensor:
        """Weighted degree of each row along a direction, (n,), in the whole graph."""
        edges = self._of(direction)
        return self._moved(edges.degrees[: edges.rows])

    def column_degrees(self, direction: str) -> Tensor:
        """Weighted degree along a direction of each column of ``adjacency("in")``, (M,), in the whole graph."""
        into = self._of("in")
        return self._moved(into.degrees if checked(direction) == "in" else into.other_degrees)

    def drawn_share(self, direction: str) -> Tensor | None:
        """Return the drawn share of each row's neighbours, (n,), 1 where none is; None where all are here."""
        edges = self._of(direction)
        if edges.neighbours is None:
            return None
        drawn = np.diff(edges.indptr)
        return self._moved(np.where(drawn > 0, drawn / np.maximum(edges.neighbours, 1), 1.0))

    def own_weights(self, direction: str) -> Tensor | None:
        """Return the weight that each edge has in the graph, (E,), or None where edges carry none."""
        weights, share = self.adjacency(direction).weights, self.drawn_share(direction)
        if weights is None or share is None:
            return weights
        return (
            weights * share.index_select(0, self.adjacency(direction).edge_rows())
            if self._of(direction).weighted
            else None
        )

    def release(self) -> None:
        """Let go of everything made; what is asked for again is made again."""
        self._edges.clear()
        self._made.clear()

    def _of(self, direction: str) -> PartEdges:
        if direction not in self._edges:
            self._edges[direction] = self._give(checked(direction))
        return self._edges[direction]

    def _moved(self, degrees: NDArray[np.float64]) -> Tensor:
        return torch.tensor(degrees, dtype=self._settings.dtype, device=self._settings.device)


def part_edges(
    snapshots: Sequence[Snapshot], partition: Partition, part: int, direction: str = "in"
) -> tuple[PartEdges, HaloPlan]:
    """The edges along which a part pulls in S snapshots, stacked, and the exchange that brings the rows it lacks.

    Node i of the n that the part owns, ascending, is row s n + i in snapshot s, and the column of the same number.
    After these S n columns come the rows it receives, ordered by owner, then snapshot, then node, as
    :class:`dtdg_lab.core.plans.HaloPlan` has them: x of the columns is own rows, then what arrived.

    Args:
        snapshots: S of them, each of the same N nodes.
        partition: of these nodes into P parts.
        part: which of them.
        direction: ``in``: a node pulls from its in-neighbours; ``out``: from its out-neighbours.

    Raises:
        PlanError: the partition is of other nodes, there are no snapshots, or there is no such part or way.
    """
    if not snapshots or not 0 <= part < partition.parts:
        raise PlanError(
            f"edges of part {part} in {len(snapshots)} snapshots: parts are numbered 0 to {partition.parts - 1}, and "
            "at least one snapshot is needed."
        )
    exchanged = [_exchanged(snapshot, partition, part, direction) for snapshot in snapshots]
    own = partition.vertices(part)
    sent, send_order, send_counts = _by_part([send for send, _ in exchanged], partition.parts)
    received, order, receive_counts = _by_part([receive for _, receive in exchanged], partition.parts)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))  # of each received row, taken snapshot after snapshot
    bounds = np.cumsum([0, *(len(receive[1]) for _, receive in exchanged)])

    number = np.zeros(len(partition.owner), np.int64)  # of each node among its columns in the snapshot at hand
    number[own] = np.arange(len(own))
    stacked_own = np.repeat(np.arange(len(snapshots)) * len(own), [len(send[1]) for send, _ in exchanged])
    plan = HaloPlan(part, (stacked_own + number[sent])[send_order], send_counts, receive_counts)

    columns = len(snapshots) * len(own) + len(received)
    degrees = np.empty((2, columns))
    pieces = []
    for s, snapshot in enumerate(snapshots):
        first = s * len(own)
        halo = received[bounds[s] : bounds[s + 1]]
        at = len(snapshots) * len(own) + place[bounds[s] : bounds[s + 1]]
        lengths, sources, weights = _pulls(snapshot, own, direction)
        number[own] = np.arange(first, first + len(own))
        number[halo] = at
        pieces.append((lengths, number[sources].astype(np.int32), weights))
        for row, degree in zip(degrees, _degrees(snapshot, direction), strict=True):
            row[first : first + len(own)] = degree[own]
            row[at] = degree[halo]
    return _joined(pieces, columns, degrees), plan


Ends = tuple[NDArray[np.int64], NDArray[np.int64]]


def _exchanged(snapshot: Snapshot, partition: Partition, part: int, direction: str) -> tuple[Ends, Ends]:
    """What a part sends and what it receives in one snapshot: the other part and the node, ordered by both."""
    to, source = pulls_of(snapshot, partition, direction)
    owners = partition.owner[source]
    cut = np.flatnonzero((to != owners) & ((to == part) | (owners == part)))
    to_part, rows = distinct_rows(to[cut], source[cut], partition)
    mine = to_part == part
    return (to_part[~mine], rows[~mine]), (partition.owner[rows[mine]].astype(np.int64), rows[mine])


def _by_part(ends: list[Ends], parts: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Nodes of all snapshots one after another, the order that puts them by part, and how many each part has."""
    others = np.concatenate([other for other, _ in ends])
    vertices = np.concatenate([vertex for _, vertex in ends])
    return vertices, np.argsort(others, kind="stable"), np.bincount(others, minlength=parts)


def _pulls(snapshot: Snapshot, own: NDArray[np.int64], direction: str) -> tuple[NDArray[np.int64], NDArray[Any], Any]:
    """How many edges each node pulls along, (n,), the nodes it pulls from, ascending, (E,), and weights."""
    indptr, vertices = snapshot.indptr, snapshot.num_nodes
    if direction == "in":
        lengths = np.diff(indptr)[own]
        starts = np.cumsum(lengths) - lengths
        edges = np.repeat(indptr[own] - starts, lengths) + np.arange(lengths.sum())
        return lengths, snapshot.indices[edges], None if snapshot.weights is None else snapshot.weights[edges]
    is_own = np.zeros(vertices, bool)
    is_own[own] = True
    edges = np.flatnonzero(is_own[snapshot.indices])
    pulling = snapshot.indices[edges]
    keys = pulling * np.int64(vertices) + snapshot.rows()[edges]
    lengths = np.bincount(pulling, minlength=vertices)[own]
    if snapshot.weights is None:
        keys.sort()  # sorting is several times faster than finding the order
        return lengths, keys % vertices, None
    order = np.argsort(keys)
    return lengths, keys[order] % vertices, snapshot.weights[edges[order]]


def _degrees(snapshot: Snapshot, direction: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weighted degrees of all nodes along the direction and along the other one, (N,) each."""
    into, out = snapshot.in_degrees(), snapshot.out_degrees()
    return (into, out) if direction == "in" else (out, into)


def _joined(pieces: list[tuple[NDArray[np.int64], NDArray[np.int32], Any]], columns: int, degrees: Any) -> PartEdges:
    """Snapshots' rows one below the other."""
    indptr = give_up(np.cumsum(np.concatenate([[0], *(lengths for lengths, _, _ in pieces)])))
    indices = give_up(np.concatenate([indices for _, indices, _ in pieces]))
    weights = [part for _, _, part in pieces if part is not None]
    joined = give_up(np.concatenate(weights)) if weights else None
    return PartEdges(indptr, indices, joined, columns, *give_up(degrees))


# A rank's own nodes in every snapshot; the rows of neighbours that other ranks own are exchanged.


class HaloSequence(StoredSequence):
    """Snapshots as spaces of the nodes of one rank (see :class:`StoredSequence`); collective.

    Args:
        graph: T labelled snapshots of N nodes.
        partition: of the nodes into as many parts as there are ranks.
        exchanger: exchanges rows between the ranks.
        group: the ranks.
        settings: how operators are made.
        directions: along which edges the model pulls; exchanges are computed for these.
        reuse: whether first-layer pulls, which need no parameter, are exchanged once and kept (ESDG section 5.5).
        awaited: whether other functions compute while rows are in flight (:mod:`dtdg_lab.engine.turns`).
        spaces_bytes: most bytes of spaces kept, by an estimate from their edges.
    """

    collective = True

    def __init__(
        self,
        graph: DynamicGraph,
        partition: Partition,
        exchanger: Exchanger,
        group: Group,
        settings: OperatorSettings,
        *,
        directions: tuple[str, ...] = ("in",),
        reuse: bool = False,
        awaited: bool = False,
        spaces_bytes: int = graph_view.SPACES_BYTES,
    ) -> None:
        keep_freed_memory()
        self.graph, self.device, self.dtype, self.settings = graph, settings.device, settings.dtype, settings
        self._partition, self._exchanger, self._group, self._rank = partition, exchanger, group, group.rank
        self._counts = partition.counts.tolist()
        self._reuse, self._directions, self._awaited = reuse, directions, awaited
        self._own_vertices = partition.vertices(self._rank)
        self.own = len(self._own_vertices)
        self.vertices: Tensor | None = torch.from_numpy(self._own_vertices).to(self.device)
        everyone = np.argsort(np.argsort(partition.owner, kind="stable"), kind="stable")
        self._place = torch.from_numpy(everyone).to(self.device)  # of each node where ranks' rows follow one another
        self._store = graph_view.ViewStore(self._make, self._estimated_bytes, spaces_bytes=spaces_bytes, pulls_bytes=0)
        self._halos: dict[int, int] = {}
        self._pulled: dict[range, dict[tuple[str, ...], Tensor]] = {}  # kept also where the space is not

    def stacks(self, snapshots: range, layer: int = 0) -> list[SnapshotView]:
        """Consecutive snapshots for one layer; as many are stacked as the largest rank can, so that all stack alike."""
        rows, features = max(self._counts), self.graph.num_features
        ranges = graph_view.stack_ranges(snapshots, rows=rows, features=features, device=self.device)
        return [self._store.get(some).layer(layer) for some in ranges]

    def halo_rows(self, t: int) -> int:
        """Halo rows received for a snapshot, over all edge directions of the model."""
        if t not in self._halos:
            self.view(t)
        return self._halos[t]

    def any_rank(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        found = torch.tensor([float(flag)], device=self.device)
        self._group.all_reduce(found)
        return bool(found.item() > 0)

    def join(self, z: Tensor) -> Tensor:
        """All nodes' rows in order: (S, n, F) -> (S, N, F), differentiable."""
        stacked, _, width = z.shape
        rows = self._exchanger.gather(z.transpose(0, 1).flatten(1), self._counts)
        return rows.index_select(0, self._place).unflatten(1, (stacked, width)).transpose(0, 1)

    def has_turn(self, t: int) -> bool:
        """Snapshots are assigned to ranks in turn."""
        return t % self._group.size == self._rank

    def _make(self, snapshots: range) -> SnapshotView:
        some = [self.graph.snapshots[t] for t in snapshots]

        found = {direction: part_edges(some, self._partition, self._rank, direction) for direction in self._directions}
        routes = {direction: Route.of(plan, self.device) for direction, (_, plan) in found.items()}
        edges = {direction: of_part for direction, (of_part, _) in found.items()}
        if len(snapshots) == 1:
            self._halos[snapshots.start] = sum(plan.rows for _, plan in found.values())

        def edges_of(direction: str) -> PartEdges:  # what operators have taken need not be held here as well
            if direction in edges:
                return edges.pop(direction)
            return part_edges(some, self._partition, self._rank, direction)[0]

        assert self.vertices is not None
        rows = HaloRows(
            self._exchanger, self._group, lambda direction: routes[direction], self.vertices, awaited=self._awaited
        )
        operators = Operators(LocalSource(edges_of, self.settings), self.settings)
        return SnapshotView(
            operators,
            snapshots,
            self._features_of(self.graph.features, snapshots, self._own_vertices),
            rows,
            num_nodes=self.graph.num_nodes,
            pulled=self._pulled.setdefault(snapshots, {}),
            may_keep=(lambda size: True) if self._reuse else None,
        )

    def _estimated_bytes(self, snapshots: range) -> int:
        """As of all nodes (``DeviceSequence``), by this rank's share of them, and as much again for the halo."""
        graph, width = self.graph, torch.finfo(self.dtype).bits // 8
        edges = int(graph.num_edges[snapshots.start : snapshots.stop].sum()) // self._partition.parts
        rows = len(snapshots) * max(self._counts)  # alike on all ranks, which must keep the same spaces
        return 2 * ((edges + rows) * 2 * (4 + width) + rows * graph.num_features * width)


def own_nodes(of: BuildContext, exchanger: Exchanger, *, awaited: bool = False) -> DeviceSequence | HaloSequence:
    """Snapshots of this rank's nodes; those of all nodes where it is the only rank and exchanges nothing."""
    assert of.partition is not None
    if of.group.size == 1:
        return of.sequence
    return HaloSequence(
        of.sequence.graph,
        of.partition.on_ranks(of.group.size),
        exchanger,
        of.group,
        of.sequence.settings,
        directions=of.model.facts.directions,
        reuse=of.config["halo_reuse"],
        awaited=awaited,
    )
