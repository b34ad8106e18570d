"""Sparse features written out, only as far as what the file holds warrants."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError

_FREE_CELLS = 1 << 22
_CELLS_EACH = 500  # cells for each entry the file holds; Planetoid's citation networks have 10 to 120


def allow_cells(cells: int, held: int, what: str, where: str) -> None:
    """Refuse an array that is far larger than what the file holds, before any memory is taken.

    Args:
        cells: entries the array would have.
        held: entries, or bytes, that the file holds of it.
        what: the array, for messages.
        where: the file's name, for messages.

    Raises:
        DataError: more than 500 cells for each entry held, and more than four million.
    """
    if cells > max(_FREE_CELLS, _CELLS_EACH * held):
        raise DataError(
            f"{where} would need {cells:,} cells for {what}, and holds {held:,}; at most {_CELLS_EACH} times as many "
            "are allowed, because a damaged file could ask for any memory. Fetch the file again."
        )


def dense(
    rows: NDArray[np.int64], columns: NDArray[np.int64], values: Any, shape: tuple[int, int], where: str
) -> NDArray[np.float32]:
    """The matrix with ``values`` at ``rows`` and ``columns`` and zeros elsewhere, shape ``shape``, float32.

    Args:
        rows: shape (K,).
        columns: shape (K,).
        values: shape (K,), or one number.
        shape: rows and columns of the matrix.
        where: the file's name, for messages.

    Raises:
        DataError: the matrix would be far larger than what the file holds, or a value is not finite.
    """
    allow_cells(shape[0] * shape[1], len(rows), "features", where)
    with np.errstate(over="ignore"):
        entries = np.asarray(values).astype(np.float32)
    wrong = np.flatnonzero(~np.isfinite(entries))
    if len(wrong):
        row, column, value = rows[wrong[0]], columns[wrong[0]], np.ravel(values)[wrong[0]]
        raise DataError(
            f"{where}: the feature in row {row}, column {column} is {value}; finite numbers are needed. Fetch the file "
            "again."
        )
    matrix = np.zeros(shape, dtype=np.float32)
    matrix[rows, columns] = entries
    return matrix
