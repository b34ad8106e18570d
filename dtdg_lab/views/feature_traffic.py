"""Bytes that features cost, for batches and for caches, and how long training stood still for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.views.cache_windows import STEP
from dtdg_lab.views.feature_log import CacheWindow, Resolved
from dtdg_lab.views.layout import Figure, frame, percent, with_note
from dtdg_lab.views.marks import Marks
from dtdg_lab.views.palette import PHASE_COLOURS, WARNING_COLOUR
from dtdg_lab.views.partition_matrix import byte_unit

Panel = tuple[Figure, str]
_BARS = 80
_RECENT = 100  # steps that sentences are of


def traffic_panel(
    steps: Mapping[int, Sequence[Resolved]], windows: Sequence[CacheWindow], row_bytes: int, marks: Marks
) -> Panel:
    """Bytes a step for misses and for rebuilds, all parts together, and how long training waits (right axis).

    A rebuild's bytes, rows times their size, stand at the step where its cache was swapped in.

    Args:
        steps: of the newest steps, what every part asked for.
        windows: caches of all parts.
        row_bytes: of a row.
        marks: of the run's changes.
    """
    at = list(steps)
    layout = frame(
        "Bytes for features, and waiting", STEP, "bytes a step", barmode="stack", bargap=0, showlegend=True,
        yaxis={"rangemode": "tozero"}, **marks.over_steps(at),
    )  # fmt: skip
    if not at:
        return {"data": [], "layout": with_note(layout, "no batch was resolved yet")}, _TRAFFIC
    width = max(1, -(-(at[-1] - at[0] + 1) // _BARS))
    bars = sorted({(step - at[0]) // width for step in at})
    counts = Counter((step - at[0]) // width for step in at)
    missed, built, waited = (dict.fromkeys(bars, 0.0) for _ in range(3))
    for step, rows in steps.items():
        bar = (step - at[0]) // width
        missed[bar] += sum(row.bytes for row in rows) / counts[bar]
        waited[bar] += fmean(row.wait_s for row in rows) / counts[bar]
    for window in windows:
        bar = (window.step - at[0]) // width
        if bar in built:
            built[bar] += window.fetched * row_bytes / counts[bar]
    top = max(missed[bar] + built[bar] for bar in bars)
    unit, factor = byte_unit(top)
    layout["yaxis"]["title"] = {**layout["yaxis"]["title"], "text": f"{unit} a step"}
    x = [at[0] + bar * width + (width - 1) / 2 for bar in bars]
    data: list[dict[str, Any]] = [
        {
            "type": "bar", "name": name, "x": x, "y": [round(sums[bar] / factor, 4) for bar in bars], "width": width,
            "marker": {"color": colour, "line": {"width": 0}},
            "hovertemplate": "about step %{x:.0f}: %{y:.3~g} " + unit + "<extra>" + name + "</extra>",
        }
        for name, sums, colour in (
            ("missed by batches", missed, PHASE_COLOURS["communicate"]), ("for caches", built, PHASE_COLOURS["batch"]),
        )
    ]  # fmt: skip
    data.append({
        "type": "scatter", "mode": "lines", "name": "waiting (right)", "x": x, "yaxis": "y2",
        "y": [round(1e3 * waited[bar], 4) for bar in bars], "line": {"color": WARNING_COLOUR, "width": 1.5},
        "hovertemplate": "about step %{x:.0f}: %{y:.3~g} ms of waiting<extra></extra>",
    })  # fmt: skip
    layout["yaxis2"] = {
        "overlaying": "y", "side": "right", "showgrid": False, "zeroline": False, "rangemode": "tozero",
        "title": {"text": "waiting (ms a step)", "standoff": 4, "font": {"size": 11}},
    }  # fmt: skip
    layout["margin"] = {**layout["margin"], "r": 52}
    return {"data": data, "layout": layout}, traffic_words(steps, windows, row_bytes)


_TRAFFIC = "Bytes for caches are hidden behind training; those that batches miss may be waited for."


def traffic_words(steps: Mapping[int, Sequence[Resolved]], windows: Sequence[CacheWindow], row_bytes: int) -> str:
    """What the newest steps asked for, found, fetched and waited."""
    recent = list(steps)[-_RECENT:]
    rows = [row for step in recent for row in steps[step]]
    if not rows:
        return _TRAFFIC
    count = len(recent)
    remote, hit = sum(row.remote for row in rows), sum(row.hit for row in rows)
    moved = sum(row.bytes for row in rows)
    built = sum(window.fetched for window in windows if window.step >= recent[0]) * row_bytes
    waited = sum(row.wait_s for row in rows) / len(rows)
    found = f", {percent(hit / remote)} of them in a cache" if remote else ""
    return (
        f"In the last {count:,} steps all parts asked for {remote / count:,.0f} remote rows a step{found}; "
        f"{sum(row.rpcs for row in rows) / count:.3g} calls moved {format_bytes(moved / count)}, caches another "
        f"{format_bytes(built / count)}, and a part waited {format_seconds(waited)}. {_TRAFFIC}"
    )
