"""The length of a base interval as users write it: a number, a length of time, or dates of the calendar."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta, tzinfo
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError, DataError, shortened
from dtdg_lab.core.options import option
from dtdg_lab.graphs.calendar import Calendar

IntervalLength = float | str | timedelta | np.timedelta64 | Any  # or an offset of pandas, which is not imported here
_NO_LENGTH = ("Y", "M", "generic")  # of numpy's units
_ALLOWED = (
    "a length such as '6h', '1d', '1w', '90min' or a timedelta; or days, weeks, months, quarters or years of the "
    "calendar as pandas calls them: 'D', 'W', 'MS', 'QS', 'YS', also as in '2MS' or 'W-WED'"
)


def check_one_way(cut: int, interval: float | Calendar) -> None:
    """Refuse a number of intervals and a length of them at once: one of the two would be ignored.

    Raises:
        ConfigError: both are given.
    """
    if cut and interval:
        raise ConfigError(
            f"cut={cut} and interval={_shown(interval)} are both given: cut is how many intervals there are, interval "
            "how long each is. Give one, and 0 for the other."
        )


def read_interval(interval: IntervalLength, times: NDArray[Any], cut_by: str, zone: tzinfo | None) -> float | Calendar:
    """Return the length of a base interval: in the unit of ``times``, in edges, or by the calendar; 0 for none.

    Args:
        interval: as :func:`dtdg_lab.datasets.from_edges` takes it.
        times: shape (E,), as ``read_times`` returns them.
        cut_by: ``time`` or ``edges``.
        zone: time zone of the times, whose calendar counts; None for UTC.

    Raises:
        DataError: a length of time for times that are numbers, or a text that is no length.
        ConfigError: a number out of the bounds of the option.
    """
    length = parse_interval(interval, zone)
    if not isinstance(length, timedelta | Calendar):
        return float(replace(option("interval"), high=None).check(length))
    if cut_by == "edges":
        raise DataError(
            f"interval={shortened(interval)} is a length of time, and the edges are cut by edges: give a number of "
            "edges."
        )
    if times.dtype.kind != "M":
        raise DataError(
            f"interval={shortened(interval)} is a length of time, and the edges have times that are numbers: give a "
            "number in their unit; or time_format='s' if they are seconds since 1970, and so on."
        )
    if isinstance(length, Calendar):
        return length
    nanoseconds = length / timedelta(microseconds=1) * 1000 + getattr(length, "nanoseconds", 0)
    return float(replace(option("interval"), high=None).check(nanoseconds))  # the unit that datetimes become


def parse_interval(interval: IntervalLength, zone: tzinfo | None = None) -> Any:
    """Return a length of time as a timedelta, dates as a calendar, and anything else as it is.

    Raises:
        DataError: a text that is no length; or one in months or years that are not those of the calendar.
    """
    if isinstance(interval, np.timedelta64):
        unit, _ = np.datetime_data(interval.dtype)
        if unit in _NO_LENGTH or np.isnat(interval):
            raise DataError(f"interval={interval!r} has no fixed length; {_ALLOWED} is allowed.")
    elif isinstance(interval, str):
        interval = _parse_text(interval.strip())
    if isinstance(interval, np.timedelta64):
        import pandas as pd

        try:
            return pd.Timedelta(interval)
        except (OverflowError, ValueError) as error:
            raise DataError(f"interval={shortened(interval)} is too long; at most 292 years are allowed.") from error
    if hasattr(interval, "rollback") and hasattr(interval, "freqstr"):  # an offset of pandas
        return _parse_offset(interval, zone)
    return interval


def _shown(interval: float | Calendar) -> str:
    return str(interval) if isinstance(interval, Calendar) else f"{interval:g}"


def seconds_of(interval: IntervalLength) -> Any:
    """Return a length of time in seconds, for times that count in seconds; anything else as it is.

    Raises:
        DataError: it is no length, or depends on the calendar.
    """
    length = parse_interval(interval)
    if isinstance(length, Calendar):
        raise DataError(
            f"interval={shortened(interval)} is of the calendar, and the times of this data set are seconds: give a "
            "length such as '30d', or the number of seconds."
        )
    return length.total_seconds() if isinstance(length, timedelta) else interval


def _parse_text(text: str) -> Any:
    """Return a timedelta or an offset of pandas."""
    import pandas as pd

    short = re.fullmatch(r"(-?[\d.]*) ?([dw])", text)  # pandas is about to write them in capitals only
    if short is not None:
        return pd.Timedelta(f"{short[1] or 1}{short[2].upper()}")
    readers: tuple[Any, ...] = (pd.tseries.frequencies.to_offset, pd.Timedelta)
    if re.fullmatch(r"[\d.+-]*[^A-Z]*", text):  # pandas writes lengths in small letters, dates in capitals
        readers = (pd.Timedelta, pd.tseries.frequencies.to_offset)
    for reader in readers:
        try:
            length = reader(text)
        except ValueError:
            continue
        if text and length is not None and not pd.isna(length):
            return length
    raise DataError(f"interval={shortened(text)} is no length of time; {_ALLOWED} is allowed.")


def _parse_offset(offset: Any, zone: tzinfo | None) -> Any:
    import pandas as pd

    if isinstance(offset, pd.offsets.Tick) and not isinstance(offset, pd.offsets.Day):
        return pd.Timedelta(offset.nanos, unit="ns")
    if offset.n < 1:
        raise ConfigError(f"interval={shortened(offset.freqstr)} goes back in time; {_ALLOWED} is allowed.")
    return Calendar(offset, zone)
