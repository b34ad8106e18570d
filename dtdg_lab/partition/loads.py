"""Loads of vertices: how much is computed for them, over all snapshots."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PartitionError
from dtdg_lab.graphs.dynamic_graph import DynamicGraph


def vertex_loads(graph: DynamicGraph, hops: int) -> NDArray[np.float64]:
    """Edges of the computation graphs of every vertex, over all snapshots and all layers.

    The load of v at depth 1 is its in-degree; at depth l it is the sum of the depth l - 1 loads of its in-neighbours:
    the walks of l edges that end in v. A layer l computes the depths 1 to l, so depth l counts L - l + 1 times.

    Args:
        graph: N vertices in T snapshots; weights of edges do not matter.
        hops: L, depth of the computation graph: layers times hops a layer; at least 1.

    Returns:
        (N,) loads, in edges.

    Raises:
        PartitionError: hops is below 1.

    References: DynaHB section 4.2, algorithm 1.
    Differs from the paper: the printed algorithm forgets to gather at the source and drops layer L; both repaired.
    """
    if hops < 1:
        raise PartitionError(f"loads of {hops} hops: at least 1 is needed. Give layers times hops a layer.")
    loads = np.zeros(graph.num_nodes)
    for snapshot in graph.snapshots:
        depth: NDArray[np.float64] = np.diff(snapshot.indptr).astype(np.float64)
        loads += hops * depth
        if hops > 1 and snapshot.num_edges:
            rows = snapshot.rows()
            for passed in range(1, hops):
                depth = np.bincount(rows, depth[snapshot.indices], graph.num_nodes).astype(np.float64, copy=False)
                loads += (hops - passed) * depth
    return loads
