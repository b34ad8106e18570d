"""The compare view: validation losses of several runs in one chart, and the metric they share under it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtdg_lab.views.layout import Figure, frame, with_note
from dtdg_lab.views.loss import X_TITLES
from dtdg_lab.views.metrics import LOSSES, words
from dtdg_lab.views.palette import series_colour
from dtdg_lab.views.series import XAxis

if TYPE_CHECKING:
    from dtdg_lab.views.window import RunWindow

Labelled = Sequence[tuple[str, "RunWindow"]]
SEVERAL = "loss (of different tasks)"


def compare_figure(runs: Labelled, x: XAxis = "steps") -> Figure:
    """Validation losses of labelled runs over steps or seconds, with dashes where persistence stands.

    Persistence depends on data set and protocol only, so runs that share its value share one dashed line. Where all
    runs have the same metric, it stands in a panel of its own. Runs of a protocol without validation show the training
    part.
    """
    data = [_line(label, window, index, x) for index, (label, window) in enumerate(runs)] + _baselines(runs, x)
    tasks = {window.loss.task for _, window in runs} or {"regression"}
    y_title = LOSSES.get(tasks.pop(), "loss") if len(tasks) == 1 else SEVERAL
    layout = frame(_title(runs), X_TITLES[x], y_title, showlegend=True)
    if not any(trace["x"] for trace in data):
        return {"data": data, "layout": with_note(layout, "no run has been evaluated yet")}
    metrics = {window.loss.metric for _, window in runs}
    metric = metrics.pop() if len(metrics) == 1 else None
    if metric is not None:
        data += [_line(label, window, index, x, metric=metric) for index, (label, window) in enumerate(runs)]
        _add_panel(layout, words(metric))
    return {"data": data, "layout": layout}


def _title(runs: Labelled) -> str:
    judged = {window.loss.judged for _, window in runs}
    part = "Validation" if "train" not in judged else "Training" if len(judged) == 1 else "Validation or training"
    return f"{part} loss of the last runs"


def _line(label: str, window: RunWindow, index: int, x: XAxis, *, metric: str = "") -> dict[str, Any]:
    loss = window.loss
    style: dict[str, Any] = {
        "mode": "lines+markers",
        "line": {"color": series_colour(index), "width": 2},
        "marker": {"size": 5},
    }
    if metric:
        style |= {"yaxis": "y2", "showlegend": False, "legendgroup": label}
    series = loss.metrics[loss.judged][metric] if metric else loss.splits[loss.judged]
    return series.line(label, x, style).trace()


def _baselines(runs: Labelled, x: XAxis) -> list[dict[str, Any]]:
    """One dashed line for each value of persistence."""
    found: dict[float, tuple[str, int, float]] = {}
    for index, (label, window) in enumerate(runs):
        loss = window.loss
        value, xs = loss.baseline("persistence", loss.judged), loss.splits[loss.judged].line(label, x, {}).xs
        if value is not None and xs:
            _, _, end = found.get(value, ("", 0, 0.0))
            found[value] = (label, index, max(end, xs[-1]))
    shared = len(found) == 1
    return [
        {
            "type": "scatter", "mode": "lines", "name": "persistence" if shared else f"persistence ({label})",
            "x": [0.0, end], "y": [value, value],
            "line": {"color": "#5B5F66" if shared else series_colour(index), "width": 1.5, "dash": "dash"},
        }
        for value, (label, index, end) in found.items()
    ]  # fmt: skip


def _add_panel(layout: dict[str, Any], title: str) -> None:
    """Room for a second panel under the first, over the same x axis."""
    second = {**layout["yaxis"], "title": {**layout["yaxis"]["title"], "text": title}, "domain": [0.0, 0.4]}
    layout["yaxis"] = {**layout["yaxis"], "domain": [0.5, 1.0]}
    layout["yaxis2"] = {**second, "anchor": "x", "rangemode": "tozero"}
    layout["xaxis"] = {**layout["xaxis"], "anchor": "y2"}
