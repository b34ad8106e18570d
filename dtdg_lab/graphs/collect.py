"""Where the steps of a graph under construction go: into arrays in memory, or into growing files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.hashing import GraphHash, LabelHash
from dtdg_lab.graphs.snapshot import Snapshot, give_up, over_time
from dtdg_lab.graphs.storage import FOLLOWING, Draft, load, meta_of, put_snapshot

ARRAYS = ("features", "targets", "persistence", "node_ids", "classes", "vertex_split")  # in the order of the hash


@dataclass(frozen=True, slots=True, eq=False)
class BuiltSnapshot:
    """A labelled snapshot and what changes with it.

    Attributes:
        graph: the snapshot.
        rows: arrays of this step by name; the names are the same in all steps of a graph.
        following: the edges the label counts, or None.
        own_label: whether these have to be kept; else they are the next snapshot's.
    """

    graph: Snapshot
    rows: Mapping[str, NDArray[Any]]
    following: Snapshot | None
    own_label: bool


class MemoryCollector:
    """Keeps the steps in memory. A context manager, as the other one.

    Args:
        most: at most so many steps come.
    """

    def __init__(self, most: int) -> None:
        self.steps = 0
        self._most = most
        self._graphs: list[Snapshot] = []
        self._following: list[Snapshot] = []
        self._rows: dict[str, NDArray[Any]] = {}

    def __enter__(self) -> MemoryCollector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left behind."""

    def add(self, step: BuiltSnapshot) -> None:
        """Take the next step."""
        for name, row in step.rows.items():
            if name not in self._rows:
                self._rows[name] = self._room(name, row)
            self._rows[name][self.steps] = row
        self._graphs.append(step.graph)
        if step.following is not None:
            if not step.own_label:
                self._following.clear()  # only the last is extra
            self._following.append(step.following)
        self.steps += 1

    def _room(self, name: str, row: NDArray[Any]) -> NDArray[Any]:
        """Memory for all rows; the system allocates only pages that are written."""
        try:
            return np.empty((self._most, *row.shape), dtype=row.dtype)
        except MemoryError as error:
            raise DataError(
                f"{name} of up to {self._most:,} snapshots of shape {row.shape} do not fit the memory: {error}. Cut "
                "fewer intervals."
            ) from error

    def finish(self, fixed: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> DynamicGraph:
        """The graph.

        Args:
            fixed: arrays that are the same at all steps, by name.
            facts: the other fields of DynamicGraph.
        """
        arrays = {name: give_up(rows[: self.steps]) for name, rows in self._rows.items()}
        for name, array in fixed.items():
            vertices = name in ("node_ids", "vertex_split")
            arrays[name] = (
                array
                if vertices
                else over_time(give_up(array), name=name, dtype=array.dtype, steps=self.steps, shape=array.shape)
            )
        following = self._following
        if following and len(following) < self.steps:
            following = [*self._graphs[1:], *following]
        return DynamicGraph.trusted(
            snapshots=tuple(self._graphs), following=tuple(following) or None, **arrays, **facts
        )


class FileCollector:
    """Appends the steps to the files of a graph's folder, and hashes them as they go by. A context manager.

    Args:
        folder: where the graph is to appear.
        edge_life: base intervals an edge lives, for the hash.
    """

    def __init__(self, folder: Path, edge_life: int) -> None:
        self.steps = 0
        self._draft = Draft(folder)
        self._hash, self._labels = GraphHash(edge_life), LabelHash(edge_life)
        self._before: BuiltSnapshot | None = None

    def __enter__(self) -> FileCollector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._draft.__exit__(kind, error, trace)

    def add(self, step: BuiltSnapshot) -> None:
        """Take the next step."""
        put_snapshot(self._draft, step.graph)
        self._hash.snapshot(step.graph)
        for name, row in step.rows.items():
            self._draft.file(name, row.dtype, row.shape).extend(row[np.newaxis])
        self._follow(step)
        self.steps += 1

    def finish(self, fixed: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> DynamicGraph:
        """Put the folder into place and map it; arguments as for :class:`MemoryCollector`."""
        for name, array in fixed.items():
            self._draft.put(name, array)
        self._follow(None)
        self._draft.close_files()
        for name in ARRAYS:
            if name in self._draft.files:
                file = self._draft.files[name]
                self._hash.pieces(name, file.dtype, file.shape, file.pieces())
        if f"{FOLLOWING}indptr" in self._draft.files:
            self._hash.labels(self._labels)
        return load(self._draft.finish(meta_of(facts, self._hash.hexdigest())), mmap=True, source=None)

    def _follow(self, step: BuiltSnapshot | None) -> None:
        """Keep the label graph of the step before this one; None is the end."""
        before, self._before = self._before, step
        if before is None or before.following is None:
            return
        self._labels.follow(before.following, None if step is None else step.graph)
        if before.own_label or step is None:
            put_snapshot(self._draft, before.following, FOLLOWING)
