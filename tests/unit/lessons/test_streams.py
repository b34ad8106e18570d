"""Graphs and pictures of the lessons on dynamic graphs and models."""

from __future__ import annotations

from typing import Any

import pytest

from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.lessons import streams
from dtdg_lab.lessons.streams import busiest, by_baseline, messages, split_picture, stream_picture


@pytest.fixture(autouse=True)
def generated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "default_dataset", lambda: "growing")


def edges_of(graph: DynamicGraph) -> int:
    return sum(snapshot.num_edges for snapshot in graph.snapshots)


def test_one_stream_is_cut_in_several_ways() -> None:
    fine, wide = messages(cut=50), messages(cut=50, edge_life=5)
    assert fine.num_snapshots == 49 and wide.edge_life == 5  # the last one has the labels only
    assert edges_of(wide) > 3 * edges_of(fine)
    assert messages(cut=50).data_hash == fine.data_hash


def test_pictures_follow_the_cut_and_the_protocol() -> None:
    captions = {cut: stream_picture(cut=cut)[1] for cut in (50, 100)}
    assert captions[50] != captions[100]
    figures: list[Any] = [split_picture(protocol=protocol)[0] for protocol in ("leaky", "warm")]
    assert figures[0]["layout"] != figures[1]["layout"]


def test_the_busiest_node_has_edges_when_it_is_looked_at() -> None:
    graph = messages(cut=50)
    node, snapshot = busiest(graph)
    assert (graph.snapshots[snapshot].indices == node).any()


def test_losses_are_grouped_by_what_predicts() -> None:
    losses = {"a": {"model": 1.0, "persistence": 2.0}, "b": {"model": 3.0, "persistence": 4.0}}
    assert by_baseline(losses) == {"model": {"a": 1.0, "b": 3.0}, "persistence": {"a": 2.0, "b": 4.0}}
