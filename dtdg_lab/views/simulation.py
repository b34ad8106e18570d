"""What schedulers come to on many ranks: throughput and imbalance over the number of ranks, as the paper's Figure 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil, floor, log10
from typing import Any

from dtdg_lab.core.units import format_seconds
from dtdg_lab.views.grid import grid
from dtdg_lab.views.layout import Figure, frame, with_note
from dtdg_lab.views.palette import BASELINE_COLOUR, WARNING_COLOUR, series_colour
from dtdg_lab.views.schedule_facts import share, unit_of

Row = Mapping[str, Any]
Panel = tuple[Figure, str]
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "triangle-down", "cross", "x", "star")
_GOOD = 0.85  # throughput the paper reaches at its largest cluster
_UNEVEN = 10.0  # largest ratio up to which the axis is plain


def simulation_figure(rows: Sequence[Row], *, paper: Mapping[int, float] | None = None, title: str = "") -> Figure:
    """Throughput, imbalance, distance to the bound and solve time over ranks, a line a scheduler.

    Args:
        rows: one for each number of ranks and scheduler, as ``scheduling.outcome.Outcome.row`` gives them; rows with
            different ``curve`` get panels of their own.
        paper: ranks -> throughput of DyGNeX-G, drawn beside; what the paper says (section 5.4) when not given.
        title: of the whole.
    """
    from dtdg_lab.scheduling.simulate import PAPER_THROUGHPUT

    reached = PAPER_THROUGHPUT if paper is None else paper
    curves = list(dict.fromkeys(str(row.get("curve") or "") for row in rows))
    names = list(dict.fromkeys(str(row["scheduler"]) for row in rows))
    panels: list[Panel] = []
    for draw in (_throughput, _imbalance, _idle, _solving):
        for curve in curves:
            mine = [row for row in rows if str(row.get("curve") or "") == curve]
            panels.append(draw(mine, names, f" · {curve}" if curve else "", reached))
    if not rows:
        layout = with_note(frame("Throughput", "ranks", "share of one rank's"), "nothing simulated")
        panels = [({"data": [{"type": "scatter", "x": [], "y": []}], "layout": layout}, "")]
    return grid(panels, title=title or "Simulation of schedules on many ranks")


def epoch_times_figure(rows: Sequence[Row], *, title: str = "Epoch time on other numbers of ranks") -> Panel:
    """Predicted epoch times by number of ranks, beside those measured, with the error in words.

    Args:
        rows: as ``scheduling.epoch_times.EpochTime.row`` gives them.
        title: of the chart.
    """
    unit, factor = unit_of(max((row["predicted_s"] for row in rows), default=1.0))
    ranks = [str(row["ranks"]) for row in rows]
    data: list[dict[str, Any]] = [
        {
            "type": "bar", "name": name, "x": ranks, "marker": {"color": colour}, "showlegend": True,
            "y": [None if row.get(key) is None else round(row[key] * factor, 5) for row in rows],
            "text": [format_seconds(row[key]) if row.get(key) is not None else "" for row in rows],
            "textposition": "outside", "textangle": 0, "cliponaxis": False,
            "hovertemplate": f"%{{x}} ranks: %{{y:.4g}} {unit}",
        }
        for name, key, colour in (("predicted", "predicted_s", "#8CC7E8"), ("measured", "measured_s", "#D55E00"))
    ]  # fmt: skip
    data.append({
        "type": "scatter", "mode": "markers", "name": "no schedule is shorter", "x": ranks, "hoverinfo": "skip",
        "y": [round(row["bound_s"] * factor, 5) for row in rows],
        "marker": {"symbol": "line-ew", "size": 26, "line": {"color": WARNING_COLOUR, "width": 2.5}},
    })  # fmt: skip
    layout = frame(title, "ranks", f"time of an epoch ({unit})", barmode="group", bargap=0.35,
                   xaxis={"type": "category", "showgrid": False}, yaxis={"rangemode": "tozero"})  # fmt: skip
    errors = {row["ranks"]: row["error"] for row in rows if row.get("error") is not None}
    said = ", ".join(
        f"{share(abs(error))} too {'long' if error >= 0 else 'short'} on {r}" for r, error in errors.items()
    )
    words = f"Predicted epochs are {said} ranks." if said else "No measured epoch to compare with."
    return {"data": data, "layout": layout if rows else with_note(layout, "nothing predicted")}, words


def _throughput(rows: list[Row], names: list[str], curve: str, paper: Mapping[int, float]) -> Panel:
    data = _lines(rows, names, "throughput")
    bound = {int(row["ranks"]): row["bound_throughput"] for row in rows if row.get("bound_throughput") is not None}
    if bound:
        data.append(_line("bound: none can be better", sorted(bound), [bound[r] for r in sorted(bound)], "dash"))
    if paper:
        data.append({
            "type": "scatter", "mode": "markers", "name": "the paper's DyGNeX-G", "showlegend": False, "x": list(paper),
            "y": list(paper.values()), "hovertemplate": "%{x} ranks: %{y:.3f}",
            "marker": {"symbol": "star-open", "size": 12, "color": "black"},
        })  # fmt: skip
    least = min((value for trace in data for value in trace["y"] if value is not None), default=0.0)
    layout = _over_ranks(
        rows, f"Throughput per rank{curve}", "share of one rank's", {"range": [min(0.9 * least, 0.8), 1.02]}
    )
    largest = max(int(row["ranks"]) for row in rows)
    last = {str(row["scheduler"]): row["throughput"] for row in rows if row["ranks"] == largest}
    best = max(last, key=lambda name: last[name])
    words = f"On {largest:,} ranks {best} keeps {share(last[best])} of one rank's throughput"
    words += f"; the bound is {share(bound[largest])}" if largest in bound else ""
    if "psg" in last and best != "psg":
        words += f" and psg keeps {share(last['psg'])}"
    drop = _drop(rows, best)
    marks = "Dashed: a bound of all schedules. " * bool(bound) + "Stars: the paper's DyGNeX-G. " * bool(paper)
    return {"data": data, "layout": layout}, f"{words}.{drop} {marks}".strip()


def _drop(rows: list[Row], name: str) -> str:
    """Where a scheduler falls below what the paper keeps at its largest cluster."""
    mine = sorted((int(row["ranks"]), float(row["throughput"])) for row in rows if row["scheduler"] == name)
    for (ranks, before), (more, after) in pairwise(mine):
        if before >= _GOOD > after:
            return f" It falls below {share(_GOOD)} between {ranks:,} and {more:,} ranks."
    return ""


def _imbalance(rows: list[Row], names: list[str], curve: str, _: Mapping[int, float]) -> Panel:
    data = _lines(rows, names, "imbalance")
    known = [value for trace in data for value in trace["y"] if value is not None]
    top = max(known, default=1.1)
    kind = {"type": "log"} if top > _UNEVEN else {"range": [1 - 0.05 * (top - 1 or 0.1), 1 + 1.08 * (top - 1 or 0.1)]}
    layout = _over_ranks(rows, f"Imbalance of an epoch{curve}", "most over least loaded rank (1)", kind)
    idle = any(row["imbalance"] is None for row in rows)
    words = "As the paper counts it, over whole epochs; 1 is even." + (
        " Gaps: a rank has nothing to do at all, so the ratio is infinite." if idle else ""
    )
    return {"data": data, "layout": layout}, words


def _idle(rows: list[Row], names: list[str], curve: str, _: Mapping[int, float]) -> Panel:
    data = _lines(rows, names, "idle_share", 100.0)
    layout = _over_ranks(rows, f"Waiting{curve}", "share of the ranks' time (%)", {"rangemode": "tozero"})
    words = (
        "Time a rank waits in an iteration for the slowest one: this is what the throughput loses. With few groups a "
        "rank there is nothing left to balance."
    )
    return {"data": data, "layout": layout}, words


def _solving(rows: list[Row], names: list[str], curve: str, _: Mapping[int, float]) -> Panel:
    data = _lines(rows, names, "solve_s")
    layout = _over_ranks(rows, f"Time to make the schedule{curve}", "time", _decades([row["solve_s"] for row in rows]))
    longest = max(rows, key=lambda row: float(row["solve_s"]))
    words = (
        f"Paid once. Longest: {longest['scheduler']} on {longest['ranks']:,} ranks, "
        f"{format_seconds(longest['solve_s'])} for {longest['groups']:,} groups."
    )
    return {"data": data, "layout": layout}, words


def _lines(rows: list[Row], names: list[str], key: str, factor: float = 1.0) -> list[dict[str, Any]]:
    found = []
    for index, name in enumerate(names):
        mine = sorted((row for row in rows if row["scheduler"] == name), key=lambda row: int(row["ranks"]))
        if mine:
            found.append({
                "type": "scatter", "mode": "lines+markers", "name": name, "x": [int(row["ranks"]) for row in mine],
                "y": [None if row.get(key) is None else round(row[key] * factor, 6) for row in mine],
                "line": {"color": series_colour(index), "width": 2}, "hovertemplate": "%{x} ranks: %{y:.4g}",
                "marker": {"symbol": _SYMBOLS[index % len(_SYMBOLS)], "size": 7},
            })  # fmt: skip
    return found


def _line(name: str, xs: list[int], ys: list[float], dash: str) -> dict[str, Any]:
    line = {"color": BASELINE_COLOUR, "width": 1.5, "dash": dash}
    return {"type": "scatter", "mode": "lines", "name": name, "x": xs, "y": ys, "line": line, "showlegend": False,
            "hovertemplate": "%{x} ranks: %{y:.4f}"}  # fmt: skip


def _decades(values: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis of seconds over whole powers of ten."""
    known = [value for value in values if value > 0] or [1.0]
    low, high = floor(log10(min(known))), ceil(log10(max(known)))
    ticks = [10.0**power for power in range(low, max(high, low + 1) + 1)]
    said = [format_seconds(tick) for tick in ticks]
    return {"type": "log", "range": [low, max(high, low + 1)], "tickvals": ticks, "ticktext": said}


def _over_ranks(rows: list[Row], title: str, unit: str, y_axis: dict[str, Any]) -> dict[str, Any]:
    counts = sorted({int(row["ranks"]) for row in rows})
    axis = {"type": "log", "tickvals": counts, "ticktext": [str(count) for count in counts]}
    return frame(title, "ranks", unit, xaxis=axis, yaxis=y_axis, showlegend=True)
