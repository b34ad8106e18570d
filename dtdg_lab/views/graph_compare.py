"""Several cuts of one graph, or several graphs, side by side: what they share and what learns nothing scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dtdg_lab.graphs.describe import GraphStatistics
from dtdg_lab.views.graph_words import mean_of
from dtdg_lab.views.layout import Figure, frame
from dtdg_lab.views.palette import BASELINE_COLOUR, EDGE_COLOUR, series_colour

# column -> what it means; the rows of a table of graphs
COLUMNS: Mapping[str, str] = {
    "snapshots": "labelled snapshots (T)",
    "edges": "mean of the distinct edges of a snapshot",
    "kept": "mean share of a snapshot's edges that the next one has too",
    "persistence": "mean squared error of 'tomorrow is like today'",
    "mean": "mean squared error of the mean of all labels",
    "explained": "share of the labels' variance that persistence explains: 1 - persistence / mean",
}


def graph_row(found: GraphStatistics) -> dict[str, float]:
    """One graph in the numbers of ``COLUMNS``."""
    persistence, mean = found.persistence_mse, found.mean_mse
    return {
        "snapshots": len(found.edges),
        "edges": float(found.edges.mean()),
        "kept": mean_of(found.kept),
        "persistence": persistence,
        "mean": mean,
        "explained": 1 - persistence / mean if mean else float("nan"),
    }


def compare_graphs_figure(rows: Mapping[str, Mapping[str, float]]) -> Figure:
    """Bars of what persistence and the mean score, and a line of the share of edges that neighbours keep."""
    names = list(rows)

    def values(column: str) -> list[float | None]:
        return [None if math.isnan(row[column]) else row[column] for row in rows.values()]

    def bars(name: str, column: str, colour: str) -> dict[str, Any]:
        hover = "%{x}: %{y:.4~g}"
        return {"type": "bar", "name": name, "x": names, "y": values(column), "marker": {"color": colour},
                "hovertemplate": hover}  # fmt: skip

    data = [
        bars("persistence", "persistence", EDGE_COLOUR),
        bars("mean of all labels", "mean", BASELINE_COLOUR),
        {
            "type": "scatter", "mode": "lines+markers", "name": "edges kept by the next snapshot (right axis)",
            "x": names, "y": values("kept"), "yaxis": "y2", "line": {"color": series_colour(1), "width": 2},
            "hovertemplate": "%{x}: %{y:.0%}",
        },
    ]  # fmt: skip
    right = {
        "overlaying": "y", "side": "right", "showgrid": False, "zeroline": False, "range": [0, 1.02],
        "tickformat": ".0%", "title": {"text": "share of edges kept", "standoff": 4, "font": {"size": 11}},
    }  # fmt: skip
    layout = frame(
        "What learns nothing scores, by graph", "graph", "mean squared error of the label", yaxis2=right,
        xaxis={"type": "category"}, yaxis={"rangemode": "tozero"}, barmode="group", bargap=0.35, showlegend=True,
        margin={"l": 56, "r": 56, "t": 34, "b": 78},
    )  # fmt: skip
    return {"data": data, "layout": layout}
