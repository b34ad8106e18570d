"""What events say of the windows that a run trains on: their shape, and how rows and memory follow from it."""

from __future__ import annotations

from typing import Any

import numpy as np

from dtdg_lab.batching.row_memory import RowMemory
from dtdg_lab.batching.trapezoid import Trapezoid
from dtdg_lab.core.batch_plans import Chunking
from dtdg_lab.core.plans import Partition


def told_windows(shape: Trapezoid, partition: Partition, chunking: Chunking, memory: RowMemory, ranks: int) -> Any:
    """The event ``trapezoid``.

    Args:
        shape: of the windows.
        partition: of the vertices into P parts.
        chunking: of the parts.
        memory: of a step, as measured.
        ranks: R.

    Returns:
        ``window`` W, ``full_snapshots`` K, ``alpha``, ``decay``, ``counts`` (m chunks, newest first), ``chunks`` C,
        ``nodes`` N, ``row_counts`` (C + 1: rows of the first c chunks of all parts, chunks taken as alike),
        ``rank_row_counts`` (C + 1: of the rank that has most), and ``base_bytes``, ``row_bytes``, ``piece_bytes``,
        ``piece_rows`` of :class:`dtdg_lab.batching.row_memory.RowMemory`.
    """
    chunks = np.arange(chunking.chunks + 1) / chunking.chunks
    nodes, most = len(partition.owner), int(partition.on_ranks(ranks).counts.max())
    return {
        "window": shape.window, "full_snapshots": shape.full, "alpha": shape.alpha, "decay": shape.decay,
        "counts": list(shape.counts), "chunks": chunking.chunks, "nodes": nodes,
        "row_counts": (chunks * nodes).tolist(), "rank_row_counts": (chunks * most).tolist(),
        "base_bytes": memory.base_bytes, "row_bytes": memory.row_bytes,
        "piece_bytes": memory.piece_bytes, "piece_rows": memory.piece_rows,
    }  # fmt: skip
