"""Several snapshots as one, block-diagonally: one product then serves them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels.device_snapshot import DeviceSnapshot, stacked_on_device


def stacked(snapshots: Sequence[Snapshot | DeviceSnapshot]) -> Snapshot | DeviceSnapshot:
    """S snapshots of N vertices as one of S N, where they are: vertex v of snapshot s becomes s N + v."""
    if len(snapshots) == 1:
        return snapshots[0]
    if isinstance(snapshots[0], DeviceSnapshot):
        return stacked_on_device(cast(Sequence[DeviceSnapshot], snapshots))
    return _stacked_on_host(cast(Sequence[Snapshot], snapshots))


def _stacked_on_host(snapshots: Sequence[Snapshot]) -> Snapshot:
    nodes = snapshots[0].num_nodes
    ends = np.cumsum([0, *(snapshot.num_edges for snapshot in snapshots)])
    indptr = np.concatenate([[0], *(of.indptr[1:] + end for of, end in zip(snapshots, ends[:-1], strict=True))])
    indices = np.concatenate([of.indices + np.int32(s * nodes) for s, of in enumerate(snapshots)])
    parts = [of.weights for of in snapshots if of.weights is not None]
    return Snapshot(indptr, indices, np.concatenate(parts) if parts else None)
