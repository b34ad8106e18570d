"""Cards and tiles of partitions: facts in, figures and captions out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

import dtdg_lab as lab
from dtdg_lab.core.errors import ConfigError, DataError
from dtdg_lab.partition.events import PartitionFacts
from dtdg_lab.partition.measured_partition import MeasuredPartition, partition_graph
from dtdg_lab.runs.event_rows import event_rows
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.record_writer import RecordWriter
from dtdg_lab.runs.stored_run import open_run
from dtdg_lab.visualization.graphs.partition import (
    comparison_cards,
    load_caption,
    map_caption,
    part_map,
    partition_cards,
    partition_tiles,
    run_partitions,
)
from dtdg_lab.visualization.sheet import sheet
from tests.stored_runs import finished_run
from tests.tables import START_NS, run_tables


def described(parts: int = 2, *, columns: int = 3, even: bool = False, **more: Any) -> dict[str, Any]:
    """The data of an event: part p receives 10 (p + 1) rows a snapshot; where ``even``, 10."""
    rows = [[10 if even else 10 * (part + 1)] * columns for part in range(parts)]
    total = int(np.sum(rows))
    of_columns = dict.fromkeys(("edges", "halo", "replicated"), rows)
    held = {"owned": 50, "load": 7, "halo_bytes": 1024, "cached_bytes": 2048}
    of_parts = {name: [amount] * parts for name, amount in held.items()}
    shares = {"cut_share": 0.47, "halo_share": 0.28, "replicated_share": 0.6}
    totals = {"cut_edges": total, "all_edges": 4 * total, "halo": total, "replicated": total}
    uneven = {"vertices": 1.0, "edges": 1.0 if even else 2 * parts / (parts + 1), "load": 1.0}
    measures = {"parts": parts, "bins": [*range(columns + 1)], **of_columns, **of_parts, **shares}
    measures |= {"totals": totals, "imbalance": uneven}
    sent = np.full((1, parts, parts), 512.0) * (1 - np.eye(parts))
    usual = {"partitioner": "hash", "parts": parts, "ranks": 0, "layout": "", "seconds": 0.25, "measures": measures}
    return {**usual, "predicted": {"forward": sent.tolist(), "backward": sent.tolist()}, **more}


def facts(parts: int = 2, **more: Any) -> PartitionFacts:
    return PartitionFacts.read(described(parts, **more))


def titles(cards: list[Any]) -> list[str]:
    return [figure["layout"]["meta"]["card"]["title"] for figure, _ in cards]


def test_cards_of_a_measured_partition() -> None:
    cards = partition_cards(facts())
    assert titles(cards) == [
        "Edges into a part's own nodes",
        "Rows received",
        "Rows copied",
        "Load of the parts",
        "Bytes between parts",
    ]
    assert [caption for _, caption in cards] == [
        "Part 1 has 1.33 times the mean number of edges.",
        "28% of the rows that parts read belong to other parts.",
        "60% of the rows that parts would hold are copies.",
        "Part 1 has 1.33 times the mean edges.",
        "A step would send 2.00 KiB between parts.",
    ]
    assert cards[1][0]["data"][0]["z"] == [[10.0] * 3, [20.0] * 3]
    go.Figure(sheet(cards))


def test_a_partition_stands_beside_the_one_before() -> None:
    cards = partition_cards(facts(4, ranks=2), previous=facts(2, ranks=2))
    assert len(cards) == 8
    before, now = (figure for figure, _ in cards[:2])
    assert before["data"][0]["zmax"] == now["data"][0]["zmax"] == 40
    assert "before: hash, 2 parts" in before["layout"]["meta"]["card"]["unit"]
    assert [key[0] for key in now["layout"]["meta"]["card"]["keys"]] == ["darkest: 40 edges"]


def test_even_parts_and_parts_with_copies_are_said() -> None:
    even = facts(even=True)
    assert map_caption("edges", even) == "All parts have about the same number of edges."
    assert load_caption(even) == "The parts share nodes, edges, load and memory evenly."
    copies = facts(ranks=2, layout="cached_vertex")
    assert map_caption("replicated", copies) == "60% of the rows that parts hold are copies."
    assert len(partition_cards(copies)) == 4


def test_a_map_of_many_parts_is_binned() -> None:
    (heat,) = part_map("halo", facts(64, columns=1000))["data"]
    assert len(heat["z"]) == 64 and 64 * len(heat["z"][0]) <= 24_000 and len(heat["x"]) == len(heat["z"][0]) + 1


@pytest.mark.parametrize(("measured", "note"), [(None, "predicted"), (2048.0, "measured")])
def test_tiles_of_a_partition(measured: float | None, note: str) -> None:
    tiles = partition_tiles(facts(), measured)
    assert [tile.value for tile in tiles] == ["47%", "90", "90", "2.00 KiB"]
    assert tiles[-1].note == note


def test_partitions_side_by_side_name_the_least() -> None:
    cards = comparison_cards({"hash": facts(), "metis, 4 parts": facts(4, even=True)})
    assert titles(cards) == ["Edges cut", "Rows received", "Copies", "Imbalance", "Bytes exchanged", "Time to make it"]
    assert cards[3][1] == "Edges are most even by metis, 4 parts: the largest part has 1.00 times the mean."
    assert cards[4][1] == "A step would send least by hash: 2.00 KiB."
    go.Figure(sheet(cards, columns=3))


def test_partitions_of_a_run_are_those_that_differ() -> None:
    plans = [described(2, ranks=2), described(2, ranks=2), described(4, ranks=2)]
    events = [{"kind": "partition", "step": step, "data": data} for step, data in enumerate(plans)]
    assert [each.parts for each in run_partitions(run_tables({}, events=events))] == [2, 4]
    ended = {"kind": "partition", "step": 9, "data": {"layout": None}}
    assert run_partitions(run_tables({}, events=[*events, ended])) == []


def test_an_event_without_its_facts_is_refused() -> None:
    data = described()
    del data["measures"]["halo"]
    with pytest.raises(DataError, match="'halo'"):
        PartitionFacts.read(data)


# a measured partition, and that of a stored run


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[MeasuredPartition]:
    stream = np.random.default_rng(4)
    src, dst = stream.integers(0, 40, (2, 2_000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DTDG_LAB_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))  # as each test has it
        graph = lab.datasets.from_edges(src, dst, np.arange(2_000) // 100, cut=20)
        return [partition_graph(graph, name, 4, layers=2) for name in ("hash", "round_robin", "load_aware")]


def heat_maps(figure: go.Figure) -> list[Any]:
    return [trace for trace in figure.data if trace.type == "heatmap"]


def test_plot_draws_a_measured_partition_and_several(measured: list[MeasuredPartition]) -> None:
    one = lab.plot(measured[0])
    assert isinstance(one, go.Figure) and "hash, 4 parts" in one.layout.title.text
    maps = heat_maps(one)
    assert len(maps) == 3 + 1
    exact = sum(measured[0].predicted[way].sum(axis=0) for way in ("forward", "backward"))
    assert np.allclose(1024 * np.nan_to_num(np.array(maps[-1].z, np.float64)), exact, atol=0.1)
    several = lab.plot(measured)
    assert "4 parts" in several.layout.title.text
    cut = next(trace for trace in several.data if trace.type == "bar")
    assert list(cut.x) == ["hash", "round_robin", "load_aware"]
    assert list(cut.y) == [pytest.approx(100 * each.measures.cut_share) for each in measured]


def test_plot_says_what_a_bare_partition_lacks(measured: list[MeasuredPartition]) -> None:
    with pytest.raises(ConfigError, match=r"lab\.partition\.partition"):
        lab.plot(measured[0].partition)


@pytest.mark.slow
def test_report_summary_and_plot_of_a_run_show_its_partition(tmp_path: Path) -> None:
    plan = {"ranks": 2, "layout": "halo_vertex"}
    run = finished_run(tmp_path, system="adgnn-t")
    for rank in (0, 1):
        with RecordWriter(run.record_file(rank), rank, 1) as writer:
            if rank == 0:
                writer.row("events", (0, 0, START_NS, "partition", described(**plan)))
                metis = described(**plan, partitioner="metis", rebuild_s=2.0)
                writer.row("events", (5, 1, START_NS + 5, "partition", metis))
            knob = {"version": 1, "changes": {"partitioner": "metis"}, "when": "epoch", "duration_s": 2.0}
            writer.row("events", (5, 1, START_NS + 4, "settings", knob))
            for way in ("forward", "backward"):
                writer.row("links", (14, 2, 0, way, 1 - rank, 1, 100))
    summary = finish(run, "finished")
    assert (summary["partitioner"], summary["parts"], summary["partition_s"]) == ("metis", 2, 0.25)
    assert (summary["cut_edges"], summary["cut_share"], summary["halo_share"]) == (90, 0.47, 0.28)
    assert (summary["rebuild_s"], summary["predicted_step_bytes"]) == (2.0, 2048)
    stored = open_run(run.path)
    words = stored.captions()["part_needs"]
    page = run.report_file.read_text()
    assert words in page and "What each part needs from the others" in page
    what = [row[4] for row in event_rows(stored.events) if row[3] == "partition"]
    assert len(what) == 2 and all(len(text) < 250 and "of the edges are cut" in text for text in what)
    assert "What each part needs from the others" in lab.plot(stored).to_json()
