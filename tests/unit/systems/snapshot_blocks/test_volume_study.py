"""Volumes of snapshot and hypergraph node partition compared: exact counts, words and wrong arguments."""

from __future__ import annotations

import json

import numpy as np
import pytest

import dtdg_lab as lab
from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.config.model_facts import model_facts
from dtdg_lab.core.errors import ConfigError, PlanError, UnknownNameError, UnsupportedError
from dtdg_lab.graphs.split import split
from dtdg_lab.partition import base as make
from dtdg_lab.partition.base import Assigned
from dtdg_lab.partition.measures import pulled_rows
from dtdg_lab.partition.redistribution_volume import collectives
from dtdg_lab.systems.snapshot_blocks import volume_study
from dtdg_lab.systems.snapshot_blocks.volume_study import VOLUME_MEANINGS, VolumeRow, estimate_volumes, smoothed

NODES = 30


@pytest.fixture(scope="module")
def graph():
    return lab.datasets.load("growing", generated_nodes=NODES, generated_edges=60, generated_snapshots=40)


@pytest.fixture(autouse=True)
def parts_in_turn(monkeypatch, tmp_path):
    """Node v belongs to part v mod P: what is counted must not depend on a library."""
    monkeypatch.setenv("DTDG_LAB_CACHE", str(tmp_path))

    def built(assign, name, graph, parts, read, *, data_hash):
        assert name == "hypergraph" and read["seed"] == 5
        owner = (np.arange(graph.num_nodes) % parts).astype(np.int32)
        return make.Partition(Assigned(owner).owner, parts, None, data_hash, "in turn", 0.25)

    monkeypatch.setattr(make, "_timed", built)


def _halo_by_hand(graph, window, ranks, widths):
    """Numbers of forward and rerun in all layers, and of backward where there is one: ``widths`` of each."""
    train = split(graph.num_snapshots, 1, PROTOCOLS["warm"]).train
    total = 0
    for place, t in enumerate(train):
        alive = graph.snapshots[max(0, t - window + 1) : t + 1]
        pairs = {(u, v) for each in alive for u, v in zip(each.indices.tolist(), each.rows().tolist(), strict=True)}
        rows = len({(u, v % ranks) for u, v in pairs if u % ranks != v % ranks})
        again = place < len(train) - len(train) / 3
        total += rows * (widths["forward"] + widths["backward"] + again * widths["rerun"])
    return total


@pytest.mark.parametrize(
    ("model", "window", "rerun"), [("cdgcn", 1, True), ("tmgcn", 4, True), ("evolvegcn-o", 4, False)]
)
def test_both_counts_by_hand(graph, model, window, rerun):
    study = estimate_volumes(graph, model, ranks=(2, 3), blocks=3, smoothing=4, seed=5)
    wide = {"forward": 2 + 6, "rerun": (2 + 6) * rerun, "backward": 6}
    train = len(split(graph.num_snapshots, 1, PROTOCOLS["warm"]).train)
    assert train % 3 == 0
    for row in study.outcomes:
        assert row.hypergraph == _halo_by_hand(graph, window, row.ranks, wide)
        if model == "evolvegcn-o":
            assert (row.snapshot, row.snapshot_as_paper, row.ratio) == (0, 0, None)
            continue
        own = np.diff([train // 3 * rank // row.ranks for rank in range(row.ranks + 1)]) * 3
        chunk = np.diff([NODES * rank // row.ranks for rank in range(row.ranks + 1)])
        rows = int(np.outer(own, chunk).sum() - (own * chunk).sum())
        first, again = 2 + 6 + 6, (2 + 6 + 6) * 2 / 3  # the readout of the last block in forward, else in the rerun
        assert row.snapshot == pytest.approx(rows * (first + again + 2 + 2 + 6 + 6))
        assert row.snapshot_as_paper == rows * 3 * (24 if model == "tmgcn" else 32)
        assert row.ratio == row.hypergraph / row.snapshot
        assert row.partition_s == 0.25


def test_one_block_is_not_computed_again_in_either_count(graph):
    """The paper's six legs a layer hold two of the rerun, which one block does without: four are left."""
    for name, widths in (("tmgcn", 24), ("cdgcn", 32)):
        one, four = (estimate_volumes(graph, name, (3,), blocks=nb, smoothing=4, seed=5).outcomes[0] for nb in (1, 4))
        assert four.snapshot_as_paper / widths / 3 == one.snapshot_as_paper / widths / 2
        assert one.hypergraph < four.hypergraph


def test_table_has_a_row_for_each_model_and_number_of_ranks(graph):
    study = estimate_volumes(graph, ranks=(2, 4), seed=5)
    assert [(row.model, row.ranks) for row in study.outcomes] == [
        (name, ranks) for name in ("tmgcn", "cdgcn", "evolvegcn-o") for ranks in (2, 4)
    ]
    assert {row["paper_ratio"] for row in study.rows} == {None, 3.2 / 5.2, 0.4 / 13.8}
    assert set(VOLUME_MEANINGS) | {"model", "ranks"} == set(VolumeRow.__slots__)
    assert study.to_pandas().shape == (6, len(VolumeRow.__slots__))
    said = repr(study)
    assert "cdgcn" in said and "0.029" in said and "edges live 5 snapshots for tmgcn, evolvegcn-o" in said
    assert "sends nothing between ranks but gradients" in said
    assert "<li><b>hypergraph</b>" in study._repr_html_()
    json.dumps([study.rows, study.collective_rows(), study.figure])
    rows = [row for row in study.collective_rows() if row["model"] == "cdgcn"]
    reasons = [row["why"] for row in rows if row["width"] != row["paper"]]
    assert len(reasons) == 9 and all(reasons)
    assert study.collectives["tmgcn"] == collectives("tmgcn", 2, 6, 2, pairs=2, blocks=4)


def test_more_snapshots_smoothed_are_more_rows_pulled(graph):
    few, many = (estimate_volumes(graph, "tmgcn", (3,), smoothing=w, seed=5).outcomes[0] for w in (1, 8))
    assert many.hypergraph > few.hypergraph and many.edges > few.edges
    assert many.snapshot == few.snapshot


def test_smoothed_graph_holds_the_edges_of_the_last_snapshots(graph):
    built = smoothed(graph, 3)
    for t in (0, 1, 5):
        expected = {
            edge
            for each in graph.snapshots[max(0, t - 2) : t + 1]
            for edge in zip(each.indices.tolist(), each.rows().tolist(), strict=True)
        }
        snapshot = built.snapshots[t]
        assert set(zip(snapshot.indices.tolist(), snapshot.rows().tolist(), strict=True)) == expected
        assert snapshot.num_edges == len(expected)
    assert built.data_hash != graph.data_hash
    assert (built.features == graph.features).all()


def test_blocks_are_as_many_as_snapshots_at_most(graph):
    train = len(split(graph.num_snapshots, 1, PROTOCOLS["warm"]).train)
    assert f"in {train} blocks" in estimate_volumes(graph, "cdgcn", [2], blocks=1000, seed=5).described


def test_pulls_that_are_counted_are_the_models(graph):
    (row,) = estimate_volumes(graph, "evolvegcn-h", [3], blocks=1, smoothing=1, hidden=4, layers=1, seed=5).outcomes
    train = split(graph.num_snapshots, 1, PROTOCOLS["warm"]).train
    owner = make.Partition((np.arange(NODES) % 3).astype(np.int32), 3)
    rows = pulled_rows(graph.snapshots[train.start : train.stop], owner).sum()
    (pull,) = [pull for pull in model_facts("evolvegcn-h", 2, 4, 1).pulls if pull.direction == "in"]
    assert row.hypergraph == rows * pull.width * (1 + pull.learned)
    assert row.snapshot == 2 * len(train) * 2 * (2 * 4)  # Z_t to two other ranks, and its gradient back
    assert row.snapshot_as_paper == 0


def test_what_cannot_be_compared(graph):
    with pytest.raises(ConfigError, match=r"is not a graph. Give one, such as lab\.datasets\.load"):
        estimate_volumes("growing")
    with pytest.raises(UnknownNameError, match="Did you mean 'cdgcn'"):
        estimate_volumes(graph, "cdgcnn")
    with pytest.raises(UnknownNameError, match="protocol"):
        estimate_volumes(graph, protocol="warmer")
    with pytest.raises(UnsupportedError, match="depends on neighbours"):
        estimate_volumes(graph, "dcrnn")
    with pytest.raises(PlanError, match=f"ranks=64 for {NODES} nodes"):
        estimate_volumes(graph, "cdgcn")
    with pytest.raises(ConfigError, match="at least one of each"):
        estimate_volumes(graph, [])
    for name, value in (("smoothing", 0), ("blocks", 0), ("pairs", -1)):
        with pytest.raises(ConfigError, match=f"{name}={value} .*at least"):
            estimate_volumes(graph, "cdgcn", [2], **{name: value})


def test_the_papers_table_covers_the_models_compared():
    assert set(volume_study.PAPER) == set(volume_study.MODELS)
