"""Blocks of time, and what else the layouts with blocks read, change in the middle of a run; one process."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.testing.training import Trained, train_in_memory
from dtdg_lab.training.block_memory import GIB
from dtdg_lab.training.build import build
from tests.thinning import thinned

pytestmark = pytest.mark.usefixtures("one_thread")
NODES, TRAINED = 24, 12
SMALL = {
    "system": "esdg",
    "dataset": "growing",
    "generated_nodes": NODES,
    "generated_edges": 80,
    "generated_snapshots": 40,
    "hidden": 4,
    "learning_rate": 0.02,
    "device": "cpu",
    "layers": 2,
    "epochs": 4,
    "dtype": "float64",
    "optimizer": "sgd",
}
ASKED = 1  # the change is asked for in the second step, an epoch each, and rules from the third


def config_of(**changes: Any) -> RunConfig:
    return RunConfig(**{**SMALL, **changes})


@cache
def graph_of() -> DynamicGraph:
    return load_for(config_of())


def train(path: Path, config: RunConfig, **how: Any) -> Trained:
    return train_in_memory(config, graph_of(), path / "last.pt", **how)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Losses of one block, and of a system without any: whatever changes, these are learnt."""
    folder = tmp_path_factory.mktemp("undisturbed")
    losses = train(folder, config_of()).losses
    assert losses == pytest.approx(train(folder, config_of(system="single")).losses, rel=1e-10)
    assert len(set(losses)) == SMALL["epochs"]
    return losses


HALO = {"system": "hypergraph-vertex", "partitioner": "round_robin"}
CHANGES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"blocks": 1}, {"blocks": 3}),
    ({"blocks": 5}, {"blocks": 1}),
    ({"blocks": 4}, {"blocks": 0, "memory_gib": 2.0}),
    ({"blocks": 1}, {"overlap": False}),
    ({"blocks": 3}, {"delta_transfer": False}),
    ({"blocks": 2}, {"halo_reuse": True}),
    ({"blocks": 4}, HALO),
    ({"blocks": 4, **HALO}, {"system": "esdg"}),
    ({"blocks": 2}, {"system": "single"}),
    ({"system": "single"}, {"system": "esdg", "blocks": 12}),
]


@pytest.mark.parametrize(("start", "changes"), thinned(CHANGES), ids=str)
def test_what_is_learnt_goes_on_as_if_nothing_had_changed(
    tmp_path: Path, undisturbed: list[float], start: dict[str, Any], changes: dict[str, Any]
) -> None:
    """And the same bits as stopping there and resuming under the new settings."""
    config = config_of(**start)
    live = train(tmp_path, config, script={ASKED: {"set": changes}})
    assert live.losses == pytest.approx(undisturbed, rel=1e-10)
    train(tmp_path, config, script={ASKED: {"stop": True}})
    resumed = train(tmp_path, config, resume=True, changes=changes, first_step=ASKED + 1)
    assert live.losses[ASKED + 1 :] == resumed.losses
    assert all(torch.equal(tensor, resumed.parameters[name]) for name, tensor in live.parameters.items())
    assert live.config == resumed.config == config.replace(**changes)
    assert live.recorder.events("refused") == []
    _check_told(live, start, changes)


def _check_told(live: Trained, start: dict[str, Any], changes: dict[str, Any]) -> None:
    """The change with its seconds, and the blocks before and after it; that there are none any more is told too."""
    (knob,) = live.recorder.events("settings")
    assert (knob["step"], knob["data"]["when"], knob["data"]["changes"]) == (ASKED + 1, "epoch", changes)
    *before, now = live.recorder.events("blocks")
    assert [described["data"]["blocks"] for described in before] == (
        [] if start.get("system") == "single" else [start["blocks"]]
    )
    assert now["step"] == ASKED + 1
    assert now["data"]["rebuild_s"] == knob["data"]["duration_s"] > 0
    if live.config.system == "single":
        assert now["data"]["layout"] is None
        return
    assert now["data"]["requested"] == live.config["blocks"]
    bounds = now["data"]["bounds"]
    assert (len(bounds) - 1, bounds[-1] - bounds[0]) == (now["data"]["blocks"], TRAINED)
    assert now["data"]["blocks"] == (live.config["blocks"] or 1), "memory for all of it"


@pytest.mark.slow
def test_graphs_are_brought_by_the_blocks_in_use(tmp_path: Path) -> None:
    """Those of one block stay, and kept ones; of several all but the last's are brought twice."""
    done = train(
        tmp_path,
        config_of(epochs=8),
        script={
            1: {"set": {"blocks": 3, "graph_storage": "streamed"}},
            3: {"set": {"delta_transfer": False}},
            5: {"set": {"graph_storage": "resident"}},
            6: {"set": {"blocks": 1, "graph_storage": "streamed"}},
        },
    )
    brought = {row["step"]: row for row in done.recorder.tables["transfers"]}
    assert sorted(brought) == [2, 3, 4, 5]
    twice = TRAINED + TRAINED * 2 // 3
    assert {row["snapshots"] for row in brought.values()} == {twice}
    for step, row in brought.items():
        assert (row["bytes"] == row["whole_bytes"]) == (step >= 4)
        assert row["bytes"] <= row["whole_bytes"]


def test_graphs_stay_where_their_operators_fit_in_the_memory(tmp_path: Path) -> None:
    """Else they are brought for every block; either way the same bits are learnt."""
    stay = train(tmp_path, config_of(blocks=3, memory_gib=1e-3))
    come = train(tmp_path, config_of(blocks=3, memory_gib=1e-5))
    assert stay.losses == come.losses
    assert (stay.recorder.tables["transfers"] == [], len(come.recorder.tables["transfers"])) == (True, 4)
    kept, brought = (done.recorder.events("blocks")[0]["data"]["note"] for done in (stay, come))
    assert "stay on the device (memory_gib=0.001)" in kept and "transferred for every block" in brought


@pytest.mark.slow
def test_memory_chooses_the_blocks_and_less_of_it_chooses_more(tmp_path: Path, undisturbed: list[float]) -> None:
    found = build(config_of(blocks=0), graph_of(), SoloGroup()).strategy.block_memory
    gib = {blocks: 1.001 * found.peak_bytes(blocks) / GIB for blocks in (3, 6)}  # just enough for so many
    done = train(
        tmp_path,
        config_of(blocks=0),
        script={
            0: {"set": {"memory_gib": gib[3]}},
            1: {"set": {"memory_gib": gib[6]}},
            2: {"set": {"memory_gib": 1.0}},
        },
    )
    described = [event["data"] for event in done.recorder.events("blocks")]
    assert [data["blocks"] for data in described] == [1, 3, 6, 1]
    assert all(data["requested"] == 0 and "memory_gib" in data["note"] for data in described)
    assert done.losses == pytest.approx(undisturbed, rel=1e-10)


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"blocks": TRAINED + 1}, "blocks=13 of 12 snapshots"),
    ({**HALO}, {"blocks": TRAINED + 1}, "blocks=13 of 12 snapshots"),
    ({}, {"row_ranks": 2}, "row_ranks=2 does not divide ranks=1"),
    ({}, {"system": "esdg-hybrid"}, "row_ranks=2 does not divide ranks=1"),
    ({"blocks": 2}, {"blocks": 0, "memory_gib": 1e-6}, "memory_gib=1e-06"),
    ({"system": "psg", "model": "dcrnn"}, {"system": "esdg"}, "depends on neighbours"),
]


@pytest.mark.parametrize(("start", "changes", "said"), thinned(REFUSED, [1]), ids=str)
def test_a_change_that_does_not_fit_leaves_the_run_as_it_was(
    tmp_path: Path, start: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    config = config_of(**start)
    untouched = train(tmp_path, config)
    done = train(tmp_path, config, script={ASKED: {"set": changes}})
    assert done.losses == untouched.losses
    assert done.config == config
    (refused,) = done.recorder.events("refused")
    assert refused["data"]["changes"] == changes
    assert said in refused["data"]["reason"]
    assert done.recorder.events("settings") == []
    assert len(done.recorder.events("blocks")) == (start.get("system") != "psg" and "partitioner" not in start)


@pytest.mark.parametrize(
    ("model", "blocks"), thinned([("tgcn", 5), ("evolvegcn-h", 5), ("evolvegcn-o", 2), ("tgcn", 1)], [2])
)
def test_interrupted_and_resumed_is_the_same_run(tmp_path: Path, model: str, blocks: int) -> None:
    config = config_of(model=model, blocks=blocks, optimizer="adam")
    whole = train(tmp_path, config)
    first = train(tmp_path, config, script={ASKED: {"stop": True}})
    second = train(tmp_path, config, resume=True, first_step=ASKED + 1)
    assert first.losses + second.losses == whole.losses
    assert len(second.losses) == 2
    assert all(torch.equal(tensor, whole.parameters[name]) for name, tensor in second.parameters.items())
    assert [event["data"]["blocks"] for event in second.recorder.events("blocks")] == [blocks]
