"""The schedule of an epoch: what is drawn is what ranks recorded, and the caption has the numbers of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.snapshot_groups.gantt import LONG_EPOCH_S
from dtdg_lab.systems.snapshot_groups.schedule_chart import MOST_BLOCKS, SCHEDULE
from dtdg_lab.systems.snapshot_groups.schedulers.base import lower_bound_s
from dtdg_lab.visualization.chart import title_of
from tests.drawing import draw
from tests.schedule_records import EXCHANGE_S, REST_S, add_epoch, add_schedule, schedule_data, scheduled_tables
from tests.tables import run_tables

# two ranks, two iterations: 0.3 against 0.2 s, then 0.1 against 0.4 s
TIMES = [0.1, 0.2, 0.2, 0.1, 0.4]
ASSIGNMENT = [[[0, 1], [2]], [[3], [4]]]


def draw_schedule(tables: RunTables) -> dict[str, Any]:
    return draw(SCHEDULE, tables)[0]


def traces(figure: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {trace["name"]: trace for trace in figure["data"]}


def ends(figure: dict[str, Any]) -> list[str]:
    return [note["text"] for note in figure["layout"]["annotations"]]


def test_only_systems_that_schedule_groups_have_the_picture() -> None:
    assert SCHEDULE.applies(run_tables({"system": "blad"}))
    assert not SCHEDULE.applies(run_tables({"system": "adgnn-t"}))


def test_before_the_first_schedule_the_picture_says_when_it_appears() -> None:
    tables = run_tables({"system": "psg"})
    assert ends(draw_schedule(tables)) == ["Appears with the first step"]
    assert draw(SCHEDULE, tables)[1] == "Nothing measured yet."


def test_before_the_first_epoch_the_planned_schedule_is_pale() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT)
    figure = draw_schedule(tables)
    assert title_of(figure) == "Schedule that epoch 1 will follow"
    assert all(trace["opacity"] < 1 for trace in figure["data"])
    assert sum(traces(figure)["waiting"]["x"]) == pytest.approx(400)
    assert draw(SCHEDULE, tables)[1] == "By this schedule, an epoch of 5 groups in 2 iterations takes 700 ms."


def test_a_schedule_by_sizes_is_planned_in_percent_of_the_epoch() -> None:
    data = schedule_data([1e6 * time for time in TIMES], ASSIGNMENT, source="size")
    tables = scheduled_tables(TIMES, ASSIGNMENT, data=data)
    axis = draw_schedule(tables)["layout"]["xaxis"]
    assert axis["title"]["text"].startswith("% of the epoch") and axis["range"][1] == pytest.approx(102)
    assert "sizes, not times" in draw(SCHEDULE, tables)[1]


def test_every_group_is_drawn_where_and_when_it_was_computed() -> None:
    figure = draw_schedule(scheduled_tables(TIMES, ASSIGNMENT, epochs=1))
    found_traces = traces(figure)
    blocks = {
        about[0]: (rank, begin, length)
        for name in ("group", "group that the others wait for")
        for about, rank, begin, length in zip(
            *(found_traces[name][key] for key in ("customdata", "y", "base", "x")), strict=True
        )
    }
    second = 300 + 1e3 * (EXCHANGE_S + REST_S)
    expected = {0: (0, 0, 100), 1: (0, 100, 200), 2: (1, 0, 200), 3: (0, second, 100), 4: (1, second, 400)}
    assert blocks == {group: pytest.approx(block, abs=0.2) for group, block in expected.items()}
    paced = found_traces["group that the others wait for"]
    assert sorted(about[0] for about in paced["customdata"]) == [0, 1, 4]  # rank 0 first, then rank 1
    waits = found_traces["waiting"]
    assert sorted(zip(waits["y"], waits["x"], strict=True)) == [
        (0, pytest.approx(300, abs=0.1)),
        (1, pytest.approx(100, abs=0.1)),
    ]
    assert waits["marker"]["pattern"]["shape"]
    assert title_of(figure) == "Schedule of epoch 1"


BOUND, PREDICTED = "lower bound with the times of this epoch", "predicted, without exchanges"


def test_bound_and_predicted_end_are_of_the_times_in_the_epoch_that_is_draw_schedule() -> None:
    data = schedule_data([time / 2 for time in TIMES], ASSIGNMENT)  # the scheduler was told half the times
    figure = draw_schedule(scheduled_tables(TIMES, ASSIGNMENT, epochs=1, data=data))
    assert ends(figure) == [f"{BOUND}: 500 ms", f"{PREDICTED}: 700 ms"]
    assert [shape["x0"] for shape in figure["layout"]["shapes"]] == pytest.approx([1e3 * lower_bound_s(TIMES, 2), 700])


def test_groups_that_overlap_have_no_bound() -> None:
    figure = draw_schedule(scheduled_tables(TIMES, ASSIGNMENT, epochs=1, config={"system": "blad"}))
    assert ends(figure) == [f"{PREDICTED}: 700 ms"]


def test_the_caption_has_the_waiting_and_the_time_of_the_epoch() -> None:
    assert draw(SCHEDULE, scheduled_tables(TIMES, ASSIGNMENT, epochs=2))[1] == (
        "Ranks waited for 28% of their time in epoch 2, which took 704 ms."
    )


def test_one_rank_waits_for_nobody() -> None:
    tables = scheduled_tables([0.1, 0.3], [[[0, 1]]], epochs=1)
    figure = draw_schedule(tables)
    assert [key[0] for key in figure["layout"]["meta"]["card"]["keys"]] == ["group"]
    assert set(traces(figure)) == {"group"} and ends(figure) == [f"{PREDICTED}: 400 ms"]
    assert draw(SCHEDULE, tables)[1] == "The only rank computed 2 groups in 400 ms."


@pytest.mark.parametrize(("factor", "epoch"), [(1.0, 1), (2 * LONG_EPOCH_S, 2)])
def test_a_short_epoch_is_shown_when_it_is_over_and_a_long_one_while_it_runs(factor: float, epoch: int) -> None:
    times = [factor * time for time in TIMES]
    tables = scheduled_tables(times, ASSIGNMENT, epochs=1)
    add_epoch(tables, ASSIGNMENT, times, epoch=1, most=3)
    assert title_of(draw_schedule(tables)) == f"Schedule of epoch {epoch}"
    assert draw(SCHEDULE, tables)[1].endswith("so far." if epoch == 2 else f"took {700 * factor + 4:.0f} ms.")


def test_the_epoch_of_the_schedule_before_fades_until_the_new_one_has_an_epoch() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=2)
    other = [[[4], [0, 1]], [[2], [3]]]
    add_schedule(tables, schedule_data(TIMES, other, scheduler="dygnex_greedy"), step=4, epoch=2)
    figure = draw_schedule(tables)
    assert title_of(figure) == "Schedule of epoch 2" and all(trace["opacity"] < 1 for trace in figure["data"])
    assert ends(figure) == [f"{BOUND}: 500 ms"]
    add_epoch(tables, other, TIMES, epoch=2)
    figure = draw_schedule(tables)
    assert title_of(figure) == "Schedule of epoch 3" and not any("opacity" in trace for trace in figure["data"])


def test_of_many_ranks_the_newest_iterations_are_drawn_in_thin_rows_without_numbers() -> None:
    ranks, iterations = 64, 12
    times = np.linspace(0.01, 0.02, ranks * iterations).tolist()
    assignment = [[[ranks * i + rank] for rank in range(ranks)] for i in range(iterations)]
    figure = draw_schedule(scheduled_tables(times, assignment, epochs=1))
    assert sum(len(trace["x"]) for trace in figure["data"]) <= MOST_BLOCKS
    assert title_of(figure) == "Schedule of epoch 1, last 4 iterations" and ends(figure) == []
    assert not any(any(trace.get("text", ())) for trace in figure["data"])
    assert figure["layout"]["height"] == 390 and "pattern" not in traces(figure)["waiting"]["marker"]


def test_a_run_that_leaves_snapshot_groups_has_no_schedule_any_more() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=2)
    add_schedule(tables, {"layout": None}, step=4, epoch=2)
    assert all(trace["opacity"] < 1 for trace in draw_schedule(tables)["data"])


def test_a_resume_replaces_what_came_after_it() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=3)
    add_epoch(tables, ASSIGNMENT, TIMES, epoch=2, slow=(1.0, 3.0), attempt=2)
    figure = draw_schedule(tables)
    assert title_of(figure) == "Schedule of epoch 3"
    assert sum(len(trace["x"]) for trace in figure["data"] if "group" in trace["name"]) == 5
    assert draw(SCHEDULE, tables)[1] == "Ranks waited for 39% of their time in epoch 3, which took 1.80 s."
