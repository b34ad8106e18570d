"""What systems would take on a graph: seconds of an epoch by what they go to, bytes sent, memory beside the budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.views.grid import grid
from dtdg_lab.views.layout import Figure, frame, percent, with_note
from dtdg_lab.views.palette import BASELINE_COLOUR, PHASE_COLOURS, WARNING_COLOUR, series_colour

Row = Mapping[str, Any]
Panel = tuple[Figure, str]
# part of an epoch -> name and colour, as phases of a run have them
PARTS: tuple[tuple[str, str, str], ...] = (
    ("compute_s", "own computing", PHASE_COLOURS["compute"]),
    ("communicate_s", "exchanges", PHASE_COLOURS["communicate"]),
    ("transfer_s", "bringing graphs", PHASE_COLOURS["transfer"]),
    ("fetch_s", "waiting for features", PHASE_COLOURS["batch"]),
)
_MIB = 1 / 2**20
_FAINT = 0.35  # of systems that do not fit


def advice_figure(rows: Sequence[Row], *, title: str = "") -> Figure:
    """Systems in the order they are given, best first: epoch, bytes, memory, imbalance.

    Args:
        rows: one for each system: ``system``, ``fits`` (yes, perhaps, no), ``epoch_s`` and its parts ``compute_s``,
            ``communicate_s``, ``transfer_s``, ``fetch_s``, ``error`` (relative, of the epoch; None where unknown),
            ``rank_bytes``, ``peak_bytes``, ``held_bytes``, ``budget_bytes``, ``imbalance``.
        title: of the whole.
    """
    if not rows:
        layout = with_note(frame("Predicted epoch", "system", "seconds"), "nothing was predicted")
        return grid([({"data": [{"type": "bar", "x": [], "y": []}], "layout": layout}, "")], title=title or "Advice")
    panels = [_epochs(rows), _memory(rows), _bytes(rows), _imbalance(rows)]
    return grid(panels, title=title or "Advice", wide=range(len(panels)))


def system_axis(names: Iterable[str]) -> dict[str, Any]:
    """A horizontal axis of systems, whose names are broken at their hyphens so that two dozen stand side by side."""
    shown = list(dict.fromkeys(names))
    broken = [name.replace("-", "-<br>", 1) for name in shown]
    return {"type": "category", "showgrid": False, "tickmode": "array", "tickvals": shown, "ticktext": broken,
            "tickangle": 0, "tickfont": {"size": 8}, "categoryorder": "array", "categoryarray": shown}  # fmt: skip


def _epochs(rows: Sequence[Row]) -> Panel:
    names = [row["system"] for row in rows]
    data: list[dict[str, Any]] = []
    for key, name, colour in PARTS:
        if any(row[key] for row in rows):
            data.append(_bar(name, names, [1e3 * row[key] for row in rows], rows, colour))
    known = [row for row in rows if row["error"] is not None]
    if known:
        data.append({
            "type": "scatter", "mode": "markers", "name": "error learnt (median)",
            "x": [row["system"] for row in known], "y": [1e3 * row["epoch_s"] for row in known], "hoverinfo": "skip",
            "marker": {"symbol": "circle-open", "size": 6, "color": BASELINE_COLOUR},
            "error_y": {"type": "data", "array": [1e3 * row["epoch_s"] * row["error"] for row in known],
                        "color": BASELINE_COLOUR, "thickness": 1.5, "width": 4},
        })  # fmt: skip
    layout = frame("Predicted epoch", "", "time of an epoch (ms)", barmode="stack", bargap=0.35,
                   xaxis=system_axis(row["system"] for row in rows), yaxis=_positive(rows, "epoch_s", 1e3))  # fmt: skip
    fitting = [row for row in rows if row["fits"] != "no"]
    words = "No system fits the memory; pale bars say what they would take."
    if fitting:
        words = f"Best first: {fitting[0]['system']} with {format_seconds(fitting[0]['epoch_s'])}"
        words += f", {fitting[1]['system']} next with {format_seconds(fitting[1]['epoch_s'])}" * (len(fitting) > 1)
        words += ". Bars that reach into each other's error are as good as equal. " * bool(known)
        words += ". Rates are assumed where no error is drawn. " * (not known)
    pale = sum(row["fits"] == "no" for row in rows)
    return {"data": data, "layout": layout}, words + f"Pale: {pale} that do not fit." * bool(pale)


def _memory(rows: Sequence[Row]) -> Panel:
    names = [row["system"] for row in rows]
    data = [
        _bar("tensors of a step", names, [_MIB * row["peak_bytes"] for row in rows], rows, series_colour(6)),
        _bar("data", names, [_MIB * row["held_bytes"] for row in rows], rows, series_colour(5)),
    ]
    budget = _MIB * rows[0]["budget_bytes"]
    most = max(_MIB * (row["peak_bytes"] + row["held_bytes"]) for row in rows)
    layout = frame("Memory of a rank", "", "MiB", barmode="stack", bargap=0.35,
                   xaxis=system_axis(row["system"] for row in rows), yaxis={"rangemode": "tozero"})  # fmt: skip
    if budget < 3 * most:
        data.append({
            "type": "scatter", "mode": "lines", "name": "budget", "x": [names[0], names[-1]], "y": [budget, budget],
            "line": {"color": WARNING_COLOUR, "dash": "dash", "width": 2}, "hovertemplate": "budget %{y:.4g} MiB",
        })  # fmt: skip
    largest = max(rows, key=lambda row: row["peak_bytes"] + row["held_bytes"])
    words = f"{largest['system']} takes most, {format_bytes(largest['peak_bytes'] + largest['held_bytes'])}"
    words += f" of {format_bytes(rows[0]['budget_bytes'])}. Look which bars end above the dashed budget."
    return {"data": data, "layout": layout}, words


def _bytes(rows: Sequence[Row]) -> Panel:
    data = [_bar("sent", [row["system"] for row in rows], [_MIB * row["rank_bytes"] for row in rows], rows,
                 PHASE_COLOURS["communicate"])]  # fmt: skip
    layout = frame("Sent by the busiest rank", "", "MiB an epoch",
                   xaxis=system_axis(row["system"] for row in rows), yaxis={"rangemode": "tozero"})  # fmt: skip
    least = min(rows, key=lambda row: row["rank_bytes"])
    words = f"{least['system']} sends least: {format_bytes(least['rank_bytes'])} an epoch. Look who sends rows of "
    return {"data": data, "layout": layout}, words + "vertices beside gradients: these grow with the cut."


def _imbalance(rows: Sequence[Row]) -> Panel:
    shown = [row for row in rows if isfinite(row["imbalance"])]
    data = [_bar("busiest over least busy rank", [row["system"] for row in shown],
                 [row["imbalance"] for row in shown], shown, PHASE_COLOURS["wait"])]  # fmt: skip
    layout = frame("Imbalance", "", "own time, most over least",
                   xaxis=system_axis(row["system"] for row in rows), yaxis={"rangemode": "tozero"})  # fmt: skip
    most = max(shown, key=lambda row: row["imbalance"], default=None)
    words = "" if most is None else f"{most['system']} is least even: {most['imbalance']:.2f}. "
    idle = len(rows) - len(shown)
    words += f"In {idle} a rank has nothing to do. " * bool(idle)
    return {"data": data, "layout": layout}, words + f"1 is even; at 2 a rank waits up to {percent(0.5)} of its time."


def _bar(name: str, x: Sequence[str], y: Sequence[float], rows: Sequence[Row], colour: str) -> dict[str, Any]:
    return {
        "type": "bar", "name": name, "x": list(x), "y": [round(value, 6) for value in y],
        "marker": {"color": colour, "opacity": [_FAINT if row["fits"] == "no" else 1.0 for row in rows]},
        "hovertemplate": f"%{{x}}: %{{y:.4g}}<extra>{name}</extra>",
    }  # fmt: skip


def _positive(rows: Sequence[Row], key: str, factor: float) -> dict[str, Any]:
    """An axis from 0 to the largest value and its error."""
    most = max((factor * row[key] * (1 + min(row["error"] or 0.0, 1.0)) for row in rows), default=1.0)
    return {"range": [0, 1.05 * most]}
