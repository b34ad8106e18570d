"""The compare view: validation losses of several runs in one chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtdg_lab.views.layout import Figure, frame, with_note
from dtdg_lab.views.loss import X_TITLES
from dtdg_lab.views.palette import series_colour
from dtdg_lab.views.series import XAxis

if TYPE_CHECKING:
    from dtdg_lab.views.window import RunWindow


def compare_figure(runs: Sequence[tuple[str, RunWindow]], x: XAxis = "steps") -> Figure:
    """Validation losses of labelled runs over steps or seconds, with dashes where persistence stands.

    Persistence depends on data set and protocol only, so runs that share its value share one dashed line.
    """
    data: list[dict[str, Any]] = []
    baselines: dict[float, tuple[str, str, float]] = {}
    for index, (label, window) in enumerate(runs):
        colour = series_colour(index)
        style = {"mode": "lines+markers", "line": {"color": colour, "width": 2}, "marker": {"size": 5}}
        line = window.loss.splits["validation"].line(label, x, style)
        data.append(line.trace())
        value = window.loss.baseline("persistence")
        if value is not None and line.xs:
            _, _, end = baselines.get(value, ("", "", 0.0))
            baselines[value] = (label, colour, max(end, line.xs[-1]))
    for value, (label, colour, end) in baselines.items():
        shared = len(baselines) == 1
        name = "persistence" if shared else f"persistence ({label})"
        dashes = {"color": "#5B5F66" if shared else colour, "width": 1.5, "dash": "dash"}
        data.append(
            {"type": "scatter", "mode": "lines", "name": name, "x": [0.0, end], "y": [value, value], "line": dashes}
        )
    layout = frame("Validation loss of the last runs", X_TITLES[x], "mean squared error", showlegend=True)
    empty = not any(trace["x"] for trace in data)
    return {"data": data, "layout": with_note(layout, "no run has been evaluated yet") if empty else layout}
