"""SIGTERM and SIGUSR1 while a process trains by itself: a checkpoint, a named end, and the process is gone."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

import dtdg_lab as lab
from dtdg_lab.cluster.stop_signals import StopSignals
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ControlError, RunInterruptedError
from dtdg_lab.runs.stored_run import StoredRun, newest_interrupted, open_run
from tests.factories import small_config
from tests.following import until
from tests.thinning import thinned

CONFIG = small_config(parts=2, epochs=100_000, evaluate_every=1000, threads=1)
SLOW = CONFIG.replace(slow_rank=0, slow_ms=5000.0)
SCRIPT = """
import signal, sys, time
import dtdg_lab as lab
from dtdg_lab.training.checkpoint import Checkpoint
{before}
if __name__ == "__main__":
    lab.train(lab.RunConfig.load(sys.argv[1]), runs_dir=sys.argv[2], progress=False)
    print("trained")
"""
# what the script does before it trains
SLOW_SAVES = """
save = Checkpoint.save
def slow(self, path):
    if self.position.step:
        open(path.parent / "saving", "w").close()
        time.sleep(2)
    save(self, path)
Checkpoint.save = slow
"""
SLOW_LOAD = """
from dtdg_lab.datasets import names
from dtdg_lab.core.preparation import announce
load = names.load_for
def slow(config):
    open(sys.argv[2] + "-loading", "w").close()
    for _ in range(200):
        announce("waits")
        time.sleep(0.1)
    return load(config)
names.load_for = slow
"""
STUCK_LOAD = SLOW_LOAD.replace('announce("waits")', "pass")
LONG_STEP = """
from dtdg_lab.training.loop import Trainer
def slow(self):
    if self.position.step == 3:
        open(sys.argv[2] + "-long", "w").close()
        time.sleep(60)
Trainer._slow_down = slow
"""
OWN_HANDLER = 'signal.signal(signal.SIGTERM, lambda *_: print("mine", flush=True))'


@contextmanager
def process(
    tmp_path: Path, config: RunConfig = CONFIG, *, before: str = "", step: int = 0, command: Sequence[str] = ()
) -> Iterator[tuple[subprocess.Popen[str], StoredRun]]:
    """Train in a process: a script that does something before, or a command; yields it once its run has made steps."""
    settings, path, runs = tmp_path / "config.json", tmp_path / "script.py", tmp_path / "runs"
    settings.write_text(config.to_json())
    path.write_text(SCRIPT.format(before=before))
    called = [sys.executable, *(command or [str(path), str(settings), str(runs)])]
    child = subprocess.Popen(called, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        until(lambda: any(runs.glob("2*/live/rank0.json")), what="its note")
        run = open_run(next(runs.glob("2*")))
        until(lambda: not step or (run.status == "running" and steps_of(run) >= step), what=f"step {step}")
        yield child, run
    finally:
        child.kill()
        child.communicate()


def steps_of(run: StoredRun) -> int:
    return len(run.table("steps")) if run.directory.record_file(0).is_file() else 0


def ended(child: subprocess.Popen[str], sent: signal.Signals) -> tuple[int, str, str]:
    """Send the signal; return the exit code, what was printed, and errors. It may take 10 s."""
    sent_s = time.monotonic()
    child.send_signal(sent)
    printed, errors = child.communicate(timeout=30)
    assert time.monotonic() - sent_s < 10
    return child.returncode, printed, errors


@pytest.mark.parametrize("sent", thinned([signal.SIGTERM, signal.SIGUSR1]))
def test_a_training_script_is_interrupted_between_two_steps(tmp_path: Path, sent: signal.Signals) -> None:
    with process(tmp_path, step=3) as (child, run):
        code, printed, _ = ended(child, sent)
    assert code == -sent and "trained" not in printed, "the signal does what it does without a run"
    kept = run.checkpoints[-1]
    assert run.status == "interrupted" and kept.step == steps_of(run) >= 3
    assert run.reason.startswith(f"interrupted by {sent.name} at step {kept.step}: its process was asked to leave.")
    assert f"checkpoint after {kept.step} steps" in run.reason
    assert (
        f"It continues by: with lab.Session(ranks=1) as session: session.resume({str(run.path)!r}).wait()" in run.reason
    )
    assert f"interrupted by {sent.name} at step {kept.step}" in repr(run)
    assert run.summary["status"] == "interrupted" and run.summary["reason"] == run.reason
    assert f"interrupted by {sent.name} at step {kept.step}" in (run.path / "report.html").read_text()


@pytest.mark.slow
def test_a_step_of_five_seconds_is_finished(tmp_path: Path) -> None:
    with process(tmp_path, SLOW, step=1) as (child, run):
        time.sleep(0.5)  # the second one has begun
        assert ended(child, signal.SIGTERM)[0] == -signal.SIGTERM
    assert "interrupted by SIGTERM at step 2" in run.reason and run.checkpoints[-1].step == steps_of(run) == 2


@pytest.mark.slow
def test_a_step_of_a_minute_is_left(tmp_path: Path) -> None:
    config = CONFIG.replace(checkpoint_every_s=0.1)
    with process(tmp_path, config, before=LONG_STEP) as (child, run):
        until((tmp_path / "runs-long").exists, what="the long step")
        time.sleep(0.5)
        assert ended(child, signal.SIGTERM)[0] == 128 + signal.SIGTERM
    kept = run.checkpoints[-1].step
    assert run.status == "interrupted" and kept <= steps_of(run) == 3
    assert run.reason.startswith(
        "interrupted by SIGTERM at step 3: its process was asked to leave, and left after 8.5 s"
    )
    assert f"checkpoint after {kept} steps" in run.reason


@pytest.mark.slow
def test_a_checkpoint_that_is_being_written_is_whole(tmp_path: Path) -> None:
    config = CONFIG.replace(checkpoint_every_s=0.1)
    with process(tmp_path, config, before=SLOW_SAVES) as (child, run):
        until(lambda: (run.path / "checkpoints" / "saving").exists(), what="a checkpoint is written")
        assert ended(child, signal.SIGTERM)[0] == -signal.SIGTERM
    assert f"interrupted by SIGTERM at step {steps_of(run)}" in run.reason
    assert run.checkpoints[-1].step == steps_of(run)


@pytest.mark.slow
@pytest.mark.parametrize("system", ["dynahb", "greendygnn"])
def test_a_signal_to_a_whole_group_ends_no_child_that_the_last_step_needs(tmp_path: Path, system: str) -> None:
    config = small_config(system, parts=2, epochs=100_000, threads=1, generated_nodes=60, generated_edges=300)
    with process(tmp_path, config, step=2) as (child, run):
        children = psutil.Process(child.pid).children(recursive=True)
        assert children
        for process_ in children:
            process_.send_signal(signal.SIGTERM)
        assert ended(child, signal.SIGTERM)[0] == -signal.SIGTERM
    assert f"interrupted by SIGTERM at step {steps_of(run)}: " in run.reason and not list(run.path.glob("live/error*"))
    assert not any(each.is_running() for each in children)


@pytest.mark.parametrize("before", thinned([SLOW_LOAD, STUCK_LOAD], [0]), ids=["reports", "reports nothing"])
def test_a_run_in_preparation_starts_again_from_the_beginning(tmp_path: Path, before: str) -> None:
    with process(tmp_path, before=before) as (child, run):
        until((tmp_path / "runs-loading").exists, what="it loads its data")
        code, _, errors = ended(child, signal.SIGTERM)
    assert code in (-signal.SIGTERM, 128 + signal.SIGTERM) and "Traceback" not in errors
    assert run.status == "interrupted" and run.reason.startswith("interrupted by SIGTERM at step 0: ")
    assert ".resume(" in run.reason and "It starts from the beginning by: " in run.reason and not run.checkpoints


def test_the_script_s_own_handler_gets_the_signal_afterwards(tmp_path: Path) -> None:
    with process(tmp_path, before=OWN_HANDLER, step=2) as (child, run):
        code, printed, errors = ended(child, signal.SIGTERM)
    assert code == 1 and printed == "mine\n" and run.status == "interrupted"
    assert f"RunInterruptedError: run {run.id} was interrupted by SIGTERM at step" in errors


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_the_command_line_says_what_happened(tmp_path: Path, sent: signal.Signals) -> None:
    command = ["-m", "dtdg_lab", "run", str(tmp_path / "config.json"), "--runs", str(tmp_path / "runs")]
    with process(tmp_path, step=2, command=command) as (child, run):
        code, _, errors = ended(child, sent)
    assert code == 128 + sent and "Traceback" not in errors
    assert f"dtdg_lab run: run {run.id} was interrupted by {sent.name} at step {steps_of(run)}: " in errors


# one process: what is taken, and given back


def test_signals_are_taken_for_a_while_and_delivered_at_its_end() -> None:
    seen: list[Any] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: seen.append(number))
    try:
        with StopSignals(seen.append) as signals:
            signals.request = lambda name: seen.append(name)
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGUSR1)
            until(lambda: bool(seen), timeout_s=5)
        assert seen == ["SIGUSR1", signal.SIGUSR1] and signals.received is signal.SIGUSR1
        os.kill(os.getpid(), signal.SIGUSR1)
        assert seen == ["SIGUSR1", signal.SIGUSR1, signal.SIGUSR1], "the handler of before holds again"
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert "stop-signals" not in {thread.name for thread in threading.enumerate()}


def test_an_ignored_signal_stays_ignored_and_other_threads_take_none() -> None:
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        with StopSignals(print) as signals:
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.1)
        assert signals.received is None and signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, before)
    handlers: list[Any] = []

    def elsewhere() -> None:
        with StopSignals(print):
            handlers.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGTERM)]


def test_a_run_in_another_process_s_hands_is_not_marked_twice(tmp_path: Path) -> None:
    run = lab.train(CONFIG.replace(epochs=1), runs_dir=tmp_path, progress=False)
    run.directory.mark_interrupted(1, "SIGTERM", rank=0)
    assert run.status == "finished"
    run.directory.write_status("running", attempt=2)
    run.directory.mark_interrupted(1, "SIGTERM", rank=0)
    assert run.directory.recorded_status()["state"] == "running"
    run.directory.mark_interrupted(2, "SIGTERM", rank=0, overdue_s=8.5)
    assert run.reason.startswith(f"interrupted by SIGTERM at step {steps_of(run)}: its process was asked to leave, and")


def test_a_script_s_run_raises_where_the_signal_is_handled(tmp_path: Path) -> None:
    def send_after_three_steps() -> None:
        try:
            until(lambda: any(steps_of(open_run(note.parents[1])) >= 3 for note in tmp_path.glob("2*/live/rank0.json")))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        threading.Thread(target=send_after_three_steps).start()
        with pytest.raises(RunInterruptedError, match="interrupted by SIGTERM at step") as raised:
            lab.train(CONFIG, runs_dir=tmp_path, progress=False)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert raised.value.signal == "SIGTERM"
    run = next(tmp_path.glob("2*"))
    again = lab.runs.replay(run, runs_dir=tmp_path / "again")
    assert lab.runs.verify_replay(again) and steps_of(again) == steps_of(open_run(run))
    assert newest_interrupted(tmp_path) == run


def test_a_signal_is_heard_by_a_process_with_many_files_open() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with StopSignals(lambda name: None, deliver=False) as signals:
            signal.raise_signal(signal.SIGUSR1)
            until(lambda: signals.received == signal.SIGUSR1)
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_request_that_fails_is_made_again() -> None:
    failures = [OSError(24, "Too many open files"), ControlError("not ready")]
    names: list[str] = []

    def request(name: str) -> None:
        if failures:
            raise failures.pop()
        names.append(name)

    with StopSignals(lambda name: None, deliver=False) as signals:
        signals.request = request
        signal.raise_signal(signal.SIGUSR1)
        until(lambda: names == ["SIGUSR1"])
