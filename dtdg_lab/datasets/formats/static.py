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
from dtdg_lab.graphs.snapshot import give_up

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


def parse_nodes_edges(data: Mapping[str, bytes], where: str) -> StaticTable:
    """A graph of N nodes and E edges: each undirected link stands in both directions.

    Repeated links and links of a node to itself are left out. The nodes are the rows of ``nodes.csv``, numbered
    0 .. N - 1 in any order; a feature is 1 at the positions listed, which blanks separate, and 0 elsewhere.

    Args:
        data: the files by name; only the end of a name counts.
        where: the archive's name, for messages.

    Raises:
        DataError: a file or column is missing, a line has other values, or the files do not fit together.
    """
    called = f"{where} (nodes.csv)"
    rows, body = _read(part(data, "nodes.csv", where), called, _NODES)
    node = rows["node"]
    nodes = len(node)
    order = np.argsort(node, kind="stable")
    wrong = np.flatnonzero(node[order] != np.arange(nodes))
    if len(wrong):
        raise DataError(
            f"{called} has {nodes} rows and lists node {node[order][wrong[0]]} where {wrong[0]} is expected; each of "
            f"0 to {nodes - 1} once is needed. Fetch the file again."
        )
    edges, lines = _read(part(data, "edges.csv", where), f"{where} (edges.csv)", {"src": txt.ID, "dst": txt.ID})
    for end in ("src", "dst"):
        _refuse_outside(edges[end], nodes, lines, f"{where} (edges.csv)", f"has {end}", header=1)
    src, dst = txt.doubled(edges["src"], edges["dst"])
    return StaticTable(
        src,
        dst,
        nodes,
        features=give_up(_features(rows["feature_indices"], node, called)),
        classes=give_up(rows["label"][order].astype(np.int16)),
        vertex_split=give_up(_split(rows["split"], body, called)[order]),
    )


def _read(data: bytes, where: str, wanted: Mapping[str, txt.ColumnKind]) -> tuple[dict[str, Any], bytes]:
    """The wanted columns, wherever they are, and the text of the rows under the header."""
    return txt.named_rows(data, where, {name: (kind, (name,)) for name, kind in wanted.items()})


def _refuse_outside(
    given: NDArray[np.int64], nodes: int, text: bytes, where: str, said: str, *, header: int = 0
) -> None:
    """Refuse a text whose rows name nodes that there are not."""
    allowed = f"0 to {nodes - 1} are the nodes. Fetch the file again."
    txt.refuse_rows(given >= nodes, text, where, lambda row: f"{said} {given[row]}; {allowed}", header=header)


def _split(words: Any, body: bytes, where: str) -> NDArray[np.int8]:
    """The split of every row, in the order of the rows."""
    allowed = f"{', '.join(filter(None, _SPLITS))} or nothing is allowed. Fetch the file again."
    codes = txt.codes_of_words(words, _SPLITS, lambda word: f"has the split {word}; {allowed}", body, where)
    return codes.astype(np.int8)


def _features(words: Any, node: NDArray[np.int64], where: str) -> NDArray[np.float32]:
    """Ones at the positions listed in the text of every row, shape (N, F) with F the largest position + 1."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lists = pc.split_pattern(words.combine_chunks(), " ").cast(pa.list_(pa.string()))
    lengths = pc.list_value_length(lists).to_numpy()
    rows, listed = np.repeat(node, lengths), lists.flatten()
    filled = pc.not_equal(listed, "")
    rows, listed = rows[filled.to_numpy(zero_copy_only=False)], listed.filter(filled)
    try:
        columns = pc.cast(listed, pa.int64()).to_numpy()
    except pa.ArrowInvalid as error:
        raise DataError(f"{where}: feature_indices: {error}; whole numbers between blanks are needed.") from error
    if len(columns) and columns.min() < 0:
        vertex = rows[np.flatnonzero(columns < 0)[0]]
        raise DataError(
            f"{where}: node {vertex} lists position {columns.min()} of its features; at least 0 is allowed."
        )
    count = int(columns.max()) + 1 if len(columns) else 0
    txt.allow_cells(count, len(columns), "features of one node", where)
    return txt.dense(rows, columns, 1.0, (len(node), count), where)


# Node classification graphs of the Open Graph Benchmark in their raw form: csv.gz, or npz for papers100M.


_OGB_SPLITS = {"train": tables.SPLIT_TRAIN, "valid": tables.SPLIT_VALIDATION, "test": tables.SPLIT_TEST}
_MOST_CLASSES = np.iinfo(np.int16).max


def parse_ogb(
    data: Mapping[str, bytes], where: str, *, both_directions: bool = False, features: bool = True
) -> StaticTable:
    """A graph of N nodes and E directed edges, with classes and the published split.

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
    read = _read_npz if find_part(data, where, "data.npz", needed=False) else _read_csv
    src, dst, nodes, classes, given = read(data, where, features=features)
    if len(classes) != nodes:
        raise DataError(f"{where}: {len(classes):,} labels for {nodes:,} nodes; one each is needed. Fetch it again.")
    if given is not None and len(given) != nodes:
        raise DataError(
            f"{where}: features of {len(given):,} nodes, and there are {nodes:,}; one row each is needed. Fetch the "
            "file again."
        )
    if both_directions:
        src, dst = txt.doubled(src, dst)
    return StaticTable(
        src, dst, nodes, features=given, classes=give_up(classes), vertex_split=_split_ogb(data, nodes, where)
    )


_Graph = tuple[NDArray[np.int64], NDArray[np.int64], int, NDArray[np.int16], NDArray[np.float32] | None]


def _read_csv(data: Mapping[str, bytes], where: str, *, features: bool) -> _Graph:
    counts = _csv(data, "num-node-list", where, {"vertices": txt.WHOLE})[0]["vertices"]
    nodes = _one_graph(counts, where)
    edges, text = _csv(data, "edge", where, {"source": txt.ID, "target": txt.ID})
    src, dst, allowed = edges["source"], edges["target"], f"0 to {nodes - 1} are the nodes. Fetch the file again."
    outside = np.maximum(src, dst) >= nodes
    txt.refuse_rows(outside, text, f"{where} (edge.csv)", lambda row: f"joins {src[row]} and {dst[row]}; {allowed}")
    classes = _csv(data, "node-label", where, {"class": txt.LABEL})[0]["class"].astype(np.int16)
    given = None
    if features and find_part(data, where, "node-feat.csv.gz", "node-feat.csv", needed=False):
        text, called = _text(data, "node-feat", where)
        names = [f"feature {place}" for place in range(max(txt.width(text, called), 1))]
        rows = txt.read_rows(text, called, dict.fromkeys(names, txt.FEATURE))
        given = txt.side_by_side(rows, names, len(rows[names[0]]))
    return src, dst, nodes, classes, given


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
        raise DataError(f"{called}: edges of {edges.min()} to {edges.max()}; 0 to {nodes - 1} are the nodes.")
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
    """Classes from numbers of any type; NaN means no class."""
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
            f"{where}: the numbers of nodes are {counts[:5].tolist()}; one graph of 1 to {MAX_NODES:,} is allowed."
        )
    return int(counts[0])


def _split_ogb(data: Mapping[str, bytes], nodes: int, where: str) -> NDArray[np.int8] | None:
    """The published split of every node, shape (N,); None where there is no split."""
    held = [name for name in _OGB_SPLITS if find_part(data, where, f"{name}.csv", f"{name}.csv.gz", needed=False)]
    if not held:
        return None
    split = np.full(nodes, tables.SPLIT_NONE, dtype=np.int8)
    for name, code in _OGB_SPLITS.items():
        rows, text = _csv(data, name, where, {"vertex": txt.ID})
        vertices = rows["vertex"]
        _refuse_outside(vertices, nodes, text, f"{where} ({name}.csv)", "is node")
        if (split[vertices] != tables.SPLIT_NONE).any():
            raise DataError(f"{where} ({name}.csv) has nodes of another split too; each may be in one. Fetch it again.")
        split[vertices] = code
    return give_up(split)


def _csv(
    data: Mapping[str, bytes], name: str, where: str, columns: Mapping[str, txt.ColumnKind]
) -> tuple[dict[str, Any], bytes]:
    text, called = _text(data, name, where)
    return txt.read_rows(text, called, columns), text


def _text(data: Mapping[str, bytes], name: str, where: str) -> tuple[bytes, str]:
    called = f"{where} ({name}.csv)"
    found = find_part(data, where, f"{name}.csv.gz", f"{name}.csv")
    return txt.plain(unpacked(data[found], called), called), called


@contextmanager
def _stream(data: Mapping[str, bytes], name: str, where: str) -> Iterator[IO[bytes]]:
    """A file one can read anywhere in, without holding all of it where the archive allows that."""
    found = find_part(data, where, name)
    if isinstance(data, ArchiveMembers):
        with data.open(found) as stream:
            yield stream
    else:
        yield io.BytesIO(data[found])


# Planetoid's citation networks: ``ind.NAME.{x,y,tx,ty,allx,ally,graph}`` as pickles, and ``ind.NAME.test.index``.


_MAX_CLASSES = 2**15 - 1
_VALIDATION = 500  # nodes after the training ones, as in Yang, Cohen, Salakhutdinov 2016


def parse_planetoid(data: Mapping[str, bytes], where: str) -> StaticTable:
    """A citation network of N papers and E edges: each undirected link stands in both directions.

    Test papers that the files do not describe (Citeseer has 15) are nodes without features, label and split, and
    repeated links and links of a paper to itself are left out.

    Args:
        data: the files by name; only the end of a name counts.
        where: the archive's name, for messages.

    Raises:
        DataError: a file is missing or damaged, names what a pickle may not name, or does not fit the others.

    Source: Yang, Cohen, Salakhutdinov 2016 (ICML); the order of the test rows as in the authors' code.
    """
    names = ("x", "y", "tx", "ty", "allx", "ally", "graph")
    read = {name: read_pickle(part(data, f"*.{name}", where), f"{where} ({name})") for name in names}
    test = _test_index(data, where)
    if not isinstance(read["graph"], dict):
        raise DataError(f"{where}: the graph is a {type(read['graph']).__name__}; a dict of lists is needed.")
    src, dst = _links(read["graph"], part(data, "*.graph", where), where)
    matrices = {
        name: _rows_and_labels(read[name], read[labels], name, where)
        for name, labels in (("allx", "ally"), ("tx", "ty"), ("x", "y"))
    }
    described, tested = matrices["allx"], matrices["tx"]
    known, trained = len(described[1]), len(matrices["x"][1])
    if len(tested[1]) != len(test) or len(np.unique(test)) < len(test) or test.min() < known or trained > known:
        raise DataError(
            f"{where}: tx has {len(tested[1])} rows, test.index {len(test)} entries from {test.min()} on, allx {known} "
            f"rows and x {trained}; each test paper once, after those of allx, is needed. Fetch the file again."
        )
    nodes = max(known, int(test.max()) + 1)
    txt.allow_cells(nodes, known + len(test), "papers", where)
    if len(src) and max(src.max(), dst.max()) >= nodes:
        raise DataError(f"{where}: the graph names paper {max(src.max(), dst.max())}; 0 to {nodes - 1} are described.")
    return StaticTable(
        src,
        dst,
        nodes,
        features=give_up(_features_planetoid(described[0], tested[0], test, nodes, where)),
        classes=give_up(_placed(described[1], tested[1], test, nodes)),
        vertex_split=give_up(_split_planetoid(trained, known, test, nodes)),
    )


def _test_index(data: Mapping[str, bytes], where: str) -> NDArray[np.int64]:
    called = f"{where} (test.index)"
    text = txt.plain(part(data, "*.test.index", where), called, blanks=True)
    return np.asarray(txt.read_rows(text, called, {"paper": txt.ID})["paper"])


def _links(graph: dict[Any, Any], held: bytes, where: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Both ends of every link, from a dict of lists of neighbours."""
    if not all(isinstance(neighbours, list) for neighbours in graph.values()):
        raise DataError(f"{where}: the graph holds something else than lists of neighbours. Fetch the file again.")
    lengths = [len(neighbours) for neighbours in graph.values()]
    if sum(lengths) > len(held):  # lists may be shared in a pickle: a few bytes could stand for any number of links
        raise DataError(f"{where}: the graph has {sum(lengths):,} neighbours in {len(held):,} bytes. Do not trust it.")
    papers = _numbers(list(graph), where)
    neighbours = _numbers(list(itertools.chain.from_iterable(graph.values())), where)
    return txt.doubled(np.repeat(papers, lengths), neighbours)


def _numbers(values: list[Any], where: str) -> NDArray[np.int64]:
    wrong = [value for value in values if type(value) is not int or not 0 <= value <= MAX_ID][:1]
    if wrong:
        found = wrong[0] if isinstance(wrong[0], int) else type(wrong[0]).__name__  # a list could hold itself
        raise DataError(f"{where}: the graph names a paper {found}; whole numbers from 0 to {MAX_ID:,} are allowed.")
    return np.array(values, dtype=np.int64)


def _rows_and_labels(rows: Any, labels: Any, name: str, where: str) -> tuple[Any, NDArray[np.int16]]:
    """Sparse features, and the position of the one in each row of labels; -1 where there is none."""
    if not hasattr(rows, "tocoo") or not isinstance(labels, np.ndarray) or labels.ndim != 2:
        raise DataError(f"{where} ({name}): a sparse matrix, and an array of one-hot labels, are needed.")
    ones = labels == 1
    if len(labels) != rows.shape[0] or (ones.sum(axis=1) > 1).any() or (labels != ones).any():
        raise DataError(
            f"{where} ({name}): {rows.shape[0]} rows of features and labels of shape {labels.shape}; a label of "
            "zeros with at most one 1 for each row is needed. Fetch the file again."
        )
    if not 1 <= labels.shape[1] <= _MAX_CLASSES:
        raise DataError(f"{where} ({name}): labels of {labels.shape[1]} classes; 1 to {_MAX_CLASSES} are allowed.")
    return rows, np.where(ones.any(axis=1), ones.argmax(axis=1), -1).astype(np.int16)


def _features_planetoid(
    described: Any, tested: Any, test: NDArray[np.int64], nodes: int, where: str
) -> NDArray[np.float32]:
    """The rows of two sparse matrices as one dense one, (N, F): those described, then those at ``test``."""
    if described.shape[1] != tested.shape[1]:
        raise DataError(
            f"{where}: allx has {described.shape[1]} features and tx {tested.shape[1]}; as many are needed. "
            "Fetch the file again."
        )
    first, second = described.tocoo(), tested.tocoo()
    return txt.dense(
        np.concatenate([first.row, test[second.row]]),
        np.concatenate([first.col, second.col]),
        np.concatenate([first.data, second.data]),
        (nodes, described.shape[1]),
        where,
    )


def _placed(
    known: NDArray[np.int16], tested: NDArray[np.int16], test: NDArray[np.int64], nodes: int
) -> NDArray[np.int16]:
    classes = np.full(nodes, -1, dtype=np.int16)
    classes[: len(known)] = known
    classes[test] = tested
    return classes


def _split_planetoid(trained: int, known: int, test: NDArray[np.int64], nodes: int) -> NDArray[np.int8]:
    split = np.full(nodes, tables.SPLIT_NONE, dtype=np.int8)
    split[trained : min(trained + _VALIDATION, known)] = tables.SPLIT_VALIDATION
    split[:trained] = tables.SPLIT_TRAIN
    split[test] = tables.SPLIT_TEST
    return split
