"""A pseudo-random part for each vertex."""

from __future__ import annotations

import numpy as np

from dtdg_lab.core.streams import key
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.assigned import Assigned
from dtdg_lab.partition.empty_parts import without_empty_parts
from dtdg_lab.partition.mixing import mixed

READS = ("seed",)


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
    """Give vertex v to part h(v, seed) mod P, where h mixes 64 bits.

    A vertex's part depends on nothing but its number, the seed and P: any process can tell it without a table. Parts
    differ in size as random draws do. A part that gets nobody, which happens where P is close to N, is given a vertex
    of the largest part.

    Args:
        graph: N vertices.
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
