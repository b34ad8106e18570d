"""Steps over the number of ranks: their parts, their speed-up, and predictions against what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from dtdg_lab.core.units import format_seconds
from dtdg_lab.views.grid import grid
from dtdg_lab.views.layout import Figure, frame, percent, with_note
from dtdg_lab.views.palette import BASELINE_COLOUR, MARK_COLOUR, PHASE_COLOURS, TEXT_COLOUR, series_colour

Row = Mapping[str, Any]
Panel = tuple[Figure, str]
PARTS = ("compute", "communicate", "transfer")
_LOG = {"type": "log", "dtick": "D2"}
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
    told = _predicted(rows)
    longest = max((row["step_s"] for row in rows), default=1.0)
    unit, factor = ("ms", 1e3) if longest < 1 else ("s", 1.0)
    names = [str(row["ranks"]) for row in told]
    data: list[dict[str, Any]] = [
        {
            "type": "bar", "name": part, "x": names, "marker": {"color": PHASE_COLOURS[part]},
            "y": [round(row[f"{part}_s"] * factor, 6) for row in told],
            "customdata": [format_seconds(row[f"{part}_s"]) for row in told],
            "hovertemplate": f"%{{x}} ranks: %{{customdata}}<extra>{part}</extra>",
        }
        for part in PARTS
    ]  # fmt: skip
    for source, symbol in (("measured", "diamond"), ("own time", "diamond-open")):
        found = [row for row in rows if row["source"] == source]
        if found:
            said = "measured, no exchanges" if source == "own time" else source
            data.append({
                "type": "scatter", "mode": "markers", "name": said, "x": [str(row["ranks"]) for row in found],
                "y": [round(row["step_s"] * factor, 6) for row in found],
                "marker": {"symbol": symbol, "size": 9, "color": TEXT_COLOUR},
                "hovertemplate": f"%{{x}} ranks: %{{y:.4~g}} {unit}<extra>{said}</extra>",
            })  # fmt: skip
    layout = frame(
        "Time of a step by its parts", "ranks", f"time ({unit})", barmode="stack", bargap=0.35,
        xaxis={"type": "category", "showgrid": False, "categoryorder": "array", "categoryarray": names},
        yaxis={"rangemode": "tozero"},
    )  # fmt: skip
    if not told:
        return {"data": data, "layout": with_note(layout, "nothing was predicted")}, ""
    first, last = told[0], told[-1]
    many = f"{first['ranks']} rank{'s' * (first['ranks'] > 1)}"
    words = f"As predicted, on {many} {_largest(first)}; on {last['ranks']}, {_largest(last)}. "
    grow = (
        "bars of equal height, for the work of a rank stays" if weak else "which colour stops shrinking as ranks double"
    )
    return {"data": data, "layout": layout}, f"{words}Look for {grow}."


def _speedup(rows: Sequence[Row], *, weak: bool, paper: float | None) -> Panel:
    told = _predicted(rows)
    counts = [row["ranks"] for row in told]
    data: list[dict[str, Any]] = [
        _line("ideal", counts, [float(count) for count in counts], {"color": BASELINE_COLOUR, "dash": "dash"}),
        _line("predicted", counts, [row["speedup"] for row in told], {"color": _FITTED, "width": 2}),
    ]
    measured = [row for row in rows if row["source"] == "measured" and row["speedup"]]
    if measured:
        data.append(_points("measured", measured, "diamond", TEXT_COLOUR))
    if paper is not None:
        data.append(_points("paper, 128 GPUs", [{"ranks": 128, "speedup": paper}], "star", MARK_COLOUR))
    shown = sorted({*counts, *((128,) if paper is not None else ())})
    axis = {"type": "log", "tickvals": shown, "ticktext": [str(count) for count in shown]}
    layout = frame("Speed-up over one rank", "ranks", "times the edges a second", xaxis=axis, yaxis=axis)
    if not told:
        return {"data": data, "layout": with_note(layout, "nothing was predicted")}, ""
    last = told[-1]
    words = f"{last['speedup']:.3g} of {last['ranks']} at the most ranks, {percent(last['speedup'] / last['ranks'])}. "
    if paper is not None:
        best = "the best of its graphs and models" if not weak else "this model's"
        words += f"The star is the paper's, {paper:g}, {best}, on other machines. "
    return {"data": data, "layout": layout}, words + "Look at where the full line leaves the dashed one."


def _line(name: str, x: Sequence[float], y: Sequence[float], line: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": list(x), "y": [round(each, 6) for each in y],
        "line": line, "hovertemplate": f"%{{x}} ranks: %{{y:.3~g}}<extra>{name}</extra>",
    }  # fmt: skip


def _points(name: str, rows: Sequence[Row], symbol: str, colour: str) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "markers", "name": name, "x": [row["ranks"] for row in rows],
        "y": [round(row["speedup"], 6) for row in rows], "marker": {"symbol": symbol, "size": 10, "color": colour},
        "hovertemplate": f"%{{x}} ranks: %{{y:.3~g}}<extra>{name}</extra>",
    }  # fmt: skip


def _against(errors: Sequence[Row]) -> Panel:
    """Predicted over measured seconds; each part has its symbol, held-out steps their colour."""
    known = [row for row in errors if row["part"] in PARTS and row["measured_s"] > 0 and row["predicted_s"] > 0]
    layout = frame("Predicted against measured", "measured (ms)", "predicted (ms)", xaxis=_LOG, yaxis=_LOG)
    if not known:
        return {"data": [{"type": "scatter", "x": [], "y": []}], "layout": with_note(layout, "nothing measured")}, ""
    ends = [1e3 * pick(min(r["measured_s"], r["predicted_s"]) if pick is min else max(r["measured_s"], r["predicted_s"])
                       for r in known) for pick in (min, max)]  # fmt: skip
    data: list[dict[str, Any]] = [
        {"type": "scatter", "mode": "lines", "name": "equal", "x": ends, "y": ends, "hoverinfo": "skip",
         "line": {"color": BASELINE_COLOUR, "dash": "dash"}}
    ]  # fmt: skip
    shown: set[str] = set()
    for fitted, colour, kind in ((True, _FITTED, "fitted"), (False, _HELD, "held out")):
        for part, symbol in zip(PARTS, ("circle", "diamond", "square"), strict=True):
            found = [row for row in known if row["fitted"] is fitted and row["part"] == part]
            if found:
                data.append({
                    "type": "scatter", "mode": "markers", "name": kind, "showlegend": kind not in shown,
                    "x": [round(1e3 * row["measured_s"], 6) for row in found],
                    "y": [round(1e3 * row["predicted_s"], 6) for row in found],
                    "marker": {"symbol": symbol, "size": 9, "color": colour},
                    "customdata": [f"{row['name']}, {row['ranks']} ranks: {row['error']:+.0%}" for row in found],
                    "hovertemplate": f"{part}: %{{customdata}}<extra>{kind}</extra>",
                })  # fmt: skip
                shown.add(kind)
    look = "Circles: compute; diamonds: communicate; squares: transfer. Look how far held-out ones are from the line."
    return {"data": data, "layout": layout}, f"{_off(errors)} {look}"
