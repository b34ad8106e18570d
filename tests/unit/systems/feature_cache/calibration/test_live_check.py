"""A run whose steps take what a calibration predicts earns the simulated reward, and slower ones earn less."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import DataError
from dtdg_lab.network.links import BITS
from dtdg_lab.systems.feature_cache.actions import CacheActions
from dtdg_lab.systems.feature_cache.calibration.calibration import SHIPPED
from dtdg_lab.systems.feature_cache.calibration.live_check import check_live
from dtdg_lab.systems.feature_cache.policies.control import CHANGE

PARTS, STEPS, EPOCH_STEPS, MBIT, SLOW_FROM = 2, 64, 16, 200.0, 32
ACTIONS = CacheActions(PARTS)
FIRSTS = (0, 16, 32, 40, 56)  # windows of both parts
CHOSEN = tuple(
    ACTIONS.action(window, biased) for window, biased in ((16, None), (16, None), (8, None), (16, 0), (8, 0))
)


def pretend_run(slower: float = 1.0, *, energy_source: str | None = None) -> Any:
    """Return a run of two parts on clean links, then with one slow owner, by the shipped model of Reddit."""
    costs = SHIPPED.costs("reddit", parts=PARTS)
    steps = np.arange(STEPS)
    number = np.searchsorted(FIRSTS, steps, side="right") - 1
    windows = np.array([ACTIONS.window(action) for action in CHOSEN])[number]
    rate = np.where(steps >= SLOW_FROM, MBIT / BITS, np.inf)[:, None]
    seconds = costs.step(windows, np.zeros((STEPS, 1)), rate, np.ones((STEPS, 1))).seconds
    seconds[SLOW_FROM:] *= slower
    decisions = []
    for part in range(PARTS):
        for index, boundary in enumerate((3, *(first - 1 for first in FIRSTS[1:-1]))):
            decided = CHOSEN[index + 1]
            biased = ACTIONS.biased(decided)
            decisions.append(
                {"part": part, "step": boundary, "action": decided, "biased": -1 if biased is None else 1 - part}
            )
    rows = pd.DataFrame(decisions)
    previous, base_s = -1, float(seconds[: 2 * EPOCH_STEPS].mean())
    rewards = []
    for step in rows["step"]:
        previous = -1 if step == 3 else previous
        within = (steps > previous) & (steps <= step)
        changed = step == FIRSTS[3] - 1  # after the first biased decision
        rewards.append(np.nan if step == 3 else -float(seconds[within].mean()) / base_s - CHANGE * changed)
        previous = step
    tables = {
        "cache_decisions": rows.assign(reward=rewards, energy_source=energy_source),
        "steps": pd.DataFrame({"step": steps, "epoch": steps // EPOCH_STEPS, "time_s": seconds, "rank": 0}),
        "resolved": pd.DataFrame(
            [{"step": step, "part": part, "window": number[step]} for step in steps for part in range(PARTS)]
        ),
        "windows": pd.DataFrame(
            [
                {"part": part, "number": at, "action": action}
                for part in range(PARTS)
                for at, action in enumerate(CHOSEN)
            ]
        ),
        "events": pd.DataFrame(
            [
                {"kind": "congestion", "rank": 0, "step": step, "data": {"delay_ms": [[0.0] * 2] * 2, "mbit": mbit}}
                for step, mbit in ((0, [[None] * 2] * 2), (SLOW_FROM, [[None, MBIT], [MBIT, None]]))
            ]
        ),
    }
    config = RunConfig(system="greendygnn", dataset="growing", model="tgcn", parts=PARTS)
    return SimpleNamespace(id="pretend", path="pretend", config=config, table=tables.__getitem__)


def test_a_run_of_the_models_steps_earns_the_simulated_reward() -> None:
    check = check_live(pretend_run(), SHIPPED, dataset="reddit")
    assert check.difference == pytest.approx(0.0, abs=1e-9) and check.holds
    table = check.table()
    assert len(table) == 2 * 3 and (table["measured_ms"] - table["predicted_ms"]).abs().max() < 1e-9
    assert table["window"].tolist()[:3] == [16, 16, 8]
    assert "holds" in repr(check) and "6 decisions, " in repr(check)


def test_slower_steps_earn_less_and_are_told() -> None:
    check = check_live(pretend_run(slower=1.5), SHIPPED, dataset="reddit")
    assert check.difference > 0.04 and not check.holds and "does not hold here" in repr(check)
    slow = check.table().query(f"step > {SLOW_FROM}")
    assert (slow["measured_ms"] / slow["predicted_ms"]).tolist() == pytest.approx([1.5] * len(slow))
    figure = check.figure()
    go.Figure(figure)
    assert "Predictions are off by" in str(figure)


def test_joules_count_where_the_runs_did() -> None:
    by_time, by_joules = (
        check_live(pretend_run(energy_source=source), SHIPPED, dataset="reddit") for source in (None, "modelled")
    )
    assert by_joules.simulated_reward > by_time.simulated_reward  # waiting takes fewer watts than computing
    assert by_joules.reward == by_time.reward


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("cache_decisions", "no rewarded decisions"),
        ("windows", "no cache of an action"),
        ("events", "records of its links"),
    ],
)
def test_runs_without_records_are_refused(table: str, message: str) -> None:
    run = pretend_run()
    whole = run.table
    run.table = lambda name: whole(name).head(0) if name == table else whole(name)
    with pytest.raises(DataError, match=message):
        check_live(run, SHIPPED, dataset="reddit")
