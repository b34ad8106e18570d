"""What a call for features costs before its first byte, against what its bytes cost (Figure 1 of GreenDyGNN).

Rows are mappings, one for each call: ``rows`` asked for, ``rtt_s``, ``feat_dim`` floats a row, and where there are
several ``condition`` or ``owner``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.views.grid import grid
from dtdg_lab.views.layout import Figure, frame, percent, with_note
from dtdg_lab.views.palette import BASELINE_COLOUR, PHASE_COLOURS, series_colour

Row = Mapping[str, Any]
Panel = tuple[Figure, str]
FLOAT_BYTES = 4
NO_CALL = "no call was measured yet"
_ALIKE = 1.25  # times as many rows, up to which calls are of one size
_LEAST = 2  # sizes that a line needs
_RECENTRED = 20  # times that the fit weighs its rows anew


@dataclass(frozen=True, slots=True)
class CallCost:
    """What a call takes: ``initiation_s`` + ``s_per_byte`` times the bytes of its reply."""

    initiation_s: float
    s_per_byte: float

    @property
    def crossover_bytes(self) -> float | None:
        """Bytes from which they cost more than the call; None where they cost nothing."""
        return self.initiation_s / self.s_per_byte if self.s_per_byte > 0 else None

    def share(self, nbytes: float) -> float:
        """Of a call of so many bytes, the part that it takes whatever it brings."""
        whole = self.initiation_s + self.s_per_byte * nbytes
        return self.initiation_s / whole if whole > 0 else 0.0


def call_cost(sizes: Mapping[float, float]) -> CallCost:
    """The line through median seconds by bytes that misses them least in relative terms; neither part is negative.

    Args:
        sizes: bytes of a reply -> seconds.
    """
    nbytes, seconds = np.array(list(sizes), dtype=float), np.array(list(sizes.values()), dtype=float)
    weights = 1 / np.maximum(seconds, 1e-9)
    columns = np.stack([np.ones_like(nbytes), nbytes], axis=1)
    scale = columns.max(axis=0)
    for _ in range(_RECENTRED):  # least absolute deviations: one slow size must not tilt the line
        found = np.linalg.lstsq(columns / scale * weights[:, None], seconds * weights, rcond=None)[0] / scale
        missed = np.abs(columns @ found - seconds) / np.maximum(seconds, 1e-9)
        weights = 1 / np.maximum(seconds, 1e-9) / np.sqrt(np.maximum(missed, 1e-3))
    initiation, per_byte = (float(each) for each in found)
    if initiation < 0:
        return CallCost(0.0, float(np.median(seconds / nbytes)))
    return CallCost(initiation, per_byte) if per_byte >= 0 else CallCost(float(np.median(seconds)), 0.0)


def rpc_payload_figure(rows: Sequence[Row], *, title: str = "What a call costs") -> Figure:
    """Both panels beside each other."""
    return grid(list(rpc_payload_panels(rows).values()), title=title)


def rpc_payload_panels(rows: Sequence[Row]) -> dict[str, Panel]:
    """``shares``: initiation against payload by rows of a call; ``seconds``: what was measured, with the line."""
    sizes = _by_rows(rows)
    if len(sizes) < _LEAST:
        empty = with_note(frame("What a call costs", "rows of a call", ""), NO_CALL)
        return {"shares": ({"data": [], "layout": empty}, _READING), "seconds": ({"data": [], "layout": empty}, "")}
    width = _row_bytes(rows)
    cost = call_cost({count * width: median(each) for count, each in sizes.items()})
    words = _words(cost, width)
    return {
        "shares": (_shares_figure(list(sizes), cost, width), words),
        "seconds": (_seconds_figure(sizes, cost, width), "Points: medians with the middle half; line: the fit."),
    }


_READING = "Small calls cost mostly for being calls: ask for many rows at once."


def _by_rows(rows: Sequence[Row]) -> dict[int, list[float]]:
    """Seconds by rows of a call; calls for about as many rows count as one size."""
    groups: list[list[tuple[int, float]]] = []
    for call in sorted((int(row["rows"]), float(row["rtt_s"])) for row in rows):
        if groups and call[0] <= _ALIKE * groups[-1][0][0]:
            groups[-1].append(call)
        else:
            groups.append([call])
    return {round(median(count for count, _ in each)): [seconds for _, seconds in each] for each in groups}


def _row_bytes(rows: Sequence[Row]) -> float:
    return FLOAT_BYTES * median([float(row["feat_dim"]) for row in rows])


def _shares_figure(counts: Sequence[int], cost: CallCost, width: float) -> Figure:
    layout = frame(
        "Initiation against payload", "rows of a call", "of its time (%)", barmode="stack", bargap=0.25,
        xaxis={"type": "category", "showgrid": False}, yaxis={"range": [0, 100]}, showlegend=True,
    )  # fmt: skip
    first = [round(100 * cost.share(count * width), 2) for count in counts]
    names = [f"{count:,}" for count in counts]
    data = [
        {"type": "bar", "name": name, "x": names, "y": y, "marker": {"color": colour},
         "hovertemplate": "%{x} rows: %{y:.0f} %<extra>" + name + "</extra>"}
        for name, y, colour in (
            ("initiation", first, PHASE_COLOURS["rebuild"]),
            ("payload", [round(100 - each, 2) for each in first], PHASE_COLOURS["transfer"]),
        )
    ]  # fmt: skip
    return {"data": data, "layout": layout}


def _seconds_figure(sizes: Mapping[int, Sequence[float]], cost: CallCost, width: float) -> Figure:
    layout = frame(
        "Time of a call", "rows of a call", "round trip (ms)", xaxis={"type": "log", "dtick": 1},
        yaxis={"type": "log", "dtick": 1}, showlegend=True,
    )  # fmt: skip
    counts = list(sizes)
    low, middle, high = (
        [round(1e3 * float(np.percentile(each, point)), 5) for each in sizes.values()] for point in (25, 50, 75)
    )  # fmt: skip
    line = np.geomspace(counts[0], counts[-1], 60)
    data: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": "markers", "name": "measured", "x": counts, "y": middle,
            "marker": {"color": series_colour(0), "size": 7},
            "error_y": {"type": "data", "symmetric": False, "thickness": 1.2, "color": series_colour(0),
                        "array": [h - m for m, h in zip(middle, high, strict=True)],
                        "arrayminus": [m - lo for lo, m in zip(low, middle, strict=True)]},
            "hovertemplate": "%{x:,} rows: %{y:.3~g} ms<extra></extra>",
        },
        {
            "type": "scatter", "mode": "lines", "name": "initiation + bytes", "x": [round(at, 2) for at in line],
            "y": [round(1e3 * (cost.initiation_s + cost.s_per_byte * at * width), 6) for at in line],
            "line": {"color": BASELINE_COLOUR, "width": 1.5}, "hoverinfo": "skip",
        },
    ]  # fmt: skip
    return {"data": data, "layout": layout}


def _words(cost: CallCost, width: float) -> str:
    crossover = cost.crossover_bytes
    text = f"A call takes {format_seconds(cost.initiation_s)} whatever it brings"
    if crossover is None:
        return f"{text}, and its bytes nothing that can be seen. {_READING}"
    rows = crossover / width
    small = percent(cost.share(100 * width))
    return (
        f"{text}; its bytes cost as much from {rows:,.0f} rows on ({format_bytes(crossover)}). At 100 rows the call "
        f"itself is {small}. {_READING}"
    )
