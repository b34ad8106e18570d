"""Dataclasses from recorded data: each field by its type."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")


def read_fields(cls: type[R], data: Mapping[str, Any]) -> R:
    """Return an object of a dataclass: each field from the entry of its name, by its type.

    An entry may be missing or None if its field has a default or may be None. In tuples of numbers None is 0; mappings
    to numbers leave it out.
    """
    values = {}
    for name, has_default, may_be_none, read in _readers(cls):
        if not (has_default and data.get(name) is None):
            values[name] = read(data.get(name) if may_be_none else data[name])
    return cls(**values)


@cache
def _readers(cls: type[Any]) -> list[tuple[str, bool, bool, Callable[[Any], Any]]]:
    """Return the name of each field, whether it has a default, whether it may be None, and its reader."""
    types = get_type_hints(cls)
    return [
        (
            field.name,
            field.default is not MISSING,
            type(None) in get_args(types[field.name]),
            _reader(types[field.name]),
        )
        for field in fields(cls)
    ]


def _reader(annotation: Any) -> Callable[[Any], Any]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is UnionType and type(None) in arguments:
        read = _finite if arguments[0] is float else _reader(arguments[0])
        return lambda value: None if value is None else read(value)
    if origin is tuple:
        return _tuple_reader(arguments)
    if origin is np.ndarray:
        return partial(np.asarray, dtype=get_args(arguments[1])[0])
    if origin is not None and issubclass(origin, Mapping) and arguments[1] is not Any:
        read = _reader(arguments[1])
        return lambda values: {name: read(value) for name, value in values.items() if value is not None}
    if isinstance(annotation, type) and is_dataclass(annotation):
        return partial(read_fields, annotation)
    return annotation if annotation in (int, float, bool, str) else lambda value: value


def _tuple_reader(types: tuple[Any, ...]) -> Callable[[Any], Any]:
    if types[-1] is Ellipsis:
        read, is_number = _reader(types[0]), types[0] in (int, float)
        return lambda values: tuple(read(value or 0) if is_number else read(value) for value in values or ())
    readers = [_reader(element) for element in types]
    return lambda values: tuple(read(value) for read, value in zip(readers, values, strict=True))


def _finite(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None
