"""Folded charts and effects of ESDG: small tables in, figures, captions and numbers out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from dtdg_lab.records.events import SettingsChanged
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.snapshot_blocks import FAMILY
from dtdg_lab.systems.snapshot_blocks.charts import esdg_charts
from dtdg_lab.systems.snapshot_blocks.periods import plan_periods
from dtdg_lab.visualization.chart import NOTHING_YET
from dtdg_lab.visualization.runs.overview import common_charts
from tests.drawing import draw
from tests.plan_events import blocks_data, memory_data, plan
from tests.tables import run_tables

CHARTS = {chart.name: chart for chart in esdg_charts()}
ROLLUPS = [rollup for chart in (*common_charts(), *CHARTS.values()) for rollup in chart.rollups]


def event(data: dict[str, Any], step: int = 0, kind: str = "blocks") -> dict[str, Any]:
    return {"kind": kind, "step": step, "data": data}


def steps(numbers: Iterable[int], *, ranks: int = 2, time_s: float = 0.1) -> list[dict[str, Any]]:
    return [{"rank": rank, "step": step, "time_s": time_s} for step in numbers for rank in range(ranks)]


def exchanges(numbers: Iterable[int], exposed_s: float) -> list[dict[str, Any]]:
    return [
        {"rank": rank, "step": step, "collective": name, "in_flight_s": 0.004, "exposed_s": exposed_s}
        for step in numbers
        for rank in (0, 1)
        for name in ("to_vertices", "to_snapshots")
    ]


def transfers(numbers: Iterable[int], count: int, whole: int = 3 * 2**20) -> list[dict[str, Any]]:
    return [
        {"rank": rank, "step": step, "snapshots": 7, "bytes": count, "whole_bytes": whole}
        for step in numbers
        for rank in (0, 1)
    ]


def run_of(tables: dict[str, Any], **more: Any) -> RunTables:
    return run_tables({"system": "esdg"}, tables, rollups=ROLLUPS, **more)


def traces(name: str, run: RunTables) -> dict[str, Any]:
    return {trace["name"]: trace for trace in draw(CHARTS[name], run)[0]["data"]}


def empty_text(name: str, run: RunTables) -> str:
    return draw(CHARTS[name], run)[0]["layout"]["annotations"][-1]["text"]


def test_graphs_are_the_bytes_of_both_ranks_beside_whole_ones() -> None:
    run = run_of({"steps": steps(range(4)), "transfers": transfers(range(4), 2**20)})
    lines = traces("graphs_transferred", run)
    assert lines["transferred"]["y"] == [2.0] * 4 and lines["each in full"]["y"] == [6.0] * 4
    assert draw(CHARTS["graphs_transferred"], run)[1] == "A step moved 2.00 MiB, 67% less than whole graphs."
    whole = run_of({"steps": steps(range(4)), "transfers": transfers(range(4), 3 * 2**20)})
    assert draw(CHARTS["graphs_transferred"], whole)[1] == "A step moved 6.00 MiB, each graph in full."


def test_steps_that_moved_no_graph_are_a_gap() -> None:
    run = run_of({"steps": steps(range(9)), "transfers": transfers([0, 1, 6, 7], 2**20)})
    assert traces("graphs_transferred", run)["transferred"]["y"] == [2.0, 2.0, None, 2.0, 2.0]
    caption = draw(CHARTS["graphs_transferred"], run)[1]
    assert caption == "Graphs stay on the device: no step has moved any since step 7."


def test_a_long_run_has_few_points_that_are_means_of_a_step() -> None:
    run = run_of({"steps": steps(range(3000)), "transfers": transfers(range(3000), 2**20)})
    values = traces("graphs_transferred", run)["transferred"]["y"]
    assert 150 <= len(values) <= 300 and values == pytest.approx([2.0] * len(values))


def test_hidden_communication_is_a_share_of_the_time_in_flight() -> None:
    rows = [*exchanges(range(10), 0.001), *exchanges(range(10, 15), 0.004)]
    run = run_of({"steps": steps(range(15)), "exchanges": rows})
    lines = traces("hidden_communication", run)
    assert list(lines) == ["to snapshots", "to nodes", "all"]
    assert lines["all"]["y"] == [75.0] * 10 + [0.0] * 5
    assert draw(CHARTS["hidden_communication"], run)[1] == ("50% of row exchange was hidden over the last 15 steps.")


def test_changes_are_marked_where_they_were_applied() -> None:
    change = {"version": 1, "changes": {"overlap": "off"}, "when": "epoch"}
    events = [{"kind": SettingsChanged.kind, "rank": rank, "step": 5, "data": change} for rank in (0, 1)]
    run = run_of({"steps": steps(range(9)), "exchanges": exchanges(range(9), 0.0)}, events=events)
    figure = draw(CHARTS["hidden_communication"], run)[0]
    assert [shape["x0"] for shape in figure["layout"]["shapes"]] == [5.0]


def test_peaks_and_times_belong_to_the_blocks_that_the_run_had_then() -> None:
    events = [
        event(blocks_data(plan(blocks=4))),
        event(memory_data(4), 1, "memory_trace"),
        event(blocks_data(plan(blocks=1)), 10),
        event(memory_data(1), 11, "memory_trace"),
        event(blocks_data(plan(blocks=2)), 20),
    ]
    rows = [*steps(range(10)), *steps(range(10, 20), time_s=0.05), *steps(range(20, 22), time_s=0.2)]
    run = run_of({"steps": rows}, events=events)
    assert [(period.blocks, period.first, period.end) for period in plan_periods(run)] == [
        (4, 0, 10),
        (1, 10, 20),
        (2, 20, np.inf),
    ]
    lines = traces("block_memory", run)
    assert lines["peak"]["x"] == ["1", "4"], "2 blocks were not probed yet"
    assert lines["time"]["y"] == pytest.approx([50.0, 100.0])
    assert draw(CHARTS["block_memory"], run)[1] == NOTHING_YET
    numbers, peaks = FAMILY.effect("esdg").values(run)
    assert peaks[numbers == 3] == max(memory_data(4)["bytes"]) and np.isnan(peaks[numbers == 21]).all()
    probed = run_of({"steps": rows}, events=[*events, event(memory_data(2), 21, "memory_trace")])
    assert draw(CHARTS["block_memory"], probed)[1] == "2 blocks need 1.12 KiB and 200 ms per step."


def test_a_plan_that_is_recorded_again_begins_no_period() -> None:
    events = [
        event(blocks_data(plan())),
        event(memory_data(3), 1, "memory_trace"),
        event(blocks_data(plan(), note="x"), 5),
    ]
    (period,) = plan_periods(run_of({}, events=[*events, event({"layout": None}, 9)]))
    assert (period.first, period.end, period.peak_bytes) == (0, 9, 1250)


def test_without_rows_each_chart_says_when_it_will_fill() -> None:
    new, one_rank = run_of({}), run_tables({"system": "esdg", "ranks": 1}, rollups=ROLLUPS)
    resident = run_of({"steps": steps(range(3))})
    assert empty_text("graphs_transferred", new) == "Appears with the first step"
    assert empty_text("graphs_transferred", resident) == "Graphs stay on the device"
    assert empty_text("hidden_communication", one_rank) == "With one rank, nothing is sent"
    assert empty_text("block_memory", new) == "Measured after the first step"
    assert all(draw(chart, new)[1] == NOTHING_YET for chart in CHARTS.values())
