"""Training on the small graph in memory, two partitions and two epochs unless changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.testing.training import Trained, train_in_memory
from tests.factories import small_config, small_graph

LINK = {"task": "link", "link_share": 0.5, "ranking_negatives": 6}
CLASSES = {"task": "classification", "dataset": "sbm", "communities": 2, "generated_nodes": 40}


def config_of(**changes: Any) -> RunConfig:
    return small_config(**{"parts": 2, "epochs": 2, **changes})


def train(path: Path, config: RunConfig | None = None, **how: Any) -> Trained:
    return train_in_memory(config or config_of(), small_graph(), path / "last.pt", **how)
