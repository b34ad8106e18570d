"""Plans of steps over a window of snapshots, with older ones reduced to some chunks.

A *window* is a run of consecutive snapshots, the newest one is the step's target. A *chunk* is a share of a part's
nodes; a snapshot that is *decayed* has only the first few chunks of every part, the others are *full*.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError


@dataclass(frozen=True, slots=True)
class HybridBatch:
    """The snapshots of one step: the newest in full, older ones decayed.

    Attributes:
        target: t, the newest snapshot, on which the loss is computed.
        snapshots: consecutive ones, oldest first; the last is the target.
        full: number of newest snapshots used in full; at least 1.
        counts: number of chunks of every part in each decayed snapshot, oldest first; non-decreasing.
        carries: whether the hidden state is carried over from the previous step. Its window ended one snapshot earlier
            in the same segment and included the snapshot before this window.

    Raises:
        PlanError: the numbers are inconsistent.

    References: FlareDTDG section 3.2 (trapezoid-shaped window).
    """

    target: int
    snapshots: range
    full: int
    counts: tuple[int, ...] = ()
    carries: bool = False

    def __post_init__(self) -> None:
        whole = self.snapshots
        if not len(whole) or whole.step != 1 or whole.start < 0 or whole[-1] != self.target:
            raise PlanError(
                f"the snapshots of a batch must be consecutive and end at its target {self.target}, not "
                f"{list(whole[:8])}."
            )
        if not 1 <= self.full <= len(whole):
            raise PlanError(f"full={self.full} must be from 1 to {len(whole)}, the number of snapshots.")
        if len(self.counts) != len(whole) - self.full:
            raise PlanError(
                f"{len(self.counts)} counts of chunks for {len(whole) - self.full} decayed snapshots: each needs one."
            )
        if any(count < 1 for count in self.counts) or any(old > new for old, new in pairwise(self.counts)):
            raise PlanError(
                f"counts of chunks {self.counts}, oldest first: each must be at least 1, and none above that of a "
                "newer snapshot, so that what a snapshot has is in all newer ones."
            )

    @property
    def decayed(self) -> range:
        """The decayed snapshots, oldest first."""
        return self.snapshots[: len(self.counts)]


@dataclass(frozen=True, slots=True, eq=False)
class Chunking:
    """The chunk of each node within its part, the same in all snapshots.

    Attributes:
        chunk: (N,) int32, 0 to C - 1.
        chunks: C, chunks per part.
        parts: P.
        made_by: the chunker with its settings, as text.
        seconds: that making it took.
        note: remark for the user, such as a fallback to another chunker; may be empty.

    Raises:
        PlanError: a chunk number is out of range, or there are too few nodes for the chunks of all parts.
    """

    chunk: NDArray[np.int32]
    chunks: int
    parts: int
    made_by: str = ""
    seconds: float = 0.0
    note: str = ""

    def __post_init__(self) -> None:
        given = np.asarray(self.chunk)
        if given.ndim != 1 or not len(given) or not np.issubdtype(given.dtype, np.integer):
            raise PlanError(
                f"chunks must be a non-empty vector of whole numbers, not {given.dtype} of shape {given.shape}."
            )
        if self.chunks < 1 or self.parts < 1 or self.chunks * self.parts > len(given):
            raise PlanError(
                f"{self.chunks} chunks in each of {self.parts} parts of {len(given)} nodes: every chunk holds at "
                "least one node. Set fewer chunks or parts."
            )
        if given.min() < 0 or given.max() >= self.chunks:
            raise PlanError(
                f"chunks run from {given.min()} to {given.max()}; those of a part are numbered 0 to {self.chunks - 1}."
            )
        own = given.astype(np.int32)
        own.setflags(write=False)
        object.__setattr__(self, "chunk", own)

    def __repr__(self) -> str:
        made_by = self.made_by or "manual assignment"
        return f"Chunking({len(self.chunk):,} nodes, {self.chunks} chunks in each of {self.parts} parts by {made_by})"


@dataclass(frozen=True, slots=True, eq=False)
class SurvivalOrder:
    """The own nodes of one rank by survival time, longest first: a decayed snapshot has a prefix of them.

    Attributes:
        vertices: (n,) int64, ordered by the position of their chunk in its part's shuffle, then part, then number.
        parts: (n,) int32, the part of each node.
        rows: (C + 1,) int64: ``rows[c]`` nodes are in the first c chunks of the rank's parts.

    Raises:
        PlanError: the vectors are inconsistent, or a chunk is empty.

    References: FlareDTDG section 3.3 (survival time, global remapping).
    """

    vertices: NDArray[np.int64]
    parts: NDArray[np.int32]
    rows: NDArray[np.int64]

    def __post_init__(self) -> None:
        for name, kind in (("vertices", np.int64), ("parts", np.int32), ("rows", np.int64)):
            given = np.asarray(getattr(self, name))
            if given.ndim != 1 or not np.issubdtype(given.dtype, np.integer):
                raise PlanError(f"{name} must be a vector of whole numbers, not {given.dtype} of shape {given.shape}.")
            own = given.astype(kind)
            own.setflags(write=False)
            object.__setattr__(self, name, own)
        if self.parts.shape != self.vertices.shape:
            raise PlanError(f"{len(self.parts)} parts for {len(self.vertices)} nodes: each node needs one.")
        rows = self.rows
        if len(rows) < 2 or rows[0] != 0 or rows[-1] != len(self.vertices) or (np.diff(rows) < 1).any():
            raise PlanError(
                f"rows of the first chunks begin {rows[:8].tolist()} and end at {rows[-1:].tolist()}; they must rise "
                f"from 0 to {len(self.vertices)}, by at least 1 with every chunk."
            )

    @property
    def chunks(self) -> int:
        """C, the chunks of each part."""
        return len(self.rows) - 1
