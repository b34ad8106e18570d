"""Steps over the number of ranks: their parts, their speed-up, and predictions against what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log10
from statistics import median
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.units import format_bytes, format_seconds, percent
from dtdg_lab.visualization import traces
from dtdg_lab.visualization.axes import CATEGORIES, FROM_ZERO, counts_axis, time_unit
from dtdg_lab.visualization.chart import CaptionedFigure, Figure, card, trace_keys
from dtdg_lab.visualization.palette import BASELINE_COLOUR, MARK_COLOUR, PHASE_COLOURS, TEXT_COLOUR, series_colour
from dtdg_lab.visualization.sheet import STUDY_HEIGHT, sheet
from dtdg_lab.visualization.traces import Attributes

# Efficiency over ranks: what of each further rank's time becomes a shorter epoch.


@dataclass(frozen=True, slots=True)
class Efficiency:
    """One system.

    Attributes:
        system: its name.
        seconds: ranks -> seconds of an epoch.
    """

    system: str
    seconds: Mapping[int, float]

    def at(self, ranks: int) -> float | None:
        """Return the speed-up over one rank, divided by the ranks; None where unknown."""
        one, seconds = self.seconds.get(1), self.seconds.get(ranks)
        return one / (seconds * ranks) if one and seconds else None


def efficiency_figure(systems: Sequence[Efficiency]) -> Figure:
    """Return a line for each system over ranks; 1 is ideal."""
    counts = sorted({count for system in systems for count in system.seconds})
    hover = "%{x} ranks: %{y:.2f}, %{text} an epoch"
    data = []
    for index, system in enumerate(systems):
        share_by_ranks = {count: share for count in sorted(system.seconds) if (share := system.at(count)) is not None}
        if share_by_ranks:
            style: Attributes = {
                "mode": "lines+markers",
                "text": [format_seconds(system.seconds[count]) for count in share_by_ranks],
            }
            x, y = list(share_by_ranks), list(share_by_ranks.values())
            data.append(traces.line(system.system, x, y, series_colour(index), hover, marker={"size": 7}, **style))
    if data:
        ends = [counts[0], counts[-1]]
        data.insert(0, traces.line("ideal", ends, [1, 1], width=1, dash="dot", mode="lines", hoverinfo="skip"))
    return card(
        data,
        "Efficiency over ranks",
        unit="speed-up over ranks (1 is ideal)",
        keys=trace_keys(data),
        x_title="ranks",
        empty="no system has run on one rank yet",
        xaxis={"type": "log", "tickvals": counts},
        yaxis=FROM_ZERO,
    )


def efficiency_caption(systems: Sequence[Efficiency]) -> str:
    """Return which systems keep most and least of the largest number of ranks."""
    most_ranks = max((count for system in systems for count in system.seconds), default=1)
    shares = sorted(
        ((share, system.system) for system in systems if (share := system.at(most_ranks)) is not None), reverse=True
    )
    if most_ranks == 1 or not shares:
        return "No system has run on several ranks yet: give a session of two engines or more."
    (highest, first), (lowest, last) = shares[0], shares[-1]
    look = "Look at what falls: on fewer cores than ranks every line must."
    if len(shares) == 1:
        return f"On {most_ranks} ranks {first} keeps {percent(highest)} of them. {look}"
    return f"On {most_ranks} ranks {first} keeps {percent(highest)} of them, {last} {percent(lowest)}. {look}"


Row = Mapping[str, Any]
PARTS = ("compute", "communicate", "transfer")
_HELD, _FITTED = series_colour(1), series_colour(0)


def scaling_figure(
    rows: Sequence[Row], errors: Sequence[Row], *, weak: bool, paper: float | None = None, title: str = ""
) -> Figure:
    """Return parts of a step, speed-up and errors over ranks, as three panels.

    Args:
        rows: steps, as ``forecast.step_scaling.MEANINGS`` says.
        errors: of measured steps by part, as ``StepScaling.errors`` has them.
        weak: whether the graph grows with the ranks.
        paper: the paper's speed-up on its 128 GPUs.
        title: of the whole.
    """
    cards = [_parts(rows, weak=weak), _speedup(rows, weak=weak, paper=paper), _against(errors)]
    return sheet(cards, title=title or "Steps on more ranks than are here", wide={2}, plot_height=STUDY_HEIGHT)


def scaling_caption(rows: Sequence[Row], errors: Sequence[Row], *, weak: bool) -> str:
    """Return the prediction for the most ranks and the error of predictions, in two sentences."""
    largest = max((row for row in rows if row["source"] == "predicted"), key=_ranks, default=None)
    if largest is None:
        return "Nothing was predicted."
    grown = "the graph grows with the ranks" if weak else "the graph stays"
    prediction = (
        f"{largest['model']}, where {grown}: {largest['speedup']:.3g} times the edges a second "
        f"on {largest['ranks']} ranks, where {_largest(largest)}. "
    )
    return prediction + _off(errors)


def _off(errors: Sequence[Row]) -> str:
    held_out = [row for row in errors if not row["fitted"]]
    named = held_out or list(errors)
    sums = [abs(row["error"]) for row in named if row["part"] == "sum"]
    if not sums:
        return "No measured step says how far predictions are off."
    kind = "held-out" if held_out else "fitted"
    steps = f"{len(sums)} {kind} step{'s' * (len(sums) > 1)}"
    parts = [
        f"{part} {percent(median(part_errors))}"
        for part in PARTS
        if (part_errors := [abs(row["error"]) for row in named if row["part"] == part])
    ]
    caution = "" if held_out else "; none was held out, so that predictions may be further off"
    return (
        f"Predictions of {steps} were off by {percent(median(sums))} (median) and {percent(max(sums))} (most); by "
        f"part, median: {', '.join(parts)}{caution}."
    )


def _ranks(row: Row) -> int:
    return int(row["ranks"])


def _largest(row: Row) -> str:
    part = max(PARTS, key=lambda name: row[f"{name}_s"])
    return f"{percent(row[f'{part}_s'] / row['step_s'])} of the time is {part}"


def _predicted(rows: Sequence[Row]) -> list[Row]:
    return sorted((row for row in rows if row["source"] == "predicted"), key=_ranks)


def _parts(rows: Sequence[Row], *, weak: bool) -> CaptionedFigure:
    predicted = _predicted(rows)
    unit, factor = time_unit(max((row["step_s"] for row in rows), default=1.0))
    names = [str(row["ranks"]) for row in predicted]
    data = []
    for part in PARTS:
        y, hover_text = [round(row[f"{part}_s"] * factor, 6) for row in predicted], "%{x} ranks: %{customdata}"
        told = [format_seconds(row[f"{part}_s"]) for row in predicted]
        data.append(traces.bars(part, names, y, PHASE_COLOURS[part], hover_text, customdata=told))
    for source, symbol in (("measured", "diamond"), ("own time", "diamond-open")):
        matching = [row for row in rows if row["source"] == source]
        if matching:
            name = "measured, no exchanges" if source == "own time" else source
            x, y = [str(row["ranks"]) for row in matching], [round(row["step_s"] * factor, 6) for row in matching]
            hover = f"%{{x}} ranks: %{{y:.4~g}} {unit}"
            data.append(traces.points(name, x, y, TEXT_COLOUR, hover, size=9, marker={"symbol": symbol}))
    x_axis = {**CATEGORIES, "categoryorder": "array", "categoryarray": names}
    style: Attributes = {"barmode": "stack", "bargap": 0.35, "xaxis": x_axis, "yaxis": FROM_ZERO}
    figure = _over_ranks("Time of a step by its parts", f"time ({unit})", data, predicted, **style)
    if not predicted:
        return figure, ""
    first, last = predicted[0], predicted[-1]
    many = f"{first['ranks']} rank{'s' * (first['ranks'] > 1)}"
    caption = f"As predicted, on {many} {_largest(first)}; on {last['ranks']}, {_largest(last)}. "
    grow = (
        "bars of equal height, for the work of a rank stays" if weak else "which colour stops shrinking as ranks double"
    )
    return figure, f"{caption}Look for {grow}."


def _over_ranks(title: str, unit: str, data: Sequence[Attributes], predicted: Sequence[Row], **style: Any) -> Figure:
    """Return a chart over ranks, with a note where nothing was predicted."""
    visible = data if predicted else ()
    style |= {"keys": trace_keys(visible), "empty": "nothing was predicted"}
    return card(visible, title, unit=unit, x_title="ranks", **style)


def _speedup(rows: Sequence[Row], *, weak: bool, paper: float | None) -> CaptionedFigure:
    predicted = _predicted(rows)
    counts, speedups = [row["ranks"] for row in predicted], [round(row["speedup"], 6) for row in predicted]
    hover = "%{x} ranks: %{y:.3~g}"
    data = [
        traces.line("ideal", counts, counts, hover=hover, dash="dash", mode="lines"),
        traces.line("predicted", counts, speedups, _FITTED, hover, mode="lines"),
    ]
    measured = [row for row in rows if row["source"] == "measured" and row["speedup"]]
    measured_points = [(row["ranks"], round(row["speedup"], 6)) for row in measured]
    kinds = [("measured", measured_points, "diamond", TEXT_COLOUR)]
    kinds += [("paper, 128 GPUs", [(128, paper)], "star", MARK_COLOUR)] if paper is not None else []
    for name, ranks_and_speedups, symbol, colour in kinds:
        x, y = [ranks for ranks, _ in ranks_and_speedups], [speedup for _, speedup in ranks_and_speedups]
        if ranks_and_speedups:
            data.append(traces.points(name, x, y, colour, hover, size=10, marker={"symbol": symbol}))
    axis = counts_axis([*counts, *((128,) if paper is not None else ())])
    titles = ("Speed-up over one rank", "times the edges a second")
    figure = _over_ranks(*titles, data, predicted, xaxis=axis, yaxis=axis)
    if not predicted:
        return figure, ""
    last = predicted[-1]
    caption = (
        f"{last['speedup']:.3g} of {last['ranks']} at the most ranks, {percent(last['speedup'] / last['ranks'])}. "
    )
    if paper is not None:
        best = "the best of its graphs and models" if not weak else "this model's"
        caption += f"The star is the paper's, {paper:g}, {best}, on other machines. "
    return figure, caption + "Look at where the full line leaves the dashed one."


def _against(errors: Sequence[Row]) -> CaptionedFigure:
    """Return predicted over measured seconds; parts have symbols, held-out steps a colour."""
    positive = [row for row in errors if row["part"] in PARTS and row["measured_s"] > 0 and row["predicted_s"] > 0]
    title, log = "Predicted against measured", {"type": "log", "dtick": "D2"}
    style: Attributes = {"unit": "predicted (ms)", "x_title": "measured (ms)", "xaxis": log, "yaxis": log}
    if not positive:
        return card([], title, empty="nothing measured", **style), ""
    seconds = [row[name] for row in positive for name in ("measured_s", "predicted_s")]
    ends = [1e3 * min(seconds), 1e3 * max(seconds)]
    data = [traces.line("equal", ends, ends, dash="dash", mode="lines", hoverinfo="skip")]
    legend_names: set[str] = set()
    for fitted, colour, kind in ((True, _FITTED, "fitted"), (False, _HELD, "held out")):
        for part, symbol in zip(PARTS, ("circle", "diamond", "square"), strict=True):
            matching = [row for row in positive if row["fitted"] is fitted and row["part"] == part]
            if matching:
                x, y = ([round(1e3 * row[name], 6) for row in matching] for name in ("measured_s", "predicted_s"))
                told = [f"{row['name']}, {row['ranks']} ranks: {row['error']:+.0%}" for row in matching]
                look: Attributes = {"size": 9, "marker": {"symbol": symbol}, "showlegend": kind not in legend_names}
                data.append(traces.points(kind, x, y, colour, f"{part}: %{{customdata}}", customdata=told, **look))
                legend_names.add(kind)
    hint = "Circles: compute; diamonds: communicate; squares: transfer. Look how far held-out ones are from the line."
    return card(data, title, keys=trace_keys(data), **style), f"{_off(errors)} {hint}"


# A graph over numbers of ranks: epoch time, efficiency, bytes, copies, fetches, with the points that were measured.


# quantity -> title, axis, factor, whether the axis is logarithmic
PANELS: Mapping[str, tuple[str, str, float, bool]] = MappingProxyType(
    {
        "epoch_s": ("Epoch time of this graph", "time of an epoch (ms)", 1e3, True),
        "efficiency": ("Schedules of a longer sequence that grows like it", "share of one rank's throughput", 1, False),
        "rank_bytes": ("Bytes that a rank sends in a step", "KiB", 1 / 1024, True),
        "held_rows": ("Rows of a snapshot that a part holds", "rows", 1.0, True),
        "fetch_s": ("A step that fetches features, on another cluster", "time of a step (ms)", 1e3, False),
    }
)
_LOOK: Mapping[str, str] = {
    "epoch_s": "Look where a line turns up: exchanges then cost more than ranks save.",
    "efficiency": "Look how far the lines are below the bound.",
    "rank_bytes": "Look where halo rows cross rows by snapshots, and what is left beside gradients.",
    "held_rows": "The gap to own rows is copies: memory that more ranks do not save.",
    "fetch_s": "A step waits for its slowest owner, however many there are: look what a late link does.",
}
CurvesOf = Mapping[str, tuple[str, ...]]  # system -> curves that its points go with
_OTHERS = "other systems, measured"
_REGION = "rgba(0, 158, 115, 0.12)"


def what_if_ranks_figure(
    rows: Sequence[Row], *, measured_ranks: int = 0, title: str = "", curves_of: CurvesOf = MappingProxyType({})
) -> Figure:
    """Return a chart of each quantity, one under another.

    Args:
        rows: ``quantity`` (of ``PANELS``), ``curve``, ``ranks``, ``value`` and ``kind``: counted, formula, simulated,
            predicted, fitted (drawn dotted) or measured (drawn as points).
        measured_ranks: most ranks that were measured: the region up to there is shaded; 0 for none.
        title: of the whole.
        curves_of: system -> curves that its points go with where none has its name.
    """
    quantities = [name for name in PANELS if any(row["quantity"] == name for row in rows)]
    panels = [
        _quantity_card(name, [row for row in rows if row["quantity"] == name], measured_ranks, curves_of)
        for name in quantities
    ]
    cards = panels or [(card([], "What if", x_title="ranks", empty="nothing to show"), "")]
    return sheet(cards, title=title or "What if there were more ranks", columns=1, plot_height=STUDY_HEIGHT)


def _quantity_card(name: str, rows: Sequence[Row], measured_ranks: int, curves_of: CurvesOf) -> CaptionedFigure:
    title, unit, factor, is_log = PANELS[name]
    ranks = sorted({row["ranks"] for row in rows})
    y_axis: Attributes = {"type": "log", "exponentformat": "none", "nticks": 6} if is_log else FROM_ZERO
    ends = [log10(ranks[0]) - 0.06, log10(ranks[-1]) + 0.06]
    ticks = [count for count in ranks if count & (count - 1) == 0 or len(ranks) < 8]  # powers of 2 among many
    x_axis = {**counts_axis(ticks), "ticktext": [f"{count:,}" for count in ticks], "range": ends}
    data: list[Attributes] = []
    colours: dict[str, str] = {}
    for curve in dict.fromkeys(row["curve"] for row in rows if row["kind"] != "measured"):
        colours[curve] = _colour(curve, len(colours))
        data += _curve(curve, [row for row in rows if row["curve"] == curve], factor, colours[curve])
    measured = [row for row in rows if row["kind"] == "measured"]
    data += _measured(measured, colours, factor, curves_of)
    region: Attributes = {"yref": "paper", "fillcolor": _REGION, "line": {"width": 0}, "layer": "below"}
    covered = (10 ** ends[0], measured_ranks * 1.15)
    shapes = [traces.box(covered, (0, 1), **region)] if measured_ranks and measured else []
    axes: Attributes = {"x_title": "ranks", "xaxis": x_axis, "yaxis": y_axis, "shapes": shapes}
    figure = card(data, title, unit=unit, keys=trace_keys(data), **axes)
    return figure, _quantity_caption(name, rows, measured_ranks if measured else 0) + _LOOK[name]


def _curve(curve: str, rows: Sequence[Row], factor: float, colour: str) -> list[Attributes]:
    """Return a line for counted values, and a dotted one where it is continued."""
    unmeasured = sorted((row for row in rows if row["kind"] != "measured"), key=_ranks)
    computed, fitted = ([row for row in unmeasured if (row["kind"] == "fitted") is of_fit] for of_fit in (False, True))
    dash = "dash" if "late" in curve or curve.startswith("bound") else "solid"
    lines = []
    continued = (f"{curve}, continued", [*computed[-1:], *fitted] if fitted else [], "dot")
    for name, points, dashes in ((curve, computed, dash), continued):
        x, y = [row["ranks"] for row in points], [_shown(row["value"] * factor) for row in points]
        style: Attributes = {"mode": "lines", "dash": dashes, "customdata": [row["kind"] for row in points]}
        style |= {"showlegend": not computed} if dashes == "dot" else {}
        if points:
            lines.append(traces.line(name, x, y, colour, "%{x} ranks: %{y:.4g} (%{customdata})", **style))
    return lines


def _measured(rows: Sequence[Row], colours: Mapping[str, str], factor: float, curves_of: CurvesOf) -> list[Attributes]:
    """Return measured points in the colour of their curve; those of other systems are small and grey."""
    markers = []
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        named = (row["curve"], *curves_of.get(row["curve"], ()))
        by_name.setdefault(next((curve for curve in named if curve in colours), _OTHERS), []).append(row)
    for name, mine in sorted(by_name.items(), key=lambda item: item[0] == _OTHERS, reverse=True):
        systems = list(dict.fromkeys(row["curve"] for row in mine))
        label = f"{name if len(systems) > 1 else systems[0]}, measured"
        style: Attributes = {"size": 10, "marker": {"symbol": "diamond", "line": {"width": 1, "color": TEXT_COLOUR}}}
        if name == _OTHERS:
            label, edge = _OTHERS, {"width": 1, "color": BASELINE_COLOUR}
            style = {"size": 6, "marker": {"symbol": "circle-open", "line": edge}}
        x, y = [row["ranks"] for row in mine], [_shown(row["value"] * factor) for row in mine]
        hover, told = "%{x} ranks: %{y:.4g}<extra>%{customdata}, measured</extra>", [row["curve"] for row in mine]
        markers.append(traces.points(label, x, y, colours.get(name, BASELINE_COLOUR), hover, customdata=told, **style))
    return markers


def _shown(value: float) -> float | None:
    """Return the value with six digits; None where it has no logarithm."""
    return float(f"{value:.6g}") if value > 0 else None


def _colour(curve: str, index: int) -> str:
    return BASELINE_COLOUR if curve.startswith(("bound", "own alone")) else series_colour(index)


def _quantity_caption(name: str, rows: Sequence[Row], measured_ranks: int) -> str:
    candidates = [
        row for row in rows if row["kind"] != "measured" and not row["curve"].startswith(("bound", "own alone"))
    ]
    last = max((row["ranks"] for row in candidates), default=0)
    at_most_ranks = [row for row in candidates if row["ranks"] == last]
    if not at_most_ranks:
        return ""
    best = (
        max(at_most_ranks, key=lambda row: row["value"])
        if name == "efficiency"
        else min(at_most_ranks, key=lambda row: row["value"])
    )
    writers = {"epoch_s": format_seconds, "efficiency": percent, "rank_bytes": format_bytes, "fetch_s": format_seconds}
    value = writers.get(name, lambda number: f"{number:,.0f}")(best["value"])
    verb = "keeps" if name == "efficiency" else "takes least"
    caption = f"On {last:,} ranks {best['curve']} {verb}: {value}. "
    caption += f"Shaded: up to {measured_ranks} ranks, where points were measured. " * bool(measured_ranks)
    return caption + "Dotted: continued, not counted. " * any(row["kind"] == "fitted" for row in rows)
