"""Partitioners of libraries: METIS on the union of all snapshots, and Mt-KaHyPar on the nets of a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.preparation import each
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
from dtdg_lab.partition.child_process import in_child, needs_library
from dtdg_lab.partition.halo import KEYS_AT_ONCE
from dtdg_lab.partition.simple import mixed

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

    Costs O(E log E) for all E edges; memory O(N + E of the union), and 64 MiB of edges that are sorted together.

    References: FlareDTDG section 4 (METIS on the union graph).
    """
    pairs, counts = np.empty(0, np.int64), np.empty(0)
    waiting: list[NDArray[np.int64]] = []
    size = 0
    for snapshot in each(snapshots, "the partitioner's graph is made of all snapshots"):
        waiting.append(_pairs_of(snapshot))
        size += len(waiting[-1])
        if size > KEYS_AT_ONCE:
            (pairs, counts), waiting, size = _merged(pairs, counts, waiting), [], 0
    if waiting:
        pairs, counts = _merged(pairs, counts, waiting)
    low, high = targets(pairs), sources(pairs)
    turned = stable_order(high)
    keys = np.concatenate([pairs, keys_of(low, high)[turned]])
    order = np.argsort(keys, kind="stable")
    lengths = np.bincount(np.concatenate([low, high]), minlength=snapshots[0].num_nodes)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    snapshots_of = np.concatenate([counts, counts[turned]]).astype(np.int64)
    return UnionGraph(indptr, sources(keys[order]), snapshots_of[order])


# Runs of rising keys are merged: numpy's stable sort takes a quarter of the time of its default one there.


def _pairs_of(snapshot: Snapshot) -> NDArray[np.int64]:
    """Each pair of different nodes that an edge joins, once, as the key of an edge into the lower one; rising."""
    into, of = snapshot.rows(), snapshot.indices
    up, down = np.flatnonzero(into < of), np.flatnonzero(into > of)
    down = down[stable_order(of[down])]
    keys = np.concatenate([keys_of(of[up], into[up]), keys_of(into[down], of[down])])
    keys.sort(kind="stable")
    return distinct(keys)


def _merged(
    pairs: NDArray[np.int64], counts: NDArray[np.float64], more: list[NDArray[np.int64]]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The distinct keys of all, rising, and how often each occurs; the rising ``pairs`` occur ``counts`` times."""
    keys = np.concatenate(more)
    keys.sort(kind="stable")
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    new, occurs = keys[starts], np.diff(starts, append=len(keys)).astype(np.float64)
    if not len(pairs):
        return new, occurs
    keys = np.concatenate([pairs, new])
    order = np.argsort(keys, kind="stable")
    return distinct(keys[order]), sums_of_equal(keys[order], np.concatenate([counts, occurs])[order])


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


def assign_metis(graph: DynamicGraph, parts: int, *, seed: int = 0, imbalance: float = 0.03) -> Assigned:
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
    if parts == 1:
        return Assigned(np.zeros(graph.num_nodes, np.int32))
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


# Mt-KaHyPar on the nets of a sequence: minimises the rows sent between parts.


# Rows sent between parts as nets of a hypergraph: a net that spans k parts is a row sent to k - 1 parts.


@dataclass(frozen=True, slots=True, eq=False)
class Nets:
    """K distinct nets over N nodes; net k is ``pins[starts[k]:starts[k + 1]]``.

    Attributes:
        starts: (K + 1,) int64.
        pins: nodes, int32; distinct within a net, at least two per net.
        counts: (K,) int64, the number of (node, snapshot) pairs with this net.
    """

    starts: NDArray[np.int64]
    pins: NDArray[np.int32]
    counts: NDArray[np.int64]


def merged_nets(snapshots: Sequence[Snapshot]) -> Nets:
    """One net for each node v and snapshot t: v and the nodes that aggregate from v at t. Equal nets are merged.

    Nets of one pin cannot be cut and are dropped; a self-loop adds no pin. Equal nets are found by comparing two sums
    of 64-bit hashes of their pins, which collide once in 2^128 pairs. Costs O(E log E).

    References: ESDG section 6 (hypergraph model of node partition).
    """
    nodes = snapshots[0].num_nodes
    marks = [mixed(np.arange(nodes), salt) for salt in (1, 2)]
    owners, sizes, pullers, sums = [], [], [], []
    for snapshot in snapshots:
        sources, targets = snapshot.indices, snapshot.rows().astype(np.int32)
        apart = sources != targets
        sources, targets = sources[apart], targets[apart]
        order = np.argsort(sources, kind="stable")
        sources, targets = sources[order], targets[order]
        first = np.flatnonzero(np.diff(sources, prepend=np.int32(-1)))
        if not len(first):
            continue
        owners.append(sources[first])
        sizes.append(np.diff(first, append=len(sources)))
        pullers.append(targets)
        sums.append(np.stack([np.add.reduceat(mark[targets], first) + mark[sources[first]] for mark in marks]))
    if not owners:
        return Nets(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))
    size = np.concatenate(sizes)
    chosen, counts = _different(np.concatenate(sums, axis=1), size)
    starts, pins = _gathered(np.concatenate(owners), size, np.concatenate(pullers), chosen)
    return Nets(starts, pins, counts)


def _different(sums: NDArray[np.uint64], size: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first of each set of equal nets, ascending, and the size of each set; ``sums`` is (2, nets)."""
    order = np.lexsort((sums[1], sums[0], size))
    kind = np.stack([size[order].astype(np.uint64), *sums[:, order]])
    starts = np.flatnonzero(np.concatenate([[True], (kind[:, 1:] != kind[:, :-1]).any(axis=0)]))
    counts = np.diff(starts, append=len(order))
    chosen = order[starts]
    ascending = np.argsort(chosen)
    return chosen[ascending].astype(np.int64), counts[ascending].astype(np.int64)


def _gathered(
    owners: NDArray[np.int32], size: NDArray[Any], pullers: NDArray[np.int32], chosen: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Starts and pins of the chosen nets: first the owner, then the nodes that aggregate from it."""
    begin = np.cumsum(size) - size
    lengths = size[chosen] + 1
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    position = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)  # 0 is the owner
    pins = pullers[np.maximum(0, np.repeat(begin[chosen], lengths) + position - 1)]
    pins[starts[:-1]] = owners[chosen]
    return starts, pins


def assign_hypergraph(graph: DynamicGraph, parts: int, *, seed: int = 0, imbalance: float = 0.03) -> Assigned:
    """Minimise the rows sent in one pass: the connectivity objective km1 with one net for each (t, v).

    The net of v at t contains v and the nodes that aggregate from v. The sum of (parts spanned - 1) over all nets is
    exactly the number of halo rows of the sequence; an edge cut would count a row twice where two nodes of a part
    need it. The weight of a node is 1 plus its in-edges over all snapshots. Runs in a child process.

    Args:
        graph: N nodes in T snapshots.
        parts: P, at most N.
        seed: of Mt-KaHyPar, which runs on one thread and is then deterministic.
        imbalance: how far the heaviest part may exceed the mean, as a share of it.

    Raises:
        NotAvailableError: mtkahypar is not installed.
        PartitionError: Mt-KaHyPar crashed, failed or timed out.

    References: ESDG section 6 (hypergraph node partition); Gottesbueren, Heuer, Maas, Sanders, Schlag 2024
    (Mt-KaHyPar).
    Differs from the paper: ESDG uses PaToH; we merge equal nets, which does not change the cost.
    """
    needs_library("mtkahypar")
    pulls = np.ones(graph.num_nodes)
    for snapshot in graph.snapshots:
        pulls += np.diff(snapshot.indptr)
    nets = None if parts == 1 else merged_nets(graph.snapshots)
    if nets is None or not len(nets.counts):  # nothing to cut: assigned in turn, heaviest first
        owner = np.empty(graph.num_nodes, np.int32)
        owner[np.argsort(-pulls, kind="stable")] = np.arange(graph.num_nodes) % parts
        return Assigned(owner)
    arrays: dict[str, NDArray[Any]] = {
        "starts": nets.starts,
        "pins": nets.pins,
        "net_weights": fitting(nets.counts),
        "vertex_weights": fitting(pulls),
        "parts": np.array(parts),
        "seed": np.array(key(seed, "partition/hypergraph") & 0x7FFFFFFF),
        "imbalance": np.array(imbalance),
    }
    owner = in_child("hypergraph", arrays, vertices=graph.num_nodes, parts=parts)
    return without_empty_parts(owner, parts, pulls)
