"""Neighbourhoods of k hops along the edges of aggregation, which a part replicates to compute without exchanges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config.model_facts import DIRECTIONS
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import Partition
from dtdg_lab.graphs.snapshot import (
    Snapshot,
    distinct,
    edge_keys,
    keys_of,
    read_only,
    snapshot_of_rows,
    stable_order,
    targets,
)

MOST_HOPS = 126  # maximum in int8, with one value reserved for farther nodes
KEYS_AT_ONCE = 1 << 23  # edges sorted together: 64 MiB


def transposed(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with all edges reversed, including weights: row u lists the out-neighbours of u."""
    order = stable_order(snapshot.indices)
    keys = keys_of(snapshot.rows()[order], snapshot.indices[order])
    weights = None if snapshot.weights is None else snapshot.weights[order]
    return snapshot_of_rows(np.bincount(snapshot.indices, minlength=snapshot.num_nodes), keys, weights)


def hop_distance(
    snapshots: Sequence[Snapshot], own: NDArray[np.integer], hops: int, directions: Sequence[str] = ("in",)
) -> NDArray[np.int8]:
    """Return the distance of each node from the nearest of some nodes, in aggregation hops.

    With several snapshots, edges of all of them count, because recurrent state carries information from one snapshot
    to the next. For many calls over the same snapshots, pass their :func:`union_of` instead.

    Args:
        snapshots: one or more snapshots of the same N nodes.
        own: (n,) the nodes at distance 0.
        hops: D, the maximum distance, 0 to 126.
        directions: edge directions of aggregation: ``in``, ``out`` or both.

    Returns:
        (N,) int8: 0 to D, and D + 1 for farther nodes.

    Raises:
        PlanError: no snapshots, unknown directions, or hops outside 0 to 126.
    """
    if not 0 <= hops <= MOST_HOPS:
        raise PlanError(f"hops={hops} must be from 0 to {MOST_HOPS}.")
    _check_directions(directions)
    distance = np.full(_common_nodes(snapshots), hops + 1, np.int8)
    distance[own] = 0
    for hop in range(1, hops + 1):
        in_frontier = distance == hop - 1
        frontier = np.flatnonzero(in_frontier)
        reached = np.zeros(len(distance), bool)
        for snapshot in snapshots if len(frontier) else ():
            if "in" in directions:
                reached[_entries(snapshot, frontier)] = True
            if "out" in directions:
                reached[snapshot.rows()[in_frontier[snapshot.indices]]] = True
        distance[reached & (distance > hop)] = hop
    return distance


def within_hops(
    snapshots: Sequence[Snapshot], owner: NDArray[np.int32], parts: int, hops: int, directions: Sequence[str] = ("in",)
) -> list[NDArray[np.uint64]]:
    """Return the nodes within 0, 1, ..., D hops of the own nodes of each part, for all parts at once.

    Args:
        snapshots: at least one; an edge of any of them counts.
        owner: (N,) the part of each node; a part may own none of them.
        parts: P.
        hops: D.
        directions: edge directions of aggregation.

    Returns:
        D + 1 arrays (N, ceil(P / 64)): bit p % 64 of word p // 64 is set if the node is within that many hops of part
        p's own nodes; read them with :func:`outside`.

    Raises:
        PlanError: no snapshots, or unknown directions.
    """
    # sets of parts propagate from a node to its sources, along reversed edges
    pulled_by = [transposed(lists) for lists in lists_of(snapshots, directions)]
    reached = _own_bits(owner, parts)
    all_reached = [reached]
    for _ in range(hops):
        wider = reached.copy()
        for lists in pulled_by:
            rows = np.flatnonzero(np.diff(lists.indptr))
            if len(rows):
                wider[rows] |= np.bitwise_or.reduceat(reached[lists.indices], lists.indptr[rows], axis=0)
        if np.array_equal(wider, reached):
            break
        reached = wider
        all_reached.append(reached)
    return all_reached + [reached] * (hops + 1 - len(all_reached))


def outside(reached: NDArray[np.uint64], owner: NDArray[np.int32], parts: int) -> NDArray[np.bool_]:
    """Return whether each part has reached each node without owning it, (N, P)."""
    remote = (reached & ~_own_bits(owner, parts)).astype("<u8", copy=False).view(np.uint8)
    return np.unpackbits(remote, axis=1, count=parts, bitorder="little").view(bool)


def _own_bits(owner: NDArray[np.int32], parts: int) -> NDArray[np.uint64]:
    bits = np.zeros((len(owner), -(-parts // 64)), np.uint64)
    word, bit = np.divmod(owner, 64)
    bits[np.arange(len(bits)), word] = np.uint64(1) << bit.astype(np.uint64)
    return bits


def lists_of(snapshots: Sequence[Snapshot], directions: Sequence[str]) -> list[Snapshot]:
    """Return a snapshot for each direction, whose row v lists the nodes that v pulls from in any snapshot.

    Raises:
        PlanError: no snapshots, or unknown directions.
    """
    _check_directions(directions)
    union = union_of(snapshots)
    return [union if direction == "in" else transposed(union) for direction in dict.fromkeys(directions)]


def _check_directions(directions: Sequence[str]) -> None:
    """Raise unless these are directions of aggregation."""
    if not directions or any(direction not in DIRECTIONS for direction in directions):
        raise PlanError(f"directions={tuple(directions)}: a node pulls along its edges 'in', 'out' or both ways.")


def _common_nodes(snapshots: Sequence[Snapshot]) -> int:
    """Return the number of nodes of all snapshots; raise if they differ, or there are none."""
    if not snapshots:
        raise PlanError("neighbourhoods need at least one snapshot, but there is none. Give the snapshots of a graph.")
    counts = {snapshot.num_nodes for snapshot in snapshots}
    if len(counts) > 1:
        raise PlanError(f"snapshots have {sorted(counts)} nodes, but all must have the same number.")
    return counts.pop()


def union_of(snapshots: Sequence[Snapshot]) -> Snapshot:
    """Return the union of snapshots, without weights or duplicate edges.

    Raises:
        PlanError: no snapshots, or snapshots of different numbers of nodes.
    """
    vertices = _common_nodes(snapshots)
    if len(snapshots) == 1:
        snapshot = snapshots[0]
        return snapshot if snapshot.weights is None else Snapshot.trusted(snapshot.indptr, snapshot.indices)
    merged = np.empty(0, np.int64)
    waiting: list[NDArray[np.int64]] = []
    size = 0
    for snapshot in snapshots:
        waiting.append(edge_keys(snapshot))
        size += snapshot.num_edges
        if size > max(KEYS_AT_ONCE, len(merged)):  # sorts the merged keys again only when as many are new
            merged, waiting, size = _merge(merged, waiting), [], 0
    merged = _merge(merged, waiting)
    return snapshot_of_rows(np.bincount(targets(merged), minlength=vertices), merged, None)


def _merge(merged: NDArray[np.int64], arrays: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the distinct keys of ascending arrays; a stable sort merges such runs quickly."""
    keys = np.concatenate([merged, *arrays])
    keys.sort(kind="stable")
    return distinct(keys)


def _entries(lists: Snapshot, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the concatenated entries of some rows."""
    start, length = lists.indptr[rows], np.diff(lists.indptr)[rows]
    ends = np.cumsum(length)
    if not len(ends) or not ends[-1]:
        return lists.indices[:0]
    return lists.indices[np.arange(ends[-1]) + np.repeat(start - ends + length, length)]


Counts = NDArray[np.int64]


def count_replicated(
    snapshots: Sequence[Snapshot], partition: Partition, hops: int, directions: Sequence[str], *, static: bool
) -> tuple[Counts, Counts]:
    """Count replicated rows and edges.

    Args:
        snapshots: T snapshots of the same N nodes.
        partition: partition of the same nodes into P parts.
        hops: D, at least 1.
        directions: edge directions of aggregation.
        static: whether to replicate the D-hop neighbourhood in the union of all snapshots, instead of one for each.

    Returns:
        Number of remote nodes within D hops of a part's own nodes, and of the edges of those within D - 1 hops in each
        direction; both (T, P).
    """
    rows, edges = np.zeros((2, len(snapshots), partition.parts), np.int64)
    if partition.parts == 1:  # all nodes are its own
        return rows, edges
    spans = [slice(0, len(snapshots))] if static else [slice(t, t + 1) for t in range(len(snapshots))]
    number = np.empty(len(partition.owner), np.int32)  # index of a node among the nodes with edges
    for span in spans:
        busy, compact = _with_edges(union_of(snapshots[span]), number)
        if not len(busy):
            continue
        owner = partition.owner[busy]
        *_, nearer, farthest = within_hops([compact], owner, partition.parts, hops, directions)
        rows[span] = outside(farthest, owner, partition.parts).sum(axis=0)
        copies = outside(nearer, owner, partition.parts)
        for t in range(span.start, span.stop) if copies.any() else ():
            for direction in directions:
                edges[t] += _count_edges(snapshots[t], copies, number, direction)
    return rows, edges


def _with_edges(snapshot: Snapshot, number: NDArray[np.int32]) -> tuple[NDArray[np.int64], Snapshot]:
    """Return the nodes with edges, and the snapshot restricted to them; write their new numbers into ``number``."""
    marked = np.diff(snapshot.indptr) > 0
    marked[snapshot.indices] = True
    busy = np.flatnonzero(marked)
    if len(busy):
        number[busy] = np.arange(len(busy), dtype=np.int32)
        indptr = np.append(snapshot.indptr[busy], snapshot.num_edges)  # omitted rows are empty
        snapshot = Snapshot.trusted(read_only(indptr), read_only(number[snapshot.indices]))
    return busy, snapshot


def _count_edges(snapshot: Snapshot, copies: NDArray[np.bool_], number: NDArray[np.int32], direction: str) -> Counts:
    """Count the edges that the copies of each part aggregate over, (P,); ``copies`` is (n, P)."""
    lengths = (
        np.diff(snapshot.indptr) if direction == "in" else np.bincount(snapshot.indices, minlength=snapshot.num_nodes)
    )
    pulling = np.flatnonzero(lengths)
    # float products are fast, and exact for integers below 2^53
    counts = lengths[pulling].astype(np.float64) @ copies[number[pulling]].astype(np.float64)
    return counts.astype(np.int64)
