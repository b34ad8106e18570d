"""Integer weights whose sum fits into 32 bits, as partitioning libraries require."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_SUM = 1 << 30  # half of the 32-bit range, which leaves headroom for sums of coarser levels


def fitting(weights: NDArray[Any]) -> NDArray[np.int64]:
    """Return the weights as integers of at least 1, scaled down if their sum would exceed 2^30.

    Args:
        weights: (K,) at least 0, K at most 2^29.
    """
    weights = np.asarray(weights, np.float64)
    total = weights.sum()
    scale = 1.0 if total <= MAX_SUM else (MAX_SUM - len(weights)) / total
    return np.maximum(1, np.floor(weights * scale + 0.5)).astype(np.int64)
