"""Chart cards over the time of a run: steps, or seconds if each rank counts its own steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dtdg_lab.records.rows import Array
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.hybrid_batches.events import SizeFacts, amount_text
from dtdg_lab.systems.hybrid_batches.observations import Decision
from dtdg_lab.visualization.changes.marks import HALF_WIDTH, with_changes
from dtdg_lab.visualization.chart import SECONDS_TITLE, STEPS_TITLE, ChartOptions, Figure, Key, Mark, XAxis, card
from dtdg_lab.visualization.palette import BASELINE_COLOUR, series_colour
from dtdg_lab.visualization.traces import Attributes

_MARGIN = 0.01  # share of the axis, at both ends


def time_axis(tables: RunTables, options: ChartOptions) -> XAxis:
    """Return the axis of a chart over time: seconds if ranks count their own steps."""
    return "seconds" if tables.own_steps else options.x


def end_of(tables: RunTables, x: XAxis) -> float:
    """Return the current end of the axis."""
    return tables.seconds if x == "seconds" else float(max(tables.steps.values(), default=0))


def time_of(decision: Decision, x: XAxis) -> float:
    """Return the position of a decision on the axis."""
    return round(decision.seconds, 3) if x == "seconds" else decision.step


def begin_of(times: Sequence[float], end: float) -> float:
    """Return the start of an axis: 0, or the first known time if earlier rows are not in memory."""
    first = min(times, default=0.0)
    return 0.0 if first < 0.2 * end else first


def time_card(
    tables: RunTables, x: XAxis, data: Sequence[Attributes], title: str, *, begin: float = 0.0, **layout: Any
) -> Figure:
    """Return a card over the run's time from ``begin`` to now, with the changes of settings."""
    end = max(end_of(tables, x), begin)
    margin = _MARGIN * max(end - begin, 1e-3)
    axis = {"range": [begin - margin, end + margin], **layout.pop("xaxis", {})}
    figure = card(data, title, x_title=SECONDS_TITLE if x == "seconds" else STEPS_TITLE, xaxis=axis, **layout)
    if not data:
        return figure
    return with_changes(figure, tables, x, begin, end, width=HALF_WIDTH)


def stretches(x: Array, begin: float, end: float, count: int) -> tuple[Array, Array]:
    """Return the bin of each position on the axis, and the middle of each bin."""
    bounds = np.linspace(begin, end, count + 1)
    middles = (bounds[:-1] + bounds[1:]) / 2
    return np.clip(np.searchsorted(bounds, x, side="right") - 1, 0, count - 1), middles


# Line styles of the batch sizes: colour for snapshots, dashes for nodes.


_DASHES = ("solid", "dash", "dot")


def size_line(sizes: Sequence[SizeFacts], action: int, *, in_use: bool) -> Attributes:
    """Return the style of a size's line; the one in use is thicker."""
    snapshots, nodes = _amounts(sizes)
    pair = sizes[action].shares
    dash = _DASHES[nodes.index(pair[1]) % len(_DASHES)]
    return {"colour": series_colour(snapshots.index(pair[0])), "dash": dash, "width": 3 if in_use else 1.5}


def size_keys(sizes: Sequence[SizeFacts]) -> list[Key]:
    """Return the legend of colours and dashes."""
    snapshots, nodes = _amounts(sizes)
    keys: list[Key] = [
        (f"{amount_text(value)} of snapshots", series_colour(number), "line") for number, value in enumerate(snapshots)
    ]
    marks: tuple[Mark, ...] = ("line", "dash", "dot")
    return keys + [
        (f"{amount_text(value)} of nodes", BASELINE_COLOUR, mark) for value, mark in zip(nodes, marks, strict=False)
    ]


def _amounts(sizes: Sequence[SizeFacts]) -> tuple[list[float], list[float]]:
    """Return the values of N_S and of N_V among the sizes."""
    snapshots, nodes = (list(dict.fromkeys(size.shares[axis] for size in sizes)) for axis in (0, 1))
    return snapshots, nodes
