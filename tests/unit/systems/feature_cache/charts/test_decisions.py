"""Charts of decisions and of action values."""

from __future__ import annotations

from typing import Any

import pytest

from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.feature_cache.actions import WINDOWS
from dtdg_lab.systems.feature_cache.charts.decisions import ACTION_VALUES, DECISIONS
from dtdg_lab.systems.feature_cache.charts.traffic import BYTES_MOVED, LINKS, ROWS_BY_OWNER
from dtdg_lab.visualization.chart import ChartOptions
from tests.feature_tables import decision, feature_tables, features

FOLDED = (LINKS, ROWS_BY_OWNER, BYTES_MOVED, DECISIONS, ACTION_VALUES)
BY_NAME = {chart.name: chart for chart in FOLDED}


def drawn(name: str, tables: RunTables) -> tuple[dict[str, Any], str]:
    chart = BY_NAME[name]
    return chart.figure(tables, ChartOptions()), chart.caption(tables, ChartOptions())


def test_decisions_are_points_in_the_colour_of_the_owner_they_prefer() -> None:
    rows = [decision(0, 0, 16), decision(8, 1, 16, biased=2), decision(8, 2, 32, greedy=False)]
    figure, caption = drawn("cache_decisions", feature_tables(10, {"cache_decisions": rows}, [features()]))
    assert [trace["name"] for trace in figure["data"]] == ["even", "most for part 2"]
    assert figure["data"][0]["marker"]["symbol"] == ["circle", "x-thin-open"]
    assert figure["data"][0]["y"] == pytest.approx([4 - 0.135, 5 + 0.045])
    assert caption == "67% of decisions kept W at 16."


def test_of_many_parts_the_newest_decisions_of_each_are_drawn() -> None:
    rows = [decision(step, part, 16) for step in range(30) for part in range(64)]
    tables = feature_tables(0, {"steps": [{"step": 29}], "cache_decisions": rows}, [features(parts=64)], parts=64)
    (trace,) = drawn("cache_decisions", tables)[0]["data"]
    assert len(trace["x"]) == 23 * 64 <= 1_500 and max(trace["x"]) == 29


def test_values_are_a_map_of_windows_and_allocations_with_the_choice_framed() -> None:
    values = [-85.0] * 32
    values[8 + 3] = -84.25
    rows = [decision(4, 2, 8, values=values, action=11), decision(5, 2, 8)]
    figure, caption = drawn("action_values", feature_tables(10, {"cache_decisions": rows}, [features()]))
    (trace,) = figure["data"]
    assert len(trace["z"]) == 4 and trace["z"][1][3] == 0 and trace["z"][0][0] == -0.75
    assert {note["text"] for note in figure["layout"]["annotations"]} == {"best", "−0.75"}, (
        "alike in their first digits"
    )
    (frame,) = figure["layout"]["shapes"]
    assert (frame["x0"], frame["y0"]) == pytest.approx((2.53, 0.53))
    assert caption == f"Part 2 rates W {WINDOWS[3]} best."
