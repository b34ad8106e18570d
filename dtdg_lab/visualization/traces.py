"""Traces, reference lines and labels of charts, as plotly dictionaries; plotly itself is not imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dtdg_lab.visualization.palette import BASELINE_COLOUR, TEXT_COLOUR

Drawn = dict[str, Any]  # a trace, a shape or an annotation
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


def whiskers(low: Sequence[float], middle: Sequence[float], high: Sequence[float], colour: str, **more: Any) -> Drawn:
    """Error bars of points at ``middle``, from ``low`` to ``high``."""
    array = [top - at for at, top in zip(middle, high, strict=True)]
    below = [at - least for least, at in zip(low, middle, strict=True)]
    looks = {"type": "data", "symmetric": False, "thickness": 1.2, "color": colour}
    return {**looks, "array": array, "arrayminus": below, **more}
