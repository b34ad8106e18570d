"""METIS on the union of all snapshots: an undirected graph whose pairs weigh as many as snapshots contain them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.preparation import track
from dtdg_lab.core.rng import key
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import (
    Snapshot,
    distinct,
    keys_of,
    sources,
    stable_order,
    stored_once,
    sums_of_equal,
    targets,
)
from dtdg_lab.partition.base import Assigned, without_empty_parts
from dtdg_lab.partition.child_process import MAX_SUM, fitting, in_child, needs_library
from dtdg_lab.partition.neighbourhoods import KEYS_AT_ONCE


@dataclass(frozen=True, slots=True, eq=False)
class UnionGraph:
    """Undirected graph without self-loops in CSR form; each pair is stored in both rows.

    Attributes:
        indptr: (N + 1,) int64.
        indices: (2 pairs,) int32, sorted within each row.
        snapshots: (2 pairs,) int64, the number of snapshots that contain the pair in either direction.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    snapshots: NDArray[np.int64]


def union_graph(snapshots: Sequence[Snapshot]) -> UnionGraph:
    """Return the union of T snapshots over the same N nodes: duplicates merged, symmetrised, self-loops dropped.

    Costs O(E log E) for all E edges; memory O(N + E of the union), plus 64 MiB for sorting edges.

    References: FlareDTDG section 4 (METIS on the union graph).
    """
    pairs, counts = np.empty(0, np.int64), np.empty(0)
    waiting: list[NDArray[np.int64]] = []
    size = 0
    for snapshot in track(snapshots, "the partitioner's graph is made of all snapshots"):
        waiting.append(_pairs_of(snapshot))
        size += len(waiting[-1])
        if size > KEYS_AT_ONCE:
            (pairs, counts), waiting, size = _merge(pairs, counts, waiting), [], 0
    if waiting:
        pairs, counts = _merge(pairs, counts, waiting)
    low, high = targets(pairs), sources(pairs)
    by_high = stable_order(high)
    keys = np.concatenate([pairs, keys_of(low, high)[by_high]])
    order = np.argsort(keys, kind="stable")
    lengths = np.bincount(np.concatenate([low, high]), minlength=snapshots[0].num_nodes)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    snapshots_of = np.concatenate([counts, counts[by_high]]).astype(np.int64)
    return UnionGraph(indptr, sources(keys[order]), snapshots_of[order])


# numpy's stable sort merges ascending runs in a quarter of the time of its default sort.


def _pairs_of(snapshot: Snapshot) -> NDArray[np.int64]:
    """Return the keys of all pairs of adjacent nodes, each once as an edge into the lower node; ascending."""
    rows, columns = snapshot.rows(), snapshot.indices
    up, down = np.flatnonzero(rows < columns), np.flatnonzero(rows > columns)
    down = down[stable_order(columns[down])]
    keys = np.concatenate([keys_of(columns[up], rows[up]), keys_of(rows[down], columns[down])])
    keys.sort(kind="stable")
    return distinct(keys)


def _merge(
    pairs: NDArray[np.int64], counts: NDArray[np.float64], arrays: list[NDArray[np.int64]]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Merge ascending ``pairs``, which occur ``counts`` times, with arrays of keys; return distinct keys and counts."""
    keys = np.concatenate(arrays)
    keys.sort(kind="stable")
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    new, new_counts = keys[starts], np.diff(starts, append=len(keys)).astype(np.float64)
    if not len(pairs):
        return new, new_counts
    keys = np.concatenate([pairs, new])
    order = np.argsort(keys, kind="stable")
    return distinct(keys[order]), sums_of_equal(keys[order], np.concatenate([counts, new_counts])[order])


def restricted(union: UnionGraph, vertices: NDArray[np.int64]) -> UnionGraph:
    """Return the subgraph induced by some nodes, renumbered in their order.

    Args:
        union: N nodes.
        vertices: (n,) ascending, distinct.
    """
    number = np.full(len(union.indptr) - 1, -1, np.int32)
    number[vertices] = np.arange(len(vertices), dtype=np.int32)
    lengths = np.diff(union.indptr)[vertices]
    rows = np.repeat(np.arange(len(vertices)), lengths)
    ends = np.cumsum(lengths)
    positions = np.arange(len(rows)) + np.repeat(union.indptr[vertices] - (ends - lengths), lengths)
    columns = number[union.indices[positions]]
    inside = columns >= 0
    indptr = np.zeros(len(vertices) + 1, np.int64)
    np.cumsum(np.bincount(rows[inside], minlength=len(vertices)), out=indptr[1:])
    return UnionGraph(indptr, columns[inside], union.snapshots[positions[inside]])


def cut_union(union: UnionGraph, weights: NDArray[np.float64], parts: int, *, seed: int, imbalance: float) -> Assigned:
    """Partition a union graph into balanced parts, minimising cut edges summed over the snapshots.

    The weight of a pair is the number of snapshots that contain it. Isolated nodes are not passed to METIS; they are
    assigned, in order, to the part with the fewest nodes.

    Args:
        union: N nodes.
        weights: (N,) node weights in any unit, above 0 for some nodes.
        parts: P, at most N.
        seed: seed of METIS, below 2^31.
        imbalance: most by which the heaviest part may exceed the mean, as a share of it; METIS does not guarantee it.

    Raises:
        PartitionError: METIS crashed, failed or timed out.

    References: Karypis, Kumar 1998 (METIS 5, k-way; recursive bisection up to 8 parts).
    """
    connected = np.flatnonzero(np.diff(union.indptr))
    isolated = np.flatnonzero(np.diff(union.indptr) == 0)
    owner = np.zeros(len(union.indptr) - 1, np.int32)
    if 1 < parts < len(connected):
        arrays = {
            **_rows_of(union, connected),
            "vertex_weights": fitting(weights[connected] * MAX_SUM / weights[connected].sum()),
            "parts": np.array(parts),
            "seed": np.array(seed),
            "imbalance": np.array(imbalance),
        }
        owner[connected] = in_child("metis", arrays, vertices=len(connected), parts=parts)
    else:  # trivial: one part, or at least as many parts as connected nodes
        owner[connected] = np.arange(len(connected)) % parts
    owner[isolated] = _to_smallest(np.bincount(owner[connected], minlength=parts), len(isolated))
    return without_empty_parts(owner, parts, weights)


def _rows_of(union: UnionGraph, connected: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Return the adjacency rows of the connected nodes, renumbered; the rows of isolated nodes are empty."""
    number = np.zeros(len(union.indptr) - 1, np.int64)
    number[connected] = np.arange(len(connected))
    return {
        "indptr": np.concatenate([union.indptr[connected], union.indptr[-1:]]),
        "indices": number[union.indices],
        "edge_weights": fitting(union.snapshots),
    }


def _to_smallest(counts: NDArray[Any], number: int) -> NDArray[np.int32]:
    """Assign ``number`` nodes one by one to the part with the fewest nodes; ties go to the lower part."""
    counts = counts.astype(np.int64)
    # part p gets its k-th extra node when the lowest count is counts[p] + k: sort these levels
    level = int(counts.max()) + number // len(counts) + 1
    room = np.minimum(level - counts, number)
    parts = np.repeat(np.arange(len(counts)), room)
    steps = np.arange(len(parts)) - np.repeat(np.cumsum(room) - room, room)
    order = np.lexsort((parts, counts[parts] + steps))
    return parts[order[:number]].astype(np.int32)


def assign_metis(graph: DynamicGraph, parts: int, *, seed: int = 0, imbalance: float = 0.03) -> Assigned:
    """Partition the union graph with METIS, minimising cut edges and balancing edges and labelled nodes.

    The weight of a pair is the number of snapshots that contain it. The weight of a node is its share of all edges
    (in and out, over all snapshots) plus its share of all labelled nodes. METIS could balance the two separately, but
    pymetis takes only one weight per node. Isolated nodes are not passed to METIS; they are assigned, in order, to the
    part with the fewest nodes. METIS runs in a child process.

    Args:
        graph: N nodes in T snapshots; nodes with a class at any time are labelled, or all nodes if none has.
        parts: P, at most N.
        seed: seed of METIS.
        imbalance: most by which the heaviest part may exceed the mean, as a share of it; METIS does not guarantee it.

    Raises:
        NotAvailableError: pymetis is not installed.
        PartitionError: METIS crashed, failed or timed out.

    References: Karypis, Kumar 1998 (METIS 5, k-way; recursive bisection up to 8 parts); FlareDTDG section 4.
    """
    needs_library("pymetis")
    if parts == 1:
        return Assigned(np.zeros(graph.num_nodes, np.int32))
    solver_seed = key(seed, "partition/metis") & 0x7FFFFFFF
    return cut_union(union_graph(graph.snapshots), vertex_weights(graph), parts, seed=solver_seed, imbalance=imbalance)


def vertex_weights(graph: DynamicGraph) -> NDArray[np.float64]:
    """Return each node's share of all edges, in and out, plus its share of all labelled nodes; (N,)."""
    edges = np.zeros(graph.num_nodes)
    for snapshot in graph.snapshots:
        edges += np.diff(snapshot.indptr)
        edges += np.bincount(snapshot.indices, minlength=graph.num_nodes)
    labelled = np.ones(graph.num_nodes, bool)
    if graph.classes is not None and graph.num_classes:
        labelled[:] = False
        for classes in np.atleast_2d(stored_once(graph.classes)):
            labelled |= classes != -1
        if not labelled.any():  # such as before the first label
            labelled[:] = True
    return edges / max(1.0, edges.sum()) + labelled / labelled.sum()
