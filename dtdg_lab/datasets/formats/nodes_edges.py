"""A static graph as two csv files: ``nodes.csv`` (node,label,split,feature_indices) and ``edges.csv`` (src,dst)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.formats.dense import allow_cells, dense
from dtdg_lab.datasets.formats.header import columns_of, split_header
from dtdg_lab.datasets.formats.part import part
from dtdg_lab.datasets.formats.rows import ID, LABEL, TEXT, Kind, read_rows
from dtdg_lab.datasets.formats.text import line_of_row, plain, shown
from dtdg_lab.datasets.formats.undirected import both_directions
from dtdg_lab.datasets.tables import SPLIT_NONE, SPLIT_TEST, SPLIT_TRAIN, SPLIT_VALIDATION, StaticTable
from dtdg_lab.graphs.arrays import give_up

_SPLITS = {
    "train": SPLIT_TRAIN, "val": SPLIT_VALIDATION, "validation": SPLIT_VALIDATION, "test": SPLIT_TEST,
    "none": SPLIT_NONE, "": SPLIT_NONE,
}  # fmt: skip
_NODES: dict[str, Kind] = {"node": ID, "label": LABEL, "split": TEXT, "feature_indices": TEXT}


def parse(data: Mapping[str, bytes], where: str) -> StaticTable:
    """A graph of N vertices and E edges: each undirected link stands in both directions.

    Repeated links and links of a vertex to itself are left out. The vertices are the rows of ``nodes.csv``, numbered
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
            f"{called} has {nodes} rows and lists vertex {node[order][wrong[0]]} where {wrong[0]} is expected; each of "
            f"0 to {nodes - 1} once is needed. Fetch the file again."
        )
    edges, lines = _read(part(data, "edges.csv", where), f"{where} (edges.csv)", {"src": ID, "dst": ID})
    for end in ("src", "dst"):
        outside = np.flatnonzero(edges[end] >= nodes)
        if len(outside):
            raise DataError(
                f"line {line_of_row(lines, int(outside[0])) + 1} of {where} (edges.csv) has {end} "
                f"{edges[end][outside[0]]}; 0 to {nodes - 1} are in nodes.csv. Fetch the file again."
            )
    src, dst = both_directions(edges["src"], edges["dst"])
    return StaticTable(
        src, dst, nodes,
        features=give_up(_features(rows["feature_indices"], node, called)),
        classes=give_up(rows["label"][order].astype(np.int16)),
        vertex_split=give_up(_split(rows["split"], body, called)[order]),
    )  # fmt: skip


def _read(data: bytes, where: str, wanted: Mapping[str, Kind]) -> tuple[dict[str, Any], bytes]:
    """The wanted columns, wherever they are, and the text of the rows under the header."""
    names, body = split_header(plain(data, where), where)
    columns = columns_of(names, {name: (kind, (name,)) for name, kind in wanted.items()}, where)
    return read_rows(body, where, columns, first_line=2), body


def _split(words: Any, body: bytes, where: str) -> NDArray[np.int8]:
    """The part every row belongs to, in the order of the rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = list(_SPLITS)
    numbers = pc.index_in(words, value_set=pa.array(known))
    if numbers.null_count:
        row = int(pc.index(pc.is_null(numbers), pa.scalar(value=True)).as_py())
        raise DataError(
            f"line {line_of_row(body, row) + 1} of {where} has the split {shown(words[row].as_py())}; "
            f"{', '.join(filter(None, known))} or nothing is allowed. Fetch the file again."
        )
    return np.array(list(_SPLITS.values()), dtype=np.int8)[numbers.to_numpy()]


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
            f"{where}: vertex {vertex} lists position {columns.min()} of its features; at least 0 is allowed."
        )
    count = int(columns.max()) + 1 if len(columns) else 0
    allow_cells(count, len(columns), "features of one vertex", where)
    return dense(rows, columns, 1.0, (len(node), count), where)
