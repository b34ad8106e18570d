"""Epoch times on other numbers of ranks, predicted from what one run measured, and how far off they were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import ConfigError, PlanError
from dtdg_lab.scheduling.bounds import lower_bound_s
from dtdg_lab.scheduling.solve import named, solve, times_of

_NOTHING: Mapping[int, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class EpochTime:
    """An epoch predicted for a number of ranks.

    Attributes:
        scheduler: whose schedule it is.
        ranks: R.
        iterations: of the epoch.
        predicted_s: seconds of the epoch.
        bound_s: seconds that no schedule can beat, by the same reckoning.
        allreduce_s: of each iteration, as assumed for R ranks.
        speedup: over one rank that computes all groups in as few iterations as can be.
        measured_s: of a run on R ranks; None where none was given.
        error: predicted over measured, minus 1; None without a measurement.
    """

    scheduler: str
    ranks: int
    iterations: int
    predicted_s: float
    bound_s: float
    allreduce_s: float
    speedup: float
    measured_s: float | None
    error: float | None

    def row(self) -> dict[str, Any]:
        """Plain values by name."""
        return asdict(self)


def predict_epochs(
    times_s: ArrayLike,
    *,
    measured_on: int,
    ranks: Sequence[int] = (1, 2, 4),
    scheduler: str = "best_of",
    per_rank: int = 2,
    allreduce_s: float | Mapping[int, float] = 0.0,
    step_s: float = 0.0,
    measured_s: Mapping[int, float] = _NOTHING,
    time_limit_s: float = 1.0,
    seed: int = 0,
) -> tuple[EpochTime, ...]:
    """Epoch times of ``ranks``, calibrated by a run: its group times, its all-reduce, and the rest of its iterations.

    A group is taken to need the same time on any number of ranks: true where each rank has cores or a GPU of its own,
    and not where ranks share them. Waiting follows from the schedule. An all-reduce measured on one number of ranks is
    carried over to others by the bytes of a ring, 2 (R - 1) / R of the gradients; its latency is not modelled.

    Args:
        times_s: own seconds of each group: (K,), or (M, K) from M epochs. With several the schedule is made from their
            medians and judged by each epoch's own times, so that the waiting which noise brings is counted.
        measured_on: ranks of the run that measured them.
        ranks: numbers of ranks to predict for.
        scheduler: ``psg`` or a name of the catalogue.
        per_rank: most groups of a rank in an iteration; ``psg`` has one.
        allreduce_s: seconds of an all-reduce without waiting, as measured on ``measured_on`` ranks; or by number of
            ranks, which then holds every number above 1 that is asked for.
        step_s: seconds of an iteration beside groups and all-reduce, such as the optimiser's.
        measured_s: ranks -> epoch seconds of runs to compare with.
        time_limit_s: for schedulers that search.
        seed: of schedulers that draw lots.

    Raises:
        PlanError: times are negative or not finite, or all are 0, or of another shape.
        ConfigError: a number of ranks is below 1, an all-reduce was measured on one rank or is missing or negative, or
            a measured epoch took no time.
    """
    epochs = _epochs(times_s)
    _check(ranks, measured_on, step_s, measured_s)
    typical = np.median(epochs, axis=0)
    most = named(scheduler, per_rank)[1]
    alone_s = float(epochs.sum(axis=1).mean()) + step_s * -(-len(typical) // most)
    found = []
    for count in ranks:
        exchange = _allreduce(allreduce_s, measured_on, count)
        end_s = exchange + step_s  # of an iteration
        plan = solve(scheduler, typical, count, per_rank=most, allreduce_s=end_s, time_limit_s=time_limit_s, seed=seed)
        predicted = float(np.mean([plan.makespan_s(each, allreduce_s=end_s) for each in epochs]))
        bounds = [lower_bound_s(each, count, per_rank=most, allreduce_s=end_s) for each in epochs]
        known = measured_s.get(count)
        error = None if known is None else predicted / known - 1
        iterations, bound = len(plan.assignment), float(np.mean(bounds))
        found.append(
            EpochTime(scheduler, count, iterations, predicted, bound, exchange, alone_s / predicted, known, error)
        )
    return tuple(found)


def _check(ranks: Sequence[int], measured_on: int, step_s: float, measured_s: Mapping[int, float]) -> None:
    if not ranks or min(*ranks, measured_on) < 1:
        raise ConfigError(f"epochs on {list(ranks)} ranks from a run on {measured_on}: all must be at least 1.")
    if any(not epoch_s > 0 for epoch_s in measured_s.values()):
        raise ConfigError(f"measured epochs {dict(measured_s)}: seconds must be above 0.")
    if not step_s >= 0:
        raise ConfigError(f"step_s={step_s}: seconds of an iteration must be at least 0.")


def _epochs(times_s: ArrayLike) -> NDArray[np.float64]:
    """(M, K) seconds of each group in each epoch."""
    given = np.asarray(times_s, dtype=np.float64)
    if given.ndim > 2 or not given.size:
        raise PlanError(f"times of groups have shape {given.shape}: (groups,) or (epochs, groups) is needed.")
    return np.stack([times_of(each) for each in np.atleast_2d(given)])


def _allreduce(given: float | Mapping[int, float], measured_on: int, ranks: int) -> float:
    """Seconds of an all-reduce among ``ranks``."""
    if ranks == 1:
        return 0.0
    if isinstance(given, Mapping):
        if ranks not in given:
            raise ConfigError(f"all-reduces are given for {sorted(given)} ranks, not for {ranks}: add it, or give one.")
        seconds = float(given[ranks])
    elif measured_on == 1 and given:
        raise ConfigError("one rank has no all-reduce to measure: give seconds by number of ranks, such as {2: 0.01}.")
    else:
        seconds = float(given) * ((ranks - 1) / ranks) / ((measured_on - 1) / measured_on) if given else 0.0
    if not 0 <= seconds < np.inf:
        raise ConfigError(f"an all-reduce of {seconds} s on {ranks} ranks: seconds must be at least 0.")
    return seconds
