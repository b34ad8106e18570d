"""DyGNeX's schedulers: Algorithm 2 against a plain transcription, the integer programme, and the choice of them."""

from __future__ import annotations

import importlib.util
import itertools
import math
from typing import Any

import numpy as np
import pytest

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.core.plans import Schedule
from dtdg_lab.core.streams import generator
from dtdg_lab.scheduling import best_of, bounds, dygnex_auto, dygnex_greedy, dygnex_ilp, fold, longest_first
from dtdg_lab.scheduling.checks import Problem
from dtdg_lab.scheduling.dygnex_pairs import ExactPairs
from dtdg_lab.scheduling.merge import merged
from dtdg_lab.scheduling.slots import from_rows, makespan_s


def algorithm_2(times_s: list[float], ranks: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """DyGNeX's listing with the repairs that the module names, line by line."""
    order = sorted(range(len(times_s)), key=lambda group: (times_s[group], group))
    t = [0.0, *(times_s[group] for group in order)]  # GroupPreProcess
    left = list(range(1, len(t)))
    strategy = []
    while len(left) > ranks:
        n = left[-1]
        least, best = math.inf, []
        for partner in [None, 0, *left[:-1]]:  # GetTargetList: t[n], then t[n] + t[i]
            members = (0, n) if partner is None else (partner, n)
            target = t[members[0]] + t[members[1]]
            free = [0, *(group for group in left if group not in members)]
            pairs: list[tuple[int, int]] = []
            while len(pairs) < ranks - 1:  # GetGroupPair
                head, tail, closest, pair = 0, len(free) - 1, math.inf, None
                while head < tail:
                    total = t[free[head]] + t[free[tail]]
                    if abs(total - target) < abs(closest - target):
                        closest, pair = total, (free[head], free[tail])
                    if total < target:
                        head += 1
                    else:
                        tail -= 1
                if pair is None:
                    break
                pairs.append(pair)
                free = [group for group in free if group == 0 or group not in pair]
            loads = [target, *(t[a] + t[b] for a, b in pairs)] + [0.0] * (ranks - 1 - len(pairs))
            waste = math.fsum(max(loads) - load for load in loads)
            if waste < least:
                least, best = waste, [members, *pairs]
        strategy.append([tuple(order[group - 1] for group in pair if group) for pair in best])
        left = [group for group in left if group not in set(itertools.chain.from_iterable(best))]
    if left:
        strategy.append([(order[group - 1],) for group in left])
    return tuple(tuple(row + [()] * (ranks - len(row))) for row in strategy)


def instance(kind: str, groups: int, number: int) -> np.ndarray:
    draw = generator(number, f"test/schedulers/{kind}")
    return {
        "even": lambda: draw.random(groups),
        "few values": lambda: draw.integers(0, 6, groups).astype(float),
        "heavy": lambda: np.exp(3 * draw.standard_normal(groups)),
        "alike": lambda: np.full(groups, draw.random()),
        "far apart": lambda: 10.0 ** draw.integers(-17, 17, groups),  # sums that rounding makes equal
        "growing": lambda: np.linspace(1, 10, groups) * (1 + 0.05 * draw.standard_normal(groups)),
    }[kind]()


KINDS = ("even", "few values", "heavy", "alike", "far apart", "growing")


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_is_algorithm_2(kind: str) -> None:
    for number in range(25):
        groups, ranks = 1 + (7 * number) % 34, 1 + (3 * number) % 8
        times_s = instance(kind, groups, number)
        got = dygnex_greedy.schedule(times_s, ranks).assignment
        assert got == algorithm_2(times_s.tolist(), ranks), f"{groups} groups, {ranks} ranks, instance {number}"


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_is_algorithm_2_where_walks_are_cut_short(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long walks over pairs end in two pointers; with no patience at all this is what happens at once."""
    monkeypatch.setattr("dtdg_lab.scheduling.dygnex_pairs.FEW_STEPS", 1)
    for number in range(8):
        times_s = instance(kind, 30, number)
        assert dygnex_greedy.schedule(times_s, 4).assignment == algorithm_2(times_s.tolist(), 4)


def test_greedy_is_algorithm_2_after_lists_are_packed() -> None:
    times_s = instance("growing", 120, 0)
    assert dygnex_greedy.schedule(times_s, 3).assignment == algorithm_2(times_s.tolist(), 3)


def test_an_iteration_of_algorithm_2_by_hand() -> None:
    """Target 9 + 0: nothing else comes near. Target 9 + 1 = 10: 7 + 3 = 10, no waste."""
    pairs = ExactPairs(np.array([1.0, 3.0, 7.0, 9.0]), 2)
    assert pairs.choose() == [(1, 4), (2, 3)]
    assert pairs.left == 0


def test_greedy_samples_many_groups_and_says_so() -> None:
    times_s = instance("growing", 900, 1)
    plan = dygnex_greedy.schedule(times_s, 4, seed=3)
    assert "8 of up to 900 targets sampled" in plan.notes
    assert plan.assignment == dygnex_greedy.schedule(times_s, 4, seed=3).assignment
    assert plan.assignment != dygnex_greedy.schedule(times_s, 4, seed=4).assignment
    assert plan.gap is not None
    assert plan.gap < 0.01
    assert not dygnex_greedy.schedule(times_s[:500], 4).notes


def test_greedy_tells_what_pairs_leave_of_other_limits() -> None:
    times_s = instance("growing", 20, 0)
    three = dygnex_greedy.schedule(times_s, 2, per_rank=3)
    assert "at most 2 of 3" in three.notes
    assert three.assignment == dygnex_greedy.schedule(times_s, 2).assignment
    one = dygnex_greedy.schedule(times_s, 2, per_rank=1)
    assert one.assignment == longest_first.schedule(times_s, 2, per_rank=1).assignment


def test_the_programme_stops_without_a_search_where_the_bound_certifies() -> None:
    plan = dygnex_ilp.schedule(instance("growing", 100, 0), 4)
    assert "no search" in plan.notes
    assert plan.gap is not None
    assert plan.gap <= 0.02


HARD = np.array([8.0, 7.0, 6.0, 5.0, 4.0, 4.0, 3.0, 3.0, 9.0, 1.0, 2.5])


def test_the_programme_searches_and_proves() -> None:
    plan = dygnex_ilp.schedule(HARD, 3, gap=0.0, time_limit_s=120.0)
    again = dygnex_ilp.schedule(HARD, 3, gap=0.0, time_limit_s=120.0)
    assert plan.assignment == again.assignment
    assert "CP-SAT searched to the gap" in plan.notes
    assert plan.gap is not None
    assert plan.gap < 1e-6
    assert plan.makespan_s(HARD) <= best_of.schedule(HARD, 3).makespan_s(HARD)


def test_time_over_gives_the_best_found_and_says_so() -> None:
    times_s = instance("heavy", 60, 2)
    plan = dygnex_ilp.schedule(times_s, 4, gap=0.0, time_limit_s=0.3)
    assert "Stopped by time_limit_s=0.3 at a gap of" in plan.notes
    assert plan.gap is not None
    assert 0 < plan.gap < 1
    assert plan.makespan_s(times_s) <= fold.schedule(times_s, 4).makespan_s(times_s)


def test_an_exchange_that_costs_much_makes_few_iterations() -> None:
    times_s = np.array([1.0, 5.0, 1.0, 5.0, 1.0, 5.0])
    plan = dygnex_ilp.schedule(times_s, 2, allreduce_s=100.0, gap=0.0, time_limit_s=60.0)
    assert len(plan.assignment) == 2


def test_a_missing_solver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "ortools" else found(name))
    with pytest.raises(NotAvailableError, match="pip install 'ortools"):
        dygnex_ilp.schedule(np.ones(4), 2)
    with pytest.raises(NotAvailableError, match="OR-tools"):
        dygnex_auto.schedule(np.ones(4), 2)
    assert dygnex_auto.schedule(np.ones(100), 2).notes.startswith("DyGNeX-G")


def test_auto_chooses_by_the_number_of_groups() -> None:
    few, many = instance("growing", 99, 0), instance("growing", 100, 0)
    assert dygnex_auto.schedule(few, 4).notes.startswith("DyGNeX-L, below 100 groups.")
    plan = dygnex_auto.schedule(many, 4)
    assert plan.notes == "DyGNeX-G, from 100 groups."
    assert plan.assignment == dygnex_greedy.schedule(many, 4).assignment


def test_fold_by_hand() -> None:
    times_s = np.array([6.0, 1.0, 2.0, 5.0, 3.0, 4.0, 10.0, 11.0])
    plan = fold.schedule(times_s, 2)
    # 11 + 1, 10 + 2, 6 + 3, 5 + 4: in runs of two, no rank waits
    assert plan.assignment == (((7, 1), (6, 2)), ((0, 4), (3, 5)))
    assert plan.makespan_s(times_s) == 21.0
    assert plan.gap == 0.0


def test_fold_leaves_the_largest_alone_where_slots_are_left() -> None:
    plan = fold.schedule(np.array([9.0, 5.0, 4.0]), 2)
    assert plan.assignment == (((0,), (1, 2)),)


def test_best_of_is_never_worse_and_names_the_winner() -> None:
    rules: list[Any] = [fold.schedule, longest_first.schedule, dygnex_greedy.schedule]
    for number in range(12):
        times_s = instance(KINDS[number % 6], 40, number)
        best = best_of.schedule(times_s, 6)
        assert best.notes.startswith("Best: ")
        best_s = best.makespan_s(times_s)
        # stops at 0.1 %, where the next heuristic may be better by that
        assert all(best_s <= rule(times_s, 6).makespan_s(times_s) * 1.001 for rule in rules)


def test_best_of_says_what_time_did_not_allow() -> None:
    plan = best_of.schedule(instance("heavy", 50, 0), 6, time_limit_s=1e-9)
    assert "Untried, as time_limit_s=1e-09 was over: " in plan.notes


@pytest.mark.parametrize(("ranks", "most"), [(64, 1.02), (512, 1.02)])
def test_ten_thousand_growing_groups_come_within_two_per_cent(ranks: int, most: float) -> None:
    """The issue's reach (its second is measured by hand: a test on a loaded machine would measure the load)."""
    times_s = instance("growing", 10_000, 0)
    plan = best_of.schedule(times_s, ranks)
    assert plan.makespan_s(times_s) <= most * bounds.lower_bound_s(times_s, ranks)


def test_a_gap_is_the_distance_to_the_bound() -> None:
    times_s = np.array([4.0, 4.0, 1.0])
    plan = Schedule((((0,), (1,)), ((2,), ())), 3)
    assert bounds.lower_bound_s(times_s, 2, allreduce_s=0.5) == pytest.approx(5.5)
    assert bounds.certified_gap(plan, times_s, allreduce_s=0.5) == pytest.approx(6.0 / 5.5 - 1)
    assert bounds.certified_gap(Schedule((((0,),),), 1), np.zeros(1)) == 0.0


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
        problem = Problem(instance(KINDS[number % 6], groups, number), ranks, 2)
        order = draw.permutation(groups).tolist()
        rows = []
        while order:
            taken = [order.pop() for _ in range(min(len(order), int(draw.integers(1, 2 * ranks + 1))))]
            rows.append([tuple(taken[rank::ranks]) for rank in range(ranks)])
        slots = from_rows(rows, problem)
        better = merged(slots, problem)
        assert len(better) <= problem.most
        assert makespan_s(better, problem) <= makespan_s(slots, problem) * (1 + 1e-12)
        assert sorted(better[better < groups].tolist()) == list(range(groups))
