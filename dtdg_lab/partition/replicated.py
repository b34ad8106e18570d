"""How many vertices and edges parts replicate that hold all within some hops of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.plans import Partition
from dtdg_lab.graphs.arrays import give_up
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.partition.hop_sets import outside, union_of, within_hops

Counts = NDArray[np.int64]


def count_replicated(
    snapshots: Sequence[Snapshot], partition: Partition, hops: int, ways: Sequence[str], *, static: bool
) -> tuple[Counts, Counts]:
    """Replicated rows and the edges held for them.

    Args:
        snapshots: T, all over the same N vertices.
        partition: of the same vertices into P parts.
        hops: D, at least 1.
        ways: along which edges vertices pull.
        static: hold in every snapshot what is within D hops by edges of any; else by those of each snapshot alone.

    Returns:
        Vertices within D hops of a part's own that it does not own, and the edges along which those within D - 1 hops
        pull, each way; both (T, P).
    """
    rows, edges = np.zeros((2, len(snapshots), partition.parts), np.int64)
    together = [slice(0, len(snapshots))] if static else [slice(t, t + 1) for t in range(len(snapshots))]
    place = np.empty(len(partition.owner), np.int32)  # of a vertex among those that have edges
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
    """The vertices that have edges, and the snapshot over them alone; their places are written into ``place``."""
    marked = np.diff(snapshot.indptr) > 0
    marked[snapshot.indices] = True
    busy = np.flatnonzero(marked)
    if len(busy):
        place[busy] = np.arange(len(busy), dtype=np.int32)
        indptr = np.append(snapshot.indptr[busy], snapshot.num_edges)  # rows left out are empty
        snapshot = Snapshot.trusted(give_up(indptr), give_up(place[snapshot.indices]))
    return busy, snapshot


def _edges_of(snapshot: Snapshot, held: NDArray[np.bool_], place: NDArray[np.int32], way: str) -> Counts:
    """How many edges the vertices that each part holds pull along, (P,); held (n, P)."""
    lengths = np.diff(snapshot.indptr) if way == "in" else np.bincount(snapshot.indices, minlength=snapshot.num_nodes)
    pulling = np.flatnonzero(lengths)
    # floats multiply fast, and whole numbers below 2^53 exactly
    counted = lengths[pulling].astype(np.float64) @ held[place[pulling]].astype(np.float64)
    return counted.astype(np.int64)
