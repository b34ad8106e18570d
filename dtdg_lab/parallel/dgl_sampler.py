"""DGL's neighbour sampler in place of ours."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.batching.sampling import SampledEdges
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels.neighbour_sampling import DglNeighbours


class DglSampler:
    """Draws as :func:`dtdg_lab.batching.sampling.sampled_edges` does, weights included, by DGL's kernel.

    What it draws does not repeat, since DGL's generators are its threads'; layers of two hops see neighbours drawn
    twice, and models with such layers are refused by whoever makes the batches.

    Raises:
        NotAvailableError: DGL cannot be imported; on the first use.
    """

    def __init__(self) -> None:
        self._graphs: dict[int, tuple[Snapshot, DglNeighbours]] = {}

    def __call__(self, snapshot: Snapshot, rows: NDArray[np.integer], *, fanout: int, key: int) -> SampledEdges:
        """At most ``fanout`` in-neighbours of each of k different vertices; the key is not used."""
        if id(snapshot) not in self._graphs:  # the snapshot is kept with it, so that its id stays its own
            self._graphs[id(snapshot)] = snapshot, DglNeighbours(snapshot.indptr, snapshot.indices)
        counts, places = self._graphs[id(snapshot)][1].draw(rows, fanout)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        weights = None if snapshot.weights is None else snapshot.weights[places]
        found = snapshot.indptr[rows.astype(np.int64) + 1] - snapshot.indptr[rows]
        if (found > counts).any():
            grown = np.repeat(found / np.maximum(counts, 1), counts)
            weights = (grown if weights is None else weights * grown).astype(np.float32)
        return SampledEdges(indptr, snapshot.indices[places], weights)
