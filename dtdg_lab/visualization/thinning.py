"""Long series as few points that still show every peak; the end of a long table; stretches in which a flag holds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.records.rows import Array, Rows

MOST = 1000


def shown_indices(values: NDArray[np.floating], limit: int = MOST) -> NDArray[np.int64]:
    """Return which of T values to draw: all, or the smallest and largest of each of ``limit`` / 2 stretches.

    The first and the last are always drawn; NaN counts as neither small nor large.

    Args:
        values: shape (T,).
        limit: about how many to draw.

    Returns:
        Increasing indices, at most ``limit`` + 2.
    """
    count = len(values)
    if count <= limit:
        return np.arange(count)
    bounds = np.linspace(0, count, limit // 2 + 1).astype(np.int64)
    low, high = (np.where(np.isnan(values), fill, values) for fill in (np.inf, -np.inf))
    length = int(np.diff(bounds).max())
    # one row a stretch; places after its end repeat its last value
    places = np.minimum(bounds[:-1, None] + np.arange(length), bounds[1:, None] - 1)
    rows = np.arange(len(places))
    extremes = (places[rows, low[places].argmin(axis=1)], places[rows, high[places].argmax(axis=1)])
    return np.unique(np.concatenate([*extremes, [0, count - 1]]))


def runs_of(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the stretches in which ``flags`` holds, as (first, last) indices."""
    steps = np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8))
    starts, ends = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1) - 1
    return [(int(start), int(end)) for start, end in zip(starts, ends, strict=True)]


def newest_rows(rows: Rows, count: int, is_enough: Callable[[Rows], bool]) -> Rows:
    """Return at least the newest ``count`` rows, and as many more as are needed.

    Args:
        rows: in the order in which they arrived.
        count: of the first try; each further one takes twice as many.
        is_enough: whether these rows are all that are needed.
    """
    while count < len(rows):
        tail = rows.where(slice(-count, None))
        if is_enough(tail):
            return tail
        count *= 2
    return rows


def least_by_rank(rows: Rows, column: str, ranks: int) -> Array:
    """Return the least value of a column of whole numbers for each rank, (R,); of a rank without rows the largest."""
    lowest = np.full(ranks, np.iinfo(np.int64).max)
    np.minimum.at(lowest, rows["rank"].astype(np.int64), rows[column].astype(np.int64))
    return lowest
