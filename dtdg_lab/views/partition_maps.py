"""Heat maps of a partition: parts down, snapshots across; edges into own vertices, halo rows, replicated rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.views.layout import Figure, frame
from dtdg_lab.views.palette import HEAT_SCALES

_FEW = 8  # snapshots up to which each has its number written
SNAPSHOT = "snapshot (number)"


@dataclass(frozen=True, slots=True)
class Map:
    """What one heat map shows.

    Attributes:
        title: of its panel.
        unit: of a cell.
        scale: name of its colours.
    """

    title: str
    unit: str
    scale: str


MAPS = {
    "edges": Map("Edges into a part's own vertices", "edges a snapshot", "owned"),
    "halo": Map("Halo rows a part receives", "rows a snapshot", "halo"),
    "replicated": Map("Rows replicated in a part", "rows a snapshot", "replicated"),
}


def map_figure(
    name: str, values: NDArray[np.float64], bounds: NDArray[np.int64], *, top: float | None = None, note: str = ""
) -> Figure:
    """One heat map.

    Args:
        name: a key of ``MAPS``.
        values: (P, K), means of a snapshot.
        bounds: (K + 1,) snapshots at which columns begin; the last is where they end.
        top: the value of the darkest colour, so that several maps can be compared; the largest one when not given.
        note: what the title ends with.
    """
    shown = MAPS[name]
    parts = len(values)
    highest = float(values.max(initial=0.0)) if top is None else top
    trace = {
        "type": "heatmap", "z": np.round(values, 2).tolist(), "x": (bounds - 0.5).tolist(), "y": list(range(parts)),
        "zmin": 0, "zmax": highest or 1.0, "colorscale": [list(stop) for stop in HEAT_SCALES[shown.scale]],
        "colorbar": colour_bar(shown.unit), "name": shown.title,
        "hovertemplate": "part %{y}, snapshot %{x:.0f}: %{z:,.4~g} " + shown.unit + "<extra></extra>",
    }  # fmt: skip
    layout = frame(
        shown.title + (f" · {note}" if note else ""), SNAPSHOT, "part",
        xaxis=_snapshot_axis(int(bounds[0]), int(bounds[-1])), yaxis=part_axis(parts),
    )  # fmt: skip
    return {"data": [trace], "layout": layout}


def _snapshot_axis(first: int, end: int) -> dict[str, Any]:
    """An axis over snapshots first to end - 1, with whole numbers only."""
    few = {"dtick": 1} if end - first <= _FEW else {}
    return {"showgrid": False, "range": [first - 0.5, end - 0.5], **few}


def part_axis(parts: int) -> dict[str, Any]:
    """An axis of part numbers, the first one on top."""
    return {"range": [parts - 0.5, -0.5], "dtick": max(1, -(-parts // 8)), "showgrid": False}


def colour_bar(unit: str) -> dict[str, Any]:
    """The legend of a heat map's colours."""
    title = {"text": unit, "side": "right", "font": {"size": 10}}
    return {"title": title, "thickness": 9, "outlinewidth": 0.5, "tickfont": {"size": 10}, "tickformat": "~s",
            "nticks": 5}  # fmt: skip
