"""Where a run's joules went: by phase and rank, by epoch, standing still, and for what gain. Unknown is None, never 0.

The functions take rows of record tables as mappings with the column ``rank``, such as ``frame.to_dict("records")``.
Joules of steps that were lost and computed again were spent: hand in the rows of all attempts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from types import MappingProxyType
from typing import Any

from dtdg_lab.energy.phase_energy import STALLED
from dtdg_lab.energy.total import GPU, PROCESSOR, EnergyTotal, total_of

MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "phase_j": "joules by phase of all ranks; idle is between steps, stall standing still for features",
        "stall_j": "joules of the phases wait and stall: spent while ranks did nothing but wait",
        "stall_share": "of the joules by phase",
        "energy_j": "joules of the run by source: the sum over nodes and devices, each once, of all attempts, "
        "evaluations among them",
        "total_j": "of all sources together",
        "energy_coverage": "how the energy of all devices' time is known: shares read, modelled and unknown; every GPU "
        "and the processors of every node weigh the same",
        "epoch_j": "joules by phase of a finished epoch, all ranks, with its evaluations, mean over epochs; the first, "
        "which warms up, is in it",
        "epoch_j_spread": "standard deviation over epochs",
        "epoch_j_median": "median over epochs: what happens in fewer than half of them is not in it",
        "epoch_j_clean": "mean over epochs without a slow link; empty where no link ever was slow",
        "epoch_j_congested": "mean over epochs with a slow link in some step",
        "joules_per_loss": "joules by phase of the run for each unit that the training loss fell between its first and "
        "last evaluation; empty where it did not fall",
        "phase_energy_coverage": "share of the time for which energy by phase is known",
        "gpu_j": "joules of all GPUs",
        "processor_j": "joules of all processors: of a whole node where it is read, else the shares of its ranks",
    }
)

Rows = Iterable[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Spent:
    """Energy of something.

    Attributes:
        joules: those known; None where none are.
        seconds: that it lasted, summed over ranks.
        coverage: share of these seconds for which energy is known.
        sources: how the joules come about: ``counter``, ``polled``, ``modelled``.
    """

    joules: float | None
    seconds: float
    coverage: float
    sources: tuple[str, ...]


def phase_joules(rows: Rows) -> dict[int, dict[str, Spent]]:
    """Energy by rank and phase, from rows of ``phase_energy``."""
    by_rank: dict[int, dict[str, list[Mapping[str, Any]]]] = {}
    for row in rows:
        by_rank.setdefault(int(row["rank"]), {}).setdefault(str(row["phase"]), []).append(row)
    return {rank: {phase: spent(own) for phase, own in phases.items()} for rank, phases in sorted(by_rank.items())}


def epoch_joules(rows: Rows) -> dict[int, Spent]:
    """Energy by epoch, all ranks and phases, from rows of ``phase_energy``."""
    by_epoch: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_epoch.setdefault(int(row["epoch"]), []).append(row)
    return {epoch: spent(own) for epoch, own in sorted(by_epoch.items())}


def stall_energy(rows: Rows) -> Spent:
    """Energy of standing still, for other ranks or for features, from rows of ``phase_energy``."""
    return spent([row for row in rows if row["phase"] in STALLED])


def joules_per_loss(joules: float | None, evaluations: Rows, *, split: str = "train") -> float | None:
    """Joules for each unit of loss that was gained.

    Args:
        joules: of the whole run.
        evaluations: rows of that table.
        split: whose loss.

    Returns:
        None where the joules are unknown, or the loss was evaluated less than twice or did not fall.
    """
    told = [row for row in evaluations if row["split"] == split]
    told.sort(key=lambda row: row["time_ns"])
    losses = [loss for loss in (_number(row["loss"]) for row in told) if loss is not None]
    if joules is None or len(losses) < 2 or losses[-1] >= losses[0]:
        return None
    return joules / (losses[0] - losses[-1])


def device_joules(rows: Rows) -> dict[str, dict[str, float]]:
    """Joules by device, ``gpu`` and ``processor``, and source, from rows of ``energy``; the unknown is not in it.

    Every device counts once; see :func:`dtdg_lab.energy.total.counted`.
    """
    total = total_of(rows)
    return {device: joules for device in (GPU, PROCESSOR) if (joules := total.joules(device))}


def energy_facts(
    phase_energy: Rows,
    total: EnergyTotal,
    evaluations: Rows,
    *,
    finished: Collection[int] | None = None,
    congested: Collection[int] | None = None,
) -> dict[str, Any]:
    """The numbers of ``MEANINGS``; each is None where it is unknown.

    Args:
        phase_energy: rows of that table, of all attempts.
        total: of the run.
        evaluations: rows of that table.
        finished: epochs that ended; all that have joules where not given.
        congested: of them, those in which a link was slow; None where none ever was.
    """
    phases = list(phase_energy)
    by_phase: dict[str, list[Mapping[str, Any]]] = {}
    for row in phases:
        by_phase.setdefault(str(row["phase"]), []).append(row)
    whole, still = spent(phases), stall_energy(phases)
    of_epochs = {
        epoch: each.joules
        for epoch, each in epoch_joules(phases).items()
        if each.joules is not None and (finished is None or epoch in finished)
    }
    by_source, of_gpus, of_processors = total.joules(), total.joules(GPU), total.joules(PROCESSOR)
    known = {phase: spent(rows).joules for phase, rows in by_phase.items()}
    waited = still.joules
    if whole.joules is not None and not by_phase.keys() & set(STALLED):
        waited = 0.0  # nobody ever waited: that is known
    return {
        "energy_j": by_source or None,
        "total_j": sum(by_source.values()) if by_source else None,
        "energy_coverage": total.coverage(),
        "phase_j": {phase: joules for phase, joules in known.items() if joules is not None} or None,
        "stall_j": waited,
        "stall_share": waited / whole.joules if waited is not None and whole.joules else None,
        **{f"epoch_j{name}": value for name, value in over_epochs(of_epochs, congested).items()},
        "joules_per_loss": joules_per_loss(whole.joules, evaluations),
        "phase_energy_coverage": whole.coverage if phases else None,
        "gpu_j": sum(of_gpus.values()) if of_gpus else None,
        "processor_j": sum(of_processors.values()) if of_processors else None,
    }


def over_epochs(values: Mapping[int, float], congested: Collection[int] | None) -> dict[str, float | None]:
    """What epochs took: the mean under an empty name, ``_spread``, ``_median``, ``_clean`` and ``_congested``.

    Args:
        values: of every epoch that counts.
        congested: epochs in which a link was slow; None where none ever was: then both parts are None.

    Returns:
        The mean; the standard deviation, None of fewer than two epochs; the median; and the means of the epochs without
        and with a slow link. None where no epoch counts.
    """
    known = list(values.values())
    clean = [value for epoch, value in values.items() if congested is not None and epoch not in congested]
    slow = [value for epoch, value in values.items() if congested is not None and epoch in congested]
    return {
        "": fmean(known) if known else None,
        "_spread": stdev(known) if len(known) > 1 else None,
        "_median": median(known) if known else None,
        "_clean": fmean(clean) if clean else None,
        "_congested": fmean(slow) if slow else None,
    }


def spent(rows: Sequence[Mapping[str, Any]]) -> Spent:
    """Energy of rows of ``phase_energy`` together; a phase's seconds count once, whatever tell of its energy."""
    joules = [number for number in (_number(row["joules"]) for row in rows) if number is not None]
    told_s: dict[tuple[Any, ...], float] = {}
    for row in rows:
        told_s[row["rank"], row["time_ns"], row["phase"]] = float(row["seconds"])
    weight_s = sum(float(row["seconds"]) for row in rows)
    covered_s = sum(float(row["seconds"]) * float(row["coverage"]) for row in rows)
    return Spent(
        joules=sum(joules) if joules else None,
        seconds=sum(told_s.values()),
        coverage=covered_s / weight_s if weight_s > 0 else 0.0,
        sources=tuple(sorted({str(row["source"]) for row in rows if _number(row["joules"]) is not None})),
    )


def _number(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
