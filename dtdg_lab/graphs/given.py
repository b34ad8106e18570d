"""Vectors and tables that somebody gives - lists, arrays, columns of tables, tensors - as numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError, shortened
from dtdg_lab.graphs.arrays import refuse_masked

# what numpy, pandas and torch raise where they cannot give an array; the reason is passed on
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)
_LARGEST = float(np.finfo(np.float64).max)


def as_array(values: Any, name: str, needed: str) -> NDArray[Any]:
    """What was given as a numpy array, of whatever type and shape it has.

    Args:
        values: a list, an array, a column of a table, or a tensor of any library and device.
        name: what messages call it.
        needed: what it must hold, in words, for messages.

    Raises:
        DataError: entries are masked, rows have different lengths, a list mixes text or booleans with something
            else, or numpy cannot read it.
    """
    refuse_masked(values, name)
    if isinstance(values, (list, tuple)):
        _refuse_mixed(values, name, needed)
    try:
        for step in ("detach", "cpu"):  # tensors that are learned, or lie on a GPU
            if callable(getattr(type(values), step, None)):
                values = getattr(values, step)()
        array = np.asarray(values)
    except _UNREADABLE as error:
        why = "rows have different lengths" if "inhomogeneous" in str(error) else str(error).rstrip(".")
        raise DataError(
            f"{name} cannot be read as an array: {why}. Give {needed}, equally many in all rows."
        ) from error
    return array


def as_vector(values: Any, name: str, needed: str) -> NDArray[Any]:
    """What was given as a numpy vector, of whatever type it has; arguments as for :func:`as_array`.

    Raises:
        DataError: as :func:`as_array`; or it is no vector.
    """
    array = as_array(values, name, needed)
    if array.ndim == 1:
        rounded = array.dtype.kind == "f" and isinstance(values, (list, tuple)) and set(map(type, values)) == {int}
        return np.array(values, dtype=object) if rounded else array  # whole numbers of 2^63 and more
    found = f"has shape {array.shape}" if array.ndim else f"is {_kind(values)}"
    raise DataError(f"{name} {found}; a vector of {needed} is needed, such as a list or an array.")


def floats_of_objects(array: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Whole and other numbers that were given as Python's objects, as float64.

    Raises:
        DataError: one is too large.
    """
    try:
        return array.astype(np.float64)
    except OverflowError:
        place = next(place for place, value in enumerate(array.flat) if abs(value) > _LARGEST)
        value = shortened(array.flat[place])
        raise DataError(f"{name} holds {value} at place {place}; at most {_LARGEST:g} is allowed.") from None


def wrong_type(array: NDArray[Any], name: str, needed: str, right: tuple[type, ...] = ()) -> DataError:
    """What to say of an array that holds something else than is needed: its type, and the first value of another.

    Args:
        array: what was given.
        name: what the message calls it.
        needed: what it must hold, in words.
        right: types of values that would do, where it holds objects of any type.
    """
    if not array.size:
        return DataError(f"{name} is empty, of type {array.dtype}; {needed} are needed.")
    place, value, kind = 0, array.flat[0], str(array.dtype)
    if kind == "object":
        wrong = ((place, value) for place, value in enumerate(array.flat) if not isinstance(value, right))
        place, value = next(wrong, (place, value))
    said = str(value)  # of numbers and times, as numpy shows them
    if array.dtype.kind in "OUS":
        value = value.item() if isinstance(value, np.generic) else value
        said, kind = shortened(value), type(value).__name__
    at = f"[{', '.join(map(str, np.unravel_index(place, array.shape)))}]" if array.ndim else ""
    return DataError(
        f"{name}{at} is {said}, of type {kind}; {needed} are needed. Convert it, or drop what has no such value."
    )


def _refuse_mixed(values: list[Any] | tuple[Any, ...], name: str, needed: str) -> None:
    """Refuse lists in which numpy would turn one kind of values into another unseen, such as NaN into text."""
    types = set(map(type, values))
    for masked in types:
        if issubclass(masked, np.ma.MaskedArray):
            for place, value in enumerate(values):
                refuse_masked(value, f"{name}[{place}]")
    kinds = {_group(each) for each in types}
    if len(kinds) > 1 and kinds & {"str", "bytes", "bool"}:
        first = _group(type(values[0]))
        place = next(place for place, value in enumerate(values) if _group(type(value)) != first)
        raise DataError(
            f"{name} mixes {type(values[0]).__name__} and {type(values[place]).__name__}: {name}[0] is "
            f"{shortened(values[0])}, {name}[{place}] is {shortened(values[place])}. Give {needed}, all of one kind; "
            "drop what is missing."
        )


def _group(each: type) -> str:
    for name, types in (("str", str), ("bytes", bytes), ("bool", (bool, np.bool_))):
        if issubclass(each, types):
            return name
    return "other"


def _kind(values: Any) -> str:
    return "None" if values is None else f"of type {type(values).__name__}"
