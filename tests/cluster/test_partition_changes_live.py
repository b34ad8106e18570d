"""Partitioner, parts and system change while two real engines train; what fails leaves the run as it was."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import dtdg_lab as lab
from dtdg_lab.cluster.run import Run
from dtdg_lab.cluster.session import Session
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import RunFailedError
from dtdg_lab.runs.stored_run import open_run
from tests.following import applied_at_one_step, change, events, kill_rank, refused, stop, until, until_step
from tests.thinning import thinned

# Python reads it when it starts: partitioning libraries crash, or hang, in a child of an engine while a file says so
TRAP = """
import os, signal, sys, time
from pathlib import Path
said = Path(__file__).with_name("trap")

class Trap:
    def find_spec(self, name, path, target=None):
        if name in ("pymetis", "mtkahypar") and said.is_file():
            if said.read_text() == "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            said.with_name("hanging").write_text(str(os.getpid()))
            time.sleep(300)

if "dtdg_lab.partition.child_process" in sys.orig_argv:
    sys.meta_path.insert(0, Trap())
"""


@pytest.fixture
def trap(session: Session, tmp_path: Path) -> Iterator[Path]:
    """A file that makes partitioning libraries fail in children of the engines."""
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(TRAP))
    before = os.environ.get("PYTHONPATH", "")
    _set_import_path(session, os.pathsep.join(filter(None, [str(tmp_path), before])))
    yield tmp_path / "trap"
    _set_import_path(session, before)


def _set_import_path(session: Session, path: str) -> None:
    session._engines.client[:].execute(f"import os; os.environ['PYTHONPATH'] = {path!r}", silent=True).get(20)


@pytest.fixture
def halo(config: RunConfig) -> RunConfig:
    """A run on node parts that goes on until it is told to end."""
    return config.replace(system="adgnn-t", partitioner="hash", epochs=1_000_000)


def test_partitioner_parts_and_system_change_in_a_running_job(session: Session, halo: RunConfig) -> None:
    run = until_step(session.train(halo), 3)
    changes: list[dict[str, Any]] = [
        {"partitioner": "load_aware"},
        {"parts": 4},
        {"halo_reuse": True},
        {"partitioner": "metis"},
        {"system": "pygt-dist", "cache_gib": 1.0},
        {"system": "psg"},
        {"system": "adgnn-t"},
    ]
    for live_settings in changes:
        change(run, **live_settings)
    assert run.config["partitioner"] == "metis" and run.config.parts == 4
    stop(run)
    _check_that_ranks_agreed(run, changes)
    _check_what_was_told(run)
    _check_that_steps_are_whole(run)
    before = run.config
    again = until_step(run.resume(), run.live.progress.step + 3)
    assert again.attempt == 2 and again.config == before
    change(again, partitioner="round_robin", parts=2)
    stop(again)
    assert [described["attempt"] for described in events(again, "partition")][-2:] == [2, 2]
    assert again.summary["partitioner"] == "round_robin" and again.summary["parts"] == 2
    reader = Session.attach(session._files.id)  # another kernel reads it all from the disk
    try:
        until(lambda: reader.current is not None and reader.current.config == again.config, what="the same settings")
    finally:
        reader.detach()


def _check_that_ranks_agreed(run: Run, changes: list[dict[str, Any]]) -> None:
    for name in {name for live_settings in changes for name in live_settings}:
        applied_at_one_step(run, name)
    live_settings = events(run, "settings")
    assert len(live_settings) == 2 * len(changes) and all(0 < knob["duration_s"] < 30 for knob in live_settings)


def _check_what_was_told(run: Run) -> None:
    described = events(run, "partition")
    left = [each for each in described if each["layout"] is None]
    assert len(left) == 1, "the run has left its node parts once, for psg"
    assert [(each["partitioner"], each["parts"], each["layout"]) for each in described if each not in left] == [
        ("hash", 2, "halo_vertex"),
        ("load_aware", 2, "halo_vertex"),
        ("load_aware", 4, "halo_vertex"),
        ("load_aware", 4, "halo_vertex"),
        ("metis", 4, "halo_vertex"),
        ("metis", 4, "cached_vertex"),
        ("metis", 4, "halo_vertex"),
    ]
    assert "rebuild_s" not in described[0] and all(each["rebuild_s"] > 0 for each in described[1:])
    assert all(each["seconds"] > 0 and each["ranks"] == 2 for each in described if each not in left)
    summary = run.summary
    assert (summary["partitioner"], summary["parts"]) == ("metis", 4)
    assert summary["rebuild_s"] == pytest.approx(sum(each["rebuild_s"] for each in described[1:]))
    assert 0 < summary["halo_share"] < 1 and summary["predicted_step_bytes"] > 0
    page = (run.path / "report.html").read_text()
    assert "Metis, 4 parts (made in" in page and "the change took" in page and "the caches hold" in page


def _check_that_steps_are_whole(run: Run) -> None:
    """No step is lost or made twice by a change, and rows are sent where the layout sends them, as predicted."""
    tables = open_run(run.path)
    steps, links = tables.table("steps"), tables.table("links")
    for rank in (0, 1):
        mine = steps[steps["rank"] == rank].sort_values("step")
        assert mine.step.tolist() == list(range(len(mine)))
    first = {name: step for knob in events(run, "settings") for name, step in _named(knob)}
    reused, remade, copied, exchanged = (
        first[name] for name in ("halo_reuse True", "partitioner metis", "system pygt-dist", "system adgnn-t")
    )
    # features alone are pulled by one layer of tgcn: where they are kept, only the first step sends them
    silent = {*range(reused + 1, remade), *range(remade + 1, copied), *range(copied, exchanged)}
    assert set(links.step) == set(steps.step) - silent
    last = events(run, "partition")[-1]
    predicted = sum(sum(map(sum, layer)) for way in last["predicted"].values() for layer in way)
    measured = links[links.step == steps.step.max()]["bytes"].sum()
    assert measured == predicted


def _named(knob: dict[str, Any]) -> list[tuple[str, int]]:
    return [(f"{name} {value}", knob["step"]) for name, value in knob["changes"].items()]


@pytest.mark.slow
def test_a_failed_partition_leaves_the_run_going(session: Session, halo: RunConfig, trap: Path, tmp_path: Path) -> None:
    other = lab.datasets.load("growing", generated_nodes=200, generated_snapshots=30, seed=5)
    lab.partition.partition(other, "hash", parts=2).save(tmp_path / "other.npz")
    (tmp_path / "damaged.npz").write_bytes((tmp_path / "other.npz").read_bytes()[:200])
    run = until_step(session.train(halo.replace(seed=1)), 3)
    trap.write_text("crash")
    try:
        refused(run, "metis was ended by SIGSEGV", partitioner="metis")
        refused(run, "hypergraph was ended by SIGSEGV", partitioner="hypergraph", parts=4)
    finally:
        trap.unlink()
    refused(run, "parts=400 must be from 1 to 200", parts=400)
    refused(run, "another graph", partitioner="file", partition_file=str(tmp_path / "other.npz"))
    refused(run, "damaged", partitioner="file", partition_file=str(tmp_path / "damaged.npz"))
    refused(run, "partition_file", partitioner="file")
    refused(run, "cache_gib=1e-06 allows", system="pygt-dist", cache_gib=1e-6)
    described = [event for event in events(run, "refused") if event["reason"] and event["rank"] == 0]
    assert len(described) == 7 and described[-1]["reason"] in run.reason
    run.set(partitioner="metis")
    until(lambda: run.config["partitioner"] == "metis", what="METIS divides again")
    run.set(epochs=run.live.progress.epoch + 50)
    run.wait(60)
    assert run.status == "finished"
    assert run.summary["partitioner"] == "metis" and run.summary["test_loss"] is not None


@pytest.mark.slow
@pytest.mark.parametrize("rank", thinned([0, 1]))
def test_a_rank_killed_while_the_job_is_rebuilt(session: Session, halo: RunConfig, trap: Path, rank: int) -> None:
    hanging = trap.with_name("hanging")
    hanging.unlink(missing_ok=True)
    run = until_step(session.train(halo.replace(seed=2 + rank)), 5)
    trap.write_text("hang")
    try:
        run.set(partitioner="metis")
        until(lambda: hanging.is_file() and bool(hanging.read_text()), timeout_s=20, what="METIS hangs")
        kill_rank(run, rank)
        took_s = until(lambda: run.status == "failed", timeout_s=10, what="the failure is marked")
    finally:
        trap.unlink()
    assert took_s < 5.0
    assert run.failed_rank == rank and f"rank {rank} died" in run.reason
    with pytest.raises(RunFailedError, match=f"rank {rank} died"):
        run.wait(60)
    child = int(hanging.read_text())
    until(lambda: not psutil.pid_exists(child), timeout_s=5, what="the partitioner ends with the rank that started it")
    until(lambda: not session.ready, what="the session sees that an engine is missing")
    session.repair()
    again = until_step(run.resume(), run.live.progress.step + 10)
    change(again, partitioner="metis")
    stop(again)
    assert again.summary["partitioner"] == "metis"
