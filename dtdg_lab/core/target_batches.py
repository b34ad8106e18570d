"""Hybrid batches: some vertices, the targets, of some consecutive snapshots."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError


@dataclass(frozen=True, slots=True)
class BatchSize:
    """How many snapshots a batch has, and how many targets in each of them.

    Attributes:
        snapshots: N_S, at least 1.
        vertices: N_V, at least 1.

    Raises:
        PlanError: a number is below 1.

    References: DynaHB section 5.1 (definition 3).
    """

    snapshots: int
    vertices: int

    def __post_init__(self) -> None:
        if self.snapshots < 1 or self.vertices < 1:
            raise PlanError(
                f"a batch of {self.snapshots} snapshots with {self.vertices} targets each: at least 1 of both is "
                "needed. Set batch_snapshots and batch_vertices accordingly."
            )

    @property
    def targets(self) -> int:
        """Of all its snapshots together, N_S N_V: what is computed and stored for."""
        return self.snapshots * self.vertices


@dataclass(frozen=True, slots=True, eq=False)
class TargetBatch:
    """The targets of one step of one part: the same vertices in each of some consecutive snapshots.

    Attributes:
        part: the part whose vertices they are.
        action: number of its size among those that the run may choose from; 0 where there is one size.
        index: number of the batch among those of its part and size.
        snapshots: N_S consecutive ones, numbers in the graph.
        targets: (N_V,) int64, places among the part's own vertices, 0 to n - 1: ascending, each once.

    Raises:
        PlanError: a number is negative, there is no snapshot or no target, snapshots do not follow each other, or
            targets do not ascend.

    References: DynaHB section 5.1 (definition 3).
    """

    part: int
    action: int
    index: int
    snapshots: range
    targets: NDArray[np.int64]

    def __post_init__(self) -> None:
        if min(self.part, self.action, self.index) < 0:
            raise PlanError(
                f"batch {self.index} of action {self.action} of part {self.part}: numbers from 0 on are needed."
            )
        if not len(self.snapshots) or self.snapshots.step != 1 or self.snapshots.start < 0:
            raise PlanError(
                f"a batch of snapshots {list(self.snapshots[:8])}: at least one, and consecutive ones, are needed."
            )
        given = np.asarray(self.targets)
        if given.ndim != 1 or not len(given) or not np.issubdtype(given.dtype, np.integer):
            raise PlanError(
                f"targets must be a non-empty vector of whole numbers, not {given.dtype} of shape {given.shape}."
            )
        if given[0] < 0 or (np.diff(given) < 1).any():
            raise PlanError(
                f"targets begin {given[:8].tolist()}: places from 0 on are needed, ascending, and each of them once."
            )
        own = given.astype(np.int64)  # a copy: the caller's array stays writable, ours cannot change
        own.setflags(write=False)
        object.__setattr__(self, "targets", own)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TargetBatch):
            return NotImplemented
        return self._numbers == other._numbers and np.array_equal(self.targets, other.targets)

    def __hash__(self) -> int:
        return hash((*self._numbers, self.targets.tobytes()))

    @property
    def _numbers(self) -> tuple[int, int, int, range]:
        return self.part, self.action, self.index, self.snapshots

    @property
    def content(self) -> int:
        """Hash of its snapshots and targets: equal for batches that differ in their numbers alone."""
        return hash((self.snapshots, self.targets.tobytes()))

    @property
    def size(self) -> BatchSize:
        """N_S and N_V."""
        return BatchSize(len(self.snapshots), len(self.targets))
