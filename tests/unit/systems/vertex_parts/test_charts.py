"""Charts and tiles of node parts: small partitions and tables in, figures, captions and numbers out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.vertex_parts.charts import part_charts
from dtdg_lab.visualization.chart import NOTHING_YET
from dtdg_lab.visualization.runs.overview import common_charts
from tests.drawing import chart_named, draw
from tests.plan_events import memory_data, partition_data
from tests.tables import run_tables

ROLLUPS = [rollup for chart in (*common_charts(), *part_charts()) for rollup in chart.rollups]


def parts_run(edges: list[list[float]], *, system: str = "adgnn-t", steps: int = 0, **more: Any) -> RunTables:
    layout = "cached_vertex" if system == "pygt-dist" else "halo_vertex"
    rows = [
        {"rank": rank, "step": step, "time_s": 0.1, "wait_s": 0.02 * rank, "bytes_sent": 2048}
        for step in range(steps)
        for rank in (0, 1)
    ]
    events = [{"kind": "partition", "data": partition_data(edges, layout=layout, **more)}]
    return run_tables({"system": system}, {"steps": rows}, events=events, rollups=ROLLUPS)


def draw_named(name: str, run: RunTables) -> tuple[dict[str, Any], str]:
    return draw(chart_named(name, part_charts(), run), run)


def test_the_picture_has_rows_received_and_the_work_of_each_part() -> None:
    figure, caption = draw_named("part_needs", parts_run([[10, 20], [10, 20], [10, 20], [20, 40]]))
    rows, work = figure["data"]
    assert rows["z"] == [[2.0, 4.0]] * 4 and rows["x"] == [-0.5, 1.5, 2.5]
    assert work["x"] == [0.8, 0.8, 0.8, 1.6] and work["y"][3] == "part 3"
    assert work["marker"]["color"] == ["#0072B2"] * 3 + ["#D55E00"]
    assert caption == "47% of the edges join two parts, and part 3 has the most work: 1.60 times the mean."
    assert "Rows received" in [note["text"] for note in figure["layout"]["annotations"]]


def test_even_work_has_no_part_of_another_colour() -> None:
    figure, caption = draw_named("part_needs", parts_run([[10, 20]] * 4))
    assert set(figure["data"][1]["marker"]["color"]) == {"#0072B2"}
    assert [key[0] for key in figure["layout"]["meta"]["card"]["keys"]] == ["darkest: 4 rows"]
    assert caption == "47% of the edges join two parts, and all parts have about the same work."


def test_copies_count_as_work_and_are_named_so() -> None:
    figure, _ = draw_named("part_needs", parts_run([[1, 0], [0, 0]], system="pygt-dist"))
    assert figure["data"][1]["x"] == pytest.approx([1.25, 0.75]), "2 + 3 edges, and 3 of copied nodes alone"
    assert "rows copied" in figure["data"][0]["hovertemplate"]


def test_one_part_has_its_edges_by_snapshot() -> None:
    figure, caption = draw_named("part_needs", parts_run([[10, 20]]))
    assert figure["data"][0]["y"] == [10.0, 20.0] and figure["data"][0]["x"] == [0.5, 2.0]
    assert caption == "One part owns all nodes, so that no edge is cut and no row is received."


def test_before_the_partition_the_picture_says_so() -> None:
    figure, caption = draw_named("part_needs", run_tables({"system": "adgnn-t"}))
    assert figure["layout"]["annotations"][-1]["text"] == "Nodes are being partitioned" and caption == NOTHING_YET


def test_of_many_parts_those_with_most_and_least_work_have_bars() -> None:
    figure, _ = draw_named("part_needs", parts_run([[part, part] for part in range(64)]))
    rows, work = figure["data"]
    assert len(rows["z"]) == 64
    assert work["y"] == [
        *(f"part {part}" for part in range(63, 58, -1)),
        "54 more",
        *(f"part {p}" for p in range(4, -1, -1)),
    ]


def test_thousands_of_parts_are_drawn_in_fewer_columns() -> None:
    figure, _ = draw_named("part_needs", parts_run([[1, 1]] * 13_000))
    assert len(figure["data"][0]["z"][0]) == 1 and figure["data"][0]["x"] == [-0.5, 2.5]
    assert figure["data"][0]["z"][0][0] == pytest.approx(8 / 3, abs=0.01), "the mean of three snapshots"


def test_load_is_drawn_over_the_mean_with_the_memory_in_use() -> None:
    figure, caption = draw_named("part_load", parts_run([[10, 20], [10, 20]]))
    assert [key[0] for key in figure["layout"]["meta"]["card"]["keys"]] == ["nodes", "edges", "load", "memory"]
    assert figure["data"][2]["y"] == pytest.approx([5 / 3, 1 / 3], abs=1e-4)
    assert figure["data"][3]["customdata"][0] == [0, "1.00 KiB"]
    assert caption == "Part 0 has 1.67 times the mean load." and "height" not in figure["layout"]


def test_systems_have_the_charts_of_what_they_exchange() -> None:
    def places(run: RunTables) -> dict[str, str]:
        return {chart.name: chart.section for chart in part_charts() if chart.applies(run)}

    halo = places(run_tables({"system": "hypergraph-vertex"}))
    assert [name for name, place in halo.items() if place == "supporting"] == ["waiting", "transfers"]
    copies = places(run_tables({"system": "pygt-dist"}))
    assert [name for name, place in copies.items() if place == "supporting"] == ["waiting", "part_load"]
    assert "transfers" not in copies and not places(run_tables({"system": "esdg"}))


def test_memory_over_a_step_names_its_peak() -> None:
    run = parts_run([[1, 1]] * 2)
    assert draw_named("step_memory", run)[1] == NOTHING_YET
    events = [{"kind": "memory_trace", "step": 1, "data": memory_data(1)}]
    figure, caption = draw_named("step_memory", run_tables({"system": "adgnn-t"}, events=events))
    assert caption == "A step peaks at 1.03 KiB." and [trace["name"] for trace in figure["data"]][:2] == [
        "forward",
        "backward",
    ]
    events[0]["data"] = {**memory_data(1), "blocks": []}
    figure, _ = draw_named("step_memory", run_tables({"system": "adgnn-t"}, events=events))
    assert [trace["name"] for trace in figure["data"]] == ["in use"]


def test_a_long_trace_keeps_its_peak_in_few_points() -> None:
    data = {"seconds": np.linspace(0, 1, 2000).tolist(), "bytes": [*range(2000)], "blocks": [[0.0, 0, "forward"]]}
    figure, caption = draw_named(
        "step_memory", run_tables({"system": "adgnn-t"}, events=[{"kind": "memory_trace", "data": data}])
    )
    assert len(figure["data"][0]["x"]) <= 1500 and "1.95 KiB" in caption
