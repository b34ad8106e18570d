"""Change points in an owner's fetch times: a windowed likelihood-ratio test on their logarithms."""

from __future__ import annotations

import math
from collections import deque

import numpy as np
from numpy.typing import NDArray

SPANS = (2, 3, 5, 8, 13)  # numbers of latest fetches that are compared with those before them
THRESHOLD = 4.0  # standard errors between two means that count as a change
OUTLIER = 5.0  # standard deviations at which a fetch is clipped, so that a single slow one raises no alarm
LONGEST = 60  # maximum number of fetches in a mean
LEAST_NOISE = 0.1  # minimum standard deviation of a logarithm
SAME_CHANGE = 8  # fetches within which several alarms, of any owners, count as one change
LOOK_AGAIN = 5  # fetches after an alarm at which the decision is reconsidered with more data
CHUNK = 96  # fetches that are tested at once if all are known
WITHOUT = 0.3  # standard deviation before there are fetches to estimate it from


class ChangePoints:
    """Change points of one owner's fetches.

    Each new fetch is tested: does the mean of the last 2, 3, 5, 8 or 13 differ from that of those before by more than
    four standard errors? If so, an alarm is raised and the mean restarts with these fetches. A change of five standard
    deviations is detected after two fetches, one of two standard deviations after five.

    Args:
        noise: standard deviation of the logarithm of a fetch time on unchanged links; None to estimate it from
            successive differences (median absolute deviation).

    Attributes:
        count: fetches since the last change point, at most 60.
        alarms: change points so far.

    References: ours, for GreenDyGNN section V-B, which takes the median of 30 fetches; Lai 1995, "Sequential
    changepoint detection in quality control and dynamical systems" (the window-limited likelihood-ratio test).
    """

    def __init__(self, noise: float | None = None) -> None:
        self._given = noise
        self._values: deque[float] = deque(maxlen=LONGEST)
        self._steps: deque[float] = deque(maxlen=LONGEST)  # absolute differences of successive fetches
        self._noise = WITHOUT if noise is None else max(noise, LEAST_NOISE)
        self.alarms = 0

    @property
    def count(self) -> int:
        """Fetches since the last change point."""
        return len(self._values)

    def add(self, level: float) -> bool:
        """Add the logarithm of a fetch time relative to a clean link; return whether a change is detected."""
        values = self._values
        if self._given is None and values:
            self._estimate(abs(level - values[-1]))
        values.append(level)
        total = len(values)
        if total < 2 * SPANS[0]:
            return False
        newest, value_sum, recent = list(values)[: -SPANS[-1] - 1 : -1], sum(values), 0.0
        for span, value in enumerate(newest[: total - SPANS[0]], start=1):
            recent += value
            if span not in SPANS:
                continue
            rest = total - span
            middle, apart = (value_sum - recent) / rest, THRESHOLD * self._noise * math.sqrt(1 / span + 1 / rest)
            if abs(recent / span - middle) <= apart:
                continue
            # a single fetch must not raise an alarm: each is clipped around the previous mean
            cut = OUTLIER * self._noise
            if abs(sum(min(max(recent_value - middle, -cut), cut) for recent_value in newest[:span])) > apart * span:
                self._values = deque(reversed(newest[:span]), maxlen=LONGEST)
                self.alarms += 1
                return True
        return False

    def _estimate(self, difference: float) -> None:
        self._steps.append(difference)
        if len(self._steps) >= 8:
            ranked = sorted(self._steps)
            self._noise = max(ranked[len(ranked) // 2] / (0.6745 * math.sqrt(2)), LEAST_NOISE)


def change_points(levels: NDArray[np.float64], noise: float) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the result of :class:`ChangePoints` for a whole series (S,) at once.

    Args:
        levels: logarithms of fetch times over those of a clean link.
        noise: their standard deviation on unchanged links.

    Returns:
        (S + 1,) index of the first fetch since the last change point, and (S + 1,) whether one is detected, after each
        number of fetches.
    """
    noise, total = max(noise, LEAST_NOISE), len(levels)
    summed = np.concatenate([[0.0], levels.cumsum()])
    starts, alarms = np.zeros(total + 1, dtype=np.int64), np.zeros(total + 1, dtype=bool)
    begin, position, spans = 0, 2 * SPANS[0], np.array(SPANS)[:, None]
    while position <= total:
        ends = np.arange(position, min(position + CHUNK, total + 1))
        first = np.maximum(begin, ends - LONGEST)
        rest = ends - first - spans
        fits = rest >= SPANS[0]
        rest = np.maximum(rest, 1)
        middle = (summed[np.maximum(ends - spans, 0)] - summed[first]) / rest
        mean = (summed[ends] - summed[np.maximum(ends - spans, 0)]) / spans
        apart = THRESHOLD * noise * np.sqrt(1 / spans + 1 / rest)
        change = None
        for end_at, row in zip(*np.nonzero((fits & (np.abs(mean - middle) > apart)).T), strict=True):
            span, end, cut = SPANS[row], int(ends[end_at]), OUTLIER * noise
            bounded = np.clip(levels[end - span : end] - middle[row, end_at], -cut, cut)
            if abs(bounded.sum()) > apart[row, end_at] * span:
                change = end, span
                break
        upto = int(ends[-1]) + 1 if change is None else change[0]
        starts[position:upto] = np.maximum(begin, np.arange(position, upto) - LONGEST)
        if change is None:
            position = upto
            continue
        begin = change[0] - change[1]
        starts[upto], alarms[upto] = begin, True
        starts[upto : min(begin + 2 * SPANS[0], total + 1)] = begin
        position = max(upto + 1, begin + 2 * SPANS[0])
    return starts, alarms
