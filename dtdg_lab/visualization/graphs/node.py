"""One node seen by several models, and how a change of it travels: figures of activations and perturbations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.visualization import palette
from dtdg_lab.visualization.chart import Figure
from dtdg_lab.visualization.graphs.statistics import SNAPSHOT, Floats
from dtdg_lab.visualization.layout import FROM_ZERO, axis_words, chart, right_axis
from dtdg_lab.visualization.traces import Drawn, bars

_COLOURS = 8  # of the palette; from there on lines are dotted


def vertex_figure(
    vertex: int, label: Floats, predictions: Mapping[str, Floats], neighbours: NDArray[np.integer]
) -> Figure:
    """Return a node's label and every model's prediction of it, over its in-neighbours.

    Args:
        vertex: its number.
        label: shape (T,).
        predictions: model -> shape (T,).
        neighbours: shape (T,): in-neighbours of every snapshot.
    """
    data = [
        bars("in-neighbours (right axis)", range(len(label)), neighbours.tolist(), "#D7DCE2", yaxis="y2"),
        _line("label", label, {"color": palette.TEXT_COLOUR, "width": 3}),
        *(_line(name, values, _style(index)) for index, (name, values) in enumerate(predictions.items())),
    ]
    title = f"Node {vertex}: its label, and what each model predicts"
    layout: Drawn = {"yaxis": {"overlaying": "y2"}, "height": 420, "margin": {"l": 56, "t": 34, "b": 96}}
    figure = chart(title, SNAPSHOT, "label", data, showlegend=True, **layout)
    right_axis(figure["layout"], "in-neighbours", 56, overlaying=None, **FROM_ZERO)
    return figure


def perturbation_figure(affected: Mapping[str, NDArray[np.integer]], largest: Mapping[str, Floats]) -> Figure:
    """Return the number of nodes that a change affects and the largest difference, over snapshots.

    Args:
        affected: model -> shape (T',): number of affected nodes.
        largest: model -> shape (T',): the largest difference of a hidden value.
    """
    data = []
    points: Drawn = {"mode": "lines+markers", "marker": {"size": 4}}  # a change may last one snapshot
    for index, name in enumerate(affected):
        data.append(_line(name, _gaps(affected[name]), _style(index), **points))
        data.append(_line(name, _gaps(largest[name]), _style(index), **points, yaxis="y2", showlegend=False))
    titles = ("Nodes that a change of one node affects, and how strongly", "snapshots since the change (number)")
    layout: Drawn = {"showlegend": True, "height": 520, "margin": {"l": 64, "r": 14, "t": 34, "b": 96}}
    figure = chart(*titles, "affected nodes", data, yaxis={"type": "log", "dtick": 1}, **layout)
    below: Drawn = {"exponentformat": "power", "dtick": 2}
    _add_panel(figure["layout"], "largest difference of a hidden value", **below)
    return figure


def _add_panel(layout: dict[str, Any], title: str, **changes: Any) -> None:
    """Make room for a second panel under the first, over the same x axis."""
    below = {**layout["yaxis"], "domain": [0.0, 0.45]}
    layout["annotations"] = [*layout["annotations"], axis_words(title, 0.45)]
    layout["yaxis"] = {**layout["yaxis"], "domain": [0.55, 1.0]}
    layout["yaxis2"] = {**below, "anchor": "x", **changes}
    layout["xaxis"] = {**layout["xaxis"], "anchor": "y2"}


def _gaps(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return the values with gaps for 0, which has no place on a logarithmic axis."""
    return np.where(values > 0, values, np.nan).astype(np.float64)


def _style(index: int) -> dict[str, Any]:
    return {"color": palette.series_colour(index), "width": 1.6, "dash": "solid" if index < _COLOURS else "dot"}


def _line(name: str, values: Floats, stroke: Drawn, **extra: Any) -> Drawn:
    ys = [None if np.isnan(value) else value for value in values.tolist()]
    style: Drawn = {"mode": "lines", "line": stroke, "hovertemplate": "snapshot %{x}: %{y:.4~g}", "connectgaps": False}
    return {"type": "scatter", "name": name, "x": list(range(len(ys))), "y": ys, **style, **extra}
