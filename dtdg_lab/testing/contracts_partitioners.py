"""What every partitioner promises: a checker for one's own, and a pytest suite to inherit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.streams import generator
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.partition.assigned import Assigned
from dtdg_lab.testing.requirements import require

Edges = Sequence[tuple[int, int]]


class Partitioner(Protocol):
    """A rule that gives each of N vertices to one of P parts; graph and parts are given by position."""

    def __call__(
        self, graph: DynamicGraph, parts: int, /, *, hops: int, seed: int, dealing: str, imbalance: float,
        partition_file: str,
    ) -> Assigned:  # fmt: skip
        """The part of each vertex."""
        ...


def graph_of(
    nodes: int, snapshots: Sequence[Edges], *, name: str = "example", weighted: bool = False, classes: Any = None
) -> DynamicGraph:
    """A graph of T snapshots, given as edges (source, target), with nothing worth learning on its N vertices.

    Args:
        nodes: N.
        snapshots: T lists of edges; an edge given twice in a snapshot counts once.
        name: of the graph.
        weighted: edges weigh 0.5, 1.0, 1.5, ..., in the order of rows.
        classes: (N,) or (T, N) int16, -1 where unlabelled; none where None.
    """
    values = np.zeros((len(snapshots), nodes), np.float32)
    return DynamicGraph(
        name=name, snapshots=tuple(_snapshot(nodes, edges, weighted) for edges in snapshots),
        features=np.ones((nodes, 1), np.float32), targets=values, persistence=values, source="a contract's example",
        edge_life=1, classes=classes,
    )  # fmt: skip


def _snapshot(nodes: int, edges: Edges, weighted: bool) -> Snapshot:
    pairs = np.array(sorted({(target, source) for source, target in edges}), np.int64).reshape(-1, 2)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(pairs[:, 0], minlength=nodes))]).astype(np.int64)
    weights = 0.5 * np.arange(1, len(pairs) + 1, dtype=np.float32) if weighted else None
    return Snapshot(indptr, pairs[:, 1].astype(np.int32), weights)


def power_law(nodes: int = 60, snapshots: int = 4, edges: int = 150, *, classes: Any = None) -> DynamicGraph:
    """A random graph with a few popular vertices, the same every time; classes as for :func:`graph_of`."""
    draw = generator(0, "contract/partitioners", nodes, snapshots, edges)
    chance = 1.0 / np.arange(1, nodes + 1)
    targets = draw.choice(nodes, (snapshots, edges), p=chance / chance.sum())
    sources = draw.integers(0, nodes, (snapshots, edges))
    pairs = [list(zip(a.tolist(), b.tolist(), strict=True)) for a, b in zip(sources, targets, strict=True)]
    return graph_of(nodes, pairs, name="power law", classes=classes)


def example_graphs() -> Iterator[tuple[DynamicGraph, int]]:
    """Graphs, named in words, and numbers of parts that partitioners get wrong when they get something wrong."""
    ring = [(v, (v + 1) % 8) for v in range(8)]
    star = [(v, 0) for v in range(1, 9)]
    some = np.full(60, -1, np.int16)
    some[[3, 40, 41]] = 0, 1, 1
    yield power_law(classes=some), 4
    yield graph_of(1, [[]], name="one vertex"), 1
    yield graph_of(8, [ring, ring], name="one part"), 1
    yield graph_of(8, [ring, ring[:3]], name="one vertex a part"), 8
    yield graph_of(12, [[*ring, (1, 1)], [(5, 5)]], name="weighted, loops, isolated vertices", weighted=True), 3
    yield graph_of(12, [[(3, 4)], []], name="nearly all isolated"), 3
    yield graph_of(8, [[], ring, []], name="snapshots without edges"), 2
    yield graph_of(8, [[], []], name="no edge at all"), 3
    yield graph_of(9, [star], name="one snapshot, a star"), 2
    yield graph_of(9, [star, star], name="a star in as many parts as leaves"), 8


def check_assignment(
    assign: Partitioner, graph: DynamicGraph, parts: int, *, seed: int = 0, hops: int = 2
) -> NDArray[np.int32]:
    """Divide once and check the promises; returns the owners, for checks of one's own.

    Raises:
        ContractError: a promise is broken.
    """
    before = graph.data_hash
    assigned = assign(graph, parts, hops=hops, seed=seed, dealing="boustrophedon", imbalance=0.03, partition_file="")
    case = f"{graph.name}, N={graph.num_nodes}, P={parts}, seed={seed}"
    require(isinstance(assigned, Assigned), f"a partitioner returns Assigned, not {type(assigned).__name__} ({case})")
    require(_fresh_hash(graph) == before, f"the graph was changed ({case})")
    _require_numbers("owner", assigned.owner, graph.num_nodes, case)
    owner = assigned.owner
    require(owner.min() >= 0 and owner.max() < parts, f"owners run from {owner.min()} to {owner.max()} ({case})")
    empty = np.flatnonzero(np.bincount(owner, minlength=parts) == 0).tolist()
    require(not empty, f"parts {empty} own no vertex ({case})")
    if assigned.groups is not None:
        _require_numbers("groups", assigned.groups, graph.num_nodes, case)
        require(assigned.groups.min() >= 0, f"groups start below 0 ({case})")
    require(isinstance(assigned.notes, str), f"notes are words, not {type(assigned.notes).__name__} ({case})")
    return owner


def _require_numbers(name: str, given: Any, nodes: int, case: str) -> None:
    kind, shape = getattr(given, "dtype", type(given).__name__), getattr(given, "shape", None)
    require(shape == (nodes,) and kind == np.int32, f"{name} is int32 of shape (N,), not {kind} of {shape} ({case})")


def _fresh_hash(graph: DynamicGraph) -> str:
    """The hash of what the arrays hold now; a graph keeps the one it was made with."""
    return dataclasses.replace(graph).data_hash


def check_repeats(assign: Partitioner, graph: DynamicGraph, parts: int) -> None:
    """Divide twice by the same seed.

    Raises:
        ContractError: the parts are not the same.
    """
    first, again = (check_assignment(assign, graph, parts, seed=12345) for _ in range(2))
    require(
        np.array_equal(first, again),
        f"the same graph and seed gave other parts: ranks would disagree ({graph.name}, P={parts})",
    )


def check_partitioner(assign: Partitioner) -> None:
    """Check a partitioner on hard and easy graphs.

    Every vertex is owned once, every part owns one, the graph is left as it was, and equal seeds give equal parts.
    Isolated vertices, snapshots without edges, a star, and as many parts as vertices are among the cases.

    Raises:
        ContractError: a promise is broken; the message names the case.
    """
    for graph, parts in example_graphs():
        check_assignment(assign, graph, parts)
    check_repeats(assign, power_law(), 3)


class PartitionerContract:
    """Pytest suite of partitioners: inherit it and define a fixture ``assign`` that returns the function."""

    def test_every_vertex_is_owned_and_every_part_owns(self, assign: Partitioner) -> None:
        """:func:`check_assignment` holds for every example."""
        for graph, parts in example_graphs():
            check_assignment(assign, graph, parts)

    def test_equal_seeds_give_equal_parts(self, assign: Partitioner) -> None:
        """:func:`check_repeats` holds."""
        check_repeats(assign, power_law(), 3)
