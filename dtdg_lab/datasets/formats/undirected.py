"""Undirected links as edges: each in both directions, without repeats and links of a vertex to itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.graphs.arrays import give_up


def both_directions(src: NDArray[np.int64], dst: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sources and targets of the distinct edges, 2E in all, sorted by source, then target.

    Args:
        src: shape (K,), one end of each link, 0 .. 2^31 - 1; a link may be there in one direction or in both.
        dst: shape (K,), the other end.
    """
    apart = src != dst
    src, dst = src[apart], dst[apart]
    keys = np.unique(np.concatenate([src << 32 | dst, dst << 32 | src]))
    return give_up(keys >> 32), give_up(keys & (2**32 - 1))
