"""One part's vertices with the neighbours that its layers reach: what it trains on without asking anybody."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError, PlanError
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.partition.halo import WAYS, transposed
from dtdg_lab.partition.hop_sets import hop_distance, union_of

STATIC_MEMORIES = ("per_vertex", "neighbourhood")  # state that runs through time carries every snapshot's pulls


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a part reaches for neighbours.

    Attributes:
        snapshots: those that are trained.
        hops: D, the layers times the hops of each.
        ways: along which edges vertices pull: ``in``, ``out`` or both.
        static: whether the same vertices are held in all snapshots: those within D hops by edges of any of them. Else
            each snapshot has its own.
        truncated: whether the vertices at D hops keep those of their edges that stay inside, for state that comes from
            beyond D hops in the course of time and is cut off there. Else they need none, since nothing that they pull
            reaches an own vertex. Only with ``static``.

    Raises:
        PlanError: no snapshot, no hop, other ways, or truncated and not static.
    """

    snapshots: range
    hops: int
    ways: tuple[str, ...] = ("in",)
    static: bool = True
    truncated: bool = False

    def __post_init__(self) -> None:
        if not self.snapshots or self.hops < 1:
            raise PlanError(
                f"a cache of {len(self.snapshots)} snapshots and {self.hops} hops: both must be at least 1."
            )
        if not self.ways or not {*self.ways} <= {*WAYS}:
            raise PlanError(f"ways={self.ways}: a vertex pulls along its edges 'in', 'out' or both ways.")
        if self.truncated and not self.static:
            raise PlanError("a truncated cache holds the same vertices in all snapshots: set static=True.")


def reach_of(memory: str, hops: int, snapshots: range, *, ways: Iterable[str] = ("in",)) -> Reach:
    """What a model needs held.

    Args:
        memory: the model's.
        hops: D, the layers times the hops of each.
        snapshots: those that are trained.
        ways: along which edges the model pulls.

    Raises:
        PlanError: see :class:`Reach`.
    """
    return Reach(snapshots, hops, tuple(sorted(set(ways))), memory in STATIC_MEMORIES, memory == "neighbourhood")


@dataclass(frozen=True, slots=True)
class LocalEdges:
    """Rows of edges between a part's vertices, numbered as the part orders them.

    Attributes:
        indptr: (k + 1,) offsets of the first k vertices' rows.
        indices: (E,) int32, places of the vertices they pull from.
        weights: (E,) float32, or None.
    """

    indptr: NDArray[Any]
    indices: NDArray[np.int32]
    weights: NDArray[np.float32] | None

    def first(self, rows: int) -> LocalEdges:
        """The first rows, as views."""
        end = int(self.indptr[rows])
        return LocalEdges(
            self.indptr[: rows + 1], self.indices[:end], None if self.weights is None else self.weights[:end]
        )


class CachedPart:
    """A part's vertices, nearest first, with features, edges and degrees, in arrays that are only read.

    Vertices are ordered by how many pulls away they are: the n own ones, ascending, then those at distance 1, 2 .. D,
    each ascending. So what a layer needs is a beginning of every array.

    Args:
        arrays: as :func:`pieces` makes them, joined.
        reach: what they hold.

    Raises:
        DataError: arrays are missing or do not fit together.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]], reach: Reach) -> None:
        self.reach, self._arrays = reach, arrays
        self._constant = "constant_features" in arrays
        wanted = {"vertices", "bounds", "constant_features" if self._constant else "features"}
        wanted |= {f"{name}_{way}" for way in reach.ways for name in ("indptr", "indices", "edges")}
        wanted |= {f"degrees_{way}" for way in WAYS}
        wanted |= {"known"} if self._constant and not reach.static else set()
        missing = sorted(wanted - set(arrays))
        if missing:
            raise DataError(f"a cached part lacks {', '.join(missing)}. Delete its folder; it is made again.")
        bounds = arrays["bounds"]
        self._at = np.concatenate([[0], np.cumsum(bounds[:, -1])])  # where each snapshot's vertices begin
        held = np.broadcast_to(bounds, (len(reach.snapshots), bounds.shape[1])) if reach.static else bounds
        rows = _edge_rows(held, reach)
        self._rows_at = np.concatenate([[0], np.cumsum(rows + 1)])
        self._degrees_at = np.concatenate([[0], np.cumsum(held[:, -1])])
        self._edges_at = {way: np.concatenate([[0], np.cumsum(arrays[f"edges_{way}"])]) for way in reach.ways}
        self._check()

    def _check(self) -> None:
        """Compare the lengths of all arrays with what the counts say."""
        reach, arrays = self.reach, self._arrays
        times = 1 if reach.static else len(reach.snapshots)
        lengths = {"bounds": times, "vertices": self._at[-1]}
        for way in reach.ways:
            lengths |= {f"edges_{way}": len(reach.snapshots), f"indptr_{way}": self._rows_at[-1]}
            lengths |= {f"{name}_{way}": self._edges_at[way][-1] for name in ("indices", "weights")}
        lengths |= {f"degrees_{way}": self._degrees_at[-1] for way in WAYS}
        lengths["features"] = self._degrees_at[-1]
        if self._constant:
            lengths["constant_features"] = self._at[-1] if reach.static else len(arrays["known"])
        for name, length in lengths.items():
            if name in arrays and len(arrays[name]) != length:
                raise DataError(
                    f"a cached part has {len(arrays[name])} entries of {name} where {length} are due. "
                    "Delete its folder; it is made again."
                )

    @property
    def own(self) -> int:
        """n, the part's own vertices."""
        return int(self._arrays["bounds"][0, 0])

    @property
    def weighted(self) -> bool:
        """Whether edges carry weights."""
        return f"weights_{self.reach.ways[0]}" in self._arrays

    @property
    def num_features(self) -> int:
        """F."""
        return int(self._arrays["constant_features" if self._constant else "features"].shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self._arrays.values())

    def prefix(self, t: int, hops: int) -> int:
        """How many vertices are within some hops in snapshot t, 0 to D; they come first."""
        return int(self._arrays["bounds"][0 if self.reach.static else self._place(t), hops])

    def edge_rows(self, t: int, hops: int) -> int:
        """How many of the vertices within some hops (1 to D) need their edges."""
        whole = self.reach.truncated and hops == self.reach.hops
        return self.prefix(t, hops if whole else hops - 1)

    def vertices(self, t: int) -> NDArray[np.int32]:
        """The numbers in the graph of the M vertices held in snapshot t, (M,)."""
        place = 0 if self.reach.static else self._place(t)
        held: NDArray[np.int32] = self._arrays["vertices"][self._at[place] : self._at[place + 1]]
        return held

    def edges(self, t: int, way: str) -> LocalEdges:
        """The rows of edges held of snapshot t: those of all but the farthest vertices, or of all where truncated.

        Raises:
            PlanError: no edges are held along this way.
        """
        if way not in self.reach.ways:
            raise PlanError(f"edges along {way!r} of a cache that holds those along {', '.join(self.reach.ways)}.")
        place, arrays = self._place(t), self._arrays
        start, stop = self._edges_at[way][place : place + 2]
        weights = arrays.get(f"weights_{way}")
        return LocalEdges(
            arrays[f"indptr_{way}"][self._rows_at[place] : self._rows_at[place + 1]],
            arrays[f"indices_{way}"][start:stop],
            None if weights is None else weights[start:stop],
        )

    def num_edges(self, t: int, hops: int) -> int:
        """How many edges the vertices within some hops (1 to D) need, all ways together."""
        rows = self.edge_rows(t, hops)
        return sum(int(self.edges(t, way).indptr[rows]) for way in self.reach.ways)

    def degrees(self, t: int, way: str) -> NDArray[Any]:
        """Sums of the weights of each vertex's edges in the whole snapshot, or their number without weights, (M,)."""
        place = self._place(t)
        held: NDArray[Any] = self._arrays[f"degrees_{way}"][self._degrees_at[place] : self._degrees_at[place + 1]]
        return held

    def features(self, t: int) -> NDArray[np.float32]:
        """Features of the vertices held in snapshot t, (M, F)."""
        if self._constant:
            once: NDArray[np.float32] = self._arrays["constant_features"]
            return once if self.reach.static else once[np.searchsorted(self._arrays["known"], self.vertices(t))]
        place = self._place(t)
        features: NDArray[np.float32] = self._arrays["features"]
        return features[self._degrees_at[place] : self._degrees_at[place + 1]]

    @property
    def same_features(self) -> bool:
        """Whether every snapshot has the same vertices with the same features."""
        return self._constant and self.reach.static

    def joined(self, name: str, snapshots: range) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """One of the arrays of all cached snapshots, as it lies, and where the entries of some of them begin.

        Args:
            name: ``vertices``, ``features``, or of a way ``indptr_in``, ``indices_in``, ``weights_in``, ``degrees_in``.
            snapshots: S consecutive ones.

        Returns:
            the array, whose entries may be those of all snapshots alike, and (S,) where each begins. Offsets begin anew
            in every snapshot.

        Raises:
            PlanError: a snapshot is not cached, or there is no such array.
        """
        if name not in self._arrays:
            raise PlanError(f"{name} of a cached part that holds {', '.join(sorted(self._arrays))}.")
        first = self._place(snapshots[0])
        self._place(snapshots[-1])
        kind, _, way = name.partition("_")
        starts = {"vertices": self._at, "indptr": self._rows_at}.get(kind, self._degrees_at)
        if kind in ("indices", "weights"):
            starts = self._edges_at[way]
        if kind == "vertices" and self.reach.static:
            return self._arrays[name], np.zeros(len(snapshots), np.int64)
        return self._arrays[name], starts[first : first + len(snapshots)]

    @property
    def constant_features(self) -> tuple[NDArray[np.float32], NDArray[np.int32]] | None:
        """Features that never change, (K, F), and the K vertices that have them, where there are such."""
        if not self._constant:
            return None
        known = self._arrays["vertices" if self.reach.static else "known"]
        return self._arrays["constant_features"], known

    def _place(self, t: int) -> int:
        if t not in self.reach.snapshots:
            raise PlanError(f"snapshot {t} is not among the cached ones, {self.reach.snapshots}.")
        return self.reach.snapshots.index(t)


def pieces(graph: DynamicGraph, own: NDArray[np.integer], reach: Reach) -> Iterator[tuple[str, NDArray[Any]]]:
    """The arrays of a :class:`CachedPart`, piece by piece: pieces of one name are to be joined in order.

    Args:
        graph: N vertices.
        own: (n,) the part's vertices, ascending.
        reach: what is to be held.
    """
    snapshots = [graph.snapshots[t] for t in reach.snapshots]
    distance = hop_distance([union_of(snapshots)], own, reach.hops, reach.ways) if reach.static else None
    place = np.full(graph.num_nodes, -1, np.int32)
    met = np.zeros(graph.num_nodes, bool)
    vertices, bounds = np.empty(0, np.int32), np.empty(0, np.int64)
    for number, (t, snapshot) in enumerate(zip(reach.snapshots, snapshots, strict=True)):
        if distance is None or number == 0:
            near = hop_distance([snapshot], own, reach.hops, reach.ways) if distance is None else distance
            place[vertices] = -1
            vertices, bounds = ordered(near, reach.hops)
            place[vertices] = np.arange(len(vertices), dtype=np.int32)
            yield "vertices", vertices
            yield "bounds", bounds[np.newaxis]
        rows = vertices[: _edge_rows(bounds, reach)]
        for way in reach.ways:
            found = local_edges(snapshot if way == "in" else transposed(snapshot), rows, place)
            yield f"indptr_{way}", found.indptr.astype(offset_type(snapshots))
            yield f"indices_{way}", found.indices
            yield f"edges_{way}", np.array([len(found.indices)], np.int64)
            if found.weights is not None:
                yield f"weights_{way}", found.weights
        for way in WAYS:
            degrees = snapshot.in_degrees() if way == "in" else snapshot.out_degrees()
            yield f"degrees_{way}", degrees[vertices].astype(degree_type(graph))
        met[vertices] = True
        if not graph.static_features:
            yield "features", graph.features[t][vertices]
    if graph.static_features:
        known = vertices if reach.static else np.flatnonzero(met).astype(np.int32)
        yield "constant_features", graph.features[0][known]
        if not reach.static:
            yield "known", known


def offset_type(snapshots: Sequence[Snapshot]) -> np.dtype[Any]:
    """The type of row starts: the smallest that counts every snapshot's edges."""
    return np.dtype(np.int32 if max(snapshot.num_edges for snapshot in snapshots) < 2**31 else np.int64)


def degree_type(graph: DynamicGraph) -> np.dtype[Any]:
    """The type of degrees, which are exact in it where edges carry no weight."""
    return np.dtype(np.float64 if graph.weighted else np.int32)


def ordered(distance: NDArray[np.int8], hops: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Vertices within some hops, nearest first, and how many there are within 0, 1 .. hops: (M,) and (hops + 1,)."""
    held = np.flatnonzero(distance <= hops)
    near = distance[held]
    vertices = held[np.argsort(near, kind="stable")].astype(np.int32)
    return vertices, np.cumsum(np.bincount(near, minlength=hops + 1), dtype=np.int64)


def local_edges(snapshot: Snapshot, rows: NDArray[np.int32], place: NDArray[np.int32]) -> LocalEdges:
    """Some vertices' rows of a snapshot, with the places of their in-neighbours; those without a place are dropped.

    Args:
        snapshot: N vertices.
        rows: (k,) the vertices.
        place: (N,) the place of each vertex, -1 where it has none.
    """
    start = snapshot.indptr[rows]
    length = snapshot.indptr[rows.astype(np.int64) + 1] - start
    ends = np.cumsum(length)
    taken = np.arange(ends[-1] if len(ends) else 0) + np.repeat(start - ends + length, length)
    indices = place[snapshot.indices[taken]]
    inside = indices >= 0
    if not inside.all():
        length = np.bincount(np.repeat(np.arange(len(rows)), length)[inside], minlength=len(rows))
        indices, taken = indices[inside], taken[inside]
    weights = None if snapshot.weights is None else snapshot.weights[taken]
    return LocalEdges(np.concatenate([[0], np.cumsum(length)]), indices, weights)


def _edge_rows(bounds: NDArray[np.int64], reach: Reach) -> Any:
    """How many vertices' edges are held, from (.., D + 1) counts by distance."""
    return bounds[..., -1 if reach.truncated else -2]
