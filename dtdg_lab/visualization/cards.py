"""Pictures of paper cards that no other view draws: plain plotly figure dicts, each with a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from dtdg_lab.core.feature_store import WINDOWS
from dtdg_lab.core.units import format_seconds
from dtdg_lab.visualization.charts import STEPS, Drawn, Panel, bars, box, chart, counts_axis, level_bars, line
from dtdg_lab.visualization.palette import BASELINE_COLOUR, EDGE_COLOUR, VERTEX_COLOUR, WARNING_COLOUR

Span = tuple[float, float]
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


def windows_chosen_panel(
    windows: Mapping[str, Sequence[tuple[int, int]]], steps: int, slow: Sequence[Span], *, words: str
) -> Panel:
    """How long each cache serves, over the steps of a run, with the steps shaded in which a link is slow.

    Args:
        windows: (first step, W) of every cache by policy; the first policy is the card's own.
        steps: S of the run.
        slow: from and to, in steps.
        words: the sentence under it.

    References: GreenDyGNN figure 7, upper half.
    """
    looks = ((OWN, 3, "solid"), (BASELINE_COLOUR, 1.5, "dash"), (VERTEX_COLOUR, 1.5, "dot"))
    data = []
    for (name, chosen), (colour, width, dash) in zip(windows.items(), looks, strict=False):
        x, y = [*(first for first, _ in chosen), steps], [*(window for _, window in chosen), chosen[-1][1]]
        stroke = {"color": colour, "width": width, "dash": dash, "shape": "hv"}
        data.append(line(name, x, y, colour, "from step %{x}: W = %{y}", line=stroke))
    shaded: Drawn = {"layer": "below", "fillcolor": WARNING_COLOUR, "opacity": 0.14, "line": {"width": 0}}
    figure = chart(
        "How long each cache serves",
        STEPS,
        "W (steps)",
        data,
        xaxis={"range": [0, steps]},
        yaxis={**counts_axis(WINDOWS), "range": [-0.1, 2.25]},
        shapes=[box(span, (0, 1), yref="paper", **shaded) for span in slow],
    )
    return figure, words


def lanes_panel(fetch_s: ArrayLike, compute_s: float, *, own: str) -> Panel:
    """Fetching and computing of the same steps, by turns and with each fetch beside the step before.

    Args:
        fetch_s: (S,) seconds that the features of each step take.
        compute_s: seconds of computing in each.
        own: ``by turns`` or ``ahead``: what the card is of.

    References: GreenDyGNN section V-A (pipeline), baselines of section VI-A.
    """
    fetches = np.asarray(fetch_s, np.float64).tolist()
    by_turns, ahead = (_spans(fetches, compute_s, ahead=beside) for beside in (False, True))
    lanes = {
        "ahead: compute": ahead[1],
        "ahead: fetch": ahead[0],
        "by turns: compute": by_turns[1],
        "by turns: fetch": by_turns[0],
    }
    data = []
    for kind, colour in (("fetch", VERTEX_COLOUR), ("compute", EDGE_COLOUR)):
        drawn = [(place, *span) for place, name in enumerate(lanes) if name.endswith(kind) for span in lanes[name]]
        starts = [round(1e3 * start, 3) for _, start, _ in drawn]
        looks: Drawn = {
            "base": starts,
            "width": 0.7,
            "marker": {"color": colour, "line": {"width": 1, "color": "white"}},
        }
        lasted = [round(1e3 * (end - start), 3) for _, start, end in drawn]
        data.append(level_bars(kind, [place for place, *_ in drawn], lasted, None, "%{x:.4g} ms", **looks))
    figure = chart(
        "The same steps, by turns and ahead",
        "time (ms)",
        "",
        data,
        barmode="overlay",
        yaxis={"tickvals": list(range(len(lanes))), "ticktext": list(lanes), "showgrid": False, "range": [-0.6, 3.6]},
        margin={"l": 130, "r": 14, "t": 34, "b": 58},
    )
    turns_s, ahead_s = by_turns[1][-1][1], ahead[1][-1][1]
    this, other = (turns_s, ahead_s) if own == "by turns" else (ahead_s, turns_s)
    return figure, (
        f"{len(fetches)} steps, a slow owner from the middle on: {own} {format_seconds(this)}, the other way "
        f"{format_seconds(other)}. Ahead, a step lasts as long as the longer of both; look where orange outgrows blue: "
        "there nothing is left to hide behind."
    )


def _spans(fetches: Sequence[float], compute_s: float, *, ahead: bool) -> tuple[list[Span], list[Span]]:
    """When each step fetches and computes.

    Ahead, fetches follow each other; by turns, each waits for the step before. A step computes when its features are
    there and the step before is over.
    """
    fetched, computed = [(0.0, 0.0)], [(0.0, 0.0)]
    for took in fetches:
        begin = (fetched if ahead else computed)[-1][1]
        fetched.append((begin, begin + took))
        begin = max(begin + took, computed[-1][1])
        computed.append((begin, begin + compute_s))
    return fetched[1:], computed[1:]
