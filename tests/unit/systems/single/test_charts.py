"""Charts of training in one process: the time of each snapshot, and of products that snapshots share."""

from __future__ import annotations

from typing import Any

import pytest

from dtdg_lab.config.catalogue import family
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.single.charts import COMMON_EDGES, MOST_BARS, SHARING, SNAPSHOTS
from dtdg_lab.visualization.chart import NOTHING_YET, Chart
from tests.drawing import draw
from tests.tables import run_tables

PROFILE = {"chosen": 4, "sizes": [1, 2, 4, 8], "seconds": [0.004, 0.003, 0.002, 0.0025], "shares": [1, 0.8, 0.6, 0.3]}


def snapshots_run(*seconds: float) -> RunTables:
    events = [{"kind": "snapshot_times", "data": {"first": 3, "seconds": list(seconds)}}] if seconds else []
    return run_tables({"system": "single", "ranks": 1}, events=events)


def sharing_run(**changes: Any) -> RunTables:
    events = [{"kind": "shared_edges", "data": {**PROFILE, "note": "", **changes}}]
    return run_tables({"system": "pipad", "ranks": 1}, events=events)


def test_each_system_has_one_picture() -> None:
    charts = family("single").charts()
    for system, names in (
        ("single", ["snapshot_times", "step_memory"]),
        ("pipad", ["shared_products", "step_memory", "common_edges"]),
    ):
        assert [chart.name for chart in charts if chart.applies(run_tables({"system": system, "ranks": 1}))] == names
    assert not any(chart.applies(run_tables({"system": "psg"})) for chart in charts)


@pytest.mark.parametrize(("chart", "system"), [(SNAPSHOTS, "single"), (SHARING, "pipad"), (COMMON_EDGES, "pipad")])
def test_charts_are_empty_before_the_first_step(chart: Chart, system: str) -> None:
    figure, caption = draw(chart, run_tables({"system": system, "ranks": 1}))
    assert figure["layout"]["annotations"][0]["text"] == "Appears with the first step"
    assert caption == NOTHING_YET


def test_longest_snapshot_is_named_and_has_another_colour() -> None:
    figure, caption = draw(SNAPSHOTS, snapshots_run(0.001, 0.004, 0.003))
    (bars,) = figure["data"]
    assert bars["x"] == [3, 4, 5] and bars["y"] == [1, 4, 3]
    colours = bars["marker"]["color"]
    assert colours[0] == colours[2] != colours[1]
    assert caption == "Timed once before training, snapshot 4 took longest: 50% of the forward passes."


def test_a_bar_sums_several_of_very_many_snapshots() -> None:
    figure, _ = draw(SNAPSHOTS, snapshots_run(*[0.001] * 1_000))
    (bars,) = figure["data"]
    assert len(bars["x"]) <= MOST_BARS and sum(bars["y"]) == pytest.approx(1_000)
    assert figure["layout"]["meta"]["card"]["title"] == "Time of each 4 snapshots"


def test_chosen_number_of_shared_snapshots_is_blue() -> None:
    figure, caption = draw(SHARING, sharing_run())
    (bars,) = figure["data"]
    colours = bars["marker"]["color"]
    assert bars["x"] == ["1", "2", "4", "8"] and bars["y"] == [4, 3, 2, 2.5]
    assert len(set(colours)) == 2 and colours.count(colours[2]) == 1
    assert caption == "Sharing 4 snapshots is fastest: 2.00 ms per snapshot."
    assert draw(COMMON_EDGES, sharing_run())[1] == "Groups of 4 snapshots have 60% of their edges in common."


def test_without_sharing_each_snapshot_has_its_own_product() -> None:
    run = sharing_run(chosen=1)
    assert draw(SHARING, run)[1].startswith("Giving each snapshot a product of its own is fastest: 4.00 ms")
    assert draw(COMMON_EDGES, run)[1] == "Groups of 2 snapshots have 80% of their edges in common."


def test_picture_says_why_nothing_was_measured() -> None:
    given = {"sizes": [], "seconds": [], "shares": [], "note": "shared_snapshots is given"}
    figure, caption = draw(SHARING, sharing_run(chosen=3, **given))
    assert figure["layout"]["annotations"][0]["text"] == "Not measured: shared_snapshots is given"
    assert caption == "3 snapshots share a product, and nothing was measured."
    _, caption = draw(SHARING, sharing_run(chosen=1, **given))
    assert caption == "Each snapshot has a product of its own, and nothing was measured."
