"""Small graphs from lists of edges, for checks and tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dtdg_lab.core.rng import generator
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot

Edges = Sequence[tuple[int, int]]


def graph_of(
    nodes: int, snapshots: Sequence[Edges], *, name: str = "example", weighted: bool = False, classes: Any = None
) -> DynamicGraph:
    """Return a graph of T snapshots with constant features and targets, given its edges (source, target).

    Args:
        nodes: number of nodes N.
        snapshots: T lists of edges; an edge that is given twice in a snapshot counts once.
        name: name of the graph.
        weighted: whether edges get the weights 0.5, 1.0, 1.5, ..., in the order of rows; otherwise they have none.
        classes: (N,) or (T, N) int16, -1 for unlabelled nodes; None for a graph without classes.
    """
    values = np.zeros((len(snapshots), nodes), np.float32)
    return DynamicGraph(
        name=name,
        snapshots=tuple(_snapshot(nodes, edges, weighted) for edges in snapshots),
        features=np.ones((nodes, 1), np.float32),
        targets=values,
        persistence=values,
        source="a contract's example",
        edge_life=1,
        classes=classes,
    )


def _snapshot(nodes: int, edges: Edges, weighted: bool) -> Snapshot:
    pairs = np.array(sorted({(target, source) for source, target in edges}), np.int64).reshape(-1, 2)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(pairs[:, 0], minlength=nodes))]).astype(np.int64)
    weights = 0.5 * np.arange(1, len(pairs) + 1, dtype=np.float32) if weighted else None
    return Snapshot(indptr, pairs[:, 1].astype(np.int32), weights)


def power_law(nodes: int = 60, snapshots: int = 4, edges: int = 150, *, classes: Any = None) -> DynamicGraph:
    """Return a random graph with a few popular nodes, the same on every call; classes as for :func:`graph_of`."""
    rng = generator(0, "contract/partitioners", nodes, snapshots, edges)
    popularity = 1.0 / np.arange(1, nodes + 1)
    targets = rng.choice(nodes, (snapshots, edges), p=popularity / popularity.sum())
    sources = rng.integers(0, nodes, (snapshots, edges))
    pairs = [list(zip(a.tolist(), b.tolist(), strict=True)) for a, b in zip(sources, targets, strict=True)]
    return graph_of(nodes, pairs, name="power law", classes=classes)
