"""The loop in one process: phases of a step, changes of settings, pauses, and losses that are not finite."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dtdg_lab.cluster.worker import rehearse
from dtdg_lab.config.record_tables import PHASES
from dtdg_lab.core.errors import NotFiniteError, RunStoreError
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.engine.strategy import StepResult
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.systems.snapshot_groups.strategy import SnapshotGroupStrategy
from dtdg_lab.testing.training import RecordingRecorder, Trained, train_in_memory
from dtdg_lab.training import pacing
from dtdg_lab.training.assembly import assemble_trainer
from dtdg_lab.training.checkpoint import Checkpoint
from dtdg_lab.training.control import LocalControl
from dtdg_lab.training.resource_monitor import ResourceMonitor
from tests.factories import small_config, small_graph
from tests.small_training import config_of, train

pytestmark = pytest.mark.usefixtures("one_thread")
# 39 labelled snapshots: 12 train, 3 validate, 24 test. Groups of 4 start at 9 of the 12: 5 steps an epoch on 2 parts.
STEPS = 5


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


@pytest.mark.parametrize("system", ["psg", "flaredtdg"])
def test_memory_is_probed_after_the_first_epoch_of_every_attempt(tmp_path: Path, system: str) -> None:
    config = small_config(system, epochs=2, threads=1, **({"window": 3} if system == "flaredtdg" else {}))
    done = train(tmp_path, config)
    again = train(tmp_path, config, resume=True, changes={"epochs": 4})
    for trained, first in ((done, 0), (again, 2)):
        steps = sum(row["epoch"] == first for row in trained.recorder.tables["steps"])
        start = trained.recorder.tables["steps"][0]["step"]
        assert [row["step"] for row in trained.recorder.events("memory_trace")] == [start + steps]
        shapes = [row["data"]["base_bytes"] for row in trained.recorder.events("trapezoid")]
        assert [size is None for size in shapes] == ([True, False] if system == "flaredtdg" else [])


def test_the_parts_and_their_empty_snapshots_are_told_once(tmp_path: Path) -> None:
    graph = small_graph()
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
def test_a_slowed_rank_shows_in_compute(tmp_path: Path) -> None:
    config = config_of(slow_rank=0, slow_ms=100.0, epochs=1)
    done = train(tmp_path, config, script={2: {"set": {"slow_rank": -1}}})
    spent_s = done.recorder.column("steps", "compute_s")
    assert min(spent_s[:3]) >= 0.1
    assert min(spent_s[3:]) < 0.1
    assert done.losses == train(tmp_path, config_of(epochs=1)).losses


def test_backends_train_alike(tmp_path: Path) -> None:
    one, other = (train(tmp_path, config_of(kernel=kernel, dtype="float64")) for kernel in ("torch", "auto"))
    assert one.losses == pytest.approx(other.losses, rel=1e-9)
    assert one.recorder.events("kernel")[0]["data"]["backend"] == "torch"


def test_a_rehearsed_engine_leaves_its_imports_out_of_collections() -> None:
    imported: list[Any] = []
    rehearse()
    assert not any(each is imported for each in gc.get_objects())


# settings


def test_the_learning_rate_rules_from_the_next_step_on(tmp_path: Path) -> None:
    config = config_of(optimizer="sgd", learning_rate=0.0)
    done = train(tmp_path, config, script={3: {"set": {"learning_rate": 0.1}}})
    still = train(tmp_path, config)
    moved = [a != b for a, b in zip(done.losses, still.losses, strict=True)]
    assert moved == [False] * 5 + [True] * 5  # update of step 4 is the first with it; step 5 sees its effect
    (knob,) = done.recorder.events("settings")
    assert (knob["step"], knob["data"]["when"], knob["data"]["changes"]) == (4, "step", {"learning_rate": 0.1})
    assert [row["control_version"] for row in done.recorder.tables["steps"]] == [0] * 3 + [1] * 7


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


def test_pausing_holds_the_run_between_two_steps_and_changes_nothing_else(tmp_path: Path) -> None:
    untouched = train(tmp_path)
    # the exchanges of control rounds count as well: paused after step 2, three rounds, then on
    done = train(tmp_path, script={2: {"pause": True}, 6: {"pause": False}})
    assert done.losses == untouched.losses
    assert all(torch.equal(tensor, untouched.parameters[name]) for name, tensor in done.parameters.items())
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


def test_a_person_pauses_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests from another thread, as the kernel's: no step while paused, and no long wait after."""
    recorder, control, config = RecordingRecorder(), LocalControl(), config_of(epochs=10_000)
    trainer = assemble_trainer(
        config,
        small_graph(),
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
    monkeypatch.setattr(pacing, "CONTROL_ROUND_S", 10.0)  # of the rounds after this one
    time.sleep(0.1)
    steps = len(recorder.tables["steps"])
    time.sleep(0.7)  # longer than a control round
    assert len(recorder.tables["steps"]) == steps
    control.request({"pause": False})
    asked_s = time.monotonic()
    seen("unpaused")
    assert time.monotonic() - asked_s < 3.0  # woken, not found at the next round
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
    recorder, spoilt = RecordingRecorder(), _overflowing(small_graph(), 6)
    spoilt.__dict__["data_hash"] = small_graph().data_hash  # so that the checkpoint can be gone on from without it
    with pytest.raises(NotFiniteError, match=r"at step 3 \(epoch 0\).*learning_rate \(now 0\.02\)"):
        # one group a step: group 3 holds snapshots 3 to 6 and is the first with the sixth
        train_in_memory(config, spoilt, tmp_path / "last.pt", recorder=recorder)
    assert [row["step"] for row in recorder.tables["steps"]] == [0, 1, 2]
    kept = Checkpoint.load(tmp_path / "last.pt")
    assert kept.position.step == 2  # that of step 3 waited for a loss that showed it to be of use
    assert all(torch.isfinite(tensor).all() for tensor in kept.model.values())
    rest = train_in_memory(config, small_graph(), tmp_path / "last.pt", resume=True, changes={"learning_rate": 0.001})
    assert np.isfinite(rest.losses).all()


def test_records_that_cannot_be_written_end_the_run(tmp_path: Path) -> None:
    with pytest.raises(RunStoreError, match="records"):
        train(tmp_path, recorder=RecordingRecorder(RunStoreError("the records cannot be written")))


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), -float("inf")])
def test_a_loss_that_is_no_number_ends_the_run_before_its_step_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: float
) -> None:
    """Comparisons with NaN are false."""
    monkeypatch.setattr(SnapshotGroupStrategy, "compute", lambda *_: StepResult(loss, 1, 0))
    recorder = RecordingRecorder()
    with pytest.raises(NotFiniteError, match=f"the loss is {loss} at step 0"):
        train(tmp_path, recorder=recorder)
    assert recorder.tables["steps"] == []
