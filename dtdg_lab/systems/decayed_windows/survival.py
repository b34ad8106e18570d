"""The order in which nodes survive in decayed snapshots: shuffled chunks, per part and epoch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.rng import generator
from dtdg_lab.systems.decayed_windows.chunks import Chunking


@dataclass(frozen=True, slots=True, eq=False)
class SurvivalOrder:
    """The own nodes of one rank by survival time, longest first: a decayed snapshot has a prefix of them.

    Attributes:
        vertices: (n,) int64, ordered by the position of their chunk in its part's shuffle, then part, then number.
        parts: (n,) int32, the part of each node.
        rows: (C + 1,) int64: ``rows[c]`` nodes are in the first c chunks of the rank's parts.

    References: FlareDTDG section 3.3 (survival time, global remapping).
    """

    vertices: NDArray[np.int64]
    parts: NDArray[np.int32]
    rows: NDArray[np.int64]


def survival_order(
    owner: NDArray[np.int32], chunking: Chunking, parts: range, *, seed: int, epoch: int
) -> SurvivalOrder:
    """Order the nodes of some parts by how long their chunks survive, the longest first.

    A part's chunks are shuffled by its own random stream, independent of the other parts on the rank.

    Args:
        owner: (N,) the part of each node.
        chunking: of these nodes, in parts of this partition.
        parts: consecutive ones, such as those of a rank.
        seed: of the run.
        epoch: index of the epoch.

    Raises:
        PlanError: a chunk has no nodes.

    References: FlareDTDG section 3.3 (steps 1 and 2 of figure 4).
    Differs from the paper: each part has a shuffle of its own, so that ranks need not exchange it.
    """
    chunks = chunking.chunks
    positions = np.empty((len(parts), chunks), np.int64)
    for row, part in zip(positions, parts, strict=True):
        row[generator(seed, "batching/survival", epoch, part).permutation(chunks)] = np.arange(chunks)
    vertices = np.flatnonzero((owner >= parts.start) & (owner < parts.stop))
    local_part = owner[vertices] - np.int32(parts.start)
    key = positions[local_part, chunking.chunk[vertices]] * len(parts) + local_part
    sizes = np.bincount(key, minlength=chunks * len(parts))
    if not sizes.all():
        part = int(np.flatnonzero(sizes == 0)[0]) % len(parts) + parts.start
        raise PlanError(f"a chunk of part {part} has no nodes. Make the chunks from this partition.")
    order = np.argsort(key.astype(np.uint16) if len(sizes) <= 1 << 16 else key, kind="stable")  # 16 bits: radix sort
    rows = np.concatenate([[0], np.cumsum(sizes.reshape(chunks, len(parts)).sum(axis=1))])
    return SurvivalOrder(vertices[order], owner[vertices][order], rows)


@dataclass(frozen=True, slots=True, eq=False)
class SurvivalRows:
    """An order of survival as index tensors; n own nodes, whose rows in full snapshots are ordered by number.

    Attributes:
        order: on the host.
        vertices: (n,) int64, the nodes' numbers in the graph.
        full_rows: (n,) int64: the row in a full snapshot of each node in this order.
        positions: (n,) int64: the position in this order of each row of a full snapshot.
    """

    order: SurvivalOrder
    vertices: Tensor
    full_rows: Tensor
    positions: Tensor

    @classmethod
    def of(cls, order: SurvivalOrder, device: str) -> SurvivalRows:
        """Return the order as tensors on ``device``."""
        positions = np.argsort(order.vertices)
        tensors = (torch.tensor(array, device=device) for array in (order.vertices, np.argsort(positions), positions))
        return cls(order, *tensors)

    def num_rows(self, chunks: int) -> int:
        """Return the number of rows of a snapshot that has the first ``chunks`` chunks of every part."""
        return int(self.order.rows[chunks])
