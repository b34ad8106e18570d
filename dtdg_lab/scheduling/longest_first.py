"""Longest groups first: each iteration takes the longest groups left, so that what waits together is alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.plans import Schedule


def schedule(times_s: NDArray[np.float64], parts: int, *, per_rank: int = 1, allreduce_s: float = 0.0) -> Schedule:
    """Sort groups by time, cut into iterations of P per_rank, and give each to the least loaded part.

    Args:
        times_s: (K,) predicted or measured seconds of each group.
        parts: P, parts to deal to.
        per_rank: most groups of a part in an iteration.
        allreduce_s: seconds of an exchange; the number of iterations is fixed by ``per_rank``, so it is not used.

    Returns:
        ceil(K / (P per_rank)) iterations. Ties go to the lower group and the lower part.

    References: Graham 1969 (longest processing time first), applied to each iteration, which is what waits together.
    """
    order = np.argsort(-np.asarray(times_s), kind="stable")
    share = parts * per_rank
    rows = []
    for first in range(0, len(order), share):
        dealt: list[list[int]] = [[] for _ in range(parts)]
        load = np.zeros(parts)
        for group in order[first : first + share]:
            open_parts = [part for part in range(parts) if len(dealt[part]) < per_rank]
            part = min(open_parts, key=lambda part: (load[part], part))
            dealt[part].append(int(group))
            load[part] += times_s[group]
        rows.append(tuple(tuple(part) for part in dealt))
    return Schedule(tuple(rows), len(order))
