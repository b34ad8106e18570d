"""A sequence of snapshots with features and next-step labels: what every system trains on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtdg_lab.core.units import as_path
from dtdg_lab.graphs import conversion, statistics, storage
from dtdg_lab.graphs.graph_data import GraphData
from dtdg_lab.graphs.statistics import GraphStatistics


@dataclass(frozen=True, eq=False, repr=False)
class DynamicGraph(GraphData):
    """T labelled snapshots of one graph over N nodes, with F features and one target per node and snapshot.

    All arrays are read-only. Two graphs with equal ``data_hash`` hold the same data.

    Attributes:
        name: its name in runs and reports.
        snapshots: the T labelled snapshots, oldest first, all over the same N nodes.
        features: shape (T, N, F), float32; (N, F) is accepted too, and repeated over time by a view.
        targets: shape (T, N), float32: the label at t, taken from the snapshot after t where it is not given.
        persistence: shape (T, N), float32: the prediction of ``targets`` by the current values.
        source: where the data came from, in words.
        edge_life: base intervals an edge lives; neighbouring snapshots share all but one of them.
        node_ids: shape (N,): the nodes' ids in the source; None where there are none.
        strict_label: whether targets count only edges of the newest base interval.
        following: T snapshots: the edges that the label at t counts, which link prediction predicts; None where
            targets are given without edges.
        classes: shape (T, N), int16, -1 where unlabelled; (N,) is accepted too; None where there are none.
        vertex_split: shape (N,), int8: 0 trains, 1 validates, 2 tests, -1 none of them; None where there is none.
        counts: sizes of the whole sequence the graph was cut from, where it was cut.

    Raises:
        DataError: arrays do not fit together, or hold values that are not allowed.
    """

    def describe(self) -> GraphStatistics:
        """Return statistics to print: sizes, overlap of consecutive snapshots, degrees, and errors of the baselines."""
        return statistics.describe(self)

    def to_pyg(self) -> list[Any]:
        """Return the T snapshots as PyG ``Data``, oldest first: copies on the CPU.

        Each has ``edge_index`` (2, E) with the source and the target of every edge, ``x`` (N, F), ``y`` (N,) with the
        targets of the step, ``num_nodes``, ``edge_weight`` (E,) where edges carry weights, and ``label`` (N,) where
        nodes have classes, -1 where unknown. Features that never change are one tensor in all of them.

        Raises:
            NotAvailableError: PyG cannot be imported; the message has the command that installs it.
        """
        return conversion.pyg_data(self)

    def to_dgl(self) -> list[Any]:
        """Return the T snapshots as DGLGraphs, oldest first: copies on the CPU.

        Each has ``ndata["feat"]`` (N, F), ``ndata["target"]`` (N,) with the targets of the step, ``edata["weight"]``
        (E,) where edges carry weights, and ``ndata["label"]`` (N,) where nodes have classes, -1 where unknown.

        Raises:
            NotAvailableError: DGL cannot be imported; the message has the command that installs it.
        """
        return conversion.dgl_graphs(self)

    def save(self, folder: str | Path) -> Path:
        """Write the graph into ``folder`` as .npy files and meta.json. It appears whole or not at all.

        A graph already saved there is replaced; readers that have it mapped keep the old one.

        Raises:
            DataError: the folder holds something else, cannot be written, or is no path.
        """
        return storage.save(self, as_path(folder, "folder"))

    @classmethod
    def load(cls, folder: str | Path, mmap: bool = True, *, source: str | None = None) -> DynamicGraph:
        """Read a graph that :meth:`save` wrote. With ``mmap`` pages are read on use and shared by all processes.

        ``source`` replaces the stored source. ``data_hash`` is the stored one. Only types and lengths of the arrays
        are checked; their values were checked before writing.

        Raises:
            DataError: the folder holds no graph, or a damaged one, or is no path.
        """
        fields = storage.read_fields(as_path(folder, "folder"), mmap=mmap)
        return DynamicGraph.trusted(**fields if source is None else {**fields, "source": source})

    def store(self, root: str | Path | None = None) -> str:
        """Store the graph in the cache under its data hash, and return the name that loads it.

        Args:
            root: the cache folder; by default $DTDG_LAB_CACHE, or ~/.cache/dtdg-lab.

        Returns:
            ``"graph:<hash16>"``, which ``lab.datasets.load`` and ``RunConfig(dataset=...)`` take.

        Raises:
            DataError: the folder cannot be written.
        """
        key = self.data_hash[:16]
        folder = storage.graph_folder(key, root)
        if not storage.holds_graph(folder):
            self.save(folder)
        return f"graph:{key}"
