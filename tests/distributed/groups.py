"""Functions on the group of several processes, and the first steps of a training on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.strategy import Step, StepMarks, read_rows
from dtdg_lab.testing.processes import join_group, run_ranks
from dtdg_lab.training.build import RunComponents


def in_groups(function: Callable[..., Any], ranks: int, *given: Any, **limits: Any) -> list[Any]:
    """Return what ``function(group, *given)`` returns on each of some processes; limits are those of ``run_ranks``."""
    return run_ranks(_in_group, ranks, function, *given, **limits)


def _in_group(rank: int, ranks: int, address: str, function: Callable[..., Any], *given: Any) -> Any:
    group = join_group(rank, ranks, address)
    found = function(group, *given)
    group.close()
    return found


@dataclass(frozen=True)
class TakenStep:
    """A step of training.

    Attributes:
        loss: mean over the groups of all ranks.
        gradient: of all parameters, over all ranks.
        own_loss: this rank's part of the sum of losses.
        own_groups: this rank's groups.
        groups: those of all ranks.
        work: nodes at snapshots that this rank computed.
        sent: bytes that this rank sent before gradients were exchanged.
        rows: what the strategy recorded, by table.
    """

    loss: float
    gradient: np.ndarray
    own_loss: float
    own_groups: int
    groups: int
    work: int
    sent: int
    rows: dict[str, list[Any]]


def take_step(built: RunComponents, group: Group, work: Step) -> TakenStep:
    """Train one step."""
    built.gradients.zero()
    before = group.bytes_sent
    computed = built.strategy.compute(work, StepMarks())
    sent = group.bytes_sent - before
    agreed = built.gradients.exchange(version=0, loss_sum=computed.loss_sum, groups=computed.groups)
    gradient = built.gradients.gradients.clone().numpy()
    rows = built.strategy.rows()
    built.optimizer.step()
    loss_sum, groups = agreed.sums()
    return TakenStep(
        loss_sum / groups,
        gradient,
        float(computed.loss_sum),
        computed.groups,
        groups,
        computed.vertex_snapshots,
        sent,
        dict(read_rows(rows)),
    )


def assert_same_steps(found: list[TakenStep], wanted: list[TakenStep]) -> None:
    """Losses and gradients are equal to ten digits, gradients relative to the largest."""
    assert len(found) == len(wanted) > 0
    for step, other in zip(found, wanted, strict=True):
        assert abs(step.loss - other.loss) <= 1e-10 * abs(other.loss)
        largest = np.abs(other.gradient).max()
        assert largest > 0 and np.abs(step.gradient - other.gradient).max() <= 1e-10 * largest
