"""Reading the vectors of an edge list that somebody gives: ids, times, weights."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import DataError, shortened
from dtdg_lab.graphs.given import as_vector, floats_of_objects, wrong_type

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
    return array.astype(np.int64)


def _too_large(name: str, place: int, value: Any) -> DataError:
    return DataError(f"{name}[{place}] is {value}; whole numbers from -2^63 to below 2^63 are needed.")


def _float64(array: NDArray[Any]) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):  # wider floats become infinite, which is refused
        return array.astype(np.float64)


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
    advice = "Drop edges without an id." if np.isnan(array[wrong[0]]) else "Number the vertices, or use text."
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
