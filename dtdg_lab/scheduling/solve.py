"""A scheduler by name, run on group times: what simulation, replay and prediction have in common."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core import catalogue
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import Schedule
from dtdg_lab.scheduling.checks import checked_times

PSG = "psg"


def named(scheduler: str, per_rank: int) -> tuple[str, int]:
    """The catalogue's name of a scheduler and how many groups it gives a rank: ``psg`` is round_robin with one."""
    return ("round_robin", 1) if scheduler == PSG else (scheduler, per_rank)


def solve(
    scheduler: str,
    times_s: NDArray[np.float64],
    ranks: int,
    *,
    per_rank: int = 2,
    allreduce_s: float = 0.0,
    gap: float = 0.02,
    time_limit_s: float = 10.0,
    seed: int = 0,
    targets: int = 0,
) -> Schedule:
    """The schedule a scheduler makes, with the seconds it took.

    Args:
        scheduler: ``psg``, or a name of the catalogue's room ``scheduling``.
        times_s: (K,) seconds of each group.
        ranks: R.
        per_rank: most groups of a rank in an iteration; ``psg`` has one whatever is given.
        allreduce_s: seconds of the exchange that ends an iteration.
        gap: distance from a bound at which schedulers that search may stop.
        time_limit_s: after which they must.
        seed: of schedulers that draw lots.
        targets: that DyGNeX-G tries in an iteration; 0 for as many as take about a second. Given to schedulers whose
            catalogue entry names the option ``schedule_targets``.

    Raises:
        UnknownNameError: there is no such scheduler.
        NotAvailableError: it needs what is not installed.
    """
    name, most = named(scheduler, per_rank)
    entry = catalogue.entry("scheduling", name)
    run, more = entry.load(), {"targets": targets} if "schedule_targets" in entry.options else {}
    begun = time.perf_counter()
    made: Schedule = run(
        times_s, ranks, per_rank=most, allreduce_s=allreduce_s, gap=gap, time_limit_s=time_limit_s, seed=seed, **more
    )
    return replace(made, seconds=time.perf_counter() - begun)


def times_of(times_s: ArrayLike) -> NDArray[np.float64]:
    """(K,) seconds as an array; some groups may take no time, but not all.

    Raises:
        PlanError: there is none, one is negative or not finite, or all are 0.
    """
    times = checked_times(times_s)
    if not times.any():
        raise PlanError("all groups take 0 s: nothing to compare. Profile them, or predict their times.")
    return times
