"""What the cached parts of a partition would take, counted before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.core.plans import Partition
from dtdg_lab.core.units import format_bytes
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.parallel.cached_part import Reach, degree_type, offset_type
from dtdg_lab.partition.halo import WAYS
from dtdg_lab.partition.hop_sets import hop_distance, union_of


@dataclass(frozen=True, slots=True, eq=False)
class CacheSize:
    """What each of P parts holds; (P,) each.

    Attributes:
        rows: vertices held, own and replicated, summed over snapshots.
        edges: edges held, summed over snapshots and ways.
        bytes: of all arrays, as :attr:`dtdg_lab.parallel.cached_part.CachedPart.nbytes` finds them.
    """

    rows: NDArray[np.int64]
    edges: NDArray[np.int64]
    bytes: NDArray[np.int64]

    def refuse_above(self, cache_gib: float, owned: int) -> None:
        """Refuse parts that take more together than is allowed.

        Args:
            cache_gib: most that they may take, in GiB.
            owned: rows that are not copies: vertices times snapshots.

        Raises:
            UnsupportedError: they take more; with the numbers.
        """
        total, allowed = int(self.bytes.sum()), cache_gib * 2**30
        if total > allowed:
            rows = int(self.rows.sum())
            raise UnsupportedError(
                f"cached_vertex would hold {rows:,} rows, {rows / owned:.1f} for each of the {owned:,} trained, and "
                f"{int(self.edges.sum()):,} edges: {format_bytes(total)} in {len(self.bytes)} parts, where "
                f"cache_gib={cache_gib:g} allows {format_bytes(allowed)}. Set cache_gib higher, fewer layers, fewer "
                "parts or another partitioner; or choose system='adgnn-t' (halo_vertex), which holds no copies."
            )


def cache_size(graph: DynamicGraph, partition: Partition, reach: Reach) -> CacheSize:
    """Rows, edges and bytes that the parts of a partition hold; exact.

    Args:
        graph: N vertices.
        partition: of these vertices into P parts.
        reach: what is held.
    """
    snapshots = [graph.snapshots[t] for t in reach.snapshots]
    count = _static if reach.static else _by_snapshot
    found = count(snapshots, [partition.vertices(part) for part in range(partition.parts)], reach)
    rows, starts, edges, known = np.array(found, np.int64).T
    feature_rows = known if graph.static_features else rows
    total = 8 * (reach.hops + 1) * (1 if reach.static else len(snapshots))  # bounds
    total += 4 * (rows // len(snapshots) if reach.static else rows)  # vertices
    total += len(reach.ways) * (starts * offset_type(snapshots).itemsize + 8 * len(snapshots))
    total += edges * (8 if graph.weighted else 4)
    total += len(WAYS) * rows * degree_type(graph).itemsize
    total += feature_rows * 4 * graph.num_features
    if graph.static_features and not reach.static:
        total += known * 4
    return CacheSize(rows, edges, total)


Counts = tuple[int, int, int, int]  # rows, row starts along one way, edges, distinct vertices


def _static(snapshots: Sequence[Snapshot], parts: Sequence[NDArray[np.int64]], reach: Reach) -> list[Counts]:
    """Counts of each part that holds the same vertices in all snapshots."""
    union, none = union_of(snapshots), np.zeros(snapshots[0].num_nodes, np.int64)
    pulls = sum((_pulls(snapshot, reach) for snapshot in snapshots), none)
    found = []
    for own in parts:
        distance = hop_distance([union], own, reach.hops, reach.ways)
        held = distance <= reach.hops
        inner = held if reach.truncated else distance < reach.hops
        if reach.truncated:
            edges = len(reach.ways) * sum(int((held[of.rows()] & held[of.indices]).sum()) for of in snapshots)
        else:
            edges = int(pulls[inner].sum())
        found.append(
            (int(held.sum()) * len(snapshots), (int(inner.sum()) + 1) * len(snapshots), edges, int(held.sum()))
        )
    return found


def _by_snapshot(snapshots: Sequence[Snapshot], parts: Sequence[NDArray[np.int64]], reach: Reach) -> list[Counts]:
    """Counts of each part that holds in every snapshot what it needs there."""
    counts = np.zeros((len(parts), 3), np.int64)
    met = np.zeros((len(parts), snapshots[0].num_nodes), bool)
    for snapshot in snapshots:
        pulls = _pulls(snapshot, reach)
        for part, own in enumerate(parts):
            distance = hop_distance([snapshot], own, reach.hops, reach.ways)
            held, inner = distance <= reach.hops, distance < reach.hops
            counts[part] += held.sum(), inner.sum() + 1, pulls[inner].sum()
            met[part] |= held
    return [(*of.tolist(), int(known.sum())) for of, known in zip(counts, met, strict=True)]


def _pulls(snapshot: Snapshot, reach: Reach) -> NDArray[np.int64]:
    """How many edges each vertex pulls along, all ways together, (N,)."""
    each = {"in": np.diff(snapshot.indptr), "out": np.bincount(snapshot.indices, minlength=snapshot.num_nodes)}
    return sum((each[way] for way in reach.ways), np.zeros(snapshot.num_nodes, np.int64))
