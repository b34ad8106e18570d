"""One node seen by several models, and how a change of it travels: figures of activations and perturbations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.visualization import palette
from dtdg_lab.visualization.axes import FROM_ZERO, RIGHT_AXIS
from dtdg_lab.visualization.chart import Figure, card, trace_keys
from dtdg_lab.visualization.graphs.statistics import SNAPSHOT, Floats
from dtdg_lab.visualization.sheet import STUDY_HEIGHT, sheet
from dtdg_lab.visualization.traces import Attributes, bars

LARGEST_TITLE = "Largest difference of a hidden value"
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
    right = {**RIGHT_AXIS, **FROM_ZERO, "overlaying": None}
    axes: Attributes = {"yaxis": {"overlaying": "y2"}, "yaxis2": right, "margin": {"r": 48}}
    return card(data, title, unit="label", keys=trace_keys(data), x_title=SNAPSHOT, **axes)


def perturbation_figure(affected: Mapping[str, NDArray[np.integer]], largest: Mapping[str, Floats]) -> Figure:
    """Return the number of nodes that a change affects and the largest difference, over snapshots.

    Args:
        affected: model -> shape (T',): number of affected nodes.
        largest: model -> shape (T',): the largest difference of a hidden value.
    """
    cards = [
        (_after_change(affected, "Affected nodes", {"type": "log", "dtick": 1}), ""),
        (_after_change(largest, LARGEST_TITLE, {"type": "log", "exponentformat": "power", "dtick": 2}), ""),
    ]
    title = "Nodes that a change of one node affects, and how strongly"
    return sheet(cards, title=title, columns=1, plot_height=STUDY_HEIGHT)


def _after_change(values: Mapping[str, NDArray[Any]], title: str, axis: Attributes) -> Figure:
    points: Attributes = {"mode": "lines+markers", "marker": {"size": 4}}  # a change may last one snapshot
    data = [_line(name, _gaps(values[name]), _style(index), **points) for index, name in enumerate(values)]
    return card(data, title, keys=trace_keys(data), x_title="snapshots since the change (number)", yaxis=axis)


def _gaps(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return the values with gaps for 0, which has no place on a logarithmic axis."""
    return np.where(values > 0, values, np.nan).astype(np.float64)


def _style(index: int) -> dict[str, Any]:
    return {"color": palette.series_colour(index), "width": 1.6, "dash": "solid" if index < _COLOURS else "dot"}


def _line(name: str, values: Floats, stroke: Attributes, **extra: Any) -> Attributes:
    ys = [None if np.isnan(value) else value for value in values.tolist()]
    style: Attributes = {
        "mode": "lines",
        "line": stroke,
        "hovertemplate": "snapshot %{x}: %{y:.4~g}",
        "connectgaps": False,
    }
    return {"type": "scatter", "name": name, "x": list(range(len(ys))), "y": ys, **style, **extra}
