"""Read the times of edges: numbers, dates, or texts of a format. Write them in messages."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import ConfigError, DataError, shortened
from dtdg_lab.graphs.edge_list import (
    as_float64,
    as_int64,
    as_vector,
    floats_of_objects,
    types_like_the_first,
    types_of,
    whole_of_objects,
    wrong_type,
)

_TIMES = "numbers or datetimes"
OUT_OF_RANGE = (
    "dates are kept to the nanosecond, in the years 1678 to 2261. Give times outside as numbers, such as years or days."
)
UNITS = ("D", "s", "ms", "us", "ns")  # of numbers since 1970
# whole numbers that may be dates: digits, the format, and what each field is divided by
_WRITTEN_DATES = ((8, "%Y%m%d", 1), (6, "%Y%m", 0), (14, "%Y%m%d%H%M%S", 1), (12, "%Y%m%d%H%M", 1))


def parse_times(
    values: ArrayLike, time_format: str | None, row_name: Callable[[int], str] = lambda row: f"time[{row}]"
) -> Any:
    """Parse texts or numbers into pandas datetimes; without a format, return the values unchanged.

    Args:
        values: shape (E,): texts, or numbers.
        time_format: ``D``, ``s``, ``ms``, ``us`` or ``ns`` for numbers since 1970 in UTC; or a format of
            ``strftime`` such as ``%d.%m.%Y`` or ``%Y%m%d``, or ``ISO8601``. None changes nothing.
        row_name: returns the name of a row in messages; rows count from 0.

    Raises:
        DataError: a value does not have the format; the message names the first.
        ConfigError: there is no such format.
    """
    if time_format is None:
        return values
    if not isinstance(time_format, str) or not (time_format in (*UNITS, "ISO8601") or "%" in time_format):
        raise ConfigError(
            f"time_format={shortened(time_format)}; one of {', '.join(UNITS)} for numbers since 1970, a format such "
            "as '%Y-%m-%d %H:%M' or '%Y%m%d', or 'ISO8601' is allowed."
        )
    import pandas as pd

    if time_format in UNITS:
        array = as_vector(values, "time", "numbers")
        if array.dtype.kind not in "iuf":
            raise wrong_type(array, "time", f"numbers, since time_format={time_format!r},", (int, float))
        if array.dtype.kind == "f":
            array = _whole_nanoseconds(array, time_format)
            time_format = "ns"
        try:
            return pd.to_datetime(array, unit=time_format)
        except (ValueError, OverflowError) as error:
            raise DataError(
                f"time cannot be read as {time_format!r} since 1970: {str(error).rstrip('.')}. Times run from "
                f"{array.min()} to {array.max()}: give the unit they are in."
            ) from error
    texts = pd.Series(_texts(values))
    try:
        parsed = pd.to_datetime(texts, format=time_format, errors="coerce")
    except ValueError:  # rows with several zones: all are converted
        parsed = pd.to_datetime(texts, format=time_format, errors="coerce", utc=True)
    wrong = np.flatnonzero(parsed.isna())
    if len(wrong):
        raise DataError(
            f"{row_name(int(wrong[0]))} is {shortened(texts.iloc[wrong[0]])}, which "
            f"time_format={time_format!r} does not "
            "fit. Correct the row, or give the format that all rows have."
        )
    return parsed


_NANOSECONDS = {"D": 86_400 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def _whole_nanoseconds(times: NDArray[Any], unit: str) -> NDArray[Any]:
    """Return float times in whole nanoseconds, rounded to the precision of the floats.

    1/24 of a day is then 3,600 s, not 3,599.999999997: rounding of floats must not decide a cut. Values too large for
    64 bits stay floats, and are refused later.
    """
    exact_to = 4 * float(np.finfo(times.dtype).eps) * float(np.abs(times).max(initial=0.0)) * _NANOSECONDS[unit]
    step = 10 ** max(0, math.ceil(math.log10(exact_to))) if 0 < exact_to < math.inf else 1
    with np.errstate(over="ignore"):  # what becomes infinite is refused later
        steps = np.rint(times.astype(np.float64) * (_NANOSECONDS[unit] / step))
        if not np.isfinite(steps).all() or np.abs(steps).max(initial=0.0) * step >= 2**63:
            return steps * float(step)
    return steps.astype(np.int64) * step


def _texts(values: ArrayLike) -> Any:
    """Return times as texts; whole numbers without a decimal point."""
    array = np.asarray(values)
    if array.dtype.kind == "f" and (array == np.floor(array)).all():
        array = array.astype(np.int64)
    return array.astype(str) if array.dtype.kind != "O" else [str(value) for value in array]


def zone_of(values: Any) -> tzinfo | None:
    """Return the time zone of datetimes, or None. Where they are objects, the first one decides."""
    zone = getattr(getattr(values, "dtype", None), "tz", None)
    if zone is None and len(values) and hasattr(values, "__iter__"):
        zone = getattr(next(iter(values)), "tzinfo", None)
    return zone


def warn_of_dates(times: NDArray[Any]) -> None:
    """Warn where whole numbers look like dates that are written without separators, such as 20240328."""
    if times.dtype.kind != "i" or not len(times):
        return
    low, high = int(times.min()), int(times.max())
    for digits, time_format, has_days in _WRITTEN_DATES:
        if not (low // 10 ** (digits - 4) >= 1900 and high // 10 ** (digits - 4) <= 2100):
            continue
        months, days = times // 10 ** (digits - 6) % 100, times // 10 ** max(digits - 8, 0) % 100
        if (months >= 1).all() and (months <= 12).all() and (not has_days or ((days >= 1) & (days <= 31)).all()):
            warnings.warn(
                f"times such as {low} look like dates and are taken as numbers: from {low} to {high}. "
                f"Give time_format={time_format!r} if they are dates.",
                stacklevel=4,
            )
            return


def read_times(values: ArrayLike) -> NDArray[Any]:
    """Return times as int64, finite floats, or datetimes to the nanosecond (datetime64[ns]) in UTC; shape (E,).

    Floats narrower than float64 keep their type, which tells their precision.

    Raises:
        DataError: a value is no time, is missing, or is out of the range of int64.
    """
    if getattr(getattr(values, "dtype", None), "tz", None) is not None:  # pandas' times with a zone are objects else
        import pandas as pd

        values = pd.DatetimeIndex(values).tz_convert("UTC").tz_localize(None).to_numpy()
    array = as_vector(values, "time", _TIMES)
    if len(array) and isinstance(array[0], str):
        raise DataError(
            f"time[0] is {shortened(str(array[0]))}, which is text; {_TIMES} are needed: say how times are written, "
            "such as time_format='%Y-%m-%d', or convert it, such as by pandas.to_datetime(time)."
        )
    if array.dtype.kind == "O":
        array = _times_of_objects(array)
    if array.dtype.kind == "M":
        return _nanoseconds(array)
    if array.dtype.kind in "iu":
        return as_int64(array, "time")
    if array.dtype.kind != "f":
        raise wrong_type(array, "time", _TIMES)
    finite = array if array.dtype.itemsize < np.float64().itemsize else as_float64(array)
    if not np.isfinite(finite).all():
        first = np.flatnonzero(~np.isfinite(finite))[0]
        raise DataError(f"time[{first}] is not finite ({array[first]}). Drop such edges.")
    return finite


def _times_of_objects(array: NDArray[Any]) -> NDArray[Any]:
    """Convert numbers, dates or datetimes that are objects of Python or pandas.

    Raises:
        DataError: a value is something else, or only some of them have a time zone.
    """
    types = types_of(array)
    if types <= {int}:
        return whole_of_objects(array, "time")
    if types <= {int, float, Decimal}:
        return floats_of_objects(array, "time")
    of_pandas = all(hasattr(value_type, "to_datetime64") for value_type in types)
    if not (of_pandas or types <= {date, datetime}):
        raise wrong_type(array, "time", _TIMES, types_like_the_first(array, ((int, float), (date, np.datetime64))))
    present = np.equal(array, array).astype(bool)  # NaT is not itself
    zoned = np.array([getattr(value, "tzinfo", None) is not None for value in array])
    mixed = np.flatnonzero(present & (zoned != zoned[present.argmax()]))
    if len(mixed):
        first, conflicting = int(present.argmax()), int(mixed[0])
        raise DataError(
            f"some entries of time have a time zone and some have none: time[{first}] is {array[first]}, "
            f"time[{conflicting}] is {array[conflicting]}. Give all of them one, or none."
        )
    if of_pandas:
        return np.array([value.to_datetime64() for value in array])
    if zoned.any():
        try:
            array = np.array([value.astimezone(UTC).replace(tzinfo=None) for value in array], dtype=object)
        except OverflowError as error:
            raise DataError(f"time cannot be converted to UTC: {error}; {OUT_OF_RANGE}") from error
    return np.array(array, dtype="datetime64[us]")


def _nanoseconds(array: NDArray[Any]) -> NDArray[Any]:
    if np.isnat(array).any():
        raise DataError(f"time[{np.flatnonzero(np.isnat(array))[0]}] is not a time (NaT). Drop such edges.")
    years = array.astype("datetime64[Y]").astype(np.int64) + 1970
    wrong = np.flatnonzero((years < 1678) | (years > 2261))
    if len(wrong):
        raise DataError(f"time[{wrong[0]}] is {array[wrong[0]]}; {OUT_OF_RANGE}")
    return array.astype("datetime64[ns]")


# Times in messages: dates for nanoseconds that were dates, numbers unchanged.


_CENTURY = 36_525 * 86_400e9  # in nanoseconds


class TimeFormatter:
    """Formats the times of edges for messages.

    Args:
        times: shape (E,), at least one: numbers, or nanoseconds since 1970.
        dates: whether they are nanoseconds since 1970.
    """

    def __init__(self, times: NDArray[Any], *, dates: bool) -> None:
        self._first, self._last, self._dates = times.min(), times.max(), dates

    def time(self, value: Any) -> str:
        """Format a time."""
        if not self._dates:
            return str(value)
        return str(np.datetime64(int(value), "ns")).removesuffix(".000000000").removesuffix("T00:00:00")

    def length(self, value: Any) -> str:
        """Format a length of time."""
        if not self._dates:
            return f"{value:.15g}"
        if not 1000 <= value < _CENTURY:
            return f"{value:g} ns" if value < 1000 else f"{value / 86_400e9:.3g} days"
        return str(timedelta(microseconds=float(value) / 1000))

    def range(self) -> str:
        """Format the range from the first time to the last."""
        ends = f"times run from {self.time(self._first)} to {self.time(self._last)}"
        return f"{ends}, a span of {self.length(self._last - self._first)}"
