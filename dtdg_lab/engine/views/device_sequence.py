"""A graph's snapshots as views on the device that computes, moved there when first used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.engine.views.neighbours import Gathered, NeighbourRows
from dtdg_lab.engine.views.sequence import SnapshotSequence
from dtdg_lab.engine.views.snapshot_feed import SnapshotFeed
from dtdg_lab.engine.views.snapshot_view import SnapshotView
from dtdg_lab.engine.views.view_store import ViewStore, stack_ranges
from dtdg_lab.graphs.delta import operator_bytes
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot, repeats
from dtdg_lab.kernels.device_snapshot import DeviceSnapshot
from dtdg_lab.kernels.operators import Operators, OperatorSettings, SnapshotSource, keep_freed_memory
from dtdg_lab.kernels.spmm import choose_backend, stacked

# First-layer pulls that a sequence keeps, and what it keeps on the device beside them (features, operators).
PULLS_BYTES, SPACES_BYTES = 1 << 30, 4 << 30


class StoredSequence(SnapshotSequence):
    """Snapshots of a graph, or of what a part holds of it, whose spaces are kept in a store."""

    _store: ViewStore
    _static: Tensor | None = None

    def view(self, t: int) -> SnapshotView:
        """Snapshot t for all layers of the model."""
        return self._store.get(range(t, t + 1))

    def stack(self, snapshots: range) -> SnapshotView:
        """Return some consecutive snapshots as one view."""
        return self._store.get(snapshots)

    def _features_of(self, features: NDArray[np.float32], snapshots: range, rows: Any = slice(None)) -> Tensor:
        """Features over time, (T, N, F), of some nodes in some snapshots, (S n, F); static ones are moved once."""
        if repeats(features) and len(snapshots) == 1:
            if self._static is None:
                self._static = self._moved(features[0][rows])
            return self._static
        return self._moved(features[snapshots.start : snapshots.stop][:, rows]).flatten(0, 1)

    def _moved(self, features: NDArray[np.float32]) -> Tensor:
        return torch.tensor(np.asarray(features), device=self.device).to(self.dtype)


class DeviceSequence(StoredSequence):
    """Snapshots of a graph as :class:`SnapshotView`, for the nodes in ``rows`` (see :class:`SnapshotSequence`).

    Args:
        graph: T labelled snapshots of N nodes.
        device: where tensors live.
        dtype: type of features and products.
        kernel: ``auto``, ``dgl`` or ``torch``.
        norm: ``in`` or ``in_out``, the scaling of graph convolutions.
        self_loops: whether they add every node to its own neighbours.
        rows: nodes computed here; all where None.
        gather: where rows are a share, gives all nodes' rows from every rank's; without gradient.
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
        gather: Callable[..., Tensor] | None = None,
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
        self._neighbours = NeighbourRows() if gather is None else Gathered(gather)
        self._store = ViewStore(self._make, self.estimated_bytes, spaces_bytes=spaces_bytes, pulls_bytes=pulls_bytes)
        self._pulled: dict[range, dict[tuple[str, ...], Tensor]] = {}
        self.feed = feed
        self._brought: dict[int, Snapshot | DeviceSnapshot] = {}

    @property
    def backend(self) -> str:
        """``dgl`` or ``torch``."""
        return self.settings.backend

    def stacks(self, snapshots: range, layer: int = 0) -> list[SnapshotView]:
        """Consecutive snapshots as spaces of one or, where they are small, several snapshots each; alike for layers."""
        if self.collective:
            return [self.view(t) for t in snapshots]
        nodes, features = self.graph.num_nodes, self.graph.num_features
        ranges = stack_ranges(snapshots, rows=nodes, features=features, device=self.device)
        return [self._store.get(some) for some in ranges]

    def keep_spaces(self, most_bytes: int) -> None:
        """Keep spaces of that many bytes, if these are more than so far."""
        self._store.make_room(most_bytes)

    def fed(self, *, difference: bool) -> DeviceSequence:
        """Return the same snapshots, with only the transferred ones on the device: copies, in full or by delta."""
        feed = SnapshotFeed(self.graph, difference=difference, device=self.device)
        settings = self.settings
        return DeviceSequence(
            self.graph,
            device=self.device,
            dtype=self.dtype,
            kernel=settings.backend,
            norm=settings.norm,
            self_loops=settings.self_loops,
            spaces_bytes=0,
            feed=feed,
        )

    def bring(self, snapshots: range) -> None:
        """Release earlier copies and transfer these snapshots, if there is a feed."""
        if self.feed is not None:
            self._brought.clear()  # first, because both may not fit in memory
            self._brought.update(zip(snapshots, self.feed.bring(snapshots), strict=True))

    def _make(self, snapshots: range) -> SnapshotView:
        rows = self.rows if len(snapshots) == 1 else range(len(snapshots) * self.graph.num_nodes)
        features = self._features_of(self.graph.features, snapshots)
        return SnapshotView(
            self._operators(snapshots, rows),
            snapshots,
            features if len(rows) == len(features) else features[rows.start : rows.stop],
            self._neighbours,
            num_nodes=self.graph.num_nodes,
            all_inputs=features,
            pulled=self._pulled.setdefault(snapshots, {}),
            may_keep=self._store.take_pull,
        )

    def estimated_bytes(self, snapshots: range) -> int:
        """Features of some snapshots, and one operator of each with its transpose."""
        return operator_bytes(self.graph, snapshots, torch.finfo(self.dtype).bits // 8)

    def _operators(self, snapshots: range, rows: range) -> Operators:
        """Make the operators of some rows of snapshots, stacked where they are several."""
        snapshots_here: Any = self.graph.snapshots if self.feed is None else self._brought
        one = stacked([snapshots_here[t] for t in snapshots])
        return Operators(SnapshotSource(one, rows, self.settings), self.settings)


def operator_settings(
    graph: DynamicGraph, *, device: str, dtype: torch.dtype, kernel: str, norm: str, loops: bool
) -> OperatorSettings:
    """Return the settings of a sequence's operators; ``kernel="auto"`` is decided by the largest snapshot."""
    weighted, edges = graph.snapshots[0].weights is not None, int(max(graph.num_edges))
    backend = choose_backend(kernel, device=device, weighted=weighted, edges=edges, dtype=dtype)
    return OperatorSettings(backend, dtype, device, norm, loops)
