"""Charts of imbalance, group times and where the ranks' time goes, from small tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.snapshot_groups.balance import balance_by_epoch, balance_of, last_balance
from dtdg_lab.systems.snapshot_groups.charts import GROUP_TIMES, IMBALANCE, OWN_WORK
from dtdg_lab.systems.snapshot_groups.group_times import group_times
from dtdg_lab.visualization.chart import NOTHING_YET, Chart, ChartOptions
from tests.drawing import draw
from tests.schedule_records import (
    EXCHANGE_S,
    REST_S,
    add_epoch,
    add_schedule,
    epoch_rows,
    schedule_data,
    scheduled_tables,
)
from tests.tables import record_lines

TIMES = [0.1, 0.2, 0.2, 0.1, 0.4]
ASSIGNMENT = [[[0, 1], [2]], [[3], [4]]]


def draw_with(chart: Chart, tables: RunTables, **options: Any) -> tuple[dict[str, Any], str]:
    return draw(chart, tables, ChartOptions(**options))


@pytest.mark.parametrize("chart", [IMBALANCE, GROUP_TIMES, OWN_WORK])
def test_charts_are_empty_before_the_first_epoch(chart: Chart) -> None:
    figure, caption = draw(chart, scheduled_tables(TIMES, ASSIGNMENT))
    assert not figure["data"] and "Appears" in figure["layout"]["annotations"][0]["text"]
    assert caption == NOTHING_YET


def test_one_rank_has_no_imbalance() -> None:
    tables = scheduled_tables([0.1, 0.3], [[[0, 1]]], epochs=1)
    assert not IMBALANCE.applies(tables) and not OWN_WORK.applies(tables) and GROUP_TIMES.applies(tables)


# Balance.


def test_balance_of_an_epoch_by_hand() -> None:
    balance = balance_of(scheduled_tables(TIMES, ASSIGNMENT, epochs=1), 0)
    time_s = 0.7 + 2 * (EXCHANGE_S + REST_S)
    assert (balance.iterations, balance.critical_s, balance.own_s) == (2, pytest.approx(0.7), pytest.approx(0.5))
    assert balance.imbalance == pytest.approx(1.4)
    assert balance.waiting_share == pytest.approx(0.2 / time_s) and balance.own_share == pytest.approx(0.5 / time_s)


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
    figure, caption = draw(IMBALANCE, tables)
    (curve,) = figure["data"]
    assert curve["x"] == [1, 3, 5, 7, 9, 11] and curve["customdata"] == [1, 2, 3, 4, 5, 6]
    assert curve["y"] == pytest.approx([1.4] * 6)
    assert caption == "The slowest rank worked 1.40 times the mean in epoch 6."
    (curve,) = draw_with(IMBALANCE, tables, x="seconds")[0]["data"]
    assert curve["x"] == sorted(curve["x"]) and curve["x"][0] > 0


def test_imbalance_is_the_same_however_its_records_are_read() -> None:
    times, assignment = [*TIMES, 0.3, 0.7, 0.1], [[[0], [1]], [[2], [3]], [[4], [5]], [[6], [7]]]
    followed, read_at_once = (scheduled_tables(times, assignment) for _ in range(2))
    rows = [
        new
        for epoch in range(12)
        for new in epoch_rows(assignment, [time / (3 + epoch) for time in times], epoch=epoch, slow=(1.0, 1.7))
    ]
    for number, (table, new) in enumerate(rows):
        for tables in (followed, read_at_once):
            tables.add_lines(record_lines(table, new))
        if number % 13 == 0:
            draw(IMBALANCE, followed)  # sums what has been read
    assert draw(IMBALANCE, followed) == draw(IMBALANCE, read_at_once)


@pytest.mark.parametrize("back", [3, 1])
def test_a_resume_replaces_epochs_that_are_made_again(back: int) -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=5)
    for epoch in range(back, 5):
        add_epoch(tables, ASSIGNMENT, TIMES, epoch=epoch, slow=(1.0, 3.0), attempt=2)
    (curve,) = draw(IMBALANCE, tables)[0]["data"]
    slow = (0.6 + 1.2) / (0.5 * (0.3 + 0.6 + 0.1 + 1.2))
    assert curve["y"] == pytest.approx([1.4] * back + [slow] * (5 - back), abs=1e-4)


def test_shares_of_time_sum_to_all_of_it() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=3)
    figure, caption = draw(OWN_WORK, tables)
    assert np.sum([trace["y"] for trace in figure["data"]], axis=0) == pytest.approx(np.full(3, 100))
    assert caption == "Ranks spent 71% of epoch 3 on their own groups."


# Group times.


def test_group_times_are_medians_without_the_first_epoch() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT)
    for epoch, factor in enumerate((9.0, 1.0, 1.2, 1.1)):
        add_epoch(tables, ASSIGNMENT, [factor * time for time in TIMES], epoch=epoch)
    times = group_times(tables)
    assert times.seconds == pytest.approx(1.1 * np.array(TIMES), rel=1e-6)
    assert times.best_s == pytest.approx(times.seconds) and times.ranks.tolist() == [0, 0, 1, 0, 1]
    figure, caption = draw(GROUP_TIMES, tables)
    assert caption == "Predicted group times are off by 9.1% on average."
    dots = [trace for trace in figure["data"] if trace["mode"] == "markers"]
    assert [trace["name"] for trace in dots] == ["rank 0", "rank 1"]
    assert sorted(group for trace in dots for group in trace["customdata"]) == [0, 1, 2, 3, 4]


def test_of_a_long_run_the_newest_five_epochs_count() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT)
    for epoch, factor in enumerate((9.0, 9.0, 9.0, 9.0, 9.0, 2.0, 2.0, 2.0)):
        add_epoch(tables, ASSIGNMENT, [factor * time for time in TIMES], epoch=epoch)
    assert group_times(tables).seconds == pytest.approx(2 * np.array(TIMES), rel=1e-6)


def test_the_first_epoch_counts_while_there_is_no_other() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=1)
    add_epoch(tables, ASSIGNMENT, [2 * time for time in TIMES], epoch=1, most=3)  # groups 0 and 1
    assert group_times(tables).seconds == pytest.approx([0.2, 0.4, 0.2, 0.1, 0.4])


def test_times_of_other_groups_are_forgotten() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=3)
    add_schedule(tables, schedule_data([1.0, 1.0], [[[0], [1]]]), step=6, epoch=3)
    assert np.isnan(group_times(tables).seconds).all()


def test_sizes_are_made_seconds_by_what_was_measured() -> None:
    data = schedule_data([1e6 * time for time in TIMES], ASSIGNMENT, source="size")
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=1, data=data)
    assert group_times(tables).scale == pytest.approx(1e-6)
    assert draw(GROUP_TIMES, tables)[1] == "Predicted group times are off by 0% on average."


def test_of_many_groups_a_part_is_drawn_over_all_sizes() -> None:
    times = np.linspace(1.0, 2.0, 4_000).tolist()
    tables = scheduled_tables(times, [[list(range(4_000))]], epochs=1)
    dots = next(trace for trace in draw(GROUP_TIMES, tables)[0]["data"] if trace["mode"] == "markers")
    assert 1_000 <= len(dots["x"]) <= 1_500
    assert min(dots["x"]) == pytest.approx(1.0, abs=0.01) and max(dots["x"]) == pytest.approx(2.0, abs=0.01)
