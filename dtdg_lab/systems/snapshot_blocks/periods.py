"""Periods of a run between two changes of its time blocks, each with the peak that was probed in it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtdg_lab.core.events import MemoryFacts
from dtdg_lab.core.rows import Array
from dtdg_lab.partition.events import BlockFacts

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables


@dataclass(frozen=True, slots=True)
class PlanPeriod:
    """Steps with one plan.

    Attributes:
        blocks: number of time blocks.
        first: first step.
        end: first step after it; infinite while it lasts.
        peak_bytes: of the step that was probed last in it; None where none was.
    """

    blocks: int
    first: int
    end: float
    peak_bytes: float | None


def plan_periods(tables: RunTables) -> list[PlanPeriod]:
    """Return the periods of a run in order; steps without time blocks are in none."""
    return tables.once("plan periods", lambda: _periods(tables))


def _periods(tables: RunTables) -> list[PlanPeriod]:
    plans, probes = tables.typed(BlockFacts), tables.typed(MemoryFacts)
    begins = [(event["time_ns"], event["step"] or 0) for event, _ in plans]
    periods = []
    for number, (_, facts) in enumerate(plans):
        begin_ns, begin = begins[number]
        end_ns, end = begins[number + 1] if number + 1 < len(plans) else (math.inf, math.inf)
        if facts is not None:
            peaks = [memory.peak_bytes for probe, memory in probes if memory and begin_ns <= probe["time_ns"] < end_ns]
            periods.append(PlanPeriod(facts.blocks, begin, end, peaks[-1] if peaks else None))
    return periods


def peaks_by_step(tables: RunTables) -> tuple[Array, Array]:
    """Return the recent steps, and the peak memory of a step in bytes; NaN where it was not probed."""
    steps = np.unique(tables.rows("steps")["step"])
    peaks = np.full(len(steps), np.nan)
    for period in plan_periods(tables):
        if period.peak_bytes is not None:
            peaks[(steps >= period.first) & (steps < period.end)] = period.peak_bytes
    return steps, peaks
