"""The sampler of hybrid batches (DynaHB): load groups of a part's nodes, and batches drawn from them by seed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import BatchSize, TargetBatch
from dtdg_lab.core.rng import generator

SHARES = 60  # number of bins of the load order in which a batch's targets are counted, for charts


@dataclass(frozen=True, slots=True, eq=False)
class LoadGroups:
    """The c candidates of a part, heaviest first, to be cut into runs of equal length.

    Attributes:
        order: (c,) int64, distinct indices of the candidates among the part's own nodes, heaviest first.
        groups: N_bg, the maximum number of groups, at least 1.
        candidates: (c,) int64, the same indices, ascending.

    Raises:
        PlanError: there are no candidates.

    References: DynaHB section 4.2 (balanced groups).
    """

    order: NDArray[np.int64]
    groups: int
    candidates: NDArray[np.int64] = field(init=False)
    _rank: NDArray[np.int64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not len(self.order):
            raise PlanError("the part has no candidates, but batches need at least one node that may be a target.")
        object.__setattr__(self, "order", np.asarray(self.order, dtype=np.int64))
        candidates = np.sort(self.order)
        rank = np.full(candidates[-1] + 1, -1)
        rank[self.order] = np.arange(len(self.order))
        object.__setattr__(self, "candidates", candidates)
        object.__setattr__(self, "_rank", rank)

    def __len__(self) -> int:
        """Return the number of candidates, c."""
        return len(self.order)

    def bounds(self, targets: int) -> NDArray[np.int64]:
        """Return the (min(groups, targets) + 1,) boundaries of the groups in ``order`` for batches of ``targets``.

        Group k is ``order[bounds[k]:bounds[k + 1]]``; groups differ by at most one candidate.

        Args:
            targets: N_V, 1 to c.

        Raises:
            PlanError: there are fewer candidates.
        """
        if targets > len(self):
            raise PlanError(f"targets={targets} is out of range: {len(self)} candidates allow 1 to {len(self)}.")
        count = min(self.groups, targets)
        return -(-np.arange(count + 1) * len(self) // count)

    def sixtieths(self, targets: NDArray[np.int64]) -> list[int]:
        """Return the number of targets in each sixtieth of the candidates, heaviest first: 60 numbers.

        Args:
            targets: (N_V,) indices of candidates.
        """
        return np.bincount(self._rank[targets] * SHARES // len(self), minlength=SHARES).tolist()


def load_groups(loads: NDArray[np.floating], candidates: NDArray[np.integer], groups: int) -> LoadGroups:
    """Sort candidates by load, heaviest first; ties go to the lower index.

    Args:
        loads: (n,) loads of all own nodes of the part (:func:`dtdg_lab.partition.simple.vertex_loads`).
        candidates: (c,) distinct indices of the nodes that may be targets.
        groups: N_bg, the maximum number of groups.

    Raises:
        PlanError: there are no candidates.
    """
    indices = np.sort(candidates).astype(np.int64)
    return LoadGroups(indices[np.argsort(-loads[indices], kind="stable")], groups)


@dataclass(frozen=True, slots=True, eq=False)
class TargetSampler:
    """Draws the batches of one part.

    Attributes:
        seed: seed of the run.
        part: index of the part.
        groups: its candidates by load.
        snapshots: the training split, T consecutive snapshots.

    References: DynaHB section 4.2 (group sampler) and section 5.1 (definition 3).
    """

    seed: int
    part: int
    groups: LoadGroups
    snapshots: range

    def batch(self, size: BatchSize, action: int, index: int) -> TargetBatch:
        """Draw a hybrid batch: N_S consecutive snapshots at a random position, and N_V targets from all load groups.

        There are min(N_bg, N_V) groups. If they do not divide N_V, the groups with one more target are evenly spaced in
        the load order from a random start, so that no load is preferred in the long run. The action is only recorded:
        two actions of equal size have the same batches.

        Args:
            size: N_S, at most T, and N_V, at most the candidates.
            action: index of the size.
            index: index of the batch, from 0 on.

        Raises:
            PlanError: the size exceeds the snapshots or the candidates.

        Differs from the paper: it does not say what happens if N_bg does not divide N_V. Its range of first snapshots,
            [0, T - N_S - 1], omits the newest snapshot; [0, T - N_S] does not.
        """
        stream = generator(self.seed, "hybrid/batch", self.part, size.snapshots, size.vertices, index)
        snapshots = self._window(size.snapshots, stream)
        return TargetBatch(self.part, action, index, snapshots, self._targets(size.vertices, stream))

    def snapshot_batch(self, size: BatchSize, index: int, action: int = 0) -> TargetBatch:
        """Draw a snapshot batch: as many consecutive snapshots as a hybrid batch, with all candidates as targets.

        Args:
            size: N_S, at most T; its number of targets is ignored.
            index: index of the batch, such as the step of the hybrid batch that it replaces.
            action: index of that batch's size.

        Raises:
            PlanError: there are fewer snapshots.

        References: DynaHB algorithm 3, lines 8 to 10.
        """
        stream = generator(self.seed, "hybrid/stand-in", self.part, size.snapshots, index)
        return TargetBatch(self.part, action, index, self._window(size.snapshots, stream), self.groups.candidates)

    def _window(self, length: int, stream: np.random.Generator) -> range:
        total = len(self.snapshots)
        if length > total:
            raise PlanError(f"a batch of {length} snapshots exceeds the training split of {total} snapshots.")
        first = int(stream.integers(total - length + 1))
        return self.snapshots[first : first + length]

    def _targets(self, targets: int, stream: np.random.Generator) -> NDArray[np.int64]:
        """Return the indices of N_V distinct candidates, ascending."""
        bounds = self.groups.bounds(targets)
        lengths = np.diff(bounds)
        positions = []
        for start, length, count in zip(bounds[:-1], lengths, _group_counts(targets, lengths, stream), strict=True):
            draws = stream.choice(length, count, replace=False, shuffle=False) if count < length else np.arange(length)
            positions.append(start + draws)
        return np.sort(self.groups.order[np.concatenate(positions)])


def _group_counts(targets: int, lengths: NDArray[np.int64], stream: np.random.Generator) -> NDArray[np.int64]:
    """Return the number of targets of each group: N_V / groups, plus one in some groups, N_V in total."""
    quotient, remainder = divmod(targets, len(lengths))
    counts = np.full(len(lengths), quotient)
    if remainder:
        larger = np.flatnonzero(lengths > quotient)
        start = int(stream.integers(len(larger)))
        counts[larger] += np.diff((np.arange(len(larger) + 1) * remainder + start) // len(larger))
    return counts
