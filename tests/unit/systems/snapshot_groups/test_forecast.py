"""Studies of simulated schedules."""

from __future__ import annotations

import pytest

import dtdg_lab as lab
from dtdg_lab.core.errors import ConfigError, PlanError, UnknownNameError
from dtdg_lab.systems.snapshot_groups.forecast import simulate_schedules
from dtdg_lab.systems.snapshot_groups.growing_times import group_times, modelled_times
from dtdg_lab.systems.snapshot_groups.linear_times import LinearTimes
from dtdg_lab.systems.snapshot_groups.schedulers.simulation import MEANINGS

TIMES = [1.0, 2.0, 3.0, 4.0]


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
    informed, uninformed = simulate_schedules(**settings), simulate_schedules(**settings, foresight=False)
    assert uninformed.rows[0]["makespan_s"] > informed.rows[0]["makespan_s"]
    assert uninformed.rows[0]["bound_s"] == informed.rows[0]["bound_s"]
    assert "not known" in uninformed.described and "not known" not in informed.described


def test_a_study_of_a_fitted_model_waits_less_where_most_is_constant() -> None:
    settings = {"ranks": [32], "schedulers": ["psg"]}
    flat = LinearTimes(0.0, 1e-6, 1.0, 0.0, 0.0, 9)
    (even,) = simulate_schedules(group_times(modelled_times(flat, 10, 10, 200, noise=0)), **settings).rows
    (steep,) = simulate_schedules(curves=["linear"], snapshots=200, noise=0.0, **settings).rows
    assert even["throughput"] > steep["throughput"]
    assert even["iteration_imbalance"] == pytest.approx(32 * 7 / 197, rel=1e-3)  # some are idle in the last
    assert even["worst_iteration_imbalance"] == pytest.approx(32 / 5, rel=1e-3)


def test_a_study_of_no_curve_is_refused() -> None:
    with pytest.raises(ConfigError, match="curves is empty"):
        simulate_schedules(curves=[])
    with pytest.raises(UnknownNameError, match="exponential"):
        simulate_schedules(curves=["exponental"])


def test_times_without_any_second_are_refused() -> None:
    with pytest.raises(PlanError):
        simulate_schedules([0, 0])
