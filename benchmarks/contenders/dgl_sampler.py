"""DGL's neighbour sampler in the place of the lab's; for benchmarks/greendygnn.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dtdg_lab.engine.minibatch.neighbour_sampling import SampledEdges, scaled_weights
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels.spmm import import_dgl


class DglSampler:
    """Sampler by DGL's kernel, with the weights of :func:`sampled_edges`.

    Samples are not reproducible: DGL seeds the threads of its pool, not the calling thread.

    Raises:
        NotAvailableError: DGL cannot be imported; on the first use.

    References: Wang et al. 2019 (DGL), ``dgl.sampling.sample_neighbors``.
    """

    def __init__(self) -> None:
        self._graphs: dict[int, tuple[Snapshot, Any]] = {}

    def __call__(self, snapshot: Snapshot, rows: NDArray[np.integer], *, fanout: int, key: int) -> SampledEdges:
        """Sample at most ``fanout`` in-neighbours of each of k distinct nodes; the key is ignored."""
        dgl = import_dgl()
        if id(snapshot) not in self._graphs:  # keep the snapshot too, so that its id is not reused
            indices, edge_ids = torch.tensor(snapshot.indices, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
            edges = ("csc", (torch.tensor(snapshot.indptr), indices, edge_ids))
            self._graphs[id(snapshot)] = snapshot, dgl.graph(edges, num_nodes=snapshot.num_nodes)
        graph = self._graphs[id(snapshot)][1]
        sampled_graph = dgl.sampling.sample_neighbors(graph, torch.tensor(rows, dtype=torch.int64), fanout)
        row_of = np.empty(snapshot.num_nodes, np.int64)
        row_of[rows] = np.arange(len(rows))
        row_index, places = row_of[sampled_graph.edges()[1].numpy()], sampled_graph.edata[dgl.EID].numpy()
        places = places[np.lexsort((places, row_index))]
        counts = np.bincount(row_index, minlength=len(rows))
        weights = None if snapshot.weights is None else snapshot.weights[places]
        degrees = snapshot.indptr[rows.astype(np.int64) + 1] - snapshot.indptr[rows]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        return SampledEdges(indptr, snapshot.indices[places], scaled_weights(weights, degrees, counts))
