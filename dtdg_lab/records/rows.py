"""Rows of record tables as NumPy columns: some rows of a table, and a table that grows at its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def as_column(values: Sequence[Any]) -> Array:
    """Return values as a column: numbers as int64, or as float64 with NaN for None; all else as objects.

    The first known value decides. In a column of numbers, other values become NaN.
    """
    first = next((value for value in values if value is not None), 0.0)
    if isinstance(first, int | float) and not isinstance(first, bool):
        try:
            column = np.array(values)
            if column.dtype.kind in "iuf" and column.ndim == 1:
                return column
            return np.array(values, np.float64)  # None becomes NaN
        except (TypeError, ValueError, OverflowError):
            return as_numbers(values)
    return as_objects(values)


def as_numbers(values: Iterable[Any]) -> Array:
    """Return values as float64, with NaN for values that are no numbers."""
    numbers = [float(value) if isinstance(value, int | float) else np.nan for value in values]
    return np.array(numbers, np.float64)


def as_objects(values: Sequence[Any]) -> Array:
    """Return values as an array of objects, lists too."""
    column = np.empty(len(values), object)
    column[:] = values
    return column


class Rows:
    """Some rows of a table: a NumPy array for each column, selected on access.

    Args:
        columns: columns of the whole table.
        indices: indices of these rows in the table.
    """

    __slots__ = ("_columns", "_indices")

    def __init__(self, columns: Mapping[str, Array], indices: Array) -> None:
        self._columns, self._indices = columns, indices

    @classmethod
    def of(cls, columns: Mapping[str, Array]) -> Rows:
        """Return all rows of columns of equal length."""
        return cls(columns, np.arange(len(next(iter(columns.values()), ()))))

    def __len__(self) -> int:
        return len(self._indices)

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> Array:
        return self._columns[name][self._indices]

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self._columns)

    def where(self, selection: Array | slice) -> Rows:
        """Return the rows of a mask, indices or a slice."""
        return Rows(self._columns, self._indices[selection])

    def sort(self, *names: str) -> Rows:
        """Return the rows sorted by columns of numbers, the first one most significant."""
        return self.where(np.lexsort([self[name] for name in reversed(names)]))

    def by(self, name: str) -> dict[Any, Rows]:
        """Return the rows with each value of a column, in order of the values."""
        values = self[name]
        distinct = set(values.tolist()) if values.dtype.kind == "O" else np.unique(values).tolist()
        return {value: self.where(values == value) for value in sorted(distinct)}

    def once(self, *names: str) -> Rows:
        """Return the first row of each combination of values."""
        first: dict[tuple[Any, ...], int] = {}
        for index, key in enumerate(zip(*(self[name].tolist() for name in names), strict=True)):
            first.setdefault(key, index)
        return self.where(np.array(list(first.values()), np.int64))

    def to_dicts(self, *names: str) -> list[dict[str, Any]]:
        """Return a dict for each row, of all columns or the named ones; unknown numbers are None."""
        columns = {name: known(self[name]) for name in names or self._columns}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def known(column: Array) -> list[Any]:
    """Return a column as Python values, None where a number is unknown."""
    values = column.tolist()
    if column.dtype.kind == "f" and np.isnan(column).any():
        return [None if isnan(value) else value for value in values]
    return values


def is_known(column: Array) -> Array:
    """Return the mask of a column's known values."""
    if column.dtype.kind == "O":
        return np.array([value is not None for value in column.tolist()], bool)
    return ~np.isnan(column)


class Table:
    """Columns that grow at their end; rows can be dropped anywhere.

    Attributes:
        size: rows.
    """

    def __init__(self) -> None:
        self.size = 0
        self._columns: dict[str, Array] = {}

    def append(self, columns: Mapping[str, Array]) -> None:
        """Add rows; a column that the table or the new rows lack is unknown there."""
        count = len(next(iter(columns.values())))
        for name in dict.fromkeys([*self._columns, *columns]):
            self._append_column(name, columns.get(name), count)
        self.size += count

    def _append_column(self, name: str, new: Array | None, count: int) -> None:
        column = self._columns.get(name)
        kind = _kind(None if column is None else column[: self.size], new, old_size=self.size)
        if column is None or column.dtype != kind or len(column) < self.size + count:
            room = max(2 * (self.size + count), 0 if column is None else len(column))
            wider = np.full(room, _unknown(kind), kind)
            if column is not None:
                wider[: self.size] = _cast(column[: self.size], kind)
            column = self._columns[name] = wider
        end = self.size + count
        column[self.size : end] = _unknown(kind) if new is None else _cast(new, kind)

    def drop(self, mask: Array) -> None:
        """Remove the rows of a mask."""
        size = self.size - int(mask.sum())
        for name, column in self._columns.items():
            column[:size] = column[: self.size][~mask]
            if column.dtype.kind == "O":
                column[size : self.size] = None  # frees texts and lists
            if len(column) > 4 * size:  # once filled with a large block
                self._columns[name] = column[: 2 * size].copy()
        self.size = size

    def replace(self, name: str, values: Array) -> None:
        """Replace a column."""
        self._columns[name][: self.size] = values

    def rows(self) -> Rows:
        """Return all rows."""
        return Rows(self._columns, np.arange(self.size))

    @property
    def bytes(self) -> int:
        """Memory of the columns, without the texts and lists in them."""
        return sum(column.nbytes for column in self._columns.values())


def _kind(column: Array | None, new: Array | None, *, old_size: int) -> np.dtype[Any]:
    """Return the type of a column after new values: columns of numbers and of objects stay so."""
    if column is None or not len(column):
        kind: np.dtype[Any] = new.dtype if new is not None else np.dtype(np.float64)
        has_gap = old_size > 0
    elif new is None:
        kind, has_gap = column.dtype, True
    elif "O" in (column.dtype.kind, new.dtype.kind):
        numbers = column.dtype.kind != "O" and not np.isnan(column.astype(np.float64)).all()
        kind, has_gap = (np.dtype(np.float64) if numbers else np.dtype(object)), False
    else:
        kind, has_gap = np.result_type(column.dtype, new.dtype), False
    return np.dtype(np.float64) if has_gap and kind.kind in "iu" else kind


def _unknown(kind: np.dtype[Any]) -> Any:
    return None if kind.kind == "O" else np.nan if kind.kind == "f" else 0


def _cast(values: Array, kind: np.dtype[Any]) -> Array:
    is_object = values.dtype.kind == "O"
    if kind.kind == "O" and not is_object:
        return as_objects(known(values))
    if is_object and kind.kind != "O":
        return as_numbers(values.tolist())
    return values
