"""Charts of decayed windows over steps, and of predicted task times: small tables in, figures and captions out."""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go
import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.runs.charts import charts_of
from dtdg_lab.systems.decayed_windows.step_charts import (
    CUTTING,
    EXACT,
    PHASES_BY_STEP,
    ROWS,
    SAMPLING,
    TASK_TIMES,
    window_means,
)
from dtdg_lab.visualization.chart import Chart, ChartOptions
from tests.tables import run_tables
from tests.window_tables import CHUNKS, NODES, PER_CHUNK, planned_windows, window_tables


def draw(chart: Chart, tables: Any) -> tuple[dict[str, dict[str, Any]], dict[str, Any], str]:
    """Return the traces by name, the layout, and the caption; the figure is one that plotly can draw."""
    figure = chart.figure(tables, ChartOptions())
    go.Figure(figure)
    json.dumps(figure, allow_nan=False)
    return {trace["name"]: trace for trace in figure["data"]}, figure["layout"], chart.caption(tables, ChartOptions())


def rows_of(step: int) -> int:
    window = planned_windows(RunConfig(system="flaredtdg"))[step]
    return PER_CHUNK * (sum(window.counts) + CHUNKS * window.full)


def test_rows_are_drawn_beside_those_of_full_windows() -> None:
    traces, layout, caption = draw(ROWS, window_tables(steps=range(20)))
    assert traces["in the window"]["y"] == [rows_of(step) for step in range(20)]
    lengths = [len(window.snapshots) for window in planned_windows(RunConfig(system="flaredtdg"))]
    assert traces["if all were full"]["y"] == [NODES * length for length in lengths]
    share = sum(map(rows_of, range(20))) / (NODES * sum(lengths))
    assert caption == f"Windows held {share:.0%} of their rows over the last 20 steps."
    assert layout["meta"]["card"]["unit"] == "node rows, all ranks"


def test_rows_of_a_long_run_are_means_and_then_exact() -> None:
    tables = window_tables({"window": 2, "full_snapshots": 1, "ranks": 1}, range(3_000))
    means = window_means(tables)
    assert len(means.steps) < 1_000 and (means.steps[-EXACT:] == range(3_000 - EXACT, 3_000)).all()
    assert (means.steps[1:] > means.steps[:-1]).all() and means.rows[0] == pytest.approx(
        means.rows[-20:].mean(), rel=0.4
    )
    traces, _, _ = draw(ROWS, tables)
    assert len(traces["in the window"]["x"]) == len(means.steps)


def test_changes_are_marked_in_the_rows() -> None:
    changes = [
        {"kind": "settings", "rank": rank, "step": 5, "data": {"version": 1, "changes": {"alpha": 0.5}, "when": "step"}}
        for rank in (0, 1)
    ]
    _, layout, _ = draw(ROWS, window_tables(steps=range(20), more_events=changes))
    assert [shape["x0"] for shape in layout["shapes"]] == [5]


def test_rows_of_sampled_windows_have_no_full_ones_to_be_compared_with() -> None:
    traces, _, caption = draw(ROWS, window_tables({"system": "dynagraph"}, range(3)))
    assert list(traces) == ["in the window"]
    assert caption == "Windows held 800 rows per step over the last 3 steps."


def test_phases_are_bars_of_the_newest_steps() -> None:
    traces, layout, caption = draw(PHASES_BY_STEP, window_tables(steps=range(60)))
    assert traces["compute"]["x"] == list(range(20, 60)) and traces["compute"]["y"] == pytest.approx([6.0] * 40)
    assert sum(len(trace["x"]) for trace in traces.values()) <= 300
    assert [key[0] for key in layout["meta"]["card"]["keys"]] == ["prepare batch", "compute", "wait", "communicate"]
    assert caption == "A step took 10.0 ms, 60% of it computing."


def test_cutting_windows_out_takes_a_share_of_a_step() -> None:
    traces, _, caption = draw(CUTTING, window_tables(steps=range(20)))
    assert traces["Cutting time"]["y"] == pytest.approx([0.5] * 20)
    assert caption == "Cutting out decayed snapshots takes 5% of a step."
    _, layout, caption = draw(SAMPLING, window_tables({"system": "dynagraph"}, range(20)))
    assert caption == "Assigning parts and sampling neighbours takes 10% of a step."
    assert layout["meta"]["card"]["title"] == "Sampling time"


def tasks(count: int) -> list[dict[str, Any]]:
    """Tasks that took 1.5 times, or half of what was predicted."""
    return [
        {
            "rank": rank,
            "step": step,
            "layer": 0,
            "snapshot": 3,
            "kind": kind,
            "predicted_s": 0.01,
            "duration_s": duration_s,
        }
        for rank in (0, 1)
        for step in range(count)
        for kind, duration_s in (("compute", 0.015), ("communicate", 0.005))
    ]


def test_predicted_times_of_tasks_stand_against_measured_ones() -> None:
    tables = window_tables(steps=range(10), tables={"tasks": tasks(10)})
    traces, _, caption = draw(TASK_TIMES, tables)
    assert traces["computing"]["x"] == [10.0] * 20 and traces["computing"]["y"] == [15.0] * 20
    assert traces["exchanges"]["y"] == [5.0] * 20
    assert caption == "Half of the predictions are off by at most 67%."


def test_many_tasks_are_drawn_in_part() -> None:
    tables = window_tables(steps=range(40), tables={"tasks": [*tasks(40)] * 20})
    traces, _, _ = draw(TASK_TIMES, tables)
    assert sum(len(trace["x"]) for trace in traces.values()) <= 1_502


def test_charts_without_data_say_when_they_fill() -> None:
    tables = window_tables()
    for chart in (ROWS, PHASES_BY_STEP, CUTTING, TASK_TIMES):
        _, layout, caption = draw(chart, tables)
        assert layout["annotations"][-1]["text"].startswith("Appears with the first")
        assert caption == "Nothing measured yet."


@pytest.mark.parametrize(
    ("system", "names"),
    [
        ("flaredtdg", ["window_rows", "communication"]),
        ("full-history", ["window_rows", "communication"]),
        ("dynagraph", ["window_rows", "sampling_time"]),
    ],
)
def test_every_system_has_one_picture_and_two_supporting_charts(system: str, names: list[str]) -> None:
    charts = charts_of(run_tables({"system": system}))
    assert [chart.name for chart in charts if chart.section == "supporting"] == names
    assert [chart.name for chart in charts if chart.section == "picture"] == ["window"]
