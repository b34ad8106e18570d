"""A sequence of snapshots with features and next-step labels: what every system trains on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs import store
from dtdg_lab.graphs.arrays import frozen, give_up
from dtdg_lab.graphs.snapshot import Snapshot


@dataclass(frozen=True, eq=False)
class DynamicGraph:
    """T labelled snapshots of one graph over N vertices, with F features and one target per vertex and snapshot.

    Frozen: all arrays are read-only. Two graphs with equal ``data_hash`` hold the same data.

    Attributes:
        name: what runs and reports call it.
        snapshots: the T labelled snapshots, oldest first, all over the same N vertices.
        features: shape (T, N, F), float32.
        targets: shape (T, N), float32: the label at t, taken from the snapshot after t.
        persistence: shape (T, N), float32: what "tomorrow is like today" predicts for ``targets``.
        source: where the data came from, in words.
        edge_life: base intervals an edge lives; neighbouring snapshots share all but one of them.
        node_ids: shape (N,): the vertices' ids in the source; None where there are none.
        strict_label: whether targets count only edges of the newest base interval.

    Raises:
        DataError: arrays do not fit together, or hold values that are not finite.
    """

    name: str
    snapshots: tuple[Snapshot, ...]
    features: NDArray[np.float32]
    targets: NDArray[np.float32]
    persistence: NDArray[np.float32]
    source: str
    edge_life: int
    node_ids: NDArray[Any] | None = None
    strict_label: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "snapshots", tuple(self.snapshots))
        _check_snapshots(self.snapshots)
        if self.edge_life < 1:
            raise DataError(f"edge_life={self.edge_life}: an edge lives at least 1 base interval.")
        shape = (len(self.snapshots), self.snapshots[0].num_nodes)
        for name, extra in (("features", (None,)), ("targets", ()), ("persistence", ())):
            array = frozen(getattr(self, name), name=name, dtype=np.float32, shape=(*shape, *extra))
            if not np.isfinite(array).all():
                where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
                raise DataError(f"{name}{list(where)} is {array[where]}; every value must be finite. Check the source.")
            object.__setattr__(self, name, array)
        if self.node_ids is not None:
            kind = np.asarray(self.node_ids).dtype
            if kind.kind not in "iuU":
                raise DataError(f"node_ids have type {kind}; whole numbers or text are needed.")
            ids = frozen(self.node_ids, name="node_ids", dtype=kind, shape=(shape[1],))
            object.__setattr__(self, "node_ids", ids)

    def __reduce__(self) -> tuple[Any, ...]:
        # numpy forgets the read-only flag in a pickle; going through the constructor puts it back
        return (DynamicGraph, tuple(getattr(self, name) for name in self.__dataclass_fields__))

    def __repr__(self) -> str:
        edges = self.num_edges
        return (
            f"DynamicGraph({self.name!r}: {self.num_snapshots} labelled snapshots, {self.num_nodes:,} vertices, "
            f"{edges.min():,} to {edges.max():,} edges, {self.num_features} features, edge life {self.edge_life}; "
            f"{self.source})"
        )

    @property
    def num_nodes(self) -> int:
        """N, the number of vertices over all time."""
        return self.snapshots[0].num_nodes

    @property
    def num_snapshots(self) -> int:
        """T, the number of labelled snapshots."""
        return len(self.snapshots)

    @property
    def num_features(self) -> int:
        """F, the number of features of a vertex."""
        return self.features.shape[2]

    @cached_property
    def num_edges(self) -> NDArray[np.int64]:
        """Distinct directed edges of every snapshot, shape (T,)."""
        return give_up(np.array([snapshot.num_edges for snapshot in self.snapshots], dtype=np.int64))

    @cached_property
    def data_hash(self) -> str:
        """SHA-256 of all arrays and ``edge_life``, in hexadecimal; name and source do not enter."""
        digest = hashlib.sha256(json.dumps(["dtdg-lab graph", 1, self.edge_life]).encode())
        for label, array in self._arrays():
            digest.update(f"{label}{array.dtype.str}{array.shape}".encode())
            if array.size:
                digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        return digest.hexdigest()

    def _arrays(self) -> Iterator[tuple[str, NDArray[Any]]]:
        for snapshot in self.snapshots:
            yield "indptr", snapshot.indptr
            yield "indices", snapshot.indices
            if snapshot.weights is not None:
                yield "weights", snapshot.weights
        yield "features", self.features
        yield "targets", self.targets
        yield "persistence", self.persistence
        if self.node_ids is not None:
            yield "node_ids", self.node_ids

    def save(self, folder: str | Path) -> Path:
        """Write the graph into ``folder``: .npy files and meta.json, all of them or nothing.

        A graph already saved there is replaced; readers that have it mapped keep the old one.

        Raises:
            DataError: the folder holds something else, or cannot be written.
        """
        snapshots = self.snapshots
        arrays = {
            "indptr": np.stack([snapshot.indptr for snapshot in snapshots]),
            "indices": np.concatenate([snapshot.indices for snapshot in snapshots]),
            "features": self.features,
            "targets": self.targets,
            "persistence": self.persistence,
        }
        if self.snapshots[0].weights is not None:
            arrays["weights"] = np.concatenate([snapshot.weights for snapshot in snapshots])
        if self.node_ids is not None:
            arrays["node_ids"] = self.node_ids
        meta = {
            "name": self.name,
            "source": self.source,
            "edge_life": self.edge_life,
            "strict_label": self.strict_label,
            "data_hash": self.data_hash,
        }
        return store.write(Path(folder), arrays, meta)

    @classmethod
    def load(cls, folder: str | Path, mmap: bool = True, *, source: str | None = None) -> DynamicGraph:
        """Read what :meth:`save` wrote; with ``mmap`` the pages are read when used and shared by all processes.

        ``source`` replaces the stored words on where the data came from. ``data_hash`` is the stored one.

        Raises:
            DataError: the folder holds no graph, or a damaged one.
        """
        arrays, meta = store.read(Path(folder), mmap=mmap)
        try:
            ends = np.cumsum(arrays["indptr"][:, -1])
            bounds = list(zip(ends - arrays["indptr"][:, -1], ends, strict=True))
            weights = arrays.get("weights")
            snapshots = tuple(
                Snapshot(indptr, arrays["indices"][start:stop], None if weights is None else weights[start:stop])
                for indptr, (start, stop) in zip(arrays["indptr"], bounds, strict=True)
            )
            graph = cls(
                name=meta["name"], snapshots=snapshots, features=arrays["features"], targets=arrays["targets"],
                persistence=arrays["persistence"], source=meta["source"] if source is None else source,
                edge_life=meta["edge_life"], node_ids=arrays.get("node_ids"), strict_label=meta["strict_label"],
            )  # fmt: skip
        except KeyError as error:
            raise DataError(
                f"the graph in {folder} lacks {error}. Delete the folder and save the graph again."
            ) from error
        graph.__dict__["data_hash"] = meta["data_hash"]  # fills the cached property
        return graph

    def store(self, root: str | Path | None = None) -> str:
        """Keep the graph on this machine under its data hash and return the name it can be loaded by.

        Args:
            root: the cache folder; by default $DTDG_LAB_CACHE, or ~/.cache/dtdg-lab.

        Returns:
            ``"graph:<hash16>"``, which ``load_dataset`` and ``RunConfig(dataset=...)`` take.

        Raises:
            DataError: the folder cannot be written.
        """
        key = self.data_hash[:16]
        folder = store.graph_folder(key, root)
        if not store.holds_graph(folder):
            self.save(folder)
        return f"graph:{key}"


def _check_snapshots(snapshots: tuple[Snapshot, ...]) -> None:
    if not snapshots:
        raise DataError("a dynamic graph needs at least 1 labelled snapshot; 0 were given. Cut more windows.")
    for t, snapshot in enumerate(snapshots):
        if not isinstance(snapshot, Snapshot):
            raise DataError(f"snapshots[{t}] is a {type(snapshot).__name__}; a Snapshot is needed.")
        if snapshot.num_nodes != snapshots[0].num_nodes:
            raise DataError(
                f"snapshots[{t}] has {snapshot.num_nodes} vertices and snapshots[0] has {snapshots[0].num_nodes}; "
                "all must be over the same vertices. Number them over all time."
            )
        if (snapshot.weights is None) != (snapshots[0].weights is None):
            raise DataError(
                f"snapshots[{t}] and snapshots[0] differ in having weights; give all of them weights or none."
            )
