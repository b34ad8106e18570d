"""A graph's snapshots as spaces on the device that computes, moved there when first used."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels.backend import choose_backend
from dtdg_lab.kernels.device_snapshot import DeviceSnapshot
from dtdg_lab.kernels.edge_source import SnapshotSource
from dtdg_lab.kernels.heap import keep_freed_memory
from dtdg_lab.kernels.operator_settings import OperatorSettings
from dtdg_lab.kernels.operators import Operators
from dtdg_lab.kernels.stacking import stacked
from dtdg_lab.parallel.neighbours import AllHere, Gather, Gathered
from dtdg_lab.parallel.snapshot_feed import SnapshotFeed
from dtdg_lab.parallel.space import SnapshotSpace
from dtdg_lab.parallel.space_store import SpaceStore, stack_ranges

# First-layer pulls that a sequence keeps, and what it keeps on the device beside them (features, operators).
PULLS_BYTES, SPACES_BYTES = 1 << 30, 4 << 30


class DeviceSequence:
    """Snapshots of a graph as :class:`SnapshotSpace`, for the vertices in ``rows`` (see ``parallel.sequence``).

    Args:
        graph: T labelled snapshots of N vertices.
        device: where tensors live.
        dtype: type of features and products.
        kernel: ``auto``, ``dgl`` or ``torch``.
        norm: ``in`` or ``in_out``, the scaling of graph convolutions.
        self_loops: whether they add every vertex to its own neighbours.
        rows: vertices computed here; all where None.
        gather: where rows are a share, gives all vertices' rows from every rank's; without gradient.
        pulls_bytes: most bytes of first-layer pulls kept.
        spaces_bytes: most bytes of spaces kept, by an estimate from their edges.
        feed: brings copies of snapshots; where None, those of the graph are used as they are.
    """

    def __init__(
        self,
        graph: DynamicGraph,
        *,
        device: str,
        dtype: torch.dtype,
        kernel: str,
        norm: str = "in",
        self_loops: bool = True,
        rows: range | None = None,
        gather: Gather | None = None,
        pulls_bytes: int = PULLS_BYTES,
        spaces_bytes: int = SPACES_BYTES,
        feed: SnapshotFeed | None = None,
    ) -> None:
        keep_freed_memory()
        self.graph, self.device, self.dtype = graph, device, dtype
        self.rows = range(graph.num_nodes) if rows is None else rows
        self.own = len(self.rows)
        self.vertices = None if rows is None else torch.arange(rows.start, rows.stop, device=device)
        self.collective = gather is not None
        self.settings = operator_settings(graph, device=device, dtype=dtype, kernel=kernel, norm=norm, loops=self_loops)
        self._neighbours = AllHere() if gather is None else Gathered(gather)
        self._store = SpaceStore(
            self._make, self._estimated_bytes, spaces_bytes=spaces_bytes, pulls_bytes=pulls_bytes
        )  # fmt: skip
        self._pulled: dict[range, dict[tuple[str, ...], Tensor]] = {}
        self._static: Tensor | None = None
        self.feed = feed
        self._brought: dict[int, Snapshot | DeviceSnapshot] = {}

    @property
    def backend(self) -> str:
        """``dgl`` or ``torch``."""
        return self.settings.backend

    def space(self, t: int) -> SnapshotSpace:
        """Snapshot t on the device."""
        return self._store.get(range(t, t + 1))

    def stacks(self, snapshots: range, layer: int = 0) -> list[SnapshotSpace]:
        """Consecutive snapshots as spaces of one or, where they are small, several snapshots each; alike for layers."""
        if self.collective:
            return [self.space(t) for t in snapshots]
        nodes, features = self.graph.num_nodes, self.graph.num_features
        ranges = stack_ranges(snapshots, rows=nodes, features=features, device=self.device)
        return [self._store.get(some) for some in ranges]

    def fed(self, *, difference: bool) -> DeviceSequence:
        """The same snapshots, of which only those that were brought are here: copies, whole or by difference."""
        feed = SnapshotFeed(self.graph, difference=difference, device=self.device)
        of = self.settings
        return DeviceSequence(
            self.graph, device=self.device, dtype=self.dtype, kernel=of.backend, norm=of.norm, self_loops=of.self_loops,
            spaces_bytes=0, feed=feed,
        )  # fmt: skip

    def bring(self, snapshots: range) -> None:
        """Let go of what was brought before, and bring copies of these, where there is a feed."""
        if self.feed is not None:
            self._brought.clear()  # first: there may be no room for both
            self._brought.update(zip(snapshots, self.feed.bring(snapshots), strict=True))

    def stack(self, snapshots: range) -> SnapshotSpace:
        """Some consecutive snapshots as one space."""
        return self._store.get(snapshots)

    def any_rank(self, flag: bool) -> bool:
        """No other rank has a say: each computes by itself."""
        return flag

    def join(self, z: Tensor) -> Tensor:
        """All rows are here."""
        return z

    def has_turn(self, t: int) -> bool:
        """Always."""
        return True

    def _make(self, snapshots: range) -> SnapshotSpace:
        one = self._one(snapshots)
        rows = self.rows if len(snapshots) == 1 else range(one.num_nodes)
        features = self._features(snapshots)
        return SnapshotSpace(
            Operators(SnapshotSource(one, rows, self.settings), self.settings), snapshots,
            features if len(rows) == len(features) else features[rows.start : rows.stop], self._neighbours,
            num_nodes=self.graph.num_nodes, all_inputs=features, pulled=self._pulled.setdefault(snapshots, {}),
            may_keep=self._store.take_pull,
        )  # fmt: skip

    def _one(self, snapshots: range) -> Snapshot | DeviceSnapshot:
        """Some snapshots as one, of what was brought or of the graph itself."""
        if self.feed is None:
            return stacked([self.graph.snapshots[t] for t in snapshots])
        return stacked([self._brought[t] for t in snapshots])

    def _features(self, snapshots: range) -> Tensor:
        """Features of all vertices, (N, F), or (S N, F); static ones are moved once."""
        features = self.graph.features
        if features.strides[0] == 0 and len(snapshots) == 1:
            if self._static is None:
                self._static = torch.tensor(np.asarray(features[0]), device=self.device).to(self.dtype)
            return self._static
        part = np.asarray(features[snapshots.start : snapshots.stop])
        return torch.tensor(part, device=self.device).to(self.dtype).flatten(0, 1)

    def _estimated_bytes(self, snapshots: range) -> int:
        """Features, and one operator with its transpose: an index and a weight for each edge, either way."""
        graph, width = self.graph, torch.finfo(self.dtype).bits // 8
        edges = int(graph.num_edges[snapshots.start : snapshots.stop].sum()) + len(snapshots) * graph.num_nodes
        return edges * 2 * (4 + width) + len(snapshots) * graph.num_nodes * graph.num_features * width


def operator_settings(
    graph: DynamicGraph, *, device: str, dtype: torch.dtype, kernel: str, norm: str, loops: bool
) -> OperatorSettings:
    """How the operators of a sequence are made; ``kernel="auto"`` is decided by the graph's largest snapshot."""
    weighted, edges = graph.snapshots[0].weights is not None, int(max(graph.num_edges))
    backend = choose_backend(kernel, device=device, weighted=weighted, edges=edges, dtype=dtype)
    return OperatorSettings(backend, dtype, device, norm, loops)
