"""A dynamic graph over time: four charts with a sentence each, and a small picture."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.core.errors import DataError
from dtdg_lab.core.units import percent
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.split import split
from dtdg_lab.graphs.statistics import GraphStatistics, statistics_of
from dtdg_lab.visualization import palette
from dtdg_lab.visualization.axes import FROM_ZERO, RIGHT_AXIS
from dtdg_lab.visualization.chart import Figure, card, trace_keys
from dtdg_lab.visualization.palette import coloured
from dtdg_lab.visualization.thinning import runs_of, shown_indices
from dtdg_lab.visualization.traces import Attributes, bars, box, label, line, points

Floats = NDArray[np.floating]

# Where the parts of a split lie in a chart over snapshots: shaded bands with their names.


Span = tuple[str, int, int]  # name, first and last snapshot
PURGE = "purge"
_NARROW = 0.08  # a band of a smaller share of the chart has no room for its name


def spans_of(snapshots: int, edge_life: int, protocol: str) -> tuple[list[Span], str]:
    """Return the parts of T snapshots under a protocol and what is purged between them.

    Args:
        snapshots: T.
        edge_life: base intervals an edge lives.
        protocol: a name.

    Returns:
        The spans in order of time, and no words; or no spans, and what is wrong in words.
    """
    try:
        parts = split(snapshots, edge_life, PROTOCOLS[protocol])
    except DataError as error:
        return [], str(error)
    spans: list[Span] = []
    end = 0
    for name in ("train", "validation", "test"):
        part = getattr(parts, name)
        if not len(part):
            continue
        if part.start > end:
            spans.append((PURGE, end, part.start - 1))
        spans.append((name, part.start, part.stop - 1))
        end = part.stop
    return spans, ""


def span_marks(spans: list[Span]) -> Attributes:
    """Return bands and their names for a layout; snapshot t covers t - 1/2 to t + 1/2."""
    snapshots = spans[-1][2] + 1 if spans else 1
    shapes, names = [], []
    for name, first, last in spans:
        style: Attributes = {"opacity": 0.25 if name == PURGE else 0.08, "line": {"width": 0}, "layer": "below"}
        shapes.append(box((first - 0.5, last + 0.5), (0, 1), yref="paper", fillcolor=split_colour(name), **style))
        if last + 1 - first >= _NARROW * snapshots:
            middle = (first + last) / 2
            names.append(label(name, middle, 1, split_colour(name), 10, yref="paper", yanchor="top"))
    return {"shapes": shapes, "annotations": names}


def split_colour(name: str) -> str:
    """Return the colour of a part of a split."""
    return palette.SPLIT_COLOURS.get(name, palette.PURGE_COLOUR)


# What to look for in the charts of a graph, in a sentence or two for each, from its statistics.


_BURST = 3.0  # a snapshot of so many times the median's edges is called a burst


def size_caption(statistics: GraphStatistics) -> str:
    """Return how large the graph is, and how unevenly, in words."""
    edges = statistics.edges
    median = float(np.median(edges))
    text = f"{len(edges):,} snapshots; the median one has {median:,.0f} edges, the largest {int(edges.max()):,}."
    bursts = int(np.count_nonzero(edges > _BURST * median)) if median else 0
    if bursts:
        count = "1 snapshot has" if bursts == 1 else f"{bursts:,} snapshots have"
        text += f" Look for bursts: {count} over {_BURST:.0f} times the median, which a quiet past does not predict."
    elif edges[-1] > 2 * max(int(edges[0]), 1):
        text += " It grows: what is tested is larger than what is trained on."
    empty = sum(map(len, statistics.empty))
    if empty:
        text += f" {empty:,} without edges (crosses): their labels are all 0."
    return text


def overlap_caption(statistics: GraphStatistics) -> str:
    """Return how much neighbours share, and what that means, in words."""
    mean = mean_of(statistics.kept)
    if np.isnan(mean):
        return "No snapshot with edges has a successor."
    text = f"On average {percent(mean)} of a snapshot's edges are in the next one"
    if statistics.edge_life > 1:
        text += f"; edges live {statistics.edge_life} base intervals, so neighbours share all but one of theirs"
    if mean >= 0.5:
        return text + ". The label is largely there already: persistence will be hard to beat."
    return text + ". The less is shared, the more there is to predict."


def degrees_caption(statistics: GraphStatistics) -> str:
    """Return how heavy the tail of the in-degrees is, in words."""
    quantiles = statistics.in_degrees
    if not quantiles:
        return "There are no edges."
    text = f"Half of the in-degrees are at most {quantiles[0.5]:,}, the largest is {quantiles[1.0]:,}."
    if statistics.tail is None:
        return text + " There are too few large ones to fit a law."
    return (
        f"{text} The straighter the line, the closer to a power law; the smaller its exponent, the more a few nodes "
        "decide squared errors."
    )


def baselines_caption(statistics: GraphStatistics) -> str:
    """Return what a model has to beat, in words."""
    persistence, mean = statistics.persistence_mse, statistics.mean_mse
    text = f"Persistence scores {persistence:.3g}, the mean {mean:.3g}."
    if persistence < mean:
        share = percent(1 - persistence / mean) if mean else "0%"
        return f"{text} A model has learned something only below persistence, which explains {share} of the variance."
    return f"{text} Persistence is no better than the mean here: the past says little, or says the opposite."


def mean_of(values: Floats) -> float:
    """Return the mean of all values that are numbers; NaN where none is."""
    numbers = values[~np.isnan(values)]
    return float(numbers.mean()) if len(numbers) else float("nan")


GRAPH_CHARTS = ("size", "overlap", "degrees", "baselines")
SNAPSHOT = "snapshot (number)"
_MOST_EMPTY = 100  # stretches without edges that are marked one by one


class GraphCharts:
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
        """Return the charts by name."""
        statistics, spans = self.statistics, self.spans
        return {
            "size": _size(statistics, spans),
            "overlap": _overlap(statistics, spans),
            "degrees": _degrees(statistics),
            "baselines": _baselines(statistics, spans),
        }

    def captions(self) -> dict[str, str]:
        """Return what to look for in each chart."""
        statistics = self.statistics
        size = size_caption(statistics)
        return {
            "size": f"{size} No parts are shaded: {self.no_split}" if self.no_split else size,
            "overlap": overlap_caption(statistics),
            "degrees": degrees_caption(statistics),
            "baselines": baselines_caption(statistics),
        }


def _over_time(name: str, values: NDArray[Any], colour: str, *, start: int = 0, **style: Any) -> Attributes:
    """Return a line over snapshots with as many points as a picture can show; NaN is a gap."""
    numbers = values.astype(np.float64)
    indices = shown_indices(numbers)
    ys = [None if np.isnan(value) else value for value in numbers[indices].tolist()]
    snapshots = (indices + start).tolist()
    return line(name, snapshots, ys, colour, "snapshot %{x}: %{y:,.4~g}", width=1.6, mode="lines", **style)


def _over_snapshots(
    statistics: GraphStatistics, spans: list[Span], data: list[Attributes], title: str, unit: str, **changes: Any
) -> Figure:
    """Return a chart over all snapshots, with the parts of the split shaded."""
    x_axis = {"range": [-0.5, max(len(statistics.edges) - 0.5, 0.5)]}
    layout = {"xaxis": x_axis, "yaxis": FROM_ZERO, **span_marks(spans), **changes}
    return card(data, title, unit=unit, keys=trace_keys(data), x_title=SNAPSHOT, **layout)


def _size(statistics: GraphStatistics, spans: list[Span]) -> Figure:
    data = [
        _over_time("edges", statistics.edges, palette.EDGE_COLOUR),
        _over_time("nodes with an edge (right axis)", statistics.active, palette.VERTEX_COLOUR, yaxis="y2"),
    ]
    if statistics.empty:
        data.append(_empty_marks(statistics))
    right: Attributes = {"yaxis2": {**RIGHT_AXIS, **FROM_ZERO}, "margin": {"r": 48}}
    return _over_snapshots(statistics, spans, data, "Edges and nodes over time", "distinct edges", **right)


def _empty_marks(statistics: GraphStatistics) -> Attributes:
    """Return crosses at the foot of the chart for stretches of snapshots without edges."""
    stretches = runs_of(statistics.edges == 0)[:_MOST_EMPTY]
    texts = [f"snapshot {first}" if first == last else f"snapshots {first} to {last}" for first, last in stretches]
    x, y = [(first + last) / 2 for first, last in stretches], [0] * len(stretches)
    style: Attributes = {"size": 8, "marker": {"symbol": "x"}, "cliponaxis": False, "text": texts}
    return points("no edges", x, y, palette.WARNING_COLOUR, "%{text}: no edges<extra></extra>", **style)


def _overlap(statistics: GraphStatistics, spans: list[Span]) -> Figure:
    data = [
        _over_time(
            "share of the edges before that are still there", 100 * statistics.kept, palette.series_colour(1), start=1
        ),
        _over_time("Jaccard index", 100 * statistics.jaccard, palette.series_colour(2), start=1),
    ]
    y_axis = {"range": [-2, 102]}
    return _over_snapshots(statistics, spans, data, "Edges shared with the snapshot before", "share, %", yaxis=y_axis)


def _degrees(statistics: GraphStatistics) -> Figure:
    above = np.cumsum(statistics.degree_counts[::-1])[::-1]
    total = max(int(above[0]), 1) if len(above) else 1
    indices = _spread(statistics.degrees)
    hover = "%{y:.3~g} of the in-degrees are at least %{x:,}"
    x, y = statistics.degrees[indices].tolist(), (above[indices] / total).tolist()
    dots: Attributes = {"mode": "lines+markers", "marker": {"size": 4}, "width": 1}
    data = [line("nodes and snapshots", x, y, palette.EDGE_COLOUR, hover, **dots)]
    if statistics.tail is not None:
        tail = statistics.tail
        ends = np.array([tail.start, int(statistics.degrees[-1])], dtype=np.float64)
        fitted = tail.values / total * (ends / tail.start) ** (1 - tail.exponent)
        name, x, y = f"power law, exponent {tail.exponent:.2f}", ends.tolist(), fitted.tolist()
        data.append(line(name, x, y, palette.BASELINE_COLOUR, hover, width=1.5, dash="dash"))
    log: Attributes = {"type": "log", "dtick": 1}
    texts: Attributes = {
        "unit": "share of in-degrees above 0",
        "x_title": "in-degree (edges)",
        "keys": trace_keys(data),
    }
    y_axis = {**log, "exponentformat": "power"}
    return card(data, "In-degrees at least this large", xaxis=log, yaxis=y_axis, **texts)


def _spread(degrees: NDArray[np.int64], limit: int = 300) -> NDArray[np.int64]:
    """Return indices of about ``limit`` degrees, evenly spread over a logarithmic axis, with both ends."""
    if len(degrees) <= limit:
        return np.arange(len(degrees))
    indices = np.searchsorted(degrees, np.geomspace(degrees[0], degrees[-1], limit))
    return np.unique(indices)


def _baselines(statistics: GraphStatistics, spans: list[Span]) -> Figure:
    data = [
        _over_time("persistence: as before", statistics.persistence_errors, palette.series_colour(0)),
        _over_time("mean of all labels", statistics.mean_errors, palette.BASELINE_COLOUR, dash="dot"),
    ]
    return _over_snapshots(statistics, spans, data, "Baseline losses", "mean squared error of the label")


# Several cuts of one graph, or several graphs, side by side: what they share, and the losses of baselines.


# column -> what it means; the rows of a table of graphs
COLUMNS: Mapping[str, str] = {
    "snapshots": "labelled snapshots (T)",
    "edges": "mean of the distinct edges of a snapshot",
    "kept": "mean share of a snapshot's edges that the next one has too",
    "persistence": "mean squared error of 'tomorrow is like today'",
    "mean": "mean squared error of the mean of all labels",
    "explained": "share of the labels' variance that persistence explains: 1 - persistence / mean",
}


def graph_row(statistics: GraphStatistics) -> dict[str, float]:
    """Return one graph in the numbers of ``COLUMNS``."""
    persistence, mean = statistics.persistence_mse, statistics.mean_mse
    return {
        "snapshots": len(statistics.edges),
        "edges": float(statistics.edges.mean()),
        "kept": mean_of(statistics.kept),
        "persistence": persistence,
        "mean": mean,
        "explained": 1 - persistence / mean if mean else float("nan"),
    }


def compare_graphs_figure(rows: Mapping[str, Mapping[str, float]]) -> Figure:
    """Return bars of the losses of persistence and the mean, and a line of the share of edges kept."""
    names = list(rows)

    def values(column: str) -> list[float | None]:
        return [None if math.isnan(row[column]) else row[column] for row in rows.values()]

    kept_label, hover = "edges kept by the next snapshot (right axis)", "%{x}: %{y:.4~g}"
    over: Attributes = {"mode": "lines+markers", "marker": {}, "yaxis": "y2"}
    data = [
        bars("persistence", names, values("persistence"), palette.EDGE_COLOUR, hover),
        bars("mean of all labels", names, values("mean"), palette.BASELINE_COLOUR, hover),
        line(kept_label, names, values("kept"), palette.series_colour(1), "%{x}: %{y:.0%}", **over),
    ]
    right = {**RIGHT_AXIS, "range": [0, 1.02], "tickformat": ".0%"}
    axes: Attributes = {"xaxis": {"type": "category", "tickangle": None}, "yaxis": FROM_ZERO, "yaxis2": right}
    return card(
        data,
        "Baseline losses by graph",
        unit="mean squared error of the label",
        keys=trace_keys(data),
        x_title="graph",
        barmode="group",
        bargap=0.35,
        margin={"r": 56},
        **axes,
    )


WIDTH, HEIGHT = 262, 74  # pixels
_BOX = (
    f"background:{coloured('back')};border:1px solid {coloured('line')};border-radius:4px;box-sizing:border-box;"
    "max-width:100%;height:auto"
)

_TOP, _BOTTOM = 4, 70  # of the drawing
_AREA, _LINE = "#56B4E9", "#D55E00"
_STROKE = f'fill="none" stroke="{_LINE}"'


def thumbnail_svg(edges: NDArray[np.integer], kept_shares: Floats, spans: list[tuple[str, int, int]]) -> str:
    """Return a small picture of T snapshots.

    Args:
        edges: shape (T,): edges of each snapshot; empty ones are marked in red.
        kept_shares: shape (T - 1,): share of a snapshot's edges that the next one still has; NaN where there are none.
        spans: name, first and last snapshot of each part of a split, drawn as strips under the picture.
    """
    count, largest = len(edges), max(int(edges.max(initial=0)), 1)
    step = WIDTH / count

    def place(t: float, share: float) -> str:
        return f"{t * step:.1f},{_BOTTOM - share * (_BOTTOM - _TOP):.1f}"

    edge_indices = shown_indices(edges.astype(np.float64), 2 * WIDTH)
    heights = edges[edge_indices] / largest
    middles = [place(t + 0.5, height) for t, height in zip(edge_indices, heights, strict=True)]
    area = [place(0, 0), place(0, heights[0]), *middles, place(count, heights[-1]), place(count, 0)]
    share_indices = shown_indices(kept_shares, 2 * WIDTH)
    share_lines = [share_indices[first : last + 1] for first, last in runs_of(np.isfinite(kept_shares[share_indices]))]
    empty = np.flatnonzero(edges == 0)[: 2 * WIDTH]
    parts = [
        f'<polygon points="{" ".join(area)}" fill="{_AREA}" opacity="0.55"/>',
        *(
            f'<polyline points="{" ".join(place(t + 1, kept_shares[t]) for t in line)}" {_STROKE}/>'
            for line in share_lines
        ),
        *(_strip(t * step, max(step, 1), palette.WARNING_COLOUR) for t in empty),
        *(_strip(first * step, (last + 1 - first) * step, split_colour(name)) for name, first, last in spans),
    ]
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="Edges of {count:,} snapshots, {largest:,} at most, and what neighbours share" '
        f'style="{_BOX}">{"".join(parts)}</svg>'
    )


def thumbnail_html(svg: str, caption: str) -> str:
    """Return the picture with its legend and a caption under it."""
    style = f"font-size:11px;line-height:1.3;color:{coloured('text')}"
    legend = (
        f'<span aria-hidden="true" style="color:{_AREA}">■</span> edges by snapshot &nbsp;'
        f'<span aria-hidden="true" style="color:{_LINE}">━</span> share kept by the next'
    )
    return f'{svg}<div style="{style}">{legend}<br>{html.escape(caption, quote=False)}</div>'


def message_html(message: str) -> str:
    """Return a message in place of a picture."""
    style = f"font-size:11px;line-height:1.3;color:{coloured('soft')}"
    return f'<div style="{style}">{html.escape(message, quote=False)}</div>'


def thumbnail_caption(snapshots: int, nodes: int, edges: int, kept_share: float) -> str:
    """Return the caption of the picture."""
    shared = "" if np.isnan(kept_share) else f", {percent(kept_share)} shared by neighbours"
    return f"{snapshots:,} snapshots, {nodes:,} nodes, {edges:,} edges at most{shared}"


def _strip(x: float, width: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{_BOTTOM}" width="{width:.1f}" height="4" fill="{colour}"/>'
