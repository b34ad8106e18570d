"""The M-transform of TM-GCN over time: every snapshot becomes the mean of the last w, and so do its features.

Row t of M (counted from 1) has M[t, k] = 1 / min(w, t) for max(1, t - w + 1) <= k <= t and 0 elsewhere: at the
beginning, where there are fewer than w snapshots, the mean is over those that there are. An edge without weight
counts as 1, so that smoothed snapshots always carry weights. Sums are taken in float64, oldest first, and divided
once: 1/w is never rounded before.

Source: ESDG sections 5.3 (the matrix M) and 5.4 (A and X are transformed), after TM-GCN (Malik et al. 2021).

Differs from the paper: labels are not smoothed; they say what the next snapshot really holds.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.graphs.sliding import SlidingEdges
from dtdg_lab.graphs.snapshot import Snapshot, edge_keys, finite_weights, snapshot_of_rows


class GraphSmoother:
    """The mean of the adjacency matrices of the last w snapshots.

    Args:
        num_nodes: N.
        window: w, at least 1.
        weighted: whether the snapshots carry weights.
    """

    def __init__(self, num_nodes: int, window: int, *, weighted: bool) -> None:
        self._alive = SlidingEdges(num_nodes, window, weighted=weighted)

    def push(self, snapshot: Snapshot) -> Snapshot:
        """Take the next snapshot and give the mean that ends with it, weighted."""
        self._alive.push(edge_keys(snapshot), snapshot.weights)
        mean = finite_weights(self._alive.sums() / len(self._alive))
        return snapshot_of_rows(self._alive.in_degree, self._alive.keys, mean)


class FeatureSmoother:
    """The mean of the features of the last w snapshots; w of them are held.

    Args:
        window: w, at least 1.
    """

    def __init__(self, window: int) -> None:
        self._alive: deque[NDArray[np.float32]] = deque(maxlen=window)

    def push(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Take features of shape (N, F) and give the mean that ends with them."""
        self._alive.append(features)
        total = np.zeros(features.shape, dtype=np.float64)
        for row in self._alive:
            total += row
        return (total / len(self._alive)).astype(np.float32)
