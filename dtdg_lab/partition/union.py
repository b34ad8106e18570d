"""The union of snapshots: one undirected graph that knows how many snapshots hold each pair."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.graphs.snapshot import Snapshot

_WAITING = 1 << 23  # pairs that are collected before they are merged: 64 MiB


@dataclass(frozen=True, slots=True, eq=False)
class UnionGraph:
    """An undirected graph without loops, as compressed sparse rows: each pair stands in both rows.

    Attributes:
        indptr: (N + 1,) int64.
        indices: (2 pairs,) int32, sorted within each row.
        snapshots: (2 pairs,) int64: how many snapshots hold the pair, in either direction.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    snapshots: NDArray[np.int64]


def union_graph(snapshots: Sequence[Snapshot]) -> UnionGraph:
    """The union of T snapshots over the same N vertices: duplicates merged, symmetrised, loops dropped.

    Costs O(E log E) for E edges over all snapshots; memory O(E of the union), not of the sequence.

    References: FlareDTDG section 4 (METIS on the union graph).
    """
    nodes = snapshots[0].num_nodes
    pairs, held = _merged(_pairs(snapshot) for snapshot in snapshots)
    low, high = np.divmod(pairs, nodes)
    keys = np.concatenate([low * nodes + high, high * nodes + low])
    order = np.argsort(keys, kind="stable")
    rows, columns = np.divmod(keys[order], nodes)
    indptr = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=nodes), out=indptr[1:])
    return UnionGraph(indptr, columns.astype(np.int32), np.concatenate([held, held])[order])


def restricted(union: UnionGraph, vertices: NDArray[np.int64]) -> UnionGraph:
    """The union graph among some of its vertices, numbered anew in their order; costs O(their pairs).

    Args:
        union: N vertices.
        vertices: (n,) ascending, distinct.
    """
    number = np.full(len(union.indptr) - 1, -1, np.int32)
    number[vertices] = np.arange(len(vertices), dtype=np.int32)
    lengths = np.diff(union.indptr)[vertices]
    rows = np.repeat(np.arange(len(vertices)), lengths)
    ends = np.cumsum(lengths)
    at = np.arange(len(rows)) + np.repeat(union.indptr[vertices] - (ends - lengths), lengths)
    columns = number[union.indices[at]]
    inside = columns >= 0
    indptr = np.zeros(len(vertices) + 1, np.int64)
    np.cumsum(np.bincount(rows[inside], minlength=len(vertices)), out=indptr[1:])
    return UnionGraph(indptr, columns[inside], union.snapshots[at[inside]])


def _pairs(snapshot: Snapshot) -> NDArray[np.int64]:
    """Each pair of different vertices that an edge joins, once, as lower N + higher; sorted."""
    rows, sources = snapshot.rows(), snapshot.indices.astype(np.int64)
    apart = rows != sources
    rows, sources = rows[apart], sources[apart]
    keys = np.minimum(rows, sources) * snapshot.num_nodes + np.maximum(rows, sources)
    keys.sort()
    return keys[_firsts(keys)]


def _merged(parts: Iterable[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct keys of all parts and in how many parts they are; each part names a key once."""
    keys, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    waiting: list[NDArray[np.int64]] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size > _WAITING:
            keys, counts = _added(keys, counts, waiting)
            waiting, size = [], 0
    return _added(keys, counts, waiting)


def _added(
    keys: NDArray[np.int64], counts: NDArray[np.int64], more: list[NDArray[np.int64]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct sorted keys with their counts, and more keys that count 1 each, as one."""
    fresh = np.concatenate([np.empty(0, np.int64), *more])
    fresh.sort()
    firsts = _firsts(fresh)
    fresh, number = fresh[firsts], np.diff(firsts, append=len(fresh))
    if not len(keys):
        return fresh, number
    both = np.concatenate([keys, fresh])
    order = np.argsort(both, kind="stable")  # two sorted runs: merged in one pass
    both, number = both[order], np.concatenate([counts, number])[order]
    firsts = _firsts(both)
    return both[firsts], np.add.reduceat(number, firsts)


def _firsts(ordered: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each distinct key of a sorted vector begins."""
    return np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
