"""What experiments on ESDG measure agrees with what runs and formulas say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dtdg_lab.reproduction.experiment import read_experiment
from dtdg_lab.reproduction.procedures import Procedure, load_procedure

FOLDER = Path(__file__).resolve().parents[3] / "reproduce" / "esdg"
GRAPH = {"dataset": "transactions", "generated_nodes": 80, "generated_edges": 160, "generated_snapshots": 12}
LINKS: dict[str, Any] = {
    **GRAPH,
    "system": "esdg",
    "protocol": "esdg-2021",
    "task": "link",
    "hidden": 6,
    "layers": 2,
    "blocks": 2,
    "device": "cpu",
}


def procedure(name: str) -> Procedure:
    return load_procedure(read_experiment(FOLDER / f"{name}.toml"))


def test_volume_of_snapshots_follows_the_formula() -> None:
    volumes, of_ranks = procedure("table2"), {}
    for ranks in (2, 4, 8):
        settings = {**LINKS, "model": "cdgcn", "counted": "snapshot", "counted_ranks": ranks}
        of_ranks[ranks] = volumes(settings, 0)["limit"]
    assert of_ranks[2] == pytest.approx(of_ranks[4], rel=0.1) == pytest.approx(of_ranks[8], rel=0.1)


def test_volume_of_a_hypergraph_grows_with_ranks() -> None:
    pytest.importorskip("mtkahypar")
    settings = {**LINKS, "model": "tmgcn", "smoothing_window": 3, "counted": "hypergraph"}
    few, many = (procedure("table2")({**settings, "counted_ranks": ranks}, 0) for ranks in (2, 8))
    assert few["numbers"] < many["numbers"]
    assert few["edges_per_node"] > 160 / 80  # smoothed


def test_smoothed_snapshots_overlap() -> None:
    settings = {**GRAPH, "system": "esdg", "model": "tmgcn", "device": "cpu"}
    bare, smooth = (procedure("table1")({**settings, "smoothing_window": window}, 0) for window in (1, 5))
    assert bare["overlap"] < smooth["overlap"] and bare["edges"] < smooth["edges"]


def test_transfers_count_and_time() -> None:
    settings = {**GRAPH, "system": "esdg", "model": "tmgcn", "smoothing_window": 5, "blocks": 2, "device": "cpu"}
    settings |= {"form": "coo64", "counted_ranks": 2}
    measure = procedure("figure4")
    whole, less = (measure({**settings, "transfer": way, "repeats": 1}, 0) for way in ("whole", "delta"))
    assert whole["bytes"] > less["bytes"]
    assert less["share"] == pytest.approx(1 - 4 / 11)  # the first snapshot of two ranks in two blocks is whole
    assert whole["seconds"] > 0 < less["seconds"]
    assert "seconds" not in measure({**settings, "transfer": "delta"}, 0)


@pytest.mark.parametrize("model", ["tmgcn", "evolvegcn-o"])
def test_blocks_need_less_memory_for_the_same_gradients(model: str) -> None:
    settings = {**LINKS, "model": model, "graph_storage": "streamed"}
    one, many = (procedure("blocks")({**settings, "blocks": blocks}, 0) for blocks in (1, 5))
    assert many["device_bytes"] == many["peak_bytes"] < one["device_bytes"]
    assert one["device_bytes"] > one["peak_bytes"]  # all graphs stay
    assert many["gradient_difference"] < 1e-4 and one["gradient_difference"] == 0


@pytest.mark.slow
def test_scaling_is_forecast_from_trainings() -> None:
    settings = {
        **LINKS,
        "model": "cdgcn",
        "graph_storage": "streamed",
        "overlap": "off",
        "threads": 1,
        "epochs": 3,
        "evaluate_every": 3,
        "weak": False,
        "size": 2,
        "dataset": "uniform",
    }
    one, many = (procedure("figure5")({**settings, "predicted_ranks": ranks}, 0) for ranks in (1, 16))
    assert one["nodes"] == many["nodes"] == 160
    assert one["communicate_s"] == 0 < many["communicate_s"]
    assert one["held_out_error"] == many["held_out_error"] > 0  # of the same trainings
    assert one["measured_speedup"] > 0
