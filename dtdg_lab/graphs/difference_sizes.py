"""What bringing snapshots costs in bytes, whole and as differences, counted from their edges without encoding any."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.graphs.difference import changed
from dtdg_lab.graphs.keys import edge_keys
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.graphs.transfer_formats import TransferFormat


@dataclass(frozen=True, slots=True, eq=False)
class SequenceChanges:
    """How T consecutive snapshots of N vertices change.

    Attributes:
        nodes: N.
        weighted: whether they carry weights.
        edges: (T,) edges of each.
        leaving: (T,) edges of the one before that it does not have; 0 for the first.
        arriving: (T,) its edges that the one before does not have; 0 for the first.
    """

    nodes: int
    weighted: bool
    edges: NDArray[np.int64]
    leaving: NDArray[np.int64]
    arriving: NDArray[np.int64]

    @property
    def overlap(self) -> float:
        """Share of the edges of all snapshots but the first that the one before has too; 0 where there are none."""
        later = int(self.edges[1:].sum())
        return 1 - int(self.arriving[1:].sum()) / later if later else 0.0

    def whole_bytes(self, form: TransferFormat) -> NDArray[np.int64]:
        """Bytes of each snapshot, whole, (T,)."""
        numbers = [form.whole_numbers(self.nodes, int(edges)) for edges in self.edges]
        return np.array(numbers, np.int64) * form.index_bytes + self._values(form)

    def difference_bytes(self, form: TransferFormat) -> NDArray[np.int64]:
        """Least bytes that its values and the edges that leave and arrive leave each snapshot, (T,).

        Where that is more than the snapshot takes whole, it is the latter.
        """
        pairs = zip(self.leaving, self.arriving, strict=True)
        numbers = [form.difference_numbers(int(gone), int(came)) for gone, came in pairs]
        return np.minimum(np.array(numbers, np.int64) * form.index_bytes + self._values(form), self.whole_bytes(form))

    def brought(self, form: TransferFormat, ranges: Iterable[range]) -> tuple[int, int]:
        """Bytes of some ranges of snapshots, as (differences, whole); of each range the first snapshot is whole."""
        whole, less = self.whole_bytes(form), self.difference_bytes(form)
        differences = everything = 0
        for part in ranges:
            if len(part):
                everything += int(whole[part.start : part.stop].sum())
                differences += int(whole[part.start]) + int(less[part.start + 1 : part.stop].sum())
        return differences, everything

    def _values(self, form: TransferFormat) -> NDArray[np.int64]:
        return np.array([form.value_bytes(int(edges), self.weighted) for edges in self.edges], np.int64)


def sequence_changes(snapshots: Sequence[Snapshot]) -> SequenceChanges:
    """How at least one snapshot, all over the same vertices, change one after the other."""
    edges = np.array([of.num_edges for of in snapshots], np.int64)
    leaving, arriving = np.zeros_like(edges), np.zeros_like(edges)
    before = edge_keys(snapshots[0])
    for place in range(1, len(snapshots)):
        keys = edge_keys(snapshots[place])
        gone, came = changed(before, keys)
        leaving[place], arriving[place], before = len(gone), len(came), keys
    return SequenceChanges(snapshots[0].num_nodes, snapshots[0].weights is not None, edges, leaving, arriving)


def own_ranges(plan: SnapshotBlocks) -> list[range]:
    """The snapshots that each group of ranks brings in each block; empty ones left out."""
    ranges = [
        plan.own(block, group * plan.row_ranks) for block in range(plan.blocks) for group in range(plan.groups)
    ]  # fmt: skip
    return [own for own in ranges if len(own)]


def benefiting_share(plan: SnapshotBlocks) -> float:
    """Share of the snapshots that have one before them on their rank, so that a difference can bring them.

    Where everything divides it is (bsize - K) / bsize, with bsize snapshots of a block on K groups of ranks.

    References: ESDG section 6.2.
    """
    return 1 - len(own_ranges(plan)) / len(plan.snapshots)
