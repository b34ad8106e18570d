"""Growth of a batch's blocks from its targets, hop by hop in all of its snapshots at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.engine.views.replicated_part import Reach


class BlockSource(Protocol):
    """What blocks are built from: a part with copies of its neighbours, or a whole graph.

    Attributes:
        reach: the nodes that it holds.
    """

    reach: Reach

    @property
    def own(self) -> int:
        """n, the nodes that may be targets; they come first."""

    @property
    def weighted(self) -> bool:
        """Whether edges carry weights."""

    @property
    def constant_features(self) -> tuple[NDArray[Any], NDArray[np.int32]] | None:
        """Features that never change, and the nodes that have them; None where they change."""

    def prefix(self, t: int, hops: int) -> int:
        """Return how many nodes are within some hops in snapshot t."""

    def vertices(self, t: int) -> NDArray[np.int32]:
        """Return the nodes' numbers in the graph."""

    def joined(self, name: str, snapshots: range) -> tuple[Any, NDArray[np.int64]]:
        """Return arrays of some snapshots, one after another, and where each begins."""


_SCRATCH = 1 << 22  # nodes of snapshots looked at together: few enough to be cheap to touch anywhere
Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Rows of S snapshots, one snapshot after another, each nearest first.

    Attributes:
        snapshot: (K,) which of the S a row is of.
        place: (K,) its place among the nodes that the part holds in the snapshot.
        counts: (S,) rows of each snapshot.
    """

    snapshot: Whole
    place: Whole
    counts: Whole

    def spread(self, height: int) -> Whole:
        """(K,) numbers of the rows where each snapshot has the same number of them."""
        if (self.counts == height).all():
            return np.arange(len(self.place))
        first = np.cumsum(self.counts) - self.counts
        return np.arange(len(self.place)) + (np.arange(len(self.counts)) * height - first)[self.snapshot]


@dataclass(frozen=True, slots=True, eq=False)
class GatheredTargets:
    """The edges along which rows pull.

    Attributes:
        lengths: (K,) how many edges each row has.
        place: (E,) the places of those they come from.
        per_snapshot: (S,) edges of each snapshot.
        weights: (E,) float32, or None.
    """

    lengths: Whole
    place: NDArray[np.int32]
    per_snapshot: Whole
    weights: NDArray[np.float32] | None

    def kept(self, which: NDArray[np.bool_], rows: Whole) -> GatheredTargets:
        """Return some of the edges; ``rows`` (E,) has the row of each."""
        ends = np.cumsum(self.per_snapshot)
        counted = np.concatenate([[0], np.cumsum(which)])
        weights = None if self.weights is None else self.weights[which]
        return GatheredTargets(
            np.bincount(rows[which], minlength=len(self.lengths)),
            self.place[which],
            counted[ends] - counted[ends - self.per_snapshot],
            weights,
        )


class TargetGrowth:
    """Nodes within ever more hops of the targets.

    Args:
        part: what a part holds.
        snapshots: S of the cached ones.
        targets: (V,) places among the part's own nodes, ascending.
        shared: whether the nodes are the same in all snapshots: those that edges of any of the S lead to. Needs a
            part that holds the same ones in all.

    Attributes:
        entries: the rows within the hops grown so far.
    """

    def __init__(self, part: BlockSource, snapshots: range, targets: NDArray[np.integer], *, shared: bool) -> None:
        self._part, self._snapshots, self._shared = part, snapshots, shared
        self._count = len(snapshots)
        every = (part.prefix(t, part.reach.hops) for t in snapshots)
        self._heights = np.fromiter(every, np.int64, self._count)
        self._wide_at = np.cumsum(self._heights) - self._heights  # of each snapshot, where its keys begin
        self._key_at = np.zeros(self._count, np.int64) if shared else self._wide_at
        size = int(self._heights[0] if shared else self._heights.sum())
        self._known = np.zeros(size, bool)  # by key: is it within the hops so far
        self._row = np.empty(size, np.int32)  # by key, where known: its row in the snapshot
        self._nearest: Whole = np.empty(0, np.int64)  # places, where shared
        self.entries = Entries(*(np.empty(0, np.int64),) * 2, np.zeros(self._count, np.int64))
        target_places = np.asarray(targets, np.int64)
        if shared:
            self._add(None, target_places)
        else:
            self._add(np.repeat(np.arange(self._count), len(target_places)), np.tile(target_places, self._count))

    def gather(self, direction: str, layer: int) -> GatheredTargets:
        """Return the edges along which the rows grown so far pull, of any layer."""
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
    def places(self) -> Whole:
        """(K,) the places of the rows of every snapshot; where these are the same in all."""
        return self._nearest

    def grow(self, gathered: list[GatheredTargets]) -> None:
        """Add everything that the edges come from: one hop more."""
        keys = np.concatenate([self._keys(edges) for edges in gathered])
        fresh = keys[~self._known[keys]]
        new = _distinct(fresh, self._row)
        if self._shared:
            self._add(None, new)
        else:
            snapshot = np.searchsorted(self._wide_at, new, side="right") - 1
            self._add(snapshot, new - self._wide_at[snapshot])

    def inside(self, gathered: GatheredTargets) -> GatheredTargets:
        """Return the edges that come from known nodes."""
        is_known = self._known[self._keys(gathered)]
        if is_known.all():
            return gathered
        return gathered.kept(is_known, np.repeat(np.arange(len(gathered.lengths)), gathered.lengths))

    def columns(self, gathered: GatheredTargets, height: int) -> NDArray[np.int32]:
        """(E,) the source rows of the edges; every snapshot has the same number of rows."""
        rows = self._row[self._keys(gathered)]
        if self._count > 1:
            rows = rows + np.repeat((np.arange(self._count) * height).astype(np.int32), gathered.per_snapshot)
        return rows

    def further(self, gathered: GatheredTargets, height: int) -> tuple[NDArray[np.int32], Entries]:
        """Return the same, with unknown nodes as further columns after all rows, and these nodes of each snapshot."""
        columns = self.columns(gathered, height)
        outside = np.flatnonzero(~self._known.take(self._keys(gathered)))
        snapshot = np.repeat(np.arange(self._count), gathered.per_snapshot)[outside]
        wide = gathered.place[outside] + self._wide_at.take(snapshot)
        new_keys, last = [], self._count * height
        for first, stop in self._chunks():
            chunk = slice(*np.searchsorted(snapshot, [first, stop]))
            keys = wide[chunk] - self._wide_at[first]
            new = _distinct(keys, self._scratch)
            self._scratch[new] = np.arange(last, last + len(new), dtype=np.int32)
            columns[outside[chunk]] = self._scratch.take(keys)
            new_keys.append(new + self._wide_at[first])
            last += len(new)
        new = np.concatenate(new_keys)
        snapshot_index = np.searchsorted(self._wide_at, new, side="right") - 1
        return columns, Entries(
            snapshot_index, new - self._wide_at[snapshot_index], np.bincount(snapshot_index, minlength=self._count)
        )

    def _chunks(self) -> list[tuple[int, int]]:
        """Return consecutive runs of the S snapshots whose nodes fit the scratch memory."""
        chunk_size = max(1, _SCRATCH // max(int(self._heights.max()), 1))
        return [(first, min(first + chunk_size, self._count)) for first in range(0, self._count, chunk_size)]

    @cached_property
    def _scratch(self) -> NDArray[np.int32]:
        return np.empty(max(int(self._heights[first:stop].sum()) for first, stop in self._chunks()), np.int32)

    def _keys(self, gathered: GatheredTargets) -> NDArray[Any]:
        if self._shared:
            return gathered.place
        return gathered.place + np.repeat(self._key_at, gathered.per_snapshot)

    def _add(self, snapshot: Whole | None, places: Whole) -> None:
        """Append rows, ascending; those of some snapshots, or the same to all."""
        if snapshot is None:
            self._row[places] = np.arange(len(self._nearest), len(self._nearest) + len(places), dtype=np.int32)
            self._known[places] = True
            self._nearest = np.concatenate([self._nearest, places])
            k = len(self._nearest)
            self.entries = Entries(
                np.repeat(np.arange(self._count), k), np.tile(self._nearest, self._count), np.full(self._count, k)
            )
            return
        entries, counts = self.entries, np.bincount(snapshot, minlength=self._count)
        keys = places + self._wide_at[snapshot]
        first = np.cumsum(counts) - counts
        self._row[keys] = np.arange(len(places)) + (entries.counts - first)[snapshot]
        self._known[keys] = True
        both = np.concatenate([entries.snapshot, snapshot])
        order = np.argsort(both, kind="stable")
        self.entries = Entries(both[order], np.concatenate([entries.place, places])[order], entries.counts + counts)


def _distinct(keys: NDArray[Any], scratch: NDArray[np.int32]) -> Whole:
    """Return each key once, ascending; what scratch has at the keys is overwritten."""
    number = np.arange(len(keys), dtype=np.int32)
    scratch[keys] = number
    once = keys[scratch[keys] == number].astype(np.int64)
    once.sort()
    return once
