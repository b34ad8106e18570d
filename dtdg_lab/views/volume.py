"""Numbers sent in a step over the number of ranks: snapshot partition beside hypergraph vertex partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import exp, log
from typing import Any

from dtdg_lab.views.grid import grid
from dtdg_lab.views.layout import Figure, frame, with_note
from dtdg_lab.views.palette import BASELINE_COLOUR, series_colour

Row = Mapping[str, Any]
_UNITS = ((1e9, "billion numbers"), (1e6, "million numbers"), (1e3, "thousand numbers"), (1.0, "numbers"))
_LINES = (
    ("snapshot", "snapshot", {"color": series_colour(0), "width": 2}, "circle"),
    ("hypergraph", "hypergraph", {"color": series_colour(1), "width": 2}, "diamond"),
    ("snapshot_as_paper", "snapshot, paper's rule",
     {"color": BASELINE_COLOUR, "width": 1.5, "dash": "dash"}, "circle-open"),
)  # fmt: skip


def volume_figure(rows: Sequence[Row], *, title: str = "") -> Figure:
    """A panel for each model: numbers sent over ranks, and a sentence that names where one passes the other.

    Args:
        rows: ``model``, ``ranks``, ``snapshot``, ``hypergraph`` and ``snapshot_as_paper`` of each, as
            ``lab.compare_volumes`` has them.
        title: of the whole.
    """
    models = list(dict.fromkeys(str(row["model"]) for row in rows))
    panels = [_panel(name, sorted((row for row in rows if row["model"] == name), key=_ranks)) for name in models]
    if not rows:
        layout = with_note(frame("Volume", "ranks", "numbers sent in a step"), "nothing counted")
        panels = [({"data": [{"type": "scatter", "x": [], "y": []}], "layout": layout}, "")]
    return grid(panels, title=title or "Numbers sent in one step, by how the work is divided")


def crossing(rows: Sequence[Row]) -> str:
    """Which of both sends less on how many ranks, in a sentence.

    Args:
        rows: of one model, at least one.
    """
    mine = sorted(rows, key=_ranks)
    name, first, last = str(mine[0]["model"]), mine[0], mine[-1]
    if not any(row["snapshot"] for row in mine):
        return f"{name}: snapshot partition sends nothing between ranks but gradients of parameters."
    gaps = [(row["ranks"], row["hypergraph"] - row["snapshot"]) for row in mine]
    for (before, low), (after, high) in pairwise(gaps):
        if low < 0 <= high or high < 0 <= low:
            less, more = ("hypergraph", "snapshot") if low < 0 else ("snapshot", "hypergraph")
            met = round(exp(log(before) + (log(after) - log(before)) * low / (low - high)))
            return (
                f"{name}: {less} partition sends less on {before} ranks, {more} partition on {after}; drawn straight, "
                f"the lines meet near {met} ranks."
            )
    less = "hypergraph" if gaps[-1][1] < 0 else "snapshot"
    ends = " and ".join(f"{_share(row)} on {row['ranks']}" for row in ([first, last] if last is not first else [first]))
    return f"{name}: {less} partition sends less on every number of ranks; hypergraph over snapshot is {ends}."


def _ranks(row: Row) -> int:
    return int(row["ranks"])


def _share(row: Row) -> str:
    return f"{row['hypergraph'] / row['snapshot']:.3g}" if row["snapshot"] else "without bound"


def _panel(name: str, rows: list[Row]) -> tuple[Figure, str]:
    top = max(max(int(row[key]) for row in rows) for key, *_ in _LINES)
    factor, unit = next((each for each in _UNITS if top >= each[0]), _UNITS[-1])
    data = [
        {
            "type": "scatter", "mode": "lines+markers", "name": said, "x": [_ranks(row) for row in rows],
            "y": [round(row[key] / factor, 6) for row in rows], "line": line, "showlegend": True,
            "marker": {"symbol": symbol, "size": 7}, "hovertemplate": f"%{{x}} ranks: %{{y:.4g}} {unit}",
        }
        for key, said, line, symbol in _LINES
    ]  # fmt: skip
    counts = sorted({_ranks(row) for row in rows})
    layout = frame(
        name, "ranks", f"{unit} sent in a step", showlegend=True, yaxis={"rangemode": "tozero"},
        xaxis={"type": "log", "tickvals": counts, "ticktext": [str(count) for count in counts]},
    )  # fmt: skip
    said = crossing(rows)
    look = "Look at the gap between the full lines, and how it changes with the ranks."
    if not any(row["snapshot"] for row in rows):
        look = "Look at the orange line: all of it is what snapshot partition saves."
    elif "the lines meet" in said:
        look = "Look at where the full lines meet: to the right of it the flatter one wins."
    return {"data": data, "layout": layout}, f"{said} {look}"
