"""Halo rows of a snapshot: the remote rows that each part needs for an aggregation."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config.model_facts import DIRECTIONS
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import Partition
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.graphs.snapshot import distinct as distinct_of_sorted


def remote_rows(snapshot: Snapshot, partition: Partition, direction: str = "in") -> tuple[NDArray[np.int64], ...]:
    """Return the distinct remote nodes that each part aggregates from.

    Args:
        snapshot: N nodes.
        partition: of the same N nodes into P parts.
        direction: edge direction: ``in`` aggregates over in-neighbours, ``out`` over out-neighbours.

    Returns:
        ``part`` (h,) and ``source`` (h,), int64: part ``part[i]`` needs the row of node ``source[i]``. Sorted by
        part, then by the source's owner, then by source.

    Raises:
        PlanError: the partition is of other nodes, or the direction is unknown.
    """
    to_part, sources = pulls_of(snapshot, partition, direction)
    cut = np.flatnonzero(to_part != partition.owner[sources])
    return distinct_rows(to_part[cut], sources[cut], partition)


def pulls_of(snapshot: Snapshot, partition: Partition, direction: str) -> tuple[NDArray[np.int32], NDArray[np.integer]]:
    """Return the part of the target and the source node of every edge; both (E,), in the snapshot's order.

    Raises:
        PlanError: the partition is of other nodes, or the direction is unknown.
    """
    if direction not in DIRECTIONS:
        raise PlanError(f"direction={direction!r} must be the edge direction 'in' or 'out'.")
    if len(partition.owner) != snapshot.num_nodes:
        raise PlanError(
            f"the partition has {len(partition.owner):,} nodes, but the snapshot has {snapshot.num_nodes:,}. "
            "Make a partition of this graph."
        )
    if direction == "in":
        return np.repeat(partition.owner, np.diff(snapshot.indptr)), snapshot.indices
    return partition.owner[snapshot.indices], snapshot.rows()


def distinct_rows(
    to_part: NDArray[np.integer], sources: NDArray[np.integer], partition: Partition
) -> tuple[NDArray[np.int64], ...]:
    """Return distinct (part, source) pairs, sorted by part, the source's owner, and source; both (h,), int64."""
    vertices = len(partition.owner)
    owners = partition.owner[sources]
    keys = distinct((to_part.astype(np.int64) * partition.parts + owners) * vertices + sources)
    pairs = keys // vertices
    return pairs // partition.parts, keys - pairs * vertices


def distinct(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sort keys in place, and return the distinct ones; several times faster than ``np.unique``."""
    keys.sort()
    return distinct_of_sorted(keys)


def pulled_rows(snapshots: Iterable[Snapshot], partition: Partition, direction: str = "in") -> NDArray[np.int64]:
    """Count rows that part q sends to part p in each of T snapshots, (T, P, P) indexed [t, q, p]; the diagonal is 0.

    Args:
        snapshots: T of N nodes.
        partition: of the same nodes.
        direction: edge direction: ``in`` or ``out``.

    Raises:
        PlanError: the partition is of other nodes, or the direction is unknown.
    """
    parts, matrices = partition.parts, []
    for snapshot in snapshots:
        to_part, source = remote_rows(snapshot, partition, direction)
        pairs = partition.owner[source].astype(np.int64) * parts + to_part
        matrices.append(np.bincount(pairs, minlength=parts * parts).reshape(parts, parts))
    return np.array(matrices, np.int64).reshape(-1, parts, parts)
