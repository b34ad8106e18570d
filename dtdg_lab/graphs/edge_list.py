"""Read the edge lists of users into checked vectors of nodes, times and weights."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import DataError, shortened
from dtdg_lab.graphs.snapshot import refuse_masked

# Convert lists, arrays, columns of tables and tensors to numpy arrays.


# what numpy, pandas and torch raise where they cannot give an array; the reason is passed on
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
_LARGEST = float(np.finfo(np.float64).max)


def as_array(values: Any, name: str, needed: str) -> NDArray[Any]:
    """Convert a value to a numpy array, of whatever type and shape it has.

    Args:
        values: a list, an array, a column of a table, or a tensor of any library and device.
        name: its name in messages.
        needed: the required contents, in words, for messages.

    Raises:
        DataError: entries are masked, rows have different lengths, a list mixes text or booleans with something
            else, or numpy cannot read it.
    """
    refuse_masked(values, name)
    if isinstance(values, (list, tuple)):
        refuse_mixed(values, name, needed)
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
    """Convert a value to a numpy vector, of whatever type it has; arguments as for :func:`as_array`.

    Raises:
        DataError: as :func:`as_array`; or it is no vector.
    """
    array = as_array(values, name, needed)
    if array.ndim == 1:
        rounded = array.dtype.kind == "f" and isinstance(values, (list, tuple)) and set(map(type, values)) == {int}
        return np.array(values, dtype=object) if rounded else array  # whole numbers of 2^63 and more
    description = f"has shape {array.shape}" if array.ndim else f"is {_kind(values)}"
    raise DataError(f"{name} {description}; a vector of {needed} is needed, such as a list or an array.")


def floats_of_objects(array: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Convert numbers given as Python objects to float64.

    Raises:
        DataError: a number is too large.
    """
    try:
        return array.astype(np.float64)
    except OverflowError:
        index = next(index for index, value in enumerate(array.flat) if abs(value) > _LARGEST)
        value = shortened(array.flat[index])
        raise DataError(f"{name} holds {value} at place {index}; at most {_LARGEST:g} is allowed.") from None


def wrong_type(array: NDArray[Any], name: str, needed: str, right: tuple[type, ...] = ()) -> DataError:
    """Describe an array of a wrong type: its type, and the first wrong value.

    Args:
        array: the given array.
        name: its name in the message.
        needed: the required contents, in words.
        right: allowed types of values, where it holds objects.
    """
    if not array.size:
        return DataError(f"{name} is empty, of type {array.dtype}; {needed} are needed.")
    index, value, kind = 0, array.flat[0], str(array.dtype)
    if kind == "object":
        wrong = ((number, value) for number, value in enumerate(array.flat) if not isinstance(value, right))
        index, value = next(wrong, (index, value))
    text = str(value)  # of numbers and times, as numpy shows them
    if array.dtype.kind in "OUS":
        value = value.item() if isinstance(value, np.generic) else value
        text, kind = shortened(value), type(value).__name__
    subscript = f"[{', '.join(map(str, np.unravel_index(index, array.shape)))}]" if array.ndim else ""
    return DataError(
        f"{name}{subscript} is {text}, of type {kind}; {needed} are needed. Convert it, or drop what has no such value."
    )


def refuse_mixed(values: Sequence[Any] | NDArray[Any], name: str, needed: str) -> None:
    """Refuse values of several kinds, which numpy would silently convert to one kind, such as NaN to text.

    Raises:
        DataError: text, bytes or booleans stand beside something else; the message names both.
    """
    types = set(map(type, values))
    for masked in types:
        if issubclass(masked, np.ma.MaskedArray):
            for number, value in enumerate(values):
                refuse_masked(value, f"{name}[{number}]")
    kinds = {_group(value_type) for value_type in types}
    if len(kinds) > 1 and kinds & {"str", "bytes", "bool"}:
        first = _group(type(values[0]))
        number = next(number for number, value in enumerate(values) if _group(type(value)) != first)
        raise DataError(
            f"{name} mixes {type(values[0]).__name__} and {type(values[number]).__name__}: {name}[0] is "
            f"{shortened(values[0])}, {name}[{number}] is {shortened(values[number])}. Give {needed}, all of one kind; "
            "drop what is missing."
        )


def _group(value_type: type) -> str:
    for name, types in (("str", str), ("bytes", bytes), ("bool", (bool, np.bool_))):
        if issubclass(value_type, types):
            return name
    return "other"


def _kind(values: Any) -> str:
    return "None" if values is None else f"of type {type(values).__name__}"


# Read the vectors of an edge list: ids, times, weights.


MAX_ID_LENGTH = 1000  # characters; numpy gives every id of a vector the room of the longest
_IDS = "whole numbers or text"
# what pandas and others write where a value is missing; no node can have such a name
MISSING_WORDS = frozenset(
    ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-NaN", "-nan", "NULL", "Null", "null", "None", "NaT")
)


def missing_id(value: str) -> str:
    """Describe a word that stands for a missing id, for messages."""
    return (
        f"{shortened(value)}, which stands for a missing id: drop such edges, or give the node another name if it is "
        "really called so"
    )


def read_ids(values: ArrayLike, name: str) -> NDArray[Any]:
    """Return ids as int64 or text, shape (E,). Floats and decimals become int64 where all of them are whole.

    Raises:
        DataError: ids are neither, or one is missing, too large for int64, or longer than ``MAX_ID_LENGTH``.
    """
    if isinstance(values, (list, tuple)):
        _refuse_long(values, name)  # before numpy makes room for the longest, many times
    array = as_vector(values, name, _IDS)
    if not len(array):
        return np.empty(0, dtype=np.int64)  # of any type; missing edges are refused later
    if array.dtype.kind in "OT":
        array = _ids_of_objects(array.astype(object), name)
    if array.dtype.kind in "iu":
        return as_int64(array, name)
    if array.dtype.kind == "f":
        return _whole_floats(array, name)
    if array.dtype.kind != "U":
        raise wrong_type(array, name, _IDS)
    missing = np.isin(array, list(MISSING_WORDS))
    if missing.any():
        row = int(missing.argmax())
        raise DataError(f"{name}[{row}] is {missing_id(str(array[row]))}.")
    return array


NO_EDGE_VECTORS = (
    "Vectors of edge features are not supported: an edge has one weight of at least 0. Give one column as weight=, or "
    "leave them out."
)


def read_weights(values: ArrayLike | None, count: int) -> NDArray[np.float64] | None:
    """Return weights as finite float64 of at least 0, shape (E,); None for None.

    Raises:
        DataError: a weight is no such number, or there are not ``count`` of them.
    """
    if values is None:
        return None
    shape = getattr(values, "shape", ())
    if len(shape) > 1:
        raise DataError(f"weight has shape {tuple(shape)}; a vector of numbers is needed. {NO_EDGE_VECTORS}")
    array = as_vector(values, "weight", "numbers")
    if array.dtype.kind == "O" and types_of(array) <= {int, float, Decimal}:
        array = floats_of_objects(array, "weight")
    if array.dtype.kind not in "iuf":
        raise wrong_type(array, "weight", "numbers", (int, float))
    if array.shape != (count,):
        raise DataError(f"weight has {len(array)} entries and there are {count} edges; {count} numbers are needed.")
    return check_weights(as_float64(array))


def check_weights(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the same weights.

    Raises:
        DataError: one is negative, or not finite; the message names the first.
    """
    wrong = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if len(wrong):
        raise DataError(
            f"weight[{wrong[0]}] is {array[wrong[0]]}; finite weights of at least 0 are needed, because degrees are "
            "sums of weights. Drop such edges, or shift the weights."
        )
    return array


def types_of(array: NDArray[Any]) -> set[type]:
    """Return the types of the objects in an array."""
    return set(map(type, array.flat))


def as_int64(array: NDArray[Any], name: str) -> NDArray[np.int64]:
    """Return whole numbers as int64.

    Raises:
        DataError: one is 2^63 or more.
    """
    if array.dtype.kind == "u" and len(array) and int(array.max()) >= 2**63:
        raise _too_large(name, int(array.argmax()), array.max())
    return array.astype(np.int64, copy=False)


def _too_large(name: str, index: int, value: Any) -> DataError:
    return DataError(f"{name}[{index}] is {value}; whole numbers from -2^63 to below 2^63 are needed.")


def as_float64(array: NDArray[Any]) -> NDArray[np.float64]:
    """Return numbers as float64; those that are too large for it become infinite."""
    with np.errstate(over="ignore"):
        return array.astype(np.float64, copy=False)


def _refuse_long(values: Any, name: str) -> None:
    if not all(issubclass(value_type, str) for value_type in set(map(type, values))):
        return  # no ids; refused later
    longest = max(map(len, values), default=0)
    if longest > MAX_ID_LENGTH:
        index = list(map(len, values)).index(longest)
        raise DataError(
            f"{name}[{index}] is {shortened(values[index])}, an id of {longest:,} characters; at most "
            f"{MAX_ID_LENGTH:,} are allowed."
        )


def _ids_of_objects(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Convert ids given as objects, such as columns of tables, to whole numbers or text."""
    refuse_mixed(array, name, _IDS)
    types = types_of(array)
    if all(issubclass(kind, str) for kind in types):
        _refuse_long(array, name)
        return array.astype(str)
    if all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in types):
        return whole_of_objects(array, name)
    if all(issubclass(kind, (numbers.Number, Decimal)) and kind is not bool for kind in types):
        wrong = next((row for row, value in enumerate(array) if value != value or value % 1), None)  # noqa: PLR0124
        if wrong is not None:
            raise _no_ids(np.array([float(value) for value in array]), name)
        return whole_of_objects(np.array([int(value) for value in array], dtype=object), name)
    raise wrong_type(array, name, _IDS, types_like_the_first(array, (str, (int, np.integer))))


def types_like_the_first(array: NDArray[Any], groups: tuple[Any, ...]) -> Any:
    """Return the types of the group of the first entry; the types of all groups where it is in none."""
    return next((group for group in groups if isinstance(array[0], group)), groups)


def whole_of_objects(array: NDArray[Any], name: str) -> NDArray[np.int64]:
    """Return Python's whole numbers as int64.

    Raises:
        DataError: one does not fit.
    """
    try:
        return array.astype(np.int64)
    except OverflowError:
        index = next(index for index, value in enumerate(array) if not -(2**63) <= value < 2**63)
        raise _too_large(name, index, shortened(array[index])) from None


def _whole_floats(array: NDArray[Any], name: str) -> NDArray[np.int64]:
    """Return whole floats as int64. A table with gaps turns whole numbers into floats."""
    exact = 2.0 ** (np.finfo(array.dtype).nmant + 1)  # beyond it, neighbouring whole numbers are one float
    with np.errstate(invalid="ignore"):
        wrong = np.flatnonzero(~((np.abs(array) <= exact) & (array == np.floor(array))))
    if len(wrong):
        raise _no_ids(array, name)
    return array.astype(np.int64)


def _no_ids(array: NDArray[Any], name: str) -> DataError:
    """Describe the first float that is no id."""
    is_whole = np.isfinite(array) & (array == np.floor(array))
    row = int(np.flatnonzero(~is_whole)[0]) if not is_whole.all() else int(np.abs(array).argmax())
    value = array[row]
    if np.isnan(value):
        return DataError(f"{name}[{row}] is nan, a missing id; {_IDS} are needed. Drop edges without an id.")
    if is_whole.all():
        return DataError(
            f"{name}[{row}] is {value:g}, of type {array.dtype}, which is too large for such numbers to be exact. "
            "Read ids as whole numbers or as text."
        )
    return DataError(
        f"{name}[{row}] is {value}, of type {array.dtype}; {_IDS} are needed. Number the nodes, or use text."
    )
