"""Halo rows of a snapshot: what each part must get from the others before it can pull."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import Partition
from dtdg_lab.graphs.arrays import give_up
from dtdg_lab.graphs.snapshot import Snapshot

WAYS = ("in", "out")


def remote_rows(snapshot: Snapshot, partition: Partition, way: str = "in") -> tuple[NDArray[np.int64], ...]:
    """The distinct vertices that each part pulls from and does not own.

    Args:
        snapshot: N vertices.
        partition: of the same N vertices into P parts.
        way: ``in``: a vertex pulls from its in-neighbours; ``out``: from its out-neighbours.

    Returns:
        ``part`` (h,) and ``source`` (h,), int64: part ``part[i]`` needs the row of vertex ``source[i]``. Sorted by
        part, then by the source's owner, then by source.

    Raises:
        PlanError: the partition is of other vertices, or there is no such way.
    """
    to_part, sources = pulls_of(snapshot, partition, way)
    cut = np.flatnonzero(to_part != partition.owner[sources])
    return distinct_rows(to_part[cut], sources[cut], partition)


def pulls_of(snapshot: Snapshot, partition: Partition, way: str) -> tuple[NDArray[np.int32], NDArray[np.integer]]:
    """For every edge the part that pulls along it, and the vertex it pulls from; both (E,), in the snapshot's order.

    Raises:
        PlanError: the partition is of other vertices, or there is no such way.
    """
    if way not in WAYS:
        raise PlanError(f"way={way!r}: a vertex pulls along its edges 'in' or 'out'.")
    if len(partition.owner) != snapshot.num_nodes:
        raise PlanError(
            f"the partition is of {len(partition.owner):,} vertices, the snapshot has {snapshot.num_nodes:,}. "
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
