"""Neighbouring groups to one rank: what BLAD pipelines."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import ArrayLike

from dtdg_lab.core.plans import Schedule
from dtdg_lab.scheduling.checks import checked
from dtdg_lab.scheduling.slots import finished


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
    """Deal groups 0, 1, 2, ... to ranks, ``per_rank`` neighbours to each before the next one has its turn.

    Args:
        times_s: (K,) seconds of each group; only their number matters to the rule.
        ranks: R.
        per_rank: L, most groups of a rank in an iteration; BLAD's two processes a GPU have 2.
        allreduce_s: seconds of an exchange; only the gap reads it.
        gap: not used by this rule.
        time_limit_s: not used by this rule.
        seed: not used by this rule: nothing is drawn.
        targets: not used by this rule.

    Returns:
        ceil(K / (R L)) iterations; in the last one some ranks may be idle.

    Raises:
        PlanError: a time is negative or not finite, or there is none.
        ConfigError: a knob has a value that is not allowed.

    References: DyGNeX section 5.1 (BLAD trains two consecutive snapshot groups on a GPU).
    """
    since = time.perf_counter()
    problem = checked(
        times_s,
        ranks,
        per_rank=per_rank,
        allreduce_s=allreduce_s,
        gap=gap,
        time_limit_s=time_limit_s,
        seed=seed,
        targets=targets,
    )
    in_turn = np.minimum(np.arange(problem.fewest * problem.share), problem.groups)
    return finished(in_turn.reshape(problem.fewest, problem.ranks, problem.per_rank), problem, since=since)
