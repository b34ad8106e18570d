"""The partition microscope: what is drawn is what was counted, predicted beside measured, before beside after."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from runs_synthetic import finished_run
from synthetic_lines import START_NS, line, step_row

import dtdg_lab as lab
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, DataError
from dtdg_lab.partition.events import PartitionFacts
from dtdg_lab.partition.metrics import MeasuredPartition, partition_graph
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.records import RecordWriter
from dtdg_lab.runs.report import event_rows
from dtdg_lab.runs.run import open_run
from dtdg_lab.visualization.partition import LinkLog, microscope, panels
from dtdg_lab.visualization.run_window import CHARTS, RunWindow

FOUR = [f"{name}" for name in CHARTS]


def described(
    parts: int = 2,
    *,
    columns: int = 3,
    ranks: int = 2,
    layers: int = 1,
    name: str = "hash",
    scale: float = 1.0,
    **more: Any,
) -> dict[str, Any]:
    """The data of an event: part p receives 10 (p + 1) rows and is sent 100 l bytes by its neighbours."""
    per_part = [[scale * 10 * (p + 1)] * columns for p in range(parts)]
    halo = int(sum(map(sum, per_part)))
    measures = {
        "parts": parts, "bins": list(range(columns + 1)), "edges": per_part, "halo": per_part, "replicated": per_part,
        "owned": [50] * parts, "load": [7.0 * (p + 1) for p in range(parts)], "halo_bytes": [1024] * parts,
        "cached_bytes": [2048 * (p + 1) for p in range(parts)],
        "totals": {"cut_edges": halo, "all_edges": 4 * halo, "halo": halo, "replicated": halo},
        "cut_share": 0.25, "halo_share": 0.04, "replicated_share": 0.6,
        "imbalance": {"vertices": 1.0, "edges": 2 * parts / (parts + 1), "load": 1.5},
    }  # fmt: skip
    data = {
        "partitioner": name,
        "parts": parts,
        "ranks": ranks,
        "layout": "halo_vertex",
        "seconds": 0.25,
        "measures": measures,
        "predicted": {"forward": matrices(ranks, layers), "backward": matrices(ranks, layers)},
    }
    return json.loads(json.dumps({**data, **more}))


def matrices(ranks: int, layers: int, *, each: int = 100) -> list[list[list[int]]]:
    return [
        [[0 if q == p else each * (layer + 1) for p in range(ranks)] for q in range(ranks)] for layer in range(layers)
    ]


def event(data: dict[str, Any], *, step: int = 0, attempt: int = 1) -> dict[str, Any]:
    return line("events", [[step, step // 10, START_NS + step, "partition", data]], attempt=attempt)


def sent(shown: RunWindow, step: int, *, ranks: int = 2, layers: int = 1, each: int = 100, attempt: int = 1) -> None:
    """All ranks send each other what ``to_dict`` predicts, or ``each`` bytes."""
    for rank in range(ranks):
        links = [
            [step, step // 10, layer, way, to, 1, row[rank][to]]
            for way in ("forward", "backward")
            for layer, row in enumerate(matrices(ranks, layers, each=each))
            for to in range(ranks)
            if to != rank
        ]
        shown.add(line("links", links, rank=rank, attempt=attempt))
        shown.add(line("steps", [step_row(step, 1.0)], rank=rank, attempt=attempt))


def window(*events: dict[str, Any], ranks: int = 2) -> RunWindow:
    shown = RunWindow(RunConfig(dataset="sbm", ranks=ranks, epochs=20))
    for each in events:
        shown.add(each)
    return shown


def heat_maps(figure: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {trace["name"]: trace for trace in figure["data"] if trace["type"] == "heatmap"}


def check(figure: dict[str, Any]) -> None:
    go.Figure(figure)  # refuses any attribute plotly does not know
    json.dumps(figure, allow_nan=False)
    layout = figure["layout"]
    assert layout["title"]["text"]
    axes = {name[0] + name[5:] for name in layout if re.fullmatch(r"[xy]axis\d*", name)}
    assert {trace[f"{letter}axis"] for trace in figure["data"] for letter in "xy"} <= axes
    for trace in figure["data"]:
        assert ("colorbar" in trace) == (trace["type"] == "heatmap")
        if "colorbar" in trace:
            assert trace["colorbar"]["title"]["text"], "colours without a unit"


def texts(figure: dict[str, Any]) -> str:
    return " ".join(note["text"].replace("<br>", " ") for note in figure["layout"]["annotations"])


def test_only_a_run_with_a_partition_has_its_chart() -> None:
    shown = window()
    sent(shown, 0)
    assert list(shown.figures()) == list(shown.captions()) == FOUR
    shown.add(event(described()))
    assert list(shown.figures()) == list(shown.captions()) == [*FOUR, "partition"]
    check(shown.figures()["partition"])


def test_maps_show_every_part_in_every_column() -> None:
    data = described(3, columns=5)
    data["measures"] |= {"bins": [7, 9, 11, 13, 15, 18], "halo": np.arange(15.0).reshape(3, 5).tolist()}
    drawn = heat_maps(microscope(PartitionFacts.read(data)))["Halo rows a part receives"]
    assert drawn["z"] == data["measures"]["halo"]
    assert drawn["x"] == [6.5, 8.5, 10.5, 12.5, 14.5, 17.5]
    assert drawn["y"] == [0, 1, 2] and (drawn["zmin"], drawn["zmax"]) == (0, 14.0)
    said = texts(microscope(PartitionFacts.read(data)))
    assert "here snapshots 15 to 17" in said and "4.0 % of the rows that parts read are received" in said


@pytest.mark.parametrize("parts", [1, 4, 64])
@pytest.mark.parametrize("layout", ["", "halo_vertex", "cached_vertex"])
@pytest.mark.parametrize("changed", [False, True])
def test_figures_are_valid_plotly_and_small(parts: int, layout: str, changed: bool) -> None:
    ranks = parts if layout else 0
    data = described(parts, columns=64, ranks=ranks or parts, layers=2, layout=layout) | {"ranks": ranks}
    figure = microscope(
        PartitionFacts.read(data), before=PartitionFacts.read(described(2, columns=9)) if changed else None
    )
    check(figure)
    assert len(json.dumps(figure)) < 600_000
    assert figure["layout"]["height"] <= 6 * 362 + 40


def test_load_is_over_the_mean_of_the_parts() -> None:
    figure, caption = panels(PartitionFacts.read(described(3)))[3]
    marks = {trace["name"]: trace for trace in figure["data"]}
    assert list(marks) == ["nodes", "edges", "load", "memory"]
    assert marks["nodes"]["y"] == [1, 1, 1]
    assert marks["edges"]["y"] == marks["load"]["y"] == [0.5, 1.0, 1.5]
    assert "Part 2 has 1.50 times the mean in edges" in caption and "1.0 KiB of memory" in caption
    both = panels(PartitionFacts.read(described(3) | {"layout": "", "ranks": 0}))[3][0]
    assert [trace["name"] for trace in both["data"]][3:] == ["halo memory", "cache memory"]


def test_measured_bytes_stand_beside_the_predicted_ones_in_the_same_colours() -> None:
    shown = window(event(described(layers=2)))
    before = heat_maps(shown.figures()["partition"])
    assert [name for name in before if "Bytes" in name] == ["Bytes predicted, layer 0", "Bytes predicted, layer 1"]
    assert "No step is complete yet" in texts(shown.figures()["partition"])
    for step in range(3):
        sent(shown, step, layers=2)
    drawn = heat_maps(shown.figures()["partition"])
    predicted, measured = drawn["Bytes predicted, layer 1"], drawn["Bytes measured in step 1, layer 1"]
    assert predicted["z"] == measured["z"] == [[0, 400], [400, 0]], "forward and backward together"
    assert predicted["zmax"] == measured["zmax"] == 400
    assert measured["customdata"][0][1] == "200 B forward, 200 B backward"
    assert "Step 1 sent 1.2 KiB; predicted were 1.2 KiB: equal to the byte." in shown.captions()["partition"]


def test_a_run_that_fetches_features_counts_no_halo_rows_and_says_so() -> None:
    shown = window(event(described(layers=2, layout="remote_feature")))
    for step in range(3):
        shown.add(line("steps", [step_row(step, 1.0)], rank=0))
        shown.add(line("steps", [step_row(step, 1.0)], rank=1))
    for words in (shown.captions()["partition"], texts(shown.figures()["partition"])):
        assert "this run fetches features instead" in words and "No step is complete yet" not in words


def test_what_was_sent_besides_is_told_in_words() -> None:
    shown = window(event(described()))
    sent(shown, 0, each=150)
    assert "Step 0 sent 600 B; predicted were 400 B: 200 B (50 %) more." in shown.captions()["partition"]
    drawn = heat_maps(shown.figures()["partition"])
    assert drawn["Bytes predicted, layer 0"]["zmax"] == drawn["Bytes measured in step 0, layer 0"]["zmax"] == 300


def test_a_step_that_not_all_ranks_have_told_is_not_shown() -> None:
    shown = window(event(described()))
    for step in range(3):
        sent(shown, step)
    shown.add(line("links", [[3, 0, 0, "forward", 1, 1, 9_999]], rank=0))
    shown.add(line("steps", [step_row(3, 1.0)], rank=0))
    assert "Step 1 sent 400 B" in shown.captions()["partition"], "step 2 may still be incomplete on rank 1"
    shown.add(line("steps", [step_row(3, 1.0)], rank=1))  # it sent nothing in step 3
    assert "Step 2 sent 400 B" in shown.captions()["partition"]


def test_steps_before_a_change_do_not_count_for_the_new_partition() -> None:
    shown = window(event(described()))
    for step in range(5):
        sent(shown, step)
    shown.add(event(described(name="metis", rebuild_s=1.5, scale=0.5), step=5))
    assert "No step is complete yet" in shown.captions()["partition"]
    sent(shown, 5)
    assert "Step 5 sent" in shown.captions()["partition"]


def test_before_and_after_a_change_share_their_scale() -> None:
    shown = window(event(described(2)), event(described(4, name="metis", rebuild_s=1.5, scale=0.5), step=5))
    figure = shown.figures()["partition"]
    check(figure)
    edges = [trace for trace in figure["data"] if trace["name"] == "Edges into a part's own nodes"]
    assert [len(trace["z"]) for trace in edges] == [2, 4] and {trace["zmax"] for trace in edges} == {20.0}
    said = texts(figure)
    assert "before: hash, 2 parts" in said and "now: metis, 4 parts" in said
    assert "Halo rows: 90 before, 150 now (67 % more)" in said
    assert "the change took 1.5 s" in figure["layout"]["title"]["text"]
    assert "Before: hash, 2 parts. Halo rows: 90 before, 150 now (67 % more)." in shown.captions()["partition"]


def test_what_is_told_twice_and_an_attempt_that_goes_on_change_nothing() -> None:
    shown = window(event(described()), event(described(name="metis"), step=5))
    sent(shown, 6)
    figures = shown.figures()["partition"]
    shown.add(event(described(name="metis"), step=5))
    assert shown.figures()["partition"] == figures
    sent(shown, 7)
    shown.add(event(described(name="metis"), step=7, attempt=2))
    for step in (7, 8):
        sent(shown, step, attempt=2, each=200)
    assert shown.partition.before.partitioner == "hash" and "Step 7 sent 800 B" in shown.captions()["partition"]


def test_a_resume_before_a_change_takes_it_back() -> None:
    shown = window(event(described()))
    sent(shown, 0)
    shown.add(event(described(name="metis"), step=5))
    sent(shown, 5)
    shown.add(event(described(), step=1, attempt=2))
    sent(shown, 1, attempt=2)
    assert shown.partition.before is None and shown.partition.facts.partitioner == "hash"
    assert "Step 0 sent" in shown.captions()["partition"]


def test_no_matrix_where_nothing_is_sent() -> None:
    for data in (described(2, ranks=1), described(2, layout="cached_vertex")):
        shown = window(event(data))
        assert not [name for name in heat_maps(shown.figures()["partition"]) if "Bytes" in name]
    assert "exchange no rows" in shown.captions()["partition"]
    assert "over half" in texts(shown.figures()["partition"])


def test_many_layers_are_shown_by_their_sum() -> None:
    shown = window(event(described(layers=6)))
    sent(shown, 0, layers=6)
    drawn = {name: trace for name, trace in heat_maps(shown.figures()["partition"]).items() if "Bytes" in name}
    assert list(drawn) == ["Bytes predicted, all 6 layers", "Bytes measured in step 0, all 6 layers"]
    assert [trace["zmax"] * 1024 for trace in drawn.values()] == [2 * 2_100] * 2


def test_links_stay_bounded_when_a_rank_is_silent() -> None:
    log = LinkLog()
    for step in range(5_000):
        log.link(0, {"step": step, "layer": 0, "pass_name": "forward", "to": 1, "bytes": 8}, 1)
        log.step(0, step)
    assert len(log._rows[0]) == len(log._attempts) == 256
    assert log.last(2, layers=1, first=0) is None, "rank 1 has told nothing"


def test_an_event_without_its_facts_is_refused() -> None:
    data = described()
    del data["measures"]["halo"]
    with pytest.raises(DataError, match="'halo'"):
        PartitionFacts.read(data)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[MeasuredPartition]:
    stream = np.random.default_rng(4)
    src, dst = stream.integers(0, 40, (2, 2_000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DTDG_LAB_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))  # as each test has it
        graph = lab.datasets.from_edges(src, dst, np.arange(2_000) // 100, cut=20)
        return [partition_graph(graph, name, 4, layers=2) for name in ("hash", "round_robin", "load_aware")]


def test_plot_draws_a_measured_partition_and_several(measured: list[MeasuredPartition]) -> None:
    one = lab.plot(measured[0])
    assert isinstance(one, go.Figure) and "hash, 4 parts" in one.layout.title.text
    heat_maps = [trace for trace in one.data if trace.type == "heatmap"]
    assert len(heat_maps) == 3 + 1
    exact = sum(measured[0].predicted[way].sum(axis=0) for way in ("forward", "backward"))
    sent = np.array(heat_maps[-1].z, np.float64)
    assert np.allclose(np.nan_to_num(sent) * 1024, exact, atol=0.1)
    several = lab.plot(measured)
    assert "4 parts" in several.layout.title.text
    cut = next(trace for trace in several.data if trace.type == "bar")
    assert list(cut.x) == ["hash", "round_robin", "load_aware"]
    assert list(cut.y) == [pytest.approx(100 * each.measures.cut_share) for each in measured]
    check(json.loads(several.to_json()))
    twice = lab.plot([measured[0], measured[0]])
    assert twice.data[0].x == ("hash, 4 parts (1)", "hash, 4 parts (2)")


def test_plot_says_what_a_bare_partition_lacks(measured: list[MeasuredPartition]) -> None:
    with pytest.raises(ConfigError, match=r"lab\.partition\.partition"):
        lab.plot(measured[0].partition)


@pytest.mark.slow
def test_report_summary_and_plot_of_a_run_show_its_partition(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    for rank in (0, 1):
        with RecordWriter(run.record_file(rank), rank, 1) as writer:
            if rank == 0:
                writer.row("events", (0, 0, START_NS, "partition", described()))
                writer.row(
                    "events", (5, 1, START_NS + 5, "partition", described(name="metis", rebuild_s=2.0, scale=3.0))
                )
            knob = {"version": 1, "changes": {"partitioner": "metis"}, "when": "epoch", "duration_s": 2.0}
            writer.row("events", (5, 1, START_NS + 4, "settings", knob))
            for way in ("forward", "backward"):
                writer.row("links", (14, 2, 0, way, 1 - rank, 1, 100))
    summary = finish(run, "finished")
    assert (summary["partitioner"], summary["parts"], summary["partition_s"]) == ("metis", 2, 0.25)
    assert (summary["cut_edges"], summary["cut_share"], summary["halo_share"]) == (270, 0.25, 0.04)
    assert (summary["rebuild_s"], summary["predicted_step_bytes"]) == (2.0, 400)
    stored = open_run(run.path)
    words = stored.captions()["partition"]
    assert "Step 14 sent 400 B; predicted were 400 B: equal to the byte." in words
    page = run.report_file.read_text()
    assert "Who owns what" in page and words in page and "id='plot-partition'" in page
    drawn = json.loads(re.search(r"id='figures'>(.*?)</script>", page, re.DOTALL).group(1))
    check(drawn["partition"])
    what = [row[4] for row in event_rows(stored.events) if row[3] == "partition"]
    assert len(what) == 2 and all(len(text) < 250 and "of the edges are cut" in text for text in what)
    check(json.loads(lab.plot(stored).to_json()))
    assert "Bytes measured in step 14" in lab.plot(stored).to_json()
