"""One node seen by several models, and how a change of it travels: figures of activations and perturbations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.visualization.charts import FROM_ZERO, Drawn, bars, chart, right_axis
from dtdg_lab.visualization.graph import SNAPSHOT
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.loss import add_panel
from dtdg_lab.visualization.palette import TEXT_COLOUR, series_colour

_COLOURS = 8  # of the palette; from there on lines are dotted


def vertex_figure(
    vertex: int,
    label: NDArray[np.floating],
    predictions: Mapping[str, NDArray[np.floating]],
    neighbours: NDArray[np.integer],
) -> Figure:
    """A node's label and every model's prediction of it, over its in-neighbours.

    Args:
        vertex: its number.
        label: shape (T,).
        predictions: model -> shape (T,).
        neighbours: shape (T,): in-neighbours of every snapshot.
    """
    data = [
        bars("in-neighbours (right axis)", range(len(label)), neighbours.tolist(), "#D7DCE2", yaxis="y2"),
        _line("label", label, {"color": TEXT_COLOUR, "width": 3}),
        *(_line(name, values, _style(index)) for index, (name, values) in enumerate(predictions.items())),
    ]
    title = f"Node {vertex}: its label, and what each model predicts"
    looks: Drawn = {"yaxis": {"overlaying": "y2"}, "height": 420, "margin": {"l": 56, "t": 34, "b": 96}}
    figure = chart(title, SNAPSHOT, "label", data, showlegend=True, **looks)
    right_axis(figure["layout"], "in-neighbours", 56, overlaying=None, **FROM_ZERO)
    return figure


def perturbation_figure(
    affected: Mapping[str, NDArray[np.integer]], largest: Mapping[str, NDArray[np.floating]]
) -> Figure:
    """The number of nodes that a change affects, and the largest difference, by snapshots since the change.

    Args:
        affected: model -> shape (T',): number of affected nodes.
        largest: model -> shape (T',): the largest difference of a hidden value.
    """
    data = []
    points: Drawn = {"mode": "lines+markers", "marker": {"size": 4}}  # a change may last one snapshot
    for index, name in enumerate(affected):
        data.append(_line(name, _gaps(affected[name]), _style(index), **points))
        data.append(_line(name, _gaps(largest[name]), _style(index), **points, yaxis="y2", showlegend=False))
    figure = chart(
        "Nodes that a change of one node affects, and how strongly",
        "snapshots since the change (number)",
        "affected nodes",
        data,
        showlegend=True,
        height=520,
        margin={"l": 64, "r": 14, "t": 34, "b": 96},
        yaxis={"type": "log", "dtick": 1},
    )
    below: Drawn = {"exponentformat": "power", "dtick": 2}
    add_panel(figure["layout"], "largest difference of a hidden value", ends=0.45, begins=0.55, **below)
    return figure


def _gaps(values: NDArray[Any]) -> NDArray[np.float64]:
    """0 has no place on a logarithmic axis: the line ends there."""
    return np.where(values > 0, values, np.nan).astype(np.float64)


def _style(index: int) -> dict[str, Any]:
    return {"color": series_colour(index), "width": 1.6, "dash": "solid" if index < _COLOURS else "dot"}


def _line(name: str, values: NDArray[np.floating], stroke: Drawn, **more: Any) -> Drawn:
    ys = [None if np.isnan(value) else value for value in values.tolist()]
    looks: Drawn = {"mode": "lines", "line": stroke, "hovertemplate": "snapshot %{x}: %{y:.4~g}", "connectgaps": False}
    return {"type": "scatter", "name": name, "x": list(range(len(ys))), "y": ys, **looks, **more}
