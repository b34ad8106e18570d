"""Bytes of graphs that a step brings to the device, as they came and each whole, from the table ``transfers``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dtdg_lab.core.units import format_bytes
from dtdg_lab.views.layout import Figure, frame, with_note
from dtdg_lab.views.marks import Marks
from dtdg_lab.views.palette import BASELINE_COLOUR, series_colour
from dtdg_lab.views.partition_matrix import byte_unit
from dtdg_lab.views.step_sums import StepSums, Sums

NOTHING_BROUGHT = "no graph has been brought in a step"
_ALIKE = 1.005  # whole over brought up to which they are called alike


def transfer_log() -> StepSums:
    """Where rows of the table ``transfers`` are summed."""
    return StepSums((), ("snapshots", "bytes", "whole_bytes"))


def transfers_figure(steps: Sequence[tuple[int, Sums]], marks: Marks) -> Figure:
    """Bytes that the ranks' graphs took together, and what they would have taken whole, over steps.

    Args:
        steps: from :meth:`StepSums.steps`.
        marks: of the run's changes.
    """
    told = _told(steps)
    top = max((max(brought, whole) for _, _, brought, whole in told), default=0.0)
    unit, factor = byte_unit(top)
    layout = frame(
        "Graphs brought to the ranks", "step (model updates)", f"bytes of a step, all ranks ({unit})",
        yaxis={"rangemode": "tozero"}, **marks.over_steps([each[0] for each in told]),
    )  # fmt: skip
    lines = (("brought", 2, series_colour(0), "solid"), ("each whole", 3, BASELINE_COLOUR, "dash"))
    data: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": "lines" if len(told) > 1 else "markers", "name": name,
            **_with_gaps([each[0] for each in told], [round(each[place] / factor, 4) for each in told]),
            "line": {"color": colour, "width": 2, "dash": dash}, "marker": {"color": colour},
            "hovertemplate": "step %{x}: %{y:.4~g} " + unit + "<extra>" + name + "</extra>",
        }
        for name, place, colour, dash in lines
    ]  # fmt: skip
    return {"data": data if told else [], "layout": layout if told else with_note(layout, NOTHING_BROUGHT)}


def _with_gaps(steps: list[int], values: list[float]) -> dict[str, list[Any]]:
    """Points of a line that ends where steps brought nothing and begins anew after them."""
    x: list[Any] = []
    y: list[Any] = []
    for step, value in zip(steps, values, strict=True):
        if x and step > x[-1] + 1:
            x.append(x[-1] + 1)
            y.append(None)
        x.append(step)
        y.append(value)
    return {"x": x, "y": y}


def transfers_words(steps: Sequence[tuple[int, Sums]], *, since: int = 0) -> str:
    """What the newest step brought, and what differences saved.

    Args:
        steps: from :meth:`StepSums.steps`.
        since: from this step on the run is as it is now.
    """
    told = _told(steps)
    if not told:
        return (
            "Graphs of one block stay where they are, and so do kept ones; of several each block's are brought for its "
            "forward pass and again for its rerun."
        )
    step, snapshots, brought, whole = told[-1]
    if step < since:
        return f"Graphs stay where they are now: no step has brought any since step {step}."
    text = f"Step {step} brought {snapshots:,.0f} snapshots in {format_bytes(brought)}"
    if brought <= 0 or whole / brought <= _ALIKE:
        return f"{text}, each whole: differences (the setting difference) save what neighbouring snapshots share."
    return (
        f"{text}; whole they take {format_bytes(whole)}, {whole / brought:.2f} times as much. The gap closes where "
        "snapshots share few edges, and where a rank's part of a block is short: its first graph comes whole."
    )


def _told(steps: Sequence[tuple[int, Sums]]) -> list[tuple[int, float, float, float]]:
    """Step, snapshots, bytes and whole bytes of every step that brought any."""
    found = []
    for step, sums in steps:
        snapshots, brought, whole = sums.get((), (0.0, 0.0, 0.0))
        if snapshots:
            found.append((step, snapshots, brought, whole))
    return found
