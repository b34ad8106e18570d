"""Edges of a decayed snapshot as one makes them without an order for the epoch: cut out and relabelled every time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.batching.shrink import ShrunkenEdges
from dtdg_lab.graphs.snapshot import Snapshot


def naive_edges(
    snapshot: Snapshot, vertices: NDArray[np.int64], parts: NDArray[np.int32], way: str = "in"
) -> ShrunkenEdges:
    """The edges of a snapshot among some vertices, within one part each: the induced subgraph, relabelled.

    Looks at every edge of the snapshot and sorts the ends that are left. What
    :class:`dtdg_lab.batching.shrink.Shrinker` is measured and tested against.

    Args:
        snapshot: N vertices.
        vertices: (n,) distinct ones, in the order in which they are numbered anew.
        parts: (n,) the part of each.
        way: ``in``: a vertex pulls from its in-neighbours; ``out``: from its out-neighbours.

    Returns:
        The edges; a row's columns are ordered as those of the shrinker.

    References: the variant without shrinking of FlareDTDG section 4.3 (tables 9 and 10).
    """
    part = np.full(snapshot.num_nodes, -1, np.int32)
    part[vertices] = parts
    targets, sources = snapshot.rows(), snapshot.indices.astype(np.int64)
    held = (part[targets] >= 0) & (part[targets] == part[sources])
    targets, sources = targets[held], sources[held]
    weights = None if snapshot.weights is None else snapshot.weights[held]

    rows, edges = len(vertices), len(targets)
    labels, label = np.unique(np.concatenate([vertices, targets, sources]), return_inverse=True)
    number = np.empty(len(labels), np.int64)
    number[label[:rows]] = np.arange(rows)
    to, of = number[label[rows : rows + edges]], number[label[rows + edges :]]
    pulling, pulled = (to, of) if way == "in" else (of, to)
    order = np.lexsort((sources if way == "in" else pulled, pulling))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(pulling, minlength=rows))]).astype(np.int64)
    return ShrunkenEdges(
        indptr,
        pulled[order].astype(np.int32),
        None if weights is None else weights[order],
        np.bincount(pulling, weights, rows).astype(np.float64),
        np.bincount(pulled, weights, rows).astype(np.float64),
    )
