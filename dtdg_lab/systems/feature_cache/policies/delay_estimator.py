"""Estimates of the delay of each owner's replies: from recent fetches, change points, and long averages."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.systems.feature_cache.calibration.fits import relative_line
from dtdg_lab.systems.feature_cache.costs.cache_costs import RpcModel

SPANS = (2, 3, 5, 8, 13)  # numbers of latest fetches that are compared with the earlier ones
THRESHOLD = 4.0  # difference of two means that counts as a change, in standard errors
OUTLIER = 5.0  # fetches are clipped at this number of standard deviations, so that a single one raises no alarm
LONGEST = 60  # maximum number of fetches in a mean
LEAST_NOISE = 0.1  # minimum standard deviation of a logarithm
SAME_CHANGE = 8  # alarms within this number of fetches, of any owners, count as one change
LOOK_AGAIN = 5  # number of fetches after an alarm until the decision is reconsidered with more data
CHUNK = 96  # number of fetches tested together if the whole series is known
WITHOUT = 0.3  # standard deviation before there are fetches to estimate it from


class ChangePoints:
    """Change points of one owner's fetches.

    Each new fetch starts a test: does the mean of the last 2, 3, 5, 8 or 13 fetches differ from the mean of the earlier
    ones by more than four standard errors? If so, an alarm is raised, and the mean restarts with these fetches. A
    change of five standard deviations is detected after two fetches, one of two standard deviations after five.

    Args:
        noise: standard deviation of the logarithm of a fetch time on unchanged links; None to estimate it from
            successive differences (median absolute deviation).

    Attributes:
        count: number of fetches since the last change point, at most 60.
        alarms: number of change points so far.

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
        """Number of fetches since the last change point."""
        return len(self._values)

    def add(self, level: float) -> bool:
        """Add the logarithm of a fetch time relative to a clean link; return True if a change is detected."""
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
            # clip each fetch around the previous mean, so that a single one raises no alarm
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
        noise: standard deviation of the levels on unchanged links.

    Returns:
        (S + 1,) index of the first fetch since the last change point, and (S + 1,) True if one is detected, after each
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


Vector = NDArray[np.float64]
WARM_EPOCHS = 2
RECENT = 30  # GreenDyGNN section V-B: fetches of an owner that determine its delay; one per step in the simulator
_BASELINE = 15.0  # percentile of the warm-up's fetches
_LEAST = 4  # minimum number of fetches of a warm-up
_MOST = 1000  # maximum number of fetches of an owner in a warm-up
OWNERS_SLACK = 2.0  # an owner's warm-up was slow if it took longer than this multiple of the fastest owner's
PROBE_SLACK = 3.0  # all owners were slow if even the fastest took longer than this multiple of the probe
LEAST_S = 1e-6


class DelayEstimator:
    """Delays of the P - 1 other parts' replies, from fetches of rows.

    The first two epochs are each owner's warm-up: a line fitted to its fetches gives the time per byte, which is
    subtracted from every fetch. The baseline is the 15th percentile of the rest. Later the delay is the median of the
    rest of the last 30 fetches, minus that baseline, at least 0. A throttled link also appears as a delay: that of its
    typical fetch.

    Args:
        num_others: P - 1.

    Attributes:
        probe: time of a fetch without a slow link, which reveals that all owners were slow in the warm-up; None if
            unknown.

    References: GreenDyGNN section V-B, equation 8, with our model of a fetch.

    Differs from the paper: bytes are subtracted from each fetch first, since fetches differ in size. The distance from
    the 15th percentile to the median in the warm-up is treated as noise, not as delay. After a change of an owner's
    link (:class:`ChangePoints`) its earlier fetches are dropped. A baseline that most of the last 30 fetches undercut
    was measured on a slow network, and is lowered. If an owner's baseline exceeds 2 times the fastest owner's, its
    warm-up was slow, and it is compared with the fastest one. If even that exceeds 3 times the probe, all were slow,
    and all are compared with the probe.
    """

    def __init__(self, num_others: int) -> None:
        self.probe: RpcModel | None = None
        self._first_epoch = -1
        self._warm: list[list[tuple[float, float]]] = [[] for _ in range(num_others)]
        self._recent: list[deque[tuple[float, float]]] = [deque(maxlen=RECENT) for _ in range(num_others)]
        self._points = [ChangePoints() for _ in range(num_others)]
        self._per_byte = np.zeros(num_others)
        self._clean = np.full(num_others, np.inf)  # seconds of a fetch without bytes
        self._noise, self._baseline = np.zeros(num_others), np.zeros(num_others)
        self._settled = np.zeros(num_others, dtype=np.bool_)

    def add(self, owner: int, rtt_s: float, nbytes: float, *, epoch: int) -> bool:
        """Add a fetch; return True if it reveals a change of the owner's link.

        Args:
            owner: index of the owner among the other parts, 0 to P - 2, in ascending order of parts.
            rtt_s: seconds from the request to the last byte, above 0.
            nbytes: bytes of the fetch.
            epoch: epoch of the fetch.

        Returns:
            True if it reveals a change.
        """
        if self._first_epoch < 0:
            self._first_epoch = epoch
        if not self._settled[owner]:
            warm = self._warm[owner]
            if epoch < self._first_epoch + WARM_EPOCHS or len(warm) < _LEAST:
                if len(warm) < _MOST:
                    warm.append((nbytes, rtt_s))
            else:
                self._settle(owner)
        recent = self._recent[owner]
        recent.append((rtt_s, nbytes))
        if not self._settled[owner]:
            return False
        usual = max(self._clean[owner] + self._per_byte[owner] * nbytes, LEAST_S)
        changed = self._points[owner].add(math.log(max(rtt_s, LEAST_S) / usual))
        while changed and len(recent) > self._points[owner].count:
            recent.popleft()
        return changed

    def current_fetches(self, owner: int) -> int:
        """Return the number of an owner's latest fetches since its link last changed."""
        return self._points[owner].count if self._settled[owner] else len(self._recent[owner])

    def delays_s(self) -> Vector:
        """Return (P - 1,) estimated delay of each owner's replies in seconds; 0 during its warm-up."""
        late = np.zeros(len(self._recent))
        for owner in np.flatnonzero(self._settled & (np.array([len(fetches) for fetches in self._recent]) > 0)):
            recent = self._recent[owner]
            middle = median([time - self._per_byte[owner] * size for time, size in recent])
            if len(recent) == RECENT:  # most of them undercut a baseline that was measured on a slow network
                self._clean[owner] = min(self._clean[owner], middle)
            start_s, per_byte = self._reference(int(owner), median([size for _, size in recent]))
            if per_byte != self._per_byte[owner]:
                middle = median([time - per_byte * size for time, size in recent])
            late[owner] = middle - start_s - self._noise[owner]
        return np.asarray(np.maximum(late, 0.0))

    def _reference(self, owner: int, nbytes: float) -> tuple[float, float]:
        """Return seconds of a clean fetch without bytes, and seconds per byte, to compare an owner with.

        They come from the owner's own warm-up, the fastest owner's, or the probe; see the class.

        Args:
            owner: index of the owner, whose warm-up is over.
            nbytes: size of fetch at which baselines are compared.
        """
        settled = np.flatnonzero(self._settled)
        levels = self._clean[settled] + self._per_byte[settled] * nbytes
        quickest = settled[levels.argmin()]
        level = self._clean[owner] + self._per_byte[owner] * nbytes
        if self.probe is not None:
            probed = self.probe.a_s, self.probe.s_per_byte
            if levels.min() > PROBE_SLACK * (probed[0] + probed[1] * nbytes):
                return probed
        reference_owner = quickest if level > OWNERS_SLACK * levels.min() else owner
        return float(self._clean[reference_owner]), float(self._per_byte[reference_owner])

    def baselines_s(self) -> Vector:
        """Return (P - 1,) 15th percentile of the fetches of each owner's warm-up; 0 without fetches."""
        for owner in np.flatnonzero(~self._settled):
            if self._warm[owner]:
                self._baseline[owner] = np.percentile([time for _, time in self._warm[owner]], _BASELINE)
        return self._baseline.copy()

    def state_dict(self) -> dict[str, Any]:
        """Return the times of clean links, as lists and numbers, without recent fetches."""
        arrays = (self._per_byte, self._clean, self._noise, self._baseline, self._settled)
        return {"first_epoch": self._first_epoch, "owners": [array.tolist() for array in arrays]}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Restore a state dict of :meth:`state_dict`; ignore it if the number of owners differs."""
        if len(data["owners"][0]) != len(self._per_byte):
            return
        self._first_epoch = int(data["first_epoch"])
        arrays = (self._per_byte, self._clean, self._noise, self._baseline, self._settled)
        for array, stored in zip(arrays, data["owners"], strict=True):
            array[...] = stored

    def _settle(self, owner: int) -> None:
        sizes, times = np.array(self._warm[owner], dtype=np.float64).T
        per_byte = relative_line(sizes, times)[1]
        low, middle = np.percentile(times - per_byte * sizes, (_BASELINE, 50.0))
        self._baseline[owner] = np.percentile(times, _BASELINE)
        # in a warm-up of mostly delayed fetches, delay would count as noise: limit it to the time of the fetch itself
        self._noise[owner] = min(middle - low, self._baseline[owner])
        self._per_byte[owner], self._clean[owner], self._settled[owner] = per_byte, low, True
        self._warm[owner] = []


FAST_STEPS, SLOW_STEPS = 50.0, 200.0  # time constants of the averages, in steps
KINDS = 3


def memory_size(parts: int) -> int:
    """Return the length of the memory for P parts: 3 (P - 1)."""
    return KINDS * (parts - 1)


class LatenessMemory:
    """Exponential averages of the congestion multipliers in states, one memory for each of B runs.

    For each other part: a fast average, a slow average, and the average distance from the slow one. At one moment, a
    link that is slow now and then, or two that alternate, look like a slow link; the averages tell them apart.

    Args:
        runs: B.
        parts: P.
    """

    def __init__(self, runs: int, parts: int) -> None:
        self._held = np.zeros((runs, KINDS, parts - 1))
        self._fresh = np.ones(runs, dtype=bool)

    def forget(self, which: NDArray[np.bool_]) -> None:
        """Reset the memory of the runs where (B,) ``which`` is True."""
        self._held[which] = 0.0
        self._fresh[which] = True

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return the memory as arrays."""
        return {"held": self._held.copy(), "fresh": self._fresh.copy()}

    def load_state_dict(self, data: Mapping[str, NDArray[Any]]) -> None:
        """Continue from the output of :meth:`state_dict`."""
        self._held[...], self._fresh[...] = data["held"], data["fresh"]

    def take_in(self, states: NDArray[np.float32], steps: NDArray[np.int64]) -> NDArray[np.float32]:
        """Add states (B, 3 P + 11), ``steps`` (B,) after the previous ones; return them joined with the memory.

        Returns:
            (B, 3 P + 11 + 3 (P - 1)) float32.
        """
        late = states[:, : self._held.shape[2]].astype(np.float64)
        for index, lasts in ((0, FAST_STEPS), (1, SLOW_STEPS)):
            self._move(index, late, steps, lasts)
        self._move(2, np.abs(late - self._held[:, 1]), steps, SLOW_STEPS)
        self._fresh[:] = False
        return self.recall(states, np.arange(len(states)))

    def recall(self, states: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return states (R, 3 P + 11) of runs ``rows`` (R,), joined with their current memory."""
        remembered = self._held[rows].reshape(len(rows), -1).astype(np.float32)
        return np.concatenate([states, remembered], axis=1)

    def _move(self, index: int, received: NDArray[np.float64], steps: NDArray[np.int64], lasts: float) -> None:
        share = np.where(self._fresh, 1.0, -np.expm1(-steps / lasts))[:, np.newaxis]
        self._held[:, index] += share * (received - self._held[:, index])


class RunsMemory:
    """Memories of policies that identify runs by number: a new run starts with an empty memory.

    Args:
        parts: P.
    """

    def __init__(self, parts: int) -> None:
        self._parts = parts
        self._memory = LatenessMemory(0, parts)
        self._runs = self._steps = np.zeros(0, dtype=np.int64)

    def take_in(
        self, states: NDArray[np.float32], runs: NDArray[np.int64], steps: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Add states (B, 3 P + 11) of runs (B,) at steps (B,); return them joined with the memory.

        A different run, or an earlier step, resets the memory at its index.
        """
        if len(runs) != len(self._runs):
            self._memory = LatenessMemory(len(runs), self._parts)
            self._runs, self._steps = runs, steps
        self._memory.forget((runs != self._runs) | (steps < self._steps))
        joined = self._memory.take_in(states, np.maximum(steps - self._steps, 0))
        self._runs, self._steps = runs.copy(), steps.copy()
        return joined

    def recall(self, states: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return states (R, 3 P + 11) at indices (R,), joined with their current memory; nothing is added."""
        return self._memory.recall(states, rows)
