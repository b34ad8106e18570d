"""Axes of charts: names, counts, logarithms and round numbers, and the units of bytes and seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, floor, log2, log10
from typing import Any

from dtdg_lab.visualization.traces import Attributes

STEPS = "step (model updates)"
RIGHT_AXIS: Attributes = {"overlaying": "y", "side": "right", "showgrid": False, "zeroline": False, "automargin": True}
# axis of names, first on top
NAMES = {"autorange": "reversed", "type": "category", "showgrid": False, "ticksuffix": " "}
FROM_ZERO: Attributes = {"rangemode": "tozero"}
CATEGORIES: Attributes = {"type": "category", "showgrid": False}


def counts_axis(counts: Sequence[int]) -> Attributes:
    """Return a logarithmic axis with a tick at each count, such as numbers of ranks."""
    ticks = sorted(set(counts))
    return {"type": "log", "tickvals": ticks, "ticktext": [str(count) for count in ticks]}


TICK_DIGITS = ((1, 2, 5), (1, 2, 3, 4, 5, 7), (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9))
FEWEST_TICKS, MOST_TICKS = 3, 6


def log_axis(low: float, high: float) -> Attributes:
    """Return a logarithmic axis with few ticks, at powers of ten where it spans many."""
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    ticks: list[float] = []
    for digits in TICK_DIGITS:
        if len(ticks) < FEWEST_TICKS:
            ticks = [digit * 10.0**power for power in powers for digit in digits if low <= digit * 10.0**power <= high]
    ticks = ticks if len(ticks) <= MOST_TICKS else [tick for tick in ticks if f"{tick:e}"[0] == "1"]
    tick_labels = {"tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}
    return {"type": "log", "range": [log10(low), log10(high)], **tick_labels}


def ticks_above_zero(end: float, limit: int) -> list[float]:
    """Return at most so many round numbers up to the end of an axis, without 0."""
    power = 10.0 ** floor(log10(end / limit))
    step = next(power * digit for digit in (1, 2, 5, 10, 20) if power * digit * limit >= end)
    return [float(f"{step * number:.6g}") for number in range(1, floor(end / step + 1e-9) + 1)]


def named_axis(names: Iterable[Any], *, down: bool = False) -> Attributes:
    """Return an axis with a name at each whole number, the first on top where it goes ``down``."""
    labels = [str(name) for name in names]
    ends = [-0.5, len(labels) - 0.5]
    ticks = {"tickvals": list(range(len(labels))), "ticktext": labels, "showgrid": False}
    return {**ticks, "range": ends[::-1] if down else ends}


def byte_unit(top: float) -> tuple[str, float]:
    """Return the binary unit of a number of bytes, and its bytes."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    power = min(len(units) - 1, int(log2(max(top, 1.0)) // 10))
    return units[power], 1024.0**power


def time_unit(largest_s: float) -> tuple[str, float]:
    """Return the unit of an axis of seconds, and how many of it a second has."""
    return ("ms", 1e3) if largest_s < 1 else ("s", 1.0)
