"""The common frame of all charts: title, axes with units, legend, margins that fit 420x300 px and more."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from dtdg_lab.visualization.palette import GRID_COLOUR, TEXT_COLOUR

Figure = dict[str, Any]

WAITING = "waiting for the first step"


def frame(title: str, x_title: str, y_title: str, **changes: Any) -> dict[str, Any]:
    """A plotly layout; ``changes`` replace top-level entries, or extend ``xaxis`` and ``yaxis``."""
    axis = {"gridcolor": GRID_COLOUR, "zeroline": False, "automargin": True, "linecolor": "#B8BEC6", "showline": True}
    small = {"size": 11, "color": TEXT_COLOUR}
    x_axis = {**axis, "title": {"text": x_title, "standoff": 6, "font": small}, **changes.pop("xaxis", {})}
    y_axis = {**axis, "title": {"text": y_title, "standoff": 6, "font": small}, **changes.pop("yaxis", {})}
    return {
        "title": {"text": title, "x": 0.01, "xanchor": "left", "y": 0.98, "yanchor": "top", "font": {"size": 14}},
        "font": {"family": "Helvetica, Arial, sans-serif", "size": 11, "color": TEXT_COLOUR},
        "xaxis": x_axis,
        "yaxis": y_axis,
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "xref": "container",
            "y": 0,
            "yanchor": "bottom",
            "yref": "container",
            "font": {"size": 10},
            "traceorder": "normal",
            "bgcolor": "rgba(0,0,0,0)",
        },
        "margin": {"l": 56, "r": 14, "t": 34, "b": 78},  # two rows of legend under the axis title
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "hovermode": "closest",
        "uirevision": "dtdg-lab",  # constant: zoom and hidden traces survive updates
        "shapes": [],
        "annotations": [],
        **changes,
    }


def with_note(layout: dict[str, Any], note: str = WAITING) -> dict[str, Any]:
    """The layout of an empty chart: its axes, and a note in the middle."""
    text = {
        "text": note,
        "xref": "paper",
        "yref": "paper",
        "x": 0.5,
        "y": 0.5,
        "showarrow": False,
        "font": {"size": 13, "color": "#6B7280"},
    }
    bare = {"range": [0, 1], "showticklabels": False}  # numbers on an empty axis would mean nothing
    axes = {axis: {**layout[axis], **bare} for axis in ("xaxis", "yaxis")}
    # another revision: else the next run's axes would keep what was zoomed to, or fixed here, in the last one
    return {**layout, **axes, "annotations": [*layout["annotations"], text], "uirevision": "waiting"}


def as_drawn(text: str) -> str:
    """A name as plotly shows it letter for letter: what looks like one of its tags would be taken for one."""
    return html.escape(text, quote=False)


def join_words(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    if len(words) < 2:
        return "".join(words)
    return ", ".join(words[:-1]) + " and " + words[-1]


def percent(share: float) -> str:
    """A share as people read it, such as ``31 %``."""
    return f"{100 * share:.0f} %"


def share(value: float) -> str:
    """A share in percent, with a decimal where it is small."""
    return f"{100 * value:.1f} %" if 0 < value < 0.1 else percent(value)
