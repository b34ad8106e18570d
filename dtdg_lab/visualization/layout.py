"""The frame of a chart: title, axes with units, legend, margins, and a note where it is empty."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from math import ceil, floor, log2, log10
from typing import Any

from dtdg_lab.visualization.chart import Figure
from dtdg_lab.visualization.palette import GRID_COLOUR, TEXT_COLOUR
from dtdg_lab.visualization.traces import Drawn

WAITING = "waiting for the first step"
LEGEND = {"font": {"size": 10}, "bgcolor": "rgba(0,0,0,0)"}
SHEET = {"paper_bgcolor": "white", "plot_bgcolor": "white", "hovermode": "closest"}


def frame(title: str, x_title: str, y_title: str, **changes: Any) -> dict[str, Any]:
    """Return a layout for 420x300 px and more; ``changes`` replace its entries, or extend those of axes."""
    axis = {"gridcolor": GRID_COLOUR, "zeroline": False, "automargin": True, "linecolor": "#B8BEC6", "showline": True}
    small = {"size": 11, "color": TEXT_COLOUR}
    bottom = {"x": 0, "xanchor": "left", "xref": "container", "y": 0, "yanchor": "bottom", "yref": "container"}
    x_axis = {**axis, "title": {"text": x_title, "standoff": 6, "font": small}, **changes.pop("xaxis", {})}
    y_axis = {**axis, **changes.pop("yaxis", {})}
    y_titles = [axis_words(y_title)] if y_title else []
    return {
        "title": {"text": title, "x": 0.01, "xanchor": "left", "y": 0.98, "yanchor": "top", "font": {"size": 14}},
        "font": {"family": "Helvetica, Arial, sans-serif", "size": 11, "color": TEXT_COLOUR},
        "xaxis": x_axis,
        "yaxis": y_axis,
        "legend": {**LEGEND, "orientation": "h", "traceorder": "normal", **bottom},
        "margin": {"l": 56, "r": 14, "t": 34, "b": 78},  # two rows of legend under the axis title
        **SHEET,
        "uirevision": "dtdg-lab",  # constant: zoom and hidden traces survive updates
        "shapes": [],
        **changes,
        "annotations": [*changes.get("annotations", []), *y_titles],
    }


def axis_words(text: str, y: float = 1.0, *, is_right: bool = False) -> dict[str, Any]:
    """Return the title of a y axis as level words over it, at a height of the paper."""
    side, shift = ("right", 12) if is_right else ("left", -34)
    position = {"x": float(is_right), "xanchor": side, "xshift": shift, "y": y, "yanchor": "bottom", "yshift": 1}
    return text_at({"text": text, **position, "name": "axis"}, 11)


def with_note(
    layout: dict[str, Any], note: str = WAITING, *, size: float = 13, colour: str = "#6B7280", **axis: Any
) -> dict[str, Any]:
    """Return the layout of an empty chart: its axes, changed by ``axis``, and a note in the middle."""
    centre = {"xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5, "showarrow": False}
    text = {"text": note, **centre, "font": {"size": size, "color": colour}}
    bare = {"range": [0, 1], "showticklabels": False, **axis}  # numbers on an empty axis would mean nothing
    axes = {name: {**layout[name], **bare} for name in ("xaxis", "yaxis")}
    # another revision: else the next run's axes would keep what was zoomed to, or fixed here, in the last one
    return {**layout, **axes, "annotations": [*layout["annotations"], text], "uirevision": "waiting"}


def as_drawn(text: str) -> str:
    """Escape a name, so that plotly shows it letter for letter and takes no part of it for a tag."""
    return html.escape(text, quote=False)


def text_at(placed: dict[str, Any], size: int) -> dict[str, Any]:
    """Return words at a place of the paper."""
    alignment = {"xref": "paper", "yref": "paper", "xanchor": "left", "align": "left", "showarrow": False}
    return {**alignment, "font": {"size": size, "color": TEXT_COLOUR}, **placed}


def chart(
    title: str, x_title: str, y_title: str, data: Sequence[Drawn], *, empty: str = WAITING, **changes: Any
) -> Figure:
    """Return a chart of traces; without any, axes and the note ``empty``. ``changes`` are as in :func:`frame`."""
    layout = frame(title, x_title, y_title, **changes)
    return {"data": list(data), "layout": layout if data else with_note(layout, empty)}


def right_axis(layout: dict[str, Any], title: str, margin: int, **changes: Any) -> None:
    """Add a second y axis on the right, for traces with ``yaxis="y2"``."""
    bare = {"overlaying": "y", "side": "right", "showgrid": False, "zeroline": False, "automargin": True}
    layout["yaxis2"] = {**bare, **changes}
    layout["annotations"] = [*layout["annotations"], axis_words(title, is_right=True)]
    layout["margin"] = {**layout["margin"], "r": margin}


# axis of names, first on top
NAMES = {"autorange": "reversed", "type": "category", "showgrid": False, "ticksuffix": " "}
FROM_ZERO: Drawn = {"rangemode": "tozero"}
CATEGORIES: Drawn = {"type": "category", "showgrid": False}


def counts_axis(counts: Sequence[int]) -> Drawn:
    """Return a logarithmic axis with a tick at each count, such as numbers of ranks."""
    ticks = sorted(set(counts))
    return {"type": "log", "tickvals": ticks, "ticktext": [str(count) for count in ticks]}


TICK_DIGITS = ((1, 2, 5), (1, 2, 3, 4, 5, 7), (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9))
FEWEST_TICKS, MOST_TICKS = 3, 6


def log_axis(low: float, high: float) -> Drawn:
    """Return a logarithmic axis with few ticks, at powers of ten where it spans many."""
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    ticks: list[float] = []
    for digits in TICK_DIGITS:
        if len(ticks) < FEWEST_TICKS:
            ticks = [digit * 10.0**power for power in powers for digit in digits if low <= digit * 10.0**power <= high]
    ticks = ticks if len(ticks) <= MOST_TICKS else [tick for tick in ticks if f"{tick:e}"[0] == "1"]
    tick_labels = {"tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}
    return {"type": "log", "range": [log10(low), log10(high)], **tick_labels}


def ticks_above_zero(end: float, limit: int) -> list[float]:
    """Return at most so many round numbers up to the end of an axis, without 0."""
    power = 10.0 ** floor(log10(end / limit))
    step = next(power * digit for digit in (1, 2, 5, 10, 20) if power * digit * limit >= end)
    return [float(f"{step * number:.6g}") for number in range(1, floor(end / step + 1e-9) + 1)]


def named_axis(names: Iterable[Any], *, down: bool = False) -> Drawn:
    """Return an axis with a name at each whole number, the first on top where it goes ``down``."""
    labels = [str(name) for name in names]
    ends = [-0.5, len(labels) - 0.5]
    ticks = {"tickvals": list(range(len(labels))), "ticktext": labels, "showgrid": False}
    return {**ticks, "range": ends[::-1] if down else ends}


def byte_unit(top: float) -> tuple[str, float]:
    """Return the binary unit of a number of bytes, and its bytes."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    power = min(len(units) - 1, int(log2(max(top, 1.0)) // 10))
    return units[power], 1024.0**power


def time_unit(largest_s: float) -> tuple[str, float]:
    """Return the unit of an axis of seconds, and how many of it a second has."""
    return ("ms", 1e3) if largest_s < 1 else ("s", 1.0)
