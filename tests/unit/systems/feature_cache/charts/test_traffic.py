"""Charts of links, rows by owner and bytes."""

from __future__ import annotations

from typing import Any

import pytest

from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.feature_cache.charts.decisions import ACTION_VALUES, DECISIONS
from dtdg_lab.systems.feature_cache.charts.traffic import BYTES_MOVED, LINKS, ROWS_BY_OWNER
from dtdg_lab.visualization.chart import NOTHING_YET, Chart, ChartOptions
from tests.feature_tables import ROW_BYTES, batch, congestion, feature_tables, features

FOLDED = (LINKS, ROWS_BY_OWNER, BYTES_MOVED, DECISIONS, ACTION_VALUES)
BY_NAME = {chart.name: chart for chart in FOLDED}


def drawn(name: str, tables: RunTables) -> tuple[dict[str, Any], str]:
    chart = BY_NAME[name]
    return chart.figure(tables, ChartOptions()), chart.caption(tables, ChartOptions())


@pytest.mark.parametrize("chart", FOLDED, ids=lambda chart: chart.name)
def test_before_the_first_step_each_chart_has_axes_and_says_so(chart: Chart) -> None:
    figure, caption = drawn(chart.name, feature_tables())
    assert figure["layout"]["meta"]["card"]["title"] == chart.title
    assert caption == ("0 of 12 links are slowed down." if chart.name == "links" else NOTHING_YET)


def test_links_are_owner_by_requester() -> None:
    event = congestion(5, {1: 20.0}, {1: 25.0, 3: 100.0})
    figure, caption = drawn("links", feature_tables(events=[features(), event]))
    (trace,) = figure["data"]
    assert trace["z"][1] == [20.0, None, 20.0, 20.0]
    written = {(note["y"], note["x"]): note["text"] for note in figure["layout"]["annotations"]}
    assert written[1, 2] == "20 ms<br>25 Mbit/s" and written[3, 0] == "100 Mbit/s" and written[0, 1] == "free"
    assert caption == "6 of 12 links are slowed down."


def test_rows_asked_by_owner_are_per_step() -> None:
    rows = {"resolved": [batch(s, p, rate=0.6) for s in range(10) for p in (0, 1, 2)]}
    figure, caption = drawn("rows_by_owner", feature_tables(10, rows, [features()]))
    hit, fetched = figure["data"]
    assert hit["y"] == [120.0, 120.0, 120.0, 180.0] and fetched["y"] == [80.0, 80.0, 80.0, 120.0]
    assert caption == "Part 3 is asked for most rows: 300 per step."


def test_bytes_are_of_misses_and_of_new_caches() -> None:
    figure, caption = drawn("feature_bytes", feature_tables(80, events=[features()], every=20))
    missed, rebuilt = figure["data"]
    mib = 1024**2
    assert missed["y"][0] == pytest.approx(4 * 75 * ROW_BYTES / mib, rel=1e-3)
    assert sum(rebuilt["y"]) == pytest.approx(4 * 4 * 900 * ROW_BYTES / mib, rel=1e-3)
    assert figure["layout"]["meta"]["card"]["unit"] == "MiB per step, all parts"
    assert caption == "Batches fetched 117 KiB per step and caches 70.3 KiB."
