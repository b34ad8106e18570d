"""Policies of caches beside each other: their regret, and models against measurements."""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go
import pytest

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.systems.feature_cache.calibration.calibration import products
from dtdg_lab.systems.feature_cache.calibration.report import CellError
from dtdg_lab.systems.feature_cache.charts.manual_windows import regret_lines
from dtdg_lab.systems.feature_cache.charts.model_errors import errors_caption, model_figure
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


def cell(condition: str, window: int, measured: float, predicted: float) -> CellError:
    return CellError("reddit", condition, window, measured, predicted, predicted, predicted)


def test_errors_are_a_map_and_curves_have_squares() -> None:
    cells = [
        cell("c4_10ms", 16, 200.0, 190.0),
        cell("clean", 1, 100.0, 110.0),
        cell("clean", 16, 80.0, 80.0),
        cell("c4_5ms", 16, 150.0, 153.0),
        cell("c1_50mbit", 16, 900.0, 900.0),
    ]
    figure = model_figure(cells, title="ours")
    check(figure)
    (errors,) = [trace for trace in figure["data"] if trace["type"] == "heatmap"]
    assert errors["z"] == [[10.0, 0.0], [None, 0.0], [None, 2.0], [None, -5.0]]
    assert ["clean", "c1_50mbit", "c4_5ms", "c4_10ms"] in [
        axis.get("ticktext") for name, axis in figure["layout"].items() if name.startswith("yaxis")
    ]
    predicted, squares = [trace for trace in figure["data"] if trace["name"] == "clean"]
    assert predicted["x"] == squares["x"] == [1, 16] and squares["y"] == [100.0, 80.0]
    alone, _ = [trace for trace in figure["data"] if trace["name"] == "c4_5ms"]
    assert alone["text"] == ["  c4_5ms  "]
    assert errors_caption(cells[:3]) == ("Predictions are off by 5% on average, and by 10% at most, at clean, W 1.")
