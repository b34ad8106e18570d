"""Effects of changes: means on both sides, never across another change, and only where they differ clearly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization.changes.effects import FORGOTTEN, TOO_FEW, UNCLEAR, MeasuredEffect, effect_of, step_times
from dtdg_lab.visualization.changes.log import requested_changes
from dtdg_lab.visualization.tiles import Effect
from tests.tables import run_tables

CONFIG = {"system": "flaredtdg", "dataset": "growing"}
Seconds = Callable[[int], float]


def jump(step: int) -> float:
    """Return the seconds of a step that takes longer from step 100 on."""
    return 0.1 if step < 100 else 0.2


def tables_of(seconds: Seconds, *, steps: int = 200, changes: tuple[int, ...] = (100,), **more: Any) -> RunTables:
    rows = [
        {"rank": rank, "step": step, "iteration": step, "time_s": seconds(step) + 0.01 * (-1) ** rank}
        for rank in (0, 1)
        for step in range(steps)
    ]
    changed = [{"version": k, "changes": {"alpha": k / 9}, "when": "step"} for k in range(1, len(changes) + 1)]
    events = [
        {"kind": "settings", "step": step, "rank": rank, "data": data}
        for step, data in zip(changes, changed, strict=True)
        for rank in (0, 1)
    ]
    return run_tables(CONFIG, {"steps": rows}, events=events, **more)


def effects(seconds: Seconds, **more: Any) -> list[MeasuredEffect]:
    tables = tables_of(seconds, **more)
    return [effect_of(change, tables) for change in requested_changes(tables)]


def test_step_times_are_means_over_ranks() -> None:
    steps, values = step_times(tables_of(jump, steps=3))
    assert steps.tolist() == [0, 1, 2] and values == pytest.approx([0.1, 0.1, 0.1])


def test_a_clear_change_has_both_means() -> None:
    (effect,) = effects(jump)
    assert effect.text == "100 ms → 200 ms" and effect.is_final


def test_overlapping_ranges_are_no_clear_change() -> None:
    (effect,) = effects(lambda step: jump(step) + 0.2 * (80 <= step < 90))
    assert effect == MeasuredEffect(UNCLEAR, is_final=True)


def test_below_ten_steps_on_a_side_are_too_few() -> None:
    (effect,) = effects(jump, steps=109)
    assert effect == MeasuredEffect(TOO_FEW, is_final=False)
    assert effects(jump, steps=110)[0].text == "100 ms → 200 ms"
    assert effects(jump, changes=(14,))[0].text == TOO_FEW, "the first five steps of a run do not count"
    assert effects(jump, changes=(15,))[0].text == UNCLEAR


def test_means_do_not_reach_across_another_change() -> None:
    first, second = effects(lambda step: 0.1 + 0.1 * (step >= 100) + 0.1 * (step >= 120), changes=(100, 120))
    assert (first.text, second.text) == ("100 ms → 200 ms", "200 ms → 300 ms")
    assert [effect.text for effect in effects(jump, changes=(95, 100))] == [TOO_FEW, TOO_FEW]


def test_means_do_not_reach_across_a_resume() -> None:
    rows = [
        {"step": step, "iteration": step, "attempt": 1 + (step >= 106), "time_s": jump(step)} for step in range(200)
    ]
    rows += [{"step": step, "iteration": step, "attempt": 1, "time_s": 0.1} for step in range(106, 110)]
    rows.sort(key=lambda row: row["attempt"])
    event = {"kind": "settings", "step": 100, "data": {"version": 1, "changes": {"alpha": 0.3}, "when": "step"}}
    tables = run_tables({**CONFIG, "ranks": 1, "parts": 2}, {"steps": rows}, events=[event])
    assert [effect_of(change, tables).text for change in requested_changes(tables)] == [TOO_FEW]


def test_steps_that_left_the_memory_are_too_long_ago() -> None:
    (effect,) = effects(jump, steps=6_000, recent=50)
    assert effect == MeasuredEffect(FORGOTTEN, is_final=True)


def test_a_fork_has_no_steps_before_its_changes() -> None:
    rows = [{"step": step, "iteration": step, "time_s": 0.1} for step in range(400, 450)]
    data = {"run": "psg-1", "step": 400, "changes": {"alpha": 0.3}, "old": {"alpha": 0.2}}
    tables = run_tables(CONFIG, {"steps": rows}, events=[{"kind": "forked", "step": 400, "data": data}])
    assert [effect_of(change, tables).text for change in requested_changes(tables)] == [TOO_FEW]


def test_a_change_that_was_not_applied_has_no_effect() -> None:
    refused = {"version": None, "changes": {"window": 0}, "reason": "no"}
    tables = run_tables(CONFIG, events=[{"kind": "refused", "data": refused}])
    (change,) = requested_changes(tables)
    assert effect_of(change, tables) == MeasuredEffect("", is_final=True)


def test_a_number_of_the_system_has_its_own_text_and_gaps() -> None:
    def rows(tables: RunTables) -> tuple[np.ndarray, np.ndarray]:
        steps = np.arange(200)
        return steps, np.where(steps % 2, np.nan, np.where(steps < 100, 10_000.0, 12_000.0))

    tables = tables_of(jump)
    (change,) = requested_changes(tables)
    effect = effect_of(change, tables, Effect("Rows per step", lambda value: f"{value:,.0f}", rows))
    assert effect.text == "10,000 → 12,000"
    unknown = Effect("Unknown", str, lambda tables: (np.arange(200), np.full(200, np.nan)))
    assert effect_of(change, tables, unknown).text == UNCLEAR
