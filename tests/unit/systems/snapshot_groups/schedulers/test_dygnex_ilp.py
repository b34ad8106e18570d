"""DyGNeX-L: the integer programme, and the paper's choice of an algorithm."""

from __future__ import annotations

import importlib.util
import time

import numpy as np
import pytest

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.systems.snapshot_groups.schedulers import dygnex, dygnex_ilp, heuristics
from dtdg_lab.systems.snapshot_groups.schedulers.base import Problem
from dtdg_lab.systems.snapshot_groups.schedulers.dygnex_ilp import searched
from tests.group_time_samples import sample_times


def test_the_programme_stops_without_a_search_where_the_bound_certifies() -> None:
    plan = dygnex_ilp.schedule(sample_times("growing", 100, 0), 4)
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
    times_s = sample_times("heavy", 60, 2)
    plan = dygnex_ilp.schedule(times_s, 4, gap=0.0, time_limit_s=0.3)
    assert "Stopped by time_limit_s=0.3 at a gap of" in plan.notes
    assert plan.gap is not None
    assert 0 < plan.gap < 1
    assert plan.makespan_s(times_s) <= heuristics.schedule_fold(times_s, 4).makespan_s(times_s)


def test_building_a_programme_that_is_too_large_is_given_up() -> None:
    """512,000 variables: a limit of 2 s took 15 s, since none of building, hinting and loading looked at the clock."""
    problem = Problem(sample_times("heavy", 800, 2), 4, 2)
    since = time.process_time()
    assert searched(problem, heuristics.folded(problem, problem.fewest * 4), until=time.perf_counter() + 0.4) is None
    assert time.process_time() - since < 1.5


def test_a_programme_that_is_not_built_leaves_the_best_heuristic_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dygnex_ilp, "searched", lambda *_, until: None)
    times_s = sample_times("heavy", 60, 2)
    plan = dygnex_ilp.schedule(times_s, 4, gap=0.0, time_limit_s=60.0)
    assert "CP-SAT was not started: its programme was too large to build in time. Stopped by" in plan.notes
    assert plan.targets == 60
    assert plan.assignment == heuristics.schedule_best_of(times_s, 4).assignment


def test_an_exchange_that_costs_much_makes_few_iterations() -> None:
    times_s = np.array([1.0, 5.0, 1.0, 5.0, 1.0, 5.0])
    plan = dygnex_ilp.schedule(times_s, 2, allreduce_s=100.0, gap=0.0, time_limit_s=60.0)
    assert len(plan.assignment) == 2


def test_a_missing_solver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "ortools" else find_spec(name))
    with pytest.raises(NotAvailableError, match="pip install 'ortools"):
        dygnex_ilp.schedule(np.ones(4), 2)
    with pytest.raises(NotAvailableError, match="OR-tools"):
        dygnex_ilp.schedule_auto(np.ones(4), 2)
    assert dygnex_ilp.schedule_auto(np.ones(100), 2).notes.startswith("DyGNeX-G")


def test_auto_chooses_by_the_number_of_groups() -> None:
    few, many = sample_times("growing", 99, 0), sample_times("growing", 100, 0)
    assert dygnex_ilp.schedule_auto(few, 4).notes.startswith("DyGNeX-L, below 100 groups.")
    plan = dygnex_ilp.schedule_auto(many, 4)
    assert plan.notes == "DyGNeX-G, from 100 groups."
    assert plan.assignment == dygnex.schedule(many, 4).assignment
