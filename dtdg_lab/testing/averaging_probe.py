"""Linear probe of model averaging: the weight that each rank has in the final model.

A step moves the model towards a constant of its rank. The model is a vector of coefficients, one for each rank's
constant and one for the start, which sum to 1. So after training the coefficient of a rank is its weight in the model.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dtdg_lab.distributed.averager import ControlState, Round
from dtdg_lab.distributed.group import Group
from dtdg_lab.distributed.model_averaging import averager_for
from dtdg_lab.testing.processes import join_group, run_ranks

RATE = 0.05  # share of the distance to a rank's constant that a step makes


@dataclass(frozen=True, slots=True)
class Probe:
    """Training of a rank.

    Attributes:
        steps: number of its steps.
        rounds: its averaging rounds.
        scales: scale of its learning rate in each step.
        coefficients: weights of all ranks and of the start in the final model.
    """

    steps: int
    rounds: list[Round]
    scales: list[float]
    coefficients: Tensor


def probe(
    group: Group,
    *,
    name: str,
    weights: str,
    every_s: float,
    shares: Sequence[float],
    seconds: Sequence[float],
    steps: int,
    replay: Probe | None = None,
) -> Probe:
    """Share steps with the other ranks, or repeat those of an earlier probe without sleeping; collective.

    Args:
        group: the ranks.
        name: name of the averager.
        weights: ``paper`` or ``share``.
        every_s: seconds between two rounds.
        shares: share of the data of each rank.
        seconds: seconds that a step of each rank sleeps.
        steps: steps of all ranks together.
        replay: this rank's earlier probe.
    """
    coefficients = torch.zeros(group.size + 1, dtype=torch.float64)
    coefficients[-1] = 1.0
    target = torch.zeros_like(coefficients)
    target[group.rank] = 1.0
    averager = averager_for(
        group,
        coefficients,
        every_s=every_s,
        newest_state=ControlState,
        name=name,
        share=shares[group.rank],
        weights=weights,
        replay=None if replay is None else replay.rounds,
    )
    scales: list[float] = []
    while len(scales) < replay.steps if replay is not None else averager.next_step(0, steps) is not None:
        if replay is None:
            time.sleep(seconds[group.rank])
        scales.append(averager.scale)
        coefficients.sub_(RATE * averager.scale * (coefficients - target))
        averager.control()
    averager.finish()
    return Probe(len(scales), averager.applied_rounds(), scales, coefficients)


def weights_in_final_model(
    *, weights: str, every_s: float, shares: Sequence[float], seconds: Sequence[float], steps: int
) -> list[float]:
    """Run a probe on new processes, and return the weight of each rank in the final model."""
    settings = {"weights": weights, "every_s": every_s, "shares": shares, "seconds": seconds, "steps": steps}
    probes: list[Probe] = run_ranks(_probe_on_rank, len(shares), settings)
    return [float(weight) for weight in probes[0].coefficients[:-1].tolist()]


def _probe_on_rank(rank: int, ranks: int, address: str, settings: Mapping[str, Any]) -> Probe:
    group = join_group(rank, ranks, address)
    try:
        return probe(group, name="probe", **settings)
    finally:
        group.close()
