"""An epoch knob that one rank cannot build is refused on all of them, and the run goes on as it was."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dtdg_lab.config.catalogue import family
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import Group
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.testing.training import train_in_memory
from tests.distributed.groups import in_groups

FAMILY = family("decayed_windows")
SMALL = {
    "system": "flaredtdg",
    "dataset": "growing",
    "generated_nodes": 40,
    "generated_edges": 160,
    "generated_snapshots": 40,
    "hidden": 4,
    "device": "cpu",
    "epochs": 3,
    "ranks": 2,
    "window": 4,
    "partitioner": "round_robin",
    "chunker": "hash",
    "evaluate_every": 100,
}


@cache
def _graph() -> DynamicGraph:
    return load_for(RunConfig(**SMALL))


def _on_rank(group: Group, folder: str) -> tuple[list[float], list[str], list[float]]:
    """Losses of a run whose change fails on rank 1, why it was refused, and losses of a run left alone."""
    quiet = train_in_memory(RunConfig(**SMALL), _graph(), Path(folder) / "last.pt", group=group).losses
    make, made = FAMILY.build, []

    def failing(of: Any) -> Any:
        made.append(of.config["window"])
        strategy = make(of)  # it is collective
        if group.rank == 1 and of.config["window"] == 3:
            raise MemoryError("no room")
        return strategy

    FAMILY.build = failing
    done = train_in_memory(
        RunConfig(**SMALL), _graph(), Path(folder) / "last.pt", group=group, script={4: {"set": {"window": 3}}}
    )
    FAMILY.build = make
    assert made == [4, 3]
    refused = [row["data"]["reason"] for row in done.recorder.tables["events"] if row["kind"] == "refused"]
    return done.losses, refused, quiet


def test_a_rebuild_that_fails_on_one_rank_is_refused_on_all(tmp_path_factory: pytest.TempPathFactory) -> None:
    _graph()
    found = in_groups(_on_rank, 2, str(tmp_path_factory.mktemp("rebuild")))
    for losses, _, quiet in found:
        assert losses == quiet
    assert found[0][1][0].startswith("rank 1 could not build it: MemoryError: no room. Cannot allocate memory")
