"""Predicted costs of systems on a graph: epoch time by its parts, bytes sent, and memory beside the budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite, log10
from statistics import median
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.units import format_bytes, format_seconds, percent
from dtdg_lab.visualization.axes import CATEGORIES, FROM_ZERO
from dtdg_lab.visualization.chart import CaptionedFigure, Figure, card, trace_keys
from dtdg_lab.visualization.palette import BASELINE_COLOUR, PHASE_COLOURS, PURGE_COLOUR, WARNING_COLOUR, series_colour
from dtdg_lab.visualization.sheet import STUDY_HEIGHT, sheet
from dtdg_lab.visualization.traces import Attributes, bars, line, points, rule

Row = Mapping[str, Any]
# part of an epoch -> name and colour, as phases of a run have them
PARTS: tuple[tuple[str, str, str], ...] = (
    ("compute_s", "own computing", PHASE_COLOURS["compute"]),
    ("communicate_s", "exchanges", PHASE_COLOURS["communicate"]),
    ("transfer_s", "transferring graphs", PHASE_COLOURS["transfer"]),
    ("fetch_s", "waiting for features", PHASE_COLOURS["batch"]),
)
_MIB = 1 / 2**20
_FAINT = 0.35  # of systems that do not fit


def advice_figure(rows: Sequence[Row], *, title: str = "") -> Figure:
    """Return panels of epoch time, memory, bytes and imbalance of systems, in the order they are given.

    Args:
        rows: one for each system: ``system``, ``fits`` (yes, perhaps, no), ``epoch_s`` and its parts ``compute_s``,
            ``communicate_s``, ``transfer_s``, ``fetch_s``, ``error`` (relative, of the epoch; None where unknown),
            ``rank_bytes``, ``peak_bytes``, ``held_bytes``, ``budget_bytes``, ``imbalance``.
        title: of the whole.
    """
    if not rows:
        nothing = card([], "Predicted epoch", unit="seconds", x_title="system", empty="nothing was predicted")
        return sheet([(nothing, "")], title=title or "Advice")
    cards = [_epochs(rows), _memory(rows), _bytes(rows), _imbalance(rows)]
    return sheet(cards, title=title or "Advice", wide=range(len(cards)), plot_height=STUDY_HEIGHT)


def system_axis(names: Iterable[str]) -> Attributes:
    """Return an axis of systems, whose names are broken at their hyphens."""
    systems = list(dict.fromkeys(names))
    ticks = {"tickmode": "array", "tickvals": systems, "ticktext": [name.replace("-", "-<br>", 1) for name in systems]}
    order = {"categoryorder": "array", "categoryarray": systems}
    return {**CATEGORIES, **ticks, "tickangle": 0, "tickfont": {"size": 8}, **order}


def _epochs(rows: Sequence[Row]) -> CaptionedFigure:
    data = [
        _bar(name, [1e3 * row[key] for row in rows], rows, colour)
        for key, name, colour in PARTS
        if any(row[key] for row in rows)
    ]
    with_error = [row for row in rows if row["error"] is not None]
    if with_error:
        x, y = [row["system"] for row in with_error], [1e3 * row["epoch_s"] for row in with_error]
        error: Attributes = {"type": "data", "color": BASELINE_COLOUR, "thickness": 1.5, "width": 4}
        error["array"] = [1e3 * row["epoch_s"] * row["error"] for row in with_error]
        style: Attributes = {"size": 6, "marker": {"symbol": "circle-open"}, "error_y": error, "hoverinfo": "skip"}
        data.append(points("error learnt (median)", x, y, BASELINE_COLOUR, **style))
    # from 0 to the largest value and its error
    highest = max((1e3 * row["epoch_s"] * (1 + min(row["error"] or 0.0, 1.0)) for row in rows), default=1.0)
    stacked: Attributes = {"barmode": "stack", "bargap": 0.35, "yaxis": {"range": [0, 1.05 * highest]}}
    fitting = [row for row in rows if row["fits"] != "no"]
    caption = "No system fits the memory; pale bars say what they would take."
    if fitting:
        caption = f"Best first: {fitting[0]['system']} with {format_seconds(fitting[0]['epoch_s'])}"
        caption += f", {fitting[1]['system']} next with {format_seconds(fitting[1]['epoch_s'])}" * (len(fitting) > 1)
        caption += ". Bars that reach into each other's error are as good as equal. " * bool(with_error)
        caption += ". Rates are assumed where no error is drawn. " * (not with_error)
    pale = sum(row["fits"] == "no" for row in rows)
    figure = _by_system(rows, "Predicted epoch", "time of an epoch (ms)", data, **stacked)
    return figure, caption + f"Pale: {pale} that do not fit." * bool(pale)


def _memory(rows: Sequence[Row]) -> CaptionedFigure:
    names = [row["system"] for row in rows]
    data = [
        _bar("tensors of a step", [_MIB * row["peak_bytes"] for row in rows], rows, series_colour(6)),
        _bar("data", [_MIB * row["held_bytes"] for row in rows], rows, series_colour(5)),
    ]
    budget = _MIB * rows[0]["budget_bytes"]
    highest = max(_MIB * (row["peak_bytes"] + row["held_bytes"]) for row in rows)
    if budget < 3 * highest:
        ends, hover = [names[0], names[-1]], "budget %{y:.4g} MiB"
        data.append(line("budget", ends, [budget, budget], WARNING_COLOUR, hover, dash="dash", mode="lines"))
    largest = max(rows, key=lambda row: row["peak_bytes"] + row["held_bytes"])
    caption = f"{largest['system']} takes most, {format_bytes(largest['peak_bytes'] + largest['held_bytes'])}"
    caption += f" of {format_bytes(rows[0]['budget_bytes'])}. Look which bars end above the dashed budget."
    return _by_system(rows, "Memory of a rank", "MiB", data, barmode="stack", bargap=0.35), caption


def _bytes(rows: Sequence[Row]) -> CaptionedFigure:
    data = [_bar("sent", [_MIB * row["rank_bytes"] for row in rows], rows, PHASE_COLOURS["communicate"])]
    lowest = min(rows, key=lambda row: row["rank_bytes"])
    caption = f"{lowest['system']} sends least: {format_bytes(lowest['rank_bytes'])} an epoch. Look who sends rows of "
    caption += "nodes beside gradients: these grow with the cut."
    return _by_system(rows, "Sent by the busiest rank", "MiB an epoch", data), caption


def _imbalance(rows: Sequence[Row]) -> CaptionedFigure:
    finite = [row for row in rows if isfinite(row["imbalance"])]
    data = [_bar("busiest over least busy rank", [row["imbalance"] for row in finite], finite, PHASE_COLOURS["wait"])]
    largest = max(finite, key=lambda row: row["imbalance"], default=None)
    caption = "" if largest is None else f"{largest['system']} is least even: {largest['imbalance']:.2f}. "
    idle = len(rows) - len(finite)
    caption += f"In {idle} a rank has nothing to do. " * bool(idle)
    caption += f"1 is even; at 2 a rank waits up to {percent(0.5)} of its time."
    return _by_system(rows, "Imbalance", "own time, most over least", data), caption


def _by_system(rows: Sequence[Row], title: str, unit: str, data: Sequence[Attributes], **style: Any) -> Figure:
    axes: Attributes = {"xaxis": system_axis(row["system"] for row in rows), "yaxis": FROM_ZERO}
    return card(data, title, unit=unit, keys=trace_keys(data), **{**axes, **style})


def _bar(name: str, y: Sequence[float], rows: Sequence[Row], colour: str) -> Attributes:
    marker = {"color": colour, "opacity": [_FAINT if row["fits"] == "no" else 1.0 for row in rows]}
    names = [row["system"] for row in rows]
    return bars(name, names, [round(value, 6) for value in y], None, "%{x}: %{y:.4g}", marker=marker)


# Predictions of the advisor over what runs measured, each run predicted by rates of the others.


NAMED: Mapping[str, str] = MappingProxyType(
    {
        "epoch_s": "Seconds of an epoch",
        "rank_bytes": "Bytes a rank sends",
        "peak_bytes": "Peak memory of a step",
        "imbalance": "Imbalance",
    }
)
_NO_OTHER = "its own rates: there is no other run"
_KINDS = (  # left out, system known, name, symbol
    (True, True, "runs of its system were known", "circle"),
    (True, False, "no such run of its system was known", "diamond-open"),
    (False, True, _NO_OTHER, "x"),
    (False, False, _NO_OTHER, "x"),
)
_LEAST_RANGE = 2.0  # so that small errors look small
_TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


def advice_measured_figure(rows: Sequence[Row]) -> Figure:
    """Return a panel for each quantity: predicted over measured by system; 1 is right.

    Args:
        rows: one for each run and quantity: ``run``, ``system``, ``ranks``, ``quantity``, ``measured``, ``predicted``,
            ``left_out`` (whether the run was left out of the fit), ``system_known`` (whether other runs of its system
            were in it), ``crowded`` (whether something else ran on the machine).
    """
    cards = [_ratio_card([row for row in rows if row["quantity"] == name], title) for name, title in NAMED.items()]
    return sheet(cards, title="Predicted over measured", wide=range(len(cards)), plot_height=STUDY_HEIGHT)


def prediction_errors_text(rows: Sequence[Row]) -> str:
    """Return how far predictions of runs that were left out are from them, by quantity."""
    sentences = []
    for name, title in NAMED.items():
        off = relative_errors([row for row in rows if row["quantity"] == name])
        if off:
            runs = f"{len(off)} run{'s' * (len(off) > 1)}"
            sentences.append(f"{title.lower()} {percent(median(off))} (worst {percent(max(off))}, {runs})")
    if not sentences:
        return "No run could be left out and predicted, so that no error is known."
    return "Runs predicted by the others were off by, at the median: " + "; ".join(sentences) + "."


def relative_errors(rows: Sequence[Row]) -> list[float]:
    """Return the relative errors of runs that were left out, undisturbed ones where there are any."""
    mine = [row for row in rows if row["left_out"]]
    calm = [row for row in mine if not row.get("crowded") or row["quantity"].endswith("bytes")]  # these stay the same
    return [abs(row["predicted"] / row["measured"] - 1) for row in calm or mine]


def _ratio_card(rows: Sequence[Row], title: str) -> CaptionedFigure:
    far = max((abs(log10(row["predicted"] / row["measured"])) for row in rows), default=0.0)
    edge = max(1.1 * far, log10(_LEAST_RANGE))
    ticks = {"tickvals": list(_TICKS), "ticktext": [f"{tick:g}" for tick in _TICKS]}
    style: Attributes = {"yaxis": {"type": "log", "range": [-edge, edge], **ticks}, "empty": "no run was predicted"}
    data = []
    legend_names: set[str] = set()
    for left_out, system_known, name, symbol in _KINDS:
        mine = [row for row in rows if (row["left_out"], row["system_known"]) == (left_out, system_known)]
        if mine:
            calm = series_colour(0 if system_known else 1)
            colours = [PURGE_COLOUR if row.get("crowded") else calm for row in mine]
            x, y = [row["system"] for row in mine], [round(row["predicted"] / row["measured"], 5) for row in mine]
            hover, told = (
                "%{x}: %{y:.3f}<br>%{customdata}<extra></extra>",
                [f"{row['run']}, {row['ranks']} rank(s)" for row in mine],
            )
            marker: Attributes = {"color": colours, "symbol": symbol}
            named: Attributes = {"showlegend": name not in legend_names, "customdata": told}
            data.append(points(name, x, y, calm, hover, size=9, marker=marker, **named))
            legend_names.add(name)
    figure = _by_system(rows, title, "predicted over measured", data, **style)
    if not rows:
        return figure, ""
    figure["layout"]["shapes"] = [rule(y=1, width=1.5, dash="dash")]
    off = relative_errors(rows)
    noise = "Noise makes ranks uneven, which is not predicted. " * (rows[0]["quantity"] == "imbalance")
    caption = f"Off by {percent(median(off))} at the median, {percent(max(off))} at worst. " if off else ""
    noise += "Grey: something else ran on the machine. " * any(row.get("crowded") for row in rows)
    return figure, caption + noise + "The dashed line is right; above, too much was predicted."
