"""Planetoid's citation networks: ``ind.NAME.{x,y,tx,ty,allx,ally,graph}`` as pickles, and ``ind.NAME.test.index``."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.formats.dense import allow_cells, dense
from dtdg_lab.datasets.formats.part import part
from dtdg_lab.datasets.formats.rows import ID, read_rows
from dtdg_lab.datasets.formats.text import plain
from dtdg_lab.datasets.formats.undirected import both_directions
from dtdg_lab.datasets.pickles import SparseRows, read_pickle
from dtdg_lab.datasets.tables import MAX_ID, SPLIT_NONE, SPLIT_TEST, SPLIT_TRAIN, SPLIT_VALIDATION, StaticTable
from dtdg_lab.graphs.arrays import give_up

_MAX_CLASSES = 2**15 - 1
_VALIDATION = 500  # vertices after the training ones, as in Yang, Cohen, Salakhutdinov 2016


def parse(data: Mapping[str, bytes], where: str) -> StaticTable:
    """A citation network of N papers and E edges: each undirected link stands in both directions.

    Test papers that the files do not describe (Citeseer has 15) are vertices without features, label and split, and
    repeated links and links of a paper to itself are left out.

    Args:
        data: the files by name; only the end of a name counts.
        where: the archive's name, for messages.

    Raises:
        DataError: a file is missing or damaged, names what a pickle may not name, or does not fit the others.

    Source: Yang, Cohen, Salakhutdinov 2016 (ICML); the order of the test rows as in the authors' code.
    """
    read = {name: _pickled(data, name, where) for name in ("x", "y", "tx", "ty", "allx", "ally", "graph")}
    test = _test_index(data, where)
    if not isinstance(read["graph"], dict):
        raise DataError(f"{where}: the graph is a {type(read['graph']).__name__}; a dict of lists is needed.")
    src, dst = _links(read["graph"], part(data, "*.graph", where), where)
    matrices = {name: _rows_and_labels(read[name], read[labels], name, where)
                for name, labels in (("allx", "ally"), ("tx", "ty"), ("x", "y"))}  # fmt: skip
    described, tested = matrices["allx"], matrices["tx"]
    known, trained = len(described[1]), len(matrices["x"][1])
    if len(tested[1]) != len(test) or len(np.unique(test)) < len(test) or test.min() < known or trained > known:
        raise DataError(
            f"{where}: tx has {len(tested[1])} rows, test.index {len(test)} entries from {test.min()} on, allx {known} "
            f"rows and x {trained}; each test paper once, after those of allx, is needed. Fetch the file again."
        )
    nodes = max(known, int(test.max()) + 1)
    allow_cells(nodes, known + len(test), "papers", where)
    if len(src) and max(src.max(), dst.max()) >= nodes:
        raise DataError(f"{where}: the graph names paper {max(src.max(), dst.max())}; 0 to {nodes - 1} are described.")
    return StaticTable(
        src, dst, nodes,
        features=give_up(_features(described[0], tested[0], test, nodes, where)),
        classes=give_up(_placed(described[1], tested[1], test, nodes)),
        vertex_split=give_up(_split(trained, known, test, nodes)),
    )  # fmt: skip


def _pickled(data: Mapping[str, bytes], name: str, where: str) -> Any:
    return read_pickle(part(data, f"*.{name}", where), f"{where} ({name})")


def _test_index(data: Mapping[str, bytes], where: str) -> NDArray[np.int64]:
    called = f"{where} (test.index)"
    text = plain(part(data, "*.test.index", where), called, blanks=True)
    found: NDArray[np.int64] = read_rows(text, called, {"paper": ID})["paper"]
    return found


def _links(graph: dict[Any, Any], held: bytes, where: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Both ends of every link, from a dict of lists of neighbours."""
    if not all(isinstance(neighbours, list) for neighbours in graph.values()):
        raise DataError(f"{where}: the graph holds something else than lists of neighbours. Fetch the file again.")
    lengths = [len(neighbours) for neighbours in graph.values()]
    if sum(lengths) > len(held):  # lists may be shared in a pickle: a few bytes could stand for any number of links
        raise DataError(f"{where}: the graph has {sum(lengths):,} neighbours in {len(held):,} bytes. Do not trust it.")
    papers = _numbers(list(graph), where)
    neighbours = _numbers(list(itertools.chain.from_iterable(graph.values())), where)
    return both_directions(np.repeat(papers, lengths), neighbours)


def _numbers(values: list[Any], where: str) -> NDArray[np.int64]:
    wrong = [value for value in values if type(value) is not int or not 0 <= value <= MAX_ID][:1]
    if wrong:
        found = wrong[0] if isinstance(wrong[0], int) else type(wrong[0]).__name__  # a list could hold itself
        raise DataError(f"{where}: the graph names a paper {found}; whole numbers from 0 to {MAX_ID:,} are allowed.")
    return np.array(values, dtype=np.int64)


def _rows_and_labels(rows: Any, labels: Any, name: str, where: str) -> tuple[SparseRows, NDArray[np.int16]]:
    """Sparse features, and the position of the one in each row of labels; -1 where there is none."""
    if not isinstance(rows, SparseRows) or not isinstance(labels, np.ndarray) or labels.ndim != 2:
        raise DataError(f"{where} ({name}): a sparse matrix, and an array of one-hot labels, are needed.")
    ones = labels == 1
    if len(labels) != len(rows.starts) - 1 or (ones.sum(axis=1) > 1).any() or (labels != ones).any():
        raise DataError(
            f"{where} ({name}): {len(rows.starts) - 1} rows of features and labels of shape {labels.shape}; a label of "
            "zeros with at most one 1 for each row is needed. Fetch the file again."
        )
    if not 1 <= labels.shape[1] <= _MAX_CLASSES:
        raise DataError(f"{where} ({name}): labels of {labels.shape[1]} classes; 1 to {_MAX_CLASSES} are allowed.")
    return rows, np.where(ones.any(axis=1), ones.argmax(axis=1), -1).astype(np.int16)


def _features(
    described: SparseRows, tested: SparseRows, test: NDArray[np.int64], nodes: int, where: str
) -> NDArray[np.float32]:
    if described.num_columns != tested.num_columns:
        raise DataError(
            f"{where}: allx has {described.num_columns} features and tx {tested.num_columns}; as many are needed. "
            "Fetch the file again."
        )
    rows = np.repeat(np.arange(len(described.starts) - 1), np.diff(described.starts))
    test_rows = np.repeat(test, np.diff(tested.starts))
    return dense(
        np.concatenate([rows, test_rows]), np.concatenate([described.columns, tested.columns]),
        np.concatenate([described.values, tested.values]), (nodes, described.num_columns), where,
    )  # fmt: skip


def _placed(
    known: NDArray[np.int16], tested: NDArray[np.int16], test: NDArray[np.int64], nodes: int
) -> NDArray[np.int16]:
    classes = np.full(nodes, -1, dtype=np.int16)
    classes[: len(known)] = known
    classes[test] = tested
    return classes


def _split(trained: int, known: int, test: NDArray[np.int64], nodes: int) -> NDArray[np.int8]:
    split = np.full(nodes, SPLIT_NONE, dtype=np.int8)
    split[trained : min(trained + _VALIDATION, known)] = SPLIT_VALIDATION
    split[:trained] = SPLIT_TRAIN
    split[test] = SPLIT_TEST
    return split
