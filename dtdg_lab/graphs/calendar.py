"""Base intervals of the calendar: days, weeks, months, quarters or years of a time zone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError


@dataclass(frozen=True, slots=True)
class Calendar:
    """Base intervals that begin at midnight of calendar dates.

    Attributes:
        offset: a pandas offset, such as ``Day()``, ``Week(weekday=6)``, ``MonthBegin()`` or ``MonthEnd()``. Where it
            names the end of a period (a week that ends on Sunday, a month's end), the next period begins at the
            midnight after it.
        zone: the time zone whose midnights count; None counts those of UTC.
    """

    offset: Any
    zone: tzinfo | None = None

    def __str__(self) -> str:
        return repr(getattr(self.offset, "freqstr", str(self.offset)))

    def starts(self, first: int, last: int, limit: int) -> NDArray[np.int64]:
        """Return the starts of all intervals from the one that holds ``first`` to the one after ``last``.

        Args:
            first: earliest time, in nanoseconds since 1970 in UTC.
            last: latest time.
            limit: most intervals allowed.

        Returns:
            Shape (B + 1,), rising, in nanoseconds since 1970 in UTC: interval b holds the times from ``starts[b]``
            up to, not including, ``starts[b + 1]``.

        Raises:
            DataError: there would be more than ``limit``, or the last would end after the year 2261.
        """
        import pandas as pd

        one_day = pd.Timedelta(days=1)
        shift = one_day if _ends_a_period(self.offset) else pd.Timedelta(0)
        midnight = self._local(first).normalize()
        start = self.offset.rollback(midnight - shift)  # the newest boundary that is not after the first time
        local_last, dates = self._local(last), [start + shift]
        try:
            while dates[-1] <= local_last:
                if len(dates) > limit:
                    raise DataError(
                        f"interval={self} makes more than {limit:,} base intervals; at most {limit:,} are allowed. "
                        "Give a longer interval, or cut=n, the number of intervals."
                    )
                start = start + self.offset
                dates.append(start + shift)
            zoned = pd.DatetimeIndex(dates).tz_localize(
                self.zone or "UTC", nonexistent="shift_forward", ambiguous=np.ones(len(dates), dtype=bool)
            )
            return zoned.tz_convert("UTC").tz_localize(None).to_numpy("datetime64[ns]").view(np.int64)
        except (OverflowError, ValueError) as error:  # pandas' OutOfBoundsDatetime is a ValueError
            raise DataError(
                f"interval={self} has no end for times up to {local_last}: {error}. Years 1678 to 2261 are allowed."
            ) from error

    def _local(self, nanoseconds: int) -> Any:
        """Return a time as the clocks of the zone show it, without a zone."""
        import pandas as pd

        return pd.Timestamp(int(nanoseconds), unit="ns", tz="UTC").tz_convert(self.zone or "UTC").tz_localize(None)


def _ends_a_period(offset: Any) -> bool:
    """Return True if pandas names the period of an offset by its last day."""
    kind = type(offset).__name__
    return kind.endswith("End") or (kind == "Week" and offset.weekday is not None)
