"""A run whose ranks average models repeats a change that was refused, though each rank is at a step of its own."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from dtdg_lab.config.catalogue import family
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.averager import Averager
from dtdg_lab.distributed.group import Group
from dtdg_lab.distributed.model_averaging import averager_for
from dtdg_lab.training import pacing
from dtdg_lab.training.rebuilding import Rebuilder
from dtdg_lab.training.replay import RecordedRequest, RunReplay, changes_key
from tests.distributed.groups import in_groups
from tests.distributed.hybrid_on_ranks import run_config
from tests.hybrid_training import train

FAMILY = family("hybrid_batches")
REFUSED = {"partitioner": "load_aware"}
FIXED = {"batch_policy": "none", "reservoir": False, "slow_rank": 1, "slow_ms": 60.0, "epochs": 2}


def _named(run: str, *given: Any, name: str, **more: Any) -> Averager:
    return averager_for(*given, name=f"{run} {name}", **more)


def _on_rank(group: Group, folder: str) -> list[tuple[list[float], list[str], int]]:
    """Losses, reasons and the step of the change, of a run and of its replay, in which the change could be made."""
    config, found = run_config(**FIXED), []
    graph, make, stood = load_for(config), FAMILY.build, list[int]()

    def failing(of: Any) -> Any:
        if of.config["partitioner"] == REFUSED["partitioner"]:
            raise MemoryError("no room")
        return make(of)

    settle = Rebuilder._settle

    def noted(self: Rebuilder, requests: Any) -> Any:
        stood.append(self.state.position.step)
        return settle(self, requests)

    Rebuilder._settle = noted  # type: ignore[method-assign]
    pacing.averager_for, FAMILY.build = partial(_named, "run"), failing
    done = train(config, graph, Path(folder) / "run.pt", group=group, script={4: {"set": REFUSED}})
    FAMILY.build = make
    events = done.recorder.events
    asked, refused = json.loads(group.broadcast_text(json.dumps([events("control_received"), events("refused")])))
    tables = done.recorder.tables
    replay = RunReplay.of(
        tables["rounds"],
        tables["targets"],
        tables["steps"],
        requests=tuple(
            RecordedRequest(row["step"], row["data"]["received_at"], row["data"]["request"]) for row in asked
        ),
        refused={(row["step"], changes_key(row["data"]["changes"])): [row["data"]["reason"]] for row in refused},
    )
    pacing.averager_for = partial(_named, "again")
    again = train(config, graph, Path(folder) / "again.pt", group=group, replay=replay)
    for of, step in zip((done, again), stood, strict=True):
        found.append((of.losses, [row["data"]["reason"] for row in of.recorder.events("refused")], step))
    return found


def test_what_was_refused_between_ranks_at_own_steps_is_refused_again(tmp_path: Path) -> None:
    found = in_groups(_on_rank, 2, str(tmp_path))
    for (losses, _, at), (again, _, _) in found:
        assert losses == again and at > 0
    assert found[0][0][2] != found[1][0][2], "ranks were at steps of their own"
    for refused in found[0][0][1], found[0][1][1]:
        assert [text.split(". ")[0] for text in refused] == ["MemoryError: no room"]
