"""Metrics of a partition before training: cut edges, halo rows, replicated rows, load and memory."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config.model_facts import DIRECTIONS, ModelFacts
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.files import read_arrays, write_arrays
from dtdg_lab.core.plans import Partition
from dtdg_lab.core.system_errors import DAMAGE
from dtdg_lab.datasets.download import one_at_a_time
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot, read_only
from dtdg_lab.graphs.snapshot import distinct as distinct_of_sorted
from dtdg_lab.graphs.storage import cache_folder
from dtdg_lab.partition.neighbourhoods import count_replicated
from dtdg_lab.partition.simple import vertex_loads


def remote_rows(snapshot: Snapshot, partition: Partition, direction: str = "in") -> tuple[NDArray[np.int64], ...]:
    """Return the distinct remote nodes that each part aggregates from.

    Args:
        snapshot: N nodes.
        partition: partition of the same N nodes into P parts.
        direction: edge direction: ``in`` aggregates over in-neighbours, ``out`` over out-neighbours.

    Returns:
        ``part`` (h,) and ``source`` (h,), int64: part ``part[i]`` needs the row of node ``source[i]``. Sorted by
        part, then by the source's owner, then by source.

    Raises:
        PlanError: the partition has other nodes, or the direction is unknown.
    """
    to_part, sources = pulls_of(snapshot, partition, direction)
    cut = np.flatnonzero(to_part != partition.owner[sources])
    return distinct_rows(to_part[cut], sources[cut], partition)


def pulls_of(snapshot: Snapshot, partition: Partition, direction: str) -> tuple[NDArray[np.int32], NDArray[np.integer]]:
    """Return the part of the target and the source node of every edge; both (E,), in the snapshot's order.

    Raises:
        PlanError: the partition has other nodes, or the direction is unknown.
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
    """Return the distinct (part, source) pairs, sorted by part, the source's owner, and source; both (h,), int64."""
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
        snapshots: T snapshots of N nodes.
        partition: partition of the same nodes.
        direction: edge direction: ``in`` or ``out``.

    Raises:
        PlanError: the partition has other nodes, or the direction is unknown.
    """
    parts, matrices = partition.parts, []
    for snapshot in snapshots:
        to_part, source = remote_rows(snapshot, partition, direction)
        pairs = partition.owner[source].astype(np.int64) * parts + to_part
        matrices.append(np.bincount(pairs, minlength=parts * parts).reshape(parts, parts))
    return np.array(matrices, np.int64).reshape(-1, parts, parts)


Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PartitionMeasures:
    """Metrics of a partition of N nodes into P parts over T snapshots; the result of :func:`measure`.

    Attributes:
        snapshots: the T snapshots, by number in the graph.
        hops: receptive field of the model in hops, D.
        directions: edge directions of aggregation: ``in``, ``out``.
        static: whether all snapshots replicate the same rows.
        owned: (P,) nodes of each part.
        edges: (T, P) edges into each part's own nodes.
        all_edges: (T,) edges.
        cut_edges: (T,) edges between different parts.
        halo: (T, P) rows that each part receives for one aggregation per direction.
        matrix: for each direction (P, P): rows that part q sends to part p, at [q, p], summed over the snapshots.
        first_matrix: the same for the first snapshot only.
        replicated: (T, P) nodes within D hops of a part's own nodes that it does not own.
        replicated_edges: (T, P) edges of replicated nodes within D - 1 hops, in each direction.
        load: (P,) DynaHB's load of each part: walks of up to D hops over all snapshots of the graph.
        halo_bytes: (P,) memory of a part's data if rows are exchanged: features of own rows (float32, static ones
            once); for each snapshot and direction the edges of own rows (int32 offsets and sources, float32 weights if
            any) and the indices of rows sent and received (int32).
        cached_bytes: (P,) memory of a part's data if rows are replicated: features and offsets of own and replicated
            rows, edges of own rows and of rows within D - 1 hops.
    """

    snapshots: range
    hops: int
    directions: tuple[str, ...]
    static: bool
    owned: Counts
    edges: Counts
    all_edges: Counts
    cut_edges: Counts
    halo: Counts
    matrix: Mapping[str, Counts]
    first_matrix: Mapping[str, Counts]
    replicated: Counts
    replicated_edges: Counts
    load: NDArray[np.float64]
    halo_bytes: Counts
    cached_bytes: Counts

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            for array in value.values() if isinstance(value, Mapping) else (value,):
                if isinstance(array, np.ndarray):
                    read_only(array)

    @property
    def parts(self) -> int:
        """Number of parts, P."""
        return len(self.owned)

    @property
    def cut_share(self) -> float:
        """Share of cut edges among all edges of all snapshots; 0 without edges."""
        return _share(self.cut_edges.sum(), self.all_edges.sum())

    @property
    def halo_share(self) -> float:
        """Share of received rows among received and own rows, over all snapshots and directions."""
        return _share(self.halo.sum(), self.halo.sum() + self._rows * len(self.directions))

    @property
    def replicated_share(self) -> float:
        """Share of replicated rows among replicated and own rows, over all snapshots."""
        return _share(self.replicated.sum(), self.replicated.sum() + self._rows)

    @property
    def imbalance(self) -> dict[str, float]:
        """Largest part over the mean of the parts, for ``vertices``, ``edges`` and ``load``; 1 is even."""
        return {
            "vertices": _imbalance(self.owned),
            "edges": _imbalance(self.edges.sum(axis=0)),
            "load": _imbalance(self.load),
        }

    @property
    def _rows(self) -> int:
        return len(self.snapshots) * int(self.owned.sum())

    def to_dict(self, columns: int = 64) -> dict[str, Any]:
        """Return plain numbers for an event or a chart; snapshots are binned into B <= ``columns`` bins.

        Returns:
            ``parts`` P, ``vertices`` N, ``hops``, ``ways`` (directions), ``static``; ``bins`` (B + 1,) bounds: bin b
            has snapshots bins[b] to bins[b + 1] - 1; ``edges``, ``halo``, ``replicated``, ``replicated_edges`` (P, B)
            and ``all_edges``, ``cut_edges`` (B,): means over a bin's snapshots; ``owned``, ``load``, ``halo_bytes``,
            ``cached_bytes`` (P,); ``matrix`` {direction: (P, P)}, rows of all snapshots; ``totals``: rows and edges of
            all snapshots and parts, by name; ``cut_share``, ``halo_share``, ``replicated_share``; ``imbalance``
            {``vertices``, ``edges``, ``load``}.
        """
        bounds = np.unique(np.linspace(0, len(self.snapshots), max(columns, 1) + 1).astype(np.int64))
        by_part = ("edges", "halo", "replicated", "replicated_edges")
        totals = ("all_edges", "cut_edges")
        return {
            "parts": self.parts,
            "vertices": int(self.owned.sum()),
            "hops": self.hops,
            "ways": list(self.directions),
            "static": self.static,
            "bins": (bounds + self.snapshots.start).tolist(),
            **{name: _bin_means(getattr(self, name), bounds).T.tolist() for name in (*by_part, *totals)},
            **{name: getattr(self, name).tolist() for name in ("owned", "load", "halo_bytes", "cached_bytes")},
            "matrix": {direction: rows.tolist() for direction, rows in self.matrix.items()},
            "totals": {name: int(getattr(self, name).sum()) for name in (*by_part, *totals)},
            "cut_share": self.cut_share,
            "halo_share": self.halo_share,
            "replicated_share": self.replicated_share,
            "imbalance": self.imbalance,
        }


def measure(
    graph: DynamicGraph,
    partition: Partition,
    *,
    snapshots: range | None = None,
    hops: int = 1,
    directions: Sequence[str] = ("in",),
    static: bool = True,
) -> PartitionMeasures:
    """Compute the metrics of a partition on some snapshots of a graph.

    Args:
        graph: T snapshots of N nodes.
        partition: partition of the same nodes.
        snapshots: consecutive snapshots; all by default.
        hops: D = layers times hops per layer, at least 1.
        directions: edge directions that the model aggregates over: ``in``, ``out`` or both.
        static: whether to replicate the D-hop neighbourhood in the union of the snapshots (for memories ``per_vertex``
            and ``neighbourhood``, whose state runs through all of them), instead of one for each snapshot.

    Raises:
        PlanError: the partition has other nodes, or snapshots, hops or directions are not allowed.
    """
    numbers = range(graph.num_snapshots) if snapshots is None else snapshots
    if hops < 1 or not numbers or numbers.step != 1 or numbers.start < 0 or numbers.stop > graph.num_snapshots:
        raise PlanError(
            f"snapshots {numbers} with hops={hops} are not allowed: give at least one consecutive snapshot of 0 to "
            f"{graph.num_snapshots - 1}, and at least 1 hop."
        )
    times = [graph.snapshots[t] for t in numbers]
    pulled = {direction: _count_pulls(times, partition, direction) for direction in dict.fromkeys(("in", *directions))}
    used = {direction: pulled[direction] for direction in dict.fromkeys(directions)}
    replicated, replicated_edges = count_replicated(times, partition, hops, tuple(used), static=static)
    loads = vertex_loads(graph, hops, snapshots=numbers)
    return PartitionMeasures(
        snapshots=numbers,
        hops=hops,
        directions=tuple(used),
        static=static,
        owned=partition.counts,
        edges=pulled["in"].edges,
        all_edges=graph.num_edges[numbers.start : numbers.stop],
        cut_edges=pulled["in"].cut,
        halo=sum((counts.halo for counts in used.values()), np.zeros_like(replicated)),
        matrix={direction: counts.matrix for direction, counts in used.items()},
        first_matrix={direction: counts.first_matrix for direction, counts in used.items()},
        replicated=replicated,
        replicated_edges=replicated_edges,
        load=np.bincount(partition.owner, loads, partition.parts).astype(np.float64),
        **_memory(graph, partition, used, replicated, replicated_edges),
    )


@dataclass(frozen=True, slots=True)
class _Pulls:
    """Counts of one edge direction: edges (T, P), cut edges (T,), rows received (T, P), rows sent (P, P)."""

    edges: Counts
    cut: Counts
    halo: Counts
    matrix: Counts
    first_matrix: Counts


def _count_pulls(times: Sequence[Snapshot], partition: Partition, direction: str) -> _Pulls:
    parts = partition.parts
    edges, halo = np.zeros((2, len(times), parts), np.int64)
    cut = np.zeros(len(times), np.int64)
    first, matrix = np.zeros((2, parts * parts), np.int64)
    for row, snapshot in enumerate(times):
        to_part, sources = pulls_of(snapshot, partition, direction)
        edges[row] = np.bincount(to_part, minlength=parts)
        cut_edges = np.flatnonzero(to_part != partition.owner[sources])
        cut[row] = len(cut_edges)
        part, source = distinct_rows(to_part[cut_edges], sources[cut_edges], partition)
        halo[row] = np.bincount(part, minlength=parts)
        sent = np.bincount(partition.owner[source] * parts + part, minlength=parts * parts)
        matrix += sent
        if row == 0:
            first = sent
    return _Pulls(edges, cut, halo, matrix.reshape(parts, parts), first.reshape(parts, parts))


def _memory(
    graph: DynamicGraph, partition: Partition, pulled: Mapping[str, _Pulls], replicated: Counts, edges: Counts
) -> dict[str, Counts]:
    """Return ``halo_bytes`` and ``cached_bytes``, (P,); every number takes 4 bytes."""
    numbers_per_edge = 2 if graph.weighted else 1
    part_edges = sum((counts.edges.sum(axis=0) for counts in pulled.values()), np.zeros(partition.parts, np.int64))
    part_rows = np.broadcast_to(partition.counts, replicated.shape)
    all_rows = part_rows + replicated
    exchanged = sum(
        (counts.matrix.sum(axis=0) + counts.matrix.sum(axis=1) for counts in pulled.values()),
        np.zeros(partition.parts, np.int64),
    )

    def stored(rows: Counts) -> Counts:  # features and row offsets
        values = rows.max(axis=0) if graph.static_features else rows.sum(axis=0)
        return graph.num_features * values + len(pulled) * (rows + 1).sum(axis=0)

    return {
        "halo_bytes": 4 * (stored(part_rows) + numbers_per_edge * part_edges + exchanged),
        "cached_bytes": 4 * (stored(all_rows) + numbers_per_edge * (part_edges + edges.sum(axis=0))),
    }


def _bin_means(counts: Counts, bounds: Counts) -> NDArray[np.float64]:
    """Return means over bins of snapshots, (T, ...) -> (B, ...), rounded to a tenth."""
    sums = np.add.reduceat(counts, bounds[:-1], axis=0)
    lengths = np.diff(bounds).reshape(-1, *(1,) * (counts.ndim - 1))
    return np.round(sums / lengths, 1)


def _share(part: np.integer | int, total: np.integer | int) -> float:
    return float(part) / float(total) if total else 0.0


def _imbalance(values_by_part: NDArray[Any] | Sequence[float]) -> float:
    values = np.asarray(values_by_part, dtype=np.float64)
    return float(values.max() / values.mean()) if values.any() else 1.0


# increase it when measures change, so that cached ones are not reused
MEASURES_VERSION = 2
_MATRICES = ("matrix", "first_matrix")
_ARGUMENTS = ("snapshots", "hops", "directions", "static")
_ARRAYS = tuple(name for name in PartitionMeasures.__slots__ if name not in (*_ARGUMENTS, *_MATRICES))


def cached_measures(
    graph: DynamicGraph,
    partition: Partition,
    *,
    snapshots: range | None = None,
    hops: int = 1,
    directions: Sequence[str] = ("in",),
    static: bool = True,
) -> PartitionMeasures:
    """Return the result of :func:`measure`, cached on disk by graph, owners of the nodes and arguments.

    If several processes request it, the first one computes it, and the others wait and read the result. A damaged file
    is replaced; an unwritable cache is ignored.
    """
    numbers = range(graph.num_snapshots) if snapshots is None else snapshots
    request = {
        "version": MEASURES_VERSION,
        "graph": graph.data_hash,
        "owner": hashlib.sha256(partition.owner.tobytes()).hexdigest(),
        "parts": partition.parts,
        "snapshots": [numbers.start, numbers.stop, numbers.step],
        "hops": hops,
        "ways": list(directions),
        "static": static,
    }
    key = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:32]
    file = cache_folder() / "partition-measures" / f"{key}.npz"
    with one_at_a_time(file):
        with contextlib.suppress(*DAMAGE):  # missing or damaged
            return _read(file, numbers, hops, tuple(dict.fromkeys(directions)), static)
        measures = measure(graph, partition, snapshots=numbers, hops=hops, directions=directions, static=static)
        arrays = {name: getattr(measures, name) for name in _ARRAYS}
        for name in _MATRICES:
            arrays |= {f"{name}-{direction}": rows for direction, rows in getattr(measures, name).items()}
        with contextlib.suppress(OSError):  # an unwritable cache is not an error
            write_arrays(file, arrays)
    return measures


def _read(file: Path, snapshots: range, hops: int, directions: tuple[str, ...], static: bool) -> PartitionMeasures:
    arrays = read_arrays(file)
    values: dict[str, Any] = {name: arrays[name] for name in _ARRAYS}
    for name in _MATRICES:
        values[name] = {direction: arrays[f"{name}-{direction}"] for direction in directions}
    return PartitionMeasures(snapshots=snapshots, hops=hops, directions=directions, static=static, **values)


def measures_for(
    graph: DynamicGraph, partition: Partition, facts: ModelFacts, *, snapshots: range
) -> PartitionMeasures:
    """Return the metrics of a partition for a model's receptive field, edge directions and memory.

    Args:
        graph: T snapshots of N nodes.
        partition: partition of the same nodes.
        facts: facts of the model.
        snapshots: snapshots of the training split.
    """
    return cached_measures(
        graph,
        partition,
        snapshots=snapshots,
        hops=facts.hops,
        directions=facts.directions,
        static=facts.memory in ("per_vertex", "neighbourhood"),
    )
