"""The end of a long table: reading all of it at every update would take long."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dtdg_lab.records.rows import Array, Rows


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
