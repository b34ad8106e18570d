"""Node classification graphs of the Open Graph Benchmark in their raw form: csv.gz, or npz for papers100M."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.archives import Members, unpacked
from dtdg_lab.datasets.formats.blocks import side_by_side
from dtdg_lab.datasets.formats.npz import read_npz
from dtdg_lab.datasets.formats.part import find_part
from dtdg_lab.datasets.formats.rows import FEATURE, ID, LABEL, WHOLE, Kind, read_rows
from dtdg_lab.datasets.formats.text import line_of_row, plain, width
from dtdg_lab.datasets.formats.undirected import both_directions as in_both_directions
from dtdg_lab.datasets.tables import MAX_NODES, SPLIT_NONE, SPLIT_TEST, SPLIT_TRAIN, SPLIT_VALIDATION, StaticTable
from dtdg_lab.graphs.arrays import give_up

_SPLITS = {"train": SPLIT_TRAIN, "valid": SPLIT_VALIDATION, "test": SPLIT_TEST}
_MOST_CLASSES = np.iinfo(np.int16).max


def parse(
    data: Mapping[str, bytes], where: str, *, both_directions: bool = False, features: bool = True
) -> StaticTable:
    """A graph of N vertices and E directed edges, with classes and the published split.

    Args:
        data: the files by name, with or without ``.gz``; only the end of a name counts: ``edge.csv.gz``,
            ``num-node-list.csv.gz``, ``node-label.csv.gz``, ``node-feat.csv.gz`` (may be missing) and the split
            ``train.csv.gz``, ``valid.csv.gz``, ``test.csv.gz`` (all or none); or ``data.npz`` and ``node-label.npz``
            in place of the first four.
        where: the archive's name, for messages.
        both_directions: add the other direction of every edge, and leave out repeats and self loops: ogbn-products
            stores each undirected edge once.
        features: read the features; those of papers100M take 57 GB.

    Raises:
        DataError: a file is missing or damaged, a line has other values, or the files do not fit together.

    Source: Hu et al. 2020 (NeurIPS, OGB); the raw form as the ogb package reads it.
    """
    read = _read_npz if find_part(data, "data.npz", where) else _read_csv
    src, dst, nodes, classes, given = read(data, where, features=features)
    if len(classes) != nodes:
        raise DataError(f"{where}: {len(classes):,} labels for {nodes:,} vertices; one each is needed. Fetch it again.")
    if given is not None and len(given) != nodes:
        raise DataError(
            f"{where}: features of {len(given):,} vertices, and there are {nodes:,}; one row each is needed. Fetch the "
            "file again."
        )
    if both_directions:
        src, dst = in_both_directions(src, dst)
    return StaticTable(
        src, dst, nodes, features=given, classes=give_up(classes), vertex_split=_split(data, nodes, where)
    )


def read_years(data: Mapping[str, bytes], where: str) -> NDArray[np.int64]:
    """The year of every vertex, shape (N,), of a set that has them: ogbn-arxiv and ogbn-papers100M.

    Raises:
        DataError: it has none, or they cannot be read.
    """
    if find_part(data, "data.npz", where):
        with _stream(data, "data.npz", where) as stream:
            years = read_npz(stream, {"node_year": True}, f"{where} (data.npz)")["node_year"]
        if years.dtype.kind not in "iu":
            raise DataError(f"{where} (data.npz): node_year has type {years.dtype}; whole numbers are needed.")
        return give_up(years.reshape(-1).astype(np.int64))
    rows: NDArray[np.int64] = _csv(data, "node_year", where, {"year": WHOLE})[0]["year"]
    return rows


_Graph = tuple[NDArray[np.int64], NDArray[np.int64], int, NDArray[np.int16], NDArray[np.float32] | None]


def _read_csv(data: Mapping[str, bytes], where: str, *, features: bool) -> _Graph:
    counts = _csv(data, "num-node-list", where, {"vertices": WHOLE})[0]["vertices"]
    nodes = _one_graph(counts, where)
    edges, text = _csv(data, "edge", where, {"source": ID, "target": ID})
    outside = np.flatnonzero(np.maximum(edges["source"], edges["target"]) >= nodes)
    if len(outside):
        row = int(outside[0])
        raise DataError(
            f"line {line_of_row(text, row)} of {where} (edge.csv) joins {edges['source'][row]} and "
            f"{edges['target'][row]}; 0 to {nodes - 1} are the vertices. Fetch the file again."
        )
    classes = _csv(data, "node-label", where, {"class": LABEL})[0]["class"].astype(np.int16)
    given = None
    if features and (find_part(data, "node-feat.csv.gz", where) or find_part(data, "node-feat.csv", where)):
        given = _feature_rows(data, where)
    return edges["source"], edges["target"], nodes, classes, given


def _feature_rows(data: Mapping[str, bytes], where: str) -> NDArray[np.float32]:
    text, called = _text(data, "node-feat", where)
    names = [f"feature {place}" for place in range(max(width(text, called), 1))]
    rows = read_rows(text, called, dict.fromkeys(names, FEATURE))
    return side_by_side(rows, names, len(rows[names[0]]))


def _read_npz(data: Mapping[str, bytes], where: str, *, features: bool) -> _Graph:
    called = f"{where} (data.npz)"
    wanted = {"edge_index": True, "num_nodes_list": True} | ({"node_feat": False} if features else {})
    with _stream(data, "data.npz", where) as stream:
        arrays = read_npz(stream, wanted, called)
    with _stream(data, "node-label.npz", where) as stream:
        labels = read_npz(stream, {"node_label": True}, f"{where} (node-label.npz)")["node_label"].reshape(-1)
    edges, given = arrays["edge_index"], arrays.get("node_feat")
    nodes = _one_graph(arrays["num_nodes_list"].reshape(-1), where)
    if edges.dtype.kind not in "iu" or edges.ndim != 2 or len(edges) != 2 or not edges.size:
        raise DataError(f"{called}: edge_index has type {edges.dtype} and shape {edges.shape}; (2, E) is needed.")
    if edges.min() < 0 or edges.max() >= nodes:
        raise DataError(f"{called}: edges of {edges.min()} to {edges.max()}; 0 to {nodes - 1} are the vertices.")
    if given is not None and (given.dtype.kind != "f" or given.ndim != 2 or not _finite(given)):
        raise DataError(f"{called}: node_feat of type {given.dtype}, shape {given.shape}; finite (N, F) is needed.")
    with np.errstate(over="ignore"):
        given = None if given is None else give_up(given.astype(np.float32, copy=False))
    if given is not None and not _finite(given):
        raise DataError(f"{called}: node_feat has numbers that float32 cannot hold. Fetch the file again.")
    src, dst = (give_up(np.ascontiguousarray(edge, dtype=np.int64)) for edge in edges)
    return src, dst, nodes, _labels(labels, f"{where} (node-label.npz)"), given


def _finite(array: NDArray[Any]) -> bool:
    return all(np.isfinite(array[first : first + 65_536]).all() for first in range(0, len(array), 65_536))


def _labels(labels: NDArray[Any], where: str) -> NDArray[np.int16]:
    """Classes from numbers of any type, of which NaN means none."""
    known = ~np.isnan(labels) if labels.dtype.kind == "f" else np.ones(len(labels), dtype=bool)
    values = labels[known]
    if len(values) and not (
        values.min() >= -1 and values.max() <= _MOST_CLASSES and (values == np.floor(values)).all()
    ):
        raise DataError(
            f"{where}: labels from {values.min()} to {values.max()}; -1, 0, ... {_MOST_CLASSES} are allowed."
        )
    classes = np.full(len(labels), -1, dtype=np.int16)
    classes[known] = values.astype(np.int16)
    return classes


def _one_graph(counts: NDArray[Any], where: str) -> int:
    if len(counts) != 1 or not 1 <= counts[0] <= MAX_NODES:
        raise DataError(
            f"{where}: the numbers of vertices are {counts[:5].tolist()}; one graph of 1 to {MAX_NODES:,} is allowed."
        )
    return int(counts[0])


def _split(data: Mapping[str, bytes], nodes: int, where: str) -> NDArray[np.int8] | None:
    """The published part of every vertex, shape (N,); None where there is no split."""
    held = [name for name in _SPLITS if any(find_part(data, f"{name}.csv{end}", where) for end in ("", ".gz"))]
    if not held:
        return None
    split = np.full(nodes, SPLIT_NONE, dtype=np.int8)
    for name, part in _SPLITS.items():
        rows, text = _csv(data, name, where, {"vertex": ID})
        vertices = rows["vertex"]
        wrong = np.flatnonzero(vertices >= nodes)
        if len(wrong):
            raise DataError(
                f"line {line_of_row(text, int(wrong[0]))} of {where} ({name}.csv) is vertex {vertices[wrong[0]]}; 0 to "
                f"{nodes - 1} are there. Fetch the file again."
            )
        if (split[vertices] != SPLIT_NONE).any():
            raise DataError(
                f"{where} ({name}.csv) has vertices of another part too; each may be in one. Fetch it again."
            )
        split[vertices] = part
    return give_up(split)


def _csv(data: Mapping[str, bytes], name: str, where: str, columns: Mapping[str, Kind]) -> tuple[dict[str, Any], bytes]:
    text, called = _text(data, name, where)
    return read_rows(text, called, columns), text


def _text(data: Mapping[str, bytes], name: str, where: str) -> tuple[bytes, str]:
    called = f"{where} ({name}.csv)"
    found = find_part(data, f"{name}.csv.gz", where) or find_part(data, f"{name}.csv", where)
    if found is None:
        raise DataError(f"{where} has no {name}.csv.gz; it has {', '.join(list(data)[:12]) or 'nothing'}.")
    return plain(unpacked(data[found], called), called), called


@contextmanager
def _stream(data: Mapping[str, bytes], name: str, where: str) -> Iterator[IO[bytes]]:
    """A file one can read anywhere in, without holding all of it where the archive allows that."""
    found = find_part(data, name, where)
    if found is None:
        raise DataError(f"{where} has no {name}; it has {', '.join(list(data)[:12]) or 'nothing'}. Fetch it again.")
    if isinstance(data, Members):
        with data.open(found) as stream:
            yield stream
    else:
        yield io.BytesIO(data[found])
