"""The paper's choice: the integer programme for few groups, the greedy algorithm for many."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from dtdg_lab.core.plans import Schedule
from dtdg_lab.systems.snapshot_groups.schedulers import dygnex as dygnex_greedy
from dtdg_lab.systems.snapshot_groups.schedulers import dygnex_ilp

ILP_BELOW = 100  # groups


def schedule(
    times_s: ArrayLike,
    ranks: int,
    *,
    per_rank: int = 2,
    allreduce_s: float = 0.0,
    gap: float = 0.02,
    time_limit_s: float = 10.0,
    seed: int = 0,
    targets: int = 0,
) -> Schedule:
    """DyGNeX-L below 100 groups, DyGNeX-G from 100; the notes tell which.

    Args:
        times_s: (K,) predicted or measured seconds of each group.
        ranks: R.
        per_rank: L, most groups of a rank in an iteration.
        allreduce_s: seconds of the exchange that ends an iteration; DyGNeX-L weighs it.
        gap: where DyGNeX-L stops.
        time_limit_s: seconds that DyGNeX-L may take.
        seed: of DyGNeX-L.
        targets: that DyGNeX-G tries in an iteration; 0 for as many as take about a second.

    Raises:
        PlanError: a time is negative or not finite, or there is none.
        ConfigError: a knob has a value that is not allowed.
        NotAvailableError: fewer than 100 groups, and OR-tools is not installed; or more, and numba is not.

    References: DyGNeX appendix G.
    """
    few = np.size(times_s) < ILP_BELOW
    chosen = dygnex_ilp.schedule if few else dygnex_greedy.schedule
    plan = chosen(
        times_s,
        ranks,
        per_rank=per_rank,
        allreduce_s=allreduce_s,
        gap=gap,
        time_limit_s=time_limit_s,
        seed=seed,
        targets=targets,
    )
    why = f"DyGNeX-L, below {ILP_BELOW} groups." if few else f"DyGNeX-G, from {ILP_BELOW} groups."
    return dataclasses.replace(plan, notes=f"{why} {plan.notes}".strip())
