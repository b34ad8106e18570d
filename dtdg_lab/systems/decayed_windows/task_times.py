"""Predicted times of tasks against what they took."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dtdg_lab.records.rows import Array, Rows
from dtdg_lab.systems.decayed_windows import captions
from dtdg_lab.systems.decayed_windows.step_windows import has_halo
from dtdg_lab.visualization.chart import NOTHING_YET, Chart, ChartOptions, Key, card
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.numbers import percent_text
from dtdg_lab.visualization.palette import series_colour
from dtdg_lab.visualization.traces import Drawn, line, points

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables

TASK_STEPS = 40  # steps whose tasks are drawn
MOST_DOTS = 1_500
LEAST_S = 1e-7  # shorter times count as this, as in the predictor
KINDS = {"compute": "computing", "communicate": "exchanges"}


def tasks_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return a dot for each task of the newest steps, predicted against measured milliseconds."""
    tasks = tables.last("tasks", TASK_STEPS).sort("step", "rank")  # however they came
    title, unit, x_title = "Predicted task times", "measured, ms", "predicted, ms"
    if not len(tasks):
        return card([], title, unit=unit, x_title=x_title, empty="Appears with the first overlapped exchange")
    tasks = tasks.where(slice(None, None, -(-len(tasks) // MOST_DOTS)))
    predicted, measured = _times_ms(tasks)
    ends = [min(predicted.min(), measured.min()), max(predicted.max(), measured.max())]
    data = [line("equal", ends, ends, width=1, dash="dot", hoverinfo="skip")]
    keys: list[Key] = []
    kinds = tasks["kind"]
    for number, (kind, name) in enumerate(KINDS.items()):
        is_kind = kinds == kind
        if is_kind.any():
            origins = list(zip(tasks["step"][is_kind].tolist(), tasks["rank"][is_kind].tolist(), strict=True))
            style: Drawn = {"size": 5, "marker": {"opacity": 0.6}, "customdata": origins}
            hover = "step %{customdata[0]}, rank %{customdata[1]}: predicted %{x:.3~g} ms, took %{y:.3~g} ms"
            x, y = predicted[is_kind].tolist(), measured[is_kind].tolist()
            data.append(points(name, x, y, series_colour(number), hover, **style))
            keys.append((name, series_colour(number), "dot"))
    axis: Drawn = {"type": "log", "dtick": 1}
    return card(data, title, unit=unit, keys=keys, x_title=x_title, xaxis=axis, yaxis=axis)


def tasks_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the median error of the newest predictions."""
    tasks = tables.last("tasks", TASK_STEPS)
    if not len(tasks):
        return NOTHING_YET
    predicted, measured = _times_ms(tasks)
    return captions.TASK_TIMES.format(share=percent_text(float(np.median(np.abs(predicted / measured - 1)))))


def _times_ms(tasks: Rows) -> tuple[Array, Array]:
    """Return predicted and measured milliseconds, with four digits."""
    times = (1e3 * np.maximum(tasks[name].astype(np.float64), LEAST_S) for name in ("predicted_s", "duration_s"))
    predicted, measured = (np.array([float(f"{ms:.4g}") for ms in column]) for column in times)
    return predicted, measured


TASK_TIMES = Chart(
    name="task_times",
    title="Predicted task times",
    figure=tasks_figure,
    caption=tasks_caption,
    place="folded",
    shown=has_halo,
    help="A dot is a stretch of computing or an exchange. On the dotted line it took what was predicted.",
)
