"""Long series as few points that still show every peak, and the stretches in which a flag holds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
