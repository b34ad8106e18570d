"""Pictures of paper cards that no other view draws: plain plotly figure dicts, each with a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dtdg_lab.visualization.charts import Drawn, Panel, bars, chart, level_bars
from dtdg_lab.visualization.palette import EDGE_COLOUR, VERTEX_COLOUR

OWN, OTHER = EDGE_COLOUR, "#A9B4C0"


def compared_panel(title: str, unit: str, values: Mapping[str, float], *, own: str, words: str) -> Panel:
    """One bar for each of several methods, the card's own in blue, the least on top.

    Args:
        title: of the chart.
        unit: of the values.
        values: by name.
        own: the name that is coloured.
        words: the sentence under it.
    """
    order = sorted(values, key=lambda name: -values[name])
    numbers = [round(values[name], 4) for name in order]
    looks: Drawn = {
        "showlegend": False,
        "width": 0.7,
        "marker": {"color": [OWN if name == own else OTHER for name in order], "line": {"width": 0}},
        "text": [f"{number:,.0f}" if number >= 1000 else f"{number:.4g}" for number in numbers],
        "insidetextfont": {"size": 10, "color": ["white" if name == own else "#24292F" for name in order]},
    }
    data = [level_bars(own, order, numbers, None, "%{y}: %{x:,.4~g} " + unit + "<extra></extra>", **looks)]
    margin = {"l": 120, "r": 14, "t": 34, "b": 58}
    return chart(title, unit, "", data, yaxis={"showgrid": False}, margin=margin), words


def stacked_panel(title: str, axes: tuple[str, str], parts: Mapping[str, Sequence[float]], *, words: str) -> Panel:
    """Bars at 0, 1, ... of up to three layers, the first at the bottom.

    Args:
        title: of the chart.
        axes: titles of both.
        parts: heights by layer.
        words: the sentence under it.
    """
    colours = (EDGE_COLOUR, OTHER, VERTEX_COLOUR)
    count = len(next(iter(parts.values())))
    data = [
        bars(
            name,
            range(count),
            [round(float(each), 3) for each in heights],
            None,
            "%{x}: %{y:,.4~g}",
            marker={"color": colour, "line": {"width": 0}},
        )
        for (name, heights), colour in zip(parts.items(), colours, strict=False)
    ]
    ticks = {"dtick": max(1, count // 12), "showgrid": False, "range": [-0.6, count - 0.4]}
    return chart(title, *axes, data, xaxis=ticks, barmode="stack", bargap=0.12), words
