"""Policies of caches beside each other: their regret, and models against measurements."""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go
import pytest

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.systems.feature_cache.calibration.shipped import products
from dtdg_lab.systems.feature_cache.charts.manual_windows import regret_lines
from dtdg_lab.systems.feature_cache.charts.model_errors import error_rows, model_figure, model_panels, model_words
from dtdg_lab.systems.feature_cache.policies.clairvoyant import Clairvoyant, best_plan, cost_of
from dtdg_lab.systems.feature_cache.simulation.cases import comparison_cases
from dtdg_lab.systems.feature_cache.simulation.comparison import SEED, always_compared, run_policy
from dtdg_lab.systems.feature_cache.simulation.episode import CacheNoise, draw_episode
from dtdg_lab.systems.feature_cache.simulation.simulator import CacheSimulator


def check(figure: dict[str, Any]) -> None:
    go.Figure(figure)  # refuses any attribute plotly does not know
    json.dumps(figure, allow_nan=False)
    assert figure["layout"]["title"]["text"]


def test_regret_ends_at_what_the_policies_lost() -> None:
    costs, cases = products(), comparison_cases()
    episode = draw_episode([costs], cases[-1:], 0, seed=SEED, epochs=4, epoch_steps=25, noise=CacheNoise())
    simulator = CacheSimulator([costs], episodes=1, epoch_steps=25, draw=lambda number: episode)
    policies = {
        "fixed-8": always_compared(costs.parts)["fixed-8"],
        "random": always_compared(costs.parts)["random"],
    }
    windows = {name: run_policy(simulator, each, number=0).windows[0] for name, each in policies.items()}
    best = Clairvoyant(best_plan([episode]), [episode.number])
    windows["clairvoyant"] = run_policy(simulator, best, number=0).windows[0]
    lines, optimum = regret_lines(episode, windows), float(best_plan([episode]).totals[0])
    assert set(lines) == {"fixed-8", "random"} and all(len(each) == episode.steps for each in lines.values())
    for name, each in lines.items():
        assert each[-1] == pytest.approx(cost_of(episode, windows[name]) - optimum, abs=1e-6) and each[-1] >= -1e-9
    with pytest.raises(ConfigError, match="clairvoyant"):
        regret_lines(episode, {"random": windows["random"]})


def cell(condition: str, window: int, measured: float, predicted: float, **more: Any) -> dict[str, Any]:
    return {"condition": condition, "window": window, "measured_ms": measured, "predicted_ms": predicted, **more}


def test_errors_are_a_map_and_curves_have_squares() -> None:
    rows = [
        cell("c4_10ms", 16, 200.0, 190.0),
        cell("clean", 1, 100.0, 110.0),
        cell("clean", 16, 80.0, 80.0),
        cell("c4_5ms", 16, 150.0, 153.0, held_out=True),
        cell("c1_50mbit", 16, 900.0, 900.0),
    ]
    panels = model_panels(rows, {"clean": [(1, 110.0), (4, 90.0), (16, 80.0)]})
    for figure, _ in panels.values():
        check(figure)
    (trace,) = panels["errors"][0]["data"]
    assert panels["errors"][0]["layout"]["yaxis"]["ticktext"] == ["clean", "c1_50mbit", "c4_5ms", "c4_10ms"]
    assert trace["z"] == [[10.0, 0.0], [None, 0.0], [None, 2.0], [None, -5.0]]
    assert panels["errors"][1] == (
        "Predictions are off by 3.8% on average, and by 2% where the model had not seen the cell."
    )
    clean, squares = [each for each in panels["curves"][0]["data"] if each["name"] == "clean"]
    assert clean["x"] == [1, 4, 16] and squares["x"] == [1, 16] and squares["y"] == [100.0, 80.0]
    late = [each for each in panels["curves"][0]["data"] if each["name"] == "c4_5ms"]
    assert late[1]["marker"]["symbol"] == ["square-open"] and late[0]["text"] == ["  c4_5ms  "]
    check(model_figure([]))
    assert model_words(rows[:2]) == "Predictions are off by 7.5% on average, and by 10% at most, at clean, W 1."
    assert model_words([]) == "Nothing measured yet."


def test_errors_of_a_calibration_as_rows() -> None:
    class EventList:
        dataset, condition, window, measured_ms = "reddit", "clean", 16, 100.0
        predicted_ms, cell_out_ms, condition_out_ms = 101.0, 105.0, float("nan")

    assert [row["predicted_ms"] for row in error_rows([EventList()])] == [101.0]
    (row,) = error_rows([EventList()], without="cell")
    assert row["held_out"] and row["predicted_ms"] == 105.0
    assert error_rows([EventList()], without="condition") == []
    check(model_figure(error_rows([EventList()])))
