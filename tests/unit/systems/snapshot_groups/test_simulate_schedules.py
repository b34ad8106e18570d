"""Schedules simulated: by hand, against a clock that ticks from event to event, and on graphs that grow."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import dtdg_lab as lab
from dtdg_lab.core.errors import ConfigError, NotAvailableError, PlanError, UnknownNameError
from dtdg_lab.core.plans import Schedule
from dtdg_lab.core.rng import generator
from dtdg_lab.systems.snapshot_groups.forecast import simulate_schedules
from dtdg_lab.systems.snapshot_groups.schedulers import base as replaying
from dtdg_lab.systems.snapshot_groups.schedulers.base import MEANINGS, SCHEDULERS, outcome, replay, simulate
from dtdg_lab.systems.snapshot_groups.time_model import (
    LinearTimes,
    group_times,
    modelled_times,
    predict_epochs,
    snapshot_times,
)

TIMES = [1.0, 2.0, 3.0, 4.0]


def run_by_clock(assignment, times, allreduce):
    """Every rank works through its groups; whoever is done waits until all are, then all exchange."""
    now, waited, busy = 0.0, 0.0, np.zeros(len(assignment[0]))
    for iteration in assignment:
        done = [now] * len(iteration)
        for rank, groups in enumerate(iteration):
            for group in groups:
                done[rank] += times[group]
                busy[rank] += times[group]
        waited += sum(max(done) - each for each in done)
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
    (found,) = simulate(times, ranks=[4], schedulers=[scheduler], allreduce_s=0.3)
    made = replaying.solve(scheduler, times, 4, allreduce_s=0.3)
    ended, waited, busy = run_by_clock(made.assignment, times, 0.3)
    assert found.makespan_s == pytest.approx(ended)
    assert found.idle_share == pytest.approx(waited / (waited + busy.sum()))
    assert found.imbalance == pytest.approx(busy.max() / busy.min())
    assert found.throughput == pytest.approx(times.sum() / ended / 4)
    assert found.makespan_s >= found.bound_s * (1 - 1e-12)
    assert found.solve_s > 0


def test_one_rank_waits_for_nobody_and_exchanges_nothing() -> None:
    for found in simulate(TIMES, ranks=[1], schedulers=SCHEDULERS, allreduce_s=7.0):
        assert found.makespan_s == pytest.approx(10.0)
        assert (found.throughput, found.imbalance, found.idle_share) == pytest.approx((1, 1, 0))


def test_all_reduces_count_once_an_iteration() -> None:
    psg, longest = simulate(TIMES, ranks=[2], schedulers=["psg", "longest_first"], allreduce_s=0.5)
    assert (psg.makespan_s, longest.makespan_s) == (7.0, 5.5)
    assert longest.throughput == pytest.approx(10 / 11)
    assert longest.idle_share == 0.0  # nobody waits in an exchange that all take part in


def test_a_rank_without_any_group_has_no_finite_imbalance() -> None:
    (found,) = simulate([2.0], ranks=[4], schedulers=["psg"])
    assert math.isinf(found.imbalance)
    assert found.row()["imbalance"] is None
    assert found.iteration_imbalance == 4.0
    assert found.idle_share == pytest.approx(0.75)


def test_schedulers_that_see_other_times_are_judged_by_the_true_ones() -> None:
    """The longest, and one that is taken for the shortest but is as long, share a rank."""
    true = np.array([1.0, 1, 9, 9])
    seen = np.array([3.0, 2, 4, 1])
    (wise,) = simulate(true, ranks=[2], schedulers=["longest_first"])
    (fooled,) = simulate(true, ranks=[2], schedulers=["longest_first"], seen_s=seen)
    made = replaying.solve("longest_first", seen, 2)
    assert fooled.makespan_s == pytest.approx(run_by_clock(made.assignment, true, 0.0)[0])
    assert (fooled.makespan_s, wise.makespan_s) == (18.0, 10.0)
    assert fooled.bound_s == wise.bound_s
    with pytest.raises(PlanError, match="3 groups and times_s 4"):
        simulate(true, ranks=[2], schedulers=["psg"], seen_s=[1, 2, 3])


@pytest.mark.slow
def test_growth_makes_psg_wait_more_on_more_ranks_and_others_hardly() -> None:
    times = group_times(snapshot_times(2_000, "linear", seed=0))
    found = simulate(times, ranks=[4, 32, 256], schedulers=["psg", "best_of"])
    psg = [each.throughput for each in found if each.scheduler == "psg"]
    best = [each.throughput for each in found if each.scheduler == "best_of"]
    assert psg[0] > psg[1] > psg[2]
    assert all(ours > theirs for ours, theirs in zip(best, psg, strict=True))
    assert min(best[:2]) > 0.97
    assert all(each.throughput <= each.bound_throughput * (1 + 1e-12) for each in found)


@pytest.mark.parametrize(
    ("times", "error"),
    [([], PlanError), ([0, 0], PlanError), ([1, -1], PlanError), ([1, np.nan], PlanError), ([1, np.inf], PlanError),
     ([[1, 2]], PlanError)],
)  # fmt: skip
def test_times_that_are_none_are_refused(times, error) -> None:
    for run in (
        lambda: simulate(times, ranks=[2], schedulers=["psg"]),
        lambda: replay(times, 2),
        lambda: simulate_schedules(times),
    ):
        with pytest.raises(error):
            run()


def test_nothing_to_simulate_is_refused() -> None:
    for wrong in ({"ranks": []}, {"ranks": [0]}, {"schedulers": []}):
        with pytest.raises(ConfigError):
            simulate(TIMES, **wrong)
    with pytest.raises(UnknownNameError, match="longest_first"):
        simulate(TIMES, ranks=[2], schedulers=["longest_fist"])


def test_a_replay_asks_everybody() -> None:
    times = generator(2, "test/times").uniform(1, 5, 24)
    found = replay(times, 3, allreduce_s=0.1)
    names = [each.scheduler for each in found.outcomes]
    assert names[0] == "psg"
    assert {"longest_first", "fold", "dygnex_greedy", "dygnex_ilp", "best_of"} <= {*names, *dict(found.missing)}
    assert "round_robin" not in names
    assert found.best.makespan_s == min(each.makespan_s for each in found.outcomes)
    assert len({each.bound_s for each in found.outcomes}) == 1
    assert all(each.makespan_s >= each.bound_s * (1 - 1e-9) for each in found.outcomes)
    rows = json.loads(json.dumps(found.rows(), allow_nan=False))
    assert [row["scheduler"] for row in rows] == names
    assert set(rows[0]) == set(MEANINGS)


def test_a_replay_of_many_groups_leaves_the_integer_programme_out() -> None:
    found = replay(np.ones(101), 4)
    assert "dygnex_ilp" not in [each.scheduler for each in found.outcomes]
    chosen = replay(np.ones(8), 4, schedulers=["longest_first"])
    assert [each.scheduler for each in chosen.outcomes] == ["longest_first"]


def test_a_scheduler_that_is_not_installed_is_named_and_the_others_go_on(monkeypatch) -> None:
    def solve(name, *given, **settings):
        if name == "psg":
            raise NotAvailableError("no solver here.")
        return Schedule((((0, 3), (1, 2)),), 4)

    monkeypatch.setattr(replaying, "solve", solve)
    found = replay(TIMES, 2, schedulers=["psg", "longest_first"])
    assert found.missing == (("psg", "no solver here."),)
    assert [each.makespan_s for each in found.outcomes] == [5.0]
    with pytest.raises(NotAvailableError, match="no solver"):
        replay(TIMES, 2, schedulers=["psg"])
    with pytest.raises(ConfigError):
        replay(TIMES, 0)


def test_epochs_of_other_ranks_by_hand() -> None:
    one, two, four = predict_epochs(
        TIMES, measured_on=2, scheduler="psg", allreduce_s=0.5, step_s=0.25, measured_s={2: 7.0, 4: 6.0}
    )
    assert (one.predicted_s, one.allreduce_s, one.speedup, one.measured_s) == (11.0, 0.0, 1.0, None)
    assert one.error is None
    assert two.predicted_s == 7.5  # 2 + 4, and twice 0.5 + 0.25
    assert two.error == pytest.approx(0.5 / 7)
    assert four.allreduce_s == pytest.approx(0.75)  # 3/4 of the ring's bytes, where two ranks send 1/2
    assert four.predicted_s == pytest.approx(5.0)
    assert four.speedup == pytest.approx(11 / 5)
    assert four.error == pytest.approx(-1 / 6)
    assert all(each.bound_s <= each.predicted_s * (1 + 1e-12) for each in (one, two, four))
    assert json.loads(json.dumps(one.row()))["ranks"] == 1


def test_epochs_measured_several_times_count_the_waiting_that_noise_brings() -> None:
    """Medians are all 2, so a schedule of medians waits for nobody; each epoch another rank is late."""
    epochs = [[1.0, 2.0], [2.0, 3.0], [3.0, 1.0]]
    (noisy,) = predict_epochs(epochs, measured_on=1, ranks=[2], scheduler="psg")
    assert noisy.predicted_s == pytest.approx((2 + 3 + 3) / 3)
    (median,) = predict_epochs([2.0, 2.0], measured_on=1, ranks=[2], scheduler="psg")
    assert median.predicted_s == 2.0


def test_all_reduces_given_by_number_of_ranks() -> None:
    found = predict_epochs(TIMES, measured_on=1, ranks=[1, 2], scheduler="psg", allreduce_s={2: 0.5})
    assert [each.predicted_s for each in found] == [10.0, 7.0]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"measured_on": 1, "allreduce_s": 0.5}, "by number of"),
        ({"measured_on": 2, "allreduce_s": {2: 0.5}}, "not for 4"),
        ({"measured_on": 2, "allreduce_s": -1.0}, "at least 0"),
        ({"measured_on": 2, "step_s": -1.0}, "step_s"),
        ({"measured_on": 0}, "at least 1"),
        ({"measured_on": 2, "ranks": []}, "at least 1"),
        ({"measured_on": 2, "measured_s": {2: 0.0}}, "above 0"),
    ],
)
def test_predictions_from_what_cannot_be_are_refused(settings, said) -> None:
    with pytest.raises(ConfigError, match=said):
        predict_epochs(TIMES, **settings)
    with pytest.raises(PlanError):
        predict_epochs(np.ones((2, 2, 2)), measured_on=2)


def test_a_study_has_rows_words_a_frame_and_a_figure() -> None:
    study = simulate_schedules(snapshots=200, ranks=[4, 16], schedulers=["psg", "longest_first"])
    assert len(study.rows) == 2 * 2 * 2
    assert {row["curve"] for row in study.rows} == {"linear", "exponential"}
    assert set(study.rows[0]) == {"curve", *MEANINGS}
    assert list(study.to_pandas()["groups"].unique()) == [197]
    words = repr(study)
    assert "197 groups" in words and "linear" in words and "psg" in words and "%" in words
    assert "over_bound" in study._repr_html_()
    assert {"data", "layout"} <= set(study.figure)
    assert lab.plot(study.figure).data


def test_a_study_of_times_that_were_given() -> None:
    study = simulate_schedules(TIMES, ranks=[2], schedulers=["psg"])
    assert [(row["curve"], row["makespan_s"]) for row in study.rows] == [("given", 6.0)]
    assert "4 given times" in study.described


def test_a_study_without_foresight_waits_longer_and_says_so() -> None:
    settings = {"curves": ["linear"], "snapshots": 400, "ranks": [8], "schedulers": ["longest_first"], "noise": 0.2}
    known, unknown = simulate_schedules(**settings), simulate_schedules(**settings, foresight=False)
    assert unknown.rows[0]["makespan_s"] > known.rows[0]["makespan_s"]
    assert unknown.rows[0]["bound_s"] == known.rows[0]["bound_s"]
    assert "not known" in unknown.described and "not known" not in known.described


def test_a_study_of_a_fitted_model_waits_less_where_most_is_constant() -> None:
    settings = {"ranks": [32], "schedulers": ["psg"]}
    flat = LinearTimes(0.0, 1e-6, 1.0, 0.0, 0.0, 9)
    (even,) = simulate_schedules(group_times(modelled_times(flat, 10, 10, 200, noise=0)), **settings).rows
    (steep,) = simulate_schedules(curves=["linear"], snapshots=200, noise=0.0, **settings).rows
    assert even["throughput"] > steep["throughput"]
    assert even["iteration_imbalance"] == pytest.approx(32 * 7 / 197, rel=1e-3)  # some are idle in the last
    assert even["worst_iteration_imbalance"] == pytest.approx(32 / 5, rel=1e-3)


def test_a_study_of_no_curve_is_refused() -> None:
    with pytest.raises(ConfigError, match="no growth curve"):
        simulate_schedules(curves=[])
    with pytest.raises(UnknownNameError, match="exponential"):
        simulate_schedules(curves=["exponental"])


def test_groups_that_take_no_time_are_no_obstacle() -> None:
    (found,) = simulate([2.0, 2.0, 0.0, 0.0], ranks=[2], schedulers=["psg"])
    assert (found.makespan_s, found.iteration_imbalance) == (2.0, 1.0)


def test_outcomes_are_of_the_schedule_that_is_given() -> None:
    made = Schedule((((0,), (1,)),), 2, notes="by hand", seconds=0.25)
    found = outcome("mine", made, np.array([1.0, 3.0]), per_rank=1, allreduce_s=0.0, bound_s=2.0)
    assert (found.notes, found.solve_s, found.over_bound) == ("by hand", 0.25, 1.5)
