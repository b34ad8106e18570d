"""Schedulers on any times: contracts, and the bounds of longest-processing-time-first."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.config.catalogue import Entry, entries
from dtdg_lab.systems.snapshot_groups.schedulers import dygnex, dygnex_ilp, heuristics, longest_first
from dtdg_lab.systems.snapshot_groups.schedulers.contract import check_plan

times = st.lists(st.floats(0.0, 1e6, allow_subnormal=False), min_size=1, max_size=40).map(np.array)
counts = st.lists(st.integers(1, 5), min_size=1, max_size=40).map(lambda values: np.array(values, float))  # many ties
parts = st.integers(1, 9)


@pytest.mark.parametrize("entry", entries("scheduling"), ids=lambda entry: entry.name)
@given(times_s=times | counts, parts=parts, per_rank=st.integers(1, 4))
def test_contract(entry: Entry, times_s: Any, parts: int, per_rank: int) -> None:
    schedule = functools.partial(entry.load(), gap=2.0, time_limit_s=60.0)  # wide: certified without a search
    plan = check_plan(schedule, times_s, parts, per_rank=per_rank)
    assert plan.loads(times_s).sum() == pytest.approx(times_s.sum(), rel=1e-9)
    fewest = -(-len(times_s) // (parts * per_rank))
    if entry.name in ("round_robin", "consecutive", "longest_first", "fold"):
        assert len(plan.assignment) == fewest
    else:
        assert fewest <= len(plan.assignment) <= max(fewest, -(-len(times_s) // parts))


@given(times | counts, parts, st.integers(1, 3), st.integers(0, 9), st.floats(0, 10))
def test_what_chooses_among_schedules_is_never_worse_than_dygnex_greedy(
    times_s: Any, parts: int, per_rank: int, targets: int, allreduce_s: float
) -> None:
    live_settings: dict[str, Any] = {"per_rank": per_rank, "targets": targets, "allreduce_s": allreduce_s}
    papers = dygnex.schedule(times_s, parts, **live_settings).makespan_s(times_s, allreduce_s=allreduce_s)
    for rule in (heuristics.schedule_best_of, functools.partial(dygnex_ilp.schedule, gap=2.0, time_limit_s=60.0)):
        assert rule(times_s, parts, **live_settings).makespan_s(times_s, allreduce_s=allreduce_s) <= papers * (1 + 1e-9)


@given(times | counts, parts, st.integers(1, 4))
def test_longest_first_is_never_slower_than_round_robin_when_graphs_grow(
    times_s: Any, parts: int, per_rank: int
) -> None:
    grown = np.sort(times_s)
    even, eager = (
        rule(grown, parts, per_rank=per_rank)
        for rule in (longest_first.schedule_longest_first, heuristics.schedule_round_robin)
    )
    assert even.makespan_s(grown) <= eager.makespan_s(grown) * (1 + 1e-12)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=7).map(lambda v: np.array(v, float)), st.integers(1, 3))
def test_graham_s_bound_holds_where_all_groups_fit_one_iteration(times_s: Any, parts: int) -> None:
    """LPT <= (4/3 - 1/(3m)) OPT (Graham 1969), with room for all groups on a part so that the rule is plain LPT."""
    plan = longest_first.schedule_longest_first(times_s, parts, per_rank=len(times_s))
    assert len(plan.assignment) == 1
    deals = itertools.product(range(parts), repeat=len(times_s))
    best = min(max(np.bincount(deal, weights=times_s, minlength=parts)) for deal in deals)
    assert plan.makespan_s(times_s) <= (4 / 3 - 1 / (3 * parts)) * best + 1e-9


@given(times, parts, st.integers(1, 3))
def test_iterations_come_longest_first(times_s: Any, parts: int, per_rank: int) -> None:
    plan = longest_first.schedule_longest_first(times_s, parts, per_rank=per_rank)
    spans = [[times_s[g] for part in row for g in part] for row in plan.assignment]
    for earlier, later in itertools.pairwise(spans):
        assert min(earlier) >= max(later)
