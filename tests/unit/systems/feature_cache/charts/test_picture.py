"""The picture of fetched features: congestion, caches and waiting over the same steps."""

from __future__ import annotations

from typing import Any

import pytest

from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.feature_cache.charts.picture import MOST_BLOCKS, PICTURE
from dtdg_lab.visualization.chart import NOTHING_YET, ChartOptions
from tests.feature_tables import batch, cache, changed, congestion, feature_tables, features

NEWEST, WHOLE = ChartOptions(), ChartOptions(whole_run=True)


def picture(tables: RunTables, options: ChartOptions = NEWEST) -> dict[str, Any]:
    return PICTURE.figure(tables, options)


def traces(figure: dict[str, Any], kind: str = "") -> dict[str, dict[str, Any]]:
    return {trace["name"]: trace for trace in figure["data"] if not kind or trace["type"] == kind}


def texts(figure: dict[str, Any]) -> list[str]:
    return [note["text"] for note in figure["layout"]["annotations"]]


def caption(tables: RunTables, options: ChartOptions = NEWEST) -> str:
    return PICTURE.caption(tables, options)


def test_each_cache_is_a_block_from_its_swap_to_the_next_stacked_by_owner() -> None:
    drawn = traces(picture(feature_tables(40, events=[features()])))
    owned = [drawn[f"rows of part {owner}"] for owner in range(4)]
    assert [len(trace["x"]) for trace in owned] == [9, 9, 9, 9], "3 caches of each of the 3 other parts"
    first = owned[1]
    assert first["x"][:3] == pytest.approx([0, 16, 32], abs=0.2) and first["width"][:3] == pytest.approx(
        [16, 16, 8], abs=0.3
    )
    assert sum(-trace["y"][0] for trace in owned[1:]) == pytest.approx(0.7, abs=1e-3), "part 0 has a full cache"
    assert first["customdata"][0] == "part 0, W 16: 300 rows of part 1; 900 of 900 held"
    assert drawn["W"]["text"] == ["16"] * 12


def test_the_last_block_grows_until_its_swap() -> None:
    ends = [
        traces(picture(feature_tables(steps, events=[features()])))["rows of part 1"]["width"][1] for steps in (20, 24)
    ]
    assert ends == pytest.approx([4, 8], abs=0.3)


def test_late_caches_have_a_red_edge() -> None:
    windows = [cache(step, 0, 16, late=2 * (step == 16)) for step in (0, 16, 32)]
    tables = feature_tables(40, {"windows": windows}, [features()])
    edge = traces(picture(tables))["came late"]
    assert edge["x"] == [16, 16, None]
    assert edge["y"][0] < edge["y"][1]


def test_late_caches_are_named_as_the_cause_where_training_waited_in_their_steps() -> None:
    windows = [cache(step, 0, 16, late=2 * (step == 16)) for step in (0, 16, 32)]
    resolved = [batch(step, 0, wait_s=0.02 if step in (14, 15) else 0.0) for step in range(40)]
    tables = feature_tables(40, {"windows": windows, "resolved": resolved}, [features()])
    assert caption(tables) == "1 of the last 3 caches came late, so training waited 1.00 ms per step."


def test_misses_are_named_as_the_cause_where_training_waited_as_long_in_other_steps() -> None:
    windows = [cache(step, 0, 16, late=2 * (step == 16)) for step in (0, 16, 32)]
    resolved = [batch(step, 0, rate=0.23, wait_s=0.02) for step in range(40)]
    tables = feature_tables(40, {"windows": windows, "resolved": resolved}, [features()])
    assert caption(tables) == "Caches held 23% of remote rows, and training waited 20.0 ms per step for the others."


def test_delays_are_areas_with_a_name_and_rates_are_hatched() -> None:
    links = [congestion(0), congestion(10, {1: 15.0}), congestion(100, {1: 15.0, 3: 30.0}, {2: 50.0})]
    figure = picture(feature_tables(300, events=[features(), *links]))
    drawn = traces(figure)
    (area,) = [trace for trace in figure["data"] if trace["name"] == "part 3" and trace["type"] == "scatter"]
    assert area["x"][-2:] == pytest.approx([100, 301.2], abs=0.1) and area["y"][-2:] == [30, 30]
    assert drawn["part 2"]["marker"]["pattern"]["shape"] == "/"
    assert {"part 1 replies 15 ms late", "part 3 replies 30 ms late"} <= {*texts(figure)}
    assert figure["layout"]["yaxis2"]["ticktext"] == ["0", "30 ms"]


def test_waiting_is_the_mean_of_the_parts_in_bars_of_five_steps() -> None:
    rows = [batch(step, part, wait_s=0.004 * (part == 0)) for step in range(10) for part in range(4)]
    bars = traces(picture(feature_tables(10, {"resolved": rows}, [features()])))["waiting"]
    assert bars["x"] == [2.5, 7.5] and bars["y"] == [1.0, 1.0] and bars["width"] == 5


def test_the_newest_500_steps_are_shown_and_the_whole_run_on_request() -> None:
    tables = feature_tables(600, events=[features()])
    assert picture(tables)["layout"]["xaxis"]["range"] == pytest.approx([100, 602])
    assert picture(tables, WHOLE)["layout"]["xaxis"]["range"] == pytest.approx([0, 602.4])
    assert caption(tables) == "Parts replace their caches every 16 steps, and 75% of remote rows are found there."


def test_of_a_long_run_blocks_are_means_and_few() -> None:
    tables = feature_tables(3_000, events=[features()], every=4, recent=300)
    drawn = traces(picture(tables, WHOLE))
    assert min(drawn["rows of part 1"]["x"]) < 20 and len(drawn["waiting"]["x"]) <= 300
    blocks = sum(len(trace["x"]) for name, trace in drawn.items() if name.startswith("rows"))
    assert 300 < blocks <= MOST_BLOCKS
    assert {*drawn["W"]["text"]} == {"4"} and len(drawn["W"]["text"]) < 100


def test_a_window_of_a_step_is_drawn_as_a_map() -> None:
    figure = picture(feature_tables(400, events=[features()], every=1))
    (trace,) = traces(figure, "heatmap").values()
    assert len(trace["z"]) == 4 and len(trace["z"][0]) == 300 and {*trace["z"][0]} == {1}
    assert [label for label, *_ in figure["layout"]["meta"]["card"]["keys"]] == ["short window", "long window"]


@pytest.mark.parametrize(("every", "kind"), [(16, "heatmap"), (32, "bar")])
def test_eight_parts_have_blocks_where_these_are_few(every: int, kind: str) -> None:
    drawn = picture(feature_tables(500, events=[features(parts=8)], every=every, parts=8))["data"]
    owned = [trace for trace in drawn if trace["name"].startswith(("rows", "W")) and trace["type"] == kind]
    assert owned and sum(len(trace["x"]) for trace in owned) <= MOST_BLOCKS


@pytest.mark.parametrize("parts", [9, 64])
def test_many_parts_are_a_map_of_windows_with_worst_and_mean_of_cause_and_effect(parts: int) -> None:
    rows = {
        "resolved": [batch(s, p, parts=parts, wait_s=0.001 * (p == 3)) for s in range(8) for p in range(parts)],
        "windows": [cache(s, p, 4, parts=parts) for s in (0, 4) for p in range(parts)],
    }
    events = [features(parts=parts), congestion(0, {1: 9.0}, parts=parts)]
    figure = picture(feature_tables(8, rows, events, parts=parts))
    drawn = traces(figure)
    assert len(drawn["W"]["z"]) == parts
    assert drawn["slowest part"]["y"] == [9, 9] and drawn["part that waits most"]["y"][0] == 1.0
    assert len(figure["layout"]["yaxis"]["tickvals"]) <= 9
    assert "Cause: delay added to replies; grey: the mean, red: the slowest part" in texts(figure)


def test_before_the_first_cache_the_first_window_of_the_settings_is_drawn() -> None:
    tables = feature_tables(cache_window=8)
    drawn = traces(picture(tables))
    assert drawn["first window"]["width"] == [8] * 4 and drawn["W"]["text"] == ["8"] * 4
    assert caption(tables) == NOTHING_YET


def test_without_a_cache_the_lane_says_so() -> None:
    tables = feature_tables(10, {"windows": []}, [features(policy="on_demand")], system="dgl-default")
    assert "No cache: every remote row is fetched." in texts(picture(tables))
    assert caption(tables) == "Every remote row is fetched when needed: 2.00 ms of waiting per step."


def test_caches_of_the_policy_before_end_where_one_without_caches_begins() -> None:
    rows = {"windows": [cache(0, 0, 16)]}
    tables = feature_tables(40, rows, [features(), features(10, policy="prefetch"), features(20, policy="on_demand")])
    figure = picture(tables)
    assert traces(figure)["rows of part 1"]["width"] == pytest.approx([10], abs=0.2)
    assert "No cache: every remote row is fetched." not in texts(figure)
    assert caption(tables).startswith("Every remote row is fetched when needed")


def test_one_part_fetches_nothing() -> None:
    tables = feature_tables(4, {"resolved": [], "windows": []}, [features(parts=1)])
    assert "One part holds every row, so nothing is fetched." in texts(picture(tables))


def test_other_parts_leave_old_rows_behind() -> None:
    rows = {"windows": [cache(0, 0, 16), cache(10, 0, 2, parts=2)]}
    tables = feature_tables(20, rows, [features(), features(10, parts=2)])
    assert traces(picture(tables))["rows of part 1"]["x"] == pytest.approx([10], abs=0.2)


def test_changes_are_marked() -> None:
    notes = picture(feature_tables(40, events=[features(), changed(20, cache_window=8)]))["layout"]["annotations"]
    assert [note["x"] for note in notes if note["text"] == "1"] == [20]
