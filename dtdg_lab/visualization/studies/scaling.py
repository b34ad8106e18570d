"""Steps over the number of ranks: their parts, their speed-up, and predictions against what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log10
from statistics import median
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.units import format_bytes, format_seconds, percent
from dtdg_lab.visualization import layout, traces
from dtdg_lab.visualization.axes import CATEGORIES, FROM_ZERO, counts_axis, time_unit
from dtdg_lab.visualization.layout import Figure, with_note
from dtdg_lab.visualization.palette import BASELINE_COLOUR, MARK_COLOUR, PHASE_COLOURS, TEXT_COLOUR, series_colour
from dtdg_lab.visualization.panels import Panel, grid
from dtdg_lab.visualization.traces import Drawn

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
        """Speed-up over one rank, over the ranks; None where either is unknown."""
        one, here = self.seconds.get(1), self.seconds.get(ranks)
        return one / (here * ranks) if one and here else None


def efficiency_figure(systems: Sequence[Efficiency]) -> Figure:
    """A line for each system over ranks; 1 is ideal."""
    counts = sorted({count for each in systems for count in each.seconds})
    hover = "%{x} ranks: %{y:.2f}, %{text} an epoch"
    data = []
    for index, each in enumerate(systems):
        known = {count: share for count in sorted(each.seconds) if (share := each.at(count)) is not None}
        if known:
            looks: Drawn = {"mode": "lines+markers", "text": [format_seconds(each.seconds[count]) for count in known]}
            x, y = list(known), list(known.values())
            data.append(traces.line(each.system, x, y, series_colour(index), hover, marker={"size": 7}, **looks))
    if data:
        ends = [counts[0], counts[-1]]
        data.insert(0, traces.line("ideal", ends, [1, 1], width=1, dash="dot", mode="lines", hoverinfo="skip"))
    titles = ("Efficiency over ranks", "ranks", "speed-up over ranks (1 is ideal)")
    axes: Drawn = {"xaxis": {"type": "log", "tickvals": counts}, "yaxis": FROM_ZERO, "showlegend": True}
    return layout.chart(*titles, data, empty="no system has run on one rank yet", **axes)


def efficiency_words(systems: Sequence[Efficiency]) -> str:
    """Who keeps most of the largest number of ranks, and who least."""
    most = max((count for each in systems for count in each.seconds), default=1)
    known = sorted(((share, each.system) for each in systems if (share := each.at(most)) is not None), reverse=True)
    if most == 1 or not known:
        return "No system has run on several ranks yet: give a session of two engines or more."
    (best, first), (least, last) = known[0], known[-1]
    look = "Look at what falls: on fewer cores than ranks every line must."
    if len(known) == 1:
        return f"On {most} ranks {first} keeps {percent(best)} of them. {look}"
    return f"On {most} ranks {first} keeps {percent(best)} of them, {last} {percent(least)}. {look}"


Row = Mapping[str, Any]
PARTS = ("compute", "communicate", "transfer")
_HELD, _FITTED = series_colour(1), series_colour(0)


def scaling_figure(
    rows: Sequence[Row], errors: Sequence[Row], *, weak: bool, paper: float | None = None, title: str = ""
) -> Figure:
    """Parts of a step, speed-up and errors over ranks, as three panels.

    Args:
        rows: steps, as ``runs.scaling_study.MEANINGS`` says.
        errors: of measured steps by part, as ``ScalingStudy.errors`` has them.
        weak: whether the graph grows with the ranks.
        paper: the paper's speed-up on its 128 GPUs.
        title: of the whole.
    """
    panels = [_parts(rows, weak=weak), _speedup(rows, weak=weak, paper=paper), _against(errors)]
    return grid(panels, title=title or "Steps on more ranks than are here", wide={2})


def scaling_words(rows: Sequence[Row], errors: Sequence[Row], *, weak: bool) -> str:
    """What is predicted for the most ranks, and how far predictions were off, in two sentences."""
    most = max((row for row in rows if row["source"] == "predicted"), key=_ranks, default=None)
    if most is None:
        return "Nothing was predicted."
    grown = "the graph grows with the ranks" if weak else "the graph stays"
    said = (
        f"{most['model']}, where {grown}: {most['speedup']:.3g} times the edges a second on {most['ranks']} ranks, "
        f"where {_largest(most)}. "
    )
    return said + _off(errors)


def _off(errors: Sequence[Row]) -> str:
    held = [row for row in errors if not row["fitted"]]
    named = held or list(errors)
    sums = [abs(row["error"]) for row in named if row["part"] == "sum"]
    if not sums:
        return "No measured step says how far predictions are off."
    kind = "held-out" if held else "fitted"
    steps = f"{len(sums)} {kind} step{'s' * (len(sums) > 1)}"
    parts = [
        f"{part} {percent(median(found))}"
        for part in PARTS
        if (found := [abs(row["error"]) for row in named if row["part"] == part])
    ]
    caution = "" if held else "; none was held out, so that predictions may be further off"
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


def _parts(rows: Sequence[Row], *, weak: bool) -> Panel:
    described = _predicted(rows)
    unit, factor = time_unit(max((row["step_s"] for row in rows), default=1.0))
    names = [str(row["ranks"]) for row in described]
    data = []
    for part in PARTS:
        y, said = [round(row[f"{part}_s"] * factor, 6) for row in described], "%{x} ranks: %{customdata}"
        told = [format_seconds(row[f"{part}_s"]) for row in described]
        data.append(traces.bars(part, names, y, PHASE_COLOURS[part], said, customdata=told))
    for source, symbol in (("measured", "diamond"), ("own time", "diamond-open")):
        found = [row for row in rows if row["source"] == source]
        if found:
            name = "measured, no exchanges" if source == "own time" else source
            x, y = [str(row["ranks"]) for row in found], [round(row["step_s"] * factor, 6) for row in found]
            hover = f"%{{x}} ranks: %{{y:.4~g}} {unit}"
            data.append(traces.points(name, x, y, TEXT_COLOUR, hover, size=9, marker={"symbol": symbol}))
    x_axis = {**CATEGORIES, "categoryorder": "array", "categoryarray": names}
    looks: Drawn = {"barmode": "stack", "bargap": 0.35, "xaxis": x_axis, "yaxis": FROM_ZERO}
    figure = _over_ranks("Time of a step by its parts", f"time ({unit})", data, described, **looks)
    if not described:
        return figure, ""
    first, last = described[0], described[-1]
    many = f"{first['ranks']} rank{'s' * (first['ranks'] > 1)}"
    words = f"As predicted, on {many} {_largest(first)}; on {last['ranks']}, {_largest(last)}. "
    grow = (
        "bars of equal height, for the work of a rank stays" if weak else "which colour stops shrinking as ranks double"
    )
    return figure, f"{words}Look for {grow}."


def _over_ranks(title: str, y_title: str, data: Sequence[Drawn], described: Sequence[Row], **looks: Any) -> Figure:
    """A chart over ranks that says where nothing was predicted."""
    figure = layout.chart(title, "ranks", y_title, data, **looks)
    return figure if described else {**figure, "layout": with_note(figure["layout"], "nothing was predicted")}


def _speedup(rows: Sequence[Row], *, weak: bool, paper: float | None) -> Panel:
    described = _predicted(rows)
    counts, speedups = [row["ranks"] for row in described], [round(row["speedup"], 6) for row in described]
    hover = "%{x} ranks: %{y:.3~g}"
    data = [
        traces.line("ideal", counts, counts, hover=hover, dash="dash", mode="lines"),
        traces.line("predicted", counts, speedups, _FITTED, hover, mode="lines"),
    ]
    measured = [row for row in rows if row["source"] == "measured" and row["speedup"]]
    known = [(row["ranks"], round(row["speedup"], 6)) for row in measured]
    kinds = [("measured", known, "diamond", TEXT_COLOUR)]
    kinds += [("paper, 128 GPUs", [(128, paper)], "star", MARK_COLOUR)] if paper is not None else []
    for name, found, symbol, colour in kinds:
        x, y = [ranks for ranks, _ in found], [speedup for _, speedup in found]
        if found:
            data.append(traces.points(name, x, y, colour, hover, size=10, marker={"symbol": symbol}))
    axis = counts_axis([*counts, *((128,) if paper is not None else ())])
    titles = ("Speed-up over one rank", "times the edges a second")
    figure = _over_ranks(*titles, data, described, xaxis=axis, yaxis=axis)
    if not described:
        return figure, ""
    last = described[-1]
    words = f"{last['speedup']:.3g} of {last['ranks']} at the most ranks, {percent(last['speedup'] / last['ranks'])}. "
    if paper is not None:
        best = "the best of its graphs and models" if not weak else "this model's"
        words += f"The star is the paper's, {paper:g}, {best}, on other machines. "
    return figure, words + "Look at where the full line leaves the dashed one."


def _against(errors: Sequence[Row]) -> Panel:
    """Predicted over measured seconds; each part has its symbol, held-out steps their colour."""
    known = [row for row in errors if row["part"] in PARTS and row["measured_s"] > 0 and row["predicted_s"] > 0]
    titles, log = ("Predicted against measured", "measured (ms)", "predicted (ms)"), {"type": "log", "dtick": "D2"}
    if not known:
        return layout.chart(*titles, [], empty="nothing measured", xaxis=log, yaxis=log), ""
    seconds = [row[name] for row in known for name in ("measured_s", "predicted_s")]
    ends = [1e3 * min(seconds), 1e3 * max(seconds)]
    data = [traces.line("equal", ends, ends, dash="dash", mode="lines", hoverinfo="skip")]
    shown: set[str] = set()
    for fitted, colour, kind in ((True, _FITTED, "fitted"), (False, _HELD, "held out")):
        for part, symbol in zip(PARTS, ("circle", "diamond", "square"), strict=True):
            found = [row for row in known if row["fitted"] is fitted and row["part"] == part]
            if found:
                x, y = ([round(1e3 * row[name], 6) for row in found] for name in ("measured_s", "predicted_s"))
                told = [f"{row['name']}, {row['ranks']} ranks: {row['error']:+.0%}" for row in found]
                looks: Drawn = {"size": 9, "marker": {"symbol": symbol}, "showlegend": kind not in shown}
                data.append(traces.points(kind, x, y, colour, f"{part}: %{{customdata}}", customdata=told, **looks))
                shown.add(kind)
    look = "Circles: compute; diamonds: communicate; squares: transfer. Look how far held-out ones are from the line."
    return layout.chart(*titles, data, xaxis=log, yaxis=log), f"{_off(errors)} {look}"


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
    """A panel for each quantity there is, one under another, each with its legend beside it.

    Args:
        rows: ``quantity`` (of ``PANELS``), ``curve``, ``ranks``, ``value`` and ``kind``: counted, formula, simulated,
            predicted, fitted (drawn dotted) or measured (drawn as points).
        measured_ranks: most ranks that were measured: the region up to there is shaded; 0 for none.
        title: of the whole.
        curves_of: system -> curves that its points go with where none has its name.
    """
    found = [name for name in PANELS if any(row["quantity"] == name for row in rows)]
    panels = [
        _panel(name, [row for row in rows if row["quantity"] == name], measured_ranks, curves_of) for name in found
    ]
    if not panels:
        panels = [(layout.chart("What if", "ranks", "value", [], empty="nothing to show"), "")]
    return grid(panels, title=title or "What if there were more ranks", columns=1, beside=True)


def _panel(name: str, rows: Sequence[Row], measured_ranks: int, curves_of: CurvesOf) -> Panel:
    title, y_title, factor, is_log = PANELS[name]
    ranks = sorted({row["ranks"] for row in rows})
    y_axis: Drawn = {"type": "log", "exponentformat": "none", "nticks": 6} if is_log else FROM_ZERO
    ends = [log10(ranks[0]) - 0.06, log10(ranks[-1]) + 0.06]
    shown = [count for count in ranks if count & (count - 1) == 0 or len(ranks) < 8]  # powers of 2 among many
    x_axis = {**counts_axis(shown), "ticktext": [f"{count:,}" for count in shown], "range": ends}
    data: list[Drawn] = []
    colours: dict[str, str] = {}
    for curve in dict.fromkeys(row["curve"] for row in rows if row["kind"] != "measured"):
        colours[curve] = _colour(curve, len(colours))
        data += _curve(curve, [row for row in rows if row["curve"] == curve], factor, colours[curve])
    measured = [row for row in rows if row["kind"] == "measured"]
    data += _measured(measured, colours, factor, curves_of)
    region: Drawn = {"yref": "paper", "fillcolor": _REGION, "line": {"width": 0}, "layer": "below"}
    covered = (10 ** ends[0], measured_ranks * 1.15)
    shapes = [traces.box(covered, (0, 1), **region)] if measured_ranks and measured else []
    figure = layout.chart(title, "ranks", y_title, data, xaxis=x_axis, yaxis=y_axis, shapes=shapes)
    return figure, _words(name, rows, measured_ranks if measured else 0) + _LOOK[name]


def _curve(curve: str, rows: Sequence[Row], factor: float, colour: str) -> list[Drawn]:
    """A line for what is counted and one, dotted, for what is continued; they meet."""
    own = sorted((row for row in rows if row["kind"] != "measured"), key=_ranks)
    known, fitted = ([row for row in own if (row["kind"] == "fitted") is of_fit] for of_fit in (False, True))
    dash = "dash" if "late" in curve or curve.startswith("bound") else "solid"
    found = []
    continued = (f"{curve}, continued", [*known[-1:], *fitted] if fitted else [], "dot")
    for name, drawn, dashes in ((curve, known, dash), continued):
        x, y = [row["ranks"] for row in drawn], [_shown(row["value"] * factor) for row in drawn]
        looks: Drawn = {"mode": "lines", "dash": dashes, "customdata": [row["kind"] for row in drawn]}
        looks |= {"showlegend": not known} if dashes == "dot" else {}
        if drawn:
            found.append(traces.line(name, x, y, colour, "%{x} ranks: %{y:.4g} (%{customdata})", **looks))
    return found


def _measured(rows: Sequence[Row], colours: Mapping[str, str], factor: float, curves_of: CurvesOf) -> list[Drawn]:
    """Points: in the colour of the curve that predicts them, those of all other systems small and grey."""
    found = []
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        named = (row["curve"], *curves_of.get(row["curve"], ()))
        by_name.setdefault(next((curve for curve in named if curve in colours), _OTHERS), []).append(row)
    for name, mine in sorted(by_name.items(), key=lambda item: item[0] == _OTHERS, reverse=True):
        systems = list(dict.fromkeys(row["curve"] for row in mine))
        said = f"{name if len(systems) > 1 else systems[0]}, measured"
        looks: Drawn = {"size": 10, "marker": {"symbol": "diamond", "line": {"width": 1, "color": TEXT_COLOUR}}}
        if name == _OTHERS:
            said, edge = _OTHERS, {"width": 1, "color": BASELINE_COLOUR}
            looks = {"size": 6, "marker": {"symbol": "circle-open", "line": edge}}
        x, y = [row["ranks"] for row in mine], [_shown(row["value"] * factor) for row in mine]
        hover, told = "%{x} ranks: %{y:.4g}<extra>%{customdata}, measured</extra>", [row["curve"] for row in mine]
        found.append(traces.points(said, x, y, colours.get(name, BASELINE_COLOUR), hover, customdata=told, **looks))
    return found


def _shown(value: float) -> float | None:
    """None where a logarithm has no place for it."""
    return float(f"{value:.6g}") if value > 0 else None


def _colour(curve: str, place: int) -> str:
    return BASELINE_COLOUR if curve.startswith(("bound", "own alone")) else series_colour(place)


def _words(name: str, rows: Sequence[Row], measured_ranks: int) -> str:
    described = [
        row for row in rows if row["kind"] != "measured" and not row["curve"].startswith(("bound", "own alone"))
    ]
    last = max((row["ranks"] for row in described), default=0)
    at = [row for row in described if row["ranks"] == last]
    if not at:
        return ""
    best = max(at, key=lambda row: row["value"]) if name == "efficiency" else min(at, key=lambda row: row["value"])
    writers = {"epoch_s": format_seconds, "efficiency": percent, "rank_bytes": format_bytes, "fetch_s": format_seconds}
    value = writers.get(name, lambda each: f"{each:,.0f}")(best["value"])
    verb = "keeps" if name == "efficiency" else "takes least"
    words = f"On {last:,} ranks {best['curve']} {verb}: {value}. "
    words += f"Shaded: up to {measured_ranks} ranks, where points were measured. " * bool(measured_ranks)
    return words + "Dotted: continued, not counted. " * any(row["kind"] == "fitted" for row in rows)
