"""Cards and tiles of partitions: facts in, figures and captions out."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from tables import run_tables

from dtdg_lab.partition.events import PartitionFacts
from dtdg_lab.visualization.partition_cards import (
    comparison_cards,
    load_caption,
    map_caption,
    part_map,
    partition_cards,
    partition_tiles,
    run_partitions,
)
from dtdg_lab.visualization.sheet import sheet


def described(parts: int = 2, *, columns: int = 3, even: bool = False, **more: Any) -> dict[str, Any]:
    """The data of an event: part p receives 10 (p + 1) rows a snapshot; where ``even``, 10."""
    rows = [[10 if even else 10 * (part + 1)] * columns for part in range(parts)]
    total = int(np.sum(rows))
    measures = {
        "parts": parts, "bins": list(range(columns + 1)), "edges": rows, "halo": rows, "replicated": rows,
        "owned": [50] * parts, "load": [7] * parts, "halo_bytes": [1024] * parts, "cached_bytes": [2048] * parts,
        "totals": {"cut_edges": total, "all_edges": 4 * total, "halo": total, "replicated": total},
        "cut_share": 0.47, "halo_share": 0.28, "replicated_share": 0.6,
        "imbalance": {"vertices": 1.0, "edges": 1.0 if even else 2 * parts / (parts + 1), "load": 1.0},
    }  # fmt: skip
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
        "Edges into a part's own nodes", "Rows received", "Rows copied", "Load of the parts", "Bytes between parts"
    ]  # fmt: skip
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
    cards = partition_cards(facts(4, ranks=2), before=facts(2, ranks=2))
    assert len(cards) == 8
    before, now = (figure for figure, _ in cards[:2])
    assert before["data"][0]["zmax"] == now["data"][0]["zmax"] == 40
    assert "before: hash, 2 parts" in before["layout"]["meta"]["card"]["unit"]


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
