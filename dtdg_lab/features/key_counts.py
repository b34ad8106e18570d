"""How often each key is asked for in some batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def key_counts(asked: Sequence[NDArray[np.int64]], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct keys (U,), ascending, and the number of batches (U,) that ask for each.

    Args:
        asked: keys of each batch, distinct within it, from 0 to ``size - 1``.
        size: of the key space.
    """
    whole = np.concatenate(asked) if asked else np.empty(0, dtype=np.int64)
    if size > max(8 * len(whole), 2**16):  # sorting what is asked then costs less than a counter for every key
        keys, counts = np.unique(whole, return_counts=True)
        return keys.astype(np.int64), counts.astype(np.int64)
    dense = np.bincount(whole, minlength=size)
    keys = np.flatnonzero(dense)
    return keys, dense[keys].astype(np.int64)
