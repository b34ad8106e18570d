"""The loop on two processes: interruption, knobs, refusal, waiting, and failures that every rank sees."""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import NotAvailableError, NotFiniteError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import Group, SoloGroup
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.testing.processes import join_group, run_ranks
from dtdg_lab.testing.training import Trained, train_in_memory
from dtdg_lab.training import build
from tests import factories

RANKS, STEPS, SLOW_S = 2, 5, 0.4
HALTED = (0, 4, 6)  # the first step, the last of an epoch, and one between two changes
SMALL = {**factories.SMALL, "system": "psg", "parts": 2, "epochs": 2}
SCRIPT = {2: {"set": {"group_window": 6}}, 6: {"set": {"learning_rate": 0.1}}}


def _train(group: Group, folder: Path, graph: DynamicGraph, config: RunConfig, **how: Any) -> Trained:
    group.barrier()  # rank 0 may still be writing the checkpoint that another one reads
    return train_in_memory(config, graph, folder / "last.pt", group=group, **how)


def _to_dict(done: Trained) -> dict[str, Any]:
    recorder = done.recorder
    return {
        "losses": done.losses,
        "parameters": done.parameters,
        "knobs": recorder.events("settings"),
        "refused": recorder.events("refused"),
        "steps": recorder.tables["steps"],
        "state": done.outcome.state,
        "evaluations": recorder.tables["evaluations"],
        "changed": dict(done.config.flat),
    }


def _interrupted(group: Group, folder: Path, graph: DynamicGraph, config: RunConfig) -> list[tuple]:
    """Stopped after some step and resumed: losses of both halves, and the last parameters."""
    halves = []
    for step in HALTED:
        before = {k: v for k, v in SCRIPT.items() if k < step}
        halting = {**before, step: {**SCRIPT.get(step, {}), "stop": True}}
        first = _train(group, folder, graph, config, script=halting)
        after = {k: v for k, v in SCRIPT.items() if k > step}
        second = _train(group, folder, graph, config, script=after, first_step=step + 1, resume=True)
        halves.append((first.losses, second.losses, second.parameters))
    return halves


def _overflow(group: Group, folder: Path, graph: DynamicGraph, config: RunConfig) -> str:
    features = np.array(graph.features)
    features[6] = 3e37
    bad = DynamicGraph("bad", graph.snapshots, features, graph.targets, graph.persistence, "test", 1)
    try:
        _train(group, folder, bad, config.replace(model="evolvegcn-o"))
    except NotFiniteError as error:
        return str(error)
    return "finished"


def _one_cannot_build(group: Group, folder: Path, graph: DynamicGraph, config: RunConfig) -> Trained:
    """An epoch knob that the last rank's machine refuses: only its second build fails."""
    made, make_task = itertools.count(), build.make_task

    def make_or_not(*given: Any, **how: Any) -> Any:  # after what ranks agree on first, as whatever a machine may lack
        if next(made) == 1 and group.rank == group.size - 1:
            raise NotAvailableError("this machine lacks something")
        return make_task(*given, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "make_task", make_or_not)
        return _train(group, folder, graph, config, script={1: {"set": {"group_window": 6}}})


def everything(rank: int, ranks: int, address: str, folder: Path) -> dict[str, Any]:
    """All stories on one rank."""
    group = join_group(rank, ranks, address) if ranks > 1 else SoloGroup()
    config = RunConfig(**SMALL, ranks=ranks)
    graph = load_for(config)
    found: dict[str, Any] = {
        "whole": _to_dict(_train(group, folder, graph, config, script=SCRIPT)),
        "untouched": _to_dict(_train(group, folder, graph, config)),
    }
    if ranks == 1:
        return found
    found |= {
        "interrupted": _interrupted(group, folder, graph, config),
        "refused": _to_dict(_train(group, folder, graph, config, script={1: {"set": {"group_window": 20}}})),
        "paused": _to_dict(_train(group, folder, graph, config, script={2: {"pause": True}, 5: {"pause": False}})),
        "one refuses": _to_dict(_one_cannot_build(group, folder, graph, config)),
        "overflow": _overflow(group, folder, graph, config),
    }
    slow = {"slow_rank": ranks - 1, "slow_ms": 1e3 * SLOW_S, "epochs": 1}
    found["slow"] = _to_dict(_train(group, folder, graph, config.replace(**slow)))
    group.close()
    return found


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run_ranks(everything, RANKS, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same two-part plan in one process."""
    return everything(0, 1, "", tmp_path_factory.mktemp("alone"))


def _same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_ranks_hold_the_same_bits(ranks: list[dict[str, Any]]) -> None:
    for story in ("whole", "refused", "untouched", "paused", "slow"):
        assert ranks[0][story]["losses"] == ranks[1][story]["losses"]
        assert _same(ranks[0][story]["parameters"], ranks[1][story]["parameters"])


def test_interrupted_and_resumed_is_the_same_run(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        whole = found["whole"]
        assert len(whole["losses"]) > STEPS
        for step, (first, second, parameters) in zip(HALTED, found["interrupted"], strict=True):
            assert len(first) == step + 1
            assert first + second == whole["losses"]
            assert _same(parameters, whole["parameters"])


def test_two_ranks_are_one_process_with_the_same_plan(ranks: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    assert ranks[0]["untouched"]["losses"][0] == pytest.approx(alone["untouched"]["losses"][0], rel=1e-5)
    for story in ("whole", "untouched"):
        assert ranks[0][story]["losses"] == pytest.approx(alone[story]["losses"], rel=1e-3)
        for row, wanted in zip(ranks[0][story]["evaluations"], alone[story]["evaluations"], strict=True):
            assert (row["step"], row["split"]) == (wanted["step"], wanted["split"])
            assert row["loss"] == pytest.approx(wanted["loss"], rel=1e-3)
    assert ranks[1]["whole"]["evaluations"] == []  # rank 0 writes for all


def test_every_rank_tells_the_same_knobs(ranks: list[dict[str, Any]]) -> None:
    described = [
        [(event["step"], event["data"]["changes"], event["data"]["when"]) for event in found["whole"]["knobs"]]
        for found in ranks
    ]
    assert described[0] == described[1] == [(5, {"group_window": 6}, "epoch"), (7, {"learning_rate": 0.1}, "step")]


def test_a_refused_knob_leaves_all_ranks_as_they_were(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert found["refused"]["losses"] == found["untouched"]["losses"]
        assert _same(found["refused"]["parameters"], found["untouched"]["parameters"])
        assert found["refused"]["knobs"] == []
        assert found["refused"]["changed"]["group_window"] == 4
    (event,) = ranks[0]["refused"]["refused"]
    assert "group_window=20" in event["data"]["reason"]


def test_a_knob_that_one_rank_cannot_follow_is_refused_by_all(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert found["one refuses"]["losses"] == found["untouched"]["losses"]
        assert _same(found["one refuses"]["parameters"], found["untouched"]["parameters"])
    (event,) = ranks[0]["one refuses"]["refused"]
    assert event["data"] == {
        "version": 1,
        "changes": {"group_window": 6},
        "reason": "rank 1 could not build it: this machine lacks something",
    }


def test_pausing_changes_nothing(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0]["paused"]["losses"] == ranks[0]["untouched"]["losses"]


def test_all_ranks_stop_at_the_step_whose_loss_is_not_finite(ranks: list[dict[str, Any]]) -> None:
    said = {found["overflow"] for found in ranks}
    assert len(said) == 1
    assert "at step 1 (epoch 0)" in said.pop()  # groups 2 and 3: the latter is the first with snapshot 6


def test_a_slowed_rank_computes_and_the_other_waits(ranks: list[dict[str, Any]]) -> None:
    quick, slow = ([row for row in found["slow"]["steps"]] for found in ranks)
    assert min(row["compute_s"] for row in slow) >= SLOW_S
    longer_s = [late["compute_s"] - early["compute_s"] for late, early in zip(slow, quick, strict=True)]
    waited_s = statistics.median(row["wait_s"] for row in quick)
    assert waited_s > 0.5 * SLOW_S
    assert waited_s == pytest.approx(statistics.median(longer_s), rel=0.2)
    assert statistics.median(row["wait_s"] for row in slow) < 0.2 * waited_s
    assert ranks[0]["slow"]["losses"] == ranks[0]["untouched"]["losses"][:STEPS]
    for row in (*quick, *slow):
        parts_s = [row[f"{p}_s"] for p in ("batch", "transfer", "compute", "wait", "communicate", "update", "control")]
        assert sum(parts_s) == pytest.approx(row["time_s"], rel=0.03)
