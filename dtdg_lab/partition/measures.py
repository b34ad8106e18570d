"""What a partition costs, counted before anything runs: cut edges, halo rows, replicated rows, load and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import Partition
from dtdg_lab.graphs.arrays import give_up
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.partition.halo import distinct_rows, pulls_of
from dtdg_lab.partition.loads import vertex_loads
from dtdg_lab.partition.replicated import count_replicated

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PartitionMeasures:
    """Counts of T snapshots over N vertices in P parts; made by :func:`measure`.

    Attributes:
        snapshots: the T snapshots counted, by number in the graph.
        hops: D, how far a part that exchanges nothing must see.
        ways: along which edges vertices pull: ``in``, ``out``.
        static: whether replicated rows are the same in all snapshots.
        owned: (P,) vertices of each part.
        edges: (T, P) edges into each part's own vertices.
        all_edges: (T,) edges.
        cut_edges: (T,) edges between different parts.
        halo: (T, P) rows that each part receives for one pull each way.
        matrix: for each way (P, P): rows that part q sends to part p for one pull in every snapshot, at [q, p].
        first_matrix: the same for a pull in the first of the snapshots alone.
        replicated: (T, P) vertices that a part does not own, within D hops of its own.
        replicated_edges: (T, P) edges that a part holds for them: all that those within D - 1 hops pull along, each
            way.
        load: (P,) DynaHB's load of each part's vertices, in walks of up to D hops over all snapshots of the graph.
        halo_bytes: (P,) memory of a part's share of the data where rows are exchanged: features of its own rows
            (float32, once where they never change); for each snapshot and way its own rows' edges (int32 row starts
            and sources, float32 weights where there are any) and the numbers of the rows sent and received (int32).
        cached_bytes: (P,) the same where rows are replicated: features and row starts of own and replicated rows,
            edges of own rows and of those within D - 1 hops; nothing is sent.
    """

    snapshots: range
    hops: int
    ways: tuple[str, ...]
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
                    give_up(array)

    @property
    def parts(self) -> int:
        """P."""
        return len(self.owned)

    @property
    def cut_share(self) -> float:
        """Cut edges over edges, of all snapshots; 0 where there are no edges."""
        return _share(self.cut_edges.sum(), self.all_edges.sum())

    @property
    def halo_share(self) -> float:
        """Rows received over rows received and owned, of all snapshots and ways."""
        return _share(self.halo.sum(), self.halo.sum() + self._rows * len(self.ways))

    @property
    def replicated_share(self) -> float:
        """Replicated rows over replicated and owned ones, of all snapshots."""
        return _share(self.replicated.sum(), self.replicated.sum() + self._rows)

    @property
    def imbalance(self) -> dict[str, float]:
        """The largest part over the mean of the parts, by ``vertices``, ``edges`` and ``load``; 1 is even."""
        return {
            "vertices": _imbalance(self.owned),
            "edges": _imbalance(self.edges.sum(axis=0)),
            "load": _imbalance(self.load),
        }

    @property
    def _rows(self) -> int:
        return len(self.snapshots) * int(self.owned.sum())

    def told(self, columns: int = 64) -> dict[str, Any]:
        """Plain numbers for an event or a view; snapshots are thinned into B <= ``columns`` bins.

        Returns:
            ``parts`` P, ``vertices`` N, ``hops``, ``ways``, ``static``; ``bins`` (B + 1,) bounds: bin b stands for
            snapshots bins[b] to bins[b + 1] - 1; ``edges``, ``halo``, ``replicated``, ``replicated_edges`` (P, B) and
            ``all_edges``, ``cut_edges`` (B,): means of the bin's snapshots; ``owned``, ``load``, ``halo_bytes``,
            ``cached_bytes`` (P,); ``matrix`` {way: (P, P)}, rows of all snapshots; ``totals``: rows and edges of all
            snapshots and parts, by name; ``cut_share``, ``halo_share``, ``replicated_share``; ``imbalance``
            {``vertices``, ``edges``, ``load``}.
        """
        bounds = np.unique(np.linspace(0, len(self.snapshots), max(columns, 1) + 1).astype(np.int64))
        by_part = ("edges", "halo", "replicated", "replicated_edges")
        over_all = ("all_edges", "cut_edges")
        return {
            "parts": self.parts,
            "vertices": int(self.owned.sum()),
            "hops": self.hops,
            "ways": list(self.ways),
            "static": self.static,
            "bins": (bounds + self.snapshots.start).tolist(),
            **{name: _bin_means(getattr(self, name), bounds).T.tolist() for name in (*by_part, *over_all)},
            **{name: getattr(self, name).tolist() for name in ("owned", "load", "halo_bytes", "cached_bytes")},
            "matrix": {way: rows.tolist() for way, rows in self.matrix.items()},
            "totals": {name: int(getattr(self, name).sum()) for name in (*by_part, *over_all)},
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
    ways: Sequence[str] = ("in",),
    static: bool = True,
) -> PartitionMeasures:
    """Count what a partition costs on some snapshots of a graph.

    Args:
        graph: T snapshots of N vertices.
        partition: of the same vertices.
        snapshots: consecutive ones; all by default.
        hops: D = layers times hops per layer, at least 1.
        ways: along which edges the model pulls: ``in``, ``out`` or both.
        static: replicate what is within D hops by edges of any of the snapshots (memories ``per_vertex`` and
            ``neighbourhood``, whose state runs through all of them); else by those of each snapshot alone.

    Raises:
        PlanError: the partition is of other vertices, or snapshots, hops or ways are not allowed.
    """
    chosen = range(graph.num_snapshots) if snapshots is None else snapshots
    if hops < 1 or not chosen or chosen.step != 1 or chosen.start < 0 or chosen.stop > graph.num_snapshots:
        raise PlanError(
            f"snapshots {chosen} within {hops} hops: consecutive ones of 0 to {graph.num_snapshots - 1}, at least one, "
            "and at least 1 hop are allowed."
        )
    times = [graph.snapshots[t] for t in chosen]
    pulled = {way: _count_pulls(times, partition, way) for way in dict.fromkeys(("in", *ways))}
    used = {way: pulled[way] for way in dict.fromkeys(ways)}
    replicated, replicated_edges = count_replicated(times, partition, hops, tuple(used), static=static)
    return PartitionMeasures(
        snapshots=chosen,
        hops=hops,
        ways=tuple(used),
        static=static,
        owned=partition.counts,
        edges=pulled["in"].edges,
        all_edges=graph.num_edges[chosen.start : chosen.stop],
        cut_edges=pulled["in"].cut,
        halo=sum((counts.halo for counts in used.values()), np.zeros_like(replicated)),
        matrix={way: counts.matrix for way, counts in used.items()},
        first_matrix={way: counts.first_matrix for way, counts in used.items()},
        replicated=replicated,
        replicated_edges=replicated_edges,
        load=np.bincount(partition.owner, vertex_loads(graph, hops), partition.parts).astype(np.float64),
        **_memory(graph, partition, used, replicated, replicated_edges),
    )


@dataclass(frozen=True, slots=True)
class _Pulls:
    """One way's counts: edges (T, P) that a part pulls along, cut ones (T,), rows received (T, P), rows sent (P, P)."""

    edges: Counts
    cut: Counts
    halo: Counts
    matrix: Counts
    first_matrix: Counts


def _count_pulls(times: Sequence[Snapshot], partition: Partition, way: str) -> _Pulls:
    parts = partition.parts
    edges, halo = np.zeros((2, len(times), parts), np.int64)
    cut = np.zeros(len(times), np.int64)
    first, matrix = np.zeros((2, parts * parts), np.int64)
    for row, snapshot in enumerate(times):
        to_part, sources = pulls_of(snapshot, partition, way)
        edges[row] = np.bincount(to_part, minlength=parts)
        across = np.flatnonzero(to_part != partition.owner[sources])
        cut[row] = len(across)
        part, source = distinct_rows(to_part[across], sources[across], partition)
        halo[row] = np.bincount(part, minlength=parts)
        sent = np.bincount(partition.owner[source] * parts + part, minlength=parts * parts)
        matrix += sent
        if row == 0:
            first = sent
    return _Pulls(edges, cut, halo, matrix.reshape(parts, parts), first.reshape(parts, parts))


def _memory(
    graph: DynamicGraph, partition: Partition, pulled: Mapping[str, _Pulls], replicated: Counts, edges: Counts
) -> dict[str, Counts]:
    """``halo_bytes`` and ``cached_bytes``, (P,); every number takes 4 bytes."""
    an_edge = 2 if graph.weighted else 1
    own_edges = sum((counts.edges.sum(axis=0) for counts in pulled.values()), np.zeros(partition.parts, np.int64))
    own_rows = np.broadcast_to(partition.counts, replicated.shape)
    all_rows = own_rows + replicated
    moved = sum(
        (counts.matrix.sum(axis=0) + counts.matrix.sum(axis=1) for counts in pulled.values()),
        np.zeros(partition.parts, np.int64),
    )

    def held(rows: Counts) -> Counts:  # a value for each feature, and where each row of edges starts
        values = rows.max(axis=0) if graph.static_features else rows.sum(axis=0)
        return graph.num_features * values + len(pulled) * (rows + 1).sum(axis=0)

    return {
        "halo_bytes": 4 * (held(own_rows) + an_edge * own_edges + moved),
        "cached_bytes": 4 * (held(all_rows) + an_edge * (own_edges + edges.sum(axis=0))),
    }


def _bin_means(counts: Counts, bounds: Counts) -> NDArray[np.float64]:
    """Means over runs of snapshots, (T, ...) -> (B, ...), to a tenth."""
    sums = np.add.reduceat(counts, bounds[:-1], axis=0)
    lengths = np.diff(bounds).reshape(-1, *(1,) * (counts.ndim - 1))
    return np.round(sums / lengths, 1)


def _share(part: np.integer | int, whole: np.integer | int) -> float:
    return float(part) / float(whole) if whole else 0.0


def _imbalance(of_parts: NDArray[Any] | Sequence[float]) -> float:
    values = np.asarray(of_parts, dtype=np.float64)
    return float(values.max() / values.mean()) if values.any() else 1.0
