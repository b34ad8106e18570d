"""Hash, round robin and load-aware partitions, on graphs small enough to read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError, PartitionError
from dtdg_lab.partition import simple
from dtdg_lab.partition.simple import mixed, vertex_loads
from dtdg_lab.testing.example_graphs import graph_of, power_law


def dynahb_figure_4() -> Any:
    """Two snapshots of four nodes; an edge (source, target); the paper counts from 1."""
    first = [(3, 1), (1, 2), (3, 2), (1, 4), (3, 4)]
    second = [(1, 3), (1, 2), (3, 2), (1, 4), (3, 4)]
    return graph_of(4, [[(u - 1, v - 1) for u, v in edges] for edges in (first, second)], name="figure 4")


def part_loads(owner: Any, loads: Any) -> list[float]:
    return np.bincount(owner, weights=loads).tolist()


def test_loads_are_those_of_dynahb_figure_4() -> None:
    loads = vertex_loads(dynahb_figure_4(), 2)
    assert loads.tolist() == [2, 10, 2, 10]
    assert part_loads(simple.assign_round_robin(dynahb_figure_4(), 2).owner, loads) == [4, 20]
    assert part_loads([0, 0, 0, 1], loads) == [14, 10]


@pytest.mark.parametrize("assignment_order", ["plain", "boustrophedon"])
def test_load_aware_is_even_on_dynahb_figure_4(assignment_order: str) -> None:
    graph = dynahb_figure_4()
    owner = simple.assign_load_aware(graph, 2, hops=2, assignment_order=assignment_order).owner
    assert part_loads(owner, vertex_loads(graph, 2)) == [12, 12]


def test_loads_of_no_hop_are_refused() -> None:
    with pytest.raises(PartitionError, match="hops=0 must be at least 1"):
        vertex_loads(dynahb_figure_4(), 0)


def test_dealing_turns_round_or_starts_again() -> None:
    falling = graph_of(5, [[(u, v) for v in range(5) for u in range(5 - v)]])  # in-degrees 5, 4, 3, 2, 1
    assert simple.assign_load_aware(falling, 2, assignment_order="plain").owner.tolist() == [0, 1, 0, 1, 0]
    assert simple.assign_load_aware(falling, 2).owner.tolist() == [0, 1, 1, 0, 0]


def test_an_unknown_dealing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'cards'.*boustrophedon or plain"):
        simple.assign_load_aware(dynahb_figure_4(), 2, assignment_order="cards")


def test_groups_are_equal_runs_of_like_load() -> None:
    graph = power_law(nodes=47)
    assigned, loads = simple.assign_load_aware(graph, 2, hops=2), vertex_loads(graph, 2)
    for part in range(2):
        own = np.flatnonzero(assigned.owner == part)
        sizes = np.bincount(assigned.groups[own])
        assert len(sizes) == 10
        assert sizes.max() - sizes.min() <= 1
        heaviest = [loads[own[assigned.groups[own] == group]].max() for group in range(10)]
        assert heaviest == sorted(heaviest, reverse=True)


def test_a_part_of_few_vertices_has_a_group_for_each() -> None:
    assigned = simple.assign_load_aware(dynahb_figure_4(), 2)
    assert sorted(assigned.groups[assigned.owner == 0].tolist()) == [0, 1]


def test_hash_is_the_same_on_every_machine() -> None:
    assert simple.assign_hash(graph_of(12, [[]]), 4, seed=0).owner.tolist() == [3, 1, 3, 1, 2, 1, 3, 2, 3, 0, 0, 3]


def test_mixing_gives_the_published_sequence_of_splitmix64() -> None:
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert mixed(np.arange(1, 4), 0).tolist() == expected


def test_hash_looks_at_numbers_and_seed_alone() -> None:
    graph, empty = power_law(nodes=200), graph_of(200, [[]])
    assert simple.assign_hash(graph, 4).owner.tolist() == simple.assign_hash(empty, 4).owner.tolist()
    assert simple.assign_hash(graph, 4, seed=1).owner.tolist() != simple.assign_hash(graph, 4).owner.tolist()
    assert np.bincount(simple.assign_hash(graph_of(40_000, [[]]), 4).owner).min() > 9_700


def test_round_robin_deals_by_number() -> None:
    assert simple.assign_round_robin(graph_of(7, [[]]), 3).owner.tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_hash_says_that_it_filled_parts() -> None:
    assigned = simple.assign_hash(graph_of(8, [[]]), 8)
    assert sorted(assigned.owner.tolist()) == list(range(8))
    assert "empty part" in assigned.notes


def test_partitioner_file_needs_a_file() -> None:
    with pytest.raises(ConfigError, match="needs the option partition_file"):
        simple.assign_from_file(power_law(), 2)
