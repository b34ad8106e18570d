"""DyGNeX's schedulers: Algorithm 2 against a plain transcription, the integer programme, and the choice of them."""

from __future__ import annotations

import importlib.util
import itertools
import math
import time
from typing import Any

import numpy as np
import pytest

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.core.plans import Schedule
from dtdg_lab.core.rng import generator
from dtdg_lab.systems.snapshot_groups.forecast import simulate_schedules
from dtdg_lab.systems.snapshot_groups.schedulers import base, dygnex, dygnex_ilp, heuristics
from dtdg_lab.systems.snapshot_groups.schedulers.base import Problem, from_rows, makespan_s
from dtdg_lab.systems.snapshot_groups.schedulers.dygnex import Pairs, compiled, targets_within
from dtdg_lab.systems.snapshot_groups.schedulers.dygnex_ilp import searched
from dtdg_lab.systems.snapshot_groups.schedulers.heuristics import merged
from tests.thinning import thinned


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
        got = dygnex.schedule(times_s, ranks).assignment
        assert got == algorithm_2(times_s.tolist(), ranks), f"{groups} groups, {ranks} ranks, instance {number}"


@pytest.mark.parametrize("kind", thinned(KINDS, (0, 2, 5)))
def test_greedy_compiled_is_algorithm_2(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same function compiled: few groups, which Python itself does else, and many."""
    monkeypatch.setattr("dtdg_lab.systems.snapshot_groups.schedulers.dygnex.INTERPRETED_GROUPS", 0)
    for number in range(25):
        groups, ranks = 1 + (7 * number) % 34, 1 + (3 * number) % 8
        times_s = instance(kind, groups, number)
        got = dygnex.schedule(times_s, ranks).assignment
        assert got == algorithm_2(times_s.tolist(), ranks), f"{groups} groups, {ranks} ranks, instance {number}"
    times_s = instance(kind, 130, 0)
    assert dygnex.schedule(times_s, 5).assignment == algorithm_2(times_s.tolist(), 5)


def test_an_iteration_of_algorithm_2_by_hand() -> None:
    """Target 9 + 0: nothing else comes near. Target 9 + 1 = 10: 7 + 3 = 10, no waste."""
    pairs = Pairs(np.array([1.0, 3.0, 7.0, 9.0]), 2, 4)
    assert pairs.choose() == [(1, 4), (2, 3)]
    assert pairs.left == 0


def test_five_hundred_groups_are_tried_with_all_targets() -> None:
    """As many steps as two pointers take for all targets of 500 groups are 0.2 s of compiled code."""
    times_s = instance("growing", 500, 1)
    plan = dygnex.schedule(times_s, 4)
    assert (plan.targets, plan.notes) == (500, "")
    assert targets_within(1000, 4) == 1000


@pytest.mark.slow
def test_how_many_targets_are_tried_follows_from_groups_and_ranks_and_is_told() -> None:
    times_s = instance("growing", 1500, 1)
    plan = dygnex.schedule(times_s, 4)
    assert plan.targets == targets_within(1500, 4) < 1500
    assert f"{plan.targets} of up to 1,500 targets in each iteration." in plan.notes
    assert plan.assignment == dygnex.schedule(times_s, 4, seed=4, time_limit_s=0.1).assignment
    few = dygnex.schedule(times_s, 4, targets=8)
    assert few.targets == 8
    assert "8 of up to 1,500 targets" in few.notes
    assert few.gap is not None
    assert few.gap < 0.01
    alone = dygnex.schedule(times_s[:200], 4, targets=1)  # every target is the longest group alone
    assert len(alone.assignment) > len(dygnex.schedule(times_s[:200], 4).assignment)


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "least"), [(512, 0.95), (1024, 0.95)])
def test_dygnex_g_keeps_what_the_paper_has_on_many_ranks(ranks: int, least: float) -> None:
    """Section 5.4: 95 % on 512 ranks, 85 % on 1,024; with the 2 targets of before it was 91.8 % and 84.7 %."""
    (row,) = simulate_schedules(curves=["linear"], ranks=[ranks], schedulers=["dygnex_greedy"]).rows
    assert row["throughput"] > least
    assert row["targets"] == targets_within(row["groups"], ranks)


def test_many_groups_need_numba_and_few_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "numba" else found(name))
    compiled.cache_clear()
    assert dygnex.schedule(np.ones(100), 2).targets == 100
    with pytest.raises(NotAvailableError, match="pip install 'numba"):
        dygnex.schedule(instance("heavy", 101, 0), 2)
    plan = heuristics.schedule_best_of(instance("heavy", 101, 0), 2)
    assert "Untried: DyGNeX-G of more than 100 groups needs numba" in plan.notes
    assert plan.targets is None


def test_greedy_tells_what_pairs_leave_of_other_limits() -> None:
    times_s = instance("growing", 20, 0)
    three = dygnex.schedule(times_s, 2, per_rank=3)
    assert "at most 2 of 3" in three.notes
    assert three.assignment == dygnex.schedule(times_s, 2).assignment
    one = dygnex.schedule(times_s, 2, per_rank=1)
    assert one.assignment == base.schedule_longest_first(times_s, 2, per_rank=1).assignment


def test_the_programme_stops_without_a_search_where_the_bound_certifies() -> None:
    plan = dygnex_ilp.schedule(instance("growing", 100, 0), 4)
    assert "no search" in plan.notes
    assert plan.gap is not None
    assert plan.gap <= 0.02


HARD = np.array([8.0, 7.0, 6.0, 5.0, 4.0, 4.0, 3.0, 3.0, 9.0, 1.0, 2.5])


@pytest.mark.slow
def test_the_programme_searches_and_proves() -> None:
    plan = dygnex_ilp.schedule(HARD, 3, gap=0.0, time_limit_s=120.0)
    again = dygnex_ilp.schedule(HARD, 3, gap=0.0, time_limit_s=120.0)
    assert plan.assignment == again.assignment
    assert "CP-SAT searched to the gap" in plan.notes
    assert plan.gap is not None
    assert plan.gap < 1e-6
    assert plan.makespan_s(HARD) <= heuristics.schedule_best_of(HARD, 3).makespan_s(HARD)


def test_time_over_gives_the_best_found_and_says_so() -> None:
    times_s = instance("heavy", 60, 2)
    plan = dygnex_ilp.schedule(times_s, 4, gap=0.0, time_limit_s=0.3)
    assert "Stopped by time_limit_s=0.3 at a gap of" in plan.notes
    assert plan.gap is not None
    assert 0 < plan.gap < 1
    assert plan.makespan_s(times_s) <= heuristics.schedule_fold(times_s, 4).makespan_s(times_s)


def test_building_a_programme_that_is_too_large_is_given_up() -> None:
    """512,000 variables: a limit of 2 s took 15 s, since none of building, hinting and loading looked at the clock."""
    problem = Problem(instance("heavy", 800, 2), 4, 2)
    since = time.process_time()
    assert searched(problem, heuristics.folded(problem, problem.fewest * 4), until=time.perf_counter() + 0.4) is None
    assert time.process_time() - since < 1.5


def test_a_programme_that_is_not_built_leaves_the_best_heuristic_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtdg_lab.systems.snapshot_groups.schedulers.dygnex_ilp.searched", lambda *_, until: None)
    times_s = instance("heavy", 60, 2)
    plan = dygnex_ilp.schedule(times_s, 4, gap=0.0, time_limit_s=60.0)
    assert "CP-SAT was not started: its programme was too large to build in time. Stopped by" in plan.notes
    assert plan.targets == 60
    assert plan.assignment == heuristics.schedule_best_of(times_s, 4).assignment


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
        dygnex_ilp.schedule_auto(np.ones(4), 2)
    assert dygnex_ilp.schedule_auto(np.ones(100), 2).notes.startswith("DyGNeX-G")


def test_auto_chooses_by_the_number_of_groups() -> None:
    few, many = instance("growing", 99, 0), instance("growing", 100, 0)
    assert dygnex_ilp.schedule_auto(few, 4).notes.startswith("DyGNeX-L, below 100 groups.")
    plan = dygnex_ilp.schedule_auto(many, 4)
    assert plan.notes == "DyGNeX-G, from 100 groups."
    assert plan.assignment == dygnex.schedule(many, 4).assignment


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
    others: list[Any] = [base.schedule_longest_first]
    for number in range(24):
        times_s, ranks = instance(KINDS[number % 6], 40 + 20 * number, number), 2 + number % 7
        best = heuristics.schedule_best_of(times_s, ranks)
        assert best.notes.startswith("Best: ")
        best_s = best.makespan_s(times_s)
        for rule in (heuristics.schedule_fold, dygnex.schedule):
            assert best_s <= rule(times_s, ranks).makespan_s(times_s) * (1 + 1e-9)
        # stops at 0.1 %, where the next heuristic may be better by that
        assert all(best_s <= rule(times_s, ranks).makespan_s(times_s) * 1.001 for rule in others)


def test_best_of_says_what_time_did_not_allow() -> None:
    plan = heuristics.schedule_best_of(instance("heavy", 50, 0), 6, time_limit_s=1e-9)
    assert "Untried, as time_limit_s=1e-09 was over: " in plan.notes


@pytest.mark.parametrize(("ranks", "most"), thinned([(64, 1.02), (512, 1.02)], [1]))
def test_ten_thousand_growing_groups_come_within_two_per_cent(ranks: int, most: float) -> None:
    """The issue's reach (its second is measured by hand: a test on a loaded machine would measure the load)."""
    times_s = instance("growing", 10_000, 0)
    plan = heuristics.schedule_best_of(times_s, ranks)
    assert plan.makespan_s(times_s) <= most * base.lower_bound_s(times_s, ranks)


def test_a_gap_is_the_distance_to_the_bound() -> None:
    times_s = np.array([4.0, 4.0, 1.0])
    plan = Schedule((((0,), (1,)), ((2,), ())), 3)
    assert base.lower_bound_s(times_s, 2, allreduce_s=0.5) == pytest.approx(5.5)
    assert base.relative_gap(plan.makespan_s(times_s, allreduce_s=0.5), 5.5) == pytest.approx(6.0 / 5.5 - 1)
    assert base.relative_gap(Schedule((((0,),),), 1).makespan_s(np.zeros(1)), base.lower_bound_s(np.zeros(1), 1)) == 0.0


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
