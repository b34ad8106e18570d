"""K and alpha tuned on two processes: both decide the same, and the same as one process with both parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import Group, SoloGroup
from dtdg_lab.testing.training import train_in_memory
from tests.distributed.groups import in_groups

SMALL = {
    "system": "flaredtdg",
    "dataset": "growing",
    "generated_nodes": 23,
    "generated_edges": 80,
    "generated_snapshots": 40,
    "hidden": 4,
    "learning_rate": 0.05,
    "device": "cpu",
    "epochs": 3,
    "dtype": "float64",
    "optimizer": "sgd",
    "parts": 2,
    "window": 5,
    "chunks": 4,
    "chunker": "hash",
    "partitioner": "round_robin",
    "tune": True,
    "tune_every": 1,
}


def tuned(group: Group, folder: Path) -> dict[str, Any]:
    config = RunConfig(**{**SMALL, "ranks": group.size})
    done = train_in_memory(config, load_for(config), folder / "last.pt", group=group)
    live_settings = [event["data"]["changes"] for event in done.recorder.events("settings")]
    settings = (done.config["full_snapshots"], done.config["alpha"])
    return {
        "decisions": done.recorder.tables["decisions"],
        "losses": done.losses,
        "knobs": live_settings,
        "settings": settings,
    }


def test_two_processes_decide_as_one(tmp_path: Path) -> None:
    alone = tuned(SoloGroup(), tmp_path)
    first, second = in_groups(tuned, 2, tmp_path)
    assert first["knobs"] == second["knobs"] == alone["knobs"] != []
    assert first["settings"] == second["settings"] == alone["settings"]
    assert first["losses"] == second["losses"] == pytest.approx(alone["losses"], rel=1e-9)
    assert second["decisions"] == [], "rank 0 tells"
    assert len(first["decisions"]) == len(alone["decisions"]) == SMALL["epochs"]
    for ours, theirs in zip(first["decisions"], alone["decisions"], strict=True):
        assert ours["action"] == theirs["action"]
        assert ours["reward"] == pytest.approx(theirs["reward"], rel=1e-6)
        losses = [[value["loss"] for value in row["values"]] for row in (ours, theirs)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-9)
