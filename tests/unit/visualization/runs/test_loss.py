"""Losses of steps and evaluations in the chart of every run."""

from __future__ import annotations

from typing import Any

import pytest

from dtdg_lab.visualization.chart import ChartOptions
from tests.common_charts import CHARTS, OWN_STEPS, card_of, drawn, evaluation, run_of, steps, traces


def test_loss_has_steps_splits_and_persistence() -> None:
    rows = [evaluation(5, 0.06, "train"), evaluation(5, 0.05), evaluation(9, 0.0311)]
    figure, caption = drawn("loss", run_of(steps=steps(10), evaluations=rows))
    lines = traces(figure)
    assert lines["validation"]["y"] == [0.05, 0.0311] and lines["training"]["y"] == [0.06]
    assert lines["each step"]["y"] == [0.5] * 10 and lines["persistence"]["y"] == [0.045, 0.045]
    assert [key[0] for key in card_of(figure)["keys"]] == ["validation 0.0311", "training 0.0600"]
    assert figure["layout"]["yaxis"]["type"] == "log"
    assert caption == "Validation loss is 0.0311, 31% below persistence."


def test_losses_that_were_never_finite_have_a_linear_axis() -> None:
    figure, caption = drawn("loss", run_of(steps=steps(3, global_loss=None)))
    assert figure["layout"]["yaxis"]["range"] == [0, 1] and caption == "Nothing measured yet."


@pytest.mark.parametrize(
    ("row", "caption"),
    [
        (evaluation(1, 0.09), "Validation loss is 0.0900, 100% above persistence."),
        (evaluation(1, None), "Validation loss is not finite."),
        (evaluation(1, 0.2, "train"), "Training loss is 0.200; this protocol has no validation split."),
    ],
)
def test_the_caption_of_the_loss(row: dict[str, Any], caption: str) -> None:
    assert drawn("loss", run_of(evaluations=[row]))[1] == caption


def test_loss_before_the_first_evaluation_is_that_of_training() -> None:
    assert drawn("loss", run_of(steps=steps(3)))[1] == "The newest training loss is 0.500."


@pytest.mark.parametrize(
    ("task", "metrics", "words"),
    [
        ("link", {"mrr": 0.412, "persistence_mrr": 0.3}, "0.500 and MRR 0.412, against 0.300 for persistence."),
        ("link", {"accuracy": 0.7}, "0.500 and accuracy 0.700."),
        ("link", {"mrr": 0.4, "persistence_mrr": None}, "0.500 and MRR 0.400."),
        ("link", None, "0.500, 1011% above persistence."),
        ("classification", {"macro_f1": 0.5, "accuracy": 0.9}, "0.500 and accuracy 0.900."),
        ("regression", {"mae": 0.1}, "0.500, 1011% above persistence."),
    ],
)
def test_loss_has_the_main_metric_of_its_task_beside_it(task: str, metrics: Any, words: str) -> None:
    run = run_of({"dataset": "sbm", "task": task}, evaluations=[evaluation(1, 0.5, metrics=metrics)])
    assert drawn("loss", run)[1] == f"Validation loss is {words}"


def test_a_resume_takes_evaluations_back() -> None:
    rows = [evaluation(10, 0.05), evaluation(30, 0.01)]
    again = [{**row, "attempt": 2} for row in steps(1, first=25)]
    figure, caption = drawn("loss", run_of(steps=[*steps(30), *again], evaluations=rows))
    assert traces(figure)["validation"]["x"] == [10] and caption.startswith("Validation loss is 0.0500,")


def test_metrics_of_evaluations_can_be_drawn_in_place_of_the_loss() -> None:
    metrics = {"mrr": 0.4, "persistence_mrr": 0.3, "auc": 0.9, "persistence_auc": 0.8, "auc_low": 0.7, "pairs": 9}
    later = {**metrics, "auc": 0.95}
    run = run_of({"task": "link"}, evaluations=[evaluation(1, 0.5, metrics=metrics), evaluation(2, 0.4, metrics=later)])
    assert CHARTS["loss"].metrics(run) == {"": "Loss", "mrr": "MRR", "auc": "AUC"}
    figure, caption = drawn("loss", run, ChartOptions(metric="auc"))
    lines = traces(figure)
    assert lines["validation"]["y"] == [0.9, 0.95] and lines["persistence"]["y"] == [0.8, 0.8]
    assert (card_of(figure)["title"], card_of(figure)["unit"]) == ("AUC", "larger is better")
    assert caption == "Validation AUC is 0.950, against 0.800 for persistence."


def test_a_metric_that_was_not_recorded_says_so() -> None:
    run = run_of(evaluations=[evaluation(1, 0.5)])
    assert CHARTS["loss"].metrics(run) == {"": "Loss"}
    assert drawn("loss", run, ChartOptions(metric="mae"))[1] == "Nothing measured yet."


def test_loss_axis_fits_most_steps_and_not_the_first_spike() -> None:
    rows = [*steps(1, global_loss=1000.0), *steps(99, first=1, global_loss=0.5)]
    figure, _ = drawn("loss", run_of(steps=rows))
    assert 10 ** figure["layout"]["yaxis"]["range"][1] < 1
    assert drawn("loss", run_of(steps=rows), ChartOptions(linear=True))[0]["layout"]["yaxis"]["type"] == "linear"


def test_loss_of_a_long_run_has_few_points_and_ends_at_its_newest_step() -> None:
    figure, _ = drawn("loss", run_of({"ranks": 1}, steps=steps(6000, 1)))
    lines = traces(figure)
    x = lines["each step"]["x"]
    assert 150 <= len(x) <= 300 and x[-1] == 5999 and x == sorted(x)
    assert lines["least"]["y"] == lines["most"]["y"] == lines["each step"]["y"] == pytest.approx([0.5] * len(x))


def test_loss_is_over_seconds_where_ranks_have_steps_of_their_own() -> None:
    figure, _ = drawn("loss", run_of(OWN_STEPS, steps=steps(10)))
    assert figure["layout"]["xaxis"]["title"]["text"] == "seconds of training"


@pytest.mark.parametrize(
    ("losses", "place"),
    [
        ([0.06, 0.03, 0.02, 0.01], ("right", "bottom")),
        ([0.2, 0.1, 0.05, 0.046], ("right", "top")),
        ([0.02, 0.02, 0.046, 0.044], ("left", "bottom")),
    ],
)
def test_the_name_of_persistence_stands_where_no_curve_is(losses: list[float], place: tuple[str, str]) -> None:
    rows = [evaluation(step, loss) for step, loss in zip((0, 6, 15, 20), losses, strict=True)]
    (name,) = drawn("loss", run_of(evaluations=rows))[0]["layout"]["annotations"]
    assert (name["xanchor"], name["yanchor"]) == place and name["x"] == (place[0] == "right")
