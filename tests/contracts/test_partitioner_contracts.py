"""Every partitioner of the catalogue keeps the partitioners' contract, and the checker finds what breaks it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import ContractError
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.base import Assigned, make_partition, save_partition
from dtdg_lab.testing.partitioners import check_partitioner


def from_a_file_made_for_it(folder: Path) -> Callable[..., Assigned]:
    """The partitioner ``file``, with a file for whatever graph it is asked about."""
    load = catalogue.entry("partition", "file").load()

    def assign(graph: DynamicGraph, parts: int, **settings: Any) -> Assigned:
        made = make_partition("load_aware", graph, parts, hops=2)
        settings["partition_file"] = str(save_partition(made, folder / "partition.npz"))
        return load(graph, parts, **settings)

    return assign


@pytest.mark.parametrize("name", catalogue.names("partition"))
def test_every_partitioner_keeps_the_contract(name: str, tmp_path: Path) -> None:
    is_file = name == "file"
    check_partitioner(from_a_file_made_for_it(tmp_path) if is_file else catalogue.entry("partition", name).load())


def honest(graph: DynamicGraph, parts: int, **_: Any) -> Assigned:
    return Assigned((np.arange(graph.num_nodes) % parts).astype(np.int32), np.zeros(graph.num_nodes, np.int32), "ok")


def draws_lots(graph: DynamicGraph, parts: int, **_: Any) -> Assigned:
    return Assigned(np.random.default_rng().permutation(np.arange(graph.num_nodes) % parts).astype(np.int32))


def forgets_a_part(graph: DynamicGraph, parts: int, **_: Any) -> Assigned:
    return Assigned((np.arange(graph.num_nodes) % max(1, parts - 1)).astype(np.int32))


def counts_from_one(graph: DynamicGraph, parts: int, **_: Any) -> Assigned:
    return Assigned((np.arange(graph.num_nodes) % parts + 1).astype(np.int32))


def forgets_a_vertex(graph: DynamicGraph, parts: int, **_: Any) -> Assigned:
    return Assigned((np.arange(graph.num_nodes - 1) % parts).astype(np.int32))


def gives_64_bits(graph: DynamicGraph, parts: int, **_: Any) -> Assigned:
    return Assigned(np.arange(graph.num_nodes) % parts)  # type: ignore[arg-type]


def gives_a_bare_array(graph: DynamicGraph, parts: int, **_: Any) -> Any:
    return (np.arange(graph.num_nodes) % parts).astype(np.int32)


def groups_below_zero(graph: DynamicGraph, parts: int, **_: Any) -> Assigned:
    return Assigned(honest(graph, parts).owner, np.full(graph.num_nodes, -1, np.int32))


def changes_the_graph(graph: DynamicGraph, parts: int, **_: Any) -> Assigned:
    object.__setattr__(graph, "features", graph.features + np.float32(1))
    return honest(graph, parts)


def test_an_honest_partitioner_passes() -> None:
    check_partitioner(honest)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (draws_lots, "ranks would disagree"),
        (forgets_a_part, r"parts \[.*\] own no node"),
        (counts_from_one, "owners run from 1"),
        (forgets_a_vertex, r"owner is int32 of shape \(N,\)"),
        (gives_64_bits, "not int64"),
        (gives_a_bare_array, "returns Assigned, not ndarray"),
        (groups_below_zero, "groups start below 0"),
        (changes_the_graph, "the graph was changed"),
    ],
)
def test_a_broken_partitioner_is_found(broken: Callable[..., Any], said: str) -> None:
    with pytest.raises(ContractError, match=said):
        check_partitioner(broken)
