"""What dies, dies for real: engines, kernels, disks. Runs end named and resumable, survivors never hang."""

from __future__ import annotations

import os
import resource
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from dtdg_lab.cluster import worker
from dtdg_lab.cluster.session import Session
from dtdg_lab.cluster.worker import RankTask
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ClusterError, RunFailedError, RunStoreError
from dtdg_lab.records.lines import read_lines
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.liveness import is_dead, read_notes
from dtdg_lab.runs.stored_run import open_run
from tests.following import goes_on, kill_rank, losses_of, stop, until, until_step
from tests.kernels import start_kernel
from tests.soak import Soak, table
from tests.thinning import thinned


def assert_failed_and_repairable(session: Session, run, rank: int, ranks: int) -> None:
    took_s = until(lambda: run.status == "failed", timeout_s=20, what="the failure is marked")
    assert took_s < 10.0
    assert run.failed_rank == rank and f"rank {rank} died" in run.reason
    written = {r: sum(len(line["rows"]) for line in read_lines(f)) for r, f in _files(run).items()}
    with pytest.raises(RunFailedError, match=f"rank {rank} died"):
        run.wait(60)
    assert open_run(run.path).summary["status"] == "failed"
    until(lambda: not session.ready, what="the session sees that engines are missing")
    with pytest.raises(ClusterError, match="repair"):
        run.resume()
    session.repair()
    assert session.ready
    again = run.resume()
    before = again.live.progress.step
    until(lambda: again.live.progress.step > max(before, 5) + 10, timeout_s=30, what="steps after resuming")
    after = {r: sum(len(line["rows"]) for line in read_lines(f)) for r, f in _files(run).items()}
    assert all(after[r] >= written[r] for r in written), "records written before the death are gone"
    stop(again)


def _files(run) -> dict[int, Path]:
    return {int(path.stem[4:]): path for path in (run.path / "records").glob("rank*.jsonl")}


@pytest.mark.parametrize(("slow_rank", "killed"), thinned([(0, 0), (1, 1), (0, 1)], [1]))
def test_a_rank_killed_within_a_step(session: Session, config: RunConfig, slow_rank: int, killed: int) -> None:
    """The slowed rank is inside its step, and the other one waits in the collective."""
    run = until_step(session.train(config.replace(epochs=100_000, slow_rank=slow_rank, slow_ms=150.0)), 12)
    time.sleep(0.05)
    kill_rank(run, killed)
    assert_failed_and_repairable(session, run, killed, 2)


# on the engine that is to die: once the flag is there it kills itself in an exchange, the other ranks standing in it
TRAP = """
import os, signal, time
from dtdg_lab.distributed import all_to_all as rows

class Trapped(rows.RowExchange):
    def _start(self, *given):
        said = os.path.exists({flag!r}) and len(self._members.numbers) > 1
        if said and {before_start}:
            time.sleep(0.3)  # the other rank has long started its part of this one
            os.kill(os.getpid(), signal.SIGKILL)
        started = super()._start(*given)
        if said:
            os.kill(os.getpid(), signal.SIGKILL)
        return started

rows.RowExchange = Trapped
"""


@pytest.mark.slow
def test_a_rank_killed_in_the_middle_of_an_all_to_all(session: Session, config: RunConfig, tmp_path: Path) -> None:
    sequence = config.replace(system="esdg", blocks=3, dtype="float64", epochs=40, slow_rank=0, slow_ms=40.0)
    wanted = losses_of(session.train(sequence.replace(slow_ms=0.0)).wait(60), 40)
    for rank, before_start in ((1, True), (0, False)):  # while the other waits for its rows; while they travel
        flag = tmp_path / f"now {rank}"
        trap = TRAP.format(flag=str(flag), before_start=before_start)
        session._engines.client[session._engines.alive()[rank].id].execute(trap, silent=True).get(20)
        run = until_step(session.train(sequence), 8)
        flag.touch()
        took_s = until(lambda run=run: run.status == "failed", timeout_s=10, what="the failure is marked")
        assert took_s < 5.0
        assert (run.failed_rank, f"rank {rank} died" in run.reason) == (rank, True)
        with pytest.raises(RunFailedError, match=f"rank {rank} died"):
            run.wait(60)
        notes, other = read_notes(run.path / "live", run.attempt), 1 - rank
        assert other not in notes or is_dead(notes[other]), "the survivor has not left its step"
        session.repair()
        again = run.resume(slow_ms=0.0).wait(60)
        attempts = open_run(again.path).table("steps").attempt.value_counts()
        assert attempts[1] >= 8 and attempts[2] >= 5, "steps of both attempts make up the run"
        assert losses_of(again, 40) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.slow
def test_one_of_four_ranks_killed_inside_a_step_and_inside_the_collective(tmp_path: Path, config: RunConfig) -> None:
    four = config.replace(ranks=4, parts=4, epochs=100_000, slow_rank=2, slow_ms=80.0)
    with Session(ranks=4, runs_dir=tmp_path, idle_s=60) as session:
        for victim in (1, 2):  # 1 waits in the collective for 2, which sleeps inside its step
            run = until_step(session.train(four), 10)
            time.sleep(0.03)
            kill_rank(run, victim)
            assert_failed_and_repairable(session, run, victim, 4)


@pytest.mark.slow
def test_all_ranks_killed_at_once(session: Session, config: RunConfig) -> None:
    run = until_step(session.train(config.replace(epochs=100_000)), 10)
    for rank in (0, 1):
        kill_rank(run, rank)
    until(lambda: run.status == "failed", timeout_s=10, what="marked by the kernel, since nobody survived")
    assert "died" in run.reason
    session.repair()
    assert session.ready


def test_engines_killed_at_once_are_replaced_while_their_ends_are_still_reported(session: Session) -> None:
    for engine in session._engines.alive():
        os.kill(engine.pid, signal.SIGKILL)
    until(
        lambda: not any(engine.is_alive for engine in session.engines().values()),
        timeout_s=10,
        what="engines that are gone",
    )
    session.repair()
    assert session.ready


def test_a_full_disk_is_a_clear_error_and_training_stops(session: Session, config: RunConfig) -> None:
    run = until_step(session.train(config.replace(epochs=100_000)), 10)
    note = read_notes(run.path / "live", run.attempt)[1]
    size = (run.path / "records" / "rank1.jsonl").stat().st_size
    limits = psutil.Process(note.pid).rlimit(resource.RLIMIT_FSIZE)
    # the kernel refuses this process any byte past the limit, as a full disk would
    psutil.Process(note.pid).rlimit(resource.RLIMIT_FSIZE, (size + 2000, limits[1]))
    try:
        until(lambda: run.status == "failed", timeout_s=15, what="the run notices that it cannot be recorded")
        assert "rank1.jsonl" in run.reason and "record" in run.reason
        with pytest.raises(RunFailedError):
            run.wait(60)
    finally:
        if psutil.pid_exists(note.pid):
            psutil.Process(note.pid).rlimit(resource.RLIMIT_FSIZE, limits)
    session.repair()
    again = until_step(run.resume(), 20)
    stop(again)


def test_the_cause_comes_before_the_group_is_closed(
    tmp_path: Path, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing breaks the collectives of the other ranks, whose errors say nothing about the cause."""

    def fails(task: RankTask, directory: RunDirectory, stack: ExitStack, *_: object) -> str:
        stack.callback(lambda: seen.append(directory.status()["reason"]))
        raise RunStoreError("the disk is full")

    seen: list[str] = []
    run = RunDirectory.create(config, root=tmp_path)
    monkeypatch.setattr(worker, "_train", fails)
    with pytest.raises(RunStoreError):
        worker.run_rank(RankTask(str(run.path), rank=1, size=2, attempt=1, key=""))
    assert seen == ["the disk is full"]


def test_runs_that_cannot_be_written_start_nothing(tmp_path: Path, config: RunConfig, session: Session) -> None:
    blocked = tmp_path / "runs"
    blocked.write_text("a file where the folder should be")
    files = session._files
    session._files = type(files)(**{**{k: getattr(files, k) for k in files.__slots__}, "runs_dir": str(blocked)})
    try:
        with pytest.raises(RunStoreError, match="runs"):
            session.train(config)
    finally:
        session._files = files
    assert session.ready


def test_training_outlives_the_kernel_and_a_new_one_steers_it(tmp_path: Path, config: RunConfig) -> None:
    kernel = start_kernel(tmp_path, config.replace(epochs=1_000_000), idle_s=4)
    kernel.kill()
    kernel.communicate()
    time.sleep(6)  # longer than an idle cluster may live: this one is busy
    session = Session.attach("killed")
    run = session.current
    assert run is not None and run.status == "running"
    until_step(run, 10)
    assert run.live.sequence.missing == 0
    first = open_run(run.path).table("steps").step.min()
    assert first == 0, "the new kernel shows the whole history"
    goes_on(run, 5)
    run.set(learning_rate=0.002)
    until(lambda: run.config.learning_rate == 0.002, what="the new kernel steers")
    same = Session(ranks=2, name="killed", runs_dir=tmp_path / "runs")  # the notebook's cell, run again
    assert same.current is not None and same.current.id == run.id
    same.detach()
    stop(run)
    processes = session._files.processes()
    assert processes
    session.detach()
    # nobody is left: the keeper ends the idle cluster
    until(lambda: not any(p.is_running() and p.status() != "zombie" for p in processes), timeout_s=25, what="idle end")
    until(lambda: not session._files.folder.exists(), what="the session's files are gone")


@pytest.mark.slow
def test_a_rank_that_dies_while_no_kernel_looks_is_named_by_the_survivors(tmp_path: Path, config: RunConfig) -> None:
    kernel = start_kernel(tmp_path, config.replace(epochs=1_000_000), idle_s=30)
    kernel.kill()
    kernel.communicate()
    directory = RunDirectory.open(next((tmp_path / "runs").iterdir()))
    os.kill(read_notes(directory.live, 1)[1].pid, signal.SIGKILL)
    until(lambda: directory.status()["state"] == "failed", timeout_s=5, what="the survivor marks the run")
    assert directory.status()["rank"] == 1
    session = Session.attach("killed")
    run = session.current
    assert run is not None and run.status == "failed" and run.failed_rank == 1
    session.repair()
    until_step(run.resume(), 20)
    session.close()


@pytest.mark.slow
def test_a_steered_run_whose_engines_die_loses_no_records(tmp_path: Path) -> None:
    """Twenty-five seconds of `make soak`."""
    soak = Soak(tmp_path, 25.0, kill_every_s=9.0, turn_every_s=0.5, seed=1)
    trial = soak.go()
    assert trial.failures == [], table(trial, soak.warm_s)
    assert trial.lost == 0 and trial.kills >= 1 and trial.attempts == trial.kills + 1 and trial.turns > 5
