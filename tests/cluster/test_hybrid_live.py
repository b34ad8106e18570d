"""Hybrid batches while two real engines train: every knob, what is refused, a stop, a death, and who is left."""

from __future__ import annotations

from typing import Any

import psutil
import pytest

from dtdg_lab.cluster.run import Run
from dtdg_lab.cluster.session import Session
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import RunFailedError
from dtdg_lab.runs.liveness import read_notes
from dtdg_lab.runs.stored_run import open_run
from tests.following import change, kill_rank, pause, refused, stop, until, until_step

STEP: list[dict[str, Any]] = [
    {"batch_snapshots": 0.3},
    {"batch_nodes": 0.1},
    {"average_every_s": 0.02},
    {"batch_policy": "none"},
    {"batch_snapshots": 2.0, "batch_nodes": 1.0},
    {"reservoir": False},
    {"batch_policy": "bandit", "decide_every": 2},
    {"reward_loss": "validation"},
    {"reservoir": True},
]
EPOCH: list[dict[str, Any]] = [
    {"partitioner": "hash"},
    {"exchange": "gradients"},
    {"exchange": "models"},
    {"system": "pygt-dist"},
    {"system": "dynahb"},
]


@pytest.fixture
def hybrid(config: RunConfig) -> RunConfig:
    """A run that goes on until it is told to end."""
    return config.replace(system="dynahb", epochs=1_000_000, average_every_s=0.05, generators="processes")


def generators(run: Run) -> list[psutil.Process]:
    """Processes that build batches, of both engines."""
    engines = [psutil.Process(note.pid) for note in read_notes(run.path / "live", run.attempt).values()]
    children = [child for engine in engines for child in engine.children(recursive=True)]
    return [child for child in children if "dtdg_lab.systems.hybrid_batches.generators" in child.cmdline()]


def knobs_by_rank(run: Run) -> list[list[dict[str, Any]]]:
    """What each rank changed, in order."""
    table = open_run(run.path).table("events")
    rows = table[table.kind == "settings"].sort_values("time_ns")
    return [[row.data["changes"] for row in rows[rows["rank"] == rank].itertuples()] for rank in (0, 1)]


def test_every_knob_of_hybrid_batches_in_a_running_job(session: Session, hybrid: RunConfig) -> None:
    run = until_step(session.train(hybrid), 3)
    built_by = generators(run)
    assert len(built_by) == 2, "one process a part"
    until(lambda: "reservoir" in set(open_run(run.path).table("targets").source), what="a batch from a reservoir")
    for live_settings in STEP:
        change(run, **live_settings)
    refused(run, "batch_snapshots=9999.0", batch_snapshots=9999.0, batch_policy="none")
    refused(run, "batch_nodes=101.0", batch_nodes=101.0, batch_policy="none")
    for live_settings in EPOCH:
        change(run, **live_settings)
    pause(run)
    run.unpause()
    until(lambda: run.status == "running", what="going on")
    stop(run)
    one, other = knobs_by_rank(run)
    assert one == other == [*STEP, *EPOCH]
    until(lambda: not any(process.is_running() for process in built_by), what="generators end")
    _check_what_was_recorded(run)
    again = until_step(run.resume(), run.live.progress.step + 10)
    assert again.config == run.config
    stop(again)
    assert generators(again) == []


def _check_what_was_recorded(run: Run) -> None:
    opened = open_run(run.path)
    names = ("steps", "targets", "rounds", "decisions", "reservoir", "links", "events")
    steps, targets, rounds, decisions, kept, links, events = (opened.table(name) for name in names)
    assert len(links) == 0
    assert set(targets.source) >= {"reservoir", "new"}
    last = rounds[rounds.number == 0]
    assert (last["rank"] == 0).sum() == (last["rank"] == 1).sum() >= 4
    words = [rounds[rounds["rank"] == rank][["number", "version", "choice"]].values.tolist() for rank in (0, 1)]
    assert words[0] == words[1]
    assert set(decisions["rank"]) == {0} and {"dqn", "bandit"} >= set(decisions.policy) >= {"dqn"}
    assert (kept.held <= kept.capacity).all() and set(kept["rank"]) == {0, 1}
    hybrid = events[events.kind == "hybrid"]
    assert hybrid.data.iloc[0]["batch_policy"] == "dqn"
    assert any(data.get("layout", "there") is None for data in hybrid.data), "the run has left its batches once"
    for rank in (0, 1):
        made = steps[steps["rank"] == rank].step.tolist()
        assert made == sorted(set(made)), "no step is made twice"


@pytest.mark.slow
def test_a_rank_that_dies_while_nobody_waits_for_it(session: Session, hybrid: RunConfig) -> None:
    run = until_step(session.train(hybrid.replace(slow_rank=1, slow_ms=30.0)), 20)
    built_by = generators(run)
    assert len(built_by) == 2
    kill_rank(run, 1)
    took_s = until(lambda: run.status == "failed", timeout_s=15, what="the failure is marked")
    assert took_s < 5.0 and run.failed_rank == 1 and "rank 1 died" in run.reason
    with pytest.raises(RunFailedError, match="rank 1 died"):
        run.wait(60)
    until(lambda: not any(process.is_running() for process in built_by), what="generators end with their ranks")
    session.repair()
    again = until_step(run.resume(slow_ms=0.0), 30)
    change(again, batch_snapshots=0.1)
    stop(again)
    assert again.status == "stopped" and again.config["batch_snapshots"] == 0.1
