"""Bounds and schedulers against brute force, and how far they are from it at worst."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.config.catalogue import entries
from dtdg_lab.core.rng import generator
from dtdg_lab.systems.snapshot_groups.schedulers import dygnex, dygnex_ilp, heuristics, longest_first
from dtdg_lab.systems.snapshot_groups.schedulers.base import Problem, lower_bound_s

tiny = st.lists(st.integers(0, 12), min_size=1, max_size=7).map(lambda values: np.array(values, float))
times = st.lists(st.floats(0.0, 1e6, allow_subnormal=False), min_size=1, max_size=30).map(np.array)
HEURISTICS = {
    entry.name: entry.load() for entry in entries("scheduling") if entry.name not in ("dygnex_ilp", "dygnex_auto")
}


def iteration_s(times_s: tuple[float, ...], ranks: int, per_rank: int) -> float:
    """The least makespan of one iteration, by trying all."""
    deals = itertools.product(range(ranks), repeat=len(times_s))
    fitting = (deal for deal in deals if np.bincount(deal, minlength=ranks).max() <= per_rank)
    return min(np.bincount(deal, weights=times_s, minlength=ranks).max() for deal in fitting)


def optimum(times_s: Any, ranks: int, per_rank: int, allreduce_s: float, most: int | None = None) -> float:
    """The least makespan of an epoch of at most so many iterations, by trying all."""
    cost = functools.cache(functools.partial(iteration_s, ranks=ranks, per_rank=per_rank))

    @functools.cache
    def best(left: tuple[int, ...], iterations: int) -> float:
        if not left:
            return 0.0
        if not iterations:
            return float("inf")
        first, rest = left[0], left[1:]
        answers = []
        for size in range(min(len(rest), ranks * per_rank - 1) + 1):
            for chosen in itertools.combinations(rest, size):
                spent = cost(tuple(sorted(times_s[group] for group in (first, *chosen)))) + allreduce_s
                answers.append(spent + best(tuple(g for g in rest if g not in chosen), iterations - 1))
        return min(answers)

    return best(tuple(range(len(times_s))), len(times_s) if most is None else most)


@given(tiny, st.integers(1, 3), st.integers(1, 3), st.sampled_from([0.0, 0.75, 5.0]))
def test_nothing_beats_the_bound(times_s: Any, ranks: int, per_rank: int, allreduce_s: float) -> None:
    if ranks * per_rank > 4:
        times_s = times_s[:6]  # all deals of seven groups to three ranks take too long
    best_s = optimum(times_s, ranks, per_rank, allreduce_s)
    assert lower_bound_s(times_s, ranks, per_rank=per_rank, allreduce_s=allreduce_s) <= best_s
    most = Problem(times_s, ranks, per_rank).most
    assert optimum(times_s, ranks, per_rank, allreduce_s, most) == best_s  # more iterations are never needed


@given(tiny, st.integers(1, 3), st.integers(1, 2), st.sampled_from([0.0, 0.75]))
def test_the_programme_finds_the_optimum(times_s: Any, ranks: int, per_rank: int, allreduce_s: float) -> None:
    plan = dygnex_ilp.schedule(times_s, ranks, per_rank=per_rank, allreduce_s=allreduce_s, gap=0.0, time_limit_s=60.0)
    best_s = optimum(times_s, ranks, per_rank, allreduce_s)
    assert plan.makespan_s(times_s, allreduce_s=allreduce_s) == pytest.approx(best_s, rel=1e-5)
    heuristic = heuristics.schedule_best_of(times_s, ranks, per_rank=per_rank, allreduce_s=allreduce_s)
    assert plan.makespan_s(times_s, allreduce_s=allreduce_s) <= heuristic.makespan_s(times_s, allreduce_s=allreduce_s)


@given(times, st.data())
def test_fold_is_the_best_there_is_up_to_two_groups_a_rank(times_s: Any, data: st.DataObject) -> None:
    ranks = data.draw(st.integers(-(-len(times_s) // 2), 40))
    assert heuristics.schedule_fold(times_s, ranks).gap == 0.0


@given(times, st.integers(1, 40))
def test_one_group_a_rank_meets_the_bound(times_s: Any, ranks: int) -> None:
    assert longest_first.schedule_longest_first(times_s, ranks, per_rank=1).gap == 0.0


@pytest.mark.parametrize("name", HEURISTICS)
@given(times_s=times, ranks=st.integers(1, 6), shift=st.integers(-20, 20), seed=st.integers(0, 99))
def test_order_and_unit_of_times_do_not_matter(name: str, times_s: Any, ranks: int, shift: int, seed: int) -> None:
    schedule = HEURISTICS[name]
    plan = schedule(times_s, ranks)
    # a power of two scales without any rounding, so even ties stay ties
    assert schedule(times_s * 2.0**shift, ranks).assignment == plan.assignment
    if name not in ("round_robin", "consecutive"):  # which deal in time order
        mixed = generator(seed, "test/mixed").permutation(times_s)
        assert schedule(mixed, ranks).makespan_s(mixed) == pytest.approx(plan.makespan_s(times_s), rel=1e-12)


def adversary(number: int) -> tuple[np.ndarray, int]:
    """Heavy tails, few values, giants and growth, with groups close to a multiple of the ranks or far from it."""
    draw = generator(number, "test/adversary")
    ranks = int(draw.integers(2, 17))
    groups = int(draw.integers(1, 6 * ranks))
    times_s = [
        lambda: np.exp(2 * draw.standard_normal(groups)),
        lambda: draw.integers(1, 4, groups).astype(float),
        lambda: np.where(draw.random(groups) < 0.1, 50.0, 1.0),
        lambda: np.linspace(1, 10, groups),
        lambda: draw.random(groups),
    ][number % 5]()
    return times_s, ranks


def test_the_worst_factor_of_some_adversaries() -> None:
    rules: dict[str, Any] = {
        "fold": heuristics.schedule_fold,
        "dygnex_greedy": dygnex.schedule,
        "best_of": heuristics.schedule_best_of,
    }
    worst = dict.fromkeys(rules, 1.0)
    for number in range(300):
        times_s, ranks = adversary(number)
        for name, rule in rules.items():
            worst[name] = max(worst[name], 1.0 + rule(times_s, ranks).gap)
    assert worst["best_of"] <= min(worst["fold"], worst["dygnex_greedy"])
    assert worst["best_of"] < 1.5
