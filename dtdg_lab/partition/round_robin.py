"""Vertices dealt to parts in turn, by number."""

from __future__ import annotations

import numpy as np

from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.assigned import Assigned

READS = ()


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
    """Give vertex v to part v mod P: parts differ by at most one vertex.

    Where vertices are numbered by their first appearance, as in most edge lists, each part gets old and new ones alike.

    Args:
        graph: N vertices.
        parts: P, at most N.
        hops: not read.
        seed: not read.
        dealing: not read.
        imbalance: not read.
        partition_file: not read.

    References: DynaHB figure 4, which calls this hash.
    """
    return Assigned((np.arange(graph.num_nodes) % parts).astype(np.int32))
