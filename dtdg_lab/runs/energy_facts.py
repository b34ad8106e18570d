"""Where a run's joules went: by phase and rank, by epoch, standing still, and for what gain. Unknown is None, never 0.

The functions take rows of record tables as mappings with the column ``rank``, such as ``frame.to_dict("records")``.
Joules of steps that were lost and computed again were spent: hand in the rows of all attempts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType
from typing import Any

from dtdg_lab.energy.phase_energy import STALLED

MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "phase_j": "joules by phase of all ranks; idle is between steps, stall standing still for features",
        "stall_j": "joules of the phases wait and stall: spent while ranks did nothing but wait",
        "stall_share": "of the joules by phase",
        "epoch_j": "joules of an epoch, all ranks, median over epochs",
        "joules_per_loss": "joules by phase of the run for each unit that the training loss fell between its first and "
        "last evaluation; empty where it did not fall",
        "phase_energy_coverage": "share of the time for which energy by phase is known",
        "gpu_j": "joules of all GPUs",
        "processor_j": "joules of the processors: of whole nodes where they are read, else of the ranks",
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

    Where a whole node is read, its processors' joules count and the shares of its ranks do not.
    """
    known = [row for row in rows if _number(row["joules"]) is not None]
    found: dict[str, dict[str, float]] = {}
    nodes = any(row["scope"] == "node" for row in known)
    for row in known:
        gpu = str(row["reader"]).startswith(("nvml:", "gpu-"))
        if nodes and not gpu and row["scope"] != "node":
            continue
        sources = found.setdefault("gpu" if gpu else "processor", {})
        sources[str(row["source"])] = sources.get(str(row["source"]), 0.0) + float(row["joules"])
    return found


def energy_facts(phase_energy: Rows, energy: Rows, evaluations: Rows) -> dict[str, Any]:
    """The numbers of ``MEANINGS``; each is None where it is unknown."""
    phases = list(phase_energy)
    by_phase: dict[str, list[Mapping[str, Any]]] = {}
    for row in phases:
        by_phase.setdefault(str(row["phase"]), []).append(row)
    whole, still = spent(phases), stall_energy(phases)
    of_epochs = [each.joules for each in epoch_joules(phases).values() if each.joules is not None]
    devices = {device: sum(sources.values()) for device, sources in device_joules(energy).items()}
    known = {phase: spent(rows).joules for phase, rows in by_phase.items()}
    waited = still.joules
    if whole.joules is not None and not by_phase.keys() & set(STALLED):
        waited = 0.0  # nobody ever waited: that is known
    return {
        "phase_j": {phase: joules for phase, joules in known.items() if joules is not None} or None,
        "stall_j": waited,
        "stall_share": waited / whole.joules if waited is not None and whole.joules else None,
        "epoch_j": median(of_epochs) if of_epochs else None,
        "joules_per_loss": joules_per_loss(whole.joules, evaluations),
        "phase_energy_coverage": whole.coverage if phases else None,
        "gpu_j": devices.get("gpu"),
        "processor_j": devices.get("processor"),
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
