"""Periods of a run between changes of its time blocks, each with its probed peak."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtdg_lab.partition.events import BlockFacts
from dtdg_lab.records.events import MemoryFacts
from dtdg_lab.records.rows import Array
from dtdg_lab.records.tables import RunTables


@dataclass(frozen=True, slots=True)
class PlanPeriod:
    """Steps with the same plan.

    Attributes:
        blocks: number of time blocks.
        first: first step.
        end: first step after the period; infinite for the current one.
        peak_bytes: peak of the last probed step; None if none was probed.
    """

    blocks: int
    first: int
    end: float
    peak_bytes: float | None


def plan_periods(tables: RunTables) -> list[PlanPeriod]:
    """Return the periods of a run in order, without steps of other systems."""
    return tables.once("plan periods", lambda: _periods(tables))


def is_probed(tables: RunTables) -> bool:
    """Return True if a step was probed with the current blocks."""
    periods = plan_periods(tables)
    return bool(periods) and periods[-1].peak_bytes is not None


def _periods(tables: RunTables) -> list[PlanPeriod]:
    plans = _changed_plans(tables)
    probes = [(probe["time_ns"], memory) for probe, memory in tables.typed(MemoryFacts) if memory is not None]
    periods = []
    for number, (event, facts) in enumerate(plans):
        following = plans[number + 1][0] if number + 1 < len(plans) else {"time_ns": math.inf, "step": math.inf}
        if facts is not None:
            begin_ns, end_ns = event["time_ns"], following["time_ns"]
            peaks = [memory.peak_bytes for time_ns, memory in probes if begin_ns <= time_ns < end_ns]
            periods.append(
                PlanPeriod(facts.blocks, event["step"] or 0, following["step"], peaks[-1] if peaks else None)
            )
    return periods


def _changed_plans(tables: RunTables) -> list[tuple[dict[str, Any], BlockFacts | None]]:
    """Return the plans of ESDG that differ from the previous plan; None where the run continued without one.

    A run records its plan again when another setting changes, and when it is resumed.
    """
    changed: list[tuple[dict[str, Any], BlockFacts | None]] = []
    for event, facts in tables.typed(BlockFacts):
        plan = facts if facts is not None and facts.redistributes else None
        if not changed or _key(plan) != _key(changed[-1][1]):
            changed.append((event, plan))
    return changed


def _key(plan: BlockFacts | None) -> tuple[Any, ...]:
    return () if plan is None else (plan.ranks, plan.row_ranks, *plan.bounds.tolist())


def peaks_by_step(tables: RunTables) -> tuple[Array, Array]:
    """Return the recent steps and their peak memory in bytes; NaN if not probed."""
    steps = np.unique(tables.rows("steps")["step"])
    peaks = np.full(len(steps), np.nan)
    for period in plan_periods(tables):
        if period.peak_bytes is not None:
            peaks[(steps >= period.first) & (steps < period.end)] = period.peak_bytes
    return steps, peaks
