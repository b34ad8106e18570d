"""Parsers of static graphs: Planetoid, OGB, and node and edge tables."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets import tables
from dtdg_lab.datasets.archives import ArchiveMembers, find_part, part, read_npz, read_pickle, unpacked
from dtdg_lab.datasets.formats import text as txt
from dtdg_lab.datasets.tables import MAX_ID, MAX_NODES, StaticTable
from dtdg_lab.graphs.snapshot import read_only

# A static graph as two csv files: ``nodes.csv`` (node,label,split,feature_indices) and ``edges.csv`` (src,dst).


_SPLITS = {
    "train": tables.SPLIT_TRAIN,
    "val": tables.SPLIT_VALIDATION,
    "validation": tables.SPLIT_VALIDATION,
    "test": tables.SPLIT_TEST,
    "none": tables.SPLIT_NONE,
    "": tables.SPLIT_NONE,
}
_NODES: dict[str, txt.ColumnKind] = {"node": txt.ID, "label": txt.LABEL, "split": txt.TEXT, "feature_indices": txt.TEXT}


def parse_nodes_edges(data: Mapping[str, bytes], source: str) -> StaticTable:
    """Return a graph of N nodes and E edges; each undirected link becomes two edges.

    Repeated links and self loops are dropped. The nodes are the rows of ``nodes.csv``, numbered 0 .. N - 1 in any
    order. A feature is 1 at the listed positions, separated by blanks, and 0 elsewhere.

    Args:
        data: the files by name; only the end of a name counts.
        source: the archive's name, for messages.

    Raises:
        DataError: a file or column is missing, a line has other values, or the files do not fit together.
    """
    called = f"{source} (nodes.csv)"
    rows, body = _read(part(data, "nodes.csv", source), called, _NODES)
    node = rows["node"]
    nodes = len(node)
    order = np.argsort(node, kind="stable")
    wrong = np.flatnonzero(node[order] != np.arange(nodes))
    if len(wrong):
        raise DataError(
            f"{called} has {nodes} rows and lists node {node[order][wrong[0]]} where {wrong[0]} is expected; each of "
            f"0 to {nodes - 1} once is needed. Fetch the file again."
        )
    edges, lines = _read(part(data, "edges.csv", source), f"{source} (edges.csv)", {"src": txt.ID, "dst": txt.ID})
    for end in ("src", "dst"):
        _refuse_outside(edges[end], nodes, lines, f"{source} (edges.csv)", f"has {end}", header=1)
    src, dst = txt.doubled(edges["src"], edges["dst"])
    return StaticTable(
        src,
        dst,
        nodes,
        features=read_only(_features(rows["feature_indices"], node, called)),
        classes=read_only(rows["label"][order].astype(np.int16)),
        vertex_split=read_only(_split(rows["split"], body, called)[order]),
    )


def _read(data: bytes, source: str, columns: Mapping[str, txt.ColumnKind]) -> tuple[dict[str, Any], bytes]:
    """Return the requested columns, and the text of the rows under the header."""
    return txt.named_rows(data, source, {name: (kind, (name,)) for name, kind in columns.items()})


def _refuse_outside(
    ids: NDArray[np.int64], nodes: int, text: bytes, source: str, description: str, *, header: int = 0
) -> None:
    """Refuse a text whose rows name nodes that do not exist."""
    allowed = f"0 to {nodes - 1} are the nodes. Fetch the file again."
    txt.refuse_rows(ids >= nodes, text, source, lambda row: f"{description} {ids[row]}; {allowed}", header=header)


def _split(split_names: Any, body: bytes, source: str) -> NDArray[np.int8]:
    """Return the split of every row, in the order of the rows."""
    allowed = f"{', '.join(filter(None, _SPLITS))} or nothing is allowed. Fetch the file again."
    codes = txt.codes_of_words(split_names, _SPLITS, lambda word: f"has the split {word}; {allowed}", body, source)
    return codes.astype(np.int8)


def _features(feature_texts: Any, node: NDArray[np.int64], source: str) -> NDArray[np.float32]:
    """Return a matrix with ones at the positions listed in each row's text, (N, F); F is the largest position + 1."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lists = pc.split_pattern(feature_texts.combine_chunks(), " ").cast(pa.list_(pa.string()))
    lengths = pc.list_value_length(lists).to_numpy()
    rows, listed = np.repeat(node, lengths), lists.flatten()
    filled = pc.not_equal(listed, "")
    rows, listed = rows[filled.to_numpy(zero_copy_only=False)], listed.filter(filled)
    try:
        columns = pc.cast(listed, pa.int64()).to_numpy()
    except pa.ArrowInvalid as error:
        raise DataError(f"{source}: feature_indices: {error}; whole numbers between blanks are needed.") from error
    if len(columns) and columns.min() < 0:
        vertex = rows[np.flatnonzero(columns < 0)[0]]
        raise DataError(
            f"{source}: node {vertex} lists position {columns.min()} of its features; at least 0 is allowed."
        )
    count = int(columns.max()) + 1 if len(columns) else 0
    txt.allow_cells(count, len(columns), "features of one node", source)
    return txt.dense(rows, columns, 1.0, (len(node), count), source)


# Node classification graphs of the Open Graph Benchmark in their raw form: csv.gz, or npz for papers100M.


_OGB_SPLITS = {"train": tables.SPLIT_TRAIN, "valid": tables.SPLIT_VALIDATION, "test": tables.SPLIT_TEST}
_MOST_CLASSES = np.iinfo(np.int16).max


def parse_ogb(
    data: Mapping[str, bytes], source: str, *, both_directions: bool = False, features: bool = True
) -> StaticTable:
    """Return a graph of N nodes and E directed edges, with classes and the published split.

    Args:
        data: the files by name, with or without ``.gz``; only the end of a name counts: ``edge.csv.gz``,
            ``num-node-list.csv.gz``, ``node-label.csv.gz``, ``node-feat.csv.gz`` (may be missing) and the split
            ``train.csv.gz``, ``valid.csv.gz``, ``test.csv.gz`` (all or none); or ``data.npz`` and ``node-label.npz``
            in place of the first four.
        source: the archive's name, for messages.
        both_directions: add the reverse of every edge, and drop repeats and self loops: ogbn-products stores each
            undirected edge once.
        features: read the features; those of papers100M take 57 GB.

    Raises:
        DataError: a file is missing or damaged, a line has other values, or the files do not fit together.

    Source: Hu et al. 2020 (NeurIPS, OGB); the raw form as the ogb package reads it.
    """
    read = _read_npz if find_part(data, source, "data.npz", needed=False) else _read_csv
    src, dst, nodes, classes, feature_rows = read(data, source, features=features)
    if len(classes) != nodes:
        raise DataError(f"{source}: {len(classes):,} labels for {nodes:,} nodes; one each is needed. Fetch it again.")
    if feature_rows is not None and len(feature_rows) != nodes:
        raise DataError(
            f"{source}: features of {len(feature_rows):,} nodes, and there are {nodes:,}; one row each is needed. "
            "Fetch the file again."
        )
    if both_directions:
        src, dst = txt.doubled(src, dst)
    return StaticTable(
        src, dst, nodes, features=feature_rows, classes=read_only(classes), vertex_split=_split_ogb(data, nodes, source)
    )


_Graph = tuple[NDArray[np.int64], NDArray[np.int64], int, NDArray[np.int16], NDArray[np.float32] | None]


def _read_csv(data: Mapping[str, bytes], source: str, *, features: bool) -> _Graph:
    counts = _csv(data, "num-node-list", source, {"vertices": txt.WHOLE})[0]["vertices"]
    nodes = _one_graph(counts, source)
    edges, text = _csv(data, "edge", source, {"source": txt.ID, "target": txt.ID})
    src, dst, allowed = edges["source"], edges["target"], f"0 to {nodes - 1} are the nodes. Fetch the file again."
    outside = np.maximum(src, dst) >= nodes
    txt.refuse_rows(outside, text, f"{source} (edge.csv)", lambda row: f"joins {src[row]} and {dst[row]}; {allowed}")
    classes = _csv(data, "node-label", source, {"class": txt.LABEL})[0]["class"].astype(np.int16)
    feature_rows = None
    if features and find_part(data, source, "node-feat.csv.gz", "node-feat.csv", needed=False):
        text, called = _text(data, "node-feat", source)
        names = [f"feature {number}" for number in range(max(txt.width(text, called), 1))]
        rows = txt.read_rows(text, called, dict.fromkeys(names, txt.FEATURE))
        feature_rows = txt.side_by_side(rows, names, len(rows[names[0]]))
    return src, dst, nodes, classes, feature_rows


def _read_npz(data: Mapping[str, bytes], source: str, *, features: bool) -> _Graph:
    called = f"{source} (data.npz)"
    array_names = {"edge_index": True, "num_nodes_list": True} | ({"node_feat": False} if features else {})
    with _stream(data, "data.npz", source) as stream:
        arrays = read_npz(stream, array_names, called)
    with _stream(data, "node-label.npz", source) as stream:
        labels = read_npz(stream, {"node_label": True}, f"{source} (node-label.npz)")["node_label"].reshape(-1)
    edges, feature_rows = arrays["edge_index"], arrays.get("node_feat")
    nodes = _one_graph(arrays["num_nodes_list"].reshape(-1), source)
    if edges.dtype.kind not in "iu" or edges.ndim != 2 or len(edges) != 2 or not edges.size:
        raise DataError(f"{called}: edge_index has type {edges.dtype} and shape {edges.shape}; (2, E) is needed.")
    if edges.min() < 0 or edges.max() >= nodes:
        raise DataError(f"{called}: edges of {edges.min()} to {edges.max()}; 0 to {nodes - 1} are the nodes.")
    if feature_rows is not None and (
        feature_rows.dtype.kind != "f" or feature_rows.ndim != 2 or not _finite(feature_rows)
    ):
        raise DataError(
            f"{called}: node_feat of type {feature_rows.dtype}, shape {feature_rows.shape}; finite (N, F) is needed."
        )
    with np.errstate(over="ignore"):
        feature_rows = None if feature_rows is None else read_only(feature_rows.astype(np.float32, copy=False))
    if feature_rows is not None and not _finite(feature_rows):
        raise DataError(f"{called}: node_feat has numbers that float32 cannot hold. Fetch the file again.")
    src, dst = (read_only(np.ascontiguousarray(edge, dtype=np.int64)) for edge in edges)
    return src, dst, nodes, _labels(labels, f"{source} (node-label.npz)"), feature_rows


def _finite(array: NDArray[Any]) -> bool:
    return all(np.isfinite(array[first : first + 65_536]).all() for first in range(0, len(array), 65_536))


def _labels(labels: NDArray[Any], source: str) -> NDArray[np.int16]:
    """Convert numbers of any type to classes; NaN means no class."""
    is_known = ~np.isnan(labels) if labels.dtype.kind == "f" else np.ones(len(labels), dtype=bool)
    values = labels[is_known]
    if len(values) and not (
        values.min() >= -1 and values.max() <= _MOST_CLASSES and (values == np.floor(values)).all()
    ):
        raise DataError(
            f"{source}: labels from {values.min()} to {values.max()}; -1, 0, ... {_MOST_CLASSES} are allowed."
        )
    classes = np.full(len(labels), -1, dtype=np.int16)
    classes[is_known] = values.astype(np.int16)
    return classes


def _one_graph(counts: NDArray[Any], source: str) -> int:
    if len(counts) != 1 or not 1 <= counts[0] <= MAX_NODES:
        raise DataError(
            f"{source}: the numbers of nodes are {counts[:5].tolist()}; one graph of 1 to {MAX_NODES:,} is allowed."
        )
    return int(counts[0])


def _split_ogb(data: Mapping[str, bytes], nodes: int, source: str) -> NDArray[np.int8] | None:
    """Return the published split of every node, shape (N,); None where there is no split."""
    split_names = [
        name for name in _OGB_SPLITS if find_part(data, source, f"{name}.csv", f"{name}.csv.gz", needed=False)
    ]
    if not split_names:
        return None
    split = np.full(nodes, tables.SPLIT_NONE, dtype=np.int8)
    for name, code in _OGB_SPLITS.items():
        rows, text = _csv(data, name, source, {"vertex": txt.ID})
        vertices = rows["vertex"]
        _refuse_outside(vertices, nodes, text, f"{source} ({name}.csv)", "is node")
        if (split[vertices] != tables.SPLIT_NONE).any():
            raise DataError(
                f"{source} ({name}.csv) has nodes of another split too; each may be in one. Fetch it again."
            )
        split[vertices] = code
    return read_only(split)


def _csv(
    data: Mapping[str, bytes], name: str, source: str, columns: Mapping[str, txt.ColumnKind]
) -> tuple[dict[str, Any], bytes]:
    text, called = _text(data, name, source)
    return txt.read_rows(text, called, columns), text


def _text(data: Mapping[str, bytes], name: str, source: str) -> tuple[bytes, str]:
    called = f"{source} ({name}.csv)"
    name_found = find_part(data, source, f"{name}.csv.gz", f"{name}.csv")
    return txt.plain(unpacked(data[name_found], called), called), called


@contextmanager
def _stream(data: Mapping[str, bytes], name: str, source: str) -> Iterator[IO[bytes]]:
    """Open a file that can seek, without holding all of it where the archive allows."""
    member = find_part(data, source, name)
    if isinstance(data, ArchiveMembers):
        with data.open(member) as stream:
            yield stream
    else:
        yield io.BytesIO(data[member])


# Planetoid's citation networks: ``ind.NAME.{x,y,tx,ty,allx,ally,graph}`` as pickles, and ``ind.NAME.test.index``.


_MAX_CLASSES = 2**15 - 1
_VALIDATION = 500  # nodes after the training ones, as in Yang, Cohen, Salakhutdinov 2016


def parse_planetoid(data: Mapping[str, bytes], source: str) -> StaticTable:
    """Return a citation network of N papers and E edges; each undirected link becomes two edges.

    Test papers that the files do not describe (Citeseer has 15) are nodes without features, label and split. Repeated
    links and self loops are dropped.

    Args:
        data: the files by name; only the end of a name counts.
        source: the archive's name, for messages.

    Raises:
        DataError: a file is missing or damaged, names a forbidden object in a pickle, or does not fit the others.

    Source: Yang, Cohen, Salakhutdinov 2016 (ICML); the order of the test rows as in the authors' code.
    """
    names = ("x", "y", "tx", "ty", "allx", "ally", "graph")
    read = {name: read_pickle(part(data, f"*.{name}", source), f"{source} ({name})") for name in names}
    test = _test_index(data, source)
    if not isinstance(read["graph"], dict):
        raise DataError(f"{source}: the graph is a {type(read['graph']).__name__}; a dict of lists is needed.")
    src, dst = _links(read["graph"], part(data, "*.graph", source), source)
    matrices = {
        name: _rows_and_labels(read[name], read[labels], name, source)
        for name, labels in (("allx", "ally"), ("tx", "ty"), ("x", "y"))
    }
    train_rows, test_rows = matrices["allx"], matrices["tx"]
    labelled_count, train_count = len(train_rows[1]), len(matrices["x"][1])
    if (
        len(test_rows[1]) != len(test)
        or len(np.unique(test)) < len(test)
        or test.min() < labelled_count
        or train_count > labelled_count
    ):
        raise DataError(
            f"{source}: tx has {len(test_rows[1])} rows, test.index {len(test)} entries from {test.min()} on, allx "
            f"{labelled_count} rows and x {train_count}; each test paper once, after those of allx, is needed. "
            "Fetch the file again."
        )
    nodes = max(labelled_count, int(test.max()) + 1)
    txt.allow_cells(nodes, labelled_count + len(test), "papers", source)
    if len(src) and max(src.max(), dst.max()) >= nodes:
        raise DataError(f"{source}: the graph names paper {max(src.max(), dst.max())}; 0 to {nodes - 1} are described.")
    return StaticTable(
        src,
        dst,
        nodes,
        features=read_only(_features_planetoid(train_rows[0], test_rows[0], test, nodes, source)),
        classes=read_only(_placed(train_rows[1], test_rows[1], test, nodes)),
        vertex_split=read_only(_split_planetoid(train_count, labelled_count, test, nodes)),
    )


def _test_index(data: Mapping[str, bytes], source: str) -> NDArray[np.int64]:
    called = f"{source} (test.index)"
    text = txt.plain(part(data, "*.test.index", source), called, blanks=True)
    return np.asarray(txt.read_rows(text, called, {"paper": txt.ID})["paper"])


def _links(graph: dict[Any, Any], text: bytes, source: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return both ends of every link of a dict of lists of neighbours."""
    if not all(isinstance(neighbours, list) for neighbours in graph.values()):
        raise DataError(f"{source}: the graph holds something else than lists of neighbours. Fetch the file again.")
    lengths = [len(neighbours) for neighbours in graph.values()]
    if sum(lengths) > len(text):  # lists may be shared in a pickle: a few bytes could stand for any number of links
        raise DataError(f"{source}: the graph has {sum(lengths):,} neighbours in {len(text):,} bytes. Do not trust it.")
    papers = _numbers(list(graph), source)
    neighbours = _numbers(list(itertools.chain.from_iterable(graph.values())), source)
    return txt.doubled(np.repeat(papers, lengths), neighbours)


def _numbers(values: list[Any], source: str) -> NDArray[np.int64]:
    wrong = [value for value in values if type(value) is not int or not 0 <= value <= MAX_ID][:1]
    if wrong:
        value = wrong[0] if isinstance(wrong[0], int) else type(wrong[0]).__name__  # a list could hold itself
        raise DataError(f"{source}: the graph names a paper {value}; whole numbers from 0 to {MAX_ID:,} are allowed.")
    return np.array(values, dtype=np.int64)


def _rows_and_labels(rows: Any, labels: Any, name: str, source: str) -> tuple[Any, NDArray[np.int16]]:
    """Return sparse features, and the class of each row of one-hot labels; -1 for a row of zeros."""
    if not hasattr(rows, "tocoo") or not isinstance(labels, np.ndarray) or labels.ndim != 2:
        raise DataError(f"{source} ({name}): a sparse matrix, and an array of one-hot labels, are needed.")
    ones = labels == 1
    if len(labels) != rows.shape[0] or (ones.sum(axis=1) > 1).any() or (labels != ones).any():
        raise DataError(
            f"{source} ({name}): {rows.shape[0]} rows of features and labels of shape {labels.shape}; a label of "
            "zeros with at most one 1 for each row is needed. Fetch the file again."
        )
    if not 1 <= labels.shape[1] <= _MAX_CLASSES:
        raise DataError(f"{source} ({name}): labels of {labels.shape[1]} classes; 1 to {_MAX_CLASSES} are allowed.")
    return rows, np.where(ones.any(axis=1), ones.argmax(axis=1), -1).astype(np.int16)


def _features_planetoid(
    train_rows: Any, test_rows: Any, test: NDArray[np.int64], nodes: int, source: str
) -> NDArray[np.float32]:
    """Return the rows of two sparse matrices as one dense matrix, (N, F): described papers, then those at ``test``."""
    if train_rows.shape[1] != test_rows.shape[1]:
        raise DataError(
            f"{source}: allx has {train_rows.shape[1]} features and tx {test_rows.shape[1]}; as many are needed. "
            "Fetch the file again."
        )
    first, second = train_rows.tocoo(), test_rows.tocoo()
    return txt.dense(
        np.concatenate([first.row, test[second.row]]),
        np.concatenate([first.col, second.col]),
        np.concatenate([first.data, second.data]),
        (nodes, train_rows.shape[1]),
        source,
    )


def _placed(
    train_classes: NDArray[np.int16], test_classes: NDArray[np.int16], test: NDArray[np.int64], nodes: int
) -> NDArray[np.int16]:
    classes = np.full(nodes, -1, dtype=np.int16)
    classes[: len(train_classes)] = train_classes
    classes[test] = test_classes
    return classes


def _split_planetoid(train_count: int, labelled_count: int, test: NDArray[np.int64], nodes: int) -> NDArray[np.int8]:
    split = np.full(nodes, tables.SPLIT_NONE, dtype=np.int8)
    split[train_count : min(train_count + _VALIDATION, labelled_count)] = tables.SPLIT_VALIDATION
    split[:train_count] = tables.SPLIT_TRAIN
    split[test] = tables.SPLIT_TEST
    return split
