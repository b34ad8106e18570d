"""Hybrid batches drawn so that seed, part, size and number alone decide which snapshots and targets they have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.batching.load_groups import LoadGroups
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.streams import generator
from dtdg_lab.core.target_batches import BatchSize, TargetBatch


@dataclass(frozen=True, slots=True, eq=False)
class TargetSampler:
    """Draws the batches of one part.

    Attributes:
        seed: of the run.
        part: number of the part.
        groups: its candidates by load.
        snapshots: the training part, T consecutive snapshots.

    Raises:
        PlanError: there is no snapshot, or they do not follow each other.

    References: DynaHB section 4.2 (group sampler) and section 5.1 (definition 3).
    """

    seed: int
    part: int
    groups: LoadGroups
    snapshots: range

    def __post_init__(self) -> None:
        if not len(self.snapshots) or self.snapshots.step != 1:
            raise PlanError(f"batches of snapshots {self.snapshots}: at least one, and consecutive ones, are needed.")

    def batch(self, size: BatchSize, action: int, index: int) -> TargetBatch:
        """One hybrid batch: N_S consecutive snapshots from anywhere, and N_V targets, as many of each load group.

        There are min(N_bg, N_V) groups. Where they do not divide N_V, the groups that give one more are evenly spread
        over the load order and begin anywhere in it, so that no load is preferred in the long run. The action is noted
        and decides nothing: two actions of one size have the same batches.

        Args:
            size: N_S, at most T, and N_V, at most the candidates.
            action: number of the size.
            index: number of the batch, from 0 on.

        Raises:
            PlanError: the size does not fit.

        Differs from the paper: it does not say what happens where N_bg does not divide N_V, and its range of first
        snapshots, [0, T - N_S - 1], leaves the newest snapshot out; [0, T - N_S] does not.
        """
        stream = generator(self.seed, "hybrid/batch", self.part, size.snapshots, size.vertices, index)
        snapshots = self._window(size.snapshots, stream)
        return TargetBatch(self.part, action, index, snapshots, self._targets(size.vertices, stream))

    def snapshot_batch(self, size: BatchSize, index: int, action: int = 0) -> TargetBatch:
        """One snapshot batch: as many consecutive snapshots, with all candidates as targets.

        Args:
            size: N_S, at most T; its number of targets is not read.
            index: number of the batch, such as the step it stands in at.
            action: number of the size it stands in for.

        Raises:
            PlanError: there are fewer snapshots.

        References: DynaHB algorithm 3, lines 8 to 10.
        """
        stream = generator(self.seed, "hybrid/stand-in", self.part, size.snapshots, index)
        return TargetBatch(self.part, action, index, self._window(size.snapshots, stream), self.groups.candidates)

    def _window(self, length: int, stream: np.random.Generator) -> range:
        whole = len(self.snapshots)
        if length > whole:
            raise PlanError(f"a batch of {length} snapshots of a training part of {whole}: at most all are allowed.")
        first = int(stream.integers(whole - length + 1))
        return self.snapshots[first : first + length]

    def _targets(self, vertices: int, stream: np.random.Generator) -> NDArray[np.int64]:
        """Places of N_V candidates, ascending, each once."""
        bounds = self.groups.bounds(vertices)
        chosen = []
        for start, length, count in zip(bounds[:-1], np.diff(bounds), _counts(vertices, bounds, stream), strict=True):
            places = stream.choice(length, count, replace=False, shuffle=False) if count < length else np.arange(length)
            chosen.append(start + places)
        return np.sort(self.groups.order[np.concatenate(chosen)])


def _counts(vertices: int, bounds: NDArray[np.int64], stream: np.random.Generator) -> NDArray[np.int64]:
    """Targets of each group: N_V / groups, and one more in some that can give it, so that the sum is N_V."""
    lengths = np.diff(bounds)
    each, more = divmod(vertices, len(lengths))
    counts = np.full(len(lengths), each)
    able = np.flatnonzero(lengths > each)
    if more:
        start = int(stream.integers(len(able)))
        turns = (np.arange(len(able) + 1) * more + start) // len(able)
        counts[able] += np.diff(turns)
    return counts
