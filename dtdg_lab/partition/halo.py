"""Halo rows of a snapshot: what each part must get from the others before it can pull."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import Partition
from dtdg_lab.graphs.snapshot import Snapshot, give_up

WAYS = ("in", "out")


def remote_rows(snapshot: Snapshot, partition: Partition, way: str = "in") -> tuple[NDArray[np.int64], ...]:
    """The distinct nodes that each part pulls from and does not own.

    Args:
        snapshot: N nodes.
        partition: of the same N nodes into P parts.
        way: ``in``: a node pulls from its in-neighbours; ``out``: from its out-neighbours.

    Returns:
        ``part`` (h,) and ``source`` (h,), int64: part ``part[i]`` needs the row of node ``source[i]``. Sorted by
        part, then by the source's owner, then by source.

    Raises:
        PlanError: the partition is of other nodes, or there is no such way.
    """
    to_part, sources = pulls_of(snapshot, partition, way)
    cut = np.flatnonzero(to_part != partition.owner[sources])
    return distinct_rows(to_part[cut], sources[cut], partition)


def pulls_of(snapshot: Snapshot, partition: Partition, way: str) -> tuple[NDArray[np.int32], NDArray[np.integer]]:
    """For every edge the part that pulls along it, and the node it pulls from; both (E,), in the snapshot's order.

    Raises:
        PlanError: the partition is of other nodes, or there is no such way.
    """
    if way not in WAYS:
        raise PlanError(f"way={way!r}: a node pulls along its edges 'in' or 'out'.")
    if len(partition.owner) != snapshot.num_nodes:
        raise PlanError(
            f"the partition is of {len(partition.owner):,} nodes, the snapshot has {snapshot.num_nodes:,}. "
            "Make a partition of this graph."
        )
    if way == "in":
        return np.repeat(partition.owner, np.diff(snapshot.indptr)), snapshot.indices
    return partition.owner[snapshot.indices], snapshot.rows()


def distinct_rows(
    to_part: NDArray[np.integer], sources: NDArray[np.integer], partition: Partition
) -> tuple[NDArray[np.int64], ...]:
    """Pairs of part and source, each once, sorted by part, by the source's owner, by source; both (h,), int64."""
    vertices = len(partition.owner)
    owners = partition.owner[sources]
    keys = distinct((to_part.astype(np.int64) * partition.parts + owners) * vertices + sources)
    between = keys // vertices
    return between // partition.parts, keys - between * vertices


def distinct(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """The keys, sorted, each once; several times as fast as ``np.unique``, which hashes first. Sorts in place."""
    keys.sort()
    first = np.empty(len(keys), bool)
    first[:1] = True
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return keys[first]


def transposed(snapshot: Snapshot) -> Snapshot:
    """The snapshot with every edge turned round, weights included: row u lists the out-neighbours of u."""
    targets, vertices = snapshot.rows(), snapshot.num_nodes
    keys = snapshot.indices.astype(np.int64) * vertices + targets  # each edge once, so no two are equal
    weights = None
    if snapshot.weights is None:
        keys.sort()
    else:
        order = np.argsort(keys)
        keys, weights = keys[order], give_up(snapshot.weights[order])
    degrees = np.bincount(snapshot.indices, minlength=vertices)
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    indices = keys - np.repeat(np.arange(vertices, dtype=np.int64) * vertices, degrees)
    return Snapshot.trusted(give_up(indptr), give_up(indices.astype(np.int32)), weights)


# Nodes within some hops of others, along the edges they pull by: what a part must hold to need nothing else.


MOST_HOPS = 126  # distances are int8, and one more means beyond
_KEYS_AT_ONCE = 1 << 23  # edges sorted together: 64 MiB


def hop_distance(
    snapshots: Sequence[Snapshot], own: NDArray[np.integer], hops: int, ways: Sequence[str] = ("in",)
) -> NDArray[np.int8]:
    """How many pulls away each node is from the nearest of some nodes.

    A node is at distance d where an own node reaches it by d pulls and by no fewer. With several snapshots an edge
    of any of them counts: state that runs through time carries what was pulled in another snapshot. For many calls over
    the same snapshots make :func:`union_of` them once and give that alone.

    Args:
        snapshots: at least one, all over the same N nodes.
        own: (n,) the nodes at distance 0.
        hops: D, the farthest that matters, 0 to 126.
        ways: ``in``, ``out`` or both: along which edges nodes pull.

    Returns:
        (N,) int8: 0 to D, and D + 1 for every node beyond.

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
    """For every part at once which nodes are within 0, 1, ..., D pulls of its own.

    Args:
        snapshots: at least one; an edge of any of them counts.
        owner: (N,) the part of each node; a part may own none of them.
        parts: P.
        hops: D.
        ways: along which edges nodes pull.

    Returns:
        D + 1 arrays (N, ceil(P / 64)): bit p % 64 of word p // 64 says that the node is within so many hops of part
        p's own; :func:`outside` reads them.

    Raises:
        PlanError: no snapshots, or other ways.
    """
    # a node tells those it is pulled from which parts have reached it: the lists turned round
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
    """Whether each part has reached each node and does not own it, (N, P)."""
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
        raise PlanError(f"ways={tuple(ways)}: a node pulls along its edges 'in', 'out' or both ways.")
    union = union_of(snapshots)
    return [union if way == "in" else transposed(union) for way in dict.fromkeys(ways)]


def union_of(snapshots: Sequence[Snapshot]) -> Snapshot:
    """One snapshot without weights that has every edge of the given ones, each once.

    Raises:
        PlanError: no snapshots, or snapshots of different numbers of nodes.
    """
    if not snapshots:
        raise PlanError("the union of no snapshots was asked for; give at least one.")
    vertices = snapshots[0].num_nodes
    if any(snapshot.num_nodes != vertices for snapshot in snapshots):
        raise PlanError(f"snapshots of {sorted({s.num_nodes for s in snapshots})} nodes; all must have as many.")
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


# Rows that parts of a partition send each other for one pull, snapshot by snapshot.


def pulled_rows(snapshots: Iterable[Snapshot], partition: Partition, way: str = "in") -> NDArray[np.int64]:
    """Rows that part q sends to part p in each of T snapshots, at [t, q, p]: (T, P, P); none to itself.

    Args:
        snapshots: T of N nodes.
        partition: of the same nodes.
        way: along which edges nodes pull: ``in`` or ``out``.

    Raises:
        PlanError: the partition is of other nodes, or there is no such way.
    """
    parts, found = partition.parts, []
    for snapshot in snapshots:
        to_part, source = remote_rows(snapshot, partition, way)
        pairs = partition.owner[source].astype(np.int64) * parts + to_part
        found.append(np.bincount(pairs, minlength=parts * parts).reshape(parts, parts))
    return np.array(found, np.int64).reshape(-1, parts, parts)


# How many nodes and edges parts replicate that hold all within some hops of their own.


Counts = NDArray[np.int64]


def count_replicated(
    snapshots: Sequence[Snapshot], partition: Partition, hops: int, ways: Sequence[str], *, static: bool
) -> tuple[Counts, Counts]:
    """Replicated rows and the edges held for them.

    Args:
        snapshots: T, all over the same N nodes.
        partition: of the same nodes into P parts.
        hops: D, at least 1.
        ways: along which edges nodes pull.
        static: hold in every snapshot what is within D hops by edges of any; else by those of each snapshot alone.

    Returns:
        Nodes within D hops of a part's own that it does not own, and the edges along which those within D - 1 hops
        pull, each way; both (T, P).
    """
    rows, edges = np.zeros((2, len(snapshots), partition.parts), np.int64)
    together = [slice(0, len(snapshots))] if static else [slice(t, t + 1) for t in range(len(snapshots))]
    place = np.empty(len(partition.owner), np.int32)  # of a node among those that have edges
    for run in together:
        busy, compact = _with_edges(union_of(snapshots[run]), place)
        if not len(busy):
            continue
        owner = partition.owner[busy]
        *_, nearer, farthest = within_hops([compact], owner, partition.parts, hops, ways)
        rows[run] = outside(farthest, owner, partition.parts).sum(axis=0)
        held = outside(nearer, owner, partition.parts)
        for t in range(run.start, run.stop) if held.any() else ():
            for way in ways:
                edges[t] += _edges_of(snapshots[t], held, place, way)
    return rows, edges


def _with_edges(snapshot: Snapshot, place: NDArray[np.int32]) -> tuple[NDArray[np.int64], Snapshot]:
    """The nodes that have edges, and the snapshot over them alone; their places are written into ``place``."""
    marked = np.diff(snapshot.indptr) > 0
    marked[snapshot.indices] = True
    busy = np.flatnonzero(marked)
    if len(busy):
        place[busy] = np.arange(len(busy), dtype=np.int32)
        indptr = np.append(snapshot.indptr[busy], snapshot.num_edges)  # rows left out are empty
        snapshot = Snapshot.trusted(give_up(indptr), give_up(place[snapshot.indices]))
    return busy, snapshot


def _edges_of(snapshot: Snapshot, held: NDArray[np.bool_], place: NDArray[np.int32], way: str) -> Counts:
    """How many edges the nodes that each part holds pull along, (P,); held (n, P)."""
    lengths = np.diff(snapshot.indptr) if way == "in" else np.bincount(snapshot.indices, minlength=snapshot.num_nodes)
    pulling = np.flatnonzero(lengths)
    # floats multiply fast, and whole numbers below 2^53 exactly
    counted = lengths[pulling].astype(np.float64) @ held[place[pulling]].astype(np.float64)
    return counted.astype(np.int64)
