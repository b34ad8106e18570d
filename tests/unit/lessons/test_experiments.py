"""Experiments of lessons with a run under way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.lessons.experiments import change
from dtdg_lab.records.tables import RunTables
from tests.tables import record_lines, run_tables, run_under_way

PER_EPOCH = 4


def steered_run(reason: str = "") -> tuple[Any, RunTables]:
    """Return a run that makes the steps that are waited for, and applies changes unless there is a reason not to."""
    tables = run_tables({"dataset": "growing", "ranks": 1}, {"steps": [{"step": 0}]})
    run = run_under_way(tables)
    run.reason = reason

    def apply(**settings: Any) -> None:
        data = {"version": 1, "changes": settings, "when": "step"}
        tables.add_lines([] if reason else record_lines("events", [{"kind": "settings", "step": 1, "data": data}]))

    async def wait_for_step(step: int) -> None:
        made = range(tables.progress.step, step)
        rows = [{"step": at, "epoch": at // PER_EPOCH, "iteration": at % PER_EPOCH} for at in made]
        tables.add_lines(record_lines("steps", rows))

    run.set, run.wait_for_step = apply, wait_for_step
    return run, tables


def test_a_change_is_waited_for_and_then_steps_or_epochs() -> None:
    run, tables = steered_run()
    asyncio.run(change(run, steps=2, learning_rate=0.1))
    assert (tables.progress.step, tables.config["learning_rate"]) == (3, 0.1)
    asyncio.run(change(run, epochs=1, learning_rate=0.2))
    assert (tables.progress.epoch, tables.progress.step) == (2, PER_EPOCH + 1)


def test_a_refused_change_is_raised() -> None:
    with pytest.raises(ConfigError, match="it is too large"):
        asyncio.run(change(steered_run("it is too large")[0], learning_rate=9.0))
