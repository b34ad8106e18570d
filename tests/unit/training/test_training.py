"""The loop in one process: phases, knobs, interruptions, failures, evaluation."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import os
import subprocess
import sys
import threading
import time
import weakref
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dtdg_lab.cluster.worker import rehearse
from dtdg_lab.config.record_tables import PHASES, rows_of
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import (
    ConfigError,
    DataError,
    NotFiniteError,
    RunStoreError,
    TestPartError,
    UnknownNameError,
    UnsupportedError,
)
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.engine.views.device_sequence import DeviceSequence
from dtdg_lab.engine.views.snapshot_view import SnapshotView
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.sealed import seal_of
from dtdg_lab.models.graph_view import DenseView
from dtdg_lab.records.lines import read_lines
from dtdg_lab.runs.record_writer import RecordWriter
from dtdg_lab.systems.single.events import OverlapProfile, SnapshotTimes
from dtdg_lab.systems.single.strategy import measured
from dtdg_lab.testing.models import run_model
from dtdg_lab.testing.training import RecordingRecorder, Trained, train_in_memory
from dtdg_lab.training.assembly import assemble_trainer
from dtdg_lab.training.build import build
from dtdg_lab.training.checkpoint import Checkpoint
from dtdg_lab.training.checkpointing import LOOK_S, CheckpointManager, LastGood
from dtdg_lab.training.clock import PhaseClock
from dtdg_lab.training.control import LocalControl
from dtdg_lab.training.forward import run_forward
from dtdg_lab.training.position import Position
from dtdg_lab.training.recording import StepRecorder
from dtdg_lab.training.resource_monitor import ResourceMonitor
from tests.stored_runs import write_steps
from tests.thinning import thinned

pytestmark = pytest.mark.usefixtures("one_thread")
# 39 labelled snapshots: 12 train, 3 validate, 24 test. Groups of 4 start at 9 of the 12: 5 steps an epoch on 2 parts.
SMALL = {
    "dataset": "growing",
    "generated_nodes": 24,
    "generated_edges": 80,
    "generated_snapshots": 40,
    "hidden": 4,
    "learning_rate": 0.02,
    "device": "cpu",
}
STEPS = 5
LINK = {"task": "link", "link_share": 0.5, "ranking_negatives": 6}
CLASSES = {"task": "classification", "dataset": "sbm", "communities": 2, "generated_nodes": 40}


def config_of(**changes: Any) -> RunConfig:
    return RunConfig(**{"system": "psg", "parts": 2, "epochs": 2, **SMALL, **changes})


@cache
def graph_of(edge_life: int = 1) -> DynamicGraph:
    return load_for(config_of(edge_life=edge_life))


def train(path: Path, config: RunConfig | None = None, **how: Any) -> Trained:
    return train_in_memory(config or config_of(), graph_of(), path / "last.pt", **how)


def assert_same_bits(one: Trained, other: Trained) -> None:
    assert one.parameters.keys() == other.parameters.keys()
    for name, tensor in one.parameters.items():
        assert torch.equal(tensor, other.parameters[name]), name
    assert one.optimizer["param_groups"] == other.optimizer["param_groups"]
    for key, state in one.optimizer["state"].items():
        for name, value in state.items():
            assert torch.equal(value, other.optimizer["state"][key][name]), (key, name)


# records


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(tmp_path_factory.mktemp("trained"))


def test_phases_touch_and_sum_to_the_step(trained: Trained) -> None:
    steps = trained.recorder.tables["steps"]
    assert [row["step"] for row in steps] == list(range(2 * STEPS))
    assert [row["epoch"] for row in steps] == [0] * STEPS + [1] * STEPS
    for row in steps:
        phases = [p for p in trained.recorder.tables["phases"] if p["step"] == row["step"] and p["phase"] in PHASES]
        assert [phase["phase"] for phase in phases] == list(PHASES)
        for before, after in itertools.pairwise(phases):
            assert before["end_ns"] == after["start_ns"]
        assert all(phase["start_ns"] <= phase["end_ns"] for phase in phases)
        assert phases[-1]["end_ns"] == row["time_ns"]
        assert abs(phases[-1]["end_ns"] / 1e9 - time.time()) < 600  # wall-clock time, not since boot
        total_s = sum(row[f"{phase}_s"] for phase in PHASES)
        assert total_s == pytest.approx(row["time_s"], rel=0.03)
        assert total_s == pytest.approx((phases[-1]["end_ns"] - phases[0]["start_ns"]) * 1e-9, rel=1e-6)


@pytest.mark.parametrize("system", ["psg", "flaredtdg"])
def test_memory_is_probed_after_the_first_epoch_of_every_attempt(tmp_path: Path, system: str) -> None:
    few: dict[str, Any] = {"window": 3} if system == "flaredtdg" else {}
    config = RunConfig(
        system=system,
        dataset="growing",
        epochs=2,
        generated_nodes=40,
        generated_edges=160,
        threads=1,
        hidden=4,
        generated_snapshots=24,
        **few,
    )
    done = train_in_memory(config, load_for(config), tmp_path / "last.pt")
    again = train_in_memory(config, load_for(config), tmp_path / "last.pt", resume=True, changes={"epochs": 4})
    for trained, first in ((done, 0), (again, 2)):
        steps = sum(row["epoch"] == first for row in trained.recorder.tables["steps"])
        start = trained.recorder.tables["steps"][0]["step"]
        assert [row["step"] for row in trained.recorder.events("memory_trace")] == [start + steps]
        shapes = [row["data"]["base_bytes"] for row in trained.recorder.events("trapezoid")]
        assert [size is None for size in shapes] == ([True, False] if system == "flaredtdg" else [])


def test_optimisers_are_torch_s_without_its_compiler() -> None:
    code = """
import sys, torch
from dtdg_lab.kernels.optimizers import OPTIMIZERS
found = {}
for own, kind in [(True, OPTIMIZERS), (False, {"adam": torch.optim.Adam, "sgd": torch.optim.SGD})]:
    for name in kind:
        weight = torch.nn.Parameter(torch.linspace(-1, 1, 9))
        optimizer = kind[name]([weight], lr=0.1)
        for step in range(5):
            optimizer.zero_grad()
            (weight * step).sin().sum().backward()
            optimizer.step()
        optimizer.load_state_dict(optimizer.state_dict())
        found[own, name] = weight.detach()
    assert not own or "torch._dynamo" not in sys.modules, "its import takes a second"
for name in OPTIMIZERS:
    assert torch.equal(found[True, name], found[False, name])
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_a_rehearsed_engine_leaves_its_imports_out_of_collections() -> None:
    imported: list[Any] = []
    rehearse()
    assert not any(each is imported for each in gc.get_objects())


def test_every_step_is_counted(trained: Trained) -> None:
    steps = trained.recorder.tables["steps"]
    assert [row["groups"] for row in steps] == [2, 2, 2, 2, 1] * 2
    assert [row["vertex_snapshots"] for row in steps] == [24 * 4 * row["groups"] for row in steps]
    assert all(row["bytes_sent"] == row["bytes_received"] == 0 for row in steps)
    assert all(row["loss"] == pytest.approx(row["global_loss"], rel=1e-6) for row in steps)
    assert trained.losses[-1] < trained.losses[0]
    (memory,) = [row for row in trained.recorder.tables["memory"] if row["peak_bytes"]]
    assert memory["peak_bytes"] > 24 * 4 * 4


def test_epochs_and_evaluations_are_told(trained: Trained) -> None:
    assert [event["data"]["epoch"] for event in trained.recorder.events("epoch")] == [0, 1]
    described = [(row["step"], row["split"]) for row in trained.recorder.tables["evaluations"]]
    end = 2 * STEPS
    assert described == [(STEPS, "train"), (STEPS, "validation"), *((end, s) for s in ("train", "validation", "test"))]
    assert trained.outcome.state == "finished"


def test_evaluate_every_leaves_out_the_epochs_between(tmp_path: Path) -> None:
    done = train(tmp_path, config_of(epochs=5, evaluate_every=2))
    rows = done.recorder.tables["evaluations"]
    assert [row["step"] // STEPS for row in rows if row["split"] == "validation"] == [2, 4, 5]


def test_single_has_one_step_an_epoch(tmp_path: Path) -> None:
    done = train(tmp_path, config_of(system="single", parts=1, epochs=3))
    assert [row["vertex_snapshots"] for row in done.recorder.tables["steps"]] == [24 * 12] * 3
    assert done.losses[-1] < done.losses[0]


def overlapping(path: Path, **changes: Any) -> Trained:
    return train_in_memory(config_of(**{**OVERLAP, **changes}), graph_of(edge_life=3), path)


OVERLAP = {"system": "pipad", "parts": 1, "edge_life": 3, "dtype": "float64", "protocol": "leaky"}


@pytest.mark.parametrize(
    ("model", "layers"), [("tgcn", 2), ("mpnn-lstm", 1), ("tmgcn", 2), ("graphsage", 2), ("evolvegcn-o", 2)]
)
def test_shared_products_change_no_loss(tmp_path: Path, model: str, layers: int) -> None:
    how = {"model": model, "layers": layers}
    found = overlapping(tmp_path / "shared.pt", **how, shared_snapshots=4).losses
    assert found == pytest.approx(overlapping(tmp_path / "own.pt", **how, system="single").losses, rel=1e-10, abs=0)


def test_the_size_of_groups_is_measured_and_recorded(tmp_path: Path) -> None:
    done = overlapping(tmp_path / "last.pt", model="tgcn", layers=2)
    (data,) = [row["data"] for row in done.recorder.tables["events"] if row["kind"] == "shared_edges"]
    facts = OverlapProfile.read(data)
    assert facts.sizes == (1, 2, 4, 8) and facts.chosen in facts.sizes and min(facts.seconds) > 0
    assert facts.shares[0] == 1 and 1 > facts.shares[1] >= facts.shares[2] >= facts.shares[3] >= 0
    best = facts.sizes[facts.seconds.index(min(facts.seconds))]
    assert facts.chosen in {1, best} and "forward and backward" in facts.words


def test_the_profile_holds_the_operators_of_one_size_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a size are freed before the next ones are made, without waiting for the garbage collector."""
    make, made, alive = DeviceSequence._make, [], []

    def noted(self: DeviceSequence, snapshots: range) -> SnapshotView:
        view = make(self, snapshots)
        made.append((self, weakref.ref(view._operators)))
        alive.append(len({id(owner) for owner, operators in made if operators() is not None}))
        return view

    monkeypatch.setattr(DeviceSequence, "_make", noted)
    sequence = DeviceSequence(graph_of(edge_life=3), device="cpu", dtype=torch.float64, kernel="torch")
    gc.disable()
    try:
        found = measured(sequence, range(12), [("gcn", 4), ("mean", 4)], seed=0)
    finally:
        gc.enable()
    assert found.sizes == (1, 2, 4, 8) and len({id(owner) for owner, _ in made}) == 4
    assert max(alive) == 1


def test_a_resumed_run_keeps_the_measured_size(tmp_path: Path) -> None:
    config, path = config_of(**OVERLAP, model="tgcn", layers=2, epochs=3), tmp_path / "last.pt"
    first = train_in_memory(config, graph_of(edge_life=3), path, script={0: {"stop": True}})
    second = train_in_memory(config, graph_of(edge_life=3), path, first_step=1, resume=True)
    one, other = (
        next(row["data"] for row in done.recorder.tables["events"] if row["kind"] == "shared_edges")
        for done in (first, second)
    )
    assert one == other and one["sizes"]


def test_nothing_is_measured_where_no_pull_is_learned(tmp_path: Path) -> None:
    done = overlapping(tmp_path / "last.pt", model="tgcn")
    (data,) = [row["data"] for row in done.recorder.tables["events"] if row["kind"] == "shared_edges"]
    assert data["chosen"] == 1 and "no aggregation of the model depends on parameters" in OverlapProfile.text(data)


def test_one_process_times_the_forward_pass_of_each_snapshot(tmp_path: Path) -> None:
    done = overlapping(tmp_path / "last.pt", system="single", model="tgcn")
    (data,) = [row["data"] for row in done.recorder.tables["events"] if row["kind"] == "snapshot_times"]
    (parts,) = [row["data"] for row in done.recorder.tables["events"] if row["kind"] == "parts"]
    times = SnapshotTimes.read(data)
    assert [times.first, times.first + len(times.seconds) - 1] == [parts["train"]["first"], parts["train"]["last"]]
    assert min(times.seconds) > 0 and times.words.startswith(f"Snapshot {times.longest} takes longest: ")


def test_models_whose_pulls_cannot_be_shared_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="the model aggregates by attention"):
        overlapping(tmp_path / "last.pt", model="gatlstm")
    for model in ("dcrnn", "evolvegcn-h"):
        with pytest.raises(UnsupportedError, match="does not work with system 'pipad'"):
            config_of(**OVERLAP, model=model)


# interruption: stop, resume, and compare bits

STORIES: dict[str, dict[int, dict[str, Any]]] = {
    "nothing else": {},
    "a step knob": {3: {"set": {"learning_rate": 0.1}}},
    "an epoch knob": {2: {"set": {"group_window": 6}}},
    "both, and more epochs": {
        1: {"set": {"scheduler": "longest_first", "learning_rate": 0.05}},
        6: {"set": {"epochs": 3}},
    },
}


# Within an epoch, with its last step, with the step that asks for a change, and with the last step of all
INTERRUPTED: list[tuple[dict[str, Any], str, tuple[int, ...]]] = [
    ({"model": "tgcn"}, "nothing else", (0, 4)),
    ({"model": "tgcn"}, "a step knob", (3,)),
    ({"model": "tgcn"}, "an epoch knob", (2, 8)),
    ({"model": "tgcn"}, "both, and more epochs", (1, 6, 14)),
    ({"model": "evolvegcn-o"}, "both, and more epochs", (3,)),
    (LINK, "an epoch knob", (4,)),
    (CLASSES, "nothing else", (7,)),
]


@pytest.mark.parametrize(
    ("settings", "story", "steps"),
    thinned([*INTERRUPTED, *((*case, ()) for *case, _ in INTERRUPTED)], [1]),
    ids=str,
)
def test_interrupted_at_any_step_and_resumed_is_the_same_run(
    tmp_path: Path, settings: dict[str, Any], story: str, steps: tuple[int, ...]
) -> None:
    """Interrupted at the steps given; at every step where none is."""
    config, script = config_of(**settings), STORIES[story]
    graph = load_for(config)

    def train(path: Path, config: RunConfig, **how: Any) -> Trained:
        return train_in_memory(config, graph, path / "last.pt", **how)

    whole = train(tmp_path, config, script=script)
    assert whole.outcome.state == "finished"
    for step in steps or range(len(whole.losses)):
        before = {k: v for k, v in script.items() if k < step}
        halting = {**before, step: {**script.get(step, {}), "stop": True}}
        first = train(tmp_path, config, script=halting)
        assert first.outcome.state == "stopped"
        assert first.outcome.position.step == len(first.losses) == step + 1
        after = {k: v for k, v in script.items() if k > step}
        second = train(tmp_path, config, script=after, first_step=step + 1, resume=True)
        assert first.losses + second.losses == whole.losses
        assert_same_bits(second, whole)
        assert second.outcome == whole.outcome
        assert second.config == whole.config


@pytest.mark.slow
def test_a_checkpoint_taken_before_the_last_step_s_epoch_ends_is_gone_on_from(tmp_path: Path) -> None:
    """What a killed process leaves: the last checkpoint lies between the last step of an epoch and its end."""
    whole = train(tmp_path, script={2: {"set": {"group_window": 6}}})
    recorder = RecordingRecorder()
    config = config_of(checkpoint_every_s=0)
    kept: dict[int, bytes] = {}
    taken = recorder.row

    def keep(table: str, values: tuple[Any, ...]) -> None:
        taken(table, values)
        if table == "events" and values[3] == "checkpoint":
            kept[values[0]] = (tmp_path / "last.pt").read_bytes()

    recorder.row = keep
    train(tmp_path, config, script={2: {"set": {"group_window": 6}}}, recorder=recorder)
    assert set(range(1, STEPS + 1)) <= kept.keys()
    for step in (STEPS - 1, STEPS, STEPS + 1):  # at STEPS the epoch is done and not yet over
        (tmp_path / "last.pt").write_bytes(kept[step])
        rest = train(tmp_path, config, resume=True, first_step=step)
        assert rest.losses == whole.losses[step:]
        for name, tensor in rest.parameters.items():
            assert torch.equal(tensor, whole.parameters[name])


def test_resuming_within_an_epoch_ends_it_before_its_plan_changes(tmp_path: Path) -> None:
    train(tmp_path, script={3: {"stop": True}})  # after step 3 of 5; the new plan has 2 steps an epoch
    rest = train(tmp_path, resume=True, first_step=4, changes={"groups_per_rank": 4, "learning_rate": 0.5})
    assert [row["epoch"] for row in rest.recorder.tables["steps"]] == [0, 1, 1]
    (knob,) = rest.recorder.events("settings")
    assert (knob["step"], knob["data"]["changes"]) == (5, {"groups_per_rank": 4})
    assert rest.optimizer["param_groups"][0]["lr"] == 0.5
    assert rest.config["groups_per_rank"] == 4


@pytest.mark.slow
def test_a_finished_run_goes_on_for_more_epochs(tmp_path: Path) -> None:
    train(tmp_path)
    more = train(tmp_path, resume=True, changes={"epochs": 4})
    longer = train(tmp_path, config_of(epochs=4))
    assert more.losses == longer.losses[2 * STEPS :]
    assert_same_bits(more, longer)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"hidden": 8}, ConfigError, "cannot change during"),
        ({"group_windw": 8}, UnknownNameError, "group_window"),
        ({"learning_rate": -1.0}, ConfigError, "out of range"),
    ],
)
def test_resuming_refuses_what_cannot_change(tmp_path: Path, changes: dict, error: type, said: str) -> None:
    train(tmp_path, script={1: {"stop": True}})
    with pytest.raises(error, match=said):
        train(tmp_path, resume=True, changes=changes)


def test_resuming_without_a_checkpoint_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunStoreError, match="no checkpoint"):
        train(tmp_path, resume=True)
    (tmp_path / "last.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(RunStoreError, match="not a readable checkpoint"):
        train(tmp_path, resume=True)


def _rewritten(path: Path, **fields: Any) -> None:
    """The checkpoint as another version would have written it; None takes a field away."""
    data = torch.load(path, weights_only=True)
    torch.save({name: value for name, value in {**data, **fields}.items() if value is not None}, path)


@pytest.mark.parametrize("model", ["evolvegcn-o", "tgcn"])
def test_a_checkpoint_of_another_version_is_refused_with_what_to_do(tmp_path: Path, model: str) -> None:
    config, path = config_of(model=model), tmp_path / "last.pt"
    train(tmp_path, config, script={1: {"stop": True}})
    kept = Checkpoint.load(path)
    first, *rest = kept.model
    said = r"does not fit the \w+ .*written by another version.*environment\.json.*new run"
    for parameters in (
        {name: kept.model[name] for name in rest},
        {**kept.model, "layers.0.gates": torch.zeros(3)},
        {**kept.model, first: torch.zeros(2, 2, 2)},
    ):
        _rewritten(path, model=parameters)
        with pytest.raises(RunStoreError, match=said) as caught:
            train(tmp_path, config, resume=True, first_step=2)
        assert caught.value.__cause__ is not None
        with pytest.raises(RunStoreError, match=said):
            run_forward(config, graph_of(), path)
    groups = kept.optimizer["param_groups"]
    _rewritten(path, model=kept.model, optimizer={**kept.optimizer, "param_groups": [*groups, *groups]})
    with pytest.raises(RunStoreError, match=said):
        train(tmp_path, config, resume=True, first_step=2)
    run_forward(config, graph_of(), path)  # looking at a model needs no optimiser


def test_resuming_on_other_data_is_refused_with_both_hashes(tmp_path: Path) -> None:
    train(tmp_path, script={1: {"stop": True}})
    path, graph = tmp_path / "last.pt", graph_of()
    assert Checkpoint.load(path).data_hash == graph.data_hash
    other = dataclasses.replace(graph, targets=np.array(graph.targets) + 1)
    with pytest.raises(
        RunStoreError, match=rf"{graph.data_hash[:16]}, but 'growing' now has {other.data_hash[:16]}.*new run"
    ):
        train_in_memory(config_of(), other, path, resume=True, first_step=2)
    renamed = dataclasses.replace(graph, name="the same data by another name")
    rest = train_in_memory(config_of(), renamed, path, resume=True, first_step=2)
    assert rest.outcome.state == "finished"


def test_a_checkpoint_that_names_no_data_is_gone_on_from_and_told(tmp_path: Path) -> None:
    whole = train(tmp_path)
    train(tmp_path, script={1: {"stop": True}})
    named = train(tmp_path, resume=True, first_step=2)
    train(tmp_path, script={1: {"stop": True}})
    _rewritten(tmp_path / "last.pt", data_hash=None)
    rest = train(tmp_path, resume=True, first_step=2)
    assert whole.losses[2:] == rest.losses == named.losses
    described = [done.recorder.events("resumed")[0]["data"]["data_checked"] for done in (named, rest)]
    assert described == [True, False]
    assert Checkpoint.load(tmp_path / "last.pt").data_hash == graph_of().data_hash


# knobs


def test_the_learning_rate_rules_from_the_next_step_on(tmp_path: Path) -> None:
    config = config_of(optimizer="sgd", learning_rate=0.0)
    done = train(tmp_path, config, script={3: {"set": {"learning_rate": 0.1}}})
    still = train(tmp_path, config)
    moved = [a != b for a, b in zip(done.losses, still.losses, strict=True)]
    assert moved == [False] * 5 + [True] * 5  # update of step 4 is the first with it; step 5 sees its effect
    (knob,) = done.recorder.events("settings")
    assert (knob["step"], knob["data"]["when"], knob["data"]["changes"]) == (4, "step", {"learning_rate": 0.1})
    assert [row["control_version"] for row in done.recorder.tables["steps"]] == [0] * 3 + [1] * 7


KNOBS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"scheduler": "longest_first"}),
    ({}, {"epochs": 3}),
    ({}, {"group_window": 6}),
    ({}, {"group_stride": 2, "loss_at": "all"}),
    ({"parts": 1}, {"system": "single"}),
    ({"parts": 1, "system": "single"}, {"system": "psg"}),
]


@pytest.mark.parametrize(("start", "changes"), thinned(KNOBS, [5]), ids=str)
def test_an_epoch_knob_is_resuming_with_it(tmp_path: Path, start: dict[str, Any], changes: dict[str, Any]) -> None:
    """Rebuilding keeps parameters, moments and position: the same bits as stop, checkpoint, resume with the change."""
    config = config_of(**start)
    steps = len(train(tmp_path, config.replace(epochs=1)).losses)
    asked = max(0, steps - 2)
    live = train(tmp_path, config, script={asked: {"set": changes}})
    train(tmp_path, config, script={steps - 1: {"stop": True}})
    resumed = train(tmp_path, config, resume=True, changes=changes, first_step=steps)
    assert live.losses[steps:] == resumed.losses
    assert len(resumed.losses) > 0
    assert_same_bits(live, resumed)
    assert live.config == resumed.config == config.replace(**changes)
    counts = {int(state["step"]) for state in live.optimizer["state"].values()}
    assert counts == {len(live.losses)}  # Adam went on counting
    (knob,) = live.recorder.events("settings")
    assert (knob["step"], knob["data"]["when"], knob["data"]["changes"]) == (steps, "epoch", changes)
    assert len([row for row in live.recorder.tables["phases"] if row["phase"] == "rebuild"]) == 1


@pytest.mark.slow
def test_a_plan_knob_changes_the_steps(tmp_path: Path) -> None:
    done = train(tmp_path, script={0: {"set": {"group_window": 6, "groups_per_rank": 2}}})
    assert [row["groups"] for row in done.recorder.tables["steps"]] == [2, 2, 2, 2, 1, 4, 3]


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [1, 2])
def test_fewer_epochs_end_the_run_and_more_in_the_last_epoch_extend_it(tmp_path: Path, epochs: int) -> None:
    shorter = train(tmp_path, config_of(epochs=4), script={1: {"set": {"epochs": epochs}}})
    assert len(shorter.losses) == epochs * STEPS
    longer = train(tmp_path, config_of(epochs=1), script={STEPS - 1: {"set": {"epochs": 1 + epochs}}})
    assert len(longer.losses) == (1 + epochs) * STEPS
    for done in (shorter, longer):
        rows = done.recorder.tables["evaluations"]
        assert [row["step"] for row in rows if row["split"] == "test"] == [len(done.losses)]
        assert [row["step"] // STEPS for row in rows if row["split"] == "validation"] == [
            *range(1, len(done.losses) // STEPS + 1)
        ]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"group_window": 12}, "12 snapshots, room for 1 groups of group_window=12"),
        ({"group_window": 20}, "12 snapshots, room for 0 groups of group_window=20"),
        ({"group_window": 7, "group_stride": 6}, "room for 1 groups of group_window=7.*13 snapshots, are needed"),
    ],
    ids=str,
)
def test_fewer_than_two_groups_are_refused_with_the_numbers(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        build(config_of(**settings), graph_of(), SoloGroup())
    assert len(build(config_of(group_window=11, parts=1), graph_of(), SoloGroup()).strategy.epoch(0)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"group_window": 20}, {"system": "single"}], ids=str)
def test_a_refused_knob_leaves_the_run_as_it_was(tmp_path: Path, changes: dict[str, Any]) -> None:
    untouched = train(tmp_path)
    done = train(tmp_path, script={2: {"set": changes}})
    assert done.losses == untouched.losses
    assert_same_bits(done, untouched)
    (refused,) = done.recorder.events("refused")
    assert (refused["step"], refused["data"]["changes"]) == (STEPS, changes)
    assert next(iter(changes)) in refused["data"]["reason"] or "single" in refused["data"]["reason"]
    assert done.recorder.events("settings") == []
    assert done.config == config_of()


def test_pausing_holds_the_run_between_two_steps_and_changes_nothing_else(tmp_path: Path) -> None:
    untouched = train(tmp_path)
    # the exchanges of control rounds count as well: paused after step 2, three rounds, then on
    done = train(tmp_path, script={2: {"pause": True}, 6: {"pause": False}})
    assert done.losses == untouched.losses
    assert_same_bits(done, untouched)
    assert [len(done.recorder.events(kind)) for kind in ("paused", "unpaused")] == [1, 1]
    assert [event["step"] for kind in ("paused", "unpaused") for event in done.recorder.events(kind)] == [3, 3]


@pytest.mark.slow
def test_a_knob_of_a_paused_run_rules_when_it_goes_on(tmp_path: Path) -> None:
    script = {2: {"pause": True}, 4: {"set": {"learning_rate": 0.1, "group_window": 6}}, 6: {"pause": False}}
    done = train(tmp_path, script=script)
    plain = train(tmp_path, script={2: {"set": {"learning_rate": 0.1, "group_window": 6}}})
    assert done.losses == plain.losses
    assert [(event["step"], event["data"]["when"]) for event in done.recorder.events("settings")] == [
        (3, "step"),
        (5, "epoch"),
    ]


def test_a_paused_run_can_be_stopped_and_resumed(tmp_path: Path) -> None:
    untouched = train(tmp_path)
    first = train(tmp_path, script={2: {"pause": True}, 4: {"stop": True}})
    assert (first.outcome.state, first.outcome.position.step) == ("stopped", 3)
    second = train(tmp_path, resume=True, first_step=3)
    assert first.losses + second.losses == untouched.losses


def test_a_person_pauses_and_goes_on(tmp_path: Path) -> None:
    """Requests from another thread, as the kernel's: no step while paused, and no long wait after."""
    recorder, control, config = RecordingRecorder(), LocalControl(), config_of(epochs=10_000)
    trainer = assemble_trainer(
        config,
        graph_of(),
        SoloGroup(),
        recorder=recorder,
        control=control,
        checkpoint=tmp_path / "last.pt",
        resource_monitor=ResourceMonitor(config, "cpu", 0, 1, recorder),
    )
    outcomes: list[Any] = []
    thread = threading.Thread(target=lambda: outcomes.append(trainer.run()))
    thread.start()

    def seen(kind: str) -> None:
        limit_s = time.monotonic() + 20
        while not recorder.events(kind) and time.monotonic() < limit_s:
            time.sleep(0.005)
        assert recorder.events(kind), kind

    seen("epoch")
    control.request({"pause": True})
    seen("paused")
    time.sleep(0.1)
    steps = len(recorder.tables["steps"])
    time.sleep(0.7)  # longer than a control round
    assert len(recorder.tables["steps"]) == steps
    control.request({"pause": False})
    asked_s = time.monotonic()
    seen("unpaused")
    assert time.monotonic() - asked_s < 0.4  # woken, not found at the next round
    control.request({"stop": True})
    thread.join(20)
    assert outcomes[0].state == "stopped"
    assert len(recorder.tables["steps"]) > steps
    assert Checkpoint.load(tmp_path / "last.pt").position == outcomes[0].position


# failures


def _overflowing(graph: DynamicGraph, t: int) -> DynamicGraph:
    features = np.array(graph.features)
    features[t] = 3e37  # finite, and its square is not
    return DynamicGraph(graph.name, graph.snapshots, features, graph.targets, graph.persistence, "test", 1)


def test_a_loss_that_is_not_finite_ends_the_run_before_the_update(tmp_path: Path) -> None:
    config = config_of(model="evolvegcn-o", parts=1, checkpoint_every_s=0)
    recorder, spoilt = RecordingRecorder(), _overflowing(graph_of(), 6)
    spoilt.__dict__["data_hash"] = graph_of().data_hash  # so that the checkpoint can be gone on from without it
    with pytest.raises(NotFiniteError, match=r"at step 3 \(epoch 0\).*learning_rate \(now 0\.02\)"):
        # one group a step: group 3 holds snapshots 3 to 6 and is the first with the sixth
        train_in_memory(config, spoilt, tmp_path / "last.pt", recorder=recorder)
    assert [row["step"] for row in recorder.tables["steps"]] == [0, 1, 2]
    kept = Checkpoint.load(tmp_path / "last.pt")
    assert kept.position.step == 2  # that of step 3 waited for a loss that showed it to be of use
    assert all(torch.isfinite(tensor).all() for tensor in kept.model.values())
    rest = train_in_memory(config, graph_of(), tmp_path / "last.pt", resume=True, changes={"learning_rate": 0.001})
    assert np.isfinite(rest.losses).all()


def test_a_learning_rate_out_of_all_bounds_ends_in_an_error_and_a_finite_checkpoint(tmp_path: Path) -> None:
    config = config_of(model="evolvegcn-o", optimizer="sgd", learning_rate=100.0, epochs=50, checkpoint_every_s=0)
    with pytest.raises(NotFiniteError, match=r"at step \d+"):
        train(tmp_path, config)
    kept = Checkpoint.load(tmp_path / "last.pt")
    assert all(torch.isfinite(tensor).all() for tensor in kept.model.values())


@pytest.mark.slow
def test_a_run_that_diverges_keeps_a_checkpoint_that_is_of_use(tmp_path: Path) -> None:
    config = config_of(optimizer="sgd", epochs=100, checkpoint_every_s=0)
    with pytest.raises(NotFiniteError):
        train(tmp_path, config, script={40: {"set": {"learning_rate": 100.0}}})
    kept = Checkpoint.load(tmp_path / "last.pt")
    assert 38 <= kept.position.step <= 42
    changes = {"learning_rate": 0.001, "epochs": 10}
    rest = train(tmp_path, config, resume=True, first_step=kept.position.step, changes=changes)
    assert max(rest.losses) < 3 * max(train(tmp_path).losses)


def test_a_checkpoint_waits_until_earlier_steps_are_recorded(tmp_path: Path) -> None:
    """Else a kill at that moment would lose them: a resumed run does not repeat them."""
    train(tmp_path)
    present, written = Checkpoint.load(tmp_path / "last.pt"), tmp_path / "kept.pt"
    recorded_to = 3
    keeper = LastGood(written, lambda step: step <= recorded_to)
    for step in range(1, 7):
        keeper.after_step(1.0, 0.0, lambda step=step: dataclasses.replace(present, position=Position(0, step, step)))
    assert Checkpoint.load(written).position.step == 4, "its last step is the third, counted from 0"
    recorded_to = 100
    time.sleep(LOOK_S)
    keeper.after_step(1.0, 0.0, lambda: present)
    assert Checkpoint.load(written).position.step == 5, "the one that waited"


def test_a_checkpoint_waits_for_the_rows_of_all_ranks_that_make_its_steps(tmp_path: Path) -> None:
    train(tmp_path)
    present, met = Checkpoint.load(tmp_path / "last.pt"), []
    own, other = (RecordWriter(tmp_path / f"rank{rank}.jsonl", rank, 1, flush_s=60) for rank in (0, 1))
    group: Any = SimpleNamespace(rank=0, size=2, barrier=lambda: met.append(len(read_steps(0))))
    journal = StepRecorder(own, PhaseClock("cpu"), SimpleNamespace(between=lambda *_: None), 0)
    file, state = (
        tmp_path / "kept.pt",
        SimpleNamespace(
            group=group,
            strategy=None,
            synchronous=True,
            position=present.position,
            config={"checkpoint_every_s": 0.0},
            checkpoint=lambda carried=None: present,
        ),
    )
    keeper = CheckpointManager(file, state, journal)

    def read_steps(rank: int) -> list[int]:
        lines = read_lines(tmp_path / f"rank{rank}.jsonl")
        return [row["step"] for line in lines if line["table"] == "steps" for row in rows_of(line)]

    for writer in (own, other):
        write_steps(writer, 0, present.position.step)
    for _ in range(3):
        time.sleep(LOOK_S)
        keeper.after_step(1.0)
    assert not file.exists() and read_steps(1) == []
    other.flush()
    time.sleep(LOOK_S)
    keeper.after_step(1.0)
    assert file.exists() and read_steps(0)[-1] == present.position.step - 1, "own rows are written before"
    write_steps(own, present.position.step, present.position.step + 4)
    keeper.save(together=True)
    assert met == [present.position.step + 4], "rows are written before ranks meet"
    state.synchronous = False
    file.unlink()
    other.close()
    (tmp_path / "rank1.jsonl").unlink()
    for _ in range(2):
        keeper.after_step(1.0)
    assert file.exists(), "ranks with steps of their own are not waited for"
    own.close()


def test_parameters_that_are_not_finite_are_never_saved(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    train(tmp_path)
    good, before = Checkpoint.load(path), path.read_bytes()
    name = next(iter(good.model))
    good.model[name].view(-1)[0] = float("nan")
    with pytest.raises(NotFiniteError, match=name):
        good.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["last.pt"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full, the device that is always full")
def test_a_full_disk_ends_the_run_and_keeps_the_checkpoint_before(tmp_path: Path) -> None:
    first = train(tmp_path, script={1: {"stop": True}})
    before = (tmp_path / "last.pt").read_bytes()
    (tmp_path / "last.part").symlink_to("/dev/full")
    with pytest.raises(RunStoreError, match=r"last\.pt cannot be written.*[Nn]o space left.*run\.resume") as caught:
        train(tmp_path, resume=True, first_step=2)
    assert caught.value.__cause__ is not None
    assert (tmp_path / "last.pt").read_bytes() == before
    assert os.listdir(tmp_path) == ["last.pt"]
    assert Path("/dev/full").exists()
    assert first.losses + train(tmp_path, resume=True, first_step=2).losses == train(tmp_path).losses


def test_a_checkpoint_path_that_is_taken_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "last.pt").mkdir()
    with pytest.raises(RunStoreError, match="cannot be written"):
        train(tmp_path)
    assert os.listdir(tmp_path) == ["last.pt"]


def test_records_that_cannot_be_written_end_the_run(tmp_path: Path) -> None:
    with pytest.raises(RunStoreError, match="records"):
        train(tmp_path, recorder=RecordingRecorder(RunStoreError("the records cannot be written")))


@pytest.mark.slow
def test_a_slowed_rank_shows_in_compute(tmp_path: Path) -> None:
    config = config_of(slow_rank=0, slow_ms=100.0, epochs=1)
    done = train(tmp_path, config, script={2: {"set": {"slow_rank": -1}}})
    spent_s = done.recorder.column("steps", "compute_s")
    assert min(spent_s[:3]) >= 0.1
    assert min(spent_s[3:]) < 0.1
    assert done.losses == train(tmp_path, config_of(epochs=1)).losses


# evaluation


def _dense(graph: DynamicGraph) -> list[tuple[DenseView, torch.Tensor]]:
    snapshots = []
    for t in range(graph.num_snapshots):
        dense = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
        snapshot = graph.snapshots[t]
        dense[snapshot.rows(), snapshot.indices.astype(np.int64)] = 1.0
        snapshots.append((DenseView(dense), torch.from_numpy(np.array(graph.features[t])).double()))
    return snapshots


def _by_hand(config: RunConfig, graph: DynamicGraph, trained: Any) -> dict[str, float]:
    """Mean squared errors of each split, from dense matrices, starting at zero at 0 or at each split's start."""
    snapshots = _dense(graph)
    targets = torch.from_numpy(np.array(graph.targets)).double()
    built = build(config, graph, SoloGroup())
    built.model.load_state_dict(trained.parameters)
    model = built.model.double()
    splits = {"train": range(12), "validation": range(12, 15), "test": range(15, 39)}
    with torch.no_grad():
        if config.protocol == "warm":
            errors = (run_model(model, snapshots)[0][..., 0] - targets).square().mean(dim=1)
            return {name: errors[list(part)].mean().item() for name, part in splits.items()}
        cold = {name: run_model(model, snapshots[part.start : part.stop])[0][..., 0] for name, part in splits.items()}
        return {
            name: (cold[name] - targets[part.start : part.stop]).square().mean().item() for name, part in splits.items()
        }


@pytest.mark.parametrize("protocol", ["warm", "cold"])
@pytest.mark.parametrize("model", ["tgcn", "evolvegcn-o"])
def test_losses_are_those_computed_by_hand(tmp_path: Path, protocol: str, model: str) -> None:
    config = config_of(model=model, layers=2, protocol=protocol, dtype="float64")
    done = train(tmp_path, config)
    found = {row["split"]: row["loss"] for row in done.recorder.tables["evaluations"] if row["step"] == 2 * STEPS}
    wanted = _by_hand(config, graph_of(), done)
    assert found == pytest.approx(wanted, rel=1e-10)


def test_warm_and_cold_differ_after_the_training_part(tmp_path: Path) -> None:
    found = {}
    for protocol in ("warm", "cold"):
        built = build(config_of(protocol=protocol, dtype="float64"), graph_of(), SoloGroup())
        found[protocol] = {
            row.split: row.loss for row in built.evaluator.evaluate(built.model, ("train", "validation"))
        }
    assert found["warm"]["train"] == found["cold"]["train"]
    assert found["warm"]["validation"] != found["cold"]["validation"]


def test_baselines_are_those_computed_by_hand(trained: Trained) -> None:
    graph, splits = graph_of(), {"train": range(12), "validation": range(12, 15), "test": range(15, 39)}
    targets, persistence = (np.array(a, np.float64) for a in (graph.targets, graph.persistence))
    mean = sum(targets[t].sum() for t in range(12)) / (12 * graph.num_nodes)
    for row in trained.recorder.tables["evaluations"]:
        part = splits[row["split"]]
        today = np.mean([((persistence[t] - targets[t]) ** 2).mean() for t in part])
        constant = np.mean([((mean - targets[t]) ** 2).mean() for t in part])
        assert row["persistence_loss"] == pytest.approx(today, rel=1e-12)
        assert row["mean_loss"] == pytest.approx(constant, rel=1e-12)
        assert row["snapshots"] == len(part)


def test_the_test_part_is_refused_before_the_end() -> None:
    built = build(config_of(), graph_of(), SoloGroup())
    for splits in (("test",), ("train", "test")):
        with pytest.raises(TestPartError, match="when the run is over"):
            built.evaluator.evaluate(built.model, splits)
    assert built.evaluator.evaluate(built.model, ("test",), final=True)[0].snapshots == 24


def test_the_test_part_is_not_read_before_the_end() -> None:
    """Steering reads train and validation only: test labels and features of another world change nothing."""
    graph = graph_of()
    features, targets = np.array(graph.features), np.array(graph.targets)
    features[15:], targets[15:] = 7.0, -3.0
    other = DynamicGraph("other", graph.snapshots, features, targets, graph.persistence, "test", 1)
    rows = []
    for data in (graph, other):
        built = build(config_of(), data, SoloGroup())
        rows.append(built.evaluator.evaluate(built.model, ("train", "validation")))
    assert rows[0] == rows[1]


# tasks

TASKS = [LINK, {**LINK, "link_head": "dot", "negatives": 2}, CLASSES]


def _defined(metrics: dict[str, float | None]) -> dict[str, float]:
    return {name: -1.0 if value is None else value for name, value in metrics.items()}


@pytest.mark.parametrize("protocol", ["warm", "cold"])
@pytest.mark.parametrize("settings", TASKS, ids=str)
def test_scores_of_tasks_are_those_of_dense_matrices(tmp_path: Path, settings: dict[str, Any], protocol: str) -> None:
    """What the task says of predictions is tested by itself; here, that it is asked about the right ones."""
    config = config_of(**settings, protocol=protocol, dtype="float64", epochs=1)
    graph = load_for(config)
    done = train_in_memory(config, graph, tmp_path / "last.pt")
    built, snapshots = build(config, graph, SoloGroup()), _dense(graph)
    built.model.load_state_dict(done.parameters)
    rows = {row["split"]: row for row in done.recorder.tables["evaluations"][-3:]}
    assert rows.keys() == {"train", "validation", "test"}
    for part, row in rows.items():
        where = getattr(built.split, part)
        start = 0 if protocol == "warm" else where.start
        with torch.no_grad():
            z = run_model(built.model, snapshots[start : where.stop])[0][where.start - start :]
        every = slice(0, graph.num_nodes)
        with seal_of(built.sequence.graph).opened():
            sums = [built.task.measure(one, t, every, part).numpy() for t, one in zip(where, z, strict=True)]
            wanted = built.task.scores(part, np.array(sums))
        assert row["loss"] == pytest.approx(wanted.loss, rel=1e-10)
        found = {name: row["metrics"][name] for name in wanted.metrics}  # evaluations add intervals
        assert _defined(found) == pytest.approx(_defined(wanted.metrics), rel=1e-10)
        assert (row["persistence_loss"], row["mean_loss"]) == (wanted.persistence_loss, wanted.mean_loss)


@pytest.mark.parametrize("settings", TASKS, ids=str)
def test_the_first_loss_of_a_task_is_plain_autograd_s(settings: dict[str, Any]) -> None:
    config = config_of(system="single", parts=1, dtype="float64", **settings)
    graph = load_for(config)
    built, other = (build(config, graph, SoloGroup()) for _ in "ab")
    built.gradients.zero()
    computed = built.strategy.compute(built.strategy.epoch(0)[0], StepMarks())
    train = other.split.train
    z = run_model(other.model, _dense(graph)[: train.stop])[0]
    loss = other.task.loss(z, train, slice(0, graph.num_nodes)).mean()
    wanted = torch.autograd.grad(loss, list(other.model.parameters()))
    assert computed.loss_sum == pytest.approx(loss.item(), rel=1e-10)
    for (name, parameter), gradient in zip(built.model.named_parameters(), wanted, strict=True):
        assert torch.allclose(parameter.grad, gradient, rtol=1e-8, atol=1e-12), name


def _with_holes(settings: dict[str, Any], holes: tuple[int, ...]) -> DynamicGraph:
    """The task's graph, without labelled items at some snapshots."""
    graph = load_for(config_of(**settings))
    if settings["task"] == "link":
        nothing = type(graph.following[0])(np.zeros(graph.num_nodes + 1, np.int64), np.zeros(0, np.int32))
        following = tuple(nothing if t in holes else snapshot for t, snapshot in enumerate(graph.following))
        return dataclasses.replace(graph, following=following)
    classes = np.array(graph.classes)
    classes[list(holes)] = -1
    return dataclasses.replace(graph, classes=classes)


@pytest.mark.parametrize("model", ["tgcn", "evolvegcn-o", "graphsage", "dcrnn"])
@pytest.mark.parametrize("settings", [LINK, CLASSES], ids=str)
def test_the_step_s_loss_is_that_of_evaluations(settings: dict[str, Any], model: str) -> None:
    """Snapshots without labelled items count in neither mean."""
    config = config_of(system="single", parts=1, dtype="float64", model=model, **settings)
    built = build(config, _with_holes(settings, (1, 4, 5, 11)), SoloGroup())
    (row,) = built.evaluator.evaluate(built.model, ("train",))
    assert (row.snapshots, len(built.split.train)) == (8, 12)
    built.gradients.zero()
    computed = built.strategy.compute(built.strategy.epoch(0)[0], StepMarks())
    assert computed.loss_sum == pytest.approx(row.loss, rel=1e-10)


@pytest.mark.parametrize("loss_at", ["last", "all"])
@pytest.mark.parametrize("settings", [LINK, CLASSES], ids=str)
def test_a_group_without_labelled_items_has_loss_zero(settings: dict[str, Any], loss_at: str) -> None:
    config = config_of(parts=1, dtype="float64", loss_at=loss_at, **settings)
    built = build(config, _with_holes(settings, (0, 1, 2, 3)), SoloGroup())
    built.gradients.zero()
    losses = [built.strategy.compute(work, StepMarks()).loss_sum for work in built.strategy.epoch(0)[:2]]
    assert losses[0] == 0
    assert losses[1] > 0


@pytest.mark.slow
def test_communities_are_learned_better_than_guessed(tmp_path: Path) -> None:
    config = config_of(**CLASSES, epochs=15, learning_rate=0.05).replace(generated_nodes=60, generated_edges=250)
    done = train_in_memory(config, load_for(config), tmp_path / "last.pt")
    first, last = (done.recorder.tables["evaluations"][place] for place in (0, -3))
    assert first["split"] == last["split"] == "train"
    assert last["loss"] < 0.8 * first["loss"]
    assert last["metrics"]["accuracy"] > last["metrics"]["majority_accuracy"] + 0.1


@pytest.mark.slow
def test_links_are_learned_better_than_guessed(tmp_path: Path) -> None:
    done = train(tmp_path, config_of(**LINK, epochs=15, learning_rate=0.05))
    train_row, *others = done.recorder.tables["evaluations"][-3:]
    assert train_row["loss"] < 0.95 * train_row["mean_loss"]
    assert all(row["metrics"]["auc"] > 0.6 for row in (train_row, *others))


def test_link_labels_of_the_test_part_are_not_read_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtdg_lab.tasks.link_prediction.edge_seed", lambda snapshots: 1)  # the same draws
    graph = graph_of()
    nothing = type(graph.following[0])(np.zeros(25, np.int64), np.zeros(0, np.int32))
    other = dataclasses.replace(graph, following=(*graph.following[:15], *(nothing,) * 24))
    rows = []
    for data in (graph, other):
        built = build(config_of(**LINK), data, SoloGroup())
        rows.append(built.evaluator.evaluate(built.model, ("train", "validation")))
    assert rows[0] == rows[1]
    (test,) = built.evaluator.evaluate(built.model, ("test",), final=True)
    assert (test.loss, test.snapshots) == (None, 0)


@pytest.mark.parametrize("protocol", ["dynahb-2024", "flare-2026"])
def test_a_protocol_without_validation_trains_and_ends(tmp_path: Path, protocol: str) -> None:
    done = train(tmp_path, config_of(protocol=protocol))
    assert [row["split"] for row in done.recorder.tables["evaluations"]] == ["train", "train", "test"]
    (parts,) = done.recorder.events("parts")
    assert parts["data"].keys() == {"train", "test"}


def test_norm_and_self_loops_reach_the_convolution() -> None:
    losses = set()
    for norm, self_loops in itertools.product(("in", "in_out"), (True, False)):
        built = build(config_of(norm=norm, self_loops=self_loops), graph_of(), SoloGroup())
        (row,) = built.evaluator.evaluate(built.model, ("train",))
        built.gradients.zero()
        losses |= {row.loss, built.strategy.compute(built.strategy.epoch(0)[0], StepMarks()).loss_sum}
    assert len(losses) == 8  # training and evaluation, each in four ways


def test_a_graph_that_cannot_serve_the_task_is_refused() -> None:
    bare = dataclasses.replace(graph_of(), following=None)
    with pytest.raises(UnsupportedError, match=r"task='link'.*serves regression\."):
        build(config_of(**LINK), bare, SoloGroup())
    with pytest.raises(UnsupportedError, match=r"task='classification'.*serves regression, link\."):
        build(config_of(**CLASSES), graph_of(), SoloGroup())
    with pytest.raises(UnsupportedError, match="classification"):
        config_of(task="classification")  # the catalogue knows before any data is loaded


def test_the_parts_and_their_empty_snapshots_are_told_once(tmp_path: Path) -> None:
    graph = graph_of()
    nothing = type(graph.snapshots[0])(np.zeros(25, np.int64), np.zeros(0, np.int32))
    holes = {2, 3, 11, 14, 20, 38}
    snapshots = tuple(nothing if t in holes else snapshot for t, snapshot in enumerate(graph.snapshots))
    holed = dataclasses.replace(graph, snapshots=snapshots, following=None)
    done = train_in_memory(config_of(), holed, tmp_path / "last.pt")
    (described,) = done.recorder.events("parts")
    assert described["data"] == {
        "train": {"first": 0, "last": 11, "without_edges": [[2, 3], [11, 11]]},
        "validation": {"first": 12, "last": 14, "without_edges": [[14, 14]]},
        "test": {"first": 15, "last": 38, "without_edges": [[20, 20], [38, 38]]},
    }


@pytest.mark.slow
def test_evaluation_leaves_gradients_and_parameters_alone(tmp_path: Path) -> None:
    often, seldom = train(tmp_path, config_of(epochs=4)), train(tmp_path, config_of(epochs=4, evaluate_every=100))
    assert often.losses == seldom.losses
    assert_same_bits(often, seldom)


def test_backends_train_alike(tmp_path: Path) -> None:
    one, other = (train(tmp_path, config_of(kernel=kernel, dtype="float64")) for kernel in ("torch", "auto"))
    assert one.losses == pytest.approx(other.losses, rel=1e-9)
    assert one.recorder.events("kernel")[0]["data"]["backend"] == "torch"
