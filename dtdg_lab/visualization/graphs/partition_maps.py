"""Heat maps of a node partition, and matrices of bytes between ranks, for the pictures of the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.units import format_bytes, format_percent
from dtdg_lab.partition.events import Matrix, PartitionFacts
from dtdg_lab.visualization import layout, traces
from dtdg_lab.visualization.axes import byte_unit
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.palette import HEAT_SCALES, TEXT_COLOUR
from dtdg_lab.visualization.traces import Drawn

# Heat maps of a partition: parts down, snapshots across; edges into own nodes, halo rows, replicated rows.


_FEW = 8  # snapshots up to which each has its number written
SNAPSHOT = "snapshot (number)"


@dataclass(frozen=True, slots=True)
class Map:
    """Content of one heat map.

    Attributes:
        title: of its panel.
        unit: of a cell.
        scale: name of its colours.
    """

    title: str
    unit: str
    scale: str


MAPS = {
    "edges": Map("Edges into a part's own nodes", "edges a snapshot", "owned"),
    "halo": Map("Halo rows a part receives", "rows a snapshot", "halo"),
    "replicated": Map("Rows replicated in a part", "rows a snapshot", "replicated"),
}


def map_figure(name: str, values: NDArray[np.float64], bounds: NDArray[np.int64]) -> Figure:
    """Return one heat map.

    Args:
        name: a key of ``MAPS``.
        values: (P, K), means of a snapshot.
        bounds: (K + 1,) snapshots at which columns begin; the last is where they end.
    """
    heat_map = MAPS[name]
    hover = "part %{y}, snapshot %{x:.0f}: %{z:,.4~g} " + heat_map.unit + "<extra></extra>"
    cells, x, y = np.round(values, 2).tolist(), (bounds - 0.5).tolist(), range(len(values))
    span = (0, float(values.max(initial=0.0)) or 1.0)
    style: Drawn = {"span": span, "hover": hover, "colorbar": traces.colour_bar(heat_map.unit)}
    trace = traces.heat(heat_map.title, cells, x, y, HEAT_SCALES[heat_map.scale], **style)
    axes: Drawn = {"xaxis": _snapshot_axis(int(bounds[0]), int(bounds[-1])), "yaxis": part_axis(len(values))}
    return layout.chart(heat_map.title, SNAPSHOT, "part", [trace], **axes)


def _snapshot_axis(first: int, end: int) -> dict[str, Any]:
    """Return an axis over snapshots first to end - 1, with whole numbers only."""
    few = {"dtick": 1} if end - first <= _FEW else {}
    return {"showgrid": False, "range": [first - 0.5, end - 0.5], **few}


def part_axis(parts: int) -> dict[str, Any]:
    """Return an axis of part numbers, the first one on top."""
    return {"range": [parts - 0.5, -0.5], "dtick": max(1, -(-parts // 8)), "showgrid": False}


# Matrices of bytes from rank to rank in a step.


_WRITTEN = 8  # parts up to which every cell has room for its number
_DARK = 0.55  # share of the largest value from which writing is white


def matrix_figure(title: str, sent: Mapping[str, Matrix], *, who: str, top: float) -> Figure:
    """Return one matrix of bytes, senders down and receivers across; hover shows each pass.

    Args:
        title: of the panel.
        sent: pass -> (R, R) bytes.
        who: ``rank`` or ``part``.
        top: bytes of the darkest colour.
    """
    total = np.sum(list(sent.values()), axis=0)
    count = len(total)
    # plotly's prefixes for bytes would be decimal: the largest value's binary unit is chosen instead
    unit, factor = byte_unit(top)
    cells = np.round(total / factor, 4).tolist()
    style: Drawn = {
        "span": (0, top / factor or 1.0),
        "colorbar": traces.colour_bar(f"{unit} a step", tickformat=",.3~g"),
        "customdata": [[_to_dict(sent, q, p) for p in range(count)] for q in range(count)],
        "hover": f"{who} %{{y}} to {who} %{{x}}: %{{customdata}}<extra></extra>",
    }
    trace = traces.heat(title, cells, range(count), range(count), HEAT_SCALES["bytes"], **style)
    size = 10 if count <= _WRITTEN // 2 else 8
    notes = []
    for q, p in zip(*(indices.tolist() for indices in total.nonzero()), strict=True) if count <= _WRITTEN else ():
        colour = "white" if total[q, p] > _DARK * top else TEXT_COLOUR
        notes.append(traces.label(format_bytes(float(total[q, p])), p, q, colour, size))
    axes: Drawn = {"xaxis": {**part_axis(count), "range": [-0.5, count - 0.5]}, "yaxis": part_axis(count)}
    return layout.chart(title, f"to {who} (number)", f"from {who}", [trace], annotations=notes, **axes)


def _to_dict(sent: Mapping[str, Matrix], q: int, p: int) -> str:
    return ", ".join(f"{format_bytes(float(matrix[q, p]))} {pass_name}" for pass_name, matrix in sent.items())


# What a heat map shows, in words.


_EVEN = 1.05  # largest part over the mean up to which a share of the work is called even


def map_words(name: str, facts: PartitionFacts) -> str:
    """Return what a heat map shows."""
    return {"edges": _edges, "halo": _halo, "replicated": _replicated}[name](facts)


def _edges(facts: PartitionFacts) -> str:
    sums = facts.maps["edges"] @ np.diff(facts.bounds)
    cut = format_percent(facts.shares["cut"])
    text = f"{cut} of the edges come from another part. Each column should have one colour: "
    ratio = facts.imbalance["edges"]
    if ratio < _EVEN:
        return text + "over all snapshots the parts share the edges evenly."
    return text + f"part {int(sums.argmax())} has {ratio:.2f} times the mean, and the others wait for it."


def _halo(facts: PartitionFacts) -> str:
    rows = facts.maps["halo"]
    if not facts.totals["halo"]:
        return "No part reads rows of another: nothing is exchanged."
    column = int(rows.sum(axis=0).argmax())
    come = "are received" if facts.exchanges else "would be received"
    return (
        f"{format_percent(facts.shares['halo'])} of the rows that parts read {come}. Strong columns are snapshots that "
        f"cost most, here {_span(facts.bounds, column)}; strong rows are parts that read most from others."
    )


def _replicated(facts: PartitionFacts) -> str:
    if not facts.totals["replicated"]:
        return "No part would copy rows of another."
    verb = "would hold without any exchange" if facts.exchanges else "holds"
    text = f"Of the rows a part {verb}, {format_percent(facts.shares['replicated'])} are copies"
    if facts.shares["replicated"] >= 0.5:
        return f"{text}: over half. Parts {'would ' if facts.exchanges else ''}repeat the work more than they share it."
    return f"{text}. What is copied {'would be' if facts.exchanges else 'is'} computed several times."


def _span(bounds: NDArray[np.int64], column: int) -> str:
    first, last = int(bounds[column]), int(bounds[column + 1]) - 1
    return f"snapshot {first}" if first == last else f"snapshots {first} to {last}"
