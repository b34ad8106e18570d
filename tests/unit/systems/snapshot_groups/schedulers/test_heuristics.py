"""Round robin, fold, merged iterations and the best of several heuristics."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.core.rng import generator
from dtdg_lab.systems.snapshot_groups.schedulers import dygnex, heuristics
from dtdg_lab.systems.snapshot_groups.schedulers.base import Problem, from_rows, lower_bound_s, makespan_s
from dtdg_lab.systems.snapshot_groups.schedulers.heuristics import merged
from dtdg_lab.systems.snapshot_groups.schedulers.longest_first import schedule_longest_first
from tests.group_time_samples import KINDS, sample_times
from tests.thinning import thinned


def test_round_robin_deals_in_time_order() -> None:
    plan = heuristics.schedule_round_robin(np.ones(7), 3, per_rank=1)
    assert plan.assignment == (((0,), (1,), (2,)), ((3,), (4,), (5,)), ((6,), (), ()))


def test_round_robin_with_two_groups_a_part() -> None:
    plan = heuristics.schedule_round_robin(np.ones(7), 2, per_rank=2)
    assert plan.assignment == (((0, 2), (1, 3)), ((4, 6), (5,)))


def test_growth_makes_round_robin_wait() -> None:
    """Linear growth 1 -> 10 on 4 parts: in time order each iteration waits for its newest group."""
    times_s = np.linspace(1, 10, 40)
    eager = heuristics.schedule_round_robin(times_s, 4, per_rank=2).makespan_s(times_s)
    even = schedule_longest_first(times_s, 4, per_rank=2).makespan_s(times_s)
    assert even < eager
    assert even < 1.06 * times_s.sum() / 4


def test_fold_by_hand() -> None:
    times_s = np.array([6.0, 1.0, 2.0, 5.0, 3.0, 4.0, 10.0, 11.0])
    plan = heuristics.schedule_fold(times_s, 2)
    # 11 + 1, 10 + 2, 6 + 3, 5 + 4: in runs of two, no rank waits
    assert plan.assignment == (((7, 1), (6, 2)), ((0, 4), (3, 5)))
    assert plan.makespan_s(times_s) == 21.0
    assert plan.gap == 0.0


def test_fold_leaves_the_largest_alone_where_slots_are_left() -> None:
    plan = heuristics.schedule_fold(np.array([9.0, 5.0, 4.0]), 2)
    assert plan.assignment == (((0,), (1, 2)),)


@pytest.mark.slow
def test_best_of_is_never_worse_and_names_the_winner() -> None:
    for number in range(24):
        times_s, ranks = sample_times(KINDS[number % 6], 40 + 20 * number, number), 2 + number % 7
        best = heuristics.schedule_best_of(times_s, ranks)
        assert best.notes.startswith("Best: ")
        best_s = best.makespan_s(times_s)
        for rule in (heuristics.schedule_fold, dygnex.schedule):
            assert best_s <= rule(times_s, ranks).makespan_s(times_s) * (1 + 1e-9)
        # stops at 0.1 %, where the next heuristic may be better by that
        assert best_s <= schedule_longest_first(times_s, ranks).makespan_s(times_s) * 1.001


def test_best_of_says_what_time_did_not_allow() -> None:
    plan = heuristics.schedule_best_of(sample_times("heavy", 50, 0), 6, time_limit_s=1e-9)
    assert "Untried, as time_limit_s=1e-09 was over: " in plan.notes


@pytest.mark.parametrize(("ranks", "limit"), thinned([(64, 1.02), (512, 1.02)], [1]))
def test_ten_thousand_growing_groups_come_within_two_per_cent(ranks: int, limit: float) -> None:
    """The issue's reach (its second is measured by hand: a test on a loaded machine would measure the load)."""
    times_s = sample_times("growing", 10_000, 0)
    plan = heuristics.schedule_best_of(times_s, ranks)
    assert plan.makespan_s(times_s) <= limit * lower_bound_s(times_s, ranks)


def test_iterations_of_few_groups_are_merged() -> None:
    times_s = np.array([5.0, 4.0, 3.0, 2.0, 1.0])
    problem = Problem(times_s, 3, 2)
    slots = from_rows([[(0,)], [(1, 4)], [(2,), (3,)]], problem)
    fewer = merged(slots, problem)
    assert makespan_s(slots, problem) == 13.0
    assert fewer.tolist() == [[[1, 5], [2, 5], [3, 4]], [[0, 5], [5, 5], [5, 5]]]
    assert makespan_s(fewer, problem) == 9.0


def test_merging_is_never_slower_and_ends_within_what_a_best_schedule_needs() -> None:
    draw = generator(0, "test/merging")
    for number in range(100):
        ranks, groups = int(draw.integers(1, 6)), int(draw.integers(1, 30))
        problem = Problem(sample_times(KINDS[number % 6], groups, number), ranks, 2)
        order = draw.permutation(groups).tolist()
        rows = []
        while order:
            members = [order.pop() for _ in range(min(len(order), int(draw.integers(1, 2 * ranks + 1))))]
            rows.append([tuple(members[rank::ranks]) for rank in range(ranks)])
        slots = from_rows(rows, problem)
        better = merged(slots, problem)
        assert len(better) <= problem.most
        assert makespan_s(better, problem) <= makespan_s(slots, problem) * (1 + 1e-12)
        assert sorted(better[better < groups].tolist()) == list(range(groups))
