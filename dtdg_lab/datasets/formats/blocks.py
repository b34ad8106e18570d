"""Columns of numbers side by side as one array."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.graphs.arrays import give_up


def side_by_side(rows: dict[str, Any], names: Iterable[str], count: int) -> NDArray[np.float32]:
    """The named columns as an array of shape (E, F), float32; each is taken out of ``rows`` once it is copied.

    Args:
        rows: columns of E entries.
        names: F of them.
        count: E.
    """
    names = list(names)
    block = np.empty((count, len(names)), dtype=np.float32)
    for place, name in enumerate(names):
        block[:, place] = rows.pop(name)
    return give_up(block)
