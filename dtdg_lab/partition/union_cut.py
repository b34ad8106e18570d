"""METIS on a union graph, in a child process; vertices without a neighbour are dealt to what is smallest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.partition.assigned import Assigned
from dtdg_lab.partition.empty_parts import without_empty_parts
from dtdg_lab.partition.fitting import MOST, fitting
from dtdg_lab.partition.in_child import in_child
from dtdg_lab.partition.union import UnionGraph


def cut_union(union: UnionGraph, weights: NDArray[np.float64], parts: int, *, seed: int, imbalance: float) -> Assigned:
    """Cut a union graph where fewest snapshots hold the edges, into parts of alike weight.

    A pair weighs as much as snapshots hold it. Vertices without a neighbour are not shown to METIS: they go, in order,
    to the parts that then have fewest vertices.

    Args:
        union: N vertices.
        weights: (N,) what a vertex weighs, in any unit, above 0 for some.
        parts: P, at most N.
        seed: of METIS, below 2^31.
        imbalance: how far the heaviest part may be above the mean, as a share; METIS does not promise it.

    Raises:
        PartitionError: METIS crashed, failed or hung.

    References: Karypis, Kumar 1998 (METIS 5, k-way; recursive bisection up to 8 parts).
    """
    joined = np.flatnonzero(np.diff(union.indptr))
    alone = np.flatnonzero(np.diff(union.indptr) == 0)
    owner = np.zeros(len(union.indptr) - 1, np.int32)
    if 1 < parts < len(joined):
        arrays = {
            **_rows_of(union, joined),
            "vertex_weights": fitting(weights[joined] * MOST / weights[joined].sum()),
            "parts": np.array(parts),
            "seed": np.array(seed),
            "imbalance": np.array(imbalance),
        }
        owner[joined] = in_child("metis", arrays, vertices=len(joined), parts=parts)
    else:  # nothing to cut: one part, or one for each vertex that has a neighbour
        owner[joined] = np.arange(len(joined)) % parts
    owner[alone] = _to_smallest(np.bincount(owner[joined], minlength=parts), len(alone))
    return without_empty_parts(owner, parts, weights)


def _rows_of(union: UnionGraph, joined: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """The rows of the vertices that have neighbours, numbered anew; rows of the others are empty anyway."""
    number = np.zeros(len(union.indptr) - 1, np.int64)
    number[joined] = np.arange(len(joined))
    return {
        "indptr": np.concatenate([union.indptr[joined], union.indptr[-1:]]),
        "indices": number[union.indices],
        "edge_weights": fitting(union.snapshots),
    }


def _to_smallest(counts: NDArray[Any], number: int) -> NDArray[np.int32]:
    """Parts for ``number`` vertices, one after another to the part that has fewest; ties go to the lower part."""
    counts = counts.astype(np.int64)
    # part p takes its k-th extra vertex when all parts stand at counts[p] + k: sort these levels
    level = int(counts.max()) + number // len(counts) + 1
    room = np.minimum(level - counts, number)
    parts = np.repeat(np.arange(len(counts)), room)
    steps = np.arange(len(parts)) - np.repeat(np.cumsum(room) - room, room)
    order = np.lexsort((parts, counts[parts] + steps))
    return parts[order[:number]].astype(np.int32)
