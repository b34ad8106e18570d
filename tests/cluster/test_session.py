"""A session on two real engines: start, steer, stop, resume, pause, and what it refuses."""

from __future__ import annotations

import os
import stat
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from dtdg_lab.cluster.followed_run import FollowedRun
from dtdg_lab.cluster.session import Session
from dtdg_lab.cluster.session_files import SessionFiles
from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ClusterError, ConfigError, ControlError, RunFailedError, UnknownNameError
from dtdg_lab.datasets.download import one_at_a_time
from dtdg_lab.datasets.names import load_for
from dtdg_lab.graphs.split import split
from dtdg_lab.graphs.training_graph import training_graph
from dtdg_lab.partition.base import _cache_file
from dtdg_lab.runs.stored_run import open_run
from tests.children import run_python
from tests.following import applied_at_one_step, goes_on, pause, stop, until, until_step


def test_a_run_trains_is_steered_and_stops(session: Session, config: RunConfig) -> None:
    run = until_step(session.train(config), 5)
    assert run.status == "running"
    versions = [run.set(learning_rate=0.001 * k) for k in range(1, 6)]
    epoch_version = run.set(scheduler="longest_first")
    assert versions == [1, 2, 3, 4, 5] and epoch_version == 6
    until(lambda: run.config["scheduler"] == "longest_first", what="the epoch knob")
    assert run.config.learning_rate == 0.005
    stop(run)
    assert run.status == "stopped"
    applied_at_one_step(run, "learning_rate")
    assert open_run(run).summary["status"] == "stopped"  # a run stands for its folder
    assert (run.path / "report.html").is_file()


SET_TORCH = """
import torch
torch.set_grad_enabled(False)
torch.set_default_dtype(torch.float64)
torch.use_deterministic_algorithms(True)
torch.set_num_threads(2)
"""
HELD = """
held = (torch.is_grad_enabled(), str(torch.get_default_dtype()), torch.are_deterministic_algorithms_enabled(),
        torch.get_num_threads())
torch.set_grad_enabled(True)
torch.set_default_dtype(torch.float32)
torch.use_deterministic_algorithms(False)
"""


def test_what_a_user_sets_on_engines_does_not_reach_a_run(session: Session, config: RunConfig) -> None:
    """As by a cell with ``%px``, which is executed in the same thread as a run."""
    plain = session.train(config.replace(epochs=2)).wait(60)
    engines = session._engines.client[:]
    engines.execute(SET_TORCH, block=True)
    try:
        run = session.train(config.replace(epochs=2)).wait(60)
    finally:
        engines.execute(HELD, block=True)
    assert engines["held"] == [(False, "torch.float64", True, 2)] * 2, "they hold again after the run"
    losses = [each.to_pandas().global_loss.dropna().tolist() for each in (plain, run)]
    assert losses[0] == losses[1] and len(set(losses[0])) > 2


def test_a_run_stops_before_its_first_step(
    session: Session, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 waits for a partition that another process makes, and rank 1 for rank 0."""
    monkeypatch.setenv("DTDG_LAB_CACHE", session._engines.client[:].apply_sync(os.getenv, "DTDG_LAB_CACHE")[0])
    config = config.replace(system="adgnn-t", epochs=1)
    asked = {"seed": config.seed, "imbalance": config["imbalance"]}
    graph = load_for(config)
    train = split(graph.num_snapshots, graph.edge_life, catalogue.PROTOCOLS[config.protocol]).train
    seen = training_graph(graph, train)
    with one_at_a_time(_cache_file(catalogue.entry("partition", "metis"), seen, 2, asked)):
        run = session.train(config)
        until(lambda: bool(run.live.preparing), what="what it waits for")
        assert run.status == "starting" and "another process" in run.live.preparing
        began_s = time.monotonic()
        run.stop()
        run.wait(40)
        assert run.status == "stopped" and time.monotonic() - began_s < 20
    assert open_run(run).summary["steps"] == 0
    again = session.train(config).wait(60)
    assert again.status == "finished" and again.live.preparing == "", "its engines are as good as before"


def test_every_record_on_disk_is_in_the_window(session: Session, config: RunConfig) -> None:
    run = session.train(config.replace(epochs=3)).wait(60)
    steps = open_run(run.path).table("steps")
    assert run.live.progress.step + 1 >= steps.step.max() >= run.live.progress.step - 1
    assert run.live.sequence.missing == 0
    assert set(steps["rank"]) == {0, 1}
    phases = ["batch_s", "transfer_s", "compute_s", "wait_s", "communicate_s", "update_s", "control_s"]
    assert np.allclose(steps[phases].sum(axis=1), steps.time_s, rtol=0.03)
    frame = run.to_pandas()
    assert {"rank", "epoch", "step", "split", "loss", "time_s", "wait_s", "energy_j", "energy_source"} <= set(frame)


def test_stopped_and_resumed_equals_uninterrupted(session: Session, config: RunConfig) -> None:
    short = config.replace(epochs=40)
    whole = session.train(short).wait(60)
    run = session.train(short.replace(slow_rank=0, slow_ms=30.0))  # slow enough to be caught, equal in its losses
    until_step(run, 7)
    stop(run)
    stopped_at = run.summary["steps"]
    assert run.status == "stopped" and stopped_at < whole.summary["steps"]
    again = run.resume().wait(60)
    assert again.path == run.path and again.attempt == 2
    assert again.live is run.live  # long records are not read again
    stored, by_arrival = open_run(run.path), ("timeline", "schedule")  # bars in the order of their records
    assert again.captions() == stored.captions()
    live_figures, stored_figures = (
        {name: figure for name, figure in each.figures().items() if name not in by_arrival} for each in (again, stored)
    )
    assert "loss" in live_figures
    assert {name for name in stored_figures if live_figures[name] != stored_figures[name]} == set()
    left, right = (open_run(r.path).table("steps").sort_values(["rank", "step"]) for r in (whole, again))
    assert left.global_loss.tolist() == right.global_loss.tolist()
    assert again.summary["test_loss"] == whole.summary["test_loss"]
    with pytest.raises(ConfigError, match=r"has finished its 40 epochs.*epochs=.*fork"):
        again.resume(learning_rate=0.5)
    assert again.attempt == 2


def test_the_status_is_current_while_records_are_read(
    session: Session, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def long(handle: FollowedRun, rank: int) -> bool:
        return read(handle, rank) or reading.is_set()

    run = until_step(session.train(config.replace(epochs=100_000)), 5)
    stop(run)
    read, reading = FollowedRun._catch_up, threading.Event()
    reading.set()
    monkeypatch.setattr(FollowedRun, "_catch_up", long)
    session._handles.clear()  # as in another kernel
    again = session.resume(run.path)
    until(lambda: again.status == "running", what="it trains")
    reading.clear()
    stop(again)
    assert (again.status, again.live.sequence.missing) == ("stopped", 0)


def test_pause_holds_all_ranks_and_steering_works_meanwhile(session: Session, config: RunConfig) -> None:
    run = until_step(session.train(config), 5)
    pause(run)
    held = run.live.progress.step
    run.set(learning_rate=0.02)
    until(lambda: run.config.learning_rate == 0.02, what="a setting changed in the pause")
    time.sleep(0.7)
    assert run.live.progress.step == held
    run.unpause()
    until(lambda: run.live.progress.step > held + 3, what="steps after the pause")
    stop(run)


@pytest.mark.slow
def test_two_sessions_in_one_process_work_side_by_side(session: Session, config: RunConfig, tmp_path: Path) -> None:
    with Session(ranks=1, runs_dir=tmp_path) as other:
        left = session.train(config.replace(epochs=10))
        right = other.train(config.replace(epochs=10, ranks=1, parts=1))
        assert left.wait(60).status == right.wait(40).status == "finished"
        assert [run.id for run in other.runs] == [right.id]


def test_bad_requests_change_nothing(session: Session, config: RunConfig) -> None:
    run = until_step(session.train(config), 3)
    for live_settings, error in [
        ({"learning_rate": -1.0}, ConfigError),
        ({"hidden": 64}, ConfigError),
        ({"learning_rte": 0.1}, ConfigError),
        ({"scheduler": "fastest"}, ConfigError),
    ]:
        with pytest.raises(error):
            run.set(**live_settings)
    with pytest.raises(ControlError, match="Stop it first"):
        session.train(config)
    stop(run)
    assert run.status == "stopped" and run.config == config
    with pytest.raises(ControlError, match="has ended"):
        run.set(learning_rate=0.1)
    with pytest.raises(ClusterError, match="needs 4 ranks"):
        session.train(config.replace(ranks=4, parts=4))


def test_an_epoch_change_that_cannot_be_built_leaves_the_run_as_it_was(session: Session, config: RunConfig) -> None:
    run = until_step(session.train(config.replace(epochs=100_000)), 5)
    run.set(group_window=500)  # within bounds, but the training split is shorter: only the ranks can know
    until(lambda: "group_window=500 was refused" in run.reason, what="the refusal")
    assert run.status == "running" and run.config["group_window"] == config["group_window"]
    goes_on(run, 5)
    stop(run)


@pytest.mark.slow
def test_a_refusal_names_itself_alone_and_is_forgotten(session: Session, config: RunConfig) -> None:
    windows = config.replace(system="flaredtdg", epochs=100_000, window=5, chunks=8, partitioner="round_robin")
    run = until_step(session.train(windows), 5)
    run.pause()
    run.set(window=8)
    run.set(chunks=100_000)  # within bounds: only the ranks can know
    run.set(full_snapshots=7)  # not with the window in force, but with the one that waits
    with pytest.raises(ConfigError, match="full_snapshots=9 exceeds window=8"):
        run.set(full_snapshots=9)
    run.unpause()
    until(lambda: run.config["window"] == 8 and bool(run.reason), what="the change and the refusal")
    assert run.reason.startswith("chunks=100000 was refused") and "window" not in run.reason
    assert (run.config["full_snapshots"], run.config["chunks"]) == (7, 8)
    run.set(chunks=100_001)
    until(lambda: "chunks=100001 was refused" in run.reason, what="the newer refusal")
    assert "100000" not in run.reason
    run.set(learning_rate=0.02)
    until(lambda: run.config.learning_rate == 0.02 and not run.reason, what="the refusal is forgotten")
    stop(run)
    events = open_run(run.path).table("events")
    made = events[[(data or {}).get("changes") == {"window": 8, "full_snapshots": 7} for data in events.data]]
    assert sorted(made["rank"]) == [0, 1] and made.step.nunique() == 1, made


def test_every_port_is_on_loopback_and_the_key_is_private(session: Session, config: RunConfig) -> None:
    run = until_step(session.train(config), 3)
    files = SessionFiles.read(session._files.id)
    pids = [process.pid for process in files.processes()]
    assert len(pids) >= 3
    listening = [
        connection.laddr.ip
        for pid in pids
        for connection in psutil.Process(pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) > 10
    assert {ip.replace("::ffff:", "") for ip in listening} <= {"127.0.0.1", "::1"}
    assert stat.S_IMODE((files.folder / "session.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(files.folder.stat().st_mode) == 0o700
    stop(run)


def test_nan_stops_the_run_names_it_and_keeps_the_checkpoint(session: Session, config: RunConfig) -> None:
    run = until_step(session.train(config.replace(optimizer="sgd")), 30)
    run.set(learning_rate=100.0, epochs=100000)
    until(lambda: run.status == "failed", timeout_s=40, what="a loss that explodes")
    assert "the loss is" in run.reason and ("nan" in run.reason or "inf" in run.reason)
    assert "checkpoint" in run.reason and session.ready
    with pytest.raises(RunFailedError, match="the loss is"):
        run.wait(60)
    again = until_step(run.resume(learning_rate=1e-3), 1)
    stop(again)


def test_two_handles_agree(session: Session, config: RunConfig) -> None:
    run = until_step(session.train(config), 3)
    other = Session.attach(session._files.id)
    try:
        seen = other.current
        assert seen is not None and seen.id == run.id
        until_step(seen, 3)
        assert seen.set(learning_rate=0.04) == 1
        until(lambda: run.config.learning_rate == 0.04, what="the other handle's change")
        assert run.set(learning_rate=0.03) == 2
        until(lambda: seen.config.learning_rate == 0.03, what="the first handle's change")
        run.stop()
        until(lambda: seen.status == "stopped", what="stopped")
    finally:
        other.detach()
    run.wait(60)


def test_resuming_undoes_what_the_checkpoint_does_not_hold(session: Session, config: RunConfig) -> None:
    run = until_step(session.train(config.replace(checkpoint_every_s=1000.0, epochs=100_000)), 5)
    stop(run)
    again = until_step(run.resume(learning_rate=0.5), run.live.progress.step + 3)
    until(lambda: again.config.learning_rate == 0.5, what="the handle knows the settings it resumed with")
    again.set(learning_rate=0.25)
    until(lambda: again.config.learning_rate == 0.25, what="the knob")
    stop(again)
    later = Session.attach(session._files.id)
    try:
        assert later.current is not None
        until(lambda: later.current.config.learning_rate == 0.25, what="another handle reads the same")
    finally:
        later.detach()


def test_a_handle_of_another_kernel_follows_a_resumed_run(session: Session, config: RunConfig) -> None:
    first = until_step(session.train(config.replace(epochs=100_000)), 5)
    first.set(learning_rate=0.3)
    stop(first)
    other = Session.attach(session._files.id)
    try:
        assert other.current is not None
        other.current.wait(60)
        again = until_step(first.resume(), 10)
        until(lambda: other.current.attempt == 2 and other.current.status == "running", what="the other kernel sees it")
        with pytest.raises(ControlError, match="Stop it first"):
            other.train(config)
        with pytest.raises(ControlError):
            first.resume()  # a handle from before: the run is under way
        other.current.stop()
        again.wait(60)
        third = first.resume()
        assert third.attempt == 3
        until_step(third, 5)
        stop(third)
    finally:
        other.detach()


def test_who_waits_is_told_when_the_session_lets_go(session: Session, config: RunConfig) -> None:
    run = until_step(session.train(config.replace(epochs=100_000)), 5)
    other = Session.attach(session._files.id)
    seen = other.current
    assert seen is not None
    other.detach()
    with pytest.raises(ControlError, match="has detached"):
        seen.wait(60)
    stop(run)


def test_the_first_snippet_of_the_readme_runs_without_data_and_network(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "README.md").read_text()
    snippet = text.split("```python\n", 1)[1].split("```", 1)[0]
    alone = """
import socket
connect = socket.socket.connect
def local(self, address):
    if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
        raise OSError(f"no network: {address}")
    return connect(self, address)
socket.socket.connect = local
"""
    program = tmp_path / "readme.py"
    program.write_text(alone + snippet + "\nassert config.dataset == 'growing' and run.status == 'finished'\n")
    folders = {name: str(tmp_path / name) for name in ("HOME", "DTDG_LAB_CACHE", "DTDG_LAB_STATE", "DTDG_LAB_DATA")}
    for folder in folders.values():
        Path(folder).mkdir()
    run_python(program, folder=tmp_path, **folders)


def test_attaching_to_nothing_says_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DTDG_LAB_STATE", str(tmp_path))
    with pytest.raises(ClusterError, match=r"Session\(ranks=2\)"):
        Session.attach()
    with pytest.raises(UnknownNameError, match="connection file or profile"):
        Session.attach("no-such-cluster")
