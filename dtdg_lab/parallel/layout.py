"""What the training loop asks of every layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

Mark = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Work:
    """One step of this rank: the groups of its parts, and how many groups all ranks have together."""

    iteration: int
    groups: tuple[int, ...]
    total_groups: int


@dataclass(frozen=True, slots=True)
class Computed:
    """What a rank adds to a step: the sum of its groups' mean losses, and the work that its groups are.

    ``vertex_snapshots`` are the vertices of every snapshot of every group, whatever of it the loss needs.
    """

    loss_sum: float
    groups: int
    vertex_snapshots: int


class Layout(Protocol):
    """How a training sequence is laid over parts. Steps of an epoch are a pure function of config and epoch."""

    def epoch(self, epoch: int) -> Sequence[Work]:
        """This rank's steps; every rank has the same number."""
        ...

    def compute(self, work: Work, mark: Mark) -> Computed:
        """Forward and backward of one step, adding to the parameters' gradients.

        ``mark(phase)`` closes the phase that has just ended: ``batch``, ``transfer``.
        """
        ...
