"""Partitioners without a library: hash, round robin, load-aware, and from a file."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError, PartitionError, shortened
from dtdg_lab.core.rng import key
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.base import Assigned, load_partition, without_empty_parts

# A partition that was saved before.


def assign_from_file(
    graph: DynamicGraph,
    parts: int,
    *,
    hops: int = 1,
    seed: int = 0,
    dealing: str = "boustrophedon",
    imbalance: float = 0.03,
    partition_file: str = "",
) -> Assigned:
    """Read the owners from a file, which must be for this graph and for P parts.

    Args:
        graph: N nodes.
        parts: P, those of the file.
        hops: not read.
        seed: not read.
        dealing: not read.
        imbalance: not read.
        partition_file: what ``save`` of a partition wrote.

    Raises:
        ConfigError: no file is given.
        DataError: the file is missing or damaged.
        PartitionError: it is for another graph, or for another number of parts.
    """
    if not partition_file:
        raise ConfigError(
            "partitioner 'file' needs partition_file, and none is given. Set it to a file that .save(path) of a "
            "partition wrote, or choose another partitioner."
        )
    partition = load_partition(partition_file, graph, parts)
    return Assigned(partition.owner, partition.groups, f"made by {partition.made_by}" if partition.made_by else "")


# Mixing of 64-bit numbers: neighbouring numbers become far apart, the same way on every machine.


def mixed(numbers: NDArray[Any], key: int) -> NDArray[np.uint64]:
    """Pseudo-random 64-bit numbers, one for each given number: a bijection that ``key`` chooses.

    Args:
        numbers: whole numbers of any shape.
        key: the lowest 64 bits count.

    References: Steele, Lea, Flood 2014 (SplitMix64), its output function.
    """
    mask = (1 << 64) - 1
    state = np.asarray(numbers).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state = state + np.uint64(key & mask)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


# A pseudo-random part for each node.


def assign_hash(
    graph: DynamicGraph,
    parts: int,
    *,
    hops: int = 1,
    seed: int = 0,
    dealing: str = "boustrophedon",
    imbalance: float = 0.03,
    partition_file: str = "",
) -> Assigned:
    """Give node v to part h(v, seed) mod P, where h mixes 64 bits.

    A node's part depends on nothing but its number, the seed and P: any process can tell it without a table. Parts
    differ in size as random draws do. A part that gets nobody, which happens where P is close to N, is given a node
    of the largest part.

    Args:
        graph: N nodes.
        parts: P, at most N.
        hops: not read.
        seed: chooses the hash.
        dealing: not read.
        imbalance: not read.
        partition_file: not read.

    References: common practice, such as the hash partitions of Pregel (Malewicz et al. 2010, section 4.1).
    """
    owner = mixed(np.arange(graph.num_nodes), key(seed, "partition/hash")) % np.uint64(parts)
    return without_empty_parts(owner, parts, np.zeros(graph.num_nodes))


# Loads of nodes: how much is computed for them, over all snapshots.


def vertex_loads(graph: DynamicGraph, hops: int) -> NDArray[np.float64]:
    """Edges of the computation graphs of every node, over all snapshots and all layers.

    The load of v at depth 1 is its in-degree; at depth l it is the sum of the depth l - 1 loads of its in-neighbours:
    the walks of l edges that end in v. A layer l computes the depths 1 to l, so depth l counts L - l + 1 times.

    Args:
        graph: N nodes in T snapshots; weights of edges do not matter.
        hops: L, depth of the computation graph: layers times hops a layer; at least 1.

    Returns:
        (N,) loads, in edges.

    Raises:
        PartitionError: hops is below 1.

    References: DynaHB section 4.2, algorithm 1.
    Differs from the paper: the printed algorithm forgets to gather at the source and drops layer L; both repaired.
    """
    if hops < 1:
        raise PartitionError(f"loads of {hops} hops: at least 1 is needed. Give layers times hops a layer.")
    loads = np.zeros(graph.num_nodes)
    for snapshot in graph.snapshots:
        depth: NDArray[np.float64] = np.diff(snapshot.indptr).astype(np.float64)
        loads += hops * depth
        if hops > 1 and snapshot.num_edges:
            rows = snapshot.rows()
            for passed in range(1, hops):
                depth = np.bincount(rows, depth[snapshot.indices], graph.num_nodes).astype(np.float64, copy=False)
                loads += (hops - passed) * depth
    return loads


# Nodes sorted by load and dealt to parts, so that each part computes as much as the others.


GROUPS = 10


def assign_load_aware(
    graph: DynamicGraph,
    parts: int,
    *,
    hops: int = 1,
    seed: int = 0,
    dealing: str = "boustrophedon",
    imbalance: float = 0.03,
    partition_file: str = "",
) -> Assigned:
    """Sort nodes by load, heaviest first, and deal them: round k gives each part one node.

    The nodes of a part, sorted the same way, are cut into 10 equal runs (one a node where it has fewer): the
    groups from which a node batch takes the same share each, so that batches weigh alike.

    Args:
        graph: N nodes in T snapshots.
        parts: P, at most N.
        hops: L, depth of the computation graphs whose edges are counted.
        seed: not read; ties go to the lower node.
        dealing: ``plain`` deals each round to parts 1..P; ``boustrophedon`` turns round at each end: 1..P, P..1.
        imbalance: not read.
        partition_file: not read.

    Returns:
        owners, and groups 0 (heaviest) to 9.

    Raises:
        ConfigError: there is no such dealing.

    References: DynaHB section 5, algorithm 1 (load, plain dealing) and section 5's balanced groups.
    Differs from the paper: boustrophedon, as the released code deals, is the default; the load is repaired (loads.py).
    """
    if dealing not in ("boustrophedon", "plain"):
        raise ConfigError(f"dealing={shortened(dealing)}: boustrophedon and plain are allowed.")
    loads = vertex_loads(graph, hops)
    owner = dealt(loads, parts, dealing)
    return Assigned(owner, _groups(owner, _heaviest_first(loads), parts))


def dealt(loads: NDArray[np.float64], parts: int, dealing: str = "boustrophedon") -> NDArray[np.int32]:
    """The part of each of K nodes, (K,), that are dealt as :func:`assign` deals all of a graph.

    Args:
        loads: (K,) of them.
        parts: P; where K is at least P, every part gets a node.
        dealing: ``plain`` or ``boustrophedon``.
    """
    order = _heaviest_first(loads)
    turn, seat = np.divmod(np.arange(len(order)), parts)
    if dealing == "boustrophedon":
        seat = np.where(turn % 2, parts - 1 - seat, seat)
    owner = np.empty(len(order), np.int32)
    owner[order] = seat
    return owner


def _heaviest_first(loads: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.argsort(-loads, kind="stable")


def _groups(owner: NDArray[np.int32], order: NDArray[Any], parts: int) -> NDArray[np.int32]:
    """Equal runs of each part's nodes in this order, (N,): runs differ by at most one node."""
    groups = np.empty(len(owner), np.int32)
    for part in range(parts):
        own = order[owner[order] == part]
        groups[own] = np.arange(len(own)) * min(GROUPS, len(own)) // max(1, len(own))
    return groups


# Nodes dealt to parts in turn, by number.


def assign_round_robin(
    graph: DynamicGraph,
    parts: int,
    *,
    hops: int = 1,
    seed: int = 0,
    dealing: str = "boustrophedon",
    imbalance: float = 0.03,
    partition_file: str = "",
) -> Assigned:
    """Give node v to part v mod P: parts differ by at most one node.

    Where nodes are numbered by their first appearance, as in most edge lists, each part gets old and new ones alike.

    Args:
        graph: N nodes.
        parts: P, at most N.
        hops: not read.
        seed: not read.
        dealing: not read.
        imbalance: not read.
        partition_file: not read.

    References: DynaHB figure 4, which calls this hash.
    """
    return Assigned((np.arange(graph.num_nodes) % parts).astype(np.int32))
