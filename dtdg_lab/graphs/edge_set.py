"""The edges of a snapshot as sorted numbers, so that questions about millions of pairs are answered at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.graphs.arrays import give_up
from dtdg_lab.graphs.snapshot import Snapshot

Ints = NDArray[np.int64]


class EdgeSet:
    """The E edges of a snapshot that are no self loops, among the N (N - 1) ordered pairs of different vertices.

    Pair (u, v) has the number u (N - 1) + v, one less where v > u, so that the pairs from a source are consecutive.

    Args:
        snapshot: N vertices.

    Attributes:
        num_nodes: N.
        numbers: shape (E,), sorted: the edges.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.num_nodes = snapshot.num_nodes
        src, dst = snapshot.indices, snapshot.rows()
        different = src != dst
        self.numbers: Ints = give_up(np.sort(self.number(src[different], dst[different])))

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def absent(self) -> int:
        """How many pairs of different vertices are no edges."""
        return self.num_nodes * (self.num_nodes - 1) - len(self)

    def number(self, src: NDArray[np.integer], dst: NDArray[np.integer]) -> Ints:
        """The numbers of pairs of different vertices; any shape."""
        return src.astype(np.int64) * (self.num_nodes - 1) + dst - (dst > src)

    def pairs(self, numbers: Ints) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Sources and targets of pairs given by number; any shape."""
        src, dst = np.divmod(numbers, max(self.num_nodes - 1, 1))
        dst += dst >= src
        return src.astype(np.int32), dst.astype(np.int32)

    def holds(self, src: NDArray[np.integer], dst: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which pairs of different vertices are edges; any shape."""
        asked = self.number(src, dst)
        if not len(self):
            return np.zeros(asked.shape, dtype=bool)
        place = np.minimum(np.searchsorted(self.numbers, asked), len(self) - 1)
        found: NDArray[np.bool_] = self.numbers[place] == asked
        return found

    def nth_absent(self, order: Ints) -> Ints:
        """Numbers of pairs that are no edges, given by their place among all such pairs, 0 .. absent - 1; any shape.

        The edge with number e at place j has e - j absent pairs before it.
        """
        before = self.numbers - np.arange(len(self))
        return np.asarray(order) + np.searchsorted(before, order, side="right")

    def absent_from(self, sources: NDArray[np.int32]) -> tuple[Ints, Ints]:
        """For each source, the place of its first absent pair (see :meth:`nth_absent`), and how many it has; (U,)."""
        first = np.asarray(sources, dtype=np.int64) * (self.num_nodes - 1)
        edges_before = np.searchsorted(self.numbers, first)
        edges_after = np.searchsorted(self.numbers, first + self.num_nodes - 1)
        return first - edges_before, self.num_nodes - 1 - (edges_after - edges_before)
