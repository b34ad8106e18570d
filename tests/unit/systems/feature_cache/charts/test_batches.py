"""The chart of cache hits and its caption."""

from __future__ import annotations

from typing import Any

from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.feature_cache.charts.batches import HITS
from dtdg_lab.visualization.chart import Chart, ChartOptions
from tests.feature_tables import batch, changed, congestion, feature_tables, features

SLOW = [features(), congestion(0), congestion(40, {2: 20.0}), congestion(80)]


def drawn(chart: Chart, tables: RunTables) -> tuple[dict[str, Any], str]:
    return chart.figure(tables, ChartOptions()), chart.caption(tables, ChartOptions())


def rates(before: float, after: float) -> dict[str, list[dict[str, Any]]]:
    """Return batches whose hit rate changes at step 60."""
    return {"resolved": [batch(s, p, rate=before if s < 60 else after) for s in range(120) for p in range(4)]}


def test_hits_are_over_the_whole_run_with_congestion_behind() -> None:
    figure, caption = drawn(HITS, feature_tables(120, rates(0.5, 0.9), SLOW))
    (trace,) = figure["data"]
    assert {*trace["y"]} == {50.0, 90.0} and len(trace["x"]) <= 100
    shaded = [(shape["x0"], shape["x1"]) for shape in figure["layout"]["shapes"] if shape["type"] == "rect"]
    assert shaded == [(40, 80)]
    assert caption == "The hit rate is 74% over the last 100 steps."


def test_the_hit_rate_is_compared_with_the_one_before_the_newest_change() -> None:
    tables = feature_tables(120, rates(0.5, 0.9), [features(), changed(60, cache_rows=500)])
    assert drawn(HITS, tables)[1] == "The hit rate is 90%, against 50% before change 1."


def test_hits_of_old_steps_are_sums() -> None:
    rows = {"resolved": [batch(s, 0, rate=0.2 if s < 3_000 else 0.8) for s in range(6_000)]}
    figure, _ = drawn(HITS, feature_tables(6_000, rows, [features()], recent=500))
    y = figure["data"][0]["y"]
    assert y[0] == 20 and y[-1] == 80 and len(y) <= 100


def test_without_a_cache_every_row_is_fetched() -> None:
    tables = feature_tables(5, events=[features(policy="prefetch")], system="bgl")
    assert drawn(HITS, tables)[1] == "Without a cache, every remote row is fetched."
