"""Records of a training whose device the host runs ahead of: one step later, and otherwise the same."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dtdg_lab.core.errors import NotFiniteError
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.engine.strategy import StepResult
from dtdg_lab.systems.snapshot_groups.strategy import SnapshotGroupStrategy
from dtdg_lab.testing.simulated_device import SimulatedDevice
from dtdg_lab.testing.training import RecordingRecorder, Trained
from dtdg_lab.training.checkpoint import Checkpoint
from dtdg_lab.training.replay import RecordedRequest, RunReplay
from tests.small_training import config_of, train

pytestmark = pytest.mark.usefixtures("one_thread")
STEPS = 5  # of an epoch, see test_loop.py
MEASURED = ("_s", "_ns", "energy_j", "energy_source", "map")  # a map is counted now and then, by the clock


def _queued(path: Path, config: Any = None, **how: Any) -> Trained:
    path.mkdir(exist_ok=True)
    device = SimulatedDevice((0.0, 0.002))
    return train(path, config, group=SoloGroup(clock=device), **how)


def _unmeasured(done: Trained, table: str) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if not name.endswith(MEASURED)}
        for row in done.recorder.tables[table]
    ]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"system": "flaredtdg", "partitioner": "round_robin", "chunker": "hash"},
        {"system": "esdg", "parts": 1},
        {"system": "dynahb", "partitioner": "round_robin", "batch_policy": "none", "reservoir": False},
        {"system": "greendygnn", "partitioner": "round_robin", "cache_policy": "on_demand"},
        {"model": "evolvegcn-h", "system": "single", "parts": None},
        {"model": "tmgcn", "system": "blad"},
    ],
    ids=str,
)
def test_a_queued_training_has_the_bits_and_the_rows_of_one_that_waits(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    config = config_of(**settings)
    at_once, queued = train(tmp_path, config), _queued(tmp_path / "queued", config)
    for name, parameter in at_once.parameters.items():
        assert torch.equal(queued.parameters[name], parameter), name
    for table in ("steps", "evaluations", "batches", "links", "targets"):
        assert _unmeasured(queued, table) == _unmeasured(at_once, table), table


def test_phases_of_queued_steps_touch_and_have_the_seconds_of_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, compute = SimulatedDevice((0.0, 0.002)), SnapshotGroupStrategy.compute

    def computed(strategy: SnapshotGroupStrategy, *given: Any) -> StepResult:
        device.work_on_host(0.001)
        device.compute(0.01)
        return compute(strategy, *given)

    monkeypatch.setattr(SnapshotGroupStrategy, "compute", computed)
    done = train(tmp_path, group=SoloGroup(clock=device))
    steps = done.recorder.tables["steps"]
    assert [row["step"] for row in steps] == list(range(2 * STEPS))
    assert [row["batch_s"] + row["transfer_s"] + row["compute_s"] for row in steps] == pytest.approx(
        [0.01] * 10, abs=2e-3
    )
    assert [row["communicate_s"] + row["wait_s"] for row in steps] == pytest.approx([0.002] * 10, abs=1e-6)
    for row in steps:
        own = [phase for phase in done.recorder.tables["phases"] if phase["step"] == row["step"]]
        for before, after in itertools.pairwise(phase for phase in own if phase["phase"] != "evaluate"):
            if "checkpoint" not in (before["phase"], after["phase"]):
                assert before["end_ns"] == after["start_ns"]
    assert device.waits <= 3 * 2 * STEPS, "a step waits for the one before, and an epoch for its last step"


@pytest.mark.parametrize(
    "script",
    [
        {2: {"set": {"learning_rate": 0.1}}},
        {2: {"pause": True}, 4: {"set": {"learning_rate": 0.1}}, 6: {"pause": False}},
        {3: {"stop": True}},
    ],
    ids=["set", "pause", "stop"],
)
def test_a_request_follows_one_step_later_and_loses_nothing(tmp_path: Path, script: Any) -> None:
    at_once, queued = train(tmp_path, script=script), _queued(tmp_path / "queued", script=script)
    for done in (at_once, queued):
        assert [row["step"] for row in done.recorder.tables["steps"]] == list(range(done.outcome.position.step))
    versions = [done.recorder.column("steps", "control_version") for done in (at_once, queued)]
    first = [next((step for step, version in enumerate(seen) if version), len(seen)) for seen in versions]
    assert first[1] == first[0] + 1
    assert queued.outcome.state == at_once.outcome.state


def test_a_loss_that_is_no_number_is_found_a_step_later_and_its_model_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute, made = SnapshotGroupStrategy.compute, itertools.count()

    def spoilt(strategy: SnapshotGroupStrategy, *given: Any) -> StepResult:
        result = compute(strategy, *given)
        if next(made) == 3:
            return StepResult(torch.tensor(float("nan"), dtype=torch.float64), result.groups, result.vertex_snapshots)
        return result

    monkeypatch.setattr(SnapshotGroupStrategy, "compute", spoilt)
    recorder = RecordingRecorder()
    with pytest.raises(NotFiniteError, match=r"the loss is nan at step 3 \(epoch 0\)"):
        _queued(tmp_path, config_of(checkpoint_every_s=0), recorder=recorder)
    assert [row["step"] for row in recorder.tables["steps"]] == [0, 1, 2]
    kept = Checkpoint.load(tmp_path / "last.pt")
    assert kept.position.step <= 2, "the losses before step 3 say nothing about the model after it"
    assert all(np.isfinite(tensor.numpy()).all() for tensor in kept.model.values())


def test_a_rebuilt_strategy_learns_nothing_from_the_steps_of_the_one_before(tmp_path: Path) -> None:
    config = config_of(system="dynahb", partitioner="round_robin", exchange="gradients", epochs=2)
    done = _queued(tmp_path, config, script={3: {"set": {"epochs": 3}}})
    assert done.outcome.state == "finished" and done.outcome.position.epoch == 3


def test_a_replay_on_a_device_follows_requests_at_the_recorded_steps(tmp_path: Path) -> None:
    script = {2: {"set": {"learning_rate": 0.1}}, 6: {"set": {"learning_rate": 0.01}}}
    first = _queued(tmp_path, script=script)
    requests = tuple(RecordedRequest(step, "step", script[asked]) for asked, step in ((2, 4), (6, 8)))
    assert [first.recorder.column("steps", "control_version").index(number) for number in (1, 2)] == [3, 7]
    again = _queued(tmp_path / "again", replay=RunReplay((), {}, requests=requests))
    assert again.recorder.column("steps", "control_version") == first.recorder.column("steps", "control_version")
    assert again.losses == first.losses
