"""Epoch times on other numbers of ranks, predicted from the measurements of one run, and their errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import ConfigError, PlanError
from dtdg_lab.systems.snapshot_groups.schedulers.base import named, solve, times_of
from dtdg_lab.systems.snapshot_groups.schedulers.bounds import lower_bound_s

_NOTHING: Mapping[int, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class EpochTime:
    """Predicted epoch on a number of ranks.

    Attributes:
        scheduler: name of the scheduler.
        ranks: R.
        iterations: of the epoch.
        predicted_s: seconds of the epoch.
        bound_s: lower bound of these seconds by the same model.
        allreduce_s: of each iteration, as assumed for R ranks.
        speedup: relative to one rank that computes all groups in the fewest possible iterations.
        measured_s: of a run on R ranks; None if none was given.
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
        """Return plain values by name."""
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
    """Predict epoch times on ``ranks`` from a run's group times, its all-reduce, and the rest of its iterations.

    A group is assumed to take the same time on any number of ranks: true if each rank has cores or a GPU of its own,
    but not if ranks share them. Waiting follows from the schedule. An all-reduce measured on one number of ranks is
    scaled to others by the bytes of a ring, 2 (R - 1) / R of the gradients; its latency is not modelled.

    Args:
        times_s: compute seconds of each group: (K,), or (M, K) from M epochs. With several epochs, the schedule is made
            from their medians and evaluated on each epoch's own times, so that waiting caused by noise is counted.
        measured_on: ranks of the run that measured them.
        ranks: numbers of ranks to predict for.
        scheduler: ``psg`` or a name of the catalogue.
        per_rank: maximum number of groups per rank and iteration; ``psg`` has one.
        allreduce_s: seconds of an all-reduce without waiting, as measured on ``measured_on`` ranks; or by number of
            ranks, for every requested number above 1.
        step_s: seconds of an iteration apart from groups and all-reduce, such as the optimiser's.
        measured_s: ranks -> epoch seconds of runs to compare with.
        time_limit_s: for schedulers that search.
        seed: for randomised schedulers.

    Raises:
        PlanError: times are negative or not finite, or all are 0, or have the wrong shape.
        ConfigError: a number of ranks is below 1, an all-reduce was measured on one rank or is missing or negative, or
            a measured epoch took no time.
    """
    epochs = _epochs(times_s)
    _check(ranks, measured_on, step_s, measured_s)
    typical = np.median(epochs, axis=0)
    per_rank = named(scheduler, per_rank)[1]
    one_rank_s = float(epochs.sum(axis=1).mean()) + step_s * -(-len(typical) // per_rank)
    predictions = []
    for count in ranks:
        exchange_s = _allreduce(allreduce_s, measured_on, count)
        end_s = exchange_s + step_s  # of an iteration
        settings: dict[str, Any] = {"per_rank": per_rank, "allreduce_s": end_s}
        plan = solve(scheduler, typical, count, time_limit_s=time_limit_s, seed=seed, **settings)
        predicted_s = float(np.mean([plan.makespan_s(times, allreduce_s=end_s) for times in epochs]))
        epoch_s = measured_s.get(count)
        predictions.append(
            EpochTime(
                scheduler=scheduler,
                ranks=count,
                iterations=len(plan.assignment),
                predicted_s=predicted_s,
                bound_s=float(np.mean([lower_bound_s(times, count, **settings) for times in epochs])),
                allreduce_s=exchange_s,
                speedup=one_rank_s / predicted_s,
                measured_s=epoch_s,
                error=None if epoch_s is None else predicted_s / epoch_s - 1,
            )
        )
    return tuple(predictions)


def _check(ranks: Sequence[int], measured_on: int, step_s: float, measured_s: Mapping[int, float]) -> None:
    if not ranks or min(*ranks, measured_on) < 1:
        raise ConfigError(f"ranks={list(ranks)}, measured_on={measured_on}: all must be at least 1.")
    if any(not epoch_s > 0 for epoch_s in measured_s.values()):
        raise ConfigError(f"measured epochs {dict(measured_s)}: seconds must be above 0.")
    if not step_s >= 0:
        raise ConfigError(f"step_s={step_s}: seconds of an iteration must be at least 0.")


def _epochs(times_s: ArrayLike) -> NDArray[np.float64]:
    """Return (M, K) seconds of each group in each epoch."""
    times = np.asarray(times_s, dtype=np.float64)
    if times.ndim > 2 or not times.size:
        raise PlanError(f"group times have shape {times.shape}: (groups,) or (epochs, groups) is needed.")
    return np.stack([times_of(epoch) for epoch in np.atleast_2d(times)])


def _allreduce(measured: float | Mapping[int, float], measured_on: int, ranks: int) -> float:
    """Return the seconds of an all-reduce among ``ranks``."""
    if ranks == 1:
        return 0.0
    if isinstance(measured, Mapping):
        if ranks not in measured:
            raise ConfigError(
                f"all-reduces are given for {sorted(measured)} ranks, not for {ranks}: add it, or give one."
            )
        seconds = float(measured[ranks])
    elif measured_on == 1 and measured:
        raise ConfigError("one rank has no all-reduce to measure: give seconds by number of ranks, such as {2: 0.01}.")
    else:
        seconds = float(measured) * ((ranks - 1) / ranks) / ((measured_on - 1) / measured_on) if measured else 0.0
    if not 0 <= seconds < np.inf:
        raise ConfigError(f"an all-reduce of {seconds} s on {ranks} ranks: seconds must be at least 0.")
    return seconds
