"""Tiles, suggestions and effects: what the page shows of a run beside its charts, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dtdg_lab.records.rows import Array
from dtdg_lab.records.tables import RunTables

SPARK_POINTS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One number of a run in large type.

    Attributes:
        label: what it is.
        value: with its unit.
        note: the second line.
        tooltip: what it means, in a sentence.
        tone: of the second line.
        spark: the value over the run, at most ``SPARK_POINTS`` numbers; none where it does not change with steps.
    """

    label: str
    value: str
    note: str
    tooltip: str
    tone: Literal["", "good", "bad"] = ""
    spark: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A change of settings to try: what its button says, and what it requests."""

    text: str
    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Effect:
    """The number of a system that is compared before and after each change.

    Attributes:
        label: such as ``Rows per step``.
        text: value -> with its unit.
        values: tables -> steps and values, of the recent steps.
    """

    label: str
    text: Callable[[float], str]
    values: Callable[[RunTables], tuple[Array, Array]]


def spark_of(values: Sequence[float] | Array) -> tuple[float, ...]:
    """Return values as the points of a sparkline: means of about ``SPARK_POINTS`` stretches, without unknown ones."""
    numbers = np.asarray(values, np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if len(numbers) <= SPARK_POINTS:
        return tuple(numbers.tolist())
    bounds = np.linspace(0, len(numbers), SPARK_POINTS + 1).astype(np.int64)
    return tuple((np.add.reduceat(numbers, bounds[:-1]) / np.diff(bounds)).tolist())
