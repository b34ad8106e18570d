"""Predictions of the advisor over what runs measured, each run predicted by rates of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10
from statistics import median
from types import MappingProxyType
from typing import Any

from dtdg_lab.views.advice import system_axis
from dtdg_lab.views.grid import grid
from dtdg_lab.views.layout import Figure, frame, percent, with_note
from dtdg_lab.views.palette import BASELINE_COLOUR, PURGE_COLOUR, series_colour

Row = Mapping[str, Any]
Panel = tuple[Figure, str]
NAMED: Mapping[str, str] = MappingProxyType(
    {
        "epoch_s": "Seconds of an epoch", "rank_bytes": "Bytes a rank sends", "peak_bytes": "Peak memory of a step",
        "imbalance": "Imbalance",
    }
)  # fmt: skip
_NO_OTHER = "its own rates: there is no other run"
_KINDS = (  # left out, system known, name, symbol
    (True, True, "runs of its system were known", "circle"),
    (True, False, "no such run of its system was known", "diamond-open"),
    (False, True, _NO_OTHER, "x"),
    (False, False, _NO_OTHER, "x"),
)
_LEAST_RANGE = 2.0  # so that small errors look small
_TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


def advice_measured_figure(rows: Sequence[Row], *, title: str = "Predicted over measured") -> Figure:
    """A panel for each quantity: predicted over measured by system, 1 is right.

    Args:
        rows: one for each run and quantity: ``run``, ``system``, ``ranks``, ``quantity``, ``measured``, ``predicted``,
            ``left_out`` (whether the run was left out of the fit), ``system_known`` (whether other runs of its system
            were in it), ``crowded`` (whether something else ran on the machine).
        title: of the whole.
    """
    panels = [_panel([row for row in rows if row["quantity"] == name], said) for name, said in NAMED.items()]
    return grid(panels, title=title, wide=range(len(panels)))


def advice_measured_words(rows: Sequence[Row]) -> str:
    """How far predictions of runs that were left out are from them, quantity by quantity."""
    said = []
    for name, words in NAMED.items():
        off = _off([row for row in rows if row["quantity"] == name])
        if off:
            runs = f"{len(off)} run{'s' * (len(off) > 1)}"
            said.append(f"{words.lower()} {percent(median(off))} (worst {percent(max(off))}, {runs})")
    if not said:
        return "No run could be left out and predicted, so that no error is known."
    return "Runs predicted by the others were off by, at the median: " + "; ".join(said) + "."


def _off(rows: Sequence[Row]) -> list[float]:
    """Relative errors of runs that were left out: of undisturbed ones, where there are any."""
    mine = [row for row in rows if row["left_out"]]
    calm = [row for row in mine if not row.get("crowded") or row["quantity"].endswith("bytes")]  # these stay the same
    return [abs(row["predicted"] / row["measured"] - 1) for row in calm or mine]


def _panel(rows: Sequence[Row], said: str) -> Panel:
    far = max((abs(log10(row["predicted"] / row["measured"])) for row in rows), default=0.0)
    edge = max(1.1 * far, log10(_LEAST_RANGE))
    layout = frame(said, "", "predicted over measured", xaxis=system_axis(row["system"] for row in rows),
                   yaxis={"type": "log", "range": [-edge, edge], "tickvals": list(_TICKS),
                          "ticktext": [f"{tick:g}" for tick in _TICKS]})  # fmt: skip
    if not rows:
        return {"data": [], "layout": with_note(layout, "no run tells")}, ""
    data: list[dict[str, Any]] = []
    shown: set[str] = set()
    for left_out, known, name, symbol in _KINDS:
        mine = [row for row in rows if (row["left_out"], row["system_known"]) == (left_out, known)]
        if mine:
            data.append({
                "type": "scatter", "mode": "markers", "name": name, "showlegend": name not in shown,
                "x": [row["system"] for row in mine],
                "y": [round(row["predicted"] / row["measured"], 5) for row in mine],
                "marker": {"symbol": symbol, "size": 9, "color": [
                    PURGE_COLOUR if row.get("crowded") else series_colour(0 if known else 1) for row in mine
                ]},
                "customdata": [f"{row['run']}, {row['ranks']} rank(s)" for row in mine],
                "hovertemplate": "%{x}: %{y:.3f}<br>%{customdata}<extra></extra>",
            })  # fmt: skip
            shown.add(name)
    layout["shapes"].append({
        "type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": "y", "y0": 1, "y1": 1,
        "line": {"color": BASELINE_COLOUR, "dash": "dash", "width": 1.5},
    })  # fmt: skip
    off = _off(rows)
    noise = "Noise makes ranks uneven, which is not predicted. " * (rows[0]["quantity"] == "imbalance")
    words = f"Off by {percent(median(off))} at the median, {percent(max(off))} at worst. " if off else ""
    noise += "Grey: something else ran on the machine. " * any(row.get("crowded") for row in rows)
    return {"data": data, "layout": layout}, words + noise + "The dashed line is right; above, too much was predicted."
