"""One part's nodes with copies of all neighbours that its layers reach, so that it trains without other ranks."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config.model_facts import DIRECTIONS
from dtdg_lab.core.errors import DataError, PlanError, UnsupportedError
from dtdg_lab.core.plans import Partition
from dtdg_lab.core.system_errors import is_refusal
from dtdg_lab.core.units import format_bytes
from dtdg_lab.datasets.download import one_at_a_time
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.graphs.storage import META, Draft, cache_folder, holds_graph, read
from dtdg_lab.partition.neighbourhoods import hop_distance, transposed, union_of

STATIC_MEMORIES = ("per_vertex", "neighbourhood")  # memories whose state carries the pulls of earlier snapshots


@dataclass(frozen=True, slots=True)
class Reach:
    """Neighbourhood that a part holds.

    Attributes:
        snapshots: the trained snapshots.
        hops: layers times the hops of each, D.
        directions: edge directions along which nodes pull: ``in``, ``out`` or both.
        static: whether all snapshots hold the same nodes: those within D hops by edges of any snapshot. Else each
            snapshot has its own nodes.
        truncated: whether the nodes at D hops keep their edges to nodes inside. State then reaches own nodes over
            several snapshots, and is cut off beyond D hops. Without it these edges are left out, since they do not
            reach an own node. Only with ``static``.

    Raises:
        PlanError: no snapshot, no hop, unknown directions, or truncated and not static.
    """

    snapshots: range
    hops: int
    directions: tuple[str, ...] = ("in",)
    static: bool = True
    truncated: bool = False

    def __post_init__(self) -> None:
        if not self.snapshots or self.hops < 1:
            raise PlanError(
                f"a cache of {len(self.snapshots)} snapshots and {self.hops} hops is empty: both must be at least 1."
            )
        if not self.directions or not {*self.directions} <= {*DIRECTIONS}:
            raise PlanError(f"directions={self.directions}: a node pulls along its edges 'in', 'out' or both ways.")
        if self.truncated and not self.static:
            raise PlanError("a truncated cache holds the same nodes in all snapshots: set static=True.")


def reach_of(memory: str, hops: int, snapshots: range, *, directions: Iterable[str] = ("in",)) -> Reach:
    """Return the reach that a model needs.

    Args:
        memory: memory of the model.
        hops: layers times the hops of each, D.
        snapshots: the trained snapshots.
        directions: edge directions along which the model pulls.

    Raises:
        PlanError: see :class:`Reach`.
    """
    return Reach(snapshots, hops, tuple(sorted(set(directions))), memory in STATIC_MEMORIES, memory == "neighbourhood")


@dataclass(frozen=True, slots=True)
class LocalEdges:
    """Edges between a part's nodes, with the part's local node indices.

    Attributes:
        indptr: (k + 1,) row offsets of the first k nodes.
        indices: (E,) int32, local indices of the source nodes.
        weights: (E,) float32, or None.
    """

    indptr: NDArray[Any]
    indices: NDArray[np.int32]
    weights: NDArray[np.float32] | None

    def first(self, rows: int) -> LocalEdges:
        """Return the first ``rows`` rows, without copying."""
        end = int(self.indptr[rows])
        return LocalEdges(
            self.indptr[: rows + 1], self.indices[:end], None if self.weights is None else self.weights[:end]
        )


class CachedPart:
    """A part's nodes, nearest first, with features, edges and degrees, as read-only arrays.

    Nodes are ordered by distance in hops: the n own nodes, then those at distance 1, 2 .. D, each ascending. So a
    layer needs a prefix of every array.

    Args:
        arrays: concatenated arrays of :func:`pieces`.
        reach: reach of the part.

    Raises:
        DataError: arrays are missing or do not fit together.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]], reach: Reach) -> None:
        self.reach, self._arrays = reach, arrays
        self._constant = "constant_features" in arrays
        names = {"vertices", "bounds", "constant_features" if self._constant else "features"}
        names |= {f"{name}_{direction}" for direction in reach.directions for name in ("indptr", "indices", "edges")}
        names |= {f"degrees_{direction}" for direction in DIRECTIONS}
        names |= {"known"} if self._constant and not reach.static else set()
        missing = sorted(names - set(arrays))
        if missing:
            raise DataError(f"a cached part lacks {', '.join(missing)}. Delete its folder; it is made again.")
        bounds = arrays["bounds"]
        self._offsets = np.concatenate([[0], np.cumsum(bounds[:, -1])])  # of each snapshot's nodes
        snapshot_bounds = np.broadcast_to(bounds, (len(reach.snapshots), bounds.shape[1])) if reach.static else bounds
        rows = _edge_rows(snapshot_bounds, reach)
        self._row_offsets = np.concatenate([[0], np.cumsum(rows + 1)])
        self._degree_offsets = np.concatenate([[0], np.cumsum(snapshot_bounds[:, -1])])
        self._edge_offsets = {
            direction: np.concatenate([[0], np.cumsum(arrays[f"edges_{direction}"])]) for direction in reach.directions
        }
        self._check()

    def _check(self) -> None:
        """Check the lengths of all arrays against the counts."""
        reach, arrays = self.reach, self._arrays
        times = 1 if reach.static else len(reach.snapshots)
        lengths = {"bounds": times, "vertices": self._offsets[-1]}
        for direction in reach.directions:
            lengths |= {f"edges_{direction}": len(reach.snapshots), f"indptr_{direction}": self._row_offsets[-1]}
            lengths |= {f"{name}_{direction}": self._edge_offsets[direction][-1] for name in ("indices", "weights")}
        lengths |= {f"degrees_{direction}": self._degree_offsets[-1] for direction in DIRECTIONS}
        lengths["features"] = self._degree_offsets[-1]
        if self._constant:
            lengths["constant_features"] = self._offsets[-1] if reach.static else len(arrays["known"])
        for name, length in lengths.items():
            if name in arrays and len(arrays[name]) != length:
                raise DataError(
                    f"a cached part has {len(arrays[name])} entries of {name} instead of {length}. "
                    "Delete its folder; it is made again."
                )

    @property
    def own(self) -> int:
        """Number of the part's own nodes, n."""
        return int(self._arrays["bounds"][0, 0])

    @property
    def weighted(self) -> bool:
        """Whether edges carry weights."""
        return f"weights_{self.reach.directions[0]}" in self._arrays

    @property
    def num_features(self) -> int:
        """Number of features, F."""
        return int(self._arrays["constant_features" if self._constant else "features"].shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self._arrays.values())

    def prefix(self, t: int, hops: int) -> int:
        """Return the number of nodes within ``hops`` (0 to D) in snapshot t; they come first."""
        return int(self._arrays["bounds"][0 if self.reach.static else self._place(t), hops])

    def edge_rows(self, t: int, hops: int) -> int:
        """Return the number of nodes within ``hops`` (1 to D) whose edges are needed."""
        includes_last = self.reach.truncated and hops == self.reach.hops
        return self.prefix(t, hops if includes_last else hops - 1)

    def vertices(self, t: int) -> NDArray[np.int32]:
        """Return the numbers in the graph of the M nodes held in snapshot t, (M,)."""
        index = 0 if self.reach.static else self._place(t)
        return np.asarray(self._arrays["vertices"][self._offsets[index] : self._offsets[index + 1]])

    def edges(self, t: int, direction: str) -> LocalEdges:
        """Return the edges of snapshot t: those of all but the farthest nodes, or of all nodes if truncated.

        Raises:
            PlanError: the part holds no edges along this direction.
        """
        if direction not in self.reach.directions:
            raise PlanError(
                f"the part has no edges along {direction!r}, only along {', '.join(self.reach.directions)}."
            )
        index, arrays = self._place(t), self._arrays
        start, stop = self._edge_offsets[direction][index : index + 2]
        weights = arrays.get(f"weights_{direction}")
        return LocalEdges(
            arrays[f"indptr_{direction}"][self._row_offsets[index] : self._row_offsets[index + 1]],
            arrays[f"indices_{direction}"][start:stop],
            None if weights is None else weights[start:stop],
        )

    def num_edges(self, t: int, hops: int) -> int:
        """Return the number of edges that nodes within ``hops`` (1 to D) need, all directions together."""
        rows = self.edge_rows(t, hops)
        return sum(int(self.edges(t, direction).indptr[rows]) for direction in self.reach.directions)

    def degrees(self, t: int, direction: str) -> NDArray[Any]:
        """Return the weighted degree of each node in the whole snapshot, (M,); without weights its edge count."""
        index = self._place(t)
        return np.asarray(
            self._arrays[f"degrees_{direction}"][self._degree_offsets[index] : self._degree_offsets[index + 1]]
        )

    def features(self, t: int) -> NDArray[np.float32]:
        """Return the features of the nodes held in snapshot t, (M, F)."""
        if self._constant:
            constant: NDArray[np.float32] = self._arrays["constant_features"]
            return constant if self.reach.static else constant[np.searchsorted(self._arrays["known"], self.vertices(t))]
        index = self._place(t)
        features: NDArray[np.float32] = self._arrays["features"]
        return features[self._degree_offsets[index] : self._degree_offsets[index + 1]]

    @property
    def same_features(self) -> bool:
        """Whether every snapshot has the same nodes with the same features."""
        return self._constant and self.reach.static

    def joined(self, name: str, snapshots: range) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return an array of all cached snapshots, and the offsets of some snapshots in it.

        Args:
            name: ``vertices`` or ``features``; for a direction ``indptr_in``, ``indices_in``, ``weights_in`` or
                ``degrees_in``.
            snapshots: S consecutive snapshots.

        Returns:
            the array, and (S,) the offset of each snapshot; snapshots may share entries. Values of ``indptr`` restart
            in every snapshot.

        Raises:
            PlanError: a snapshot is not cached, or there is no such array.
        """
        if name not in self._arrays:
            raise PlanError(f"a cached part has no array {name!r}, only {', '.join(sorted(self._arrays))}.")
        first = self._place(snapshots[0])
        self._place(snapshots[-1])
        kind, _, direction = name.partition("_")
        starts = {"vertices": self._offsets, "indptr": self._row_offsets}.get(kind, self._degree_offsets)
        if kind in ("indices", "weights"):
            starts = self._edge_offsets[direction]
        if kind == "vertices" and self.reach.static:
            return self._arrays[name], np.zeros(len(snapshots), np.int64)
        return self._arrays[name], starts[first : first + len(snapshots)]

    @property
    def constant_features(self) -> tuple[NDArray[np.float32], NDArray[np.int32]] | None:
        """Static features, (K, F), and their nodes, (K,); None if features change over time."""
        if not self._constant:
            return None
        vertices = self._arrays["vertices" if self.reach.static else "known"]
        return self._arrays["constant_features"], vertices

    def _place(self, t: int) -> int:
        if t not in self.reach.snapshots:
            raise PlanError(f"snapshot {t} is not among the cached ones, {self.reach.snapshots}.")
        return self.reach.snapshots.index(t)


def pieces(graph: DynamicGraph, own: NDArray[np.integer], reach: Reach) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the arrays of a :class:`CachedPart` piece by piece; pieces of one name are concatenated in order.

    Args:
        graph: N nodes.
        own: (n,) the part's nodes, ascending.
        reach: reach of the part.
    """
    snapshots = [graph.snapshots[t] for t in reach.snapshots]
    distance = hop_distance([union_of(snapshots)], own, reach.hops, reach.directions) if reach.static else None
    row_of = np.full(graph.num_nodes, -1, np.int32)
    reached = np.zeros(graph.num_nodes, bool)
    vertices, bounds = np.empty(0, np.int32), np.empty(0, np.int64)
    for number, (t, snapshot) in enumerate(zip(reach.snapshots, snapshots, strict=True)):
        if distance is None or number == 0:
            near = hop_distance([snapshot], own, reach.hops, reach.directions) if distance is None else distance
            row_of[vertices] = -1
            vertices, bounds = ordered(near, reach.hops)
            row_of[vertices] = np.arange(len(vertices), dtype=np.int32)
            yield "vertices", vertices
            yield "bounds", bounds[np.newaxis]
        rows = vertices[: _edge_rows(bounds, reach)]
        for direction in reach.directions:
            edges = local_edges(snapshot if direction == "in" else transposed(snapshot), rows, row_of)
            yield f"indptr_{direction}", edges.indptr.astype(offset_type(snapshots))
            yield f"indices_{direction}", edges.indices
            yield f"edges_{direction}", np.array([len(edges.indices)], np.int64)
            if edges.weights is not None:
                yield f"weights_{direction}", edges.weights
        for direction in DIRECTIONS:
            degrees = snapshot.in_degrees() if direction == "in" else snapshot.out_degrees()
            yield f"degrees_{direction}", degrees[vertices].astype(degree_type(graph))
        reached[vertices] = True
        if not graph.static_features:
            yield "features", graph.features[t][vertices]
    if graph.static_features:
        known_vertices = vertices if reach.static else np.flatnonzero(reached).astype(np.int32)
        yield "constant_features", graph.features[0][known_vertices]
        if not reach.static:
            yield "known", known_vertices


def offset_type(snapshots: Sequence[Snapshot]) -> np.dtype[Any]:
    """Return the smallest integer type for row offsets of every snapshot."""
    return np.dtype(np.int32 if max(snapshot.num_edges for snapshot in snapshots) < 2**31 else np.int64)


def degree_type(graph: DynamicGraph) -> np.dtype[Any]:
    """Return the type of degrees: int32 for unweighted edges, else float64."""
    return np.dtype(np.float64 if graph.weighted else np.int32)


def ordered(distance: NDArray[np.int8], hops: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the nodes within ``hops``, nearest first, (M,), and their number within 0, 1 .. hops, (hops + 1,)."""
    within = np.flatnonzero(distance <= hops)
    near = distance[within]
    vertices = within[np.argsort(near, kind="stable")].astype(np.int32)
    return vertices, np.cumsum(np.bincount(near, minlength=hops + 1), dtype=np.int64)


def local_edges(snapshot: Snapshot, rows: NDArray[np.int32], row_of: NDArray[np.int32]) -> LocalEdges:
    """Return the in-edges of some nodes, with local indices; in-neighbours without a local index are dropped.

    Args:
        snapshot: N nodes.
        rows: (k,) the nodes.
        row_of: (N,) local index of each node, -1 for none.
    """
    start = snapshot.indptr[rows]
    length = snapshot.indptr[rows.astype(np.int64) + 1] - start
    ends = np.cumsum(length)
    edge_index = np.arange(ends[-1] if len(ends) else 0) + np.repeat(start - ends + length, length)
    indices = row_of[snapshot.indices[edge_index]]
    inside = indices >= 0
    if not inside.all():
        length = np.bincount(np.repeat(np.arange(len(rows)), length)[inside], minlength=len(rows))
        indices, edge_index = indices[inside], edge_index[inside]
    weights = None if snapshot.weights is None else snapshot.weights[edge_index]
    return LocalEdges(np.concatenate([[0], np.cumsum(length)]), indices, weights)


def _edge_rows(bounds: NDArray[np.int64], reach: Reach) -> Any:
    """Return the number of nodes whose edges are held, from (.., D + 1) counts by distance."""
    return bounds[..., -1 if reach.truncated else -2]


PARTS_VERSION = 1  # version of the file contents: a change rebuilds all parts
KEPT_BYTES, UNUSED_S = 16 << 30, 3600.0  # above this size, parts unused for an hour are removed, oldest first


def cached_part(graph: DynamicGraph, vertices: NDArray[np.integer], reach: Reach) -> CachedPart:
    """Return the cached part of some nodes, memory-mapped from disk; the first process writes it.

    Partitions that have a part with the same nodes share it. A damaged part is rebuilt.

    Args:
        graph: N nodes.
        vertices: (n,) the part's nodes, ascending.
        reach: reach of the part.

    Raises:
        DataError: the cache cannot be written.
        PlanError: there are no snapshots or hops.
    """
    folder = part_folder(graph, vertices, reach)
    if holds_graph(folder):
        with contextlib.suppress(DataError):  # damaged, or being replaced by another process: retry under the lock
            return _open(folder, reach)
    with one_at_a_time(folder):
        return _open_or_build(folder, graph, vertices, reach)


def part_folder(graph: DynamicGraph, vertices: NDArray[np.integer], reach: Reach) -> Path:
    """Return the folder of the part's files, which may not exist yet."""
    text = json.dumps(_meta(graph, vertices, reach), sort_keys=True)
    return cache_folder() / "parts" / hashlib.sha256(text.encode()).hexdigest()[:24]


def _open_or_build(folder: Path, graph: DynamicGraph, vertices: NDArray[np.integer], reach: Reach) -> CachedPart:
    """Open the part in the folder, or write it there unless another process has just done so."""
    if holds_graph(folder):
        try:
            return _open(folder, reach)
        except DataError as error:
            if is_refusal(error):
                raise
            shutil.rmtree(folder, ignore_errors=True)  # processes that have mapped it keep their pages
    with Draft(folder) as draft:
        for name, piece in pieces(graph, vertices, reach):
            draft.file(name, piece.dtype, piece.shape[1:]).extend(piece)
        draft.close_files()
        draft.finish(_meta(graph, vertices, reach))
    forget_unused(folder.parent)
    return _open(folder, reach)


def _open(folder: Path, reach: Reach) -> CachedPart:
    """Open the part in a folder, and mark it as used."""
    part = CachedPart(read(folder, mmap=True)[0], reach)
    with contextlib.suppress(OSError):  # another user's cache may be read-only
        os.utime(folder / META)
    return part


def forget_unused(folder: Path, *, kept_bytes: int = KEPT_BYTES, unused_s: float = UNUSED_S) -> None:
    """Remove the least recently used parts until the rest fits ``kept_bytes``.

    Every new partition leaves parts behind. A process keeps the parts that it has mapped.

    Args:
        folder: folder of the parts.
        kept_bytes: most bytes of all parts.
        unused_s: seconds after its last use for which a part is never removed.
    """
    parts = []
    for meta in folder.glob(f"*/{META}"):
        with contextlib.suppress(FileNotFoundError):  # removed by another process
            size = sum(file.stat().st_size for file in meta.parent.iterdir())
            parts.append((meta.stat().st_mtime, size, meta.parent))
    total_bytes = sum(size for _, size, _ in parts)
    for used, size, path in sorted(parts):
        if total_bytes <= kept_bytes or time.time() - used < unused_s:
            return
        shutil.rmtree(path, ignore_errors=True)
        total_bytes -= size


def _meta(graph: DynamicGraph, own: NDArray[np.integer], reach: Reach) -> dict[str, Any]:
    """Return everything that the files depend on."""
    settings = dataclasses.asdict(reach) | {"snapshots": [reach.snapshots.start, reach.snapshots.stop]}
    vertices = hashlib.sha256(np.ascontiguousarray(own, np.int64).tobytes()).hexdigest()
    return {"holds": "cached part", "version": PARTS_VERSION, "data_hash": graph.data_hash, "own": vertices, **settings}


@dataclass(frozen=True, slots=True, eq=False)
class CacheSize:
    """Size of each of P parts; (P,) each.

    Attributes:
        rows: nodes held, own and replicated, summed over snapshots.
        edges: edges held, summed over snapshots and directions.
        bytes: bytes of all arrays, as :attr:`dtdg_lab.engine.views.replicated_part.CachedPart.nbytes`.
    """

    rows: NDArray[np.int64]
    edges: NDArray[np.int64]
    bytes: NDArray[np.int64]

    def refuse_above(self, cache_gib: float, owned: int) -> None:
        """Refuse parts that exceed the memory limit.

        Args:
            cache_gib: most GiB of all parts together.
            owned: rows that are not copies: nodes times snapshots.

        Raises:
            UnsupportedError: the parts exceed the limit.
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
    """Count the rows, edges and bytes of the parts of a partition, exactly.

    Args:
        graph: N nodes.
        partition: partition of the nodes into P parts.
        reach: reach of the parts.
    """
    snapshots = [graph.snapshots[t] for t in reach.snapshots]
    count = _static if reach.static else _by_snapshot
    counts = count(snapshots, [partition.vertices(part) for part in range(partition.parts)], reach)
    rows, starts, edges, vertices = np.array(counts, np.int64).T
    feature_rows = vertices if graph.static_features else rows
    total = 8 * (reach.hops + 1) * (1 if reach.static else len(snapshots))  # bounds
    total += 4 * (rows // len(snapshots) if reach.static else rows)  # nodes
    total += len(reach.directions) * (starts * offset_type(snapshots).itemsize + 8 * len(snapshots))
    total += edges * (8 if graph.weighted else 4)
    total += len(DIRECTIONS) * rows * degree_type(graph).itemsize
    total += feature_rows * 4 * graph.num_features
    if graph.static_features and not reach.static:
        total += vertices * 4
    return CacheSize(rows, edges, total)


Counts = tuple[int, int, int, int]  # rows, row offsets along one direction, edges, distinct nodes


def _static(snapshots: Sequence[Snapshot], parts: Sequence[NDArray[np.int64]], reach: Reach) -> list[Counts]:
    """Count each part with the same nodes in all snapshots."""
    union, none = union_of(snapshots), np.zeros(snapshots[0].num_nodes, np.int64)
    pulls = sum((_pulls(snapshot, reach) for snapshot in snapshots), none)
    counts = []
    for vertices in parts:
        distance = hop_distance([union], vertices, reach.hops, reach.directions)
        within = distance <= reach.hops
        inner = within if reach.truncated else distance < reach.hops
        if reach.truncated:
            edges = len(reach.directions) * sum(
                int((within[snapshot.rows()] & within[snapshot.indices]).sum()) for snapshot in snapshots
            )
        else:
            edges = int(pulls[inner].sum())
        counts.append(
            (int(within.sum()) * len(snapshots), (int(inner.sum()) + 1) * len(snapshots), edges, int(within.sum()))
        )
    return counts


def _by_snapshot(snapshots: Sequence[Snapshot], parts: Sequence[NDArray[np.int64]], reach: Reach) -> list[Counts]:
    """Count each part with different nodes in each snapshot."""
    counts = np.zeros((len(parts), 3), np.int64)
    reached = np.zeros((len(parts), snapshots[0].num_nodes), bool)
    for snapshot in snapshots:
        pulls = _pulls(snapshot, reach)
        for part, vertices in enumerate(parts):
            distance = hop_distance([snapshot], vertices, reach.hops, reach.directions)
            within, inner = distance <= reach.hops, distance < reach.hops
            counts[part] += within.sum(), inner.sum() + 1, pulls[inner].sum()
            reached[part] |= within
    return [(*row.tolist(), int(is_reached.sum())) for row, is_reached in zip(counts, reached, strict=True)]


def _pulls(snapshot: Snapshot, reach: Reach) -> NDArray[np.int64]:
    """Return the number of edges that each node pulls along, all directions together, (N,)."""
    degrees = {"in": np.diff(snapshot.indptr), "out": np.bincount(snapshot.indices, minlength=snapshot.num_nodes)}
    return sum((degrees[direction] for direction in reach.directions), np.zeros(snapshot.num_nodes, np.int64))
