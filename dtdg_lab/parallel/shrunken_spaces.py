"""Decayed snapshots as spaces: the first vertices in the order of survival, and the edges among them."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from dtdg_lab.batching.shrink import Shrinker
from dtdg_lab.comm.group import Group
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.kernels.operator_settings import OperatorSettings
from dtdg_lab.kernels.operators import Operators
from dtdg_lab.parallel.exchange import Exchanger
from dtdg_lab.parallel.local_rows import LocalRows
from dtdg_lab.parallel.part_edges import LocalSource, PartEdges
from dtdg_lab.parallel.space import SnapshotSpace
from dtdg_lab.parallel.survival_rows import SurvivalRows


class ShrunkenSpaces:
    """Makes the space of a decayed snapshot; norms are those of what is left of it.

    Args:
        graph: T snapshots.
        settings: of operators.
        exchanger: gathers candidates of all ranks.
        group: the ranks.
        ways: along which edges the model pulls.
    """

    def __init__(
        self, graph: DynamicGraph, settings: OperatorSettings, exchanger: Exchanger, group: Group,
        ways: tuple[str, ...],
    ) -> None:  # fmt: skip
        self._graph, self._settings, self._exchanger, self._group = graph, settings, exchanger, group
        self._shrinker, self._ways = Shrinker(graph.snapshots), ways
        self.edges = 0  # of the spaces made since this was set to 0

    def renumber(self, rows: SurvivalRows) -> None:
        """Take the order of an epoch."""
        self._rows = rows
        self._shrinker.renumber(rows.order)

    def keep_only(self, snapshots: range) -> None:
        """Let go of the edges of snapshots that the window has left."""
        self._shrinker.keep_only(snapshots)

    def space(self, t: int, rows: int, everywhere: int) -> SnapshotSpace:
        """Snapshot t with its first ``rows`` vertices here and ``everywhere`` on all ranks."""
        vertices = self._rows.vertices[:rows]
        edges = {way: self._part(t, rows, way) for way in self._ways}
        self.edges += sum(len(part.indices) for part in edges.values())
        neighbours = LocalRows(self._exchanger, self._group, vertices)
        operators = Operators(LocalSource(partial(self._again, edges, t, rows), self._settings), self._settings)
        features = self._graph.features[t][self._rows.order.vertices[:rows]]
        inputs = torch.from_numpy(np.ascontiguousarray(features)).to(self._settings.device).to(self._settings.dtype)
        return SnapshotSpace(
            operators, range(t, t + 1), inputs, neighbours, num_nodes=everywhere, may_keep=lambda size: False
        )

    def _again(self, edges: dict[str, PartEdges], t: int, rows: int, way: str) -> PartEdges:
        return edges.pop(way) if way in edges else self._part(t, rows, way)

    def _part(self, t: int, rows: int, way: str) -> PartEdges:
        found = self._shrinker.edges(t, rows, way)
        return PartEdges(found.indptr, found.indices, found.weights, rows, found.degrees, found.other_degrees)
