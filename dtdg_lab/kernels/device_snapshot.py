"""A snapshot whose arrays are tensors on the device that computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSnapshot:
    """N nodes and E edges, as in :class:`dtdg_lab.graphs.snapshot.Snapshot`; the tensors are read-only by convention.

    Attributes:
        indptr: (N + 1,) int32 offsets.
        indices: (E,) int32 sources, sorted in each row.
        weights: (E,) float32; None where edges carry no weight.
    """

    indptr: Tensor
    indices: Tensor
    weights: Tensor | None = None

    @property
    def num_nodes(self) -> int:
        """N."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """E."""
        return len(self.indices)


def stacked_on_device(snapshots: Sequence[DeviceSnapshot]) -> DeviceSnapshot:
    """S snapshots of N nodes as one of S N: node v of snapshot s becomes s N + v."""
    nodes, end = snapshots[0].num_nodes, 0
    offsets = [snapshots[0].indptr[:1]]
    for snapshot in snapshots:
        offsets.append(snapshot.indptr[1:] + end)
        end += snapshot.num_edges
    indices = torch.cat([of.indices + s * nodes for s, of in enumerate(snapshots)])
    weights = [of.weights for of in snapshots if of.weights is not None]
    return DeviceSnapshot(torch.cat(offsets), indices, torch.cat(weights) if weights else None)
