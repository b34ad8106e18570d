"""Peak memory and time of a step against the number of blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dtdg_lab.core.units import format_bytes
from dtdg_lab.views.layout import Figure, frame, percent
from dtdg_lab.views.palette import TEXT_COLOUR, series_colour
from dtdg_lab.views.partition_matrix import byte_unit

_PEAK, _TIME = series_colour(0), series_colour(1)


def block_peaks_figure(rows: Sequence[Mapping[str, Any]], *, title: str = "Peak memory against blocks") -> Figure:
    """Bars of the measured peak, a line of the seconds of a step, and crosses where a peak was predicted.

    Args:
        rows: ``blocks``, ``peak_bytes``, ``step_s`` and ``predicted_bytes`` (None where unknown) each.
        title: of the figure.
    """
    tops = [max(row["peak_bytes"], row.get("predicted_bytes") or 0) for row in rows]
    unit, factor = byte_unit(float(max(tops, default=0)))
    names = [str(row["blocks"]) for row in rows]
    layout = frame(
        title, "blocks of time (nb)", f"peak of a step ({unit})", bargap=0.45,
        xaxis={"type": "category", "showgrid": False}, yaxis={"rangemode": "tozero"},
    )  # fmt: skip
    layout["yaxis2"] = {
        **layout["yaxis"], "title": {**layout["yaxis"]["title"], "text": "time of a step (ms)"}, "side": "right",
        "overlaying": "y", "showgrid": False,
    }  # fmt: skip
    layout["margin"] = {**layout["margin"], "r": 56}
    data: list[dict[str, Any]] = [
        {
            "type": "bar", "name": "peak, measured", "x": names, "marker": {"color": _PEAK},
            "y": [round(row["peak_bytes"] / factor, 4) for row in rows],
            "customdata": [format_bytes(row["peak_bytes"]) for row in rows],
            "hovertemplate": "%{x} blocks: %{customdata}<extra>peak</extra>",
        },
        {
            "type": "scatter", "mode": "lines+markers", "name": "time", "x": names, "yaxis": "y2",
            "y": [round(1e3 * row["step_s"], 4) for row in rows], "line": {"color": _TIME, "width": 2},
            "hovertemplate": "%{x} blocks: %{y:.3~g} ms<extra>time</extra>",
        },
    ]  # fmt: skip
    known = [row for row in rows if row.get("predicted_bytes") is not None]
    if known:
        data.append({
            "type": "scatter", "mode": "markers", "name": "peak, predicted", "x": [str(row["blocks"]) for row in known],
            "y": [round(row["predicted_bytes"] / factor, 4) for row in known],
            "marker": {"symbol": "x", "size": 11, "color": "white", "line": {"color": TEXT_COLOUR, "width": 1.5}},
            "hovertemplate": "%{x} blocks: %{y:.3~g} " + unit + "<extra>predicted</extra>",
        })  # fmt: skip
    return {"data": data, "layout": layout}


def block_peaks_words(rows: Sequence[Mapping[str, Any]]) -> str:
    """Which number of blocks needs least memory, and what it costs, in a sentence or two."""
    if not rows:
        return "Nothing was measured."
    first, least = rows[0], min(rows, key=lambda row: row["peak_bytes"])
    if least is first:
        return f"{_blocks(first)} need least memory here, {format_bytes(first['peak_bytes'])}."
    text = (
        f"{_blocks(least)} hold {format_bytes(least['peak_bytes'])}, {_blocks(first).lower()} "
        f"{format_bytes(first['peak_bytes'])}: {percent(least['peak_bytes'] / first['peak_bytes'])} of it, in "
        f"{least['step_s'] / first['step_s']:.2f} times the time. "
    )
    if least is not rows[-1]:
        return text + "With still more blocks the states between them outweigh what a block's activations save."
    return text + "Bars fall as blocks shorten, until the states between blocks outweigh them."


def _blocks(row: Mapping[str, Any]) -> str:
    return f"{row['blocks']:,} block{'' if row['blocks'] == 1 else 's'}"
