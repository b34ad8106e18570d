"""What a dynamic graph looks like over time, before anything is trained on it: four charts, each with a sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.graphs.describe import GraphStatistics
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.kept_statistics import statistics_of
from dtdg_lab.views import graph_words
from dtdg_lab.views.graph_spans import Span, span_marks, spans_of
from dtdg_lab.views.layout import Figure, frame
from dtdg_lab.views.palette import BASELINE_COLOUR, EDGE_COLOUR, VERTEX_COLOUR, WARNING_COLOUR, series_colour
from dtdg_lab.views.thin import runs_of, shown_indices

GRAPH_CHARTS = ("size", "overlap", "degrees", "baselines")
SNAPSHOT = "snapshot (number)"
_MOST_EMPTY = 100  # stretches without edges that are marked one by one


class GraphView:
    """The charts of a graph under a protocol, whose parts are shaded.

    Args:
        graph: T labelled snapshots, or their statistics; those of a graph are computed once and kept.
        protocol: the name of an evaluation protocol.
    """

    def __init__(self, graph: DynamicGraph | GraphStatistics, protocol: str = "warm") -> None:
        self.statistics = graph if isinstance(graph, GraphStatistics) else statistics_of(graph)
        self.protocol = protocol
        snapshots = len(self.statistics.edges)
        self.spans, self.no_split = spans_of(snapshots, self.statistics.edge_life, protocol)

    def figures(self) -> dict[str, Figure]:
        """The charts by name, as plotly figure dicts."""
        found, spans = self.statistics, self.spans
        return {
            "size": _size(found, spans),
            "overlap": _overlap(found, spans),
            "degrees": _degrees(found),
            "baselines": _baselines(found, spans),
        }

    def sentences(self) -> dict[str, str]:
        """What to look for in each chart."""
        found = self.statistics
        size = graph_words.size(found)
        return {
            "size": f"{size} No parts are shaded: {self.no_split}" if self.no_split else size,
            "overlap": graph_words.overlap(found),
            "degrees": graph_words.degrees(found),
            "baselines": graph_words.baselines(found),
        }


def _over_time(name: str, values: NDArray[Any], style: dict[str, Any], *, start: int = 0) -> dict[str, Any]:
    """A line of a value by snapshot, thinned to what a picture can show; not a number is a gap."""
    wide = values.astype(np.float64)
    drawn = shown_indices(wide)
    ys = [None if np.isnan(value) else value for value in wide[drawn].tolist()]
    trace = {"type": "scatter", "mode": "lines", "name": name, "x": (drawn + start).tolist(), "y": ys, **style}
    return {**trace, "hovertemplate": "snapshot %{x}: %{y:,.4~g}"}


def _axis(count: int) -> dict[str, Any]:
    return {"range": [-0.5, max(count - 0.5, 0.5)]}


def _size(found: GraphStatistics, spans: list[Span]) -> Figure:
    edges, vertices = ({"line": {"color": colour, "width": 1.6}} for colour in (EDGE_COLOUR, VERTEX_COLOUR))
    data = [
        _over_time("edges", found.edges, edges),
        _over_time("vertices with an edge (right axis)", found.active, {**vertices, "yaxis": "y2"}),
    ]
    marks = span_marks(spans)
    if found.empty:
        data.append(_empty_marks(found))
    right = {
        "overlaying": "y", "side": "right", "showgrid": False, "zeroline": False, "rangemode": "tozero",
        "title": {"text": "vertices", "standoff": 4, "font": {"size": 11}},
    }  # fmt: skip
    layout = frame(
        "Edges and vertices over time", SNAPSHOT, "distinct edges", xaxis=_axis(len(found.edges)), yaxis2=right,
        yaxis={"rangemode": "tozero"}, margin={"l": 56, "r": 48, "t": 34, "b": 78}, showlegend=True, **marks,
    )  # fmt: skip
    return {"data": data, "layout": layout}


def _empty_marks(found: GraphStatistics) -> dict[str, Any]:
    """Crosses at the foot of the chart where snapshots have no edges; the middle of a stretch stands for it."""
    stretches = runs_of(found.edges == 0)[:_MOST_EMPTY]
    return {
        "type": "scatter", "mode": "markers", "name": "no edges",
        "x": [(first + last) / 2 for first, last in stretches], "y": [0] * len(stretches),
        "marker": {"color": WARNING_COLOUR, "symbol": "x", "size": 8}, "cliponaxis": False,
        "text": [f"snapshot {first}" if first == last else f"snapshots {first} to {last}" for first, last in stretches],
        "hovertemplate": "%{text}: no edges<extra></extra>",
    }  # fmt: skip


def _overlap(found: GraphStatistics, spans: list[Span]) -> Figure:
    kept, jaccard = ({"line": {"color": series_colour(index), "width": 1.6}} for index in (1, 2))
    data = [
        _over_time("share of the edges before that are still there", found.kept, kept, start=1),
        _over_time("Jaccard index", found.jaccard, jaccard, start=1),
    ]
    layout = frame(
        "Edges shared with the snapshot before", SNAPSHOT, "share (1)", xaxis=_axis(len(found.edges)),
        yaxis={"range": [-0.02, 1.02]}, showlegend=True, **span_marks(spans),
    )  # fmt: skip
    return {"data": data, "layout": layout}


def _degrees(found: GraphStatistics) -> Figure:
    above = np.cumsum(found.degree_counts[::-1])[::-1]
    whole = max(int(above[0]), 1) if len(above) else 1
    drawn = _spread(found.degrees)
    style: dict[str, Any] = {"mode": "lines+markers", "marker": {"size": 4}, "line": {"color": EDGE_COLOUR, "width": 1}}
    data = [_tail("vertices and snapshots", found.degrees[drawn], above[drawn] / whole, style)]
    if found.tail is not None:
        tail = found.tail
        ends = np.array([tail.start, int(found.degrees[-1])], dtype=np.float64)
        fitted = tail.values / whole * (ends / tail.start) ** (1 - tail.exponent)
        line = {"mode": "lines", "line": {"color": BASELINE_COLOUR, "width": 1.5, "dash": "dash"}}
        data.append(_tail(f"power law, exponent {tail.exponent:.2f}", ends, fitted, line))
    layout = frame(
        "In-degrees at least this large", "in-degree (edges)", "share of in-degrees above 0",
        xaxis={"type": "log", "dtick": 1}, yaxis={"type": "log", "dtick": 1, "exponentformat": "power"},
        showlegend=True,
    )  # fmt: skip
    return {"data": data, "layout": layout}


def _spread(degrees: NDArray[np.int64], most: int = 300) -> NDArray[np.int64]:
    """Indices of about ``most`` degrees, evenly spread over a logarithmic axis, with the first and the last."""
    if len(degrees) <= most:
        return np.arange(len(degrees))
    at = np.searchsorted(degrees, np.geomspace(degrees[0], degrees[-1], most))
    return np.unique(at)


def _tail(name: str, x: NDArray[Any], y: NDArray[np.float64], style: dict[str, Any]) -> dict[str, Any]:
    hover = "%{y:.3~g} of the in-degrees are at least %{x:,}"
    return {"type": "scatter", "name": name, "x": x.tolist(), "y": y.tolist(), "hovertemplate": hover, **style}


def _baselines(found: GraphStatistics, spans: list[Span]) -> Figure:
    dash = {"color": BASELINE_COLOUR, "width": 1.6}
    data = [
        _over_time("persistence: as before", found.persistence_errors, {"line": {**dash, "color": series_colour(0)}}),
        _over_time("mean of all labels", found.mean_errors, {"line": {**dash, "dash": "dot"}}),
    ]
    layout = frame(
        "What learns nothing scores", SNAPSHOT, "mean squared error of the label", xaxis=_axis(len(found.edges)),
        yaxis={"rangemode": "tozero"}, showlegend=True, **span_marks(spans),
    )  # fmt: skip
    return {"data": data, "layout": layout}
