"""Mixing of 64-bit numbers: neighbouring numbers become far apart, the same way on every machine."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def mixed(numbers: NDArray[Any], key: int) -> NDArray[np.uint64]:
    """Pseudo-random 64-bit numbers, one for each given number: a bijection that ``key`` chooses.

    Args:
        numbers: whole numbers of any shape.
        key: the lowest 64 bits count.

    References: Steele, Lea, Flood 2014 (SplitMix64), its output function.
    """
    mask = (1 << 64) - 1
    state = np.asarray(numbers).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state = state + np.uint64(key & mask)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
