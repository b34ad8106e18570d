"""Ranks whose processes are stopped for a while, as by a laptop's lid: the others wait up to a limit."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dtdg_lab.cluster import worker
from dtdg_lab.cluster.keeper import IdleClock
from dtdg_lab.cluster.session import Session
from dtdg_lab.cluster.session_files import new_session_files
from dtdg_lab.cluster.worker import RankTask
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.dashboard.app import Dashboard
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.liveness import Silence, note_file, own_note, read_notes, silent_beyond, write_note
from tests.dashboards import head, notice
from tests.following import stop, until, until_step


def stop_for(run, ranks: tuple[int, ...], seconds: float, while_stopped: Callable[[], None]) -> None:
    """Stop the processes of ranks, and let them continue."""
    pids = [read_notes(run.path / "live", run.attempt)[rank].pid for rank in ranks]
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        assert run.status == "running", run.reason
        while_stopped()
        assert tuple(run.silent) == ranks and all(s == pytest.approx(seconds, abs=3) for s in run.silent.values())
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def assert_goes_on(session: Session, run) -> None:
    now = run.live.progress.step
    until(lambda: run.live.progress.step > now + 5, timeout_s=10, what=f"steps after the stop of {run} {run.reason}")
    until(lambda: not run.silent, timeout_s=5, what="no rank is silent")
    assert run.attempt == 1 and session.ready
    stop(run)
    assert run.status == "stopped"


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [(0,), (1,), (0, 1)])
def test_stopped_engines_are_waited_for(session: Session, config: RunConfig, ranks: tuple[int, ...]) -> None:
    """For longer than the controller and the heartbeats once waited."""
    run = until_step(session.train(config.replace(epochs=100_000)), 5)
    dashboard = Dashboard(session)

    def look() -> None:
        dashboard.watch.look()
        silent = f"Rank {ranks[0]} has been silent for"
        until(lambda: bool(dashboard.tick()) or silent in notice(dashboard), timeout_s=5, what="a notice")
        assert head(dashboard)["state"] == "Running"

    try:
        stop_for(run, ranks, 25.0, look if len(ranks) == 1 else lambda: None)
    finally:
        dashboard.close()
    assert_goes_on(session, run)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["0", "1", "01"])  # rank 0 serves the store of all
def test_a_rank_silent_beyond_the_limit_fails_the_run(session: Session, config: RunConfig, which: str) -> None:
    ranks, files = [int(rank) for rank in which], session._files
    session._files = replace(files, silent_s=3.0)
    try:
        run = until_step(session.train(config.replace(epochs=100_000)), 5)
        pids = {rank: read_notes(run.path / "live", run.attempt)[rank].pid for rank in ranks}
        for pid in pids.values():
            os.kill(pid, signal.SIGSTOP)
        took_s = until(lambda: run.status == "failed", timeout_s=20, what="the failure is marked")
        assert 2.5 < took_s < 12
        assert run.failed_rank == ranks[0] and "no sign of life for" in run.reason
        assert f"process {pids[ranks[0]]} exists" in run.reason and "silent_s=3" in run.reason
        until(lambda: run._ended.is_set(), what="the handle has followed to the end")
        session.repair()
        assert session.ready
    finally:
        session._files = files


def test_own_absence_is_not_the_silence_of_others(tmp_path: Path) -> None:
    write_note(tmp_path, own_note(1, 1, ""))
    notes = read_notes(tmp_path, 1)
    now_s = [0.0]
    silence = Silence(tmp_path, clock=lambda: now_s[0])
    assert silence.look(notes) == {1: 0.0}
    for now_s[0] in (1.0, 2.0):
        seen = silence.look(notes)
    assert seen == {1: 2.0}
    now_s[0] = 3600.0  # the observer was stopped, or the machine asleep
    assert silence.look(notes)[1] <= 5
    os.utime(note_file(tmp_path, 1), (1.0, 1.0))
    assert silence.look(notes) == {1: 0.0}


def test_a_rank_that_completes_the_files_of_a_long_run_is_not_silent(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its beacon has ended by then: a run whose files took longer than the limit was marked failed."""
    run, busy = RunDirectory.create(config, root=tmp_path), tmp_path / "busy"
    write_note(run.live, own_note(0, 1, ""))
    seen: list[str] = []

    def slow(directory: RunDirectory, state: str, **given: object) -> None:
        os.utime(note_file(run.live, 0), (1.0, 1.0))
        until(lambda: note_file(run.live, 0).stat().st_mtime > 1.0 and busy.exists(), timeout_s=10)
        seen.append(state)

    monkeypatch.setattr(worker, "_train", lambda *_: "stopped")
    monkeypatch.setattr(worker, "finish", slow)
    worker.run_rank(RankTask(str(run.path), 0, 1, 1, "", busy_file=str(busy)))
    assert seen == ["stopped"] and not read_notes(run.live, 1)
    assert "signs-of-life" not in {thread.name for thread in threading.enumerate()}


def test_only_a_process_that_exists_here_is_silent(tmp_path: Path) -> None:
    note = own_note(1, 1, "")
    silent = {0: 5.0, 1: 61.0}
    found = silent_beyond(silent, {0: note, 1: note}, 60.0)
    assert found is not None and found[0] == 1
    assert f"61 s although its process {os.getpid()} exists" in found[1] and "silent_s=60" in found[1]
    assert silent_beyond(silent, {0: note, 1: note}, 62.0) is None
    for other in (replace(note, started_s=note.started_s - 100), replace(note, host="elsewhere")):
        assert silent_beyond(silent, {0: note, 1: other}, 60.0) is None, "it is gone, or judged by its heartbeats"


def test_sleep_of_the_machine_does_not_count_as_idle(tmp_path: Path) -> None:
    files = new_session_files("asleep", 2, tmp_path, 10.0)
    files.heartbeat_file.touch()
    began_s = now_s = files.heartbeat_file.stat().st_mtime
    clock = IdleClock(clock=lambda: now_s)
    for now_s in (began_s + 1, began_s + 2):
        assert clock.idle_for_s(files) == pytest.approx(now_s - began_s, abs=0.01)
    now_s = began_s + 3600.0
    assert clock.idle_for_s(files) < 10, "kernels and ranks have had no time to touch the files"
    for second in range(1, 12):
        now_s = began_s + 3600.0 + second
        idle_s = clock.idle_for_s(files)
    assert idle_s >= 10, "idle once awake"
