"""Studies whose process is killed with SIGKILL: the same call goes on, no finished run is repeated or lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from dtdg_lab.core.errors import RunStoreError
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.studies.run_study import run_study
from dtdg_lab.studies.search_space import choice, log_uniform
from dtdg_lab.studies.study import open_study
from dtdg_lab.studies.sweep import Sweep
from dtdg_lab.studies.trials import FILE
from tests.factories import small_config

BASE = small_config(epochs=6, parts=2, threads=1, evaluate_every=3)
PATIENCE_S = 90.0
CHILD = """
import sys
from dtdg_lab.studies.run_study import run_study
from dtdg_lab.studies.sweep import Sweep
run_study(Sweep.load(sys.argv[1]), name="killed", runs_dir=sys.argv[2], progress=False)
"""


def grid() -> Sweep:
    return Sweep(BASE, {"learning_rate": (0.001, 0.01), "group_window": (2, 4)}, seeds=(0,))


def search() -> Sweep:
    space = {"learning_rate": log_uniform(1e-4, 1e-1), "group_window": choice(2, 4)}
    return Sweep(BASE, space=space, trials=4)


def events(runs: Path) -> list[dict]:
    file = runs / "studies" / "killed" / FILE
    lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
    return [attributes["trial"] for line in lines if (attributes := json.loads(line).get("user_attr"))]


def child_of(sweep: Sweep, runs: Path) -> subprocess.Popen:
    """A process that makes the study, with the sweep in a file beside it."""
    file = runs.parent / "sweep.json"
    file.write_text(sweep.to_json())
    return subprocess.Popen([sys.executable, "-c", CHILD, str(file), str(runs)], stderr=subprocess.PIPE)


def kill_in_the_middle(sweep: Sweep, runs: Path, begun: int) -> Path:
    """Let a child make runs, and kill it while the run that it begins as number ``begun`` makes steps."""
    child = child_of(sweep, runs)
    try:
        ends = time.monotonic() + PATIENCE_S
        while time.monotonic() < ends and child.poll() is None:
            described = [event for event in events(runs) if event["status"] == "running" and event["run"]]
            if len(described) >= begun:
                path = runs / described[begun - 1]["run"]
                records = path / "records" / "rank0.jsonl"
                if records.exists() and records.stat().st_size:
                    os.kill(child.pid, signal.SIGKILL)
                    break
            time.sleep(0.002)
        assert child.wait(30) == -signal.SIGKILL, child.stderr.read().decode()
    finally:
        child.kill()
        child.wait()
        child.stderr.close()
    return path


def states(runs: Path) -> Counter:
    return Counter(RunDirectory.open(path.parent).status()["state"] for path in runs.glob("*/config.json"))


@pytest.mark.slow
def test_a_study_killed_in_the_middle_of_a_run_goes_on(tmp_path: Path) -> None:
    sweep, runs = grid(), tmp_path / "runs"
    half = kill_in_the_middle(sweep, runs, begun=2)
    before = open_study(runs / "studies" / "killed")
    ended = [trial for trial in before.trials if trial.status == "finished"]
    assert 1 <= len(ended) < 4 and states(runs)["finished"] >= len(ended)
    state = RunDirectory.open(half).recorded_status()["state"]
    assert state in ("starting", "running"), "it was not killed within a run"

    study = run_study(sweep, name="killed", runs_dir=runs, progress=False)

    assert study.is_complete and study.counts == {"finished": 4}
    assert {trial.key: trial.run for trial in ended}.items() <= {trial.key: trial.run for trial in study.trials}.items()
    over = Counter(event["key"] for event in events(runs) if event.get("status") == "finished")
    assert set(over.values()) == {1}, "a finished run was made again"
    assert states(runs) == {"finished": 4, "failed": 1}, "only the half run is left over"
    assert RunDirectory.open(half).status()["reason"] == "the process that trained it was killed"
    [again] = [trial for trial in study.trials if trial.notes]
    assert half.name in again.notes[0] and "starts again" in again.notes[0] and again.run != half
    assert half.name in study.summary()


@pytest.mark.slow
def test_a_search_that_was_killed_draws_what_it_would_have_drawn(tmp_path: Path) -> None:
    (tmp_path / "killed").mkdir()
    kill_in_the_middle(search(), tmp_path / "killed" / "runs", begun=3)
    killed = run_study(search(), name="killed", runs_dir=tmp_path / "killed" / "runs", progress=False)
    assert killed.counts == {"finished": 4} and states(tmp_path / "killed" / "runs") == {"finished": 4, "failed": 1}
    whole = run_study(search(), name="killed", runs_dir=tmp_path / "whole", progress=False)
    assert [trial.settings for trial in killed.trials] == [trial.settings for trial in whole.trials]
    losses = [[trial.values["validation_loss"] for trial in study.trials] for study in (killed, whole)]
    assert losses[0] == losses[1]


def test_a_second_writer_is_told_who_writes(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    child = child_of(grid(), runs)
    try:
        ends = time.monotonic() + PATIENCE_S
        while not events(runs) and time.monotonic() < ends:
            time.sleep(0.01)
        with pytest.raises(RunStoreError, match=f"process {child.pid} on .*one writer"):
            run_study(grid(), name="killed", runs_dir=runs, progress=False)
        assert open_study(runs / "studies" / "killed").sweep == grid(), "a reader needs no lock"
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stderr.close()
