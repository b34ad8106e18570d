"""Training in one process: the time of each snapshot, and of products that snapshots share."""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go
import pytest

from dtdg_lab.config.catalogue import family
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import DataError
from dtdg_lab.runs.charts import all_rollups
from dtdg_lab.runs.tables import RunTables
from dtdg_lab.systems.single import captions
from dtdg_lab.systems.single.events import SnapshotTimes
from dtdg_lab.systems.single.picture import MOST_BARS, SHARING, SNAPSHOTS
from dtdg_lab.systems.single.supporting import COMMON_EDGES
from dtdg_lab.systems.single.tiles import STEP_TIME, single_suggestions, single_tiles
from dtdg_lab.visualization.chart import Chart, ChartOptions
from tests.tables import run_tables

PROFILE = {
    "chosen": 4, "sizes": [1, 2, 4, 8], "seconds": [0.004, 0.003, 0.002, 0.0025], "shares": [1.0, 0.8, 0.6, 0.3],
    "note": "",
}  # fmt: skip
NOT_MEASURED = {"chosen": 3, "sizes": [], "seconds": [], "shares": [], "note": "shared_snapshots is given"}


def tables_of(system: str, *events: dict[str, Any], **tables: Any) -> RunTables:
    config = {"system": system, "ranks": 1, "parts": 1, "dataset": "sbm"}
    return run_tables(config, tables, events=events, rollups=all_rollups())


def drawn(chart: Chart, tables: RunTables) -> dict[str, Any]:
    figure = chart.figure(tables, ChartOptions())
    go.Figure(figure)
    json.dumps(figure, allow_nan=False)
    return figure


def caption(chart: Chart, tables: RunTables) -> str:
    return chart.caption(tables, ChartOptions())


def times(*seconds: float) -> dict[str, Any]:
    return {"kind": "snapshot_times", "data": {"first": 3, "seconds": list(seconds)}}


def profile(data: dict[str, Any] = PROFILE) -> dict[str, Any]:
    return {"kind": "shared_edges", "data": data}


@pytest.mark.parametrize("name", [name for name in vars(captions) if name.isupper()])
def test_captions_have_at_most_twenty_words(name: str) -> None:
    text = getattr(captions, name).format(number=123, share="12.3%", size=8, time="1.23 ms")
    assert len(text.split()) <= 20 and text.endswith(".")


def test_each_system_has_one_picture() -> None:
    charts = family("single").charts()
    for system, names in (
        ("single", ["snapshot_times", "step_memory"]),
        ("pipad", ["shared_products", "step_memory", "common_edges"]),
    ):
        assert [chart.name for chart in charts if chart.shown(tables_of(system))] == names
    assert not any(chart.shown(run_tables({"system": "psg"})) for chart in charts)


@pytest.mark.parametrize(("chart", "system"), [(SNAPSHOTS, "single"), (SHARING, "pipad"), (COMMON_EDGES, "pipad")])
def test_before_the_first_step_the_charts_are_empty(chart: Chart, system: str) -> None:
    figure = drawn(chart, tables_of(system))
    assert figure["layout"]["annotations"][0]["text"] == "Appears with the first step"
    assert caption(chart, tables_of(system)) == "Nothing measured yet."


def test_the_longest_snapshot_is_named_and_has_another_colour() -> None:
    tables = tables_of("single", times(0.001, 0.004, 0.003))
    (bars,) = drawn(SNAPSHOTS, tables)["data"]
    assert bars["x"] == [3, 4, 5] and bars["y"] == [1, 4, 3]
    colours = bars["marker"]["color"]
    assert colours[0] == colours[2] != colours[1]
    assert (
        caption(SNAPSHOTS, tables) == "Timed once before training, snapshot 4 took longest: 50% of the forward passes."
    )


def test_very_many_snapshots_are_drawn_in_stretches() -> None:
    tables = tables_of("single", times(*[0.001] * 1_000))
    figure = drawn(SNAPSHOTS, tables)
    (bars,) = figure["data"]
    assert len(bars["x"]) <= MOST_BARS and sum(bars["y"]) == pytest.approx(1_000)
    assert figure["layout"]["meta"]["card"]["title"] == "Time of each 4 snapshots"


def test_an_event_without_times_is_refused() -> None:
    with pytest.raises(DataError, match="no times"):
        SnapshotTimes.read({"first": 0, "seconds": []})


def test_the_chosen_number_of_shared_snapshots_is_blue() -> None:
    tables = tables_of("pipad", profile())
    (bars,) = drawn(SHARING, tables)["data"]
    assert bars["x"] == ["1", "2", "4", "8"] and bars["y"] == [4, 3, 2, 2.5]
    assert len(set(bars["marker"]["color"])) == 2 and bars["marker"]["color"].count(bars["marker"]["color"][2]) == 1
    assert caption(SHARING, tables) == "Sharing 4 snapshots is fastest: 2.00 ms per snapshot."
    assert caption(COMMON_EDGES, tables) == "Groups of 4 snapshots have 60% of their edges in common."


def test_where_sharing_does_not_pay_each_snapshot_has_its_own_product() -> None:
    tables = tables_of("pipad", profile({**PROFILE, "chosen": 1}))
    assert caption(SHARING, tables).startswith("Giving each snapshot a product of its own is fastest: 4.00 ms")
    assert caption(COMMON_EDGES, tables) == "Groups of 2 snapshots have 80% of their edges in common."


def test_where_nothing_was_measured_the_picture_says_why() -> None:
    tables = tables_of("pipad", profile(NOT_MEASURED))
    assert drawn(SHARING, tables)["layout"]["annotations"][0]["text"] == "Not measured: shared_snapshots is given"
    assert caption(SHARING, tables) == "3 snapshots share a product, and nothing was measured."
    alone = tables_of("pipad", profile({**NOT_MEASURED, "chosen": 1}))
    assert caption(SHARING, alone) == "Each snapshot has a product of its own, and nothing was measured."


def test_tiles_have_the_numbers_of_recent_steps() -> None:
    steps = [{"step": step, "time_s": 0.02, "compute_s": 0.015, "energy_j": 2.0, "energy_source": "modelled"}
             for step in range(3)]  # fmt: skip
    memory = [{"step": 1, "peak_bytes": 3 * 2**20}]
    found = {
        tile.label: (tile.value, tile.note) for tile in single_tiles(tables_of("single", steps=steps, memory=memory))
    }
    assert list(found) == ["Validation loss", "Step time", "Computing", "Peak memory", "Energy per step"]
    assert found["Computing"] == ("75%", "of each step") and found["Peak memory"] == ("3.00 MiB", "of one step")
    assert found["Energy per step"] == ("2.00 J", "modelled")
    shared = single_tiles(tables_of("pipad", profile(), steps=steps))[-1]
    assert (shared.value, shared.note) == ("4", "60% of edges in common")


def test_before_the_first_step_tiles_have_no_values() -> None:
    for system in ("single", "pipad"):
        assert {tile.value for tile in single_tiles(tables_of(system))} == {"–"}


@pytest.mark.parametrize("system", ["single", "pipad"])
def test_suggestions_can_be_set(system: str) -> None:
    config = RunConfig(system=system, dataset="sbm", ranks=1, parts=1)
    for suggestion in single_suggestions(config):
        assert config.replace(**suggestion.changes) != config


def test_the_compared_number_is_the_step_time() -> None:
    steps, seconds = STEP_TIME.values(tables_of("single", steps=[{"step": 0, "time_s": 0.5}]))
    assert (steps.tolist(), seconds.tolist()) == ([0], [0.5])
