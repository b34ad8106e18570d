"""What the graphs of a block cost to bring: bytes and times, whole and as differences, and how many can benefit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.views.grid import grid
from dtdg_lab.views.layout import Figure, frame, join_words, percent, with_note
from dtdg_lab.views.palette import BASELINE_COLOUR, WARNING_COLOUR, series_colour

Row = Mapping[str, Any]
Panel = tuple[Figure, str]
SAID = {"csr32": "CSR int32", "coo64": "pairs int64"}
_SHORT = {"csr32": "CSR", "coo64": "pairs"}
_COLOURS = {"csr32": ("#9FC3DC", "#0072B2"), "coo64": ("#F2C09A", "#D55E00")}  # whole, difference
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "triangle-down", "cross", "x", "star")


def difference_figure(rows: Sequence[Row], shares: Sequence[Row], *, title: str) -> Figure:
    """Bytes, times, ratios beside what the overlap allows, and the share of snapshots that benefit, as four panels.

    Args:
        rows: one for each model and format, as ``runs.difference_study.MEANINGS`` says.
        shares: one for each model, format, number of blocks and of ranks: ``share`` and ``ratio``.
        title: of the whole.
    """
    return grid([_bytes(rows), _times(rows), _ratios(rows), _shares(shares)], title=title)


def _bytes(rows: Sequence[Row]) -> Panel:
    largest = max((row["whole_bytes"] for row in rows), default=1)
    unit, size = next(
        (each for each in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)) if largest >= each[1]), ("B", 1)
    )
    data = _bars(rows, ("whole_bytes", "difference_bytes"), 1 / size, format_bytes)
    layout = _by_model(rows, "Bytes of all snapshots", f"bytes ({unit})")
    if not rows:
        return {"data": data, "layout": with_note(layout, "nothing was compared")}, ""
    best = max(rows, key=lambda row: float(row["ratio"]))
    words = (
        f"Compare the strong bar of a pair with the faint one: at most {best['ratio']:.2f} times fewer bytes "
        f"({best['model']}, {SAID[best['form']]}), where {percent(best['overlap'])} of a snapshot's edges were in the "
        "one before."
    )
    return {"data": data, "layout": layout}, words


def _times(rows: Sequence[Row]) -> Panel:
    timed = [row for row in rows if row.get("time_ratio") is not None]
    longest = max((max(row["whole_s"], row["difference_s"]) for row in timed), default=1.0)
    unit, factor = ("ms", 1e3) if longest < 1 else ("s", 1.0)
    data = _bars(timed, ("whole_s", "difference_s"), factor, format_seconds)
    layout = _by_model(timed, "Time until all are usable", f"time ({unit})")
    if not timed:
        return {"data": data, "layout": with_note(layout, "no times were taken")}, ""
    faster = [row for row in timed if row["time_ratio"] > 1]
    unpacking = sum(row["difference_unpack_s"] for row in timed) / sum(row["difference_s"] for row in timed)
    which = join_words([f"{row['model']} ({SAID[row['form']]}, {row['time_ratio']:.2f} times)" for row in faster])
    words = f"Differences are faster for {which}. " if faster else "Differences are slower throughout. "
    words += f"Of their time {percent(unpacking)} is unpacking, which the light bars hardly have"
    limits = [row["worth_below"] / 1e9 for row in timed if row.get("worth_below")]
    if limits:
        words += f": it pays over links slower than {_span(min(limits), max(limits))} GB/s"
    return {"data": data, "layout": layout}, f"{words}."


def _span(least: float, most: float) -> str:
    low, high = f"{least:.2g}", f"{most:.2g}"
    return low if low == high else f"{low} to {high}"


def _ratios(rows: Sequence[Row]) -> Panel:
    data: list[dict[str, Any]] = []
    for form in _forms(rows):
        mine = [row for row in rows if row["form"] == form]
        names = [row["model"] for row in mine]
        data.append({
            "type": "bar", "name": SAID[form], "x": names, "y": [round(row["ratio"], 4) for row in mine],
            "text": [f"{row['ratio']:.2f}" for row in mine], "textposition": "outside", "cliponaxis": False,
            "marker": {"color": _COLOURS[form][1]}, "offsetgroup": form,
            "hovertemplate": "%{x}: %{y:.3f} times fewer bytes",
        })  # fmt: skip
        data.append({
            "type": "bar", "name": f"{SAID[form]}: what the overlap allows", "x": names, "offsetgroup": form,
            "y": [round(row["bound"], 4) for row in mine], "showlegend": form == _forms(rows)[0],
            "marker": {"color": "rgba(0,0,0,0)", "line": {"color": WARNING_COLOUR, "width": 1.6}},
            "hovertemplate": "%{x}: at most %{y:.3f}",
        })  # fmt: skip
    if data:
        data[1]["name"] = "what the overlap allows"
    layout = _by_model(rows, "How many times fewer bytes", "whole / difference (1)")
    layout["shapes"] = [_at_one()]
    least = min((row["reached"] for row in rows), default=1.0)
    words = (
        f"Red frames: no more is possible with these overlaps; at least {100 * least:.1f} % of it is reached. If "
        "nothing changes, 5 bounds pairs, 2 bounds CSR with values and long rows, nothing bounds CSR without values."
    )
    return {"data": data, "layout": layout if rows else with_note(layout, "nothing was compared")}, words


def _shares(shares: Sequence[Row]) -> Panel:
    found: dict[int, dict[int, float]] = {}
    for row in shares:
        found.setdefault(int(row["blocks"]), {})[int(row["ranks"])] = 100 * row["share"]
    data = [
        {
            "type": "scatter", "mode": "lines+markers", "name": f"{blocks} block{'s' * (blocks > 1)}",
            "x": sorted(line), "y": [round(line[ranks], 3) for ranks in sorted(line)],
            "line": {"color": series_colour(index), "width": 2},
            "marker": {"symbol": _SYMBOLS[index % len(_SYMBOLS)], "size": 7},
            "hovertemplate": "%{x} ranks: %{y:.1f} %",
        }
        for index, (blocks, line) in enumerate(sorted(found.items()))
    ]  # fmt: skip
    counts = sorted({ranks for line in found.values() for ranks in line})
    axis = {"type": "log", "tickvals": counts, "ticktext": [str(count) for count in counts]}
    y_axis = {"range": [0, 104], "ticksuffix": " %"}
    layout = frame("Snapshots that a difference can bring", "ranks", "share of all snapshots",
                   xaxis=axis, yaxis=y_axis, showlegend=True)  # fmt: skip
    if not data:
        return {"data": [{"type": "scatter", "x": [], "y": []}], "layout": with_note(layout, "no plans were given")}, ""
    words = (
        "The first snapshot of a block on a rank is always whole: of blocks of b snapshots on R ranks (b - R) / b "
        "benefit. Lines fall with more blocks and more ranks."
    )
    return {"data": data, "layout": layout}, words


def _bars(rows: Sequence[Row], keys: tuple[str, str], factor: float, said: Any) -> list[dict[str, Any]]:
    """A pair of bars for each model and format; over the second stands what it is of the first."""
    data: list[dict[str, Any]] = []
    for form in _forms(rows):
        mine = [row for row in rows if row["form"] == form]
        for key, way, colour in zip(keys, ("whole", "difference"), _COLOURS[form], strict=True):
            data.append({
                "type": "bar", "name": f"{_SHORT[form]}, {way}", "x": [row["model"] for row in mine],
                "y": [round(row[key] * factor, 6) for row in mine], "marker": {"color": colour},
                "text": [_less(row[keys[0]] / row[key]) for row in mine] if key == keys[1] else "",
                "textposition": "outside", "textangle": 0, "textfont": {"size": 10}, "constraintext": "none",
                "cliponaxis": False, "offsetgroup": f"{form}/{way}", "customdata": [said(row[key]) for row in mine],
                "hovertemplate": "%{x}, " + f"{SAID[form]}, {way}: " + "%{customdata}<extra></extra>",
            })  # fmt: skip
    return data or [{"type": "bar", "x": [], "y": []}]


def _less(ratio: float) -> str:
    return f"÷{ratio:.2g}" if ratio >= 1 else f"×{1 / ratio:.2g}"


def _forms(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(str(row["form"]) for row in rows))


def _by_model(rows: Sequence[Row], title: str, y_title: str) -> dict[str, Any]:
    labels = {row["model"]: f"{row['model']}<br>({row['smoothing']})" for row in rows}
    axis = {"type": "category", "showgrid": False, "tickvals": list(labels), "ticktext": list(labels.values())}
    return frame(title, "", y_title, barmode="group", xaxis=axis, yaxis={"rangemode": "tozero"}, showlegend=True)


def _at_one() -> dict[str, Any]:
    line = {"color": BASELINE_COLOUR, "width": 1.2, "dash": "dot"}
    return {"type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": 1, "y1": 1, "line": line}
