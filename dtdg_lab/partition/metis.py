"""METIS on the union of all snapshots: few edges between parts, and parts of alike weight."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.streams import key
from dtdg_lab.graphs.arrays import stored_once
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.assigned import Assigned
from dtdg_lab.partition.empty_parts import without_empty_parts
from dtdg_lab.partition.fitting import MOST, fitting
from dtdg_lab.partition.in_child import in_child, needs_library
from dtdg_lab.partition.union import UnionGraph, union_graph

READS = ("seed", "imbalance")


def assign(
    graph: DynamicGraph,
    parts: int,
    *,
    hops: int = 1,
    seed: int = 0,
    dealing: str = "boustrophedon",
    imbalance: float = 0.03,
    partition_file: str = "",
) -> Assigned:
    """Cut the union graph where fewest snapshots hold the edges, with edges and labelled vertices balanced.

    A pair weighs as much as snapshots hold it. A vertex weighs its share of all edges (in and out, over all
    snapshots) plus its share of all labelled vertices: pymetis takes one weight a vertex, so the two balances that
    METIS could keep apart are kept as their sum. Vertices without a neighbour in any snapshot are not shown to METIS:
    they go, in order, to the parts that then have fewest vertices. METIS runs in a child process.

    Args:
        graph: N vertices in T snapshots; labelled are those with a class at any time, or all where there are none.
        parts: P, at most N.
        hops: not read.
        seed: of METIS.
        dealing: not read.
        imbalance: how far the heaviest part may be above the mean, as a share; METIS does not promise it.
        partition_file: not read.

    Raises:
        NotAvailableError: pymetis is not installed.
        PartitionError: METIS crashed, failed or hung.

    References: Karypis, Kumar 1998 (METIS 5, k-way; recursive bisection up to 8 parts); FlareDTDG section 4.
    """
    needs_library("pymetis")
    union = union_graph(graph.snapshots)
    weights = vertex_weights(graph)
    joined = np.flatnonzero(np.diff(union.indptr))
    alone = np.flatnonzero(np.diff(union.indptr) == 0)
    owner = np.zeros(graph.num_nodes, np.int32)
    if 1 < parts < len(joined):
        arrays = {
            **_rows_of(union, joined),
            "vertex_weights": fitting(weights[joined] * MOST / weights[joined].sum()),
            "parts": np.array(parts),
            "seed": np.array(key(seed, "partition/metis") & 0x7FFFFFFF),
            "imbalance": np.array(imbalance),
        }
        owner[joined] = in_child("metis", arrays, vertices=len(joined), parts=parts)
    else:  # nothing to cut: one part, or one for each vertex that has a neighbour
        owner[joined] = np.arange(len(joined)) % parts
    owner[alone] = _to_smallest(np.bincount(owner[joined], minlength=parts), len(alone))
    return without_empty_parts(owner, parts, weights)


def vertex_weights(graph: DynamicGraph) -> NDArray[np.float64]:
    """A vertex's share of all edges, in and out over all snapshots, plus its share of all labelled vertices; (N,)."""
    edges = np.zeros(graph.num_nodes)
    for snapshot in graph.snapshots:
        edges += np.diff(snapshot.indptr)
        edges += np.bincount(snapshot.indices, minlength=graph.num_nodes)
    labelled = np.ones(graph.num_nodes, bool)
    if graph.classes is not None and graph.num_classes:
        labelled[:] = False
        for classes in np.atleast_2d(stored_once(graph.classes)):
            labelled |= classes != -1
    return edges / max(1.0, edges.sum()) + labelled / labelled.sum()


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
