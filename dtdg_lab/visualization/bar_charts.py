"""Bars that compare a few numbers: of several methods, or of layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dtdg_lab.visualization.axes import FROM_ZERO
from dtdg_lab.visualization.chart import CaptionedFigure, card, trace_keys
from dtdg_lab.visualization.palette import EDGE_COLOUR, INK_COLOUR, VERTEX_COLOUR
from dtdg_lab.visualization.traces import Attributes, bars, level_bars

OTHER_COLOUR = "#A9B4C0"


def compared_bars(
    title: str, unit: str, values: Mapping[str, float], *, highlighted: str, caption: str
) -> CaptionedFigure:
    """Return a bar for each of several methods, the highlighted one in blue, the lowest on top.

    Args:
        title: of the chart.
        unit: of the values.
        values: by name.
        highlighted: the name that is coloured.
        caption: the sentence under it.
    """
    order = sorted(values, key=lambda name: -values[name])
    numbers = [round(values[name], 4) for name in order]
    colours = [EDGE_COLOUR if name == highlighted else OTHER_COLOUR for name in order]
    style: Attributes = {
        "width": 0.7,
        "text": [f"{number:,.0f}" if number >= 1000 else f"{number:.4g}" for number in numbers],
        "insidetextfont": {"size": 10, "color": ["white" if name == highlighted else INK_COLOUR for name in order]},
    }
    data = [level_bars(highlighted, order, numbers, colours, "%{y}: %{x:,.4~g} " + unit + "<extra></extra>", **style)]
    return card(data, title, x_title=unit, yaxis={"type": "category", "showgrid": False}), caption


def stacked_bars(
    title: str, axes: tuple[str, str], layers: Mapping[str, Sequence[float]], *, caption: str
) -> CaptionedFigure:
    """Return bars at 0, 1, ... of up to three layers, the first at the bottom.

    Args:
        title: of the chart.
        axes: title of the x axis, and unit of the bars.
        layers: heights by name.
        caption: the sentence under it.
    """
    colours = (EDGE_COLOUR, OTHER_COLOUR, VERTEX_COLOUR)
    count = len(next(iter(layers.values())))
    data = []
    for (name, heights), colour in zip(layers.items(), colours, strict=False):
        y = [round(float(height), 3) for height in heights]
        data.append(bars(name, range(count), y, colour, "%{x}: %{y:,.4~g}"))
    x_title, unit = axes
    keys = trace_keys(data) if len(layers) > 1 else ()
    x_axis = {"dtick": max(1, count // 12), "showgrid": False, "range": [-0.6, count - 0.4]}
    shape: Attributes = {"xaxis": x_axis, "yaxis": FROM_ZERO, "barmode": "stack", "bargap": 0.12}
    return card(data, title, unit=unit, keys=keys, x_title=x_title, **shape), caption
