"""What a step would take under every window and allocation: counted in the batches ahead, timed by recent fetches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.control.small_fit import relative_line
from dtdg_lab.core.feature_path import WINDOWS, CacheActions
from dtdg_lab.features.boundary import Boundary
from dtdg_lab.features.lookahead import Lookahead

LEAST_S = 1e-9
RECENT = 60  # fetches of an owner that its rate is told by
FEW = 8  # fetches since links changed that no line is put through yet
Seconds = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class Forecast:
    """Seconds of every action, (A,), for delays (P - 1,): of a step, and of a whole rebuild."""

    def __init__(self, steps: Seconds, rebuilds: Seconds) -> None:
        self._steps, self.rebuilds = steps, rebuilds

    def __call__(self, delays_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds of a step of every action."""
        return self._steps(delays_s)


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
        self._before: list[tuple[float, float] | None] = [None] * others  # lines of before links changed
        self._quickest_s = np.full(others, np.inf)  # of each owner's fetches ever
        self._least = np.full(others, np.inf)  # seconds a byte of each owner at its best

    def hear(self, boundary: Boundary, known: Sequence[int] | None = None) -> None:
        """Take in the fetches since the last boundary.

        Args:
            boundary: that has them.
            known: of each owner, how many of the newest are of the links as they are now; all where None. Until there
                are eight, the line of before is scaled to them.
        """
        for of in boundary.fetches:
            place = of.owner - (of.owner > boundary.part)
            self._recent[place].append((of.nbytes, of.rtt_s))
            self._quickest_s[place] = min(self._quickest_s[place], of.rtt_s)
        for place, count in enumerate(known or ()):
            recent = self._recent[place]
            if count < min(len(recent), FEW):
                self._before[place] = self._before[place] or _line(recent)
            while len(recent) > max(count, 1) and count < RECENT // 2:
                recent.popleft()
            if len(recent) >= FEW:
                self._before[place] = None

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
        lines = np.array([_line(recent, before) for recent, before in zip(self._recent, self._before, strict=True)])
        self._least = np.minimum(self._least, lines[:, 1])
        more_s, throttled = np.maximum(lines[:, 0] - self._quickest_s, 0.0), lines[:, 1] - self._least
        counted: list[tuple[NDArray[np.float64], NDArray[np.float64], int]] = []

        def links(delays_s: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            if not counted:
                counted.extend(self._count(ahead))
            now = late_s > 0
            share = np.clip(np.divide(delays_s, late_s, out=np.ones_like(late_s), where=now), 0.0, 1.0)
            beyond_s = np.maximum(delays_s - late_s, 0.0)  # later than they are now
            starts = self._quickest_s + np.where(now, share * more_s + beyond_s, delays_s)
            return starts, (self._least + np.where(now, share, 1.0) * throttled) * self._row_bytes

        def seconds(delays_s: NDArray[np.float64]) -> NDArray[np.float64]:
            starts, per_row = links(delays_s)
            return np.array([_step_s(of, starts, per_row, base_s) for of in counted])

        def rebuilds(delays_s: NDArray[np.float64]) -> NDArray[np.float64]:
            starts, per_row = links(delays_s)
            return np.array([_slowest_s(fetched, starts, per_row) for _, fetched, _ in counted])

        return Forecast(seconds, rebuilds)

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


def _line(recent: deque[tuple[int, float]], before: tuple[float, float] | None = None) -> tuple[float, float]:
    """Seconds of an owner's fetch without bytes, and seconds a byte; a line of before, scaled, where they are few."""
    sizes, times = (np.array(of, dtype=np.float64) for of in zip(*recent, strict=True))
    if before is not None and len(sizes) < FEW:
        scale = float(np.median(times / np.maximum(before[0] + before[1] * sizes, LEAST_S)))
        return scale * before[0], scale * before[1]
    if np.ptp(sizes) == 0:  # nothing tells them apart: what it takes is its start
        return float(np.median(times)), 0.0
    return relative_line(sizes, times)


def _step_s(
    counted: tuple[NDArray[np.float64], NDArray[np.float64], int], starts: NDArray[np.float64],
    per_row: NDArray[np.float64], base_s: float,
) -> float:  # fmt: skip
    missed, fetched, window = counted
    miss_s, rebuild_s = (_slowest_s(rows, starts, per_row) for rows in (missed, fetched))
    return max(base_s, miss_s, rebuild_s / window) + float(starts.min()) / window


def _slowest_s(rows: NDArray[np.float64], starts: NDArray[np.float64], per_row: NDArray[np.float64]) -> float:
    """Seconds until the slowest owner has sent rows (P - 1,); of one of whom few are missed, most steps ask nothing."""
    return float(np.max(starts * -np.expm1(-rows) + per_row * rows))
