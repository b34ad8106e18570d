"""Times as messages show them: nanoseconds that were dates as dates, numbers as they are."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
