"""A partitioner outside the package: runs of consecutive nodes."""

from __future__ import annotations

import numpy as np

from dtdg_lab.config.options import Option
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.base import Assigned, without_empty_parts

OFFSET = Option(
    name="ribbon_offset",
    owner="partition",
    kind=int,
    default=0,
    low=0,
    high=1_000_000,
    meaning="Node with which the first part begins.",
    unit="nodes",
)


def ribbons(graph: DynamicGraph, parts: int, *, ribbon_offset: int = 0) -> Assigned:
    """Give each part as many consecutive nodes."""
    nodes = np.arange(graph.num_nodes)
    owner = (nodes - ribbon_offset) % len(nodes) * parts // len(nodes)
    return without_empty_parts(owner, parts, np.zeros(len(nodes)))
