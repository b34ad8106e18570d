"""Metrics beside losses: which one is drawn, on which axis, and that runs without any look as they did."""

from __future__ import annotations

import json

import plotly.graph_objects as go
import pytest
from synthetic_lines import evaluation_row, line, step_row

from dtdg_lab.core.config import RunConfig
from dtdg_lab.visualization.loss import compare_figure
from dtdg_lab.visualization.run_window import RunWindow

LINK = {
    "mrr": 0.4,
    "auc": 0.8,
    "accuracy": 0.7,
    "average_precision": 0.6,
    "persistence_mrr": 0.3,
    "persistence_auc": None,
}


def window(task: str, metrics: dict[str, float | None] | None, *, splits: tuple[str, ...] = ("train", "validation")):
    shown = RunWindow(RunConfig(dataset="sbm", ranks=2, epochs=20, task=task))
    for step in (10, 20):
        for split in splits:
            shown.add(line("evaluations", [evaluation_row(step, split, 1 / step, metrics=metrics)]))
    return shown


def names(figure: dict) -> list[str]:
    return [trace["name"] for trace in figure["data"]]


def trace(figure: dict, name: str) -> dict:
    return next(trace for trace in figure["data"] if trace["name"] == name)


def test_regression_and_old_records_have_one_axis() -> None:
    for shown in (window("regression", {"mae": 0.1}), window("link", None)):
        figure = shown.figures()["loss"]
        assert "yaxis2" not in figure["layout"] and names(figure) == [
            "each step", "train", "validation", "persistence", "mean",
        ]  # fmt: skip
    without = {**line("evaluations", []), "rows": [evaluation_row(10, "validation", 0.4)[:-1]]}
    without["columns"] = without["columns"][:-1]  # as written before there were metrics
    old = window("link", None, splits=())
    old.add(without)
    assert old.captions()["loss"] == "Validation loss 0.4 at step 10, 20 % below persistence (0.5)."


@pytest.mark.parametrize(
    ("task", "metrics", "drawn", "title"),
    [
        ("link", LINK, "MRR", "cross-entropy (nats)"),
        ("link", {"accuracy": 0.7}, "accuracy", "cross-entropy (nats)"),
        ("classification", {"macro_f1": 0.5, "accuracy": 0.9}, "accuracy", "cross-entropy (nats)"),
    ],
)
def test_the_main_metric_of_the_task_stands_on_the_right_axis(task, metrics, drawn, title) -> None:
    figure = window(task, metrics).figures()["loss"]
    go.Figure(figure)
    json.dumps(figure, allow_nan=False)
    assert trace(figure, drawn)["yaxis"] == "y2" and trace(figure, drawn)["x"] == [10, 20]
    assert figure["layout"]["yaxis"]["title"]["text"] == title
    assert drawn in figure["layout"]["title"]["text"]


def test_persistence_of_the_metric_is_drawn_and_what_is_not_known_is_not() -> None:
    shown = window("link", LINK)
    assert trace(shown.figures()["loss"], "persistence MRR")["y"] == [0.3, 0.3]
    caption = shown.captions()["loss"]
    assert "MRR 0.4 (persistence 0.3)" in caption and "AUC 0.8," in caption and "None" not in caption


def test_a_protocol_without_validation_shows_training_and_what_training_has() -> None:
    shown = window("link", {name: value for name, value in LINK.items() if "mrr" not in name}, splits=("train",))
    shown.add(line("evaluations", [evaluation_row(20, "test", 0.2, metrics=LINK)]))
    figure = shown.figures()["loss"]
    assert "validation" not in names(figure)
    assert trace(figure, "average precision")["y"] == [0.6, 0.6]
    assert trace(figure, "test average precision")["y"] == [0.6], "one axis holds one metric"
    assert shown.captions()["loss"].startswith("Training loss 0.05 at step 20")
    compared = compare_figure([("a", shown)])
    assert compared["layout"]["title"]["text"] == "Training loss of the last runs"


def test_a_resume_takes_metrics_back_with_their_losses() -> None:
    shown = window("link", LINK)
    shown.add(line("evaluations", [evaluation_row(30, "validation", 0.01, metrics={"mrr": 0.9})]))
    shown.add(line("steps", [step_row(step, 1.0) for step in range(30)]))
    shown.add(line("steps", [step_row(25, 1.0)], attempt=2))
    assert trace(shown.figures()["loss"], "MRR")["x"] == [10, 20]
    assert "MRR" not in shown.captions()["loss"], "the newest metrics are of an evaluation that is taken back"


def test_runs_of_one_task_are_compared_by_its_metric_in_a_panel_of_its_own() -> None:
    both = compare_figure([("a", window("link", LINK)), ("b", window("link", {**LINK, "mrr": 0.5}))])
    go.Figure(both)
    assert both["layout"]["yaxis2"]["title"]["text"] == "MRR"
    assert [t["y"] for t in both["data"] if t.get("yaxis") == "y2"] == [[0.4, 0.4], [0.5, 0.5]]
    mixed = compare_figure([("a", window("link", LINK)), ("b", window("regression", None))])
    assert "yaxis2" not in mixed["layout"] and "different tasks" in mixed["layout"]["yaxis"]["title"]["text"]
