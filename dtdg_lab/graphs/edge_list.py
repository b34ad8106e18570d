"""Edge lists as given by users: checked vectors of nodes, times and weights."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import DataError, shortened
from dtdg_lab.graphs.snapshot import refuse_masked

# Vectors and tables that somebody gives - lists, arrays, columns of tables, tensors - as numpy arrays.


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


# Reading the vectors of an edge list that somebody gives: ids, times, weights.


MAX_ID_LENGTH = 1000  # characters; numpy gives every id of a vector the room of the longest
_IDS, _TIMES = "whole numbers or text", "numbers or datetimes"


def read_ids(values: ArrayLike, name: str) -> NDArray[Any]:
    """Ids as int64 or text, shape (E,).

    Raises:
        DataError: they are neither, one is missing, too large for int64, or longer than ``MAX_ID_LENGTH``.
    """
    if isinstance(values, (list, tuple)):
        _refuse_long(values, name)  # before numpy makes room for the longest, many times
    array = as_vector(values, name, _IDS)
    if not len(array):
        return np.empty(0, dtype=np.int64)  # of any type; that there are no edges is said later
    if array.dtype.kind in "OT":
        array = _ids_of_objects(array.astype(object), name)
    if array.dtype.kind in "iu":
        return _int64(array, name)
    if array.dtype.kind == "f":
        raise _no_ids(array, name)
    if array.dtype.kind != "U":
        raise wrong_type(array, name, _IDS)
    return array


def read_times(values: ArrayLike) -> NDArray[Any]:
    """Times as int64 or finite float64, or datetimes to the nanosecond (datetime64[ns]), in UTC; shape (E,).

    Raises:
        DataError: they are no times, one is missing, or out of the range of int64.
    """
    if getattr(getattr(values, "dtype", None), "tz", None) is not None:  # pandas' times with a zone are objects else
        values = np.asarray(values, dtype="datetime64[ns]")
    array = as_vector(values, "time", _TIMES)
    if len(array) and isinstance(array[0], str):
        raise DataError(
            f"time[0] is {shortened(str(array[0]))}, which is text; {_TIMES} are needed: convert it, such as by "
            "pandas.to_datetime(time)."
        )
    if array.dtype.kind == "O":
        array = _times_of_objects(array)
    if array.dtype.kind == "M":
        return _nanoseconds(array)
    if array.dtype.kind in "iu":
        return _int64(array, "time")
    if array.dtype.kind != "f":
        raise wrong_type(array, "time", _TIMES)
    numbers = _float64(array)
    if not np.isfinite(numbers).all():
        first = np.flatnonzero(~np.isfinite(numbers))[0]
        raise DataError(f"time[{first}] is not finite ({array[first]}). Drop such edges.")
    return numbers


def read_weights(values: ArrayLike | None, count: int) -> NDArray[np.float64] | None:
    """Weights as finite float64 of at least 0, shape (E,); None for None.

    Raises:
        DataError: they are no such numbers, or not ``count`` of them.
    """
    if values is None:
        return None
    array = as_vector(values, "weight", "numbers")
    if array.dtype.kind == "O" and _types(array) <= {int, float}:
        array = floats_of_objects(array, "weight")
    if array.dtype.kind not in "iuf":
        raise wrong_type(array, "weight", "numbers", (int, float))
    if array.shape != (count,):
        raise DataError(f"weight has {len(array)} entries and there are {count} edges; {count} numbers are needed.")
    return check_weights(_float64(array))


def check_weights(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same weights.

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


def _types(array: NDArray[Any]) -> set[type]:
    return set(map(type, array.flat))


def _int64(array: NDArray[Any], name: str) -> NDArray[np.int64]:
    if array.dtype.kind == "u" and len(array) and int(array.max()) >= 2**63:
        raise _too_large(name, int(array.argmax()), array.max())
    return array.astype(np.int64, copy=False)


def _too_large(name: str, place: int, value: Any) -> DataError:
    return DataError(f"{name}[{place}] is {value}; whole numbers from -2^63 to below 2^63 are needed.")


def _float64(array: NDArray[Any]) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):  # wider floats become infinite, which is refused
        return array.astype(np.float64, copy=False)


def _refuse_long(values: Any, name: str) -> None:
    if not all(issubclass(each, str) for each in set(map(type, values))):
        return  # no ids; said later
    longest = max(map(len, values), default=0)
    if longest > MAX_ID_LENGTH:
        place = list(map(len, values)).index(longest)
        raise DataError(
            f"{name}[{place}] is {shortened(values[place])}, an id of {longest:,} characters; at most "
            f"{MAX_ID_LENGTH:,} are allowed."
        )


def _ids_of_objects(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Whole numbers or text that were given as objects, such as columns of tables are."""
    types = _types(array)
    if all(issubclass(each, str) for each in types):
        _refuse_long(array, name)
        return array.astype(str)
    if all(issubclass(each, (int, np.integer)) and each is not bool for each in types):
        return _whole(array, name)
    raise wrong_type(array, name, _IDS, _like_the_first(array, (str, (int, np.integer))))


def _like_the_first(array: NDArray[Any], groups: tuple[Any, ...]) -> Any:
    """The types of the group that the first entry belongs to; of all groups where it belongs to none."""
    return next((group for group in groups if isinstance(array[0], group)), groups)


def _whole(array: NDArray[Any], name: str) -> NDArray[np.int64]:
    try:
        return array.astype(np.int64)
    except OverflowError:
        place = next(place for place, value in enumerate(array) if not -(2**63) <= value < 2**63)
        raise _too_large(name, place, shortened(array[place])) from None


def _no_ids(array: NDArray[Any], name: str) -> DataError:
    """Floats are no ids: say whether something is missing, or they only have to be converted."""
    found = f"{name} has type {array.dtype}"
    wrong = np.flatnonzero(~(np.isfinite(array) & (array == np.floor(array))))
    if not len(wrong):
        return DataError(f"{found}; {_IDS} are needed: convert it by .astype(np.int64).")
    advice = "Drop edges without an id." if np.isnan(array[wrong[0]]) else "Number the nodes, or use text."
    return DataError(f"{found} and {name}[{wrong[0]}] is {array[wrong[0]]}; {_IDS} are needed. {advice}")


def _times_of_objects(array: NDArray[Any]) -> NDArray[Any]:
    """Numbers, dates or datetimes that were given as Python's or pandas' own objects.

    Raises:
        DataError: they are something else, or only some of them have a time zone.
    """
    types = _types(array)
    if types <= {int}:
        return _whole(array, "time")
    if types <= {int, float}:
        return floats_of_objects(array, "time")
    of_pandas = all(hasattr(each, "to_datetime64") for each in types)
    if not (of_pandas or types <= {date, datetime}):
        raise wrong_type(array, "time", _TIMES, _like_the_first(array, ((int, float), (date, np.datetime64))))
    there = np.equal(array, array).astype(bool)  # NaT is not itself
    zoned = {getattr(value, "tzinfo", None) is not None for value in array[there]}
    if len(zoned) > 1:
        raise DataError("some entries of time have a time zone and some have none. Give all of them one, or none.")
    if of_pandas:
        return np.array([value.to_datetime64() for value in array])
    if True in zoned:
        try:
            array = np.array([value.astimezone(UTC).replace(tzinfo=None) for value in array], dtype=object)
        except OverflowError as error:
            raise DataError(f"time cannot be converted to UTC: {error}. Years 1678 to 2261 can be kept.") from error
    return np.array(array, dtype="datetime64[us]")


def _nanoseconds(array: NDArray[Any]) -> NDArray[Any]:
    if np.isnat(array).any():
        raise DataError(f"time[{np.flatnonzero(np.isnat(array))[0]}] is not a time (NaT). Drop such edges.")
    years = array.astype("datetime64[Y]").astype(np.int64) + 1970
    wrong = np.flatnonzero((years < 1678) | (years > 2261))
    if len(wrong):
        raise DataError(f"time[{wrong[0]}] is {array[wrong[0]]}; years 1678 to 2261 can be kept to the nanosecond.")
    return array.astype("datetime64[ns]")


# Times as messages show them: nanoseconds that were dates as dates, numbers as they are.


_CENTURY = 36_525 * 86_400e9  # in nanoseconds


class SpokenTimes:
    """Words for the times of edges.

    Args:
        times: shape (E,), at least one of them: numbers, or nanoseconds since 1970.
        dates: whether they are such nanoseconds.
    """

    def __init__(self, times: NDArray[Any], *, dates: bool) -> None:
        self._first, self._last, self._dates = times.min(), times.max(), dates

    def time(self, value: Any) -> str:
        """A time."""
        if not self._dates:
            return str(value)
        return str(np.datetime64(int(value), "ns")).removesuffix(".000000000").removesuffix("T00:00:00")

    def length(self, value: Any) -> str:
        """A length of time."""
        if not self._dates:
            return f"{value:.15g}"
        if not 1000 <= value < _CENTURY:
            return f"{value:g} ns" if value < 1000 else f"{value / 86_400e9:.3g} days"
        return str(timedelta(microseconds=float(value) / 1000))

    def range(self) -> str:
        """From the first to the last."""
        ends = f"times run from {self.time(self._first)} to {self.time(self._last)}"
        return f"{ends}, a span of {self.length(self._last - self._first)}"
