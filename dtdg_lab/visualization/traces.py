"""Traces, reference lines and labels of charts, as plotly dictionaries; plotly itself is not imported."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from dtdg_lab.visualization.palette import BASELINE_COLOUR, TEXT_COLOUR

Attributes = dict[str, Any]  # of plotly: a trace, a shape, an annotation, or entries of one
Values = Sequence[Any]  # of points along an axis

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "triangle-down", "cross", "x", "star")


def line(
    name: str,
    x: Values,
    y: Values,
    colour: str = BASELINE_COLOUR,
    hover: str = "",
    *,
    width: float = 2,
    dash: str = "solid",
    **extra: Any,
) -> Attributes:
    """Return a line through points, or a marker for one point; hover shows its name without a text."""
    style = {"mode": "lines" if len(x) > 1 else "markers", "line": {"color": colour, "width": width, "dash": dash}}
    return _trace("scatter", name, x, y, hover, **{**style, "marker": {"color": colour}, **extra})


def points(
    name: str, x: Values, y: Values, colour: str, hover: str = "", *, size: float = 7, **extra: Any
) -> Attributes:
    """Return markers; ``marker`` in ``extra`` adds to their style."""
    marker = {"color": colour, "size": size, **extra.pop("marker", {})}
    return _trace("scatter", name, x, y, hover, mode="markers", marker=marker, **extra)


def bars(name: str, x: Values, y: Values, colour: Any, hover: str = "", **extra: Any) -> Attributes:
    """Return upright bars."""
    return _trace("bar", name, x, y, hover, **{"marker": {"color": colour}, **extra})


def level_bars(name: str, y: Values, x: Values, colour: Any, hover: str = "", **extra: Any) -> Attributes:
    """Return horizontal bars, each at its position on the y axis."""
    return bars(name, x, y, colour, hover, orientation="h", **extra)


def heat(
    name: str, z: Sequence[Values], x: Values, y: Values, scale: Values, *, span: tuple[float, float], **extra: Any
) -> Attributes:
    """Return a heat map, whose hover shows ``customdata`` and whose ``scale`` spreads over ``span``."""
    style = {"z": z, "zmin": span[0], "zmax": span[1], "colorscale": [list(stop) for stop in scale]}
    return _trace("heatmap", name, x, y, extra.pop("hover", "%{customdata}<extra></extra>"), **style, **extra)


def escaped(text: str) -> str:
    """Escape a name, so that plotly shows it letter for letter and takes no part of it for a tag."""
    return html.escape(text, quote=False)


def _trace(kind: str, name: str, x: Values, y: Values, hover: str, **extra: Any) -> Attributes:
    template = hover if "<extra>" in hover else f"{hover}<extra>{name}</extra>"
    text = {"hovertemplate": template} if hover else {} if "hoverinfo" in extra else {"hoverinfo": "name"}
    return {"type": kind, "name": name, "x": list(x), "y": list(y), **text, **extra}


def colour_bar(unit: str, **changes: Any) -> Attributes:
    """Return the legend of a heat map's colours."""
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
) -> Attributes:
    """Return a line through the whole chart, upright at ``x`` or level at ``y``."""
    position, across = (x, "x") if y is None else (y, "y")
    along = "y" if across == "x" else "x"
    ends = {f"{across}0": position, f"{across}1": position, f"{along}0": 0, f"{along}1": 1}
    stroke = {"color": colour, "width": width, "dash": dash}
    return {"type": "line", f"{across}ref": across, f"{along}ref": "paper", **ends, "line": stroke}


def box(x: tuple[float, float], y: tuple[float, float], **style: Any) -> Attributes:
    """Return a rectangle from corner to corner."""
    return {"type": "rect", "xref": "x", "yref": "y", "x0": x[0], "x1": x[1], "y0": y[0], "y1": y[1], **style}


def label(text: str, x: float | str, y: float, colour: str = TEXT_COLOUR, size: float = 11, **extra: Any) -> Attributes:
    """Return a text at a point of the chart."""
    placed = {"text": text, "x": x, "y": y, "xref": "x", "yref": "y", "showarrow": False}
    return {**placed, "font": {"size": size, "color": colour}, **extra}


def paper_label(
    text: str, x: float, y: float, colour: str = TEXT_COLOUR, size: float = 11.5, **extra: Any
) -> Attributes:
    """Return a text whose position is in shares of the plot."""
    return label(text, x, y, colour, size, **{"xref": "paper", "yref": "paper", **extra})


def whiskers(
    low: Sequence[float], middle: Sequence[float], high: Sequence[float], colour: str, **extra: Any
) -> Attributes:
    """Return error bars of points at ``middle``, from ``low`` to ``high``."""
    array = [top - centre for centre, top in zip(middle, high, strict=True)]
    below = [centre - bottom for bottom, centre in zip(low, middle, strict=True)]
    style = {"type": "data", "symmetric": False, "thickness": 1.2, "color": colour}
    return {**style, "array": array, "arrayminus": below, **extra}
