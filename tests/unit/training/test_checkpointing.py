"""Checkpoints: when they are written, what they hold, and runs that go on from them."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dtdg_lab.config.record_tables import rows_of
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, NotFiniteError, RunStoreError, UnknownNameError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.heartbeat import OtherRankError
from dtdg_lab.kernels.device_clock import HostClock
from dtdg_lab.records.lines import read_lines
from dtdg_lab.runs.record_writer import RecordWriter
from dtdg_lab.testing.training import RecordingRecorder, Trained, train_in_memory
from dtdg_lab.training.checkpoint import Checkpoint
from dtdg_lab.training.checkpointing import LOOK_S, CheckpointManager, LastGood
from dtdg_lab.training.clock import PhaseClock
from dtdg_lab.training.forward import run_forward
from dtdg_lab.training.position import Position
from dtdg_lab.training.recording import RecordedStep, StepRecorder
from tests.factories import small_graph
from tests.small_training import CLASSES, LINK, config_of, train
from tests.stored_runs import write_steps
from tests.thinning import thinned

pytestmark = pytest.mark.usefixtures("one_thread")
# 39 labelled snapshots: 12 train, 3 validate, 24 test. Groups of 4 start at 9 of the 12: 5 steps an epoch on 2 parts.
STEPS = 5


def assert_same_bits(one: Trained, other: Trained) -> None:
    assert one.parameters.keys() == other.parameters.keys()
    for name, tensor in one.parameters.items():
        assert torch.equal(tensor, other.parameters[name]), name
    assert one.optimizer["param_groups"] == other.optimizer["param_groups"]
    for key, state in one.optimizer["state"].items():
        for name, value in state.items():
            assert torch.equal(value, other.optimizer["state"][key][name]), (key, name)


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
    ("settings", "story", "steps"), thinned([*INTERRUPTED, *((*case, ()) for *case, _ in INTERRUPTED)], [1]), ids=str
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
            run_forward(config, small_graph(), path)
    groups = kept.optimizer["param_groups"]
    _rewritten(path, model=kept.model, optimizer={**kept.optimizer, "param_groups": [*groups, *groups]})
    with pytest.raises(RunStoreError, match=said):
        train(tmp_path, config, resume=True, first_step=2)
    run_forward(config, small_graph(), path)  # looking at a model needs no optimiser


def test_checkpoints_say_their_version_and_newer_ones_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    Checkpoint({"w": torch.ones(3)}, {}, Position(1, 2, 3), "{}", [], "").save(path)
    held = torch.load(path, weights_only=True)
    assert Checkpoint.load(path).position == Position(1, 2, 3)
    torch.save({name: value for name, value in held.items() if name != "schema"}, path)  # as versions before wrote it
    assert Checkpoint.load(path).position == Position(1, 2, 3)
    torch.save({**held, "schema": held["schema"] + 1, "more": {}}, path)
    with pytest.raises(RunStoreError, match=r"(?s)last\.pt was written by a newer version.*Update dtdg_lab"):
        Checkpoint.load(path)


def test_resuming_on_other_data_is_refused_with_both_hashes(tmp_path: Path) -> None:
    train(tmp_path, script={1: {"stop": True}})
    path, graph = tmp_path / "last.pt", small_graph()
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
    assert Checkpoint.load(tmp_path / "last.pt").data_hash == small_graph().data_hash


# writing


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


def test_values_of_aborted_exchanges_are_not_saved(tmp_path: Path) -> None:
    train(tmp_path)
    present = Checkpoint.load(tmp_path / "last.pt")

    def check() -> None:
        raise OtherRankError("another rank has failed")

    state: Any = SimpleNamespace(
        group=SimpleNamespace(rank=0, size=2, check=check),
        device="cpu",
        strategy=None,
        position=present.position,
        config={"checkpoint_every_s": 0.0},
        checkpoint=lambda carried=None: present,
    )
    manager = CheckpointManager(tmp_path / "kept" / "last.pt", state, SimpleNamespace(settle=lambda: None))
    last = RecordedStep(present.position.step, 1.0, 0.0)
    for save in (lambda: manager.after_step(last), lambda: manager.keep("step-00001")):
        with pytest.raises(OtherRankError):
            save()
    assert not (tmp_path / "kept").exists()


def test_a_checkpoint_waits_for_the_rows_of_all_ranks_that_make_its_steps(tmp_path: Path) -> None:
    train(tmp_path)
    present, met = Checkpoint.load(tmp_path / "last.pt"), []
    own, other = (RecordWriter(tmp_path / f"rank{rank}.jsonl", rank, 1, flush_s=60) for rank in (0, 1))
    group: Any = SimpleNamespace(rank=0, size=2, barrier=lambda: met.append(len(read_steps(0))), check=lambda: None)
    journal = StepRecorder(own, PhaseClock(HostClock()), SimpleNamespace(between=lambda *_: None), 0)
    file, state = (
        tmp_path / "kept.pt",
        SimpleNamespace(
            group=group,
            device="cpu",
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
    for later in range(3):
        time.sleep(LOOK_S)
        keeper.after_step(RecordedStep(present.position.step + later, 1.0, 0.0))
    assert not file.exists() and read_steps(1) == []
    other.flush()
    time.sleep(LOOK_S)
    keeper.after_step(RecordedStep(present.position.step + 3, 1.0, 0.0))
    assert file.exists() and read_steps(0)[-1] == present.position.step - 1, "own rows are written before"
    write_steps(own, present.position.step, present.position.step + 4)
    keeper.save(together=True)
    assert met == [present.position.step + 4], "rows are written before ranks meet"
    state.synchronous = False
    file.unlink()
    other.close()
    (tmp_path / "rank1.jsonl").unlink()
    for later in range(4, 6):
        keeper.after_step(RecordedStep(present.position.step + later, 1.0, 0.0))
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
