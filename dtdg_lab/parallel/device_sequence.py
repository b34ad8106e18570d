"""A graph's snapshots as spaces on the device that computes, moved there when first used."""

from __future__ import annotations

import threading
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.kernels.backend import choose_backend
from dtdg_lab.kernels.heap import keep_freed_memory
from dtdg_lab.kernels.operators import Operators, OperatorSettings
from dtdg_lab.kernels.stacking import stacked
from dtdg_lab.parallel.space import Gather, SnapshotSpace

# Rows of stacked snapshots, at most. Above, a product takes longer than the call, and stacking gains nothing.
STACKED_ROWS = {"cpu": 16_384, "cuda": 1_048_576}
# Features of stacked snapshots, at most: overlapping runs of snapshots have stacks, and copies of features, each.
STACKED_NUMBERS = {"cpu": 262_144, "cuda": 16_777_216}
# First-layer pulls that a sequence keeps, and what it keeps on the device beside them (features, operators).
PULLS_BYTES, SPACES_BYTES = 1 << 30, 4 << 30


class DeviceSequence:
    """Snapshots of a graph as :class:`SnapshotSpace`, for the vertices in ``rows``.

    Spaces are kept while they fit ``spaces_bytes`` (by an estimate from their edges); later ones are made anew whenever
    they are asked for. For a pass over the sequence again and again this beats dropping the oldest.

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
        spaces_bytes: most bytes of spaces kept.
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
    ) -> None:
        keep_freed_memory()
        self.graph, self.device, self.dtype = graph, device, dtype
        self.rows = range(graph.num_nodes) if rows is None else rows
        weighted, edges = graph.snapshots[0].weights is not None, int(max(graph.num_edges))
        self.backend = choose_backend(kernel, device=device, weighted=weighted, edges=edges, dtype=dtype)
        self._settings = OperatorSettings(self.backend, dtype, device, norm, self_loops)
        self._gather = gather
        self._lock = threading.Lock()
        self._pulls_left, self._spaces_left = pulls_bytes, spaces_bytes
        self._spaces: dict[range, SnapshotSpace] = {}
        self._pulled: dict[range, dict[tuple[str, ...], Tensor]] = {}
        self._static: Tensor | None = None

    def space(self, t: int) -> SnapshotSpace:
        """Snapshot t on the device."""
        return self._of(range(t, t + 1))

    def stacks(self, snapshots: range) -> list[SnapshotSpace]:
        """Consecutive snapshots as spaces of one or, where they are small, several snapshots each."""
        place, nodes = self.device.partition(":")[0], self.graph.num_nodes
        most = min(STACKED_ROWS[place] // nodes, STACKED_NUMBERS[place] // (nodes * self.graph.num_features))
        most = max(1, most) if self._gather is None else 1
        pieces = -(-len(snapshots) // most)
        bounds = [snapshots.start + len(snapshots) * piece // pieces for piece in range(pieces + 1)]
        return [self._of(range(*pair)) for pair in pairwise(bounds)]

    def _of(self, snapshots: range) -> SnapshotSpace:
        if snapshots in self._spaces:
            return self._spaces[snapshots]
        space = self._make(snapshots)
        size = self._estimated_bytes(snapshots)
        if size <= self._spaces_left:
            self._spaces_left -= size
            self._spaces[snapshots] = space
        return space

    def _make(self, snapshots: range) -> SnapshotSpace:
        one = stacked([self.graph.snapshots[t] for t in snapshots])
        rows = self.rows if len(snapshots) == 1 else range(one.num_nodes)
        operators = Operators(one, rows, self._settings)
        return SnapshotSpace(
            operators, snapshots, rows, self._features(snapshots),
            pulled=self._pulled.setdefault(snapshots, {}), may_keep=self._take_pull, gather=self._gather,
        )  # fmt: skip

    def _features(self, snapshots: range) -> Tensor:
        """Features of all vertices, (N, F), or (S N, F); static ones are moved once."""
        features = self.graph.features
        if features.strides[0] == 0 and len(snapshots) == 1:
            if self._static is None:
                self._static = torch.tensor(np.asarray(features[0]), device=self.device).to(self.dtype)
            return self._static
        part = np.asarray(features[snapshots.start : snapshots.stop])
        return torch.tensor(part, device=self.device).to(self.dtype).flatten(0, 1)

    def _take_pull(self, size: int) -> bool:
        with self._lock:  # snapshots are computed on several threads
            fits = size <= self._pulls_left
            self._pulls_left -= size if fits else 0
        return fits

    def _estimated_bytes(self, snapshots: range) -> int:
        """Features, and one operator with its transpose: an index and a weight for each edge, either way."""
        graph, width = self.graph, torch.finfo(self.dtype).bits // 8
        edges = int(graph.num_edges[snapshots.start : snapshots.stop].sum()) + len(snapshots) * graph.num_nodes
        return edges * 2 * (4 + width) + len(snapshots) * graph.num_nodes * graph.num_features * width
