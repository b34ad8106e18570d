"""METIS on the union of all snapshots: few cut edges and balanced parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.rng import key
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot, stored_once
from dtdg_lab.partition.base import Assigned, without_empty_parts
from dtdg_lab.partition.child_process import in_child, needs_library

# Integer weights whose sum fits into 32 bits, as the libraries require.


MOST = 1 << 30  # half of the 32-bit range, which leaves headroom for sums of coarser levels


def fitting(weights: NDArray[Any]) -> NDArray[np.int64]:
    """The weights as integers of at least 1, scaled down if their sum would exceed 2^30.

    Args:
        weights: (K,) at least 0, K at most 2^29.
    """
    weights = np.asarray(weights, np.float64)
    total = weights.sum()
    scale = 1.0 if total <= MOST else (MOST - len(weights)) / total
    return np.maximum(1, np.floor(weights * scale + 0.5)).astype(np.int64)


# The union of snapshots as an undirected graph, weighted by the number of snapshots that contain each pair.


_WAITING = 1 << 23  # pairs collected before merging: 64 MiB


@dataclass(frozen=True, slots=True, eq=False)
class UnionGraph:
    """An undirected graph without self-loops in CSR form; each pair is stored in both rows.

    Attributes:
        indptr: (N + 1,) int64.
        indices: (2 pairs,) int32, sorted within each row.
        snapshots: (2 pairs,) int64, the number of snapshots that contain the pair in either direction.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    snapshots: NDArray[np.int64]


def union_graph(snapshots: Sequence[Snapshot]) -> UnionGraph:
    """The union of T snapshots over the same N nodes: duplicates merged, symmetrised, self-loops dropped.

    Costs O(E log E) for E edges over all snapshots; memory O(E of the union), not of the sequence.

    References: FlareDTDG section 4 (METIS on the union graph).
    """
    nodes = snapshots[0].num_nodes
    pairs, held = _merged(_pairs(snapshot) for snapshot in snapshots)
    low, high = np.divmod(pairs, nodes)
    keys = np.concatenate([low * nodes + high, high * nodes + low])
    order = np.argsort(keys, kind="stable")
    rows, columns = np.divmod(keys[order], nodes)
    indptr = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=nodes), out=indptr[1:])
    return UnionGraph(indptr, columns.astype(np.int32), np.concatenate([held, held])[order])


def restricted(union: UnionGraph, vertices: NDArray[np.int64]) -> UnionGraph:
    """The subgraph induced by some nodes, renumbered in their order; costs O(their pairs).

    Args:
        union: N nodes.
        vertices: (n,) ascending, distinct.
    """
    number = np.full(len(union.indptr) - 1, -1, np.int32)
    number[vertices] = np.arange(len(vertices), dtype=np.int32)
    lengths = np.diff(union.indptr)[vertices]
    rows = np.repeat(np.arange(len(vertices)), lengths)
    ends = np.cumsum(lengths)
    at = np.arange(len(rows)) + np.repeat(union.indptr[vertices] - (ends - lengths), lengths)
    columns = number[union.indices[at]]
    inside = columns >= 0
    indptr = np.zeros(len(vertices) + 1, np.int64)
    np.cumsum(np.bincount(rows[inside], minlength=len(vertices)), out=indptr[1:])
    return UnionGraph(indptr, columns[inside], union.snapshots[at[inside]])


def _pairs(snapshot: Snapshot) -> NDArray[np.int64]:
    """The distinct pairs of different nodes joined by an edge, as lower * N + higher; sorted."""
    rows, sources = snapshot.rows(), snapshot.indices.astype(np.int64)
    apart = rows != sources
    rows, sources = rows[apart], sources[apart]
    keys = np.minimum(rows, sources) * snapshot.num_nodes + np.maximum(rows, sources)
    keys.sort()
    return keys[_firsts(keys)]


def _merged(parts: Iterable[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct keys of all arrays and in how many arrays each occurs; keys are distinct within an array."""
    keys, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    waiting: list[NDArray[np.int64]] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size > _WAITING:
            keys, counts = _added(keys, counts, waiting)
            waiting, size = [], 0
    return _added(keys, counts, waiting)


def _added(
    keys: NDArray[np.int64], counts: NDArray[np.int64], more: list[NDArray[np.int64]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct sorted keys with their counts, merged with further keys that count 1 each."""
    fresh = np.concatenate([np.empty(0, np.int64), *more])
    fresh.sort()
    firsts = _firsts(fresh)
    fresh, number = fresh[firsts], np.diff(firsts, append=len(fresh))
    if not len(keys):
        return fresh, number
    both = np.concatenate([keys, fresh])
    order = np.argsort(both, kind="stable")  # two sorted runs: merged in one pass
    both, number = both[order], np.concatenate([counts, number])[order]
    firsts = _firsts(both)
    return both[firsts], np.add.reduceat(number, firsts)


def _firsts(ordered: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each distinct key of a sorted vector begins."""
    return np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))


# METIS on a union graph in a child process; isolated nodes are assigned to the smallest parts.


def cut_union(union: UnionGraph, weights: NDArray[np.float64], parts: int, *, seed: int, imbalance: float) -> Assigned:
    """Partition a union graph into balanced parts, minimising cut edges summed over the snapshots.

    The weight of a pair is the number of snapshots that contain it. Isolated nodes are not passed to METIS; they are
    assigned, in order, to the part with the fewest nodes.

    Args:
        union: N nodes.
        weights: (N,) node weights in any unit, above 0 for some nodes.
        parts: P, at most N.
        seed: of METIS, below 2^31.
        imbalance: how far the heaviest part may exceed the mean, as a share of it; METIS does not guarantee it.

    Raises:
        PartitionError: METIS crashed, failed or timed out.

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
    else:  # trivial: one part, or at least as many parts as connected nodes
        owner[joined] = np.arange(len(joined)) % parts
    owner[alone] = _to_smallest(np.bincount(owner[joined], minlength=parts), len(alone))
    return without_empty_parts(owner, parts, weights)


def _rows_of(union: UnionGraph, joined: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """The adjacency rows of the connected nodes, renumbered; the rows of isolated nodes are empty."""
    number = np.zeros(len(union.indptr) - 1, np.int64)
    number[joined] = np.arange(len(joined))
    return {
        "indptr": np.concatenate([union.indptr[joined], union.indptr[-1:]]),
        "indices": number[union.indices],
        "edge_weights": fitting(union.snapshots),
    }


def _to_smallest(counts: NDArray[Any], number: int) -> NDArray[np.int32]:
    """Parts for ``number`` nodes, each assigned to the part with the fewest nodes; ties go to the lower part."""
    counts = counts.astype(np.int64)
    # part p gets its k-th extra node when the lowest count is counts[p] + k: sort these levels
    level = int(counts.max()) + number // len(counts) + 1
    room = np.minimum(level - counts, number)
    parts = np.repeat(np.arange(len(counts)), room)
    steps = np.arange(len(parts)) - np.repeat(np.cumsum(room) - room, room)
    order = np.lexsort((parts, counts[parts] + steps))
    return parts[order[:number]].astype(np.int32)


def assign(graph: DynamicGraph, parts: int, *, seed: int = 0, imbalance: float = 0.03) -> Assigned:
    """Partition the union graph with METIS, minimising cut edges and balancing edges and labelled nodes.

    The weight of a pair is the number of snapshots that contain it. The weight of a node is its share of all edges
    (in and out, over all snapshots) plus its share of all labelled nodes. METIS could balance the two separately, but
    pymetis takes only one weight per node. Isolated nodes are not passed to METIS; they are assigned, in order, to the
    part with the fewest nodes. METIS runs in a child process.

    Args:
        graph: N nodes in T snapshots; labelled nodes have a class at any time; all count if none has.
        parts: P, at most N.
        seed: of METIS.
        imbalance: how far the heaviest part may exceed the mean, as a share of it; METIS does not guarantee it.

    Raises:
        NotAvailableError: pymetis is not installed.
        PartitionError: METIS crashed, failed or timed out.

    References: Karypis, Kumar 1998 (METIS 5, k-way; recursive bisection up to 8 parts); FlareDTDG section 4.
    """
    needs_library("pymetis")
    solver_seed = key(seed, "partition/metis") & 0x7FFFFFFF
    return cut_union(union_graph(graph.snapshots), vertex_weights(graph), parts, seed=solver_seed, imbalance=imbalance)


def vertex_weights(graph: DynamicGraph) -> NDArray[np.float64]:
    """A node's share of all edges, in and out over all snapshots, plus its share of all labelled nodes; (N,)."""
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
