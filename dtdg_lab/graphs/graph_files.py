"""A dynamic graph as a folder of arrays: written snapshot by snapshot, read without touching a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs import store
from dtdg_lab.graphs.arrays import over_time
from dtdg_lab.graphs.cut_counts import CutCounts
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.graphs.streamed_store import Draft

FOLLOWING = "following_"  # prefix of the arrays of label graphs


def put_snapshot(draft: Draft, snapshot: Snapshot, prefix: str = "") -> None:
    """Append a snapshot to the arrays ``indptr``, ``indices``, ``weights`` and ``edges`` (its number of edges)."""
    draft.file(f"{prefix}indptr", np.int64, (snapshot.num_nodes + 1,)).extend(snapshot.indptr[np.newaxis])
    draft.file(f"{prefix}indices", np.int32).extend(snapshot.indices)
    draft.file(f"{prefix}edges", np.int64).extend(np.array([snapshot.num_edges]))
    if snapshot.weights is not None:
        draft.file(f"{prefix}weights", np.float32).extend(snapshot.weights)


def meta_of(fields: Mapping[str, Any], data_hash: str) -> dict[str, Any]:
    """What meta.json holds besides the names of the arrays; ``fields`` are those of DynamicGraph."""
    counts = fields["counts"]
    return {
        **{name: fields[name] for name in ("name", "source", "edge_life", "strict_label")},
        "data_hash": data_hash,
        "counts": None if counts is None else asdict(counts),
    }


def save(graph: DynamicGraph, folder: Path) -> Path:
    """Write a graph into ``folder``; see :meth:`DynamicGraph.save`."""
    fields = {name: getattr(graph, name) for name in graph.__dataclass_fields__}
    meta = meta_of(fields, graph.data_hash)
    with Draft(folder) as draft:
        for snapshot in graph.snapshots:
            put_snapshot(draft, snapshot)
        for snapshot in graph.extra_following:
            put_snapshot(draft, snapshot, FOLLOWING)
        for name, array in graph.arrays():
            draft.put(name, array)
        draft.close_files()
        return draft.finish(meta)


def load(folder: Path, *, mmap: bool, source: str | None) -> DynamicGraph:
    """Read a graph from ``folder``; see :meth:`DynamicGraph.load`."""
    arrays, meta = store.read(folder, mmap=mmap)
    try:
        graph = _graph(arrays, meta, meta["source"] if source is None else source)
    except KeyError as error:
        raise DataError(f"the graph in {folder} lacks {error}. Delete the folder and make the graph again.") from error
    except DataError as error:
        raise DataError(
            f"the graph in {folder} is damaged: {error} Delete the folder and make the graph again."
        ) from error
    return graph


def _graph(arrays: dict[str, NDArray[Any]], meta: dict[str, Any], source: str) -> DynamicGraph:
    snapshots = _snapshots(arrays, "")
    steps, nodes = len(snapshots), snapshots[0].num_nodes
    features = over_time(arrays["features"], name="features", dtype=np.float32, steps=steps, shape=(nodes, None))
    following, classes, counts = None, arrays.get("classes"), meta.get("counts")
    if f"{FOLLOWING}indptr" in arrays:
        extra = _snapshots(arrays, FOLLOWING)
        following = extra if len(extra) == steps else (*snapshots[1:], extra[-1])
    if classes is not None:
        classes = over_time(classes, name="classes", dtype=np.int16, steps=steps, shape=(nodes,))
    for name, dtype in (("targets", np.float32), ("persistence", np.float32)):
        if arrays[name].shape != (steps, nodes) or arrays[name].dtype != dtype:
            raise DataError(f"{name} has shape {arrays[name].shape}; {(steps, nodes)} is needed.")
    return DynamicGraph.trusted(
        name=meta["name"], snapshots=snapshots, features=features, targets=arrays["targets"],
        persistence=arrays["persistence"], source=source, edge_life=meta["edge_life"],
        node_ids=arrays.get("node_ids"), strict_label=meta["strict_label"], following=following, classes=classes,
        vertex_split=arrays.get("vertex_split"), counts=None if counts is None else CutCounts(**counts),
        data_hash=meta["data_hash"],
    )  # fmt: skip


def _snapshots(arrays: dict[str, NDArray[Any]], prefix: str) -> tuple[Snapshot, ...]:
    """The snapshots whose arrays' names begin with ``prefix``, as views."""
    indptr, indices, weights = (arrays.get(prefix + name) for name in ("indptr", "indices", "weights"))
    if indptr is None or indices is None:
        raise KeyError(f"{prefix}indptr")
    # schema 1 has no numbers of edges: they stand at the ends of the rows
    edges = arrays.get(f"{prefix}edges", indptr[:, -1])
    ends = np.cumsum(edges).tolist()
    sizes = {len(array) for array in (indices, weights) if array is not None}
    if len(edges) != len(indptr) or not ends or sizes != {ends[-1]}:
        raise DataError(f"{prefix}indptr has {len(indptr)} snapshots of {ends[-1:]} edges, indices {len(indices)}.")
    return tuple(
        Snapshot.trusted(row, indices[start:stop], None if weights is None else weights[start:stop])
        for row, start, stop in zip(indptr, [0, *ends[:-1]], ends, strict=True)
    )
