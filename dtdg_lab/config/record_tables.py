"""Record tables: what each rank writes, one narrow table per kind of record.

A rank writes lines of JSON, each ``{"v", "rank", "attempt", "seq", "table", "columns", "rows"}``: rows of one table
with the names of their columns, so that readers keep unknown columns. Rank and attempt (how many times the
run was started, from 1) hold for all rows of a line. Times ending in ``_ns`` are nanoseconds since 1970-01-01.
``config/record_tables.toml`` has the shared tables, and ``family.toml`` of a family of systems its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from dtdg_lab.config.catalogue import DECLARED

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def rows_of(line: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a line, by the names of their columns."""
    return (dict(zip(line["columns"], row, strict=True)) for row in line["rows"])


# A row of a table, or the data of an event, as an object.


R = TypeVar("R", bound="DataclassInstance")


def read_fields(kind: type[R], data: Mapping[str, Any], **given: Any) -> R:
    """An object of ``kind``: each field from the entry of its name, by its type, where it is not ``given``.

    An entry may be missing or None where its field has a default or may be None. In tuples of numbers None is 0, in
    mappings to numbers it is left out.
    """
    for name, has_default, may_be_none, read in _readers(kind):
        if name in given or (has_default and data.get(name) is None):
            continue
        given[name] = read(data.get(name) if may_be_none else data[name])
    return kind(**given)


@cache
def _readers(kind: type[Any]) -> list[tuple[str, bool, bool, Callable[[Any], Any]]]:
    """Of each field its name, whether it has a default, whether it may be None, and what reads it."""
    types = get_type_hints(kind)
    return [
        (each.name, each.default is not MISSING, type(None) in get_args(types[each.name]), _reader(types[each.name]))
        for each in fields(kind)
    ]


def _reader(kind: Any) -> Callable[[Any], Any]:
    of, inner = get_origin(kind), get_args(kind)
    if of is UnionType and type(None) in inner:
        read = _finite if inner[0] is float else _reader(inner[0])
        return lambda value: None if value is None else read(value)
    if of is tuple:
        return _tuple_reader(inner)
    if of is np.ndarray:
        return partial(np.asarray, dtype=get_args(inner[1])[0])
    if of is not None and issubclass(of, Mapping) and inner[1] is not Any:
        read = _reader(inner[1])
        return lambda values: {name: read(value) for name, value in values.items() if value is not None}
    if isinstance(kind, type) and is_dataclass(kind):
        return partial(read_fields, kind)
    return kind if kind in (int, float, bool, str) else lambda value: value


def _tuple_reader(inner: tuple[Any, ...]) -> Callable[[Any], Any]:
    if inner[-1] is Ellipsis:
        read, is_number = _reader(inner[0]), inner[0] in (int, float)
        return lambda values: tuple(read(value or 0) if is_number else read(value) for value in values or ())
    each = [_reader(kind) for kind in inner]
    return lambda values: tuple(read(value) for read, value in zip(each, values, strict=True))


def _finite(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None


SCHEMA = 3  # 1 and 2, with other names of events and columns, are not read any more

MAX_CONTROL_VERSION = 2**24 - 1  # sent in a float32 slot, which is exact up to here

PHASES = ("batch", "transfer", "compute", "wait", "communicate", "update", "control")
OWN_PHASES = ("batch", "transfer", "compute")  # of a rank's own work: not waiting, not sending
BETWEEN_STEPS = ("evaluate", "checkpoint", "rebuild")  # rows of `phases` that belong to no step's sum

# table -> its columns, and column -> what it means; each family of systems adds its own
TABLES: dict[str, tuple[str, ...]] = {
    table: tuple(columns) for declared in DECLARED.values() for table, columns in declared.get("tables", {}).items()
}
MEANINGS: dict[str, str] = {}
for _declared in DECLARED.values():
    for _column, _meaning in _declared.get("meanings", {}).items():
        MEANINGS[_column] = f"{MEANINGS[_column]}; {_meaning}" if _column in MEANINGS else _meaning
STEPS = TABLES["steps"]
