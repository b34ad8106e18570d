"""Small graphs and configs that tests share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.plans import Partition
from dtdg_lab.datasets.names import load_for
from dtdg_lab.graphs.build import build_graph
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.intervals import IntervalEdges
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.testing.example_graphs import graph_of

Edges = Sequence[tuple[int, int]]

# A graph of 24 nodes in 40 snapshots, on which a system of one rank trains an epoch in a tenth of a second
SMALL: Mapping[str, Any] = MappingProxyType(
    {
        "dataset": "growing",
        "generated_nodes": 24,
        "generated_edges": 80,
        "generated_snapshots": 40,
        "hidden": 4,
        "learning_rate": 0.02,
        "device": "cpu",
    }
)
# With these, losses of two plans are equal to the last digits
EXACT: Mapping[str, Any] = MappingProxyType({"dtype": "float64", "optimizer": "sgd"})

# 0 -> 1 -> 2 -> 3 -> 4 -> 5, and in the second snapshot only 5 -> 0 and a loop at 2; the third is empty
STEPS = [[(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)], [(5, 0), (2, 2)], []]
HALVES = Partition(np.array([0, 0, 0, 1, 1, 1], np.int32), 2)


def small_config(system: str = "psg", **changes: Any) -> RunConfig:
    """Return a config of SMALL and the changes; a change to None leaves an option at its default."""
    settings = {"system": system, **SMALL, **changes}
    return RunConfig(**{name: value for name, value in settings.items() if value is not None})


@cache
def small_graph(**changes: Any) -> DynamicGraph:
    """Return the graph of :func:`small_config`, made once."""
    return load_for(small_config("single", **changes))


def snapshot_of(edges: Edges, vertices: int = 6) -> Snapshot:
    """Return a snapshot of edges (source, target)."""
    dense = np.zeros((vertices, vertices), bool)
    for u, v in edges:
        dense[v, u] = True
    return snapshot_of_matrix(dense)


def snapshot_of_matrix(adjacency: NDArray[Any], *, weighted: bool = False) -> Snapshot:
    """Return a snapshot with an edge u -> v of weight ``adjacency[v, u]`` where that is not 0."""
    edges = adjacency != 0
    indptr = np.concatenate([[0], np.cumsum(edges.sum(axis=1))]).astype(np.int64)
    weights = adjacency[edges].astype(np.float32) if weighted else None
    return Snapshot(indptr, np.nonzero(edges)[1].astype(np.int32), weights)


def path_graph(steps: Sequence[Edges] = STEPS, vertices: int = 6, static: bool = False) -> DynamicGraph:
    """Return a graph of three features, by default of a path."""
    snapshots = tuple(snapshot_of(step, vertices) for step in steps)
    zeros = np.zeros((len(steps), vertices), np.float32)
    features = np.zeros((vertices, 3) if static else (len(steps), vertices, 3), np.float32)
    return DynamicGraph("a path", snapshots, features, zeros, zeros, "a test", 1)


def random_graph(
    nodes: int = 24,
    snapshots: int = 6,
    *,
    share: float = 0.1,
    features: int = 3,
    weighted: bool = False,
    static: bool = False,
    classes: int = 0,
    empty: Collection[int] = (),
    isolated: Collection[int] = (),
    seed: int = 3,
) -> DynamicGraph:
    """Return a graph of random directed edges with loops, random features and random targets.

    Args:
        nodes: of each snapshot.
        snapshots: T; one more is drawn, which follows the last.
        share: of all pairs of nodes that are edges.
        features: of a node.
        weighted: edges have weights between 0.5 and 1.5.
        static: features do not change.
        classes: K; a share of 1 / (K + 1) of labels is unknown. 0 for a graph without classes.
        empty: snapshots without an edge.
        isolated: nodes without an edge.
        seed: of all that is drawn.
    """
    draw = np.random.default_rng(seed)
    held = []
    for t in range(snapshots + 1):
        edges = (draw.random((nodes, nodes)) < share) & (t not in empty)
        edges[list(isolated)], edges[:, list(isolated)] = False, False
        held.append(snapshot_of_matrix(edges * (0.5 + draw.random(edges.shape)), weighted=weighted))
    shape = (snapshots, nodes)
    return DynamicGraph(
        name="random",
        snapshots=tuple(held[:-1]),
        features=draw.random((*(shape[1:] if static else shape), features), dtype=np.float32),
        targets=draw.random(shape, dtype=np.float32),
        persistence=draw.random(shape, dtype=np.float32),
        source="a test",
        edge_life=1,
        following=tuple(held[1:]),
        classes=draw.integers(-1, classes, shape).astype(np.int16) if classes else None,
    )


def random_partition(nodes: int = 24, parts: int = 2, seed: int = 5) -> Partition:
    """Return parts of equal size (give or take a node), drawn at random."""
    owner = np.random.default_rng(seed).permutation(np.arange(nodes) % parts)
    return Partition(owner.astype(np.int32), parts)


def drawn_graph(intervals: int = 12) -> DynamicGraph:
    """Return a random graph of 20 nodes, built from a table of edges."""
    rng = np.random.default_rng(0)
    rows = np.array([(*rng.integers(0, 20, 2), t) for t in range(intervals) for _ in range(30)])
    edges = IntervalEdges(*rows.T, num_intervals=intervals, num_nodes=20)
    return build_graph(edges.stream(), name="drawn", source="a test", edge_life=1)


def two_groups(size: int = 12) -> DynamicGraph:
    """Return two complete graphs joined by one edge, in two snapshots."""
    near = [(u, v) for u in range(size) for v in range(u)]
    edges = [*near, *((u + size, v + size) for u, v in near), (0, size)]
    return graph_of(2 * size, [edges, edges[::2]], name="two groups")


def edges_by_snapshot(graph: DynamicGraph) -> list[list[tuple[Any, Any, float]]]:
    """Return (source id, target id, weight) of each snapshot, and of what only the last label counts."""
    ids = graph.node_ids if graph.node_ids is not None else np.arange(graph.num_nodes)
    return [
        sorted(
            zip(
                ids[snapshot.indices].tolist(),
                ids[snapshot.rows()].tolist(),
                [1] * snapshot.num_edges if snapshot.weights is None else snapshot.weights.tolist(),
                strict=True,
            )
        )
        for snapshot in (*graph.snapshots, *graph.extra_following)
    ]
