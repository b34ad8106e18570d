"""Effects of changes: means of the steps before and after each, where they differ clearly."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from dtdg_lab.records.rows import Array
from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization.changes.log import RequestedChange, requested_changes
from dtdg_lab.visualization.numbers import seconds_text
from dtdg_lab.visualization.tiles import Effect

SIDE = 50  # steps before and after a change, at most
BLOCK = 10  # steps of a mean whose range is compared
FIRST = 5  # steps of a run that are slower than others
TOO_FEW, UNCLEAR, FORGOTTEN = "too few steps", "no clear change", "too long ago"
NOT_APPLIED = ""


@dataclass(frozen=True, slots=True)
class MeasuredEffect:
    """A number of a run before and after a change.

    Attributes:
        text: both, or why there are none; empty for a change that was not applied.
        is_final: whether later steps will not change it.
    """

    text: str
    is_final: bool = False


def step_times(tables: RunTables) -> tuple[Array, Array]:
    """Return recent steps and their seconds: means over ranks, or of rank 0 where each rank counts its own steps."""
    rows = tables.rows("steps")
    if tables.own_steps:
        rows = rows.where(rows["rank"] == 0)
    steps, indices = np.unique(rows["step"], return_inverse=True)
    return steps, np.bincount(indices, rows["time_s"], len(steps)) / np.bincount(indices, minlength=len(steps))


STEP_TIME = Effect("Step time", seconds_text, step_times)


def effect_of(change: RequestedChange, tables: RunTables, effect: Effect = STEP_TIME) -> MeasuredEffect:
    """Return what a change did to a number of its run.

    Means are of up to 50 steps on each side, never across another change or a resume. They are shown only if the ranges
    of their 10-step means do not overlap.
    """
    if change.outcome != "applied":
        return MeasuredEffect(NOT_APPLIED, is_final=change.outcome in ("refused", "not applied"))
    steps, values = tables.once(("effect", effect.label), lambda: effect.values(tables))
    bounds = _bounds(tables)
    begin = max([change.step - SIDE, FIRST, *(bound for bound in bounds if bound < change.step)])
    end = min([change.step + SIDE, *(bound for bound in bounds if bound > change.step)])
    is_final = len(steps) > 0 and bool(steps[-1] >= end - 1)
    if len(steps) and change.step < steps[0]:
        return MeasuredEffect(FORGOTTEN, is_final=True)
    before = values[(steps >= begin) & (steps < change.step)]
    after = values[(steps >= change.step) & (steps < end)]
    if min(len(before), len(after)) < BLOCK:
        return MeasuredEffect(TOO_FEW, is_final=is_final)
    if not _is_clear(_block_means(before), _block_means(after)):
        return MeasuredEffect(UNCLEAR, is_final=is_final)
    before_text, after_text = (effect.text(float(np.nanmean(part))) for part in (before, after))
    return MeasuredEffect(f"{before_text} → {after_text}", is_final)


def _bounds(tables: RunTables) -> list[float]:
    """Return the steps at which changes and resumes took effect."""
    changes = [change.step for change in requested_changes(tables) if change.outcome == "applied"]
    return [*changes, *(steps.get(0, inf) for steps, _ in tables.resumes)]


def _block_means(values: Array) -> Array:
    blocks = values[: len(values) // BLOCK * BLOCK].astype(np.float64).reshape(-1, BLOCK)
    means: Array = np.nanmean(blocks[~np.isnan(blocks).all(axis=1)], axis=1)
    return means


def _is_clear(before: Array, after: Array) -> bool:
    """Return whether two ranges do not overlap; of unknown values they do."""
    if not len(before) or not len(after):
        return False
    return bool(before.max() < after.min() or before.min() > after.max())
