"""Fetched features while two real engines train: every knob, what is refused, a pause, servers and ranks that die."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from dtdg_lab.cluster.run import Run
from dtdg_lab.cluster.session import Session
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunFailedError
from dtdg_lab.runs.liveness import read_notes
from dtdg_lab.runs.stored_run import open_run
from tests.following import applied_at_one_step, change, goes_on, kill_rank, pause, refused, stop, until, until_step
from tests.remote_training import policy_file
from tests.thinning import thinned

STEP: list[dict[str, Any]] = [
    {"links": "2>0 delay=2; 1 rate=100"},
    {"cache_window": 3},
    {"cache_bias": 3},
    {"cache_policy": "prefetch"},
    {"cache_policy": "threshold"},
    {"congestion": "oscillating", "congestion_ms": 4.0},
    {"congestion_mbit": 50.0},
    {"cache_policy": "on_demand"},
    {"cache_policy": "double_dqn"},
    {"congestion": "none", "links": ""},
    {"cache_policy": "fixed", "cache_bias": -1},
]
EPOCH: list[dict[str, Any]] = [
    {"batch_size": 20},
    {"cache_rows": 50},
    {"system": "adgnn-t"},
    {"links": "2>1 delay=1"},
    {"system": "bgl"},
    {"system": "psg"},
    {"system": "fixed-window"},
]


@pytest.fixture
def remote(config: RunConfig, tmp_path: Path) -> RunConfig:
    """A run that goes on until it is told to end."""
    batches = {"batch_size": 40, "batch_length": 2, "cache_rows": 100, "cache_window": 4}
    served = {"congestion_from": 0, "fetch_timeout_s": 3.0, "policy_file": policy_file(tmp_path)}
    return config.replace(system="fixed-window", parts=4, epochs=1_000_000, partitioner="hash", **batches, **served)


def servers(run: Run) -> dict[int, psutil.Process]:
    """rank -> the process that serves its parts' features."""
    found = {}
    for rank, note in read_notes(run.path / "live", run.attempt).items():
        for child in psutil.Process(note.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # a zombie is one of these
                if "dtdg_lab.systems.feature_cache.rpc.server_process" in child.cmdline():
                    assert rank not in found, "one for all parts of a rank"
                    found[rank] = child
    return found


def ended(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE or not process.is_running()
    return True


@pytest.mark.slow
def test_every_knob_of_fetched_features_in_a_running_job(session: Session, remote: RunConfig) -> None:
    run = until_step(session.train(remote), 3)
    first = servers(run)
    assert sorted(first) == [0, 1]
    for live_settings in STEP:
        change(run, **live_settings)
    for why, links in (("names part 9", "9>0 delay=5"), ("delay", "1>0 delay=-3"), ("rate", "1>0 rate=-1")):
        with pytest.raises(ConfigError, match=why):
            run.set(links=links)
    refused(run, "batch_length=9999 exceeds the training split", batch_length=9999)
    for live_settings in EPOCH:
        change(run, **live_settings)
    until(lambda: all(map(ended, first.values())), what="servers end with what they served")
    _pauses(run)
    second = servers(run)
    stop(run)
    until(lambda: all(map(ended, second.values())), what="servers end with the run")
    _check_what_was_recorded(run)
    again = until_step(run.resume(), run.live.progress.step + 5)
    third = servers(again)
    assert sorted(third) == [0, 1] and again.config == run.config
    stop(again)
    until(lambda: all(map(ended, third.values())), what="so do those of a resumed one")


def _pauses(run: Run) -> None:
    """For longer than an owner may be silent: nobody has asked."""
    pause(run)
    time.sleep(run.config["fetch_timeout_s"] + 0.3)
    assert sorted(servers(run)) == [0, 1]
    run.unpause()
    until(lambda: run.status == "running", what="going on")
    goes_on(run)


def _check_what_was_recorded(run: Run) -> None:
    opened = open_run(run.path)
    events, resolved, windows, steps = (opened.table(name) for name in ("events", "resolved", "windows", "steps"))
    for name in ("links", "cache_policy", "cache_window", "cache_bias", "congestion", "congestion_ms"):
        applied_at_one_step(run, name)
    losses = [steps[steps["rank"] == rank].sort_values("step").global_loss.tolist() for rank in (0, 1)]
    assert losses[0] == losses[1] and len(losses[0]) > 30
    assert {*resolved.part} == {0, 1, 2, 3} and (resolved[resolved["rank"] == 1].part >= 2).all()
    assert {*windows.policy} >= {"fixed", "threshold", "double_dqn"}
    asked = [
        set(zip(resolved[resolved.part == part].step, resolved[resolved.part == part].remote, strict=True))
        for part in range(4)
    ]
    assert all(asked) and {step for step, _ in asked[0]} == {step for step, _ in asked[3]}
    described = events[(events.kind == "congestion") & (events["rank"] == 0)]
    delays = [max(max(row) for row in data["delay_ms"]) for data in described.data]
    assert 2.0 in delays and any(2.0 < delay <= 6.0 for delay in delays) and delays[-1] in (0.0, 1.0)
    features = [data.get("policy") for data in events[events.kind == "features"].data]
    assert None in features and {"fixed", "prefetch"} <= set(features)


@pytest.mark.parametrize(
    ("sent", "system"), thinned([(signal.SIGKILL, "fixed-window"), (signal.SIGSTOP, "dgl-default")])
)
def test_a_server_that_dies_or_stands_still_is_named_and_the_run_is_resumed(
    session: Session, remote: RunConfig, sent: signal.Signals, system: str
) -> None:
    run = until_step(session.train(remote.replace(system=system)), 10)
    struck = servers(run)
    os.kill(struck[1].pid, sent)
    took_s = until(lambda: run.status == "failed", timeout_s=20, what="the failure is marked")
    assert took_s < remote["fetch_timeout_s"] + 8.0, "the time-out, and what telling it takes"
    with pytest.raises(RunFailedError, match=r"part.* [23]"):
        run.wait(60)
    assert "feature server" in run.reason and ("rank 1" in run.reason or run.failed_rank == 1), run.reason
    until(lambda: all(map(ended, struck.values())), what="both servers are gone")
    assert session.ready or session.repair() is None
    again = until_step(run.resume(), 20)
    change(again, links="3>0 delay=1")
    stop(again)
    assert again.status == "stopped"


def test_a_server_killed_twice_is_named_twice_and_the_third_attempt_trains(session: Session, remote: RunConfig) -> None:
    run = session.train(remote)
    for attempt in (1, 2):
        until_step(run, run.live.progress.step + 10)
        os.kill(servers(run)[1].pid, signal.SIGKILL)
        until(lambda run=run: run.status == "failed", timeout_s=20, what="the failure is marked")  # type: ignore[misc]
        with pytest.raises(RunFailedError):
            run.wait(60)
        assert "feature server" in run.reason and run.attempt == attempt
        assert "SIGKILL" not in run.reason or "GiB of memory are free now" in run.reason
        assert "memory runs out" not in run.reason
        assert ("(Attempt 2 of this run.)" in run.reason) == (attempt == 2), run.reason
        assert session.ready or session.repair() is None
        run = run.resume()
    until_step(run, run.live.progress.step + 10)
    stop(run)
    assert run.status == "stopped" and run.attempt == 3


@pytest.mark.slow
def test_a_server_ends_with_a_rank_that_is_killed(session: Session, remote: RunConfig) -> None:
    run = until_step(session.train(remote), 10)
    serving = servers(run)
    kill_rank(run, 1)
    took_s = until(lambda: run.status == "failed", timeout_s=15, what="the failure is marked")
    assert took_s < 5.0
    with pytest.raises(RunFailedError, match="rank 1"):
        run.wait(60)
    until(lambda: all(map(ended, serving.values())), what="servers end with their ranks")
    session.repair()
    again = until_step(run.resume(), 20)
    assert sorted(servers(again)) == [0, 1]
    stop(again)
