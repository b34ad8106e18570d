"""The benches of the documentation compute in JavaScript what the package computes in Python."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import playwright
import pytest

from dtdg_lab.core.plans import Schedule
from dtdg_lab.systems.feature_cache.policies.clairvoyant import cost_of
from dtdg_lab.systems.snapshot_groups.schedulers.base import lower_bound_s, solve

ROOT = Path(__file__).resolve().parents[2]
NODE = Path(playwright.__file__).parent / "driver" / "node"  # playwright brings one
RULES = ("psg", "consecutive", "longest_first", "fold")


@pytest.fixture(scope="module")
def benches() -> ModuleType:
    sys.path.insert(0, str(ROOT / "docs"))
    return importlib.import_module("benches")


@pytest.fixture(scope="module")
def runs(benches: ModuleType) -> list[dict[str, Any]]:
    return benches.cache_data()


def javascript(script: str, given: Any) -> Any:
    """What an expression is, with ``bench`` for a script of the documentation and ``given`` for the data."""
    code = (
        f"const bench = require({json.dumps(str(ROOT / 'docs' / 'assets' / script[0]))});"
        "const given = JSON.parse(require('fs').readFileSync(0, 'utf8'));"
        f"process.stdout.write(JSON.stringify({script[1]}))"
    )
    done = subprocess.run([NODE, "-e", code], input=json.dumps(given), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_bounds_rules_and_epochs_are_python_s(benches: ModuleType) -> None:
    draw = np.random.default_rng(0)
    cases = [(list(map(float, of)), 2) for of in benches.TIMES_S.values()]
    cases += [
        (draw.integers(1, 30, int(count)).tolist(), int(ranks))
        for count, ranks in draw.integers((1, 1), (14, 5), (60, 2))
    ]
    expression = (
        "given.map(([times, ranks]) => ({bound: bench.bound(times, ranks, 2), one: bench.bound(times, ranks, 1), "
        "plans: Object.fromEntries(Object.entries(bench.rules).map(([name, rule]) => { const rows = rule(times, ranks);"
        "return [name, [rows, bench.makespan(rows, times), bench.waiting(rows, times)]] }))}))"
    )
    for (times, ranks), found in zip(cases, javascript(("schedule_bench.js", expression), cases), strict=True):
        assert found["bound"] == pytest.approx(lower_bound_s(times, ranks, per_rank=2), rel=1e-11)
        assert found["one"] == pytest.approx(lower_bound_s(times, ranks, per_rank=1), rel=1e-11)
        assert set(found["plans"]) == set(RULES)
        for rule, (rows, makespan_s, waiting_s) in found["plans"].items():
            plan = solve(rule, times, ranks, per_rank=2)
            own = Schedule(tuple(tuple(tuple(part) for part in row) for row in rows), len(times))
            assert [[sorted(part) for part in row] for row in own.assignment] == [
                [sorted(part) for part in row] for row in plan.assignment
            ], (rule, times, ranks)
            loads = plan.loads(np.array(times))
            assert makespan_s == pytest.approx(plan.makespan_s(np.array(times)))
            assert waiting_s == pytest.approx(float((loads.max(axis=1, keepdims=True) - loads).sum()), abs=1e-9)


def test_schedules_that_the_page_is_given_are_whole_and_near_the_bound(benches: ModuleType) -> None:
    data = benches.schedule_data()
    for each in data["sets"]:
        times = np.array(each["times"], float)
        ends = {
            rule: Schedule(tuple(tuple(tuple(part) for part in row) for row in rows), 8).makespan_s(times)
            for rule, rows in each["rules"].items()
        }
        assert ends["best_of"] <= ends["dygnex_greedy"]
        assert ends["best_of"] >= lower_bound_s(times, data["ranks"], per_rank=data["most"])


def test_joules_of_windows_are_the_simulator_s(benches: ModuleType, runs: list[dict[str, Any]]) -> None:
    draw = np.random.default_rng(1)
    plans = []
    for run in runs:
        steps, own = len(run["which"]), []
        for _ in range(20):  # by hand: whole windows, the last one cut by the end
            at, windows = 0, []
            while at < steps:
                choice = int(draw.integers(len(run["sizes"]) * run["parts"]))
                windows.append([at, choice])
                at += run["windows"][choice]
            own.append(windows)
        abandoned = [[0, 7], [20, 3], [31, 15]]  # windows of 128 steps and so on, left early
        plans.append([*run["rivals"].values(), *own, abandoned])
    found = javascript(
        ("cache_bench.js", "given[0].map((run, i) => given[1][i].map(plan => bench.joules(run, plan)))"), [runs, plans]
    )
    for episode, of_run, joules in zip(benches.episodes().values(), plans, found, strict=True):
        wanted = [cost_of(episode, [tuple(window) for window in plan]) for plan in of_run]
        assert joules == pytest.approx(wanted, rel=1e-5)
        assert min(joules) == pytest.approx(joules[list(runs[0]["rivals"]).index("clairvoyant")], rel=1e-5)


@pytest.mark.parametrize("name", ["schedule", "cache"])
def test_a_page_holds_its_data_and_loads_a_script_that_exists(benches: ModuleType, name: str) -> None:
    text = benches.placed((ROOT / "docs" / f"{name}_bench.md").read_text())
    (data,) = re.findall(r'<script type="application/json">(.*?)</script>', text)
    assert json.loads(data)
    (script,) = re.findall(r'src="([^"]+)"', text)
    assert (ROOT / "docs" / script).exists() and f'id="{name}-bench"' in text
