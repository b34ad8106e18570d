"""Which vertices train, validate and test where classes never change: otherwise what is tested has been told before."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.datasets.tables import SPLIT_TEST, SPLIT_TRAIN, SPLIT_VALIDATION

HELD_BACK = 0.2  # of the vertices validate, and as many test


def random_parts(draws: np.random.Generator, count: int) -> NDArray[np.int8]:
    """The part of each of ``count`` things, shape (count,): a fifth validates, a fifth tests, of three or more one."""
    held = max(round(HELD_BACK * count), 1)
    parts = np.full(count, SPLIT_TRAIN, dtype=np.int8)
    order = draws.permutation(count)
    parts[order[:held]], parts[order[held : 2 * held]] = SPLIT_VALIDATION, SPLIT_TEST
    return parts
