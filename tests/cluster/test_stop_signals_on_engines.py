"""SIGTERM and SIGUSR1 to engines that train: all ranks stop before the same step, and the run can be resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from dtdg_lab.cluster.run import Run
from dtdg_lab.cluster.session import Session
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.child_process import is_running
from dtdg_lab.core.errors import RunInterruptedError
from dtdg_lab.dashboard.app import Dashboard
from dtdg_lab.runs.liveness import RankNote, read_notes
from dtdg_lab.runs.stored_run import open_run
from tests.dashboards import look, notice
from tests.following import pause, stop, until, until_step
from tests.thinning import thinned


def notes_of(run: Run) -> dict[int, RankNote]:
    until(lambda: len(read_notes(run.path / "live", run.attempt)) == run.config.ranks, what="notes of all ranks")
    return read_notes(run.path / "live", run.attempt)


def send(run: Run, ranks: tuple[int, ...], sent: signal.Signals = signal.SIGTERM) -> None:
    """Send the signal to engines; they are gone, and the run has ended, within 10 s."""
    notes, sent_s = notes_of(run), time.monotonic()
    for rank in ranks:
        os.kill(notes[rank].pid, sent)
    left = [notes[rank] for rank in ranks]
    until(
        lambda: not any(is_running(note.pid, note.started_s) for note in left) and run.status == "interrupted",
        timeout_s=10 - (time.monotonic() - sent_s),
        what=f"{run} has left",
    )


def assert_resumes(session: Session, run: Run, step: int, **changes: float) -> None:
    """What is kept is that of one step, and a resumed run makes each step once."""
    reason = run.reason
    assert f" at step {step}: rank " in reason
    with pytest.raises(RunInterruptedError, match=rf"run {run.id} was interrupted by SIG\w+ at step {step}: "):
        run.wait(20)
    stored = open_run(run.path)
    assert stored.summary["status"] == "interrupted" and stored.summary["reason"] == reason
    again = run.resume(**changes)
    assert session.ready, "engines that have left are replaced"
    until_step(again, step + 3)
    stop(again)
    steps = open_run(run.path).table("steps")
    for rank in range(run.config.ranks):
        assert steps[steps["rank"] == rank].step.tolist() == list(range(steps.step.max() + 1))


def kept_step(run: Run) -> int:
    return open_run(run.path).checkpoints[-1].step


SENT = [((1,), "SIGTERM"), ((0, 1), "SIGTERM"), ((0,), "SIGUSR1"), ((0, 1), "SIGUSR1"), ((0,), "SIGTERM")]


@pytest.mark.parametrize(("ranks", "name"), thinned(SENT, [0]))
def test_all_ranks_stop_before_the_same_step(
    session: Session, config: RunConfig, ranks: tuple[int, ...], name: str
) -> None:
    sent = signal.Signals[name]
    run = until_step(session.train(config.replace(epochs=100_000)), 5)
    send(run, ranks, sent)
    step = kept_step(run)
    steps = open_run(run.path).table("steps")
    assert all(steps[steps["rank"] == rank].step.max() + 1 == step >= 5 for rank in (0, 1))
    assert f"interrupted by {name} at step {step}: rank {ranks[0]} was asked to leave" in run.reason or (
        len(ranks) == 2 and f"interrupted by {name} at step {step}: rank 1 was asked to leave" in run.reason
    )
    dashboard = Dashboard(session)
    try:
        until(lambda: dashboard.watch.state.run is not None, what="the dashboard sees the run")
        look(dashboard)
        assert notice(dashboard).startswith(f"Interrupted by {name} at step {step}.")
    finally:
        dashboard.close()
    assert_resumes(session, run, step)


@pytest.mark.parametrize("rank", thinned([0, 1], [1]))
def test_a_step_of_three_seconds_is_finished(session: Session, config: RunConfig, rank: int) -> None:
    """The signalled rank waits in the exchange for the other one, where Python runs no handlers."""
    run = until_step(session.train(config.replace(epochs=100_000, slow_rank=1 - rank, slow_ms=3000.0)), 1)
    time.sleep(0.5)
    send(run, (rank,))
    assert kept_step(run) == 2
    assert_resumes(session, run, 2, slow_ms=0.0)


LONG_STEP = """
import time
from dtdg_lab.training.loop import Trainer
Trainer._slow_down = lambda trainer: time.sleep(60.0 * (trainer.position.step == 5))
"""


@pytest.mark.slow
def test_a_rank_leaves_a_step_of_a_minute(session: Session, config: RunConfig) -> None:
    """The other rank computes: the signalled one cannot wait for it, and the other ends as by any lost rank."""
    session._engines.client[:1].execute(LONG_STEP, block=True)
    run = until_step(session.train(config.replace(epochs=100_000)), 5)
    time.sleep(0.5)
    send(run, (1,))
    assert "interrupted by SIGTERM at step 5: rank 1 was asked to leave, and left after 8.5 s" in run.reason
    until(lambda: not session.engines()[0].is_alive, timeout_s=10, what="the other engine is gone")
    again = until_step(run.resume(), 8)
    assert run.status == "interrupted"
    stop(again)


@pytest.mark.slow
def test_ranks_that_average_models_stop_too(session: Session, config: RunConfig) -> None:
    run = until_step(session.train(config.replace(system="dynahb", epochs=100_000, learning_rate=0.001)), 10)
    send(run, (1,))
    assert "interrupted by SIGTERM at step" in run.reason
    again = until_step(run.resume(), kept_step(run) + 5)
    stop(again)


@pytest.mark.slow
def test_a_paused_run_is_interrupted(session: Session, config: RunConfig) -> None:
    run = until_step(session.train(config.replace(epochs=100_000)), 3)
    pause(run)
    send(run, (1,))
    assert_resumes(session, run, kept_step(run))


SLOW_LOAD = """
import time
from dtdg_lab.core.preparation import announce
from dtdg_lab.datasets import names
whole_load = names.load_for
def slow_load(config):
    for _ in range(300):
        announce("waits")
        time.sleep(0.1)
    return whole_load(config)
names.load_for = slow_load
"""


SILENT_LOAD = SLOW_LOAD.replace('announce("waits")', "pass")
LOADS = [
    (0, (0,), SLOW_LOAD),
    (1, (1,), SLOW_LOAD),
    (0, (1,), SLOW_LOAD),
    (0, (0, 1), SLOW_LOAD),
    (0, (0, 1), SILENT_LOAD),
]


@pytest.mark.parametrize(("where", "sent_to", "load"), thinned(LOADS, [2]))
def test_a_run_in_preparation_starts_again_from_the_beginning(
    session: Session, config: RunConfig, where: int, sent_to: tuple[int, ...], load: str
) -> None:
    engines = session._engines.client[:]
    engines.targets = [session._engines.alive()[where].id]
    engines.execute(load, block=True)
    run = session.train(config.replace(epochs=100_000))
    notes_of(run)
    time.sleep(0.5)
    send(run, sent_to)
    assert not (run.path / "checkpoints" / "last.pt").exists()
    assert "It starts from the beginning by: " in run.reason
    until(lambda: run._ended.is_set(), what="the handle has followed to the end")
    left = [engine.id for engine in session._engines.alive()]
    if engines.targets[0] in left:  # it was not asked to leave
        engines.execute("names.load_for = whole_load", block=True)
    again = until_step(run.resume(learning_rate=0.02), 3)
    until(lambda: again.config.learning_rate == 0.02, what="the change, which rank 0 records")
    assert again.attempt == 2
    stop(again)
    steps = open_run(run.path).table("steps")
    assert steps[steps["rank"] == 0].step.tolist() == list(range(steps.step.max() + 1))
    assert session.ready


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_command_line_run_on_engines(tmp_path: Path, config: RunConfig, sent: signal.Signals) -> None:
    (tmp_path / "config.json").write_text(config.replace(epochs=100_000).to_json())
    command = [sys.executable, "-m", "dtdg_lab", "run", str(tmp_path / "config.json"), "--runs", str(tmp_path / "runs")]
    child = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        until(lambda: any((tmp_path / "runs").glob("2*/checkpoints/last.pt")), what="a checkpoint")
        time.sleep(0.5)
        sent_s = time.monotonic()
        child.send_signal(sent)
        _, errors = child.communicate(timeout=30)
        assert time.monotonic() - sent_s < 10
    finally:
        for process in [*psutil.Process(child.pid).children(recursive=True)] if child.poll() is None else []:
            process.kill()
        child.kill()
    run = open_run(next((tmp_path / "runs").glob("2*")))
    assert child.returncode == 128 + sent and "Traceback" not in errors
    assert f"run {run.id} was interrupted by {sent.name} at step {run.checkpoints[-1].step}: " in errors
