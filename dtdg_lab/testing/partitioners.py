"""The contract of all partitioners."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import require
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.base import Assigned, accepted_settings
from dtdg_lab.testing.example_graphs import graph_of, power_law

Partitioner = Callable[..., Assigned]  # called with a graph, a number of parts, and settings of make_partition


def example_graphs() -> Iterator[tuple[DynamicGraph, int]]:
    """Yield graphs that are hard to partition, each with a number of parts."""
    ring = [(v, (v + 1) % 8) for v in range(8)]
    star = [(v, 0) for v in range(1, 9)]
    classes = np.full(60, -1, np.int16)
    classes[[3, 40, 41]] = 0, 1, 1
    yield power_law(classes=classes), 4
    yield graph_of(1, [[]], name="one node"), 1
    yield graph_of(8, [ring, ring], name="one part"), 1
    yield graph_of(8, [ring, ring[:3]], name="one node a part"), 8
    yield graph_of(12, [[*ring, (1, 1)], [(5, 5)]], name="weighted, loops, isolated nodes", weighted=True), 3
    yield graph_of(12, [[(3, 4)], []], name="nearly all isolated"), 3
    yield graph_of(8, [[], ring, []], name="snapshots without edges"), 2
    yield graph_of(8, [[], []], name="no edge at all"), 3
    yield graph_of(9, [star], name="one snapshot, a star"), 2
    yield graph_of(9, [star, star], name="a star in as many parts as leaves"), 8


def check_assignment(
    assign: Partitioner, graph: DynamicGraph, parts: int, *, seed: int = 0, hops: int = 2
) -> NDArray[np.int32]:
    """Partition a graph once, check the result, and return the owners.

    Raises:
        ContractError: a rule is broken.
    """
    hash_before = graph.data_hash
    settings = {
        "hops": hops,
        "seed": seed,
        "assignment_order": "boustrophedon",
        "imbalance": 0.03,
        "partition_file": "",
    }
    assigned = assign(graph, parts, **accepted_settings(assign, settings))
    case = f"{graph.name}, N={graph.num_nodes}, P={parts}, seed={seed}"
    require(isinstance(assigned, Assigned), f"a partitioner returns Assigned, not {type(assigned).__name__} ({case})")
    # the hash of a copy is computed again from its arrays
    require(dataclasses.replace(graph).data_hash == hash_before, f"the graph was changed ({case})")
    _require_vector("owner", assigned.owner, graph.num_nodes, case)
    owner = assigned.owner
    require(owner.min() >= 0 and owner.max() < parts, f"owners run from {owner.min()} to {owner.max()} ({case})")
    empty = np.flatnonzero(np.bincount(owner, minlength=parts) == 0).tolist()
    require(not empty, f"parts {empty} own no node ({case})")
    if assigned.groups is not None:
        _require_vector("groups", assigned.groups, graph.num_nodes, case)
        require(assigned.groups.min() >= 0, f"groups start below 0 ({case})")
    require(isinstance(assigned.notes, str), f"notes are words, not {type(assigned.notes).__name__} ({case})")
    return owner


def _require_vector(name: str, vector: Any, nodes: int, case: str) -> None:
    dtype, shape = getattr(vector, "dtype", type(vector).__name__), getattr(vector, "shape", None)
    require(shape == (nodes,) and dtype == np.int32, f"{name} is int32 of shape (N,), not {dtype} of {shape} ({case})")


def check_partitioner(assign: Partitioner) -> None:
    """Check a partitioner on hard and easy graphs.

    Every node must have one owner, every part must own a node, the graph must not change, and equal seeds must give
    equal parts. The graphs have isolated nodes, snapshots without edges, a star, and as many parts as nodes.

    Raises:
        ContractError: a rule is broken; the message names the case.
    """
    for graph, parts in example_graphs():
        check_assignment(assign, graph, parts)
    graph = power_law()
    first, second = (check_assignment(assign, graph, 3, seed=12345) for _ in range(2))
    require(
        np.array_equal(first, second),
        f"the same graph and seed gave other parts, so ranks would disagree ({graph.name}, P=3)",
    )
