"""Predicted step time of every action, from counts in the batches ahead and times of recent fetches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.systems.feature_cache.actions import WINDOWS, CacheActions
from dtdg_lab.systems.feature_cache.calibration.fits import relative_line
from dtdg_lab.systems.feature_cache.pipeline.observations import Boundary
from dtdg_lab.systems.feature_cache.pipeline.window_schedule import Lookahead

LEAST_S = 1e-9
RECENT = 60  # fetches of an owner that determine its line
FEW = 8  # minimum number of fetches for a line after a change of links
LINE_ROUNDS = 10  # of a line's fit: the last digits do not matter here, and the fit delays training
Seconds = Callable[[NDArray[np.float64]], NDArray[np.float64]]
_Counts = tuple[NDArray[np.float64], NDArray[np.float64], int]


class ActionSeconds(NamedTuple):
    """Functions from delays (P - 1,) to the seconds of every action, (A,).

    Attributes:
        steps: seconds of a step.
        rebuilds: seconds of a whole rebuild.
    """

    steps: Seconds
    rebuilds: Seconds


class LiveForecast:
    """Predicted seconds per step of each action, for one part.

    A step takes the maximum of three concurrent times: training, the fetch of a batch's misses, and the rebuild,
    which is spread over the window's steps. A rebuild delays training by the initiation of a fetch and by the
    processor time of its decision, as where all cores are busy; so the longest of equally good windows is the
    cheapest. Owners are requested at once, so the slowest determines the time.

    The time of a fetch is a linear function of its bytes, fitted to each owner's recent fetches. Its delay is the
    excess of the intercept over the fastest fetch so far; its throttling is the excess of the slope over the smallest
    so far. For a smaller assumed delay than the current one, throttling is reduced in proportion.

    Args:
        actions: the possible actions.
        row_bytes: bytes of a row of features.

    References: ours (see :class:`dtdg_lab.systems.feature_cache.policies.planner.CachePlanner`), with the terms of
    GreenDyGNN equation 1.
    """

    def __init__(self, actions: CacheActions, *, row_bytes: int) -> None:
        self._actions, self._row_bytes = actions, row_bytes
        num_others = actions.parts - 1
        self._recent: list[deque[tuple[int, float]]] = [deque(maxlen=RECENT) for _ in range(num_others)]
        self._before: list[tuple[float, float] | None] = [None] * num_others  # lines from before links changed
        self._quickest_s = np.full(num_others, np.inf)  # seconds of each owner's fastest fetch so far
        self._least = np.full(num_others, np.inf)  # each owner's lowest seconds per byte so far
        self._counted: list[_Counts] = []  # by action, of the batches after the last decision
        self._capacity = 0  # of the cache that they were counted for

    def observe(self, boundary: Boundary, known_counts: Sequence[int] | None = None) -> None:
        """Add the fetches since the last boundary.

        Args:
            boundary: has the fetches.
            known_counts: number of each owner's newest fetches since its link last changed; None for all. With fewer
                than eight, the previous line is scaled to them.
        """
        for fetch in boundary.fetches:
            index = fetch.owner - (fetch.owner > boundary.part)
            self._recent[index].append((fetch.nbytes, fetch.rtt_s))
            self._quickest_s[index] = min(self._quickest_s[index], fetch.rtt_s)
        for index, count in enumerate(known_counts or ()):
            recent = self._recent[index]
            if count < min(len(recent), FEW):
                self._before[index] = self._before[index] or _line(recent)
            while len(recent) > max(count, 1) and count < RECENT // 2:
                recent.popleft()
            if len(recent) >= FEW:
                self._before[index] = None

    def clean_line(self) -> tuple[float, float] | None:
        """Return seconds of the fastest fetch and per byte on clean links, over all owners; None if unknown."""
        if not np.isfinite(self._quickest_s).all() or not np.isfinite(self._least).all():
            return None
        return float(np.median(self._quickest_s)), float(np.median(self._least))

    def predict(
        self,
        ahead: Lookahead,
        *,
        base_s: float,
        late_s: NDArray[np.float64],
        decision_cpu_s: float = 0.0,
        recounts: bool = True,
    ) -> ActionSeconds | None:
        """Return the forecast for the batches ahead; None until every owner has replied.

        Args:
            ahead: sampled batches.
            base_s: seconds of a step without waiting.
            late_s: (P - 1,) estimated current delay of each owner's replies.
            decision_cpu_s: processor seconds of a decision.
            recounts: False to use the counts of the last forecast, if there is one for this size of cache: batches are
                drawn alike, and counting takes longer than the rest.
        """
        if not all(self._recent):
            return None
        lines = np.array(
            [_line(recent, previous_line) for recent, previous_line in zip(self._recent, self._before, strict=True)]
        )
        self._least = np.minimum(self._least, lines[:, 1])
        more_s, throttled = np.maximum(lines[:, 0] - self._quickest_s, 0.0), lines[:, 1] - self._least
        if recounts or ahead.capacity != self._capacity:
            self._counted, self._capacity = [], ahead.capacity

        def links(delays_s: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            self._counted = self._counted or self._count(ahead)
            is_late = late_s > 0
            share = np.clip(np.divide(delays_s, late_s, out=np.ones_like(late_s), where=is_late), 0.0, 1.0)
            beyond_s = np.maximum(delays_s - late_s, 0.0)  # excess over the current delay
            starts = self._quickest_s + np.where(is_late, share * more_s + beyond_s, delays_s)
            return starts, (self._least + np.where(is_late, share, 1.0) * throttled) * self._row_bytes

        def steps(delays_s: NDArray[np.float64]) -> NDArray[np.float64]:
            starts, per_row = links(delays_s)
            return np.array([_step_s(counts, starts, per_row, base_s, decision_cpu_s) for counts in self._counted])

        def rebuilds(delays_s: NDArray[np.float64]) -> NDArray[np.float64]:
            starts, per_row = links(delays_s)
            return np.array([_slowest_s(fetched, starts, per_row) for _, fetched, _ in self._counted])

        return ActionSeconds(steps, rebuilds)

    def _count(self, ahead: Lookahead) -> list[_Counts]:
        """Return, per action, the (P - 1,) rows that a step misses and that its rebuild fetches, and its window."""
        counts: list[_Counts] = []
        for action in range(len(self._actions)):
            window = self._actions.window(action)
            if window > ahead.steps and action % len(WINDOWS) and WINDOWS[action % len(WINDOWS) - 1] >= ahead.steps:
                missed, fetched, _ = counts[-1]  # no more batches are sampled than for the previous window
            else:
                outlook = ahead.outlook(window, self._actions.shares(action))
                missed, fetched = outlook.missed, outlook.fetched
            counts.append((missed, fetched, window))
        return counts


def _line(recent: deque[tuple[int, float]], previous_line: tuple[float, float] | None = None) -> tuple[float, float]:
    """Return seconds of an owner's fetch without bytes, and per byte.

    With few fetches, the previous line is scaled to them.
    """
    sizes, times = (np.array(column, dtype=np.float64) for column in zip(*recent, strict=True))
    if previous_line is not None and len(sizes) < FEW:
        scale = float(np.median(times / np.maximum(previous_line[0] + previous_line[1] * sizes, LEAST_S)))
        return scale * previous_line[0], scale * previous_line[1]
    if np.ptp(sizes) == 0:  # no slope can be fitted: all time is the intercept
        return float(np.median(times)), 0.0
    return relative_line(sizes, times, rounds=LINE_ROUNDS)


def _step_s(
    counted: _Counts,
    starts: NDArray[np.float64],
    per_row: NDArray[np.float64],
    base_s: float,
    decision_cpu_s: float,
) -> float:
    missed, fetched, window = counted
    miss_s, rebuild_s = (_slowest_s(rows, starts, per_row) for rows in (missed, fetched))
    return max(base_s, miss_s, rebuild_s / window) + (float(starts.min()) + decision_cpu_s) / window


def _slowest_s(rows: NDArray[np.float64], starts: NDArray[np.float64], per_row: NDArray[np.float64]) -> float:
    """Return seconds until the slowest owner has sent (P - 1,) rows; few rows count as the probability of a request."""
    return float(np.max(starts * -np.expm1(-rows) + per_row * rows))
