"""The Elliptic transactions: features by step, flows between transactions, and what is known of them, as three csv."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.formats.blocks import side_by_side
from dtdg_lab.datasets.formats.dense import allow_cells
from dtdg_lab.datasets.formats.header import columns_of, split_header
from dtdg_lab.datasets.formats.part import part
from dtdg_lab.datasets.formats.rows import FEATURE, TEXT, WHOLE, Kind, read_rows
from dtdg_lab.datasets.formats.text import line_of_row, plain, shown, width
from dtdg_lab.datasets.tables import StepTable
from dtdg_lab.graphs.arrays import give_up

_CLASSES = {"1": 1, "2": 0, "unknown": -1}  # the file's words: illicit, licit, unknown
_FLOWS: dict[str, tuple[Kind, tuple[str, ...]]] = {"from": (WHOLE, ("txId1",)), "to": (WHOLE, ("txId2",))}
_KNOWN: dict[str, tuple[Kind, tuple[str, ...]]] = {"transaction": (WHOLE, ("txId",)), "class": (TEXT, ("class",))}


def parse(data: Mapping[str, bytes], where: str) -> StepTable:
    """The B steps (49), N transactions (203,769) and E flows (234,355) of the Elliptic data set.

    Class 1 is illicit and 0 licit, each in the transaction's own step; -1 is unknown, and stands in all other steps.
    Features, shape (N, F), are those of a transaction in its step (165 as published), and never change.

    Args:
        data: ``elliptic_txs_features.csv`` (without header: transaction, step from 1, features), ``_edgelist.csv``
            and ``_classes.csv`` by name; only the end of a name counts.
        where: the archive's name, for messages.

    Raises:
        DataError: a file or column is missing, a line has other values, a flow joins two steps, or the files do not
            fit together.

    Source: Weber et al. 2019; classes as in EvolveGCN section 4.
    """
    called = f"{where} (elliptic_txs_features.csv)"
    text = plain(part(data, "elliptic_txs_features.csv", where), called)
    total = max(width(text, called), 3)
    columns = {"transaction": WHOLE, "step": WHOLE} | {f"feature {place}": FEATURE for place in range(1, total - 1)}
    rows = read_rows(text, called, columns)
    ids, order = _distinct(rows["transaction"], text, called)
    step = _steps(rows["step"], text, called)
    src, dst = _flows(part(data, "elliptic_txs_edgelist.csv", where), ids, order, step, where)
    labels = _classes(part(data, "elliptic_txs_classes.csv", where), ids, order, where)
    nodes, steps = len(step), int(step.max()) + 1
    allow_cells(nodes * steps, len(text), "classes by step", where)
    classes = np.full((steps, nodes), -1, dtype=np.int16)
    classes[step, np.arange(nodes)] = labels
    by_step = np.argsort(step[src], kind="stable")
    return StepTable(
        give_up(src[by_step]), give_up(dst[by_step]), give_up(step[src[by_step]]), steps, nodes,
        features=side_by_side(rows, [name for name in columns if name.startswith("feature")], nodes),
        classes=give_up(classes), node_ids=rows["transaction"],
    )  # fmt: skip


def _distinct(transactions: NDArray[np.int64], text: bytes, where: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers of the transactions in rising order, and the row of each."""
    order = np.argsort(transactions, kind="stable")
    ids = transactions[order]
    twice = np.flatnonzero(np.diff(ids) == 0)
    if len(twice):
        row = int(order[twice[0] + 1])
        raise DataError(
            f"line {line_of_row(text, row)} of {where} has transaction {ids[twice[0]]} again; once is allowed."
        )
    return ids, order


def _steps(step: NDArray[np.int64], text: bytes, where: str) -> NDArray[np.int64]:
    """The steps counted from 0; they are counted from 1 in the file, and each has a transaction."""
    wrong = np.flatnonzero((step < 1) | (step > len(step)))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"line {line_of_row(text, row)} of {where} has step {step[row]}; 1 to the number of transactions, "
            f"{len(step)}, is allowed. Fetch the file again."
        )
    empty = np.flatnonzero(np.bincount(step)[1:] == 0)
    if len(empty):
        raise DataError(f"{where} has no transaction in step {empty[0] + 1} of {step.max()}; each needs one.")
    return step - 1


def _named(data: bytes, where: str, wanted: Mapping[str, tuple[Kind, tuple[str, ...]]]) -> tuple[dict[str, Any], bytes]:
    names, body = split_header(plain(data, where), where)
    return read_rows(body, where, columns_of(names, wanted, where), first_line=2), body


def _placed(
    given: NDArray[np.int64], ids: NDArray[np.int64], order: NDArray[np.int64], body: bytes, where: str
) -> NDArray[np.int64]:
    """The rows of the transactions named in another file."""
    place = np.searchsorted(ids, given).clip(max=len(ids) - 1)
    strange = np.flatnonzero(ids[place] != given)
    if len(strange):
        row = int(strange[0])
        raise DataError(
            f"line {line_of_row(body, row) + 1} of {where} names transaction {given[row]}, which has no features. "
            "Fetch the files again."
        )
    placed: NDArray[np.int64] = order[place]
    return placed


def _flows(
    data: bytes, ids: NDArray[np.int64], order: NDArray[np.int64], step: NDArray[np.int64], where: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    called = f"{where} (elliptic_txs_edgelist.csv)"
    rows, body = _named(data, called, _FLOWS)
    src, dst = (_placed(rows[end], ids, order, body, called) for end in ("from", "to"))
    across = np.flatnonzero(step[src] != step[dst])
    if len(across):
        row = int(across[0])
        raise DataError(
            f"line {line_of_row(body, row) + 1} of {called} joins transactions of steps {step[src[row]] + 1} and "
            f"{step[dst[row]] + 1}; flows within a step are expected. Fetch the files again."
        )
    return src, dst


def _classes(data: bytes, ids: NDArray[np.int64], order: NDArray[np.int64], where: str) -> NDArray[np.int16]:
    """The class of every transaction, shape (N,), in the order of the features."""
    import pyarrow as pa
    import pyarrow.compute as pc

    called = f"{where} (elliptic_txs_classes.csv)"
    rows, body = _named(data, called, _KNOWN)
    numbers = pc.index_in(rows["class"], value_set=pa.array(list(_CLASSES)))
    if numbers.null_count:
        row = int(pc.index(pc.is_null(numbers), pa.scalar(value=True)).as_py())
        raise DataError(
            f"line {line_of_row(body, row) + 1} of {called} has class {shown(rows['class'][row].as_py())}; "
            f"{', '.join(_CLASSES)} are allowed. Fetch the file again."
        )
    classes = np.full(len(ids), -1, dtype=np.int16)
    found = np.array(list(_CLASSES.values()), dtype=np.int16)[numbers.to_numpy()]
    classes[_placed(rows["transaction"], ids, order, body, called)] = found
    return classes
