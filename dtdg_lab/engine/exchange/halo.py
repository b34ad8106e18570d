"""Snapshots of a rank's own nodes, with halo exchange of their remote neighbours' rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from dtdg_lab.core.plans import Partition
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.exchange.exchanger import Exchanger, PendingExchange, Route, RowArrival, RowDeparture
from dtdg_lab.engine.exchange.pausable import pause
from dtdg_lab.engine.strategy import BuildContext
from dtdg_lab.engine.views.device_sequence import DeviceSequence, StoredSequence, ViewStore, stack_ranges
from dtdg_lab.engine.views.part_edges import LocalSource, PartEdges, part_edges
from dtdg_lab.engine.views.snapshot_view import NeighbourRows, SnapshotView, best_filled
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.kernels.operators import Operators, OperatorSettings, keep_freed_memory


class HaloRows(NeighbourRows):
    """Own rows, then received rows (see :class:`dtdg_lab.core.plans.HaloPlan`). Collective.

    Args:
        exchanger: sends and receives rows, forward and backward.
        group: the ranks.
        route: returns the exchange of these snapshots along a direction, ``in`` or ``out``.
        vertices: (n,) the own nodes' numbers in the graph, ascending.
        number: the layer of the model that exchanges are recorded for.
        awaited: whether a pausable function pauses while its rows are in flight; else a pull waits for them.
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
        """Append the rows of remote neighbours to the own rows: (n, F) -> (n + h, F)."""
        if not self._awaited:
            return torch.cat([x, self._exchanger.pull(x, self._route(direction), self._number)])
        flight = PendingExchange(self._exchanger, self._exchanger.checked(x, self._route(direction)), self._number)
        departed = RowDeparture.apply(x, flight)
        pause(flight)
        return torch.cat([x, RowArrival.apply(departed, flight)])

    def candidates(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k best rows of every rank, ordered by node: (R k, F) and (R k,), differentiable."""
        best = torch.sort(scores, descending=True, stable=True).indices[:k]
        numbers = self._vertices.new_full((k, 1), torch.iinfo(self._vertices.dtype).max)
        numbers[: len(best), 0] = self._vertices[best]
        counts = [k] * self._group.size
        joined = self._exchanger.gather(best_filled(x, scores, k), counts)
        order = torch.argsort(self._group.gather_rows(numbers, counts)[:, 0], stable=True)
        joined = joined.index_select(0, order)
        return joined[:, :-1], joined[:, -1]

    def layer(self, number: int) -> HaloRows:
        """Return the same rows, recorded for another layer."""
        return HaloRows(self._exchanger, self._group, self._route, self._vertices, number, awaited=self._awaited)


class HaloSequence(StoredSequence):
    """Snapshots as views of the nodes of one rank (see :class:`StoredSequence`); collective.

    Args:
        graph: T labelled snapshots of N nodes.
        partition: partition of the nodes, one part per rank.
        exchanger: exchanges rows between the ranks.
        group: the ranks.
        settings: settings of the operators, with the limit of views, by an estimate from their edges.
        directions: edge directions along which the model pulls.
        reuse: whether first-layer pulls, which need no parameter, are exchanged once and kept (ESDG section 5.5).
        awaited: whether other functions compute while rows are in flight (:mod:`dtdg_lab.engine.exchange.pausable`).
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
    ) -> None:
        keep_freed_memory()
        self.graph, self.device, self.dtype, self.settings = graph, settings.device, settings.dtype, settings
        self._partition, self._exchanger, self._group, self._rank = partition, exchanger, group, group.rank
        self._counts = partition.counts.tolist()
        self._reuse, self._directions, self._awaited = reuse, directions, awaited
        self._own_vertices = partition.vertices(self._rank)
        self.own = len(self._own_vertices)
        self.vertices: Tensor | None = torch.from_numpy(self._own_vertices).to(self.device)
        gathered_rows = np.argsort(np.argsort(partition.owner, kind="stable"), kind="stable")
        self._gathered_rows = torch.from_numpy(gathered_rows).to(self.device)  # row of each node after a gather
        self._store = ViewStore(self._make, self._estimated_bytes, settings.limits)
        self._halos: dict[int, int] = {}
        self._pulled: dict[range, dict[tuple[str, ...], Tensor]] = {}  # kept also where the view is not

    def stacks(self, snapshots: range, layer: int = 0) -> list[SnapshotView]:
        """Stack consecutive snapshots for one layer; the rank with the most rows sets the stack size on all ranks."""
        rows, features = max(self._counts), self.graph.num_features
        ranges = stack_ranges(snapshots, rows=rows, features=features, device=self.device)
        return [self._store.get(stack).layer(layer) for stack in ranges]

    def halo_rows(self, t: int) -> int:
        """Return the number of halo rows of a snapshot, over all edge directions of the model."""
        if t not in self._halos:
            self.view(t)
        return self._halos[t]

    def any_rank(self, flag: bool) -> bool:
        """Return whether the flag is set on any rank."""
        return bool(self._group.gather_on_host(torch.tensor([float(flag)])).any())

    def join(self, z: Tensor) -> Tensor:
        """Join all nodes' rows in order: (S, n, F) -> (S, N, F), differentiable."""
        stacked, _, width = z.shape
        rows = self._exchanger.gather(z.transpose(0, 1).flatten(1), self._counts)
        return rows.index_select(0, self._gathered_rows).unflatten(1, (stacked, width)).transpose(0, 1)

    def has_turn(self, t: int) -> bool:
        """Return whether this rank joins snapshot t: ranks take turns."""
        return t % self._group.size == self._rank

    def _make(self, snapshots: range) -> SnapshotView:
        graph_snapshots = [self.graph.snapshots[t] for t in snapshots]

        edges_by_direction = {
            direction: part_edges(graph_snapshots, self._partition, self._rank, direction)
            for direction in self._directions
        }
        routes = {direction: Route.of(plan, self.device) for direction, (_, plan) in edges_by_direction.items()}
        edges = {direction: local_edges for direction, (local_edges, _) in edges_by_direction.items()}
        if len(snapshots) == 1:
            self._halos[snapshots.start] = sum(plan.rows for _, plan in edges_by_direction.values())

        def edges_of(direction: str) -> PartEdges:
            if direction in edges:
                return edges.pop(direction)  # the operators hold them from now on
            return part_edges(graph_snapshots, self._partition, self._rank, direction)[0]

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
        """Estimate the bytes of the view: this rank's share of ``DeviceSequence``'s, twice, for the halo."""
        graph, width = self.graph, torch.finfo(self.dtype).bits // 8
        edges = int(graph.num_edges[snapshots.start : snapshots.stop].sum()) // self._partition.parts
        rows = len(snapshots) * max(self._counts)  # the same on all ranks, so that all keep the same views
        return 2 * ((edges + rows) * 2 * (4 + width) + rows * graph.num_features * width)


def own_nodes(context: BuildContext, exchanger: Exchanger, *, awaited: bool = False) -> DeviceSequence | HaloSequence:
    """Return the snapshots of this rank's nodes; of all nodes on a single rank."""
    assert context.partition is not None
    if context.group.size == 1:
        return context.sequence
    return HaloSequence(
        context.sequence.graph,
        context.partition.on_ranks(context.group.size),
        exchanger,
        context.group,
        context.sequence.settings,
        directions=context.model.facts.directions,
        reuse=context.config["halo_reuse"],
        awaited=awaited,
    )
