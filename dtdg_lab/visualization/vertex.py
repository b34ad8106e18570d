"""One node seen by several models, and how a change of it travels: figures of activations and perturbations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.visualization.graph import SNAPSHOT, right_axis
from dtdg_lab.visualization.layout import Figure, frame
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
    steps = list(range(len(label)))
    data: list[dict[str, Any]] = [
        {
            "type": "bar",
            "name": "in-neighbours (right axis)",
            "x": steps,
            "y": neighbours.tolist(),
            "yaxis": "y2",
            "marker": {"color": "#D7DCE2"},
        },
        _line("label", label, {"color": TEXT_COLOUR, "width": 3}),
        *(_line(name, values, _style(index)) for index, (name, values) in enumerate(predictions.items())),
    ]
    layout = frame(
        f"Node {vertex}: its label, and what each model predicts",
        SNAPSHOT,
        "label",
        showlegend=True,
        yaxis={"overlaying": "y2"},
        yaxis2=right_axis("in-neighbours", rangemode="tozero"),
        height=420,
        margin={"l": 56, "r": 56, "t": 34, "b": 96},
    )
    return {"data": data, "layout": layout}


def perturbation_figure(
    affected: Mapping[str, NDArray[np.integer]], largest: Mapping[str, NDArray[np.floating]]
) -> Figure:
    """The number of nodes that a change affects, and the largest difference, by snapshots since the change.

    Args:
        affected: model -> shape (T',): number of affected nodes.
        largest: model -> shape (T',): the largest difference of a hidden value.
    """
    data = []
    for index, name in enumerate(affected):
        style = _style(index)
        points = {"mode": "lines+markers", "marker": {"size": 4}}  # a change may last one snapshot
        data.append({**_line(name, _gaps(affected[name]), style), **points})
        below = {"yaxis": "y2", "showlegend": False}
        data.append({**_line(name, _gaps(largest[name]), style), **points, **below})
    layout = frame(
        "Nodes that a change of one node affects, and how strongly",
        "snapshots since the change (number)",
        "affected nodes",
        showlegend=True,
        height=520,
        margin={"l": 64, "r": 14, "t": 34, "b": 96},
        yaxis={"type": "log", "domain": [0.55, 1.0], "dtick": 1},
    )
    layout["yaxis2"] = {
        **layout["yaxis"],
        "domain": [0.0, 0.45],
        "anchor": "x",
        "exponentformat": "power",
        "dtick": 2,
        "title": {**layout["yaxis"]["title"], "text": "largest difference of a hidden value"},
    }
    layout["xaxis"] = {**layout["xaxis"], "anchor": "y2"}
    return {"data": data, "layout": layout}


def _gaps(values: NDArray[Any]) -> NDArray[np.float64]:
    """0 has no place on a logarithmic axis: the line ends there."""
    return np.where(values > 0, values, np.nan).astype(np.float64)


def _style(index: int) -> dict[str, Any]:
    return {"color": series_colour(index), "width": 1.6, "dash": "solid" if index < _COLOURS else "dot"}


def _line(name: str, values: NDArray[np.floating], line: dict[str, Any]) -> dict[str, Any]:
    ys = [None if np.isnan(value) else value for value in values.tolist()]
    hover = "snapshot %{x}: %{y:.4~g}"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": list(range(len(ys))),
        "y": ys,
        "line": line,
        "hovertemplate": hover,
        "connectgaps": False,
    }
