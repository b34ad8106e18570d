"""Runs all of whose processes died at once: recognised from their folders, and resumed in a new session."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from dtdg_lab.cluster import session_files
from dtdg_lab.cluster.session import Session
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ClusterError, ControlError
from dtdg_lab.dashboard.app import Dashboard
from dtdg_lab.runs.directory import OLD_S, RunDirectory
from dtdg_lab.runs.liveness import note_file, own_note, write_note
from dtdg_lab.runs.stored_run import open_run
from tests.dashboards import buttons, head, look, notice
from tests.following import stop, until, until_step
from tests.kernels import start_kernel


def kill_everything(kernel: subprocess.Popen[str], files: session_files.SessionFiles) -> None:
    """Kernel, keeper, controller and engines at once, as if the power had gone."""
    keepers = [p for p in psutil.process_iter(["cmdline"]) if files.id in (p.info["cmdline"] or [])]
    assert keepers
    for process in [psutil.Process(kernel.pid), *keepers, *files.processes()]:
        process.send_signal(signal.SIGKILL)
    kernel.communicate()
    until(lambda: not files.processes(), what="all processes are gone")


def assert_offered(session: Session) -> None:
    """The dashboard of a session shows an interrupted run, and its button."""
    dashboard = Dashboard(session)
    try:
        until(lambda: dashboard.watch.state.ready, what="the dashboard sees the engines")
        look(dashboard)
        assert buttons(dashboard)["resume"]
        assert "Interrupted" in head(dashboard)["state"] or "An earlier run was interrupted." in notice(dashboard)
    finally:
        dashboard.close()


@pytest.mark.slow
def test_a_new_session_resumes_after_everything_died(
    tmp_path: Path, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = start_kernel(tmp_path, config.replace(epochs=100_000), idle_s=60)
    (files,) = [files for files in session_files.all_sessions() if files.name == "killed"]
    run = open_run(next((tmp_path / "runs").iterdir()))
    assert run.status == "running"
    until(lambda: bool(run.checkpoints), what="a checkpoint")
    kill_everything(kernel, files)
    assert run.directory.recorded_status()["state"] == "running", "no process was left that could write another state"
    until(lambda: run.status == "interrupted", timeout_s=2, what="the run is recognised as interrupted")
    step = int(re.match(r"interrupted at step (\d+): ", run.reason).group(1))  # type: ignore[union-attr]
    assert step == run.table("steps").step.max() and f"interrupted at step {step}" in repr(run)
    with pytest.raises(ClusterError, match=rf"'killed' has ended.*{run.id}.*interrupted at step {step}"):
        Session.attach("killed")
    with Session(ranks=2, name="killed", runs_dir=tmp_path / "runs") as session:
        assert [each.path for each in session.runs] == [run.path], "the session's runs are kept"
        handle = session.current
        assert handle is not None and handle.status == "interrupted" and session.under_way == []
        assert_offered(session)
        with monkeypatch.context() as patch:
            patch.setattr(type(session), "current", None)  # as in a session of another name on these runs
            assert_offered(session)
        again = run.resume(session, learning_rate=0.02)
        until(lambda: again.live.progress.step > step + 5, timeout_s=30, what="steps after resuming")
        assert open_run(run.path).status == "running" and again.attempt == 2
        stop(again)
    steps = run.table("steps")
    for rank in (0, 1):
        assert steps[steps["rank"] == rank].step.tolist() == list(range(steps.step.max() + 1))


def test_a_session_resumes_folders_stored_runs_and_handles(session: Session, tmp_path: Path, config: RunConfig) -> None:
    first = run = session.train(config.replace(epochs=100_000))
    for kind in (str, open_run, lambda path: first):
        until_step(run, 2)
        stop(run)
        again = session.resume(kind(run.path))
        assert again.path == run.path and again.attempt == run.attempt + 1
        run = again
    stop(run)


def test_a_living_run_of_another_session_is_not_resumed(session: Session, tmp_path: Path, config: RunConfig) -> None:
    directory = RunDirectory.create(config, root=tmp_path)
    directory.write_status("running")
    write_note(directory.live, own_note(0, 1, ""))
    for given in (directory.path, open_run(directory.path)):
        with pytest.raises(ControlError, match="running in another session"):
            session.resume(given)
    assert directory.path not in [run.path for run in session.runs]


ALONE = """
import sys
import dtdg_lab as lab
if __name__ == "__main__":
    lab.train(lab.RunConfig.load(sys.argv[1]), runs_dir=sys.argv[2], progress=False)
"""


def test_a_run_without_a_cluster_is_interrupted_too(tmp_path: Path, config: RunConfig) -> None:
    script, settings = tmp_path / "alone.py", tmp_path / "config.json"
    script.write_text(ALONE)
    settings.write_text(config.replace(ranks=1, parts=1, epochs=100_000).to_json())
    process = subprocess.Popen([sys.executable, str(script), str(settings), str(tmp_path / "runs")])
    try:
        until(lambda: any((tmp_path / "runs").glob("2*/live/rank0.json")), timeout_s=60, what="its note")
        run = open_run(next((tmp_path / "runs").glob("2*")))
        assert run.status in ("starting", "running")
    finally:
        process.kill()
        process.wait()
    until(lambda: run.status == "interrupted", timeout_s=2, what="the run is recognised as interrupted")
    assert "gone" in run.reason


def test_processes_elsewhere_are_judged_by_their_last_sign_of_life(tmp_path: Path, config: RunConfig) -> None:
    directory = RunDirectory.create(config, root=tmp_path)
    directory.write_status("running")
    write_note(directory.live, own_note(0, 1, ""))
    run = open_run(directory.path)
    assert run.status == "running"
    note = json.loads(note_file(directory.live, 0).read_text())
    write(directory, note | {"started_s": note["started_s"] - 100.0})  # another process had this number then
    assert run.status == "interrupted" and "before its first step" in run.reason
    write(directory, note | {"host": "elsewhere"})
    assert run.status == "running", "it may live"
    long_ago_s = time.time() - OLD_S - 5
    for path in (note_file(directory.live, 0), directory.status_file):
        os.utime(path, (long_ago_s, long_ago_s))
    assert run.status == "interrupted"
    assert time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(long_ago_s)) in run.reason
    assert f"{OLD_S:g} s" in run.reason and "another machine" in run.reason


def write(directory: RunDirectory, note: dict[str, object]) -> None:
    note_file(directory.live, 0).write_text(json.dumps(note))
