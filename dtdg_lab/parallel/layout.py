"""What the training loop asks of every layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Marks(Protocol):
    """Takes down where one phase of a step ends and the next begins."""

    def __call__(self, phase: str) -> None:
        """The time since the last mark was this phase."""
        ...

    def exchange(self, wait_s: float) -> None:
        """The time since the last mark was an exchange, of which the first ``wait_s`` seconds were waiting."""
        ...

    def block(self, number: int, way: str) -> None:
        """From here on it is block ``number`` of time: ``forward``, ``rerun`` (computed again) or ``backward``."""
        ...


class Unmarked:
    """Takes nothing down."""

    def __call__(self, phase: str) -> None:
        """Nothing."""

    def exchange(self, wait_s: float) -> None:
        """Nothing."""

    def block(self, number: int, way: str) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class Work:
    """One step of this rank: the groups of its parts, and how many groups all ranks have together.

    ``snapshots`` is how many it computes, where steps differ in that and the largest may be looked for.
    """

    iteration: int
    groups: tuple[int, ...]
    total_groups: int
    snapshots: int = 0


@dataclass(frozen=True, slots=True)
class Computed:
    """What a rank adds to a step: the sum of its groups' mean losses, and the work that its groups are.

    A group that several ranks share counts on one of them, and each adds its share of the group's loss.
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

    def compute(self, work: Work, marks: Marks) -> Computed:
        """Forward and backward of one step, adding to the parameters' gradients.

        It marks the ends of ``batch`` and ``transfer``, and every exchange of rows.
        """
        ...

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """What has been taken down since this was last asked, by table: its columns after ``epoch``.

        ``groups``: groups computed; ``links``: rows sent to other ranks. By layouts that have any.
        """
        ...
