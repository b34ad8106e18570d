"""Groups in time order, dealt to parts in turn: the baseline PSG."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.plans import Schedule


def schedule(times_s: NDArray[np.float64], parts: int, *, per_rank: int = 1, allreduce_s: float = 0.0) -> Schedule:
    """Deal groups 0, 1, 2, ... to parts in turn, ``per_rank`` rounds an iteration.

    Args:
        times_s: (K,) seconds of each group; only their number matters here.
        parts: P, parts to deal to.
        per_rank: most groups of a part in an iteration.
        allreduce_s: seconds of an exchange; not used by this rule.

    Returns:
        ceil(K / (P per_rank)) iterations; in the last one some parts may be idle.

    References: DyGNeX section 2.3 (PSG, one group a GPU).
    """
    groups, share = len(times_s), parts * per_rank
    rows = [range(first, min(first + share, groups)) for first in range(0, groups, share)]
    return Schedule(tuple(tuple(tuple(row[part::parts]) for part in range(parts)) for row in rows), groups)
