"""A seed that is made of a graph's edges, and of nothing else that the graph holds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from dtdg_lab.graphs.snapshot import Snapshot

_TAKEN = 4096  # sources, and rows, that are read of a snapshot: large graphs lie on disk


def edge_seed(snapshots: Iterable[Snapshot]) -> int:
    """A number below 2^256 that other edges change, and features, labels, weights and smoothing do not.

    Numbers of vertices and edges of every snapshot enter, and about ``_TAKEN`` of its edges, evenly spaced; all of them
    where there are no more. It seeds draws: graphs that agree in these may as well share it.

    Args:
        snapshots: one after the other; none is kept.

    Source: ours.
    """
    digest = hashlib.sha256(b"dtdg-lab edges 1")
    for snapshot in snapshots:
        digest.update(f"{snapshot.num_nodes},{snapshot.num_edges};".encode())
        for array, type_ in ((snapshot.indptr, np.int64), (snapshot.indices, np.int32)):
            taken = array[:: max(1, len(array) // _TAKEN)]
            digest.update(np.ascontiguousarray(taken, dtype=type_).tobytes())
    return int(digest.hexdigest(), 16)
