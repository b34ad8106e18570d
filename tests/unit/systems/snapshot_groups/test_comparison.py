"""Other schedulers and other numbers of ranks for the groups of a run, from small tables."""

from __future__ import annotations

import pytest

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.snapshot_groups.comparison import (
    COMPARE,
    OTHER_RANKS,
    OTHER_SCHEDULERS,
    TOO_EARLY,
    measurements,
    predict_epochs,
    prepare,
)
from dtdg_lab.systems.snapshot_groups.schedulers.simulation import replay
from dtdg_lab.visualization.chart import NOTHING_YET, ChartOptions
from tests.drawing import draw
from tests.schedule_records import EXCHANGE_S, REST_S, add_epoch, add_schedule, schedule_data, scheduled_tables

TIMES = [0.1, 0.2, 0.2, 0.1, 0.4]
ASSIGNMENT = [[[0, 1], [2]], [[3], [4]]]


def answered(tables: RunTables) -> ChartOptions:
    return ChartOptions(answers={COMPARE.name: COMPARE.answer(COMPARE.prepare(tables, []))})


def test_chart_of_ranks_is_empty_before_a_comparison() -> None:
    figure, caption = draw(OTHER_RANKS, scheduled_tables(TIMES, ASSIGNMENT))
    assert not figure["data"] and caption == NOTHING_YET


def test_before_a_comparison_the_chart_has_round_robin_and_the_scheduler_in_use() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=1, data=schedule_data(TIMES, ASSIGNMENT, psg_makespan_s=0.8))
    figure, caption = draw(OTHER_SCHEDULERS, tables)
    (bars,) = figure["data"]
    assert dict(zip(bars["y"], bars["x"], strict=True)) == {"psg": 800, "fold": pytest.approx(700)}
    assert caption == "psg would take 800 ms, 14% more."


def test_the_answer_has_the_outcomes_of_a_replay_with_measured_times() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=3)
    options = answered(tables)
    expected = {outcome.scheduler: outcome.makespan_s for outcome in replay(TIMES, 2, allreduce_s=EXCHANGE_S).outcomes}
    figure, caption = draw(OTHER_SCHEDULERS, tables, options)
    (bars,) = figure["data"]
    assert dict(zip(bars["y"], bars["x"], strict=True)) == {
        name: pytest.approx(1e3 * seconds, abs=0.5) for name, seconds in expected.items()
    }
    assert caption.endswith("17% less.")
    figure, caption = draw(OTHER_RANKS, tables, options)
    predicted, measured, _ = figure["data"]
    epochs = predict_epochs(
        TIMES, measured_on=2, ranks=(1, 2, 4), scheduler="fold", allreduce_s=EXCHANGE_S, step_s=REST_S
    )
    assert predicted["x"] == ["1", "2", "4"]
    assert predicted["y"] == pytest.approx([epoch.predicted_s for epoch in epochs], rel=1e-3)
    assert measured["y"] == [None, pytest.approx(0.708, rel=1e-3), None]
    assert caption == "On 4 ranks an epoch would take about 405 ms."


def test_a_scheduler_that_replays_leave_out_is_compared_where_it_is_in_use() -> None:
    data = schedule_data(TIMES, ASSIGNMENT, scheduler="dygnex_auto")
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=2, data=data)
    options = answered(tables)
    assert "dygnex_auto" in draw(OTHER_SCHEDULERS, tables, options)[0]["data"][0]["y"]


def test_an_answer_about_another_schedule_is_not_drawn() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=2)
    options = answered(tables)
    add_schedule(tables, schedule_data(TIMES, ASSIGNMENT, scheduler="longest_first"), step=4, epoch=2)
    assert not draw(OTHER_RANKS, tables, options)[0]["data"]


def test_epochs_of_runs_on_other_ranks_are_compared() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=2)
    alone = [[[0, 1]], [[2, 3]], [[4]]]
    one_rank, other_settings, other_scheduler = (
        scheduled_tables(TIMES, alone, epochs=2),
        scheduled_tables(TIMES, alone, epochs=2, config={"hidden": 48}),
        scheduled_tables(TIMES, alone, epochs=2, data=schedule_data(TIMES, alone, scheduler="longest_first")),
    )
    assert prepare(tables, [one_rank, other_settings, other_scheduler]).epochs_s == {
        1: pytest.approx(1.012),
        2: pytest.approx(0.708),
    }
    assert set(prepare(tables, [other_settings, other_scheduler]).epochs_s) == {2}


def test_an_epoch_counts_only_where_all_of_it_was_computed_as_scheduled() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT)
    assert measurements(tables) is None
    with pytest.raises(NotAvailableError, match=TOO_EARLY):
        prepare(tables)
    add_epoch(tables, ASSIGNMENT, TIMES, most=6)
    assert measurements(tables).epoch_s is None
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=1)
    run = measurements(tables)
    assert (run.epoch_s, run.exchange_s, run.step_s) == pytest.approx((0.708, EXCHANGE_S, REST_S), abs=1e-6)
    add_schedule(tables, schedule_data(TIMES, ASSIGNMENT, scheduler="longest_first"), step=2, epoch=1)
    assert measurements(tables).epoch_s is None, "the last epoch is of the schedule before"


def test_one_rank_has_no_exchange() -> None:
    tables = scheduled_tables([0.1, 0.3], [[[0, 1]]], epochs=1)
    assert measurements(tables).exchange_s == 0
