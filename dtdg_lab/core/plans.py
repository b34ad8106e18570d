"""Plans: frozen index arrays that rooms exchange. Made for P parts, whatever the number of ranks.

A *snapshot* is the graph of one time window; a *group* is a run of consecutive snapshots trained from state zero;
a *part* is a share of the work in a plan; a *rank* is a process, which executes P / R parts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotGroups:
    """Groups of consecutive snapshots: group k holds snapshots ``start[k] .. stop[k] - 1``; shapes (K,).

    Raises:
        PlanError: the vectors are not two equal, non-empty ones of whole numbers, or a group is empty.
    """

    start: NDArray[np.int64]
    stop: NDArray[np.int64]

    def __post_init__(self) -> None:
        for name in ("start", "stop"):
            given = np.asarray(getattr(self, name))
            if not np.issubdtype(given.dtype, np.integer):
                raise PlanError(f"{name} of the groups must be whole numbers, not {given.dtype}.")
            own = given.astype(np.int64)  # a copy: the caller's array stays writable, ours cannot change
            own.setflags(write=False)
            object.__setattr__(self, name, own)
        if self.start.shape != self.stop.shape or self.start.ndim != 1 or not len(self.start):
            raise PlanError(
                f"groups need two equal, non-empty vectors, not shapes {self.start.shape}, {self.stop.shape}."
            )
        if not (self.start >= 0).all() or not (self.stop > self.start).all():
            raise PlanError("every group must hold at least one snapshot and start at 0 or later.")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SnapshotGroups):
            return NotImplemented
        return np.array_equal(self.start, other.start) and np.array_equal(self.stop, other.stop)

    def __hash__(self) -> int:
        return hash((self.start.tobytes(), self.stop.tobytes()))

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Which groups each part computes in each iteration: ``assignment[iteration][part]`` is a tuple of group ids.

    Every group appears exactly once; a part may be idle in an iteration.

    Raises:
        PlanError: a group is lost, repeated or unknown, or an iteration is empty or has other parts than the rest.
    """

    assignment: tuple[tuple[tuple[int, ...], ...], ...]
    groups: int

    def __post_init__(self) -> None:
        if not self.assignment:
            raise PlanError("a schedule needs at least one group and one iteration.")
        seen = sorted(group for iteration in self.assignment for part in iteration for group in part)
        if seen != list(range(self.groups)):
            lost = sorted(set(range(self.groups)) - set(seen))
            raise PlanError(
                f"a schedule holds each of {self.groups} groups once; missing {lost[:8]}, {len(seen)} placed."
            )
        if len({len(iteration) for iteration in self.assignment}) > 1:
            raise PlanError("every iteration must name the same number of parts.")
        if any(not any(iteration) for iteration in self.assignment):
            raise PlanError("an iteration without any group would update the model by nothing.")

    @property
    def parts(self) -> int:
        """P, the number of parts the schedule is made for."""
        return len(self.assignment[0])

    def loads(self, times_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Predicted seconds of each part in each iteration, shape (iterations, P)."""
        return np.array([[sum(times_s[group] for group in part) for part in row] for row in self.assignment], float)

    def makespan_s(self, times_s: NDArray[np.float64], *, allreduce_s: float = 0.0) -> float:
        """Predicted seconds of an epoch: the slowest part of every iteration, plus the exchange."""
        return float((self.loads(times_s).max(axis=1) + allreduce_s).sum())
