"""Weights as the libraries take them: whole numbers whose sum fits into 32 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST = 1 << 30  # half of what 32 bits hold: room for the sums of coarser levels


def fitting(weights: NDArray[Any]) -> NDArray[np.int64]:
    """The weights as whole numbers of at least 1, scaled down where their sum would be above 2^30.

    Args:
        weights: (K,) at least 0, K at most 2^29.
    """
    weights = np.asarray(weights, np.float64)
    total = weights.sum()
    scale = 1.0 if total <= MOST else (MOST - len(weights)) / total
    return np.maximum(1, np.floor(weights * scale + 0.5)).astype(np.int64)
