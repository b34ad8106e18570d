"""Rows replaced by a resume: the next attempt repeats the steps after the checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dtdg_lab.records.rows import Array, Rows

SPENT = ("memory", "energy", "phase_energy")  # rows of these tables are never replaced: they were really spent
BEFORE_STEP = {"evaluations": "split", "events": "kind"}  # made before their step, so kept if a resume begins there
Starts = Mapping[int, Mapping[int, int]]  # attempt -> rank -> first step


def first_replaced(starts: Starts, rank: int, attempt: int) -> float:
    """Return the first step repeated by a later attempt; of any rank if this one has not repeated a step yet."""
    later = (steps for number, steps in starts.items() if number > attempt and steps)
    return min((steps.get(rank, min(steps.values())) for steps in later), default=math.inf)


def without_replaced(table: str, rows: Rows, starts: Starts) -> Rows:
    """Return the rows of a table that no later attempt has replaced."""
    if len(starts) < 2 or table in SPENT or "step" not in rows or not len(rows):
        return rows
    return rows.where(valid_mask(table, rows, starts))


def valid_mask(table: str, rows: Any, starts: Starts) -> Array:
    """Return the mask of rows that no later attempt has replaced.

    Args:
        table: name of the table.
        rows: columns ``rank``, ``attempt`` and ``step`` as arrays.
        starts: first steps of attempts.
    """
    ranks, attempts, step = (np.asarray(rows[name]) for name in ("rank", "attempt", "step"))
    pairs, inverse = np.unique(np.stack([ranks, attempts]), axis=1, return_inverse=True)
    limit = np.array([first_replaced(starts, *pair) for pair in pairs.T.tolist()])[inverse.ravel()]
    mask: Array = ~(step >= limit)  # rows without a step are never repeated
    if table in BEFORE_STEP:
        values = np.asarray(rows[BEFORE_STEP[table]])
        facts = [*zip(ranks.tolist(), step.tolist(), values.tolist(), strict=True)]
        newest: dict[Any, int] = {}
        for fact, attempt in zip(facts, attempts.tolist(), strict=True):
            newest[fact] = max(attempt, newest.get(fact, 0))
        is_newest = [newest[fact] == attempt for fact, attempt in zip(facts, attempts.tolist(), strict=True)]
        mask |= (step == limit) & np.array(is_newest)
    return mask
