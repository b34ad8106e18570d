"""Vertices within some hops of others, along the edges they pull by: what a part must hold to need nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError
from dtdg_lab.graphs.arrays import give_up
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.partition.halo import WAYS, distinct, transposed

MOST_HOPS = 126  # distances are int8, and one more means beyond
_KEYS_AT_ONCE = 1 << 23  # edges sorted together: 64 MiB


def hop_distance(
    snapshots: Sequence[Snapshot], own: NDArray[np.integer], hops: int, ways: Sequence[str] = ("in",)
) -> NDArray[np.int8]:
    """How many pulls away each vertex is from the nearest of some vertices.

    A vertex is at distance d where an own vertex reaches it by d pulls and by no fewer. With several snapshots an edge
    of any of them counts: state that runs through time carries what was pulled in another snapshot. For many calls over
    the same snapshots make :func:`union_of` them once and give that alone.

    Args:
        snapshots: at least one, all over the same N vertices.
        own: (n,) the vertices at distance 0.
        hops: D, the farthest that matters, 0 to 126.
        ways: ``in``, ``out`` or both: along which edges vertices pull.

    Returns:
        (N,) int8: 0 to D, and D + 1 for every vertex beyond.

    Raises:
        PlanError: no snapshots, other ways, or hops outside 0 to 126.
    """
    if not 0 <= hops <= MOST_HOPS:
        raise PlanError(f"hops={hops}: 0 to {MOST_HOPS} are allowed.")
    neighbours = lists_of(snapshots, ways)
    distance = np.full(neighbours[0].num_nodes, hops + 1, np.int8)
    distance[own] = 0
    frontier = np.asarray(own, dtype=np.int64)
    for hop in range(1, hops + 1):
        reached = np.zeros(len(distance), bool)
        for lists in neighbours:
            reached[_entries(lists, frontier)] = True
        frontier = np.flatnonzero(reached & (distance > hop))
        distance[frontier] = hop
    return distance


def within_hops(
    snapshots: Sequence[Snapshot], owner: NDArray[np.int32], parts: int, hops: int, ways: Sequence[str] = ("in",)
) -> list[NDArray[np.uint64]]:
    """For every part at once which vertices are within 0, 1, ..., D pulls of its own.

    Args:
        snapshots: at least one; an edge of any of them counts.
        owner: (N,) the part of each vertex; a part may own none of them.
        parts: P.
        hops: D.
        ways: along which edges vertices pull.

    Returns:
        D + 1 arrays (N, ceil(P / 64)): bit p % 64 of word p // 64 says that the vertex is within so many hops of part
        p's own; :func:`outside` reads them.

    Raises:
        PlanError: no snapshots, or other ways.
    """
    # a vertex tells those it is pulled from which parts have reached it: the lists turned round
    pulled_by = [transposed(lists) for lists in lists_of(snapshots, ways)]
    reached = _own_bits(owner, parts)
    all_reached = [reached]
    for _ in range(hops):
        wider = reached.copy()
        for lists in pulled_by:
            rows = np.flatnonzero(np.diff(lists.indptr))
            if len(rows):
                wider[rows] |= np.bitwise_or.reduceat(reached[lists.indices], lists.indptr[rows], axis=0)
        if np.array_equal(wider, reached):  # nothing is farther
            break
        reached = wider
        all_reached.append(reached)
    return all_reached + [reached] * (hops + 1 - len(all_reached))


def outside(reached: NDArray[np.uint64], owner: NDArray[np.int32], parts: int) -> NDArray[np.bool_]:
    """Whether each part has reached each vertex and does not own it, (N, P)."""
    others = (reached & ~_own_bits(owner, parts)).astype("<u8", copy=False).view(np.uint8)
    return np.unpackbits(others, axis=1, count=parts, bitorder="little").view(bool)


def _own_bits(owner: NDArray[np.int32], parts: int) -> NDArray[np.uint64]:
    bits = np.zeros((len(owner), -(-parts // 64)), np.uint64)
    word, bit = np.divmod(owner, 64)
    bits[np.arange(len(bits)), word] = np.uint64(1) << bit.astype(np.uint64)
    return bits


def lists_of(snapshots: Sequence[Snapshot], ways: Sequence[str]) -> list[Snapshot]:
    """For each way one snapshot whose row v lists what v pulls from, in any of the snapshots.

    Raises:
        PlanError: no snapshots, or other ways.
    """
    if not ways or any(way not in WAYS for way in ways):
        raise PlanError(f"ways={tuple(ways)}: a vertex pulls along its edges 'in', 'out' or both ways.")
    union = union_of(snapshots)
    return [union if way == "in" else transposed(union) for way in dict.fromkeys(ways)]


def union_of(snapshots: Sequence[Snapshot]) -> Snapshot:
    """One snapshot without weights that has every edge of the given ones, each once.

    Raises:
        PlanError: no snapshots, or snapshots of different numbers of vertices.
    """
    if not snapshots:
        raise PlanError("the union of no snapshots was asked for; give at least one.")
    vertices = snapshots[0].num_nodes
    if any(snapshot.num_nodes != vertices for snapshot in snapshots):
        raise PlanError(f"snapshots of {sorted({s.num_nodes for s in snapshots})} vertices; all must have as many.")
    if len(snapshots) == 1:
        only = snapshots[0]
        return only if only.weights is None else Snapshot.trusted(only.indptr, only.indices)
    known = np.empty(0, np.int64)
    waiting: list[NDArray[np.int64]] = []
    size = 0
    for snapshot in snapshots:
        waiting.append(snapshot.rows() * vertices + snapshot.indices)
        size += snapshot.num_edges
        if size > _KEYS_AT_ONCE:
            known, waiting, size = distinct(np.concatenate([known, *waiting])), [], 0
    known = distinct(np.concatenate([known, *waiting]))
    rows, sources = np.divmod(known, vertices)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=vertices))]).astype(np.int64)
    return Snapshot.trusted(give_up(indptr), give_up(sources.astype(np.int32)))


def _entries(lists: Snapshot, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """The entries of some rows, one row after another."""
    start, length = lists.indptr[rows], np.diff(lists.indptr)[rows]
    ends = np.cumsum(length)
    if not len(ends) or not ends[-1]:
        return lists.indices[:0]
    return lists.indices[np.arange(ends[-1]) + np.repeat(start - ends + length, length)]
