"""A graph's snapshots as tensors on the device that computes, moved there when first used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.kernels.adjacency import Adjacency
from dtdg_lab.kernels.backend import choose_backend
from dtdg_lab.kernels.gcn import GCNOperator

Gather = Callable[[Tensor], Tensor]


@dataclass(slots=True)
class SnapshotSpace:
    """One snapshot as a model sees it from some of its vertices (the rows), with their features and labels.

    ``pull`` of the snapshot's own features is computed once and kept: it does not depend on parameters
    (ESDG section 5.5).
    """

    operator: GCNOperator
    rows: range
    inputs: Tensor
    targets: Tensor
    all_inputs: Tensor
    gather: Gather | None
    _pulled: Tensor | None = None

    @property
    def num_rows(self) -> int:
        """n, the vertices whose rows are computed."""
        return len(self.rows)

    async def pull(self, x: Tensor, kind: str) -> Tensor:
        """One hop of neighbours' rows combined, (n, F) -> (n, F).

        Raises:
            UnsupportedError: ``kind`` is not ``gcn``.
        """
        if kind != "gcn":
            raise UnsupportedError(f"pull of kind {kind!r}: this layout offers 'gcn'. Use a model that asks for it.")
        if x is self.inputs:
            if self._pulled is None:
                self._pulled = self.operator.apply(self.all_inputs)
            return self._pulled
        return self.operator.apply(x if self.gather is None else self.gather(x))


class DeviceSequence:
    """Snapshots of a graph as :class:`SnapshotSpace`, for the vertices in ``rows``.

    Args:
        graph: T labelled snapshots of N vertices.
        device: where tensors live.
        dtype: type of features and products.
        kernel: ``auto``, ``dgl`` or ``torch``.
        rows: vertices computed here; all where None.
        gather: where rows are a share, gives all vertices' rows from every rank's; without gradient.
    """

    def __init__(
        self,
        graph: DynamicGraph,
        *,
        device: str,
        dtype: torch.dtype,
        kernel: str,
        rows: range | None = None,
        gather: Gather | None = None,
    ) -> None:
        self.graph, self.device, self.dtype = graph, device, dtype
        self.rows = range(graph.num_nodes) if rows is None else rows
        weighted, edges = graph.snapshots[0].weights is not None, int(max(graph.num_edges))
        self.backend = choose_backend(kernel, device=device, weighted=weighted, edges=edges)
        self._gather = gather
        self._spaces: dict[int, SnapshotSpace] = {}

    def is_resident(self, t: int) -> bool:
        """Whether snapshot t is on the device already."""
        return t in self._spaces

    def space(self, t: int) -> SnapshotSpace:
        """Snapshot t on the device."""
        if t not in self._spaces:
            self._spaces[t] = self._move(t)
        return self._spaces[t]

    def _move(self, t: int) -> SnapshotSpace:
        snapshot, rows = self.graph.snapshots[t], self.rows

        def whole(rows: range) -> Adjacency:
            return Adjacency(
                snapshot.indptr, snapshot.indices, snapshot.weights,
                rows=rows, backend=self.backend, dtype=self.dtype, device=self.device,
            )  # fmt: skip

        mine = whole(rows)
        complete = len(rows) == self.graph.num_nodes
        degrees = (mine if complete else whole(range(self.graph.num_nodes))).row_sums()
        features = torch.tensor(np.asarray(self.graph.features[t]), device=self.device).to(self.dtype)
        targets = torch.tensor(np.asarray(self.graph.targets[t][rows.start : rows.stop]), device=self.device)
        inputs = features if complete else features[rows.start : rows.stop]
        operator = GCNOperator(mine, degrees, rows)
        return SnapshotSpace(operator, rows, inputs, targets.to(self.dtype), features, self._gather)
