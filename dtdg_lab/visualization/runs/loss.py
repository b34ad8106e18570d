"""Loss over steps or seconds: of every step, of evaluations by split, and what persistence reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import isfinite, log10
from typing import Any

import numpy as np

from dtdg_lab.config.catalogue import loss_name, metrics_of
from dtdg_lab.records.rollups import Rollup
from dtdg_lab.records.rows import Array, Rows, known
from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization.axes import log_axis
from dtdg_lab.visualization.changes.marks import CHIPS, with_changes
from dtdg_lab.visualization.chart import (
    FIRST_EPOCH,
    NOTHING_YET,
    SECONDS_TITLE,
    STEPS_TITLE,
    Chart,
    ChartOptions,
    Figure,
    Key,
    XAxis,
    card,
)
from dtdg_lab.visualization.metrics import BASELINE, finite_scores, main_metric, metric_name
from dtdg_lab.visualization.numbers import percent_text, three_digits
from dtdg_lab.visualization.palette import BASELINE_COLOUR, SPLIT_COLOURS, STEP_COLOUR
from dtdg_lab.visualization.run_names import sentence_case
from dtdg_lab.visualization.traces import Attributes, label, line

TITLE = "Loss"
SPLIT_NAMES = {"train": "training", "validation": "validation", "test": "test"}
EXACT = 1_000  # steps up to which each is drawn; longer runs are means between the least and the most
DOTTED = 40  # evaluations up to which each has a dot
SHARE = 0.9  # of the losses of steps that the axis fits
LABEL_WIDTH, LABEL_HEIGHT, LABEL_POINTS = 0.25, 0.14, 12  # shares of the axes under a name; of a curve looked at
ROOM_BELOW, ROOM_ABOVE = 0.8, 1.25
STEP_LOSSES = Rollup(
    "steps",
    sums=("global_loss",),
    least=("global_loss",),
    most=("global_loss", "step", "seconds"),
    prepare=lambda rows: rows.where(rows["rank"] == 0),  # with averaged models the first rank's own loss
)
EVALUATIONS = Rollup(
    "evaluations",
    by=("split",),
    last=("step", "seconds", "loss", "persistence_loss", "metrics"),
    points=75,
)


@dataclass(frozen=True, slots=True)
class Losses:
    """Losses of the steps of a run; of a long one, means of neighbouring steps.

    Attributes:
        steps: where each stands.
        seconds: likewise.
        values: NaN where unknown.
        lowest: the lowest loss behind each mean; empty where each is one step.
        highest: likewise the highest.
    """

    steps: Array
    seconds: Array
    values: Array
    lowest: Array
    highest: Array

    def along(self, x: XAxis) -> Array:
        """Return the places on an axis."""
        return self.steps if x == "steps" else self.seconds


def step_losses(tables: RunTables) -> Losses:
    """Return the losses of the steps."""
    return tables.once("step losses", lambda: _step_losses(tables))


def _step_losses(tables: RunTables) -> Losses:
    if tables.steps.get(0, -1) < EXACT:
        rows = tables.rows("steps")
        rows = rows.where(rows["rank"] == 0)
        nothing = np.empty(0)
        return Losses(rows["step"], rows["seconds"], rows["global_loss"].astype(np.float64), nothing, nothing)
    rows = tables.rollup(STEP_LOSSES)
    counts = rows["global_loss_known"]
    means = np.where(counts > 0, rows["global_loss"] / np.maximum(counts, 1), np.nan)
    lowest, highest = (np.where(counts > 0, rows[f"global_loss_{end}"], np.nan) for end in ("least", "most"))
    return Losses(rows["step_most"], rows["seconds_most"], means, lowest, highest)


def evaluations(tables: RunTables) -> dict[str, list[dict[str, Any]]]:
    """Return the evaluations of each split in order, some of a long run's; the newest of each is always there."""

    def by_split() -> dict[str, list[dict[str, Any]]]:
        rows: Rows = tables.rollup(EVALUATIONS)
        return {split: some.to_dicts() for split, some in rows.by("split").items()} if len(rows) else {}

    return tables.once("evaluations", by_split)


def judged_split(tables: RunTables) -> str:
    """Return the split that a run is judged by: validation, or training where its protocol has none."""
    splits = evaluations(tables)
    return "train" if "train" in splits and "validation" not in splits else "validation"


def metrics_of_evaluations(tables: RunTables) -> dict[str, str]:
    """Return what the chart can draw: the loss, and metrics that have been recorded beside those of persistence."""
    splits = evaluations(tables)
    newest = splits[judged_split(tables)][-1]["metrics"] or {} if judged_split(tables) in splits else {}
    names = [name for name in finite_scores(newest) if BASELINE + name in newest]
    return {"": TITLE} | {name: sentence_case(metric_name(name)) for name in names}


def loss_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the losses on a logarithmic axis, over seconds where each rank counts steps of its own.

    Where a metric is chosen, return its values at the evaluations instead.
    """
    x: XAxis = "seconds" if tables.own_steps else options.x
    if options.metric:
        return _metric_figure(tables, options.metric, x)
    steps, splits, judged = step_losses(tables), evaluations(tables), judged_split(tables)
    x_title, unit = STEPS_TITLE if x == "steps" else SECONDS_TITLE, loss_name(tables.config["task"])
    if not len(steps.values) and not splits:
        return card([], TITLE, unit=unit, x_title=x_title)
    column = "step" if x == "steps" else "seconds"
    ends = [float(steps.along(x)[-1])] if len(steps.steps) else []
    end = max([*ends, *(float(rows[-1][column]) for rows in splits.values())])
    shown_splits = [split for split in SPLIT_NAMES if split in splits]
    values = {split: [row["loss"] for row in splits[split]] for split in shown_splits}
    lines, keys = _split_lines(splits, values, column)
    data = [*_step_lines(steps, x), *lines]
    begin, persistence = -0.02 * end, _persistence(splits, judged)
    notes = []
    if persistence is not None:
        data.append(_persistence_line(persistence, begin, end))
    y_axis = _loss_axis(steps, splits, persistence, linear=options.linear)
    if persistence is not None:
        curves: list[tuple[Any, Any]] = [(steps.along(x), steps.values)] if len(steps.steps) > 1 else []
        curves += [([row[column] for row in splits[split]], values[split]) for split in shown_splits]
        notes.append(_persistence_label(persistence, curves, y_axis, end))
    axes: Attributes = {"xaxis": {"range": [begin, 1.01 * end or 1.0]}, "yaxis": y_axis, "annotations": notes}
    figure = card(data, TITLE, unit=unit, keys=keys, x_title=x_title, **axes)
    return with_changes(figure, tables, x, begin, 1.01 * end)


def _split_lines(
    splits: Mapping[str, Sequence[Mapping[str, Any]]], values: Mapping[str, Sequence[Any]], column: str
) -> tuple[list[Attributes], list[Key]]:
    """Return a line for the values of each split, over a column of its rows; and keys, the last split's first."""
    data: list[Attributes] = []
    keys: list[Key] = []
    for split, some in values.items():
        name, colour = SPLIT_NAMES[split], SPLIT_COLOURS[split]
        is_dotted = split != "train" and len(some) <= DOTTED
        dots: Attributes = {"mode": "lines+markers", "marker": {"size": 4.5, "color": colour}} if is_dotted else {}
        data.append(line(name, [row[column] for row in splits[split]], some, colour, "%{x:.5~g}: %{y:.4~g}", **dots))
        keys.insert(0, (f"{name} {three_digits(some[-1])}", colour, "line"))
    return data, keys


def _persistence_line(persistence: float, begin: float, end: float) -> Attributes:
    style: Attributes = {"dash": "dash", "width": 1.4, "hoverinfo": "skip", "mode": "lines"}
    return line("persistence", [begin, end], [persistence, persistence], BASELINE_COLOUR, **style)


def _metric_figure(tables: RunTables, metric: str, x: XAxis) -> Figure:
    """Return a metric of the evaluations, and what persistence reaches, on a linear axis."""
    x_title, title = STEPS_TITLE if x == "steps" else SECONDS_TITLE, sentence_case(metric_name(metric))
    splits, judged, column = evaluations(tables), judged_split(tables), "step" if x == "steps" else "seconds"
    values = {
        split: [finite_scores(row["metrics"]).get(metric) for row in splits[split]]
        for split in SPLIT_NAMES
        if split in splits
    }
    if not values:
        return card([], title, x_title=x_title, empty=FIRST_EPOCH)
    unit = "larger is better" if metric in metrics_of(tables.config["task"]) else "smaller is better"
    end = max(float(splits[split][-1][column]) for split in values)
    begin, (data, keys) = -0.02 * end, _split_lines(splits, values, column)
    persistence = finite_scores(splits[judged][-1]["metrics"]).get(BASELINE + metric) if judged in splits else None
    if persistence is not None:
        data.append(_persistence_line(persistence, begin, end))
        keys.append((f"persistence {three_digits(persistence)}", BASELINE_COLOUR, "dash"))
    axes: Attributes = {"xaxis": {"range": [begin, 1.01 * end or 1.0]}, "yaxis": {"nticks": 5}}
    figure = card(data, title, unit=unit, keys=keys, x_title=x_title, **axes)
    return with_changes(figure, tables, x, begin, 1.01 * end)


def _metric_caption(tables: RunTables, metric: str) -> str:
    splits, judged = evaluations(tables), judged_split(tables)
    scores = finite_scores(splits[judged][-1]["metrics"]) if judged in splits else {}
    if metric not in scores:
        return NOTHING_YET
    text, persistence = (
        f"{sentence_case(SPLIT_NAMES[judged])} {metric_name(metric)} is {three_digits(scores[metric])}",
        "",
    )
    if BASELINE + metric in scores:
        persistence = f", against {three_digits(scores[BASELINE + metric])} for persistence"
    return f"{text}{persistence}."


def loss_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return where the loss of the judged split stands, or the metric that is chosen."""
    return _metric_caption(tables, options.metric) if options.metric else _loss_caption(tables)


def _loss_caption(tables: RunTables) -> str:
    splits, judged = evaluations(tables), judged_split(tables)
    if judged not in splits:
        steps = step_losses(tables)
        values = _finite(steps.values)
        return f"The newest training loss is {three_digits(values[-1])}." if len(values) else NOTHING_YET
    newest = splits[judged][-1]
    if newest["loss"] is None or not isfinite(newest["loss"]):
        return f"{SPLIT_NAMES[judged].capitalize()} loss is not finite."
    loss = three_digits(newest["loss"])
    if judged == "train":
        return f"Training loss is {loss}; this protocol has no validation split."
    metrics = finite_scores(newest["metrics"])
    metric = main_metric(tables.config["task"], metrics)
    if metric is not None:
        text = f"Validation loss is {loss} and {metric_name(metric)} {three_digits(metrics[metric])}"
        beside = metrics.get(BASELINE + metric)
        return text + ("." if beside is None else f", against {three_digits(beside)} for persistence.")
    if not newest["persistence_loss"]:
        return f"Validation loss is {loss}."
    return f"Validation loss is {loss}, {against_persistence(newest)}."


def against_persistence(evaluation: Mapping[str, Any]) -> str:
    """Return how far a loss is from persistence, such as ``31% below persistence``; empty where that is unknown."""
    loss, persistence = evaluation["loss"], evaluation["persistence_loss"]
    if loss is None or not persistence:
        return ""
    gain = 1 - loss / persistence
    return f"{percent_text(abs(gain))} {'below' if gain >= 0 else 'above'} persistence"


def loss_chart() -> Chart:
    """Return the chart of losses, which every run has."""
    return Chart(
        name="loss",
        title=TITLE,
        figure=loss_figure,
        caption=loss_caption,
        section="common",
        rollups=(STEP_LOSSES, EVALUATIONS),
        help="Pale: the loss of each step. Persistence predicts that nothing changes; below it, a model has learned. "
        f"Charts mark the newest {CHIPS} changes.",
        toggles=("x", "linear"),
        metrics=metrics_of_evaluations,
    )


def _finite(values: Array) -> Array:
    return values[np.isfinite(values)]


def _step_lines(steps: Losses, x: XAxis) -> list[Attributes]:
    """Return the pale line of steps, over a band where it is of means."""
    pale: Attributes = {"width": 1, "mode": "lines", "hoverinfo": "skip"}
    edge: Attributes = {"width": 0, "mode": "lines", "hoverinfo": "skip"}
    x_values, data = steps.along(x).tolist(), []
    if len(steps.lowest):
        filled: Attributes = {"fill": "tonexty", "fillcolor": "rgba(159,195,220,0.35)"}
        data.append(line("least", x_values, known(steps.lowest), STEP_COLOUR, **edge))
        data.append(line("most", x_values, known(steps.highest), STEP_COLOUR, **edge, **filled))
    return [*data, line("each step", x_values, known(steps.values), STEP_COLOUR, **pale)]


def _persistence(splits: Mapping[str, Sequence[Mapping[str, Any]]], judged: str) -> float | None:
    value = splits[judged][-1]["persistence_loss"] if judged in splits else None
    return None if value is None or value <= 0 else float(value)


def _persistence_label(
    persistence: float, curves: Sequence[tuple[Any, Any]], y_axis: Attributes, end: float
) -> Attributes:
    """Return the name of the dashed line at the one of its ends, above or below it, where fewest curves are."""
    is_linear = y_axis["type"] == "linear"
    level = persistence if is_linear else log10(persistence)
    height = LABEL_HEIGHT * (y_axis["range"][1] - y_axis["range"][0])

    def covered(corner: tuple[str, str]) -> float:
        """Return how much of curves is where the name would stand."""
        side, edge = corner
        begin = end * (1 - LABEL_WIDTH) if side == "right" else 0.0
        middles, total = np.linspace(begin, begin + LABEL_WIDTH * end, LABEL_POINTS), 0.0
        for along, losses in curves:
            heights = np.interp(middles, np.asarray(along, np.float64), np.asarray(losses, np.float64))
            above = (heights if is_linear else np.log10(np.maximum(heights, 1e-30))) - level
            away = above if edge == "bottom" else -above
            total += float(((away >= 0) & (away < height)).mean())
        return total

    side, edge = min(product(("right", "left"), ("bottom", "top")), key=covered)
    style: Attributes = {"xref": "paper", "xanchor": side, "yanchor": edge, "bgcolor": "rgba(255,255,255,0.75)"}
    return label("persistence", float(side == "right"), level, size=10, borderpad=0, **style)


def _loss_axis(
    steps: Losses,
    splits: Mapping[str, Sequence[Mapping[str, Any]]],
    persistence: float | None,
    *,
    linear: bool,
) -> Attributes:
    """Return an axis that fits evaluations and most steps, but not the first spike."""
    evaluated = [row["loss"] for rows in splits.values() for row in rows]
    near = _finite(np.array([*evaluated, persistence], np.float64))
    values = _finite(steps.values)
    many = np.quantile(values, SHARE) if len(values) else 0.0
    low = np.quantile(values, 1 - SHARE) if len(values) else np.inf
    high, low = float(max([many, *near])), float(min([low, *near]))
    if linear or low <= 0 or not isfinite(low):  # infinite where no loss was ever finite
        return {"type": "linear", "range": [min(0.0, low), ROOM_ABOVE * high or 1.0], "nticks": 5}
    return log_axis(ROOM_BELOW * low, ROOM_ABOVE * high)
