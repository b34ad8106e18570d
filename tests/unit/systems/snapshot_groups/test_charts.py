"""Imbalance, group times, where time goes, and what other schedules would take, from small tables."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.runs.tables import RunTables
from dtdg_lab.systems.snapshot_groups import captions
from dtdg_lab.systems.snapshot_groups.balance import balance_by_epoch, balance_of, last_balance
from dtdg_lab.systems.snapshot_groups.comparison import (
    COMPARE,
    OTHER_RANKS,
    OTHER_SCHEDULERS,
    TOO_EARLY,
    measurements,
    prepare,
)
from dtdg_lab.systems.snapshot_groups.group_times import group_times
from dtdg_lab.systems.snapshot_groups.schedulers.base import replay
from dtdg_lab.systems.snapshot_groups.supporting import GROUP_TIMES, IMBALANCE, OWN_WORK
from dtdg_lab.systems.snapshot_groups.time_model import predict_epochs
from dtdg_lab.visualization.chart import Chart, ChartOptions
from tests.schedules_synthetic import EXCHANGE_S, REST_S, add_epoch, add_schedule, schedule_data, scheduled_tables

TIMES = [0.1, 0.2, 0.2, 0.1, 0.4]
ASSIGNMENT = [[[0, 1], [2]], [[3], [4]]]
EXAMPLES = {
    "share": "12.3%", "epoch": 1_234, "time": "2 min 5 s", "groups": "1,234", "iterations": "1,234", "ratio": "1.41",
    "name": "dygnex_greedy", "less_or_more": "less", "ranks": 16,
}  # fmt: skip


def drawn(chart: Chart, tables: RunTables, **options: Any) -> dict[str, Any]:
    figure = chart.figure(tables, ChartOptions(**options))
    go.Figure(figure)
    json.dumps(figure, allow_nan=False)
    return figure


def caption(chart: Chart, tables: RunTables, **options: Any) -> str:
    return chart.caption(tables, ChartOptions(**options))


@pytest.mark.parametrize("name", [name for name in vars(captions) if name.isupper()])
def test_captions_have_at_most_twenty_words(name: str) -> None:
    text = getattr(captions, name).format(**EXAMPLES)
    assert len(text.split()) <= 20 and text.endswith(".")


@pytest.mark.parametrize("chart", [IMBALANCE, GROUP_TIMES, OWN_WORK, OTHER_RANKS])
def test_before_the_first_epoch_charts_are_empty(chart: Chart) -> None:
    figure, tables = drawn(chart, scheduled_tables(TIMES, ASSIGNMENT)), scheduled_tables(TIMES, ASSIGNMENT)
    assert not figure["data"] and "Appears" in figure["layout"]["annotations"][0]["text"]
    assert caption(chart, tables) == "Nothing measured yet."


def test_one_rank_has_no_imbalance() -> None:
    tables = scheduled_tables([0.1, 0.3], [[[0, 1]]], epochs=1)
    assert not IMBALANCE.shown(tables) and not OWN_WORK.shown(tables) and GROUP_TIMES.shown(tables)


# Balance.


def test_balance_of_an_epoch_by_hand() -> None:
    found = balance_of(scheduled_tables(TIMES, ASSIGNMENT, epochs=1), 0)
    time_s = 0.7 + 2 * (EXCHANGE_S + REST_S)
    assert (found.iterations, found.critical_s, found.own_s) == (2, pytest.approx(0.7), pytest.approx(0.5))
    assert found.imbalance == pytest.approx(1.4)
    assert found.waiting_share == pytest.approx(0.2 / time_s) and found.own_share == pytest.approx(0.5 / time_s)


def test_a_step_that_a_rank_has_not_made_does_not_count() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT)
    add_epoch(tables, ASSIGNMENT, TIMES, most=7)  # rank 1 has made one step, rank 0 both
    assert balance_of(tables, 0).iterations == 1


def test_the_epoch_that_runs_has_no_point_and_no_caption_yet() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=2)
    add_epoch(tables, ASSIGNMENT, TIMES, epoch=2, slow=(1.0, 9.0), most=6)
    assert balance_by_epoch(tables)["epoch_most"].tolist() == [0, 1]
    assert last_balance(tables).epoch == 1


def test_imbalance_has_a_point_for_each_epoch() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=6)
    (curve,) = drawn(IMBALANCE, tables)["data"]
    assert curve["x"] == [1, 3, 5, 7, 9, 11] and curve["customdata"] == [1, 2, 3, 4, 5, 6]
    assert curve["y"] == pytest.approx([1.4] * 6)
    assert caption(IMBALANCE, tables) == "The slowest rank worked 1.40 times the mean in epoch 6."
    (curve,) = drawn(IMBALANCE, tables, x="seconds")["data"]
    assert curve["x"] == sorted(curve["x"]) and curve["x"][0] > 0


@pytest.mark.parametrize("back", [3, 1])
def test_a_resume_replaces_epochs_that_are_made_again(back: int) -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=5)
    for epoch in range(back, 5):
        add_epoch(tables, ASSIGNMENT, TIMES, epoch=epoch, slow=(1.0, 3.0), attempt=2)
    (curve,) = drawn(IMBALANCE, tables)["data"]
    slow = (0.6 + 1.2) / (0.5 * (0.3 + 0.6 + 0.1 + 1.2))
    assert curve["y"] == pytest.approx([1.4] * back + [slow] * (5 - back), abs=1e-4)


def test_shares_of_time_sum_to_all_of_it() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=3)
    figure = drawn(OWN_WORK, tables)
    assert np.sum([trace["y"] for trace in figure["data"]], axis=0) == pytest.approx(np.full(3, 100))
    assert caption(OWN_WORK, tables) == "Ranks spent 71% of epoch 3 on their own groups."


# Group times.


def test_group_times_are_medians_without_the_first_epoch() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT)
    for epoch, factor in enumerate((9.0, 1.0, 1.2, 1.1)):
        add_epoch(tables, ASSIGNMENT, [factor * each for each in TIMES], epoch=epoch)
    times = group_times(tables)
    assert times.seconds == pytest.approx(1.1 * np.array(TIMES), rel=1e-6)
    assert times.best_s == pytest.approx(times.seconds) and times.ranks.tolist() == [0, 0, 1, 0, 1]
    assert caption(GROUP_TIMES, tables) == "Predicted group times are off by 9.1% on average."
    dots = [trace for trace in drawn(GROUP_TIMES, tables)["data"] if trace["mode"] == "markers"]
    assert [trace["name"] for trace in dots] == ["rank 0", "rank 1"]
    assert sorted(group for trace in dots for group in trace["customdata"]) == [0, 1, 2, 3, 4]


def test_of_a_long_run_the_newest_five_epochs_count() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT)
    for epoch, factor in enumerate((9.0, 9.0, 9.0, 9.0, 9.0, 2.0, 2.0, 2.0)):
        add_epoch(tables, ASSIGNMENT, [factor * each for each in TIMES], epoch=epoch)
    assert group_times(tables).seconds == pytest.approx(2 * np.array(TIMES), rel=1e-6)


def test_the_first_epoch_counts_while_there_is_no_other() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=1)
    add_epoch(tables, ASSIGNMENT, [2 * each for each in TIMES], epoch=1, most=3)  # groups 0 and 1
    assert group_times(tables).seconds == pytest.approx([0.2, 0.4, 0.2, 0.1, 0.4])


def test_times_of_other_groups_are_forgotten() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=3)
    add_schedule(tables, schedule_data([1.0, 1.0], [[[0], [1]]]), step=6, epoch=3)
    assert np.isnan(group_times(tables).seconds).all()


def test_sizes_are_made_seconds_by_what_was_measured() -> None:
    data = schedule_data([1e6 * each for each in TIMES], ASSIGNMENT, source="size")
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=1, data=data)
    assert group_times(tables).scale == pytest.approx(1e-6)
    assert caption(GROUP_TIMES, tables) == "Predicted group times are off by 0% on average."


def test_of_many_groups_a_part_is_drawn_over_all_sizes() -> None:
    times = np.linspace(1.0, 2.0, 4_000).tolist()
    tables = scheduled_tables(times, [[list(range(4_000))]], epochs=1)
    dots = next(trace for trace in drawn(GROUP_TIMES, tables)["data"] if trace["mode"] == "markers")
    assert 1_000 <= len(dots["x"]) <= 1_500
    assert min(dots["x"]) == pytest.approx(1.0, abs=0.01) and max(dots["x"]) == pytest.approx(2.0, abs=0.01)


# Other schedulers and other numbers of ranks.


def test_before_it_was_asked_the_run_tells_of_round_robin() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=1, data=schedule_data(TIMES, ASSIGNMENT, psg_makespan_s=0.8))
    (bars,) = drawn(OTHER_SCHEDULERS, tables)["data"]
    assert dict(zip(bars["y"], bars["x"], strict=True)) == {"psg": 800, "fold": pytest.approx(700)}
    assert caption(OTHER_SCHEDULERS, tables) == "psg would take 800 ms, 14% more."


def test_the_answer_has_the_outcomes_of_a_replay_with_measured_times() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=3)
    answers = {COMPARE.name: COMPARE.answer(COMPARE.prepare(tables, []))}
    expected = {each.scheduler: each.makespan_s for each in replay(TIMES, 2, allreduce_s=EXCHANGE_S).outcomes}
    figure = drawn(OTHER_SCHEDULERS, tables, answers=answers)
    (bars,) = figure["data"]
    assert dict(zip(bars["y"], bars["x"], strict=True)) == {
        name: pytest.approx(1e3 * seconds, abs=0.5) for name, seconds in expected.items()
    }
    assert caption(OTHER_SCHEDULERS, tables, answers=answers).endswith("17% less.")
    predicted, measured, _ = drawn(OTHER_RANKS, tables, answers=answers)["data"]
    epochs = predict_epochs(
        TIMES, measured_on=2, ranks=(1, 2, 4), scheduler="fold", allreduce_s=EXCHANGE_S, step_s=REST_S
    )
    assert predicted["x"] == ["1", "2", "4"]
    assert predicted["y"] == pytest.approx([each.predicted_s for each in epochs], rel=1e-3)
    assert measured["y"] == [None, pytest.approx(0.708, rel=1e-3), None]
    assert caption(OTHER_RANKS, tables, answers=answers) == "On 4 ranks an epoch would take about 405 ms."


def test_a_scheduler_that_replays_leave_out_is_asked_all_the_same() -> None:
    data = schedule_data(TIMES, ASSIGNMENT, scheduler="dygnex_auto")
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=2, data=data)
    answers = {COMPARE.name: COMPARE.answer(COMPARE.prepare(tables, []))}
    assert "dygnex_auto" in drawn(OTHER_SCHEDULERS, tables, answers=answers)["data"][0]["y"]


def test_an_answer_about_another_schedule_is_not_drawn() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=2)
    answers = {COMPARE.name: COMPARE.answer(COMPARE.prepare(tables, []))}
    add_schedule(tables, schedule_data(TIMES, ASSIGNMENT, scheduler="longest_first"), step=4, epoch=2)
    assert not drawn(OTHER_RANKS, tables, answers=answers)["data"]


def test_epochs_of_runs_on_other_ranks_are_compared_with() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=2)
    alone = [[[0, 1]], [[2, 3]], [[4]]]
    one, longer, other = (
        scheduled_tables(TIMES, alone, epochs=2),
        scheduled_tables(TIMES, alone, epochs=2, config={"hidden": 48}),
        scheduled_tables(TIMES, alone, epochs=2, data=schedule_data(TIMES, alone, scheduler="longest_first")),
    )
    assert prepare(tables, [one, longer, other]).epochs_s == {1: pytest.approx(1.012), 2: pytest.approx(0.708)}
    assert set(prepare(tables, [longer, other]).epochs_s) == {2}


def test_an_epoch_counts_only_where_all_of_it_was_computed_as_scheduled() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT)
    assert measurements(tables) is None
    with pytest.raises(NotAvailableError, match=TOO_EARLY):
        prepare(tables)
    add_epoch(tables, ASSIGNMENT, TIMES, most=6)
    assert measurements(tables).epoch_s is None
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=1)
    known = measurements(tables)
    assert (known.epoch_s, known.exchange_s, known.step_s) == pytest.approx((0.708, EXCHANGE_S, REST_S), abs=1e-6)
    add_schedule(tables, schedule_data(TIMES, ASSIGNMENT, scheduler="longest_first"), step=2, epoch=1)
    assert measurements(tables).epoch_s is None, "the last epoch is of the schedule before"


def test_one_rank_has_no_exchange() -> None:
    tables = scheduled_tables([0.1, 0.3], [[[0, 1]]], epochs=1)
    assert measurements(tables).exchange_s == 0
