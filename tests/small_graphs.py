"""Small graphs by hand: a path, two groups, and a drawn graph that can be trained."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dtdg_lab.core.plans import Partition
from dtdg_lab.graphs.build import build_graph
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.intervals import IntervalEdges
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.testing.example_graphs import graph_of

Edges = Sequence[tuple[int, int]]
# 0 -> 1 -> 2 -> 3 -> 4 -> 5, and in the second snapshot only 5 -> 0 and a loop at 2; the third is empty
STEPS = [[(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)], [(5, 0), (2, 2)], []]
HALVES = Partition(np.array([0, 0, 0, 1, 1, 1], np.int32), 2)


def snapshot_of(edges: Edges, vertices: int = 6) -> Snapshot:
    """Return a snapshot of edges (source, target)."""
    dense = np.zeros((vertices, vertices), bool)
    for u, v in edges:
        dense[v, u] = True
    indptr = np.concatenate([[0], np.cumsum(dense.sum(axis=1))]).astype(np.int64)
    return Snapshot(indptr, np.nonzero(dense)[1].astype(np.int32))


def path_graph(steps: Sequence[Edges] = STEPS, vertices: int = 6, static: bool = False) -> DynamicGraph:
    """Return a graph of three features, by default of a path."""
    snapshots = tuple(snapshot_of(step, vertices) for step in steps)
    zeros = np.zeros((len(steps), vertices), np.float32)
    features = np.zeros((vertices, 3) if static else (len(steps), vertices, 3), np.float32)
    return DynamicGraph("a path", snapshots, features, zeros, zeros, "a test", 1)


def drawn_graph(intervals: int = 12) -> DynamicGraph:
    """Return a random graph of 20 nodes."""
    rng = np.random.default_rng(0)
    rows = np.array([(*rng.integers(0, 20, 2), t) for t in range(intervals) for _ in range(30)])
    edges = IntervalEdges(*rows.T, num_intervals=intervals, num_nodes=20)
    return build_graph(edges.stream(), name="drawn", source="a test", edge_life=1)


def two_groups(size: int = 12) -> DynamicGraph:
    """Return two complete graphs joined by one edge, in two snapshots."""
    near = [(u, v) for u in range(size) for v in range(u)]
    edges = [*near, *((u + size, v + size) for u, v in near), (0, size)]
    return graph_of(2 * size, [edges, edges[::2]], name="two groups")
