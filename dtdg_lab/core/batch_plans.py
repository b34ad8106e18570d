"""Plans of steps over a window of snapshots, of which older ones are taken in part: chunk by chunk.

A *window* is a run of consecutive snapshots, the newest of which is the step's target. A *chunk* is a share of a
part's vertices; a snapshot that is *decayed* has only the first few chunks of every part, the others are *full*.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError


@dataclass(frozen=True, slots=True)
class HybridBatch:
    """The snapshots of one step: the newest whole, those before them in part.

    Attributes:
        target: t, the newest snapshot, at which the loss is taken.
        snapshots: consecutive ones, oldest first; the last is the target.
        full: how many of them, the newest ones, are whole; at least 1.
        counts: of each decayed one, oldest first, how many chunks of every part it has; never fewer in a newer one.
        carries: whether state goes on from the step before: it ended one snapshot earlier in the same segment, and the
            snapshot before this window was in its window.

    Raises:
        PlanError: the numbers do not fit each other.

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
                f"a batch of snapshots {list(whole[:8])} for target {self.target}: consecutive ones that end at the "
                "target are needed."
            )
        if not 1 <= self.full <= len(whole):
            raise PlanError(f"{self.full} full snapshots of {len(whole)}: from 1 to all of them are allowed.")
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
        """The snapshots of which some chunks are taken, oldest first."""
        return self.snapshots[: len(self.counts)]


@dataclass(frozen=True, slots=True, eq=False)
class Chunking:
    """The chunk of each vertex within its part, the same in all snapshots.

    Attributes:
        chunk: (N,) int32, 0 to C - 1.
        chunks: C, of every part.
        parts: P.
        made_by: the chunker with its settings, in words.
        seconds: it took to make.
        note: what a reader must know of how it was made, such as that another chunker stood in; empty where nothing.

    Raises:
        PlanError: a number is no chunk's, or there are not vertices enough for every chunk of every part.
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
                f"{self.chunks} chunks in each of {self.parts} parts of {len(given)} vertices: every chunk holds at "
                "least one vertex. Set fewer chunks or parts."
            )
        if given.min() < 0 or given.max() >= self.chunks:
            raise PlanError(
                f"chunks run from {given.min()} to {given.max()}; those of a part are numbered 0 to {self.chunks - 1}."
            )
        own = given.astype(np.int32)
        own.setflags(write=False)
        object.__setattr__(self, "chunk", own)

    def __repr__(self) -> str:
        made_by = self.made_by or "hand"
        return (
            f"Chunking({len(self.chunk):,} vertices, {self.chunks} chunks in each of {self.parts} parts by {made_by})"
        )


@dataclass(frozen=True, slots=True, eq=False)
class SurvivalOrder:
    """The own vertices of one rank, those that survive longest first: any decayed snapshot has a prefix of them.

    Attributes:
        vertices: (n,) int64, ordered by the place of their chunk in its part's shuffle, then part, then number.
        parts: (n,) int32, the part of each.
        rows: (C + 1,) int64: ``rows[c]`` vertices are in the first c chunks of the rank's parts.

    Raises:
        PlanError: the vectors do not fit, or a chunk is empty.

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
            raise PlanError(f"{len(self.parts)} parts for {len(self.vertices)} vertices: each vertex needs one.")
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
