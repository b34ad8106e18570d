"""Pictures of a graph: valid, right, small whatever the size of the graph, and computed once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest

import dtdg_lab as lab
from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.graphs import statistics as kept_statistics
from dtdg_lab.graphs.statistics import statistics_of
from dtdg_lab.visualization.chart import title_of
from dtdg_lab.visualization.graphs.statistics import (
    GRAPH_CHARTS,
    GraphCharts,
    baselines_caption,
    overlap_caption,
    spans_of,
    thumbnail_caption,
    thumbnail_html,
    thumbnail_svg,
)
from dtdg_lab.visualization.sheet import sheet
from dtdg_lab.visualization.thinning import runs_of, shown_indices
from dtdg_lab.visualization.traces import escaped


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DTDG_LAB_CACHE", str(tmp_path / "cache"))


def graph(edge_life: int = 1, name: str = "mine") -> lab.DynamicGraph:
    """Twenty base intervals of a changing graph of 12 nodes; intervals 8 to 10 are empty."""
    busy = [t for t in range(20) for _ in range(9) if not 8 <= t <= 10]
    sources = [(i * 5 + t) % 12 for i, t in enumerate(busy)]
    targets = [(i + t // 2) % 12 for i, t in enumerate(busy)]
    times = [t + 0.5 for t in busy]
    return lab.datasets.from_edges([*sources, 0], [*targets, 1], [*times, 20.0], cut=20, edge_life=edge_life, name=name)


def trace(figure: dict, start: str) -> dict:
    return next(trace for trace in figure["data"] if trace["name"].startswith(start))


def test_the_charts_are_valid_plotly_and_say_what_to_look_for() -> None:
    view = GraphCharts(graph())
    figures, captions = view.figures(), view.captions()
    assert tuple(figures) == tuple(captions) == GRAPH_CHARTS
    for name, figure in figures.items():
        go.Figure(figure)
        json.dumps(figure, allow_nan=False)
        assert title_of(figure) and "(" in figure["layout"]["xaxis"]["title"]["text"], name
        assert len(figure["data"]) == len({line["name"] for line in figure["data"]}), name
        assert captions[name].endswith(".")


def test_edges_overlap_degrees_and_baselines_are_those_of_the_graph() -> None:
    made = graph()
    figures = GraphCharts(made).figures()
    assert trace(figures["size"], "edges")["y"] == [snapshot.num_edges for snapshot in made.snapshots]
    kept = trace(figures["overlap"], "share")
    first, second = ({*zip(s.rows().tolist(), s.indices.tolist(), strict=True)} for s in made.snapshots[:2])
    assert kept["x"][0] == 1 and kept["y"][0] == pytest.approx(len(first & second) / len(first))
    tail = trace(figures["degrees"], "nodes")
    assert tail["x"][0] == 1 and tail["y"][0] == 1.0
    degrees = np.concatenate([np.diff(snapshot.indptr) for snapshot in made.snapshots])
    assert tail["y"][-1] == pytest.approx((degrees >= tail["x"][-1]).sum() / (degrees > 0).sum())
    errors = np.mean((made.persistence.astype(float) - made.targets) ** 2, axis=1)
    assert trace(figures["baselines"], "persistence")["y"] == pytest.approx(errors.tolist())


def test_snapshots_without_edges_are_crossed_and_told() -> None:
    view = GraphCharts(graph())
    crosses = trace(view.figures()["size"], "no edges")
    assert crosses["x"] == [9.0] and crosses["text"] == ["snapshots 8 to 10"]
    assert "3 without edges" in view.captions()["size"]
    gap = trace(view.figures()["overlap"], "share")
    assert [x for x, y in zip(gap["x"], gap["y"], strict=True) if y is None] == [9, 10, 11]


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_parts_are_shaded_in_order_and_cover_what_the_split_says(protocol: str) -> None:
    spans, problem = spans_of(60, 4, protocol)
    assert problem == "" and {"train", "test"} <= {name for name, _, _ in spans}
    assert ("purge" in {name for name, _, _ in spans}) == PROTOCOLS[protocol].purge
    assert ("validation" in {name for name, _, _ in spans}) == (PROTOCOLS[protocol].validation_share > 0)
    covered = [t for _, first, last in spans for t in range(first, last + 1)]
    assert covered == list(range(60))
    if PROTOCOLS[protocol].purge:
        assert {last - first + 1 for name, first, last in spans if name == "purge"} == {3}


def test_a_graph_too_short_for_the_protocol_is_drawn_and_says_so() -> None:
    view = GraphCharts(graph(edge_life=12))
    assert view.figures()["size"]["layout"]["shapes"] == []
    assert "No parts are shaded" in view.captions()["size"] and "needed" in view.captions()["size"]


def test_sentences_follow_the_numbers() -> None:
    wide, narrow = (graph(edge_life=life).describe() for life in (6, 1))
    assert "edges live 6 base intervals" in overlap_caption(wide)
    assert "hard to beat" in overlap_caption(wide) and "hard to beat" not in overlap_caption(narrow)
    assert f"{wide.persistence_mse:.3g}" in baselines_caption(wide)
    assert ("only below persistence" in baselines_caption(wide)) == (wide.persistence_mse < wide.mean_mse)


def test_statistics_are_computed_once_for_a_data_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    before = statistics_of(graph(edge_life=3))
    monkeypatch.setattr(kept_statistics, "describe", lambda graph: pytest.fail("computed again"))
    after = statistics_of(graph(edge_life=3, name="other"))
    assert after.name == "other"
    assert {**after.to_dict(), "name": ""} == {**before.to_dict(), "name": ""}
    assert after.edges.dtype == before.edges.dtype and not after.edges.flags.writeable
    assert GraphCharts(after).figures() == GraphCharts(before).figures()
    assert repr(after).replace("other", "mine") == str(before)


@pytest.mark.parametrize("damage", ["", "{", '{"edges": [1]}'])
def test_a_damaged_cache_is_computed_anew(damage: str, tmp_path: Path) -> None:
    before = statistics_of(graph())
    [file] = (tmp_path / "cache" / "statistics").iterdir()
    file.write_text(damage)
    assert statistics_of(graph()).to_dict() == before.to_dict()
    assert json.loads(file.read_text())["V"] == before.V


@pytest.mark.slow
def test_thousands_of_snapshots_make_a_small_picture() -> None:
    long = lab.datasets.load("growing", generated_nodes=60, generated_edges=60, generated_snapshots=3_000)
    figures = GraphCharts(long).figures()
    assert all(len(line["x"]) <= 1002 for figure in figures.values() for line in figure["data"])
    assert len(json.dumps(figures)) < 300_000
    assert max(trace(figures["size"], "edges")["y"]) == long.num_edges.max(), "peaks must not be lost"


def test_thinning_keeps_ends_and_extremes_and_steps_over_gaps() -> None:
    values = np.sin(np.arange(50_000) / 900.0)
    values[12_345], values[40_000], values[100:2000] = 9.0, -9.0, np.nan
    shown = shown_indices(values, 500)
    assert len(shown) <= 502 and (np.diff(shown) > 0).all() and {0, 12_345, 40_000, 49_999} <= set(shown.tolist())
    assert shown_indices(np.full(5000, np.nan), 100)[[0, -1]].tolist() == [0, 4999]
    assert shown_indices(values[:40], 500).tolist() == list(range(40))
    assert runs_of(np.array([True, True, False, True])) == [(0, 1), (3, 3)] and runs_of(np.zeros(3, dtype=bool)) == []


def test_the_thumbnail_shows_edges_gaps_and_parts_and_escapes_words() -> None:
    found = graph().describe()
    spans, _ = spans_of(len(found.edges), found.edge_life, "warm")
    svg = thumbnail_svg(found.edges, found.kept, spans)
    assert svg.count("<polyline") == 2, "the line of shared edges is broken where there are none"
    assert svg.count("<rect") == len(spans) + 3
    assert "nan" not in svg
    words = thumbnail_caption(1000, 20, 3000, float("nan"))
    assert words == "1,000 snapshots, 20 nodes, 3,000 edges at most"
    assert "&lt;b&gt;" in thumbnail_html(svg, "<b>")


def test_the_charts_stand_on_one_sheet_with_their_captions() -> None:
    view = GraphCharts(graph())
    figures, captions = view.figures(), view.captions()
    drawing = go.Figure(sheet([(figure, captions[name]) for name, figure in figures.items()], title="all"))
    assert len(drawing.data) == sum(len(figure["data"]) for figure in figures.values())
    assert {line.yaxis for line in drawing.data} == {"y", "y2", "y3", "y4", "y5"}, "one of them has a right axis"
    texts = " ".join(note.text.replace("<br>", " ") for note in drawing.layout.annotations)
    assert all(escaped(caption) in texts for caption in captions.values())
    assert len(drawing.layout.shapes) == sum(len(figure["layout"]["shapes"]) for figure in figures.values())
