"""Hop-by-hop expansion of a batch's targets, in all of its snapshots at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.engine.views.replicated_part import Reach


class BlockSource(Protocol):
    """Source of blocks: a part with copies of its neighbours, or a whole graph.

    Attributes:
        reach: the nodes that it holds.
    """

    reach: Reach

    @property
    def own(self) -> int:
        """Number n of possible targets; they are the first nodes."""

    @property
    def weighted(self) -> bool:
        """Whether edges carry weights."""

    @property
    def constant_features(self) -> tuple[NDArray[Any], NDArray[np.int32]] | None:
        """Static features and their nodes; None if features change over time."""

    def prefix(self, t: int, hops: int) -> int:
        """Return the number of nodes within ``hops`` in snapshot t."""

    def vertices(self, t: int) -> NDArray[np.int32]:
        """Return the nodes' numbers in the graph."""

    def joined(self, name: str, snapshots: range) -> tuple[Any, NDArray[np.int64]]:
        """Return an array of several snapshots, concatenated, and the offset of each."""


_SCRATCH = 1 << 22  # most nodes of snapshots that share a scratch array: random access must stay cheap
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Rows of S snapshots, concatenated; within a snapshot the nearest rows come first.

    Attributes:
        snapshot: (K,) index of a row's snapshot, 0 to S - 1.
        place: (K,) index of its node among the nodes that the part holds in the snapshot.
        counts: (S,) rows of each snapshot.
    """

    snapshot: IntArray
    place: IntArray
    counts: IntArray

    def spread(self, height: int) -> IntArray:
        """Return the row numbers, (K,), if each snapshot is padded to ``height`` rows."""
        if (self.counts == height).all():
            return np.arange(len(self.place))
        first = np.cumsum(self.counts) - self.counts
        return np.arange(len(self.place)) + (np.arange(len(self.counts)) * height - first)[self.snapshot]


@dataclass(frozen=True, slots=True, eq=False)
class GatheredTargets:
    """Edges along which rows pull.

    Attributes:
        lengths: (K,) number of edges of each row.
        place: (E,) index of the source node of each edge.
        per_snapshot: (S,) edges of each snapshot.
        weights: (E,) float32, or None.
    """

    lengths: IntArray
    place: NDArray[np.int32]
    per_snapshot: IntArray
    weights: NDArray[np.float32] | None

    def select(self, mask: NDArray[np.bool_], rows: IntArray) -> GatheredTargets:
        """Return the edges where ``mask`` is set; ``rows`` (E,) has the row of each edge."""
        ends = np.cumsum(self.per_snapshot)
        selected = np.concatenate([[0], np.cumsum(mask)])
        weights = None if self.weights is None else self.weights[mask]
        return GatheredTargets(
            np.bincount(rows[mask], minlength=len(self.lengths)),
            self.place[mask],
            selected[ends] - selected[ends - self.per_snapshot],
            weights,
        )


class TargetGrowth:
    """Nodes within a growing number of hops of the targets.

    Args:
        part: source of nodes and edges.
        snapshots: S cached snapshots.
        targets: (V,) indices among the part's own nodes, ascending.
        shared: whether all snapshots have the same nodes, reached by edges of any of the S. The part must then hold
            the same nodes in all snapshots.

    Attributes:
        entries: the rows within the current number of hops.
    """

    def __init__(self, part: BlockSource, snapshots: range, targets: NDArray[np.integer], *, shared: bool) -> None:
        self._part, self._snapshots, self._shared = part, snapshots, shared
        self._count = len(snapshots)
        heights = (part.prefix(t, part.reach.hops) for t in snapshots)
        self._heights = np.fromiter(heights, np.int64, self._count)
        self._offsets = np.cumsum(self._heights) - self._heights  # of each snapshot's nodes among all
        self._key_offsets = np.zeros(self._count, np.int64) if shared else self._offsets
        size = int(self._heights[0] if shared else self._heights.sum())
        self._reached = np.zeros(size, bool)  # by key: whether it is within the current hops
        self._row = np.empty(size, np.int32)  # by key, if reached: its row in the snapshot
        self._nearest: IntArray = np.empty(0, np.int64)  # places, if shared
        self.entries = Entries(*(np.empty(0, np.int64),) * 2, np.zeros(self._count, np.int64))
        target_places = np.asarray(targets, np.int64)
        if shared:
            self._add(None, target_places)
        else:
            self._add(np.repeat(np.arange(self._count), len(target_places)), np.tile(target_places, self._count))

    def gather(self, direction: str, layer: int) -> GatheredTargets:
        """Return the edges along which the current rows pull; they do not depend on the layer."""
        part, snapshots, entries = self._part, self._snapshots, self.entries
        indptr, rows_at = part.joined(f"indptr_{direction}", snapshots)
        indices, edges_at = part.joined(f"indices_{direction}", snapshots)
        row_index = rows_at.take(entries.snapshot) + entries.place
        begin = indptr.take(row_index).astype(np.int64)
        lengths = indptr.take(row_index + 1) - begin
        ends = np.cumsum(lengths)
        edge = np.arange(ends[-1]) + np.repeat(begin + edges_at.take(entries.snapshot) - (ends - lengths), lengths)
        weights = part.joined(f"weights_{direction}", snapshots)[0].take(edge) if part.weighted else None
        last = np.concatenate([[0], ends])[np.cumsum(entries.counts)]
        return GatheredTargets(lengths, indices.take(edge), np.diff(last, prepend=0), weights)

    @property
    def places(self) -> IntArray:
        """Places of the rows of every snapshot, (K,); only if all snapshots share them."""
        return self._nearest

    def grow(self, gathered: list[GatheredTargets]) -> None:
        """Add the source nodes of the edges, one hop more."""
        keys = np.concatenate([self._keys(edges) for edges in gathered])
        fresh = keys[~self._reached[keys]]
        new = _distinct(fresh, self._row)
        if self._shared:
            self._add(None, new)
        else:
            snapshot = np.searchsorted(self._offsets, new, side="right") - 1
            self._add(snapshot, new - self._offsets[snapshot])

    def inside(self, gathered: GatheredTargets) -> GatheredTargets:
        """Return the edges whose source nodes have been reached."""
        is_reached = self._reached[self._keys(gathered)]
        if is_reached.all():
            return gathered
        return gathered.select(is_reached, np.repeat(np.arange(len(gathered.lengths)), gathered.lengths))

    def columns(self, gathered: GatheredTargets, height: int) -> NDArray[np.int32]:
        """Return the source rows of the edges, (E,); each snapshot is padded to ``height`` rows."""
        rows = self._row[self._keys(gathered)]
        if self._count > 1:
            rows = rows + np.repeat((np.arange(self._count) * height).astype(np.int32), gathered.per_snapshot)
        return rows

    def further(self, gathered: GatheredTargets, height: int) -> tuple[NDArray[np.int32], Entries]:
        """Return the source columns of the edges, (E,), and the entries of the further columns.

        Nodes that have not been reached become further columns, after the rows of all snapshots.
        """
        columns = self.columns(gathered, height)
        outside = np.flatnonzero(~self._reached.take(self._keys(gathered)))
        snapshot = np.repeat(np.arange(self._count), gathered.per_snapshot)[outside]
        node_index = gathered.place[outside] + self._offsets.take(snapshot)
        new_keys, last = [], self._count * height
        for first, stop in self._chunks():
            chunk = slice(*np.searchsorted(snapshot, [first, stop]))
            keys = node_index[chunk] - self._offsets[first]
            new = _distinct(keys, self._scratch)
            self._scratch[new] = np.arange(last, last + len(new), dtype=np.int32)
            columns[outside[chunk]] = self._scratch.take(keys)
            new_keys.append(new + self._offsets[first])
            last += len(new)
        new = np.concatenate(new_keys)
        snapshot_index = np.searchsorted(self._offsets, new, side="right") - 1
        return columns, Entries(
            snapshot_index, new - self._offsets[snapshot_index], np.bincount(snapshot_index, minlength=self._count)
        )

    def _chunks(self) -> list[tuple[int, int]]:
        """Return ranges of the S snapshots, (first, stop), whose nodes fit the scratch array."""
        chunk_size = max(1, _SCRATCH // max(int(self._heights.max()), 1))
        return [(first, min(first + chunk_size, self._count)) for first in range(0, self._count, chunk_size)]

    @cached_property
    def _scratch(self) -> NDArray[np.int32]:
        return np.empty(max(int(self._heights[first:stop].sum()) for first, stop in self._chunks()), np.int32)

    def _keys(self, gathered: GatheredTargets) -> NDArray[Any]:
        if self._shared:
            return gathered.place
        return gathered.place + np.repeat(self._key_offsets, gathered.per_snapshot)

    def _add(self, snapshot: IntArray | None, places: IntArray) -> None:
        """Append rows, ascending: to the given snapshots, or the same rows to all if None."""
        if snapshot is None:
            self._row[places] = np.arange(len(self._nearest), len(self._nearest) + len(places), dtype=np.int32)
            self._reached[places] = True
            self._nearest = np.concatenate([self._nearest, places])
            k = len(self._nearest)
            self.entries = Entries(
                np.repeat(np.arange(self._count), k), np.tile(self._nearest, self._count), np.full(self._count, k)
            )
            return
        entries, counts = self.entries, np.bincount(snapshot, minlength=self._count)
        keys = places + self._offsets[snapshot]
        first = np.cumsum(counts) - counts
        self._row[keys] = np.arange(len(places)) + (entries.counts - first)[snapshot]
        self._reached[keys] = True
        joined = np.concatenate([entries.snapshot, snapshot])
        order = np.argsort(joined, kind="stable")
        self.entries = Entries(joined[order], np.concatenate([entries.place, places])[order], entries.counts + counts)


def _distinct(keys: NDArray[Any], scratch: NDArray[np.int32]) -> IntArray:
    """Return the distinct keys, ascending; ``scratch`` is overwritten at the keys."""
    number = np.arange(len(keys), dtype=np.int32)
    scratch[keys] = number
    distinct = keys[scratch[keys] == number].astype(np.int64)
    distinct.sort()
    return distinct
