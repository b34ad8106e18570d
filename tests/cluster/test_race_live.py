"""Races on engines: one after another, two at a time on halves, ended by a rule, stopped from another thread."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dtdg_lab.cluster.session import Session
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunFailedError
from dtdg_lab.studies.race import prepare, race
from dtdg_lab.studies.race_plan import StopRule
from tests.factories import small_config


def configs(ranks: int, **more: object) -> dict[str, RunConfig]:
    how = {"ranks": ranks, "parts": 2, "epochs": 8, "generated_snapshots": 20, "threads": 1, **more}
    return {name: small_config(name, **how) for name in ("adgnn-t", "esdg")}


def test_two_at_a_time_on_halves_come_to_the_same_losses(session: Session, tmp_path: Path):
    states: list[int] = []

    def changed(now):
        states.append(sum(run.state == "under way" for run in now.runs))
        now.curves()

    how = {"session": session, "parallel": True, "runs_dir": tmp_path, "on_change": changed, "progress": False}
    both = race(configs(1, epochs=30), seeds=(0, 1), **how)
    assert both.over and max(states) == 2, "two runs were under way"
    assert all(check.ok for check in both.checks) and len(both.checks) == 2
    assert "shared the cores" in both.summary()
    paths = [run.path for run in both.runs]
    assert len(set(paths)) == 4 and not any(path.is_relative_to(tmp_path) for path in paths), "the session's folder"


def test_ranks_that_meet_send_bytes_and_have_bounds_and_a_rule_ends_them(session: Session, tmp_path: Path):
    ended = {"seeds": (0,), "session": session, "runs_dir": tmp_path, "name": "ended", "stop": StopRule(loss=10.0)}
    made = race(configs(2, epochs=4000), **ended, progress=False)
    assert made.over and all("reached 10" in run.why for run in made.runs)
    assert all(run.open().summary["epochs"] < 4000 for run in made.runs)
    assert (made.table["bytes"] > 0).all() and made.table["test_loss"].notna().all()
    assert all(curve.bytes[-1] > 0 for curve in made.curves())
    found = {(bound.label, bound.quantity): bound for bound in made.bounds}
    assert found.keys() >= {("adgnn-t", "epoch"), ("esdg", "epoch"), ("esdg", "moving")}
    assert all(bound.measured >= bound.bound > 0 for bound in found.values() if bound.quantity == "epoch")
    assert race(configs(2, epochs=4000), **ended, progress=False).runs == made.runs


def test_a_race_is_stopped_in_the_middle_and_more_ranks_than_half_are_refused(session: Session, tmp_path: Path):
    with pytest.raises(ConfigError, match=r"ranks=2, but half of the session's 2 engines can run only 1"):
        race(configs(2), seeds=(0,), session=session, parallel=True, runs_dir=tmp_path)
    begun = threading.Event()

    def changed(now):
        if any(curve.losses for curve in now.curves()):
            begun.set()

    runner = prepare(
        configs(2, epochs=100_000), seeds=(0,), session=session, runs_dir=tmp_path, on_change=changed, progress=False
    )
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(runner.run)
        assert begun.wait(60)
        runner.stop()
        with pytest.raises(RunFailedError, match="was stopped, and the race with it"):
            ended.result(60)
    assert [run.state for run in runner.race.runs] == ["left"] and session.ready
