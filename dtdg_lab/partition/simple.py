"""Partitioners without a library: hash, round robin, load-aware, and from a file."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError, PartitionError, shortened
from dtdg_lab.core.rng import key
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import stable_order
from dtdg_lab.partition.base import Assigned, load_partition, without_empty_parts


def assign_from_file(graph: DynamicGraph, parts: int, *, partition_file: str = "") -> Assigned:
    """Read the owners from a partition file of this graph with P parts.

    Args:
        graph: N nodes.
        parts: P, as in the file.
        partition_file: file written by ``save`` of a partition.

    Raises:
        ConfigError: no file is given.
        DataError: the file is missing or damaged.
        PartitionError: the file belongs to another graph, or has another number of parts.
    """
    if not partition_file:
        raise ConfigError(
            "partitioner 'file' needs the option partition_file. Set it to a file that .save(path) of a partition "
            "has written, or choose another partitioner."
        )
    partition = load_partition(partition_file, graph, parts)
    return Assigned(partition.owner, partition.groups, f"made by {partition.made_by}" if partition.made_by else "")


def mixed(numbers: NDArray[Any], key: int) -> NDArray[np.uint64]:
    """Hash numbers to pseudo-random 64-bit numbers; a bijection selected by ``key``.

    Args:
        numbers: whole numbers of any shape.
        key: only its lowest 64 bits are used.

    References: Steele, Lea, Flood 2014 (SplitMix64), its output function.
    """
    mask = (1 << 64) - 1
    state = np.asarray(numbers).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state = state + np.uint64(key & mask)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def assign_hash(graph: DynamicGraph, parts: int, *, seed: int = 0) -> Assigned:
    """Assign node v to part h(v, seed) mod P, where h is a 64-bit hash.

    A node's part depends only on its number, the seed and P, so any process can compute it without a table. Part sizes
    vary as in random draws. An empty part, likely only if P is close to N, gets a node of the largest part.

    Args:
        graph: N nodes.
        parts: P, at most N.
        seed: seed of the hash.

    References: common practice, such as the hash partitions of Pregel (Malewicz et al. 2010, section 4.1).
    """
    owner = mixed(np.arange(graph.num_nodes), key(seed, "partition/hash")) % np.uint64(parts)
    return without_empty_parts(owner, parts, np.zeros(graph.num_nodes))


def vertex_loads(graph: DynamicGraph, hops: int, *, snapshots: range | None = None) -> NDArray[np.float64]:
    """Return the number of edges of each node's computation graph, over some snapshots and all layers.

    The load of v at depth 1 is its in-degree; at depth l it is the sum of the depth l - 1 loads of its in-neighbours:
    the walks of l edges that end in v. A layer l computes the depths 1 to l, so depth l counts L - l + 1 times.

    Args:
        graph: N nodes in T snapshots; edge weights are ignored.
        hops: L, depth of the computation graph (layers times hops per layer), at least 1.
        snapshots: consecutive snapshots; all by default.

    Returns:
        (N,) loads, in edges.

    Raises:
        PartitionError: hops is below 1.

    References: DynaHB section 4.2, algorithm 1.
    Differs from the paper: the printed algorithm omits the gather at the source and layer L; both are corrected here.
    """
    if hops < 1:
        raise PartitionError(f"hops={hops} must be at least 1. Give the number of layers times the hops per layer.")
    loads = np.zeros(graph.num_nodes)
    for snapshot in graph.snapshots if snapshots is None else graph.snapshots[snapshots.start : snapshots.stop]:
        depth: NDArray[np.float64] = np.diff(snapshot.indptr).astype(np.float64)
        loads += hops * depth
        if hops > 1 and snapshot.num_edges:
            rows = snapshot.rows()
            for passed in range(1, hops):
                depth = np.bincount(rows, depth[snapshot.indices], graph.num_nodes).astype(np.float64, copy=False)
                loads += (hops - passed) * depth
    return loads


GROUPS = 10


def assign_load_aware(
    graph: DynamicGraph, parts: int, *, hops: int = 1, assignment_order: str = "boustrophedon"
) -> Assigned:
    """Sort nodes by load, heaviest first, and assign them to parts in rounds of one node per part.

    The nodes of a part, in the same order, are cut into 10 equal groups (fewer if it has fewer nodes). A node batch
    takes the same share of each group, so that batches have similar loads.

    Args:
        graph: N nodes in T snapshots.
        parts: P, at most N.
        hops: depth of the computation graphs, L. Ties in load go to the lower node.
        assignment_order: ``plain`` uses the order 1..P in every round; ``boustrophedon`` alternates 1..P and P..1.

    Returns:
        Owners, and groups 0 (heaviest) to 9.

    Raises:
        ConfigError: ``assignment_order`` is unknown.

    References: DynaHB section 4.2, algorithm 1 (load, plain order) and balanced groups.
    Differs from the paper: the default is boustrophedon, as in the released code; the load is corrected.
    """
    if assignment_order not in ("boustrophedon", "plain"):
        raise ConfigError(f"assignment_order={shortened(assignment_order)} must be boustrophedon or plain.")
    loads = vertex_loads(graph, hops)
    owner = deal(loads, parts, assignment_order)
    return Assigned(owner, _groups(owner, _heaviest_first(loads), parts))


def deal(loads: NDArray[np.float64], parts: int, assignment_order: str = "boustrophedon") -> NDArray[np.int32]:
    """Assign K nodes by load, as in :func:`assign_load_aware`; return their parts, (K,).

    Args:
        loads: (K,) loads of the nodes.
        parts: number of parts, P; every part gets a node if K is at least P.
        assignment_order: ``plain`` or ``boustrophedon``.
    """
    order = _heaviest_first(loads)
    turn, part = np.divmod(np.arange(len(order)), parts)
    if assignment_order == "boustrophedon":
        part = np.where(turn % 2, parts - 1 - part, part)
    owner = np.empty(len(order), np.int32)
    owner[order] = part
    return owner


def _heaviest_first(loads: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.argsort(-loads, kind="stable")


def _groups(owner: NDArray[np.int32], order: NDArray[Any], parts: int) -> NDArray[np.int32]:
    """Return the group of each node, (N,): each part's nodes in this order, cut into equal groups."""
    nodes = order[stable_order(owner[order])]
    part, size = owner[nodes], np.bincount(owner, minlength=parts)
    position = np.arange(len(nodes)) - (np.cumsum(size) - size)[part]
    groups = np.empty(len(owner), np.int32)
    groups[nodes] = position * np.minimum(GROUPS, size)[part] // size[part]
    return groups


def assign_round_robin(graph: DynamicGraph, parts: int) -> Assigned:
    """Assign node v to part v mod P, so that part sizes differ by at most one node.

    If nodes are numbered by first appearance, as in most edge lists, each part gets both old and new nodes.

    Args:
        graph: N nodes.
        parts: P, at most N.

    References: DynaHB figure 4, which calls this hash.
    """
    return Assigned((np.arange(graph.num_nodes) % parts).astype(np.int32))
