"""Validation and training loss of several runs over wall seconds, and when each is near the best of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtdg_lab.core import catalogue
from dtdg_lab.visualization.charts import Drawn, line, points
from dtdg_lab.visualization.layout import Figure, frame, with_note
from dtdg_lab.visualization.loss import NO_LOSS, X_TITLES, add_panel, near_best, seconds_to, time_to_loss_words
from dtdg_lab.visualization.palette import series_colour
from dtdg_lab.visualization.style import LOSSES

if TYPE_CHECKING:
    from dtdg_lab.visualization.run_window import RunWindow


Labelled = Sequence[tuple[str, "RunWindow"]]


def wall_time_figure(runs: Labelled) -> Figure:
    """Losses of labelled runs over seconds since each began: validation above, training below.

    A star is where a run first has the least validation loss that every run reaches. Runs of a protocol without
    validation have their training loss in both. Seconds are all that passed, evaluations and rebuilds among them; time
    between two attempts of a run is not.
    """
    data = [_line(label, window, index, window.loss.judged) for index, (label, window) in enumerate(runs)]
    named = {LOSSES.get(window.loss.task, "loss") for _, window in runs} or {LOSSES["regression"]}
    judged = {window.loss.judged for _, window in runs} or {"validation"}
    title = f"Loss over wall time: {named.pop() if len(named) == 1 else 'of different tasks'}"
    split = "validation or training" if len(judged) > 1 else "training" if judged == {"train"} else "validation"
    layout = frame(title, X_TITLES["seconds"], split, showlegend=True)
    if not any(trace["x"] for trace in data):
        return {"data": data, "layout": with_note(layout, NO_LOSS)}
    below = {"yaxis": "y2", "showlegend": False}
    data += [_line(label, window, index, "train") | below for index, (label, window) in enumerate(runs)]
    data += _reached(runs)
    add_panel(layout, "training", ends=0.42, begins=0.54)
    layout["xaxis"]["rangemode"] = "tozero"
    return {"data": data, "layout": layout}


def wall_time_words(runs: Labelled) -> str:
    """Which run is first near the least loss of all, and what families of systems say of these runs together."""
    look = "Look which line is first at the star's height; a lower line later on is another merit."
    loss = near_best([window for _, window in runs]) if runs else None
    if loss is None:
        return look
    seconds = {label: taken for label, window in runs if (taken := seconds_to(window, loss)) is not None}
    missed = [label for label, _ in runs if label not in seconds]
    compared = [family.comparison(runs) for family in catalogue.families()]
    return " ".join(filter(None, (time_to_loss_words(seconds, loss, missed), look, *compared)))


def _line(label: str, window: RunWindow, index: int, split: str) -> dict[str, Any]:
    """Evaluations as points; the loss of each step, thin, where the training split was never evaluated."""
    evaluated = window.loss.splits[split]
    steps = split == "train" and not len(evaluated)
    colour = series_colour(index)
    style: dict[str, Any] = {"mode": "lines", "line": {"color": colour, "width": 1}}
    if not steps:
        style = {"mode": "lines+markers", "line": {"color": colour, "width": 2}, "marker": {"size": 5}}
    found = (window.loss.steps if steps else evaluated).line(label, "seconds", style).trace()
    return {
        **found,
        "x": [round(at, 4) for at in found["x"]],
        "legendgroup": label,
        "hovertemplate": "%{x:.2f} s: %{y:.4~g}<extra>%{fullData.name}</extra>",
    }


def _reached(runs: Labelled) -> list[dict[str, Any]]:
    """A dotted line near the least loss of all, with a star where a run reaches it."""
    loss = near_best([window for _, window in runs])
    if loss is None or len(runs) < 2:
        return []
    seconds = [seconds_to(window, loss) for _, window in runs]
    end = max((taken for taken in seconds if taken is not None), default=0.0)
    dotted: Drawn = {"width": 1.2, "dash": "dot", "mode": "lines", "hoverinfo": "skip"}
    drawn = [line("near the best", [0.0, round(end, 4)], [loss, loss], **dotted)]
    hover = "%{x:.2f} s to a loss near the best<extra>%{fullData.name}</extra>"
    for index, ((label, _), taken) in enumerate(zip(runs, seconds, strict=True)):
        if taken is not None:
            star: Drawn = {"size": 13, "marker": {"symbol": "star"}, "legendgroup": label, "showlegend": False}
            drawn.append(points(label, [round(taken, 4)], [loss], series_colour(index), hover, **star))
    return drawn
