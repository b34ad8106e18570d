"""DGL's neighbour sampler: which of each node's in-edges it draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dtdg_lab.kernels.spmm import import_dgl


class DglNeighbours:
    """Draws in-edges of nodes of one graph, evenly and without repetition.

    DGL seeds the threads of its pool, not the one that calls: what a thread of ours draws does not repeat.

    Args:
        indptr: (N + 1,) int64.
        indices: (E,) int32.

    Raises:
        NotAvailableError: DGL cannot be imported.

    References: Wang et al. 2019 (DGL), ``dgl.sampling.sample_neighbors``.
    """

    def __init__(self, indptr: NDArray[np.int64], indices: NDArray[np.int32]) -> None:
        self._dgl = import_dgl()
        edges = (torch.tensor(indptr), torch.tensor(indices, dtype=torch.int64), torch.empty(0, dtype=torch.int64))
        self._graph: Any = self._dgl.graph(("csc", edges), num_nodes=len(indptr) - 1)

    def draw(self, rows: NDArray[np.integer], fanout: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """At most ``fanout`` in-edges of each of k different nodes.

        Returns:
            how many each has, (k,), and their places among the E edges, node after node.
        """
        vertices = torch.tensor(rows, dtype=torch.int64)
        drawn = self._dgl.sampling.sample_neighbors(self._graph, vertices, fanout)
        targets = drawn.edges()[1].numpy()
        places = drawn.edata[self._dgl.EID].numpy()
        row_of = np.empty(self._graph.num_nodes(), np.int64)
        row_of[rows] = np.arange(len(rows))
        of = row_of[targets]
        order = np.lexsort((places, of))
        return np.bincount(of, minlength=len(rows)), places[order]
