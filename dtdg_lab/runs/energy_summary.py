"""Energy of a run: by phase, by epoch, in stalls, and per gain in loss. Unknown is None, never 0."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.energy.phases import STALLED
from dtdg_lab.energy.total import GPU, PROCESSOR, EnergyTotal

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Spent:
    """Energy of a part of a run.

    Attributes:
        joules: sum of the known ones; None if none are known.
        seconds: its duration, summed over ranks.
        coverage: share of these seconds with known energy.
        sources: origin of the joules: ``counter``, ``polled``, ``modelled``.
    """

    joules: float | None
    seconds: float
    coverage: float
    sources: tuple[str, ...]


def joules_per_loss(joules: float | None, evaluations: pd.DataFrame) -> float | None:
    """Return joules per unit of decrease in the loss of the training split.

    Args:
        joules: of the whole run.
        evaluations: that table.

    Returns:
        None if the joules are unknown, or the loss was evaluated less than twice or did not decrease.
    """
    training = evaluations[evaluations["split"] == "train"].sort_values("time_ns", kind="stable")
    losses = training["loss"].astype(float).dropna()
    if joules is None or len(losses) < 2 or losses.iloc[-1] >= losses.iloc[0]:
        return None
    return joules / float(losses.iloc[0] - losses.iloc[-1])


def energy_facts(
    phase_energy: pd.DataFrame,
    total: EnergyTotal,
    evaluations: pd.DataFrame,
    *,
    finished: Collection[int] | None = None,
    congested: Collection[int] | None = None,
) -> dict[str, Any]:
    """Return the numbers of energy; each is None if it is unknown.

    Args:
        phase_energy: that table, of all attempts.
        total: of the run.
        evaluations: that table.
        finished: epochs that ended; by default all that have joules.
        congested: those of them in which a link was slow; None if none ever was.
    """
    total_spent, waited = spent(phase_energy), spent(phase_energy[phase_energy["phase"].isin(STALLED)]).joules
    if total_spent.joules is not None and not phase_energy["phase"].isin(STALLED).any():
        waited = 0.0  # known: no rank ever waited
    joules = phase_energy["joules"].astype(float)
    by_phase, by_epoch = (
        joules.groupby(phase_energy[name], sort=False).sum(min_count=1).dropna() for name in ("phase", "epoch")
    )
    counted = None if finished is None else set(finished)
    of_epochs = {int(epoch): value for epoch, value in by_epoch.items() if counted is None or epoch in counted}
    by_source, of_gpus, of_processors = total.joules(), total.joules(GPU), total.joules(PROCESSOR)
    return {
        "energy_j": by_source or None,
        "total_j": sum(by_source.values()) if by_source else None,
        "energy_coverage": total.coverage(),
        "phase_j": by_phase.to_dict() or None,
        "stall_j": waited,
        "stall_share": waited / total_spent.joules if waited is not None and total_spent.joules else None,
        **{f"epoch_j{name}": value for name, value in over_epochs(of_epochs, congested).items()},
        "joules_per_loss": joules_per_loss(total_spent.joules, evaluations),
        "phase_energy_coverage": total_spent.coverage if len(phase_energy) else None,
        "gpu_j": sum(of_gpus.values()) if of_gpus else None,
        "processor_j": sum(of_processors.values()) if of_processors else None,
    }


def over_epochs(values: Mapping[int, float], congested: Collection[int] | None) -> dict[str, float | None]:
    """Return statistics over epochs: the mean, ``_spread``, ``_median``, ``_clean`` and ``_congested``.

    Args:
        values: of every epoch that counts.
        congested: epochs in which a link was slow; None if none ever was: then both means are None.

    Returns:
        The mean; the standard deviation, None for fewer than two epochs; the median; and the means of the epochs
        without
        and with a slow link. None if no epoch counts.
    """
    all_values = list(values.values())
    clean = [value for epoch, value in values.items() if congested is not None and epoch not in congested]
    slow = [value for epoch, value in values.items() if congested is not None and epoch in congested]
    return {
        "": fmean(all_values) if all_values else None,
        "_spread": float(np.std(all_values, ddof=1)) if len(all_values) > 1 else None,
        "_median": median(all_values) if all_values else None,
        "_clean": fmean(clean) if clean else None,
        "_congested": fmean(slow) if slow else None,
    }


def spent(rows: pd.DataFrame) -> Spent:
    """Sum the energy of rows of ``phase_energy``; a phase's seconds count once, however many sources it has."""
    has_joules, seconds = rows["joules"].notna(), rows["seconds"].astype(float)
    weight_s, once = seconds.sum(), rows
    if rows["source"].nunique(dropna=False) > 1:
        once = rows.drop_duplicates(["rank", "time_ns", "phase"], keep="last")
    return Spent(
        joules=finite_number(rows["joules"].astype(float).sum(min_count=1)),
        seconds=float(once["seconds"].sum()),
        coverage=float((seconds * rows["coverage"].astype(float)).sum() / weight_s) if weight_s > 0 else 0.0,
        sources=tuple(sorted(map(str, rows.loc[has_joules, "source"].unique()))),
    )


def finite_number(value: Any) -> float | None:
    """Return a finite float, or None."""
    return None if value is None or not math.isfinite(value) else float(value)
