"""Costs of windows, graphs and policies of the lessons on feature caches."""

from __future__ import annotations

import pytest

from dtdg_lab.lessons.caches import (
    beyond_best_plan,
    by_window,
    cases_lost,
    popular_graph,
    slow_link_config,
    slow_owner,
    window_costs,
)
from dtdg_lab.systems.feature_cache.actions import WINDOWS
from dtdg_lab.systems.feature_cache.simulation.comparison import ComparedPolicy

LINKS = {"clean": (0.0, 1e12), "50 Mbit/s": (0.0, 50e6 / 8)}


def row(policy: str, case: str, over_best: float, over_fixed: float) -> ComparedPolicy:
    return ComparedPolicy("costs", case, policy, 1.0, 1.0, 1.0, over_best, over_fixed, 0.0)


def test_every_window_and_preference_has_a_cost() -> None:
    costs = window_costs(LINKS)
    assert {*costs["clean"]} == {(window, part) for window in WINDOWS for part in (None, 1, 2, 3)}
    assert min(costs["50 Mbit/s"].values()) > min(costs["clean"].values())
    assert by_window(costs, 1)["clean"]["W = 16"] == costs["clean"][16, 1]


def test_the_slow_owner_is_another_part_and_the_graph_has_popular_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DTDG_LAB_FAST", "1")
    config = slow_link_config()
    assert 0 <= slow_owner(config) < 4 and config.epochs == 3
    graph = popular_graph(400)
    assert graph.num_nodes == 200 and graph.classes is not None and graph.classes.max() == 4


def test_policies_are_compared_over_cases() -> None:
    rows = [
        row("one", "none/light/delay", 0.1, 0.0),
        row("one", "none/light/rate", 0.3, 0.02),
        row("other", "none/light/delay", 0.0, 0.5),
        row("other", "none/light/rate", 0.0, 0.5),
    ]
    assert beyond_best_plan(rows) == pytest.approx({"one": 20.0, "other": 0.0})
    assert beyond_best_plan(rows, "rate")["one"] == pytest.approx(30.0)
    assert cases_lost(rows) == {"one": 1, "other": 2}
