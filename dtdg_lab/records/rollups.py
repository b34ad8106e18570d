"""Rollups: sums of all rows of a run by keys, kept small for runs of any length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtdg_lab.records.rows import Array, Rows, as_column, as_numbers, as_objects, is_known, known

Key = tuple[Any, ...]

_DENSE = 1_000  # slots without rows that are acceptable


@dataclass(frozen=True, eq=False, slots=True)
class Rollup:
    """Sums of a table's rows by keys, over the whole run.

    Attributes:
        table: name of the table.
        by: columns of the keys.
        sums: columns that are summed; ``<column>_known`` is the number of known values.
        least: columns whose least value is kept, as ``<column>_least``.
        most: columns whose largest value is kept, as ``<column>_most``.
        last: columns whose newest value is kept.
        along: column that is divided into buckets of equal width, which doubles at more than ``2 * points`` buckets.
            Empty for no buckets. Rows with an unknown value are left out.
        width: width of the first buckets.
        points: least number of buckets of a long run.
        prepare: rows -> rows to sum, such as those of one rank; it gets all rows of a step together.
        all_attempts: whether rows replaced by a resume count too, such as joules, which were spent.
    """

    table: str
    by: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()
    least: tuple[str, ...] = ()
    most: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    along: str = "step"
    width: float = 1.0
    points: int = 150
    prepare: Callable[[Rows], Rows] = lambda rows: rows
    all_attempts: bool = False

    def __post_init__(self) -> None:
        if both := {*self.sums} & {*self.last}:
            raise ValueError(f"{', '.join(sorted(both))} cannot be summed and kept as newest: use two rollups.")


def _newest(old: Any, new: Any) -> Any:
    return new


def _total(old: Any, new: Any) -> Any:
    return old + new


class Sums:
    """The sums of a rollup, a slot for each key.

    Args:
        rollup: the rollup to compute.

    Attributes:
        width: current width of the buckets.
    """

    def __init__(self, rollup: Rollup) -> None:
        self.rollup, self.width = rollup, rollup.width
        self._slots: dict[Key, int] = {}
        self._filled: set[int] = set()  # buckets with rows
        self._merges: dict[str, Callable[[Any, Any], Any]] = {
            **{name: _total for column in rollup.sums for name in (column, f"{column}_known")},
            **{f"{column}_least": min for column in rollup.least},
            **{f"{column}_most": max for column in rollup.most},
            **dict.fromkeys(rollup.last, _newest),
        }
        self._values: dict[str, list[Any]] = {name: [] for name in self._merges}

    def copy(self) -> Sums:
        """Return a copy of the sums."""
        copy = Sums(self.rollup)
        copy.width, copy._slots, copy._filled = self.width, dict(self._slots), set(self._filled)
        copy._values = {name: [*values] for name, values in self._values.items()}
        return copy

    def add(self, rows: Rows) -> None:
        """Add rows."""
        rollup, rows = self.rollup, self.rollup.prepare(rows)
        if rollup.along and len(rows) and not (known_rows := is_known(rows[rollup.along])).all():
            rows = rows.where(known_rows)
        if not len(rows):
            return
        keys = [rows[name] for name in rollup.by]
        if rollup.along:
            self._widen(_distinct(self._buckets(rows)))
            keys.append(self._buckets(rows))
        groups, group = _groups(keys, len(rows))
        self._merge(groups, self._reduce(rows, group, len(groups)))

    def _buckets(self, rows: Rows) -> Array:
        return np.floor_divide(rows[self.rollup.along], self.width).astype(np.int64)

    def _reduce(self, rows: Rows, group: Array, count: int) -> dict[str, list[Any]]:
        """Return the aggregates of each group of rows."""
        rollup, reduced = self.rollup, {}
        for name in rollup.sums:
            values = _numbers(rows[name])
            reduced[name] = np.bincount(group, np.nan_to_num(values), count).tolist()
            reduced[f"{name}_known"] = np.bincount(group, ~np.isnan(values), count).tolist()
        for names, reduce, start, suffix in (
            (rollup.least, np.fmin, np.inf, "least"),
            (rollup.most, np.fmax, -np.inf, "most"),
        ):
            for name in names:
                extreme = np.full(count, start)
                reduce.at(extreme, group, _numbers(rows[name]))
                reduced[f"{name}_{suffix}"] = extreme.tolist()
        for name in rollup.last:
            newest = np.empty(count, object)
            newest[group] = as_objects(rows[name].tolist())
            reduced[name] = newest.tolist()
        return reduced

    def _merge(self, groups: Mapping[Key, int], reduced: Mapping[str, list[Any]]) -> None:
        """Merge aggregates of groups; a key has the same slot in all lists, which grow in the same order."""
        for name, values in self._values.items():
            merge, new = self._merges[name], reduced[name]
            for key, group in groups.items():
                slot = self._slots.get(key, len(values))
                if slot < len(values):
                    values[slot] = merge(values[slot], new[group])
                else:
                    values.append(new[group])
        for key in groups:
            self._slots.setdefault(key, len(self._slots))

    def _widen(self, new: Array) -> None:
        """Double the width of buckets until they and the new ones are at most ``2 * points``."""
        self._filled.update(new.tolist())
        doublings = 0
        while len(self._filled) > 2 * self.rollup.points:
            self._filled, doublings = {bucket // 2 for bucket in self._filled}, doublings + 1
        if not doublings:
            return
        slots, values = self._slots, self._values
        self._slots, self._values = {}, {name: [] for name in values}
        self.width *= 2**doublings
        for key, slot in slots.items():
            wider = (*key[:-1], int(key[-1] // 2**doublings))
            self._merge({wider: 0}, {name: [column[slot]] for name, column in values.items()})

    def rows(self) -> Rows:
        """Return the sums as rows in order of buckets; keys are columns too, the last ``bucket``."""
        names = [*self.rollup.by, *(["bucket"] if self.rollup.along else [])]
        columns = {name: as_column([key[column] for key in self._slots]) for column, name in enumerate(names)}
        for name, values in self._values.items():
            columns[name] = as_column(values) if name in self.rollup.last else np.array(values, np.float64)
        rows = Rows(columns, np.arange(len(self._slots)))
        return rows.sort("bucket") if self.rollup.along and len(rows) else rows


def _groups(keys: Sequence[Array], count: int) -> tuple[dict[Key, int], Array]:
    """Return the number of each distinct key, in order of their first rows, and the number of each row's key.

    Args:
        keys: a column for each part of the keys, (count,) each.
        count: rows.
    """
    code, size = np.zeros(count, np.int64), 1
    for column in keys:
        codes, values = _codes(column)
        code, size = code * values + codes, size * values
        if size > 2 * count + _DENSE:
            size, code = _dense(code)
    first = np.full(size, count)
    first[code[::-1]] = np.arange(count)[::-1]  # of several rows of a code the last one here stays, which is the first
    first, numbers = np.sort(first[first < count]), np.empty(size, np.int64)
    numbers[code[first]] = np.arange(len(first))
    columns = [known(column[first]) for column in keys]  # NaN would be another key each time
    distinct = zip(*columns, strict=True) if columns else [()]
    return {key: number for number, key in enumerate(distinct)}, numbers[code]


def _codes(column: Array) -> tuple[Array, int]:
    """Return a small number for each row, equal for equal values, and an upper bound of these numbers."""
    if column.dtype.kind == "O":
        code_of: dict[Any, int] = {}
        codes = np.array([code_of.setdefault(value, len(code_of)) for value in column.tolist()], np.int64)
        return codes, len(code_of)
    if column.dtype.kind in "iu" and _is_narrow(column):
        return column - column.min(), int(np.ptp(column)) + 1
    size, codes = _dense(column)
    return codes, size


def _is_narrow(numbers: Array) -> bool:
    """Return whether whole numbers are so close that each number between them can have a slot."""
    return int(np.ptp(numbers)) <= 2 * len(numbers) + _DENSE


def _distinct(numbers: Array) -> Array:
    """Return the distinct whole numbers in order."""
    if not _is_narrow(numbers):
        return np.unique(numbers)
    return np.flatnonzero(np.bincount(numbers - numbers.min())) + numbers.min()


def _dense(values: Array) -> tuple[int, Array]:
    """Return the number of distinct values, and the index of each value among them."""
    distinct, indices = np.unique(values, return_inverse=True)
    return len(distinct), indices


def _numbers(column: Array) -> Array:
    return as_numbers(column.tolist()) if column.dtype == object else column.astype(np.float64)
