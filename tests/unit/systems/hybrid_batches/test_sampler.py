"""The sampler of hybrid batches: load groups, equal shares of each group, draws by seed and index."""

from __future__ import annotations

import pickle
from collections import Counter

import numpy as np
import pytest

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import BatchSize
from dtdg_lab.core.rng import generator
from dtdg_lab.partition.simple import assign_load_aware, vertex_loads
from dtdg_lab.systems.hybrid_batches.sampler import TargetSampler, load_groups
from dtdg_lab.systems.hybrid_batches.sizes import batch_size
from dtdg_lab.testing.example_graphs import power_law

TRAIN = range(2, 14)


def sampler(loads: object, *, seed: int = 0, part: int = 0, groups: int = 10, train: range = TRAIN) -> TargetSampler:
    given = np.asarray(loads, float)
    return TargetSampler(seed, part, load_groups(given, np.arange(len(given)), groups), train)


def test_the_example_has_7_targets_where_vertex_batches_have_16_and_snapshot_batches_24() -> None:
    """Two rounds on 4 nodes in 4 snapshots; the hybrid ones take 3 snapshots of 1 node, then 2 of 2."""
    whole = {"snapshots": 4, "candidates": 4}
    vertex, snapshot = batch_size(1, 0.5, **whole), batch_size(0.75, 1, **whole)
    hybrid = [batch_size(0.75, 0.25, **whole), batch_size(0.5, 0.5, **whole)]
    assert (2 * vertex.targets, 2 * snapshot.targets, sum(size.targets for size in hybrid)) == (16, 24, 7)
    drawn = sampler([4.0, 3.0, 2.0, 1.0], train=range(4))
    rounds = [drawn.batch(size, 0, index) for index, size in enumerate(hybrid)]
    assert sum(len(batch.snapshots) * len(batch.targets) for batch in rounds) == 7
    assert [sum(drawn.batch(size, 0, k).size.targets for k in range(2)) for size in (vertex, snapshot)] == [16, 24]


def test_candidates_are_ordered_by_load_then_place() -> None:
    groups = load_groups(np.array([1.0, 5.0, 9.0, 5.0, 0.0]), np.array([3, 0, 1, 4]), 2)
    assert groups.order.tolist() == [1, 3, 0, 4]
    assert groups.candidates.tolist() == [0, 1, 3, 4]
    assert groups.bounds(4).tolist() == [0, 2, 4]
    assert groups.bounds(1).tolist() == [0, 4]


@pytest.mark.parametrize("parts", [1, 4, 5, 12])  # 60, 15, 12, 5 nodes each
def test_groups_are_those_of_the_load_aware_partitioner(parts: int) -> None:
    graph = power_law(60, 4, 150)
    dealt = assign_load_aware(graph, parts, hops=2)
    assert dealt.groups is not None
    loads = vertex_loads(graph, 2)
    for part in range(parts):
        own = np.flatnonzero(dealt.owner == part)
        groups = load_groups(loads[own], np.arange(len(own)), 10)
        bounds = groups.bounds(len(own))
        number = np.empty(len(own), int)
        number[groups.order] = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        assert np.array_equal(number, dealt.groups[own])


def test_sixtieths_count_the_targets_by_load() -> None:
    groups = load_groups(np.arange(120.0), np.arange(120), 10)  # place 119 is the heaviest
    assert groups.sixtieths(np.array([118, 119])) == [2, *[0] * 59]
    assert groups.sixtieths(np.array([0, 117])) == [0, 1, *[0] * 57, 1]
    assert groups.sixtieths(groups.candidates) == [2] * 60
    few = load_groups(np.arange(7.0), np.arange(7), 10)
    assert (len(few.sixtieths(few.candidates)), sum(few.sixtieths(few.candidates))) == (60, 7)
    with pytest.raises(ValueError, match="negative"):
        load_groups(np.arange(4.0), np.array([0, 3]), 2).sixtieths(np.array([1]))  # no candidate


def test_more_targets_than_candidates_and_no_candidate_are_refused() -> None:
    with pytest.raises(PlanError, match="at least one node that may be a target"):
        load_groups(np.ones(4), np.zeros(0, np.int64), 2)
    with pytest.raises(PlanError, match="targets=5 is out of range: 4 candidates"):
        load_groups(np.ones(4), np.arange(4), 2).bounds(5)


def test_a_batch_depends_on_seed_part_size_and_index_alone() -> None:
    loads = generator(0, "test/loads").pareto(1.5, 40)
    drawn, size = sampler(loads), BatchSize(3, 12)
    batch = drawn.batch(size, 1, 7)
    generator(0, "test/other").random(5)
    again = pickle.loads(pickle.dumps(sampler(loads))).batch(size, 1, 7)
    assert again == batch
    assert (batch.part, batch.action, batch.index) == (0, 1, 7)
    same = drawn.batch(size, 2, 7)  # the action decides nothing
    assert (same.snapshots, same.targets.tolist()) == (batch.snapshots, batch.targets.tolist())
    others = [
        drawn.batch(size, 1, 8),
        sampler(loads, seed=1).batch(size, 1, 7),
        sampler(loads, part=1).batch(size, 1, 7),
    ]
    assert len({tuple(other.targets) for other in [batch, *others]}) == 4


def test_golden_batch() -> None:
    batch = sampler(np.arange(20.0)).batch(BatchSize(3, 5), 0, 0)
    assert (batch.snapshots, batch.targets.tolist()) == (range(9, 12), [3, 7, 10, 12, 18])


@pytest.mark.parametrize("candidates", [1, 2, 3, 9, 10, 11, 13, 37])
@pytest.mark.parametrize("groups", [1, 2, 10, 64])
def test_every_group_gives_its_share(candidates: int, groups: int) -> None:
    drawn = sampler(np.arange(candidates, 0, -1.0), groups=groups)
    for vertices in range(1, candidates + 1):
        batch = drawn.batch(BatchSize(1, vertices), 0, vertices)
        bounds = drawn.groups.bounds(vertices)
        assert len(bounds) - 1 == min(groups, vertices)
        counts = np.histogram(batch.targets, bounds)[0] if len(bounds) > 1 else []  # a place is a rank here
        assert sum(counts) == vertices == len(batch.targets)
        each = vertices // (len(bounds) - 1)
        assert {*counts} <= {each, each + 1}
        assert each >= 1


@pytest.mark.slow
def test_every_first_snapshot_and_every_vertex_is_as_likely() -> None:
    drawn, rounds = sampler(np.arange(12.0)), 3000
    batches = [drawn.batch(BatchSize(10, 5), 0, index) for index in range(rounds)]
    first = Counter(batch.snapshots.start for batch in batches)
    assert sorted(first) == [2, 3, 4]  # [0, T - N_S] of 12 snapshots, from the training split's first on
    assert min(first.values()) > 0.29 * rounds
    seen = np.bincount(np.concatenate([batch.targets for batch in batches]), minlength=12)
    # groups of 3, 2, 3, 2, 2 for 5 targets: one of each
    lengths = np.diff(drawn.groups.bounds(5))
    expected = rounds / np.repeat(lengths, lengths)[::-1]
    assert np.abs(seen - expected).max() < 5 * np.sqrt(rounds / 4)


def test_loads_of_batches_vary_less_than_those_of_even_draws() -> None:
    graph = power_law(300, 3, 1800)
    loads = vertex_loads(graph, 2)
    assert loads.max() > 20 * np.median(loads)  # few nodes have much of the load
    drawn = sampler(loads, train=range(3))
    size, rounds = BatchSize(1, 30), 400
    grouped = [loads[drawn.batch(size, 0, index).targets].sum() for index in range(rounds)]
    even = [
        loads[generator(0, "test/even", index).choice(300, size.vertices, replace=False)].sum()
        for index in range(rounds)
    ]
    assert abs(np.mean(grouped) / np.mean(even) - 1) < 0.1
    assert np.std(grouped) < 0.8 * np.std(even)


def test_a_stand_in_has_all_candidates_and_a_window_of_its_own() -> None:
    drawn, size = sampler(np.ones(30)), BatchSize(4, 3)
    batches = [drawn.snapshot_batch(size, index, action=2) for index in range(40)]
    assert all(len(batch.targets) == 30 and len(batch.snapshots) == 4 and batch.action == 2 for batch in batches)
    firsts = [batch.snapshots.start for batch in batches]
    assert len({*firsts}) > 4
    assert min(firsts) >= 2
    assert max(firsts) <= 10
    assert firsts != [drawn.batch(size, 2, index).snapshots.start for index in range(40)]
    assert drawn.snapshot_batch(BatchSize(4, 29), 7) == drawn.snapshot_batch(size, 7)


def test_a_sampler_refuses_what_does_not_fit() -> None:
    drawn = sampler(np.ones(5))
    with pytest.raises(PlanError, match="13 snapshots exceeds the training split of 12"):
        drawn.batch(BatchSize(13, 1), 0, 0)
    with pytest.raises(PlanError, match="targets=6 is out of range: 5 candidates"):
        drawn.batch(BatchSize(1, 6), 0, 0)
