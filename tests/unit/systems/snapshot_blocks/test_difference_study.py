"""What differences bring, by model and format: numbers against the encoder's, plans and wrong arguments."""

from __future__ import annotations

import json

import numpy as np
import pytest

import dtdg_lab as lab
from dtdg_lab.core.errors import ConfigError, PlanError, UnknownNameError
from dtdg_lab.graphs.delta import COO64, CSR32, encode
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.graphs.windowing import averaged, lived
from dtdg_lab.systems.snapshot_blocks.transfer_study import DIFFERENCE_MEANINGS, TransferStudy, estimate_transfers

SIZES = {"generated_nodes": 200, "generated_edges": 1500, "generated_snapshots": 13}


@pytest.fixture(scope="module")
def graph() -> DynamicGraph:
    return lab.datasets.load("powerlaw", **SIZES)


@pytest.fixture(scope="module")
def study(graph: DynamicGraph) -> TransferStudy:
    return estimate_transfers(graph, edge_life=3, smoothing_window=4, repeats=1, blocks=[1, 3], ranks=[1, 2, 3])


def test_rows_are_what_the_encoder_makes(graph: DynamicGraph, study: TransferStudy) -> None:
    own = list(graph.snapshots)
    smoothed = {"cdgcn": own, "evolvegcn": list(lived(own, 3)), "tmgcn": list(averaged(own, 4))}
    assert [(row["model"], row["form"]) for row in study.rows] == [
        (model, form) for model in smoothed for form in ("csr32", "coo64")
    ]
    for row in study.rows:
        form, snapshots = {"csr32": CSR32, "coo64": COO64}[row["form"]], smoothed[row["model"]]
        whole, sent = (encode(snapshots, form, difference=how).nbytes for how in (False, True))
        assert (row["whole_bytes"], row["difference_bytes"]) == (whole, sent)
        assert row["ratio"] == whole / sent
        assert row["reached"] >= 0.95
        assert row["ratio"] == pytest.approx(row["reached"] * row["bound"])
        assert row["edges"] == sum(of.num_edges for of in snapshots)
        assert {"whole_s", "difference_s", "time_ratio"} <= set(DIFFERENCE_MEANINGS)
        assert min(row["whole_s"], row["difference_copy_s"], row["difference_unpack_s"]) > 0
        assert set(row) == set(DIFFERENCE_MEANINGS)
        assert row["worth_below"] is None or row["worth_below"] > 0
    overlaps = {row["model"]: row["overlap"] for row in study.rows}
    assert overlaps["cdgcn"] < overlaps["evolvegcn"]  # what smoothing is for
    assert json.dumps(study.rows)


def test_snapshots_are_smoothed_as_data_sets_are_loaded() -> None:
    plain = lab.datasets.load("powerlaw", **SIZES)
    life = lab.datasets.load("powerlaw", **SIZES, edge_life=3)
    mean = lab.datasets.load("powerlaw", **SIZES, smoothing_window=3)
    ours = list(lived(plain.snapshots, 3))[2:]
    assert [one.equals(other) for one, other in zip(ours, life.snapshots, strict=False)] == [True] * len(ours)
    ours = list(averaged(plain.snapshots, 3))
    assert [one.equals(other) for one, other in zip(ours, mean.snapshots, strict=True)] == [True] * len(ours)


def test_weights_of_edges_that_live_on_are_summed() -> None:
    first = Snapshot(np.array([0, 1, 1]), np.array([1], np.int32), np.array([0.5], np.float32))
    second = Snapshot(np.array([0, 1, 2]), np.array([1, 0], np.int32), np.array([2.0, 3.0], np.float32))
    last = list(lived([first, second, first], 2))[1:]
    assert [of.weights.tolist() for of in last if of.weights is not None] == [[2.5, 3.0], [2.5, 3.0]]


def test_shares_are_those_of_the_ranks(graph: DynamicGraph, study: TransferStudy) -> None:
    actual = {
        (row["blocks"], row["ranks"]): row for row in study.shares if (row["model"], row["form"]) == ("cdgcn", "csr32")
    }
    assert sorted(actual) == [(blocks, ranks) for blocks in (1, 3) for ranks in (1, 2, 3)]
    steps = graph.num_snapshots
    for (blocks, ranks), row in actual.items():
        assert row["share"] == pytest.approx(1 - blocks * ranks / steps)
    assert actual[1, 1]["difference_bytes"] == study.rows[0]["difference_bytes"]
    halves = [range(0, steps // 2), range(steps // 2, steps)]
    sent = sum(encode(graph.snapshots[half.start : half.stop]).nbytes for half in halves)
    assert actual[1, 2]["difference_bytes"] == sent
    assert actual[3, 3]["ratio"] < actual[1, 1]["ratio"]


def test_no_times_are_taken_where_none_are_asked_for(graph: DynamicGraph) -> None:
    study = estimate_transfers(graph, repeats=0, forms=["csr32"])
    assert [row["time_ratio"] for row in study.rows] == [None] * 3
    assert "overlap" in repr(study)
    assert {row["blocks"] for row in study.shares} == {1, 2, 4, 8}
    assert {row["ranks"] for row in study.shares} == {1, 2, 4, 8, 16}


def test_a_study_shows_itself(study: TransferStudy) -> None:
    assert len(repr(study).splitlines()) == 2 + len(study.rows)
    assert "13" in study.described or "12" in study.described
    assert study._repr_html_().count("<tr") == 1 + len(study.rows)
    assert len(study.to_pandas()) == len(study.rows)


def test_wrong_arguments_are_refused(graph: DynamicGraph) -> None:
    for name, value, least in (("edge_life", 0, 1), ("smoothing_window", 0, 1), ("repeats", -1, 0)):
        with pytest.raises(ConfigError, match=rf"{name}={value}: give a whole number of at least {least}\."):
            estimate_transfers(graph, **{name: value})  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="csr32"):
        estimate_transfers(graph, forms=["csr64"])
    with pytest.raises(PlanError, match="blocks"):
        estimate_transfers(graph, blocks=[14])
    with pytest.raises(PlanError, match="ranks"):
        estimate_transfers(graph, ranks=[201])
