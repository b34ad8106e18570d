"""What tests of hybrid batches run on ranks: module-level, so that fresh processes can import it by name."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import RunFailedError, RunStoreError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.averager import Averager
from dtdg_lab.distributed.group import Group
from dtdg_lab.distributed.model_averaging import averager_for
from dtdg_lab.testing.processes import join_group
from dtdg_lab.testing.training import RecordingRecorder, Trained
from dtdg_lab.training import pacing
from dtdg_lab.training.build import RunComponents, build
from tests.distributed.groups import TakenStep, take_step
from tests.hybrid_training import drawn, generators_left, repeated, train

PARTS, STEPS, EPOCHS = 4, 3, 2
SMALL = {
    "dataset": "growing",
    "generated_nodes": 48,
    "generated_edges": 160,
    "generated_snapshots": 50,
    "hidden": 6,
    "device": "cpu",
    "dtype": "float64",
    "optimizer": "sgd",
    "learning_rate": 0.05,
    "epochs": EPOCHS,
    "epoch_batches": STEPS,
    "evaluate_every": 100,
    "parts": PARTS,
    "partitioner": "hash",
}
SYNC = {"system": "dynahb", "exchange": "gradients", "reservoir": False, "batch_policy": "none"}
CASES: list[dict[str, Any]] = [
    {"system": "dbov", "batch_nodes": 0.3, "layers": 2},
    {"system": "dbov", "batch_nodes": 0.3, "model": "dcrnn"},
    {"system": "dbos", "model": "evolvegcn-o", "layers": 2},
    {"system": "dbos", "partitioner": "load_aware", "model": "gatlstm"},
    {**SYNC, "batch_nodes": 0.3, "layers": 3, "batch_state": "cached"},
    {**SYNC, "batch_nodes": 2.0, "batch_snapshots": 4.0, "model": "graphsage"},
    {
        **SYNC,
        "batch_nodes": 0.3,
        "task": "classification",
        "dataset": "sbm",
        "communities": 3,
        "generated_edges": 100,
    },
]
SLOW_MS = 240.0
# whatever pace a busy machine gives the ranks, some steps are left
HALTED_EPOCHS, APART_EPOCHS, LONG_EPOCHS = 9, 15, 12
RUN = {
    **SMALL,
    "system": "dynahb",
    "parts": 2,
    "batch_nodes": 0.3,
    "snapshot_sizes": "0.2 0.4",
    "node_sizes": "0.3 0.6",
    "generators": "threads",
    "average_every_s": 0.005,
    "decide_every": 3,
    "epoch_batches": 10,
    "epochs": 3,
    "fallback_memory_gib": 2.0,
}
TOGETHER = {"exchange": "gradients", "reservoir": False}
LIVE: dict[int, dict[str, Any]] = {
    4: {"set": {"batch_snapshots": 0.4, "batch_nodes": 0.6}},
    8: {"set": {"average_every_s": 0.002}},
    11: {"set": {"batch_nodes": 99.0, "batch_policy": "none"}},
    13: {"pause": True},
    15: {"pause": False},
    17: {"set": {"batch_policy": "none", "reservoir": False}},
    20: {"set": {"batch_policy": "random"}},
}
EPOCH: dict[int, dict[str, Any]] = {
    2: {"set": {"partitioner": "load_aware"}},
    12: {"set": {"exchange": "gradients"}},
    22: {"set": {"exchange": "models"}},
}


def case_config(case: dict[str, Any], ranks: int) -> RunConfig:
    return RunConfig(**{**SMALL, **case, "ranks": ranks})


def built_case(case: dict[str, Any], group: Group) -> RunComponents:
    config = case_config(case, group.size)
    return build(config, load_for(config), group)


def first_steps(case: dict[str, Any], group: Group) -> list[TakenStep]:
    """All steps of two epochs."""
    built, found = built_case(case, group), []
    for epoch in range(EPOCHS):
        for work in built.strategy.epoch(epoch):
            built.strategy.on_step_start(len(found))
            found.append(take_step(built, group, work))
    return found


def all_cases(group: Group, cases: list[int]) -> dict[int, list[TakenStep]]:
    return {case: first_steps(CASES[case], group) for case in cases}


# runs


class Full(RecordingRecorder):
    """A recorder whose disk is full after some steps."""

    def check(self) -> None:
        if len(self.tables["steps"]) >= 8:
            raise RunStoreError("the disk of this rank is full")


def run_config(**settings: Any) -> RunConfig:
    return RunConfig(**{**RUN, "ranks": 2, **settings})


def _to_dict(done: Trained) -> dict[str, Any]:
    tables = done.recorder.tables
    names = ("steps", "rounds", "targets", "decisions", "evaluations", "links", "reservoir")
    return {
        "losses": done.losses,
        "parameters": done.parameters,
        "state": done.outcome.state,
        "drawn": drawn(done),
        "refused": done.recorder.events("refused"),
        "knobs": done.recorder.events("settings"),
        "paused": len(done.recorder.events("paused")),
        "config": dict(done.config.flat),
        "position": done.outcome.position,
        **{name: tables[name] for name in names},
    }


def all_stories(rank: int, ranks: int, address: str, folder: str) -> dict[str, Any]:
    """Every run of two ranks, one after another on one group; the last one fails."""
    group = join_group(rank, ranks, address)
    graph, found = load_for(run_config()), {}

    def go(name: str, *, keep: str | None = None, **how: Any) -> Trained:
        group.barrier()  # rank 0 may still be writing the checkpoint that another one reads
        settings = how.pop("settings", {})
        before = group.bytes_sent
        pacing.averager_for = partial(_averager_for, name)
        done = train(run_config(**settings), graph, Path(folder) / f"{keep or name}.pt", group=group, **how)
        found[name] = {
            **_to_dict(done),
            "sent": group.bytes_sent - before,
            "left": [*generators_left(), *_beating(name)],
        }
        return done

    paced = {"slow_rank": rank_slowed, "slow_ms": 6.0} if (rank_slowed := 1) else {}
    go("together", settings={**TOGETHER, "decide_every": 2})
    chance = {**TOGETHER, "batch_policy": "random", "decide_every": 2, "epochs": 1, "seed": 2, "batch_state": "cached"}
    go("whole", settings=chance)
    go("first half", settings=chance, script={1: {"stop": True}})
    go("second half", keep="first half", resume=True, first_step=2)
    go("live together", settings=TOGETHER, script=LIVE)
    long = {"epochs": LONG_EPOCHS}
    done = go("live", settings={**paced, **long}, script=LIVE)
    go("live again", settings=long, script=LIVE, replay=repeated(done))
    shares, script = {**long, "average_weights": "share"}, {9: {"set": {"learning_rate": 0.02}}}
    done = go("shares", settings={**paced, **shares}, script=script)
    go("shares again", settings=shares, script=script, replay=repeated(done))
    go("decided", settings={**paced, "batch_policy": "random", "decide_every": 2, "epochs": 6})
    go("halted", settings={**paced, "epochs": HALTED_EPOCHS}, script={13: {"stop": True}})
    go("resumed", keep="halted", resume=True, first_step=14)
    stops = {**EPOCH, 35: {"stop": True}}
    go("by epochs", settings={**paced, "epochs": 1000}, script=stops, one_by_one=True)
    go("to models at the end", settings={"exchange": "gradients", "epochs": 1}, script={3: EPOCH[22]})
    fixed = {"batch_policy": "none", "reservoir": False, "average_every_s": 0.02, "epochs": 2}
    apart = {
        **fixed,
        "average_every_s": 0.005,
        "slow_rank": 1,
        "slow_ms": 15.0,
        "epochs": APART_EPOCHS,
        "epoch_batches": 5,
        "optimizer": "adam",
        "learning_rate": 0.01,
    }
    go("from apart", settings=apart, script={14: EPOCH[12]})
    go("validation", settings={"reward_loss": "validation", "evaluate_every": 1, "decide_every": 2})
    go("slowed", settings={**fixed, "slow_rank": 1, "slow_ms": SLOW_MS})
    go("slowed together", settings={**fixed, **TOGETHER, "slow_rank": 1, "slow_ms": SLOW_MS, "epochs": 1})
    found["failed"] = _fails(group, graph, Path(folder))
    return found


def _averager_for(run: str, *given: Any, name: str, **more: Any) -> Averager:
    """Runs of these tests share a store, on which every averager has a name of its own."""
    return averager_for(*given, name=f"{run} {name}", **more)


def _beating(run: str) -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(run)]


def _fails(group: Group, graph: Any, folder: Path) -> dict[str, Any]:
    recorder = Full() if group.rank == 1 else RecordingRecorder()
    pacing.averager_for = partial(_averager_for, "failed")
    settings = {"slow_rank": 1, "slow_ms": 5.0, "epochs": 100, "checkpoint_every_s": 0.01}
    try:
        train(run_config(**settings), graph, folder / "failed.pt", group=group, recorder=recorder)
    except (RunFailedError, RunStoreError) as error:
        return {
            "kind": type(error).__name__,
            "reason": str(error),
            "left": [*generators_left(), *_beating("failed")],
            "steps": len(recorder.tables["steps"]),
        }
    raise AssertionError(f"rank {group.rank} saw no failure")
