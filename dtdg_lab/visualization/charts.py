"""Builders of charts: traces, reference lines, labels, axes, whole charts with a note where they are empty, pictures.

All are plotly dictionaries; plotly itself is not imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, floor, log2, log10
from typing import Any

from dtdg_lab.visualization.layout import WAITING, Figure, axis_words, frame, with_note
from dtdg_lab.visualization.palette import BASELINE_COLOUR, EDGE_COLOUR, TEXT_COLOUR, VERTEX_COLOUR

Panel = tuple[Figure, str]  # a chart and its caption
Drawn = dict[str, Any]  # a trace, a shape or an annotation
Values = Sequence[Any]  # of points along an axis

STEPS = "step (model updates)"
# axis of names, first on top
NAMES = {"autorange": "reversed", "type": "category", "showgrid": False, "ticksuffix": " "}
FROM_ZERO: Drawn = {"rangemode": "tozero"}
CATEGORIES: Drawn = {"type": "category", "showgrid": False}
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "triangle-down", "cross", "x", "star")


def chart(
    title: str, x_title: str, y_title: str, data: Sequence[Drawn], *, empty: str = WAITING, **changes: Any
) -> Figure:
    """A chart of traces; its axes and the note ``empty`` where there are none. For ``changes`` see :func:`frame`."""
    layout = frame(title, x_title, y_title, **changes)
    return {"data": list(data), "layout": layout if data else with_note(layout, empty)}


def line(
    name: str,
    x: Values,
    y: Values,
    colour: str = BASELINE_COLOUR,
    hover: str = "",
    *,
    width: float = 2,
    dash: str = "solid",
    **more: Any,
) -> Drawn:
    """A line through points, a marker where there is one point only; hovering shows its name where no text is given."""
    drawn = {"mode": "lines" if len(x) > 1 else "markers", "line": {"color": colour, "width": width, "dash": dash}}
    return _trace("scatter", name, x, y, hover, **{**drawn, "marker": {"color": colour}, **more})


def points(name: str, x: Values, y: Values, colour: str, hover: str = "", *, size: float = 7, **more: Any) -> Drawn:
    """Markers; ``marker`` among ``more`` adds to their looks."""
    marker = {"color": colour, "size": size, **more.pop("marker", {})}
    return _trace("scatter", name, x, y, hover, mode="markers", marker=marker, **more)


def bars(name: str, x: Values, y: Values, colour: Any, hover: str = "", **more: Any) -> Drawn:
    """Upright bars."""
    return _trace("bar", name, x, y, hover, **{"marker": {"color": colour}, **more})


def level_bars(name: str, y: Values, x: Values, colour: Any, hover: str = "", **more: Any) -> Drawn:
    """Bars to the right, each at its place on the y axis."""
    return bars(name, x, y, colour, hover, orientation="h", **more)


def heat(
    name: str, z: Sequence[Values], x: Values, y: Values, scale: Values, *, span: tuple[float, float], **more: Any
) -> Drawn:
    """A heat map whose cells say what is in ``customdata``; ``scale`` spreads over ``span``."""
    looks = {"z": z, "zmin": span[0], "zmax": span[1], "colorscale": [list(stop) for stop in scale]}
    return _trace("heatmap", name, x, y, more.pop("hover", "%{customdata}<extra></extra>"), **looks, **more)


def _trace(kind: str, name: str, x: Values, y: Values, hover: str, **more: Any) -> Drawn:
    said = hover if "<extra>" in hover else f"{hover}<extra>{name}</extra>"
    text = {"hovertemplate": said} if hover else {} if "hoverinfo" in more else {"hoverinfo": "name"}
    return {"type": kind, "name": name, "x": list(x), "y": list(y), **text, **more}


def colour_bar(unit: str, **changes: Any) -> Drawn:
    """The legend of a heat map's colours."""
    title = {"text": unit, "side": "top", "font": {"size": 10}}
    ticks = {"tickfont": {"size": 10}, "tickformat": "~s", "nticks": 5}
    return {"title": title, "thickness": 9, "outlinewidth": 0.5, **ticks, **changes}


def rule(
    *,
    x: float | None = None,
    y: float | None = None,
    colour: str = BASELINE_COLOUR,
    width: float = 1.2,
    dash: str = "dot",
) -> Drawn:
    """A line through the whole chart, upright at ``x`` or level at ``y``."""
    at, across = (x, "x") if y is None else (y, "y")
    other = "y" if across == "x" else "x"
    ends = {f"{across}0": at, f"{across}1": at, f"{other}0": 0, f"{other}1": 1}
    stroke = {"color": colour, "width": width, "dash": dash}
    return {"type": "line", f"{across}ref": across, f"{other}ref": "paper", **ends, "line": stroke}


def box(x: tuple[float, float], y: tuple[float, float], **looks: Any) -> Drawn:
    """A rectangle from corner to corner."""
    return {"type": "rect", "xref": "x", "yref": "y", "x0": x[0], "x1": x[1], "y0": y[0], "y1": y[1], **looks}


def label(text: str, x: float | str, y: float, colour: str = TEXT_COLOUR, size: int = 11, **more: Any) -> Drawn:
    """Words at a point of the chart."""
    placed = {"text": text, "x": x, "y": y, "xref": "x", "yref": "y", "showarrow": False}
    return {**placed, "font": {"size": size, "color": colour}, **more}


def counts_axis(counts: Sequence[int]) -> Drawn:
    """A logarithmic axis with a tick at each count, such as numbers of ranks."""
    ticks = sorted(set(counts))
    return {"type": "log", "tickvals": ticks, "ticktext": [str(count) for count in ticks]}


TICK_DIGITS = ((1, 2, 5), (1, 2, 3, 4, 5, 7), (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9))
FEWEST_TICKS, MOST_TICKS = 3, 6


def log_axis(low: float, high: float) -> Drawn:
    """A logarithmic axis with few ticks, whole powers of ten only where it spans many."""
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    ticks: list[float] = []
    for digits in TICK_DIGITS:
        if len(ticks) < FEWEST_TICKS:
            ticks = [digit * 10.0**power for power in powers for digit in digits if low <= digit * 10.0**power <= high]
    ticks = ticks if len(ticks) <= MOST_TICKS else [tick for tick in ticks if f"{tick:e}"[0] == "1"]
    shown = {"tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}
    return {"type": "log", "range": [log10(low), log10(high)], **shown}


def ticks_above_zero(end: float, most: int) -> list[float]:
    """Return at most so many round numbers up to the end of an axis, without 0."""
    power = 10.0 ** floor(log10(end / most))
    step = next(power * digit for digit in (1, 2, 5, 10, 20) if power * digit * most >= end)
    return [float(f"{step * number:.6g}") for number in range(1, floor(end / step + 1e-9) + 1)]


def named_axis(names: Iterable[Any], *, down: bool = False) -> Drawn:
    """An axis with a name at each whole number, the first on top where it goes ``down``."""
    shown = [str(name) for name in names]
    ends = [-0.5, len(shown) - 0.5]
    ticks = {"tickvals": list(range(len(shown))), "ticktext": shown, "showgrid": False}
    return {**ticks, "range": ends[::-1] if down else ends}


def whiskers(low: Sequence[float], middle: Sequence[float], high: Sequence[float], colour: str, **more: Any) -> Drawn:
    """Error bars of points at ``middle``, from ``low`` to ``high``."""
    array = [top - at for at, top in zip(middle, high, strict=True)]
    below = [at - least for least, at in zip(low, middle, strict=True)]
    looks = {"type": "data", "symmetric": False, "thickness": 1.2, "color": colour}
    return {**looks, "array": array, "arrayminus": below, **more}


def right_axis(layout: dict[str, Any], title: str, margin: int, **changes: Any) -> None:
    """Add a second y axis on the right, for traces with ``yaxis="y2"``."""
    bare = {"overlaying": "y", "side": "right", "showgrid": False, "zeroline": False, "automargin": True}
    layout["yaxis2"] = {**bare, **changes}
    layout["annotations"] = [*layout["annotations"], axis_words(title, is_right=True)]
    layout["margin"] = {**layout["margin"], "r": margin}


def byte_unit(top: float) -> tuple[str, float]:
    """The binary unit in which a number of bytes is written, and how many bytes it is."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    power = min(len(units) - 1, int(log2(max(top, 1.0)) // 10))
    return units[power], 1024.0**power


def time_unit(largest_s: float) -> tuple[str, float]:
    """The unit an axis of seconds is best read in, and how many of it a second has."""
    return ("ms", 1e3) if largest_s < 1 else ("s", 1.0)


# Pictures of paper cards that no other view draws, each with a sentence.


_OTHER_COLOUR = "#A9B4C0"


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
        "marker": {"color": [EDGE_COLOUR if name == own else _OTHER_COLOUR for name in order], "line": {"width": 0}},
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
    colours = (EDGE_COLOUR, _OTHER_COLOUR, VERTEX_COLOUR)
    count = len(next(iter(parts.values())))
    data = []
    for (name, heights), colour in zip(parts.items(), colours, strict=False):
        y, marker = [round(float(each), 3) for each in heights], {"color": colour, "line": {"width": 0}}
        data.append(bars(name, range(count), y, None, "%{x}: %{y:,.4~g}", marker=marker))
    ticks = {"dtick": max(1, count // 12), "showgrid": False, "range": [-0.6, count - 0.4]}
    return chart(title, *axes, data, xaxis=ticks, barmode="stack", bargap=0.12), words
