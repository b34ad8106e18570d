"""Parts that a partitioner left empty get a vertex each: every part must own one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.partition.assigned import Assigned


def without_empty_parts(
    owner: NDArray[Any], parts: int, weights: NDArray[Any], *, groups: NDArray[np.int32] | None = None, notes: str = ""
) -> Assigned:
    """Give each empty part the lightest vertex of the part that then has most vertices; ties go to the lower number.

    Args:
        owner: (N,) the part of each vertex, N >= P.
        parts: P.
        weights: (N,) what a vertex weighs, in any unit.
        groups: (N,) groups to pass on.
        notes: words to pass on; how many parts were filled is added.

    Returns:
        owners under which every part has a vertex.
    """
    owner = np.array(owner, dtype=np.int32)
    counts = np.bincount(owner, minlength=parts)
    empty = np.flatnonzero(counts == 0)
    for part in empty:
        largest = int(counts.argmax())
        own = np.flatnonzero(owner == largest)
        owner[own[np.argmin(weights[own])]] = part
        counts[largest] -= 1
        counts[part] = 1
    words = [notes] if notes else []
    if len(empty):
        words.append(f"{len(empty)} empty {'part was' if len(empty) == 1 else 'parts were'} given a vertex")
    return Assigned(owner, groups, "; ".join(words))
