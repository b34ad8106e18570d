"""Sizes of batches planned by hand against adjusters and fixed sizes: who is first at the target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from dtdg_lab.views.layout import Figure, frame
from dtdg_lab.views.palette import BASELINE_COLOUR, series_colour

BY_HAND = "by hand"
_ROW_PX, _AROUND_PX = 24, 96


def sizes_by_hand_figure(hand_s: float, adjusters: Mapping[str, Sequence[float]], fixed: Mapping[str, float]) -> Figure:
    """Seconds to the target as bars, the fastest on top.

    Args:
        hand_s: seconds of the plan.
        adjusters: of each policy, seconds by seed; the bar is their median, the whisker reaches from least to most.
        fixed: seconds of each fixed size. The dotted line is the least.

    Those that never arrive, in infinitely many seconds, are left out.
    """
    medians = {policy: median(seconds) for policy, seconds in adjusters.items()}
    rows = [(hand_s, BY_HAND, 1)] + [(seconds, policy, 0) for policy, seconds in medians.items()]
    rows += [(seconds, size, 7) for size, seconds in fixed.items()]
    rows = sorted(row for row in rows if math.isfinite(row[0]))
    least = min(fixed.values(), default=0.0)
    bars: dict[str, Any] = {
        "type": "bar", "orientation": "h", "y": [name for _, name, _ in rows],
        "x": [round(seconds, 6) for seconds, _, _ in rows],
        "marker": {"color": [series_colour(colour) for _, _, colour in rows]},
        "text": [f"{seconds:.3g} s" for seconds, _, _ in rows], "textposition": "inside", "insidetextanchor": "start",
        "showlegend": False,
        "hovertemplate": "%{y}: %{x:.3f} s<extra></extra>",
        "error_x": {
            "type": "data", "symmetric": False, "thickness": 1.2, "color": BASELINE_COLOUR,
            "array": [_spread(adjusters.get(name, ()), seconds)[1] for seconds, name, _ in rows],
            "arrayminus": [_spread(adjusters.get(name, ()), seconds)[0] for seconds, name, _ in rows],
        },
    }  # fmt: skip
    layout = frame(
        "Seconds to the target", "seconds", "", xaxis={"rangemode": "tozero"}, showlegend=False,
        yaxis={"autorange": "reversed", "showgrid": False}, height=_AROUND_PX + _ROW_PX * len(rows),
        margin={"l": 96, "r": 14, "t": 34, "b": 40},
    )  # fmt: skip
    layout["shapes"] += [
        {
            "type": "line", "xref": "x", "yref": "paper", "x0": least, "x1": least, "y0": 0, "y1": 1,
            "line": {"color": BASELINE_COLOUR, "width": 1.2, "dash": "dot"},
        }
    ]  # fmt: skip
    return {"data": [bars], "layout": layout}


def _spread(seconds: Sequence[float], middle: float) -> tuple[float, float]:
    """How far the least and the most are from the middle; where one never arrives, up to the most that does."""
    arrived = [each for each in seconds if math.isfinite(each)]
    return (middle - min(arrived), max(arrived) - middle) if arrived else (0.0, 0.0)
