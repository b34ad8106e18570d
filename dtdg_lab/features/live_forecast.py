"""What a step would take under every window and allocation: counted in the batches ahead, timed by recent fetches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.control.small_fit import relative_line
from dtdg_lab.core.feature_path import WINDOWS, CacheActions
from dtdg_lab.features.boundary import Boundary
from dtdg_lab.features.lookahead import Lookahead

RECENT = 60  # fetches of an owner that its rate is told by
Forecast = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class LiveForecast:
    """Seconds per step of each action, for one part.

    A step takes as long as the longest of three things that go on beside each other: training, the fetch of what a
    batch misses, and the rebuild, which has the window's steps for it. A rebuild costs training as long as initiating
    a fetch, so that of windows that are as good the longest is the cheapest. Owners are asked at once, so that the
    slowest decides.

    A fetch takes a line over its bytes, put through each owner's recent fetches: what its start has over the quickest
    fetch ever is the delay in it, what its slope has over the least ever a throttled link. Links that are thought less
    late than now are thought less throttled in proportion.

    Args:
        actions: what may be chosen.
        row_bytes: of a row of features.

    References: ours (see :class:`dtdg_lab.control.cache_planner.CachePlanner`); GreenDyGNN equation 1 has the terms.
    """

    def __init__(self, actions: CacheActions, *, row_bytes: int) -> None:
        self._actions, self._row_bytes = actions, row_bytes
        others = actions.parts - 1
        self._recent: list[deque[tuple[int, float]]] = [deque(maxlen=RECENT) for _ in range(others)]
        self._quickest_s = np.full(others, np.inf)  # of each owner's fetches ever
        self._least = np.full(others, np.inf)  # seconds a byte of each owner at its best

    def hear(self, boundary: Boundary) -> None:
        """Take in the fetches since the last boundary."""
        for of in boundary.fetches:
            place = of.owner - (of.owner > boundary.part)
            self._recent[place].append((of.nbytes, of.rtt_s))
            self._quickest_s[place] = min(self._quickest_s[place], of.rtt_s)

    def clean_law(self) -> tuple[float, float] | None:
        """Seconds of a fetch without bytes, and seconds a byte, at their best over owners; None before any."""
        if not np.isfinite(self._quickest_s).all() or not np.isfinite(self._least).all():
            return None
        return float(np.median(self._quickest_s)), float(np.median(self._least))

    def of(self, ahead: Lookahead, *, base_s: float, late_s: NDArray[np.float64]) -> Forecast | None:
        """The forecast for the batches ahead; None while some owner has not been asked yet.

        Args:
            ahead: batches that are sampled.
            base_s: seconds of a step for which nothing is waited.
            late_s: (P - 1,) by which each owner's replies are thought to be late now.
        """
        if not all(self._recent):
            return None
        lines = np.array([_line(recent) for recent in self._recent])
        self._least = np.minimum(self._least, lines[:, 1])
        more_s, throttled = np.maximum(lines[:, 0] - self._quickest_s, 0.0), lines[:, 1] - self._least
        counted: list[tuple[NDArray[np.float64], NDArray[np.float64], int]] = []

        def seconds(delays_s: NDArray[np.float64]) -> NDArray[np.float64]:
            if not counted:
                counted.extend(self._count(ahead))
            now = late_s > 0
            share = np.clip(np.divide(delays_s, late_s, out=np.ones_like(late_s), where=now), 0.0, 1.0)
            beyond_s = np.maximum(delays_s - late_s, 0.0)  # later than they are now
            starts = self._quickest_s + np.where(now, share * more_s + beyond_s, delays_s)
            per_row = (self._least + np.where(now, share, 1.0) * throttled) * self._row_bytes
            return np.array([_step_s(of, starts, per_row, base_s) for of in counted])

        return seconds

    def _count(self, ahead: Lookahead) -> list[tuple[NDArray[np.float64], NDArray[np.float64], int]]:
        """Of each action: rows a step misses of each owner, rows its rebuild fetches, and its window."""
        found: list[tuple[NDArray[np.float64], NDArray[np.float64], int]] = []
        for action in range(len(self._actions)):
            window = self._actions.window(action)
            if window > ahead.steps and action % len(WINDOWS) and WINDOWS[action % len(WINDOWS) - 1] >= ahead.steps:
                missed, fetched, _ = found[-1]  # no more batches are known than for the window before
            else:
                outlook = ahead.outlook(window, self._actions.shares(action))
                missed, fetched = outlook.missed, outlook.fetched
            found.append((missed, fetched, window))
        return found


def _line(recent: deque[tuple[int, float]]) -> tuple[float, float]:
    """Seconds of an owner's fetch without bytes, and seconds a byte."""
    sizes, times = (np.array(of, dtype=np.float64) for of in zip(*recent, strict=True))
    if np.ptp(sizes) == 0:  # nothing tells them apart: what it takes is its start
        return float(np.median(times)), 0.0
    return relative_line(sizes, times)


def _step_s(
    counted: tuple[NDArray[np.float64], NDArray[np.float64], int], starts: NDArray[np.float64],
    per_row: NDArray[np.float64], base_s: float,
) -> float:  # fmt: skip
    missed, fetched, window = counted
    # of an owner of whom few rows are missed, most steps ask nothing
    miss_s, rebuild_s = (float(np.max(starts * -np.expm1(-rows) + per_row * rows)) for rows in (missed, fetched))
    return max(base_s, miss_s, rebuild_s / window) + float(starts.min()) / window
