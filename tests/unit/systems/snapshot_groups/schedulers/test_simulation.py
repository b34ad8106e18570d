"""Simulated schedules by hand, against a clock that advances from event to event, and on growing graphs; replays."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError, NotAvailableError, PlanError, UnknownNameError
from dtdg_lab.core.plans import Schedule
from dtdg_lab.core.rng import generator
from dtdg_lab.systems.snapshot_groups.growing_times import group_times, snapshot_times
from dtdg_lab.systems.snapshot_groups.schedulers import base, simulation
from dtdg_lab.systems.snapshot_groups.schedulers.simulation import MEANINGS, SCHEDULERS, outcome, replay, simulate

TIMES = [1.0, 2.0, 3.0, 4.0]


def run_by_clock(assignment: Any, times: Any, allreduce: float) -> tuple[float, float, Any]:
    """Let every rank compute its groups, wait for the others and exchange; return end, waiting and busy seconds."""
    now, waited, busy = 0.0, 0.0, np.zeros(len(assignment[0]))
    for iteration in assignment:
        done = [now] * len(iteration)
        for rank, groups in enumerate(iteration):
            for group in groups:
                done[rank] += times[group]
                busy[rank] += times[group]
        waited += sum(max(done) - end for end in done)
        now = max(done) + allreduce
    return now, waited, busy


def test_four_groups_on_two_ranks_by_hand() -> None:
    psg, longest = simulate(TIMES, ranks=[2], schedulers=["psg", "longest_first"])
    assert (psg.iterations, psg.per_rank, psg.makespan_s, psg.bound_s) == pytest.approx((2, 1, 6.0, 5.0))
    assert psg.throughput == pytest.approx(10 / 12)
    assert psg.bound_throughput == pytest.approx(1.0)
    assert psg.over_bound == pytest.approx(1.2)
    assert psg.imbalance == pytest.approx(6 / 4)
    assert psg.iteration_imbalance == pytest.approx((2 + 4) / (1.5 + 3.5))
    assert psg.worst_iteration_imbalance == pytest.approx(2 / 1.5)
    assert psg.idle_share == pytest.approx(2 / 12)
    assert (longest.iterations, longest.per_rank, longest.makespan_s) == (1, 2, 5.0)
    assert (longest.throughput, longest.imbalance, longest.idle_share) == (1.0, 1.0, 0.0)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_outcomes_equal_those_of_a_clock_that_ticks(scheduler: str) -> None:
    times = generator(1, "test/times").uniform(1, 5, 53)
    (result,) = simulate(times, ranks=[4], schedulers=[scheduler], allreduce_s=0.3)
    schedule = base.solve(scheduler, times, 4, allreduce_s=0.3)
    ended, waited, busy = run_by_clock(schedule.assignment, times, 0.3)
    assert result.makespan_s == pytest.approx(ended)
    assert result.idle_share == pytest.approx(waited / (waited + busy.sum()))
    assert result.imbalance == pytest.approx(busy.max() / busy.min())
    assert result.throughput == pytest.approx(times.sum() / ended / 4)
    assert result.makespan_s >= result.bound_s * (1 - 1e-12)
    assert result.solve_s > 0


def test_one_rank_waits_for_nobody_and_exchanges_nothing() -> None:
    for result in simulate(TIMES, ranks=[1], schedulers=SCHEDULERS, allreduce_s=7.0):
        assert result.makespan_s == pytest.approx(10.0)
        assert (result.throughput, result.imbalance, result.idle_share) == pytest.approx((1, 1, 0))


def test_all_reduces_count_once_an_iteration() -> None:
    psg, longest = simulate(TIMES, ranks=[2], schedulers=["psg", "longest_first"], allreduce_s=0.5)
    assert (psg.makespan_s, longest.makespan_s) == (7.0, 5.5)
    assert longest.throughput == pytest.approx(10 / 11)
    assert longest.idle_share == 0.0  # nobody waits in an exchange that all take part in


def test_a_rank_without_any_group_has_no_finite_imbalance() -> None:
    (result,) = simulate([2.0], ranks=[4], schedulers=["psg"])
    assert math.isinf(result.imbalance)
    assert result.row()["imbalance"] is None
    assert result.iteration_imbalance == 4.0
    assert result.idle_share == pytest.approx(0.75)


def test_schedulers_that_see_other_times_are_judged_by_the_true_ones() -> None:
    """The longest, and one that is taken for the shortest but is as long, share a rank."""
    times = np.array([1.0, 1, 9, 9])
    assumed = np.array([3.0, 2, 4, 1])
    (informed,) = simulate(times, ranks=[2], schedulers=["longest_first"])
    (misled,) = simulate(times, ranks=[2], schedulers=["longest_first"], seen_s=assumed)
    schedule = base.solve("longest_first", assumed, 2)
    assert misled.makespan_s == pytest.approx(run_by_clock(schedule.assignment, times, 0.0)[0])
    assert (misled.makespan_s, informed.makespan_s) == (18.0, 10.0)
    assert misled.bound_s == informed.bound_s
    with pytest.raises(PlanError, match="3 groups, but times_s has 4"):
        simulate(times, ranks=[2], schedulers=["psg"], seen_s=[1, 2, 3])


@pytest.mark.slow
def test_growth_makes_psg_wait_more_on_more_ranks_and_others_hardly() -> None:
    times = group_times(snapshot_times(2_000, "linear", seed=0))
    results = simulate(times, ranks=[4, 32, 256], schedulers=["psg", "best_of"])
    psg = [outcome.throughput for outcome in results if outcome.scheduler == "psg"]
    best = [outcome.throughput for outcome in results if outcome.scheduler == "best_of"]
    assert psg[0] > psg[1] > psg[2]
    assert all(ours > theirs for ours, theirs in zip(best, psg, strict=True))
    assert min(best[:2]) > 0.97
    assert all(outcome.throughput <= outcome.bound_throughput * (1 + 1e-12) for outcome in results)


@pytest.mark.parametrize(
    ("times", "error"),
    [
        ([], PlanError),
        ([0, 0], PlanError),
        ([1, -1], PlanError),
        ([1, np.nan], PlanError),
        ([1, np.inf], PlanError),
        ([[1, 2]], PlanError),
    ],
)
def test_times_that_are_none_are_refused(times: Any, error: type[Exception]) -> None:
    for run in (
        lambda: simulate(times, ranks=[2], schedulers=["psg"]),
        lambda: replay(times, 2),
    ):
        with pytest.raises(error):
            run()


def test_nothing_to_simulate_is_refused() -> None:
    for settings in ({"ranks": []}, {"ranks": [0]}, {"schedulers": []}):
        with pytest.raises(ConfigError):
            simulate(TIMES, **settings)
    with pytest.raises(UnknownNameError, match="longest_first"):
        simulate(TIMES, ranks=[2], schedulers=["longest_fist"])


def test_a_replay_asks_everybody() -> None:
    times = generator(2, "test/times").uniform(1, 5, 24)
    result = replay(times, 3, allreduce_s=0.1)
    names = [outcome.scheduler for outcome in result.outcomes]
    assert names[0] == "psg"
    assert {"longest_first", "fold", "dygnex_greedy", "dygnex_ilp", "best_of"} <= {*names, *dict(result.missing)}
    assert "round_robin" not in names
    assert result.best.makespan_s == min(outcome.makespan_s for outcome in result.outcomes)
    assert len({outcome.bound_s for outcome in result.outcomes}) == 1
    assert all(outcome.makespan_s >= outcome.bound_s * (1 - 1e-9) for outcome in result.outcomes)
    rows = json.loads(json.dumps(result.rows(), allow_nan=False))
    assert [row["scheduler"] for row in rows] == names
    assert set(rows[0]) == set(MEANINGS)


def test_a_replay_of_many_groups_leaves_the_integer_programme_out() -> None:
    result = replay(np.ones(101), 4)
    assert "dygnex_ilp" not in [outcome.scheduler for outcome in result.outcomes]
    some = replay(np.ones(8), 4, schedulers=["longest_first"])
    assert [outcome.scheduler for outcome in some.outcomes] == ["longest_first"]


def test_a_scheduler_that_is_not_installed_is_named_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def solve(name: str, *arguments: Any, **settings: Any) -> Schedule:
        if name == "psg":
            raise NotAvailableError("no solver here.")
        return Schedule((((0, 3), (1, 2)),), 4)

    monkeypatch.setattr(simulation, "solve", solve)
    result = replay(TIMES, 2, schedulers=["psg", "longest_first"])
    assert result.missing == (("psg", "no solver here."),)
    assert [outcome.makespan_s for outcome in result.outcomes] == [5.0]
    with pytest.raises(NotAvailableError, match="no solver"):
        replay(TIMES, 2, schedulers=["psg"])
    with pytest.raises(ConfigError):
        replay(TIMES, 0)


def test_groups_that_take_no_time_are_no_obstacle() -> None:
    (result,) = simulate([2.0, 2.0, 0.0, 0.0], ranks=[2], schedulers=["psg"])
    assert (result.makespan_s, result.iteration_imbalance) == (2.0, 1.0)


def test_outcomes_are_of_the_schedule_that_is_given() -> None:
    schedule = Schedule((((0,), (1,)),), 2, notes="by hand", seconds=0.25)
    result = outcome("mine", schedule, np.array([1.0, 3.0]), per_rank=1, allreduce_s=0.0, bound_s=2.0)
    assert (result.notes, result.solve_s, result.over_bound) == ("by hand", 0.25, 1.5)
