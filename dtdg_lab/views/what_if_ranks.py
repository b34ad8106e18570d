"""A graph over numbers of ranks: epoch time, efficiency, bytes, copies, fetches, with the points that were measured."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from math import log10
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.views.layout import Figure, frame, percent, with_note
from dtdg_lab.views.palette import BASELINE_COLOUR, TEXT_COLOUR, series_colour

Row = Mapping[str, Any]
Panel = tuple[Figure, str]
# quantity -> title, axis, factor, whether the axis is logarithmic, what to look for
PANELS: Mapping[str, tuple[str, str, float, bool, str]] = MappingProxyType(
    {
        "epoch_s": ("Epoch time of this graph", "time of an epoch (ms)", 1e3, True,
                    "Look where a line turns up: exchanges then cost more than ranks save."),
        "efficiency": ("Schedules of a longer sequence that grows like it", "share of one rank's throughput", 1.0,
                       False, "Look how far the lines are below the bound."),
        "rank_bytes": ("Bytes that a rank sends in a step", "KiB", 1 / 1024, True,
                       "Look where halo rows cross rows by snapshots, and what is left beside gradients."),
        "held_rows": ("Rows of a snapshot that a part holds", "rows", 1.0, True,
                      "The gap to own rows is copies: memory that more ranks do not save."),
        "fetch_s": ("A step that fetches features, on another cluster", "time of a step (ms)", 1e3, False,
                    "A step waits for its slowest owner, however many there are: look what a late link does."),
    }
)  # fmt: skip
_GRADIENTS = "gradients, every system"
CURVES_OF: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "dygnex-g": ("dygnex_greedy", _GRADIENTS),
        "adgnn-t": ("halo rows, metis",),
        "esdg": ("rows by snapshots (esdg)",),
        **dict.fromkeys(("psg", "blad", "dygnex-l", "pygt-dist", "dbov", "dbos", "bvr", "dynagraph"), (_GRADIENTS,)),
    }
)  # a system's points go with these curves where none has its name
_OTHERS = "other systems, measured"
_REGION = "rgba(0, 158, 115, 0.12)"
_HEIGHT, _PLOT, _TOP = 330, 214, 56  # pixels: of a panel, of its axes, above them; the sentence is below
_WIDTH = 0.72  # share of the figure that axes take; the legend is beside
_LINE = 118  # characters of a sentence in a line


def what_if_ranks_figure(rows: Sequence[Row], *, measured_ranks: int = 0, title: str = "") -> Figure:
    """A panel for each quantity there is, one under another, each with its legend beside it.

    Args:
        rows: ``quantity`` (of ``PANELS``), ``curve``, ``ranks``, ``value`` and ``kind``: counted, formula, simulated,
            predicted, fitted (drawn dotted) or measured (drawn as points).
        measured_ranks: most ranks that were measured: the region up to there is shaded; 0 for none.
        title: of the whole.
    """
    found = [name for name in PANELS if any(row["quantity"] == name for row in rows)]
    panels = [_panel(name, [row for row in rows if row["quantity"] == name], measured_ranks) for name in found]
    if not panels:
        panels = [({"data": [], "layout": with_note(frame("What if", "ranks", "value"), "nothing to show")}, "")]
    return _stacked(panels, title or "What if there were more ranks")


def _stacked(panels: Sequence[Panel], title: str) -> Figure:
    """Panels one under another; many curves have more names than a line under the axes holds."""
    whole = _HEIGHT * len(panels) + 40
    first = panels[0][0]["layout"]
    layout: dict[str, Any] = {
        "title": {**first["title"], "text": title, "y": 0.995, "font": {"size": 15}}, "font": first["font"],
        "paper_bgcolor": "white", "plot_bgcolor": "white", "hovermode": "closest", "height": whole,
        "margin": {"l": 62, "r": 14, "t": 40, "b": 0}, "shapes": [], "annotations": [],
    }  # fmt: skip
    inner = whole - 40
    data: list[dict[str, Any]] = []
    for place, (figure, sentence) in enumerate(panels):
        number = "" if place == 0 else str(place + 1)
        x, y, own = f"x{number}", f"y{number}", figure["layout"]
        top = 1 - (place * _HEIGHT + _TOP) / inner
        domain = [top - _PLOT / inner, top]
        layout[f"xaxis{number}"] = {**own["xaxis"], "domain": [0, _WIDTH], "anchor": y}
        layout[f"yaxis{number}"] = {**own["yaxis"], "domain": domain, "anchor": x}
        layout[f"legend{number}"] = {"x": _WIDTH + 0.015, "xanchor": "left", "y": top, "yanchor": "top",
                                     "font": {"size": 10}, "bgcolor": "rgba(0,0,0,0)"}  # fmt: skip
        for trace in figure["data"] or [{"type": "scatter", "x": [None], "y": [None], "showlegend": False}]:
            data.append({**trace, "xaxis": x, "yaxis": y, "legend": f"legend{number}"})
        for mark in (*own["shapes"], *own["annotations"]):
            moved = {**mark, "xref": _moved(mark["xref"], x), "yref": _moved(mark["yref"], y)}
            layout["annotations" if "text" in mark else "shapes"].append(moved)
        words = "<br>".join(textwrap.wrap(sentence, _LINE))
        layout["annotations"] += [
            _text(f"<b>{own['title']['text']}</b>", 13, top, {"yanchor": "bottom", "yshift": 8}),
            _text(words, 11, domain[0], {"yanchor": "top", "yshift": -36}),
        ]
    return {"data": data, "layout": layout}


def _moved(reference: str, axis: str) -> str:
    return f"{axis} domain" if reference == "paper" else axis


def _text(said: str, size: int, y: float, more: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "text": said, "x": 0, "y": y, "xref": "paper", "yref": "paper", "xanchor": "left", "align": "left",
        "showarrow": False, "font": {"size": size, "color": TEXT_COLOUR}, **more,
    }  # fmt: skip


def _panel(name: str, rows: Sequence[Row], measured_ranks: int) -> Panel:
    title, axis, factor, is_log, look = PANELS[name]
    ranks = sorted({row["ranks"] for row in rows})
    y: dict[str, Any] = {"type": "log", "exponentformat": "none", "nticks": 6} if is_log else {"rangemode": "tozero"}
    ends = [log10(ranks[0]) - 0.06, log10(ranks[-1]) + 0.06]
    shown = [count for count in ranks if count & (count - 1) == 0 or len(ranks) < 8]  # powers of 2 among many
    layout = frame(title, "ranks", axis, yaxis=y, xaxis={
        "type": "log", "tickvals": shown, "ticktext": [f"{count:,}" for count in shown], "range": ends,
    })  # fmt: skip
    data: list[dict[str, Any]] = []
    colours: dict[str, str] = {}
    for curve in dict.fromkeys(row["curve"] for row in rows if row["kind"] != "measured"):
        colours[curve] = _colour(curve, len(colours))
        data += _curve(curve, [row for row in rows if row["curve"] == curve], factor, colours[curve])
    measured = [row for row in rows if row["kind"] == "measured"]
    data += _measured(measured, colours, factor)
    if measured_ranks and measured:
        layout["shapes"].append({
            "type": "rect", "xref": "x", "x0": 10 ** ends[0], "x1": measured_ranks * 1.15, "yref": "paper", "y0": 0,
            "y1": 1, "fillcolor": _REGION, "line": {"width": 0}, "layer": "below",
        })  # fmt: skip
    return {"data": data, "layout": layout}, _words(name, rows, measured_ranks if measured else 0) + look


def _curve(curve: str, rows: Sequence[Row], factor: float, colour: str) -> list[dict[str, Any]]:
    """A line for what is counted and one, dotted, for what is continued; they meet."""
    own = [row for row in rows if row["kind"] != "measured"]
    known = sorted((row for row in own if row["kind"] != "fitted"), key=lambda row: row["ranks"])
    fitted = sorted((row for row in own if row["kind"] == "fitted"), key=lambda row: row["ranks"])
    line = {"color": colour, "width": 2, **({"dash": "dash"} if "late" in curve or curve.startswith("bound") else {})}
    lines = [_line(curve, known, factor, line)] if known else []
    if fitted:
        continued = _line(f"{curve}, continued", [*known[-1:], *fitted], factor, {**line, "dash": "dot"})
        lines.append({**continued, "showlegend": not known})
    return lines


def _line(name: str, rows: Sequence[Row], factor: float, line: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": [row["ranks"] for row in rows],
        "y": [_shown(row["value"] * factor) for row in rows], "line": line,
        "customdata": [row["kind"] for row in rows],
        "hovertemplate": f"%{{x}} ranks: %{{y:.4g}} (%{{customdata}})<extra>{name}</extra>",
    }  # fmt: skip


def _measured(rows: Sequence[Row], colours: Mapping[str, str], factor: float) -> list[dict[str, Any]]:
    """Points: in the colour of the curve that predicts them, those of all other systems small and grey."""
    found = []
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        named = (row["curve"], *CURVES_OF.get(row["curve"], ()))
        by_name.setdefault(next((curve for curve in named if curve in colours), _OTHERS), []).append(row)
    for name, mine in sorted(by_name.items(), key=lambda item: item[0] == _OTHERS, reverse=True):
        other = name == _OTHERS
        systems = list(dict.fromkeys(row["curve"] for row in mine))
        said = _OTHERS if other else f"{name if len(systems) > 1 else systems[0]}, measured"
        found.append({
            "type": "scatter", "mode": "markers", "name": said, "x": [row["ranks"] for row in mine],
            "y": [_shown(row["value"] * factor) for row in mine], "customdata": [row["curve"] for row in mine],
            "marker": {"symbol": "circle-open" if other else "diamond", "size": 6 if other else 10,
                       "color": BASELINE_COLOUR if other else colours[name],
                       "line": {"width": 1, "color": BASELINE_COLOUR if other else TEXT_COLOUR}},
            "hovertemplate": "%{x} ranks: %{y:.4g}<extra>%{customdata}, measured</extra>",
        })  # fmt: skip
    return found


def _shown(value: float) -> float | None:
    """None where a logarithm has no place for it."""
    return float(f"{value:.6g}") if value > 0 else None


def _colour(curve: str, place: int) -> str:
    return BASELINE_COLOUR if curve.startswith(("bound", "own alone")) else series_colour(place)


def _words(name: str, rows: Sequence[Row], measured_ranks: int) -> str:
    told = [row for row in rows if row["kind"] != "measured" and not row["curve"].startswith(("bound", "own alone"))]
    last = max((row["ranks"] for row in told), default=0)
    at = [row for row in told if row["ranks"] == last]
    if not at:
        return ""
    best = max(at, key=lambda row: row["value"]) if name == "efficiency" else min(at, key=lambda row: row["value"])
    value = {
        "epoch_s": format_seconds,
        "efficiency": percent,
        "rank_bytes": format_bytes,
        "fetch_s": format_seconds,
    }.get(name, lambda each: f"{each:,.0f}")(best["value"])
    verb = "keeps" if name == "efficiency" else "takes least"
    words = f"On {last:,} ranks {best['curve']} {verb}: {value}. "
    words += f"Shaded: up to {measured_ranks} ranks, where points were measured. " * bool(measured_ranks)
    return words + "Dotted: continued, not counted. " * any(row["kind"] == "fitted" for row in rows)
