"""AttemptClock: seconds of training. The time between two attempts does not count."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dtdg_lab.records.rows import Array


class AttemptClock:
    """Converts the clocks of records to seconds of training."""

    def __init__(self) -> None:
        self._started_ns: dict[int, int] = {}  # attempt -> when rank 0 began it
        self._first_ns: dict[int, int] = {}  # attempt -> the first sign of it
        self._newest_ns: dict[int, int] = {}

    def note(self, attempt: int, first_ns: int, newest_ns: int) -> None:
        """Note the first and the newest sign of an attempt."""
        self._first_ns[attempt] = min(first_ns, self._first_ns.get(attempt, first_ns))
        self._newest_ns[attempt] = max(newest_ns, self._newest_ns.get(attempt, newest_ns))

    def start(self, attempt: int, time_ns: int) -> bool:
        """Note when rank 0 began an attempt; return whether the seconds of earlier rows change."""
        changes = self._origin(attempt) not in (None, time_ns)
        self._started_ns[attempt] = time_ns
        return changes

    def _origin(self, attempt: int) -> int | None:
        """Return when an attempt began, in ns; None before there is a sign of it."""
        return self._started_ns.get(attempt, self._first_ns.get(attempt))

    def seconds_before(self) -> dict[int, float]:
        """Return the seconds of training before each attempt."""
        seconds, total_s = {}, 0.0
        for attempt, first_ns in sorted((self._first_ns | self._started_ns).items()):
            seconds[attempt] = total_s
            total_s += max(0, self._newest_ns.get(attempt, first_ns) - first_ns) / 1e9
        return seconds

    def seconds_at(self, attempt: int, time_ns: int) -> float:
        """Return the seconds of training until an instant of an attempt."""
        origin_ns = self._origin(attempt)
        since_s = 0.0 if origin_ns is None else max(0, time_ns - origin_ns) / 1e9
        return self.seconds_before().get(attempt, 0.0) + since_s

    def seconds_of(self, attempts: Array, times_ns: Array) -> Array:
        """Return the seconds of training until instants of attempts."""
        seconds = np.zeros(len(times_ns))
        for attempt, before_s in self.seconds_before().items():
            mask = attempts == attempt
            seconds[mask] = before_s + np.maximum(0, times_ns[mask] - self._origin(attempt)) / 1e9
        return seconds

    def attempts_at(self, seconds: ArrayLike) -> Array:
        """Return the attempt that had begun by each of these seconds of training."""
        starts = self.seconds_before()
        indices = np.searchsorted([*starts.values()], np.asarray(seconds, np.float64), side="right") - 1
        return np.array([*starts], np.int64)[np.maximum(indices, 0)]

    @property
    def seconds(self) -> float:
        """Seconds of training so far."""
        return max((self.seconds_at(attempt, time_ns) for attempt, time_ns in self._newest_ns.items()), default=0.0)
