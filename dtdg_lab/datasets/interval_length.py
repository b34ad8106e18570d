"""The length of a base interval as users write it: a number, a length of time, or dates of the calendar."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta, tzinfo
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config.options import option
from dtdg_lab.core.errors import ConfigError, DataError, shortened
from dtdg_lab.core.time_length import LENGTHS, is_offset, parse_length
from dtdg_lab.graphs.calendar import Calendar

IntervalLength = float | str | timedelta | np.timedelta64 | Any  # or an offset of pandas, which is not imported here


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
        DataError: a length of time for times that are numbers.
        ConfigError: a text that is no length, or a number out of the bounds of the option.
    """
    length = parse_length(interval, "interval")
    if not isinstance(length, timedelta) and not is_offset(length):
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
    if not isinstance(length, timedelta):
        return _calendar_of(length, zone)
    nanoseconds = length / timedelta(microseconds=1) * 1000 + getattr(length, "nanoseconds", 0)
    return float(replace(option("interval"), high=None).check(nanoseconds))  # the unit that datetimes become


def _shown(interval: float | Calendar) -> str:
    return str(interval) if isinstance(interval, Calendar) else f"{interval:g}"


def _calendar_of(offset: Any, zone: tzinfo | None) -> Calendar:
    if offset.n < 1:
        raise ConfigError(f"interval={shortened(offset.freqstr)} goes back in time; {LENGTHS}, is allowed.")
    return Calendar(offset, zone)
