"""Charts of schedules that are simulated on many ranks: throughput, imbalance, waiting and time to solve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil, floor, log10
from typing import Any

from dtdg_lab.core.units import format_percent, format_seconds
from dtdg_lab.systems.snapshot_groups.schedulers.simulation import PAPER_THROUGHPUT
from dtdg_lab.visualization import palette
from dtdg_lab.visualization.axes import counts_axis
from dtdg_lab.visualization.chart import CaptionedFigure, Figure, card, trace_keys
from dtdg_lab.visualization.sheet import STUDY_HEIGHT, sheet
from dtdg_lab.visualization.traces import SYMBOLS, Attributes, line, points

Row = Mapping[str, Any]
_PAPER_LEAST = 0.85  # throughput the paper reaches at its largest cluster
_UNEVEN = 10.0  # largest ratio up to which the axis is plain


def simulation_figure(rows: Sequence[Row], *, paper: Mapping[int, float] | None = None) -> Figure:
    """Draw throughput, imbalance, distance to the bound and solve time over ranks, a line for each scheduler.

    Args:
        rows: one for each number of ranks and scheduler, as ``ScheduleOutcome.row`` gives them; rows
            with different ``curve`` get panels of their own.
        paper: ranks -> throughput of DyGNeX-G, drawn beside; what the paper says (section 5.4) when not given.
    """
    reached = PAPER_THROUGHPUT if paper is None else paper
    curves = list(dict.fromkeys(str(row.get("curve") or "") for row in rows))
    names = list(dict.fromkeys(str(row["scheduler"]) for row in rows))
    cards: list[CaptionedFigure] = []
    for draw in (_throughput, _imbalance, _idle, _solving):
        for curve in curves:
            curve_rows = [row for row in rows if str(row.get("curve") or "") == curve]
            cards.append(draw(curve_rows, names, f" · {curve}" if curve else "", reached))
    if not cards:
        cards = [(card([], "Throughput", unit="share of one rank's", empty="nothing simulated"), "")]
    return sheet(cards, title="Simulation of schedules on many ranks", plot_height=STUDY_HEIGHT)


def _throughput(rows: list[Row], names: list[str], curve: str, paper: Mapping[int, float]) -> CaptionedFigure:
    data = _lines(rows, names, "throughput")
    bound = {int(row["ranks"]): row["bound_throughput"] for row in rows if row.get("bound_throughput") is not None}
    if bound:
        counts, name = sorted(bound), "bound: none can be better"
        hover = "%{x} ranks: %{y:.4f}"
        data.append(line(name, counts, [bound[count] for count in counts], hover=hover, width=1.5, dash="dash"))
    if paper:
        star: Attributes = {"size": 12, "marker": {"symbol": "star-open"}}
        name, hover = "the paper's DyGNeX-G", "%{x} ranks: %{y:.3f}"
        data.append(points(name, list(paper), list(paper.values()), palette.TEXT_COLOUR, hover, **star))
    lowest = min((value for trace in data for value in trace["y"] if value is not None), default=0.0)
    axis = {"range": [min(0.9 * lowest, 0.8), 1.02]}
    figure = _over_ranks(rows, f"Throughput per rank{curve}", "share of one rank's", data, axis)
    largest = max(int(row["ranks"]) for row in rows)
    last = {str(row["scheduler"]): row["throughput"] for row in rows if row["ranks"] == largest}
    best = max(last, key=lambda name: last[name])
    caption = f"On {largest:,} ranks {best} keeps {format_percent(last[best])} of one rank's throughput"
    caption += f"; the bound is {format_percent(bound[largest])}" if largest in bound else ""
    if "psg" in last and best != "psg":
        caption += f" and psg keeps {format_percent(last['psg'])}"
    return figure, f"{caption}.{_drop(rows, best)}"


def _drop(rows: list[Row], name: str) -> str:
    """Return where a scheduler falls below the paper's throughput on its largest cluster, in a sentence."""
    points_of_scheduler = sorted(
        (int(row["ranks"]), float(row["throughput"])) for row in rows if row["scheduler"] == name
    )
    for (fewer, high), (more, low) in pairwise(points_of_scheduler):
        if high >= _PAPER_LEAST > low:
            return f" It falls below {format_percent(_PAPER_LEAST)} between {fewer:,} and {more:,} ranks."
    return ""


def _imbalance(rows: list[Row], names: list[str], curve: str, _: Mapping[int, float]) -> CaptionedFigure:
    data = _lines(rows, names, "imbalance")
    top = max((value for trace in data for value in trace["y"] if value is not None), default=1.1)
    kind = {"type": "log"} if top > _UNEVEN else {"range": [1 - 0.05 * (top - 1 or 0.1), 1 + 1.08 * (top - 1 or 0.1)]}
    figure = _over_ranks(rows, f"Imbalance of an epoch{curve}", "most over least loaded rank (1)", data, kind)
    idle = any(row["imbalance"] is None for row in rows)
    return figure, "As the paper counts it, over whole epochs; 1 is even." + (
        " Gaps: a rank has nothing to do at all, so the ratio is infinite." if idle else ""
    )


def _idle(rows: list[Row], names: list[str], curve: str, _: Mapping[int, float]) -> CaptionedFigure:
    data = _lines(rows, names, "idle_share", 100.0)
    caption = (
        "Time a rank waits in an iteration for the slowest one: this is what the throughput loses. With few groups a "
        "rank there is nothing left to balance."
    )
    axis = {"rangemode": "tozero"}
    return _over_ranks(rows, f"Waiting{curve}", "share of the ranks' time (%)", data, axis), caption


def _solving(rows: list[Row], names: list[str], curve: str, _: Mapping[int, float]) -> CaptionedFigure:
    data = _lines(rows, names, "solve_s")
    axis = _decades([row["solve_s"] for row in rows])
    longest = max(rows, key=lambda row: float(row["solve_s"]))
    caption = (
        f"Paid once. Longest: {longest['scheduler']} on {longest['ranks']:,} ranks, "
        f"{format_seconds(longest['solve_s'])} for {longest['groups']:,} groups."
    )
    return _over_ranks(rows, f"Time to make the schedule{curve}", "time", data, axis), caption


def _lines(rows: list[Row], names: list[str], key: str, factor: float = 1.0) -> list[Attributes]:
    lines = []
    for index, name in enumerate(names):
        points_by_ranks = sorted((row for row in rows if row["scheduler"] == name), key=lambda row: int(row["ranks"]))
        y = [None if row.get(key) is None else round(row[key] * factor, 6) for row in points_by_ranks]
        colour = palette.series_colour(index)
        marker = {"symbol": SYMBOLS[index % len(SYMBOLS)], "size": 7, "color": colour}
        style: Attributes = {"hover": "%{x} ranks: %{y:.4g}", "mode": "lines+markers", "marker": marker}
        if points_by_ranks:
            lines.append(line(name, [int(row["ranks"]) for row in points_by_ranks], y, colour, **style))
    return lines


def _over_ranks(rows: list[Row], title: str, unit: str, data: list[Attributes], y_axis: Attributes) -> Figure:
    x_axis = counts_axis([int(row["ranks"]) for row in rows])
    return card(data, title, unit=unit, keys=trace_keys(data), x_title="ranks", xaxis=x_axis, yaxis=y_axis)


def _decades(values: Sequence[float]) -> dict[str, Any]:
    """Return a logarithmic axis of seconds over whole powers of ten."""
    positive = [value for value in values if value > 0] or [1.0]
    low = floor(log10(min(positive)))
    high = max(ceil(log10(max(positive))), low + 1)
    ticks = [10.0**power for power in range(low, high + 1)]
    return {
        "type": "log",
        "range": [low, high],
        "tickvals": ticks,
        "ticktext": [format_seconds(tick) for tick in ticks],
    }
