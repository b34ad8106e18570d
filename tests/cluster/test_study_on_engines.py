"""Studies on a session: runs of several ranks, and kernels and engines that are killed in the middle of one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dtdg_lab.cluster.session import Session
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.liveness import read_notes
from dtdg_lab.runs.stored_run import open_run
from dtdg_lab.studies.run_study import run_study
from dtdg_lab.studies.study import open_study
from dtdg_lab.studies.sweep import Sweep
from tests.factories import small_config

CHILD = """
import sys
from dtdg_lab.cluster.session import Session
from dtdg_lab.studies.run_study import run_study
from dtdg_lab.studies.sweep import Sweep
session = Session.attach(sys.argv[1])
run_study(Sweep.load(sys.argv[2]), name=sys.argv[4], runs_dir=sys.argv[3], session=session, progress=False)
"""


def sweep(epochs: int, ranks: tuple[int, ...] = (2,)) -> Sweep:
    steady = {"checkpoint_every_s": 0.1, "threads": 1, "evaluate_every": epochs}
    base = small_config(ranks=2, epochs=epochs, generated_nodes=100, generated_edges=400, **steady)
    return Sweep(base, {"ranks": ranks, "learning_rate": (0.001, 0.01)}, seeds=(0,))


def killed_child(session: Session, made: Sweep, runs: Path, name: str) -> Path:
    """A kernel of its own that begins the study and is killed while its first run makes steps; that run's folder."""
    file = runs / f"{name}.json"
    file.write_text(made.to_json())
    command = [sys.executable, "-c", CHILD, session.name, str(file), str(runs), name]
    child = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        ends = time.monotonic() + 60
        while time.monotonic() < ends and child.poll() is None:
            folder = runs / "studies" / name
            trials = open_study(folder).trials if (folder / "sweep.json").exists() else ()
            begun = [trial.run for trial in trials if trial.run is not None]
            if begun and (begun[0] / "checkpoints" / "last.pt").exists():
                engine = read_notes(begun[0] / "live", 1)[0].pid
                os.kill(engine, signal.SIGSTOP)  # the run must not end before the kernel does
                os.kill(child.pid, signal.SIGKILL)
                child.wait(30)
                state = RunDirectory.open(begun[0]).status()["state"]
                os.kill(engine, signal.SIGCONT)
                assert state == "running", "the run was over before the kill"
                break
            time.sleep(0.02)
        assert child.wait(30) == -signal.SIGKILL, child.stderr.read().decode()
    finally:
        child.kill()
        child.wait()
        child.stderr.close()
    return begun[0]


def test_a_study_over_ranks_and_more_than_the_session_has(session: Session, tmp_path: Path) -> None:
    study = run_study(sweep(2, (1, 2)), name="ranks", session=session, runs_dir=tmp_path, progress=False)
    assert study.counts == {"finished": 4}
    assert [open_run(trial.run).config.parts for trial in study.trials] == [1, 1, 2, 2], "parts follow ranks"
    with pytest.raises(ConfigError, match=r"ranks=4 are required, but the session has 2"):
        run_study(sweep(2, (4,)), name="more", session=session, runs_dir=tmp_path, progress=False)
    with pytest.raises(ConfigError, match=r"ranks=2 need engines"):
        run_study(sweep(2), name="none", runs_dir=tmp_path, progress=False)


def test_engines_finish_the_run_of_a_killed_kernel_and_the_study_takes_it(session: Session, tmp_path: Path) -> None:
    made = sweep(100)
    half = killed_child(session, made, tmp_path, "kernel")
    study = run_study(made, name="kernel", session=session, runs_dir=tmp_path, progress=False)
    assert study.counts == {"finished": 2} and study.trials[0].run.resolve() == half.resolve()
    assert RunDirectory.open(half).status()["attempt"] == 1 and not study.trials[0].notes


@pytest.mark.slow
def test_a_run_whose_engine_died_too_goes_on_from_its_checkpoint(session: Session, tmp_path: Path) -> None:
    made = sweep(100)
    half = killed_child(session, made, tmp_path, "engine")
    os.kill(read_notes(half / "live", 1)[1].pid, signal.SIGKILL)
    ends = time.monotonic() + 20
    while sum(engine.is_alive for engine in session.engines().values()) == session.ranks and time.monotonic() < ends:
        time.sleep(0.1)
    while RunDirectory.open(half).status()["state"] != "failed" and time.monotonic() < ends:
        time.sleep(0.1)
    session.repair()
    study = run_study(made, name="engine", session=session, runs_dir=tmp_path, progress=False)
    assert study.counts == {"finished": 2} and study.trials[0].run.resolve() == half.resolve()
    assert RunDirectory.open(half).status()["attempt"] == 2
    assert "resumed from its checkpoint" in study.trials[0].notes[0]
