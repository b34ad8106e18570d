"""Charts of the tuner of K and alpha: decisions in, figures and captions out."""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go
import pytest

from dtdg_lab.systems.decayed_windows.tuner_charts import DECISIONS, PATH, searches, tuner_path
from dtdg_lab.visualization.chart import Chart, ChartOptions
from tests.window_tables import window_tables

Setting = tuple[int, float]
SEARCHES: tuple[tuple[int, Setting, Setting, dict[Setting, float | None]], ...] = (
    (40, (2, 0.1), (2, 0.2), {(2, 0.1): 0.5, (1, 0.1): 0.6, (2, 0.2): 0.4, (3, 0.1): 0.45}),
    (80, (2, 0.2), (3, 0.2), {(2, 0.2): 0.39, (1, 0.2): 0.5, (2, 0.1): 0.42, (2, 0.3): 0.4, (3, 0.2): 0.35}),
    (120, (3, 0.2), (3, 0.2), {(3, 0.2): 0.34, (2, 0.2): 0.37, (3, 0.1): 0.36, (3, 0.3): 0.35, (4, 0.2): None}),
)


def named(setting: Setting) -> dict[str, Any]:
    return {"full_snapshots": setting[0], "alpha": setting[1]}


def decision(step: int, state: Setting, action: Setting, losses: dict[Setting, float | None]) -> dict[str, Any]:
    values = [named(setting) | {"bytes": 1e6, "loss": loss} for setting, loss in losses.items()]
    row = {"step": step, "epoch": step // 20 - 1, "policy": "greedy", "state": named(state), "values": values}
    return {**row, "action": named(action), "reward": 0.0}


def tables(*decisions: dict[str, Any]) -> Any:
    return window_tables(tables={"decisions": decisions})


ROWS = [decision(*search) for search in SEARCHES]


def draw(chart: Chart, run: Any) -> tuple[dict[str, dict[str, Any]], dict[str, Any], str]:
    figure = chart.figure(run, ChartOptions())
    go.Figure(figure)
    json.dumps(figure, allow_nan=False)
    return {trace["name"]: trace for trace in figure["data"]}, figure["layout"], chart.caption(run, ChartOptions())


def test_losses_that_the_tuner_compared_are_points() -> None:
    traces, _, caption = draw(DECISIONS, tables(*ROWS))
    assert traces["stay"]["y"] == [0.5, 0.39, 0.34] and traces["K + 1"]["y"] == [0.45, 0.35]
    assert traces["alpha up"]["x"] == [2, 4, 6], "after epochs 2, 4 and 6"
    assert traces["chosen"]["y"] == [0.4, 0.35, 0.34]
    assert caption == "The tuner stayed at K 3, alpha 0.2 after epoch 6."
    assert DECISIONS.caption(tables(*ROWS[:1]), ChartOptions()) == ("The tuner moved to K 2, alpha 0.2 after epoch 2.")


def test_the_path_leads_over_the_newest_loss_of_every_setting() -> None:
    run = tables(*ROWS)
    assert tuner_path(run) == [(2, 0.1), (2, 0.2), (3, 0.2)]
    traces, layout, caption = draw(PATH, run)
    assert traces["loss"]["z"][1] == [0.5, 0.37, 0.34], "alpha 0.2 by K, of the newest search that tried it"
    assert caption == "Of the newest loss of each setting, the lowest is 0.340, at K 3, alpha 0.2."
    assert len(layout["shapes"]) == 1 and "0.340" in [note["text"] for note in layout["annotations"]]
    assert "path of the tuner" in traces


def test_settings_without_a_loss_are_not_drawn() -> None:
    search = searches(tables(ROWS[-1]))[0]
    assert (4, 0.2) not in search.losses


def test_decisions_of_other_policies_and_ranks_are_no_searches() -> None:
    others = [{**ROWS[0], "policy": "bandit"}, {**ROWS[0], "rank": 1}]
    assert searches(tables(*others)) == []


@pytest.mark.parametrize("chart", [DECISIONS, PATH], ids=lambda chart: chart.name)
def test_before_the_first_search_charts_say_when_they_fill(chart: Chart) -> None:
    _, layout, caption = draw(chart, tables())
    assert layout["annotations"][-1]["text"] == "Appears with the tuner's first search"
    assert caption == "Nothing measured yet."
