"""Estimates from the times of recent fetches how late each owner's replies are."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError
from dtdg_lab.systems.feature_cache.policies.calibration import relative_line
from dtdg_lab.systems.feature_cache.policies.costs import RpcModel

# Finds the step at which an owner's fetch times changed: a windowed likelihood-ratio test on their logarithms.


SPANS = (2, 3, 5, 8, 13)  # the last so many fetches are compared with those before them
THRESHOLD = 4.0  # standard errors between the two means from which they differ
OUTLIER = 5.0  # standard deviations at which one fetch is cut, so that a single slow one raises no alarm
LONGEST = 60  # fetches that a level is the mean of
LEAST_NOISE = 0.1  # standard deviation of a logarithm, at least
SAME_CHANGE = 8  # fetches within which several alarms, of one owner or of others, are of one change
LOOK_AGAIN = 5  # fetches after an alarm at which what was made of it is looked at again, now that more are known
CHUNK = 96  # fetches that are tested at once where all are known
WITHOUT = 0.3  # the same before there are fetches to estimate it from


class ChangePoints:
    """Change points of one owner's fetches.

    Each new fetch is tested: do the last 2, 3, 5, 8 or 13 differ in mean from those before, by more than four standard
    errors? If so, the level begins again with these, and an alarm is raised. A change of five standard deviations is
    found after two fetches, one of two standard deviations after five.

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
        """Take in the logarithm of a fetch time over that of a clean link; True where a change is found now."""
        values = self._values
        if self._given is None and values:
            self._estimate(abs(level - values[-1]))
        values.append(level)
        total = len(values)
        if total < 2 * SPANS[0]:
            return False
        newest, whole, recent = list(values)[: -SPANS[-1] - 1 : -1], sum(values), 0.0
        for span, value in enumerate(newest[: total - SPANS[0]], start=1):
            recent += value
            if span not in SPANS:
                continue
            rest = total - span
            middle, apart = (whole - recent) / rest, THRESHOLD * self._noise * math.sqrt(1 / span + 1 / rest)
            if abs(recent / span - middle) <= apart:
                continue
            # one fetch alone may not raise an alarm: each counts within bounds about the level before
            cut = OUTLIER * self._noise
            if abs(sum(min(max(of - middle, -cut), cut) for of in newest[:span])) > apart * span:
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
    """What :class:`ChangePoints` makes of a whole series (S,), at once.

    Args:
        levels: logarithms of fetch times over those of a clean link.
        noise: their standard deviation on unchanged links.

    Returns:
        (S + 1,) number of the first fetch since the last change point, and (S + 1,) whether one is found, after so
        many fetches.
    """
    noise, total = max(noise, LEAST_NOISE), len(levels)
    summed = np.concatenate([[0.0], levels.cumsum()])
    starts, alarms = np.zeros(total + 1, dtype=np.int64), np.zeros(total + 1, dtype=bool)
    begin, at, spans = 0, 2 * SPANS[0], np.array(SPANS)[:, None]
    while at <= total:
        ends = np.arange(at, min(at + CHUNK, total + 1))
        first = np.maximum(begin, ends - LONGEST)
        rest = ends - first - spans
        fits = rest >= SPANS[0]
        rest = np.maximum(rest, 1)
        middle = (summed[np.maximum(ends - spans, 0)] - summed[first]) / rest
        mean = (summed[ends] - summed[np.maximum(ends - spans, 0)]) / spans
        apart = THRESHOLD * noise * np.sqrt(1 / spans + 1 / rest)
        found = None
        for end_at, of in zip(*np.nonzero((fits & (np.abs(mean - middle) > apart)).T), strict=True):
            span, end, cut = SPANS[of], int(ends[end_at]), OUTLIER * noise
            bounded = np.clip(levels[end - span : end] - middle[of, end_at], -cut, cut)
            if abs(bounded.sum()) > apart[of, end_at] * span:
                found = end, span
                break
        upto = int(ends[-1]) + 1 if found is None else found[0]
        starts[at:upto] = np.maximum(begin, np.arange(at, upto) - LONGEST)
        if found is None:
            at = upto
            continue
        begin = found[0] - found[1]
        starts[upto], alarms[upto] = begin, True
        starts[upto : min(begin + 2 * SPANS[0], total + 1)] = begin
        at = max(upto + 1, begin + 2 * SPANS[0])
    return starts, alarms


Vector = NDArray[np.float64]
WARM_EPOCHS = 2
RECENT = 30  # fetches of an owner that its delay is told by
_BASELINE = 15.0  # percentile of the warm-up's fetches
_LEAST = 4  # fetches of a warm-up
_MOST = 1000  # fetches of an owner that a warm-up keeps
OWNERS_SLACK = 2.0  # an owner whose warm-up took longer than so many of the quickest owner's fetches was slow then
PROBE_SLACK = 3.0  # all owners were where even the quickest took longer than so many fetches of the probe
LEAST_S = 1e-6


class DelayEstimator:
    """Delays of the P - 1 other parts' replies, from fetches of rows.

    The first epochs tell what a fetch takes when nothing is late: for each owner its bytes' seconds, and the 15th
    percentile of what remains. Later the median of what remains of the last 30 fetches, over that baseline, is the
    delay; negative ones count as none. A throttled link is heard as a delay, too: that of its typical fetch.

    Args:
        others: P - 1.
        model: of a fetch, for the seconds a byte; None to fit it to the warm-up, owner by owner.
        probe: of a fetch that no link slows, to compare owners with that were all slow in the warm-up; None for none.
        warm_epochs: epochs, from the first that is heard of, that tell the baseline.

    Raises:
        PlanError: no other part, or no epoch to warm up.

    Attributes:
        probe: as given; it may be set later.

    References: GreenDyGNN section V-B, equation 8, with our model of a fetch.

    Differs from the paper: bytes are taken off each fetch first, since fetches differ in size. The distance from the
    15th percentile to the median, as it was in the warm-up, is noise and no delay. Where a change of an owner's link is
    found (:mod:`dtdg_lab.systems.feature_cache.policies.delay_estimator`), its fetches of before the change are
    dropped. A baseline
    that most of
    the last 30 fetches undercut was taken from a slow network, and is lowered. An owner whose own baseline takes more
    than 2 times the quickest owner's was slow in the warm-up, and is compared with the quickest one; where even that
    takes more than 3 times the probe's fetch, all were slow, and all are compared with the probe.
    """

    def __init__(
        self,
        others: int,
        *,
        model: RpcModel | None = None,
        probe: RpcModel | None = None,
        warm_epochs: int = WARM_EPOCHS,
    ) -> None:
        if others < 1 or warm_epochs < 1:
            raise PlanError(f"others={others}, warm_epochs={warm_epochs}: at least 1 of each is needed.")
        self._trips = 1.0 if model is None else model.trips
        self._given = None if model is None else model.s_per_byte
        self._warm_epochs, self._first_epoch = warm_epochs, -1
        self._warm: list[list[tuple[float, float]]] = [[] for _ in range(others)]
        self.probe = probe
        self._recent: list[deque[tuple[float, float]]] = [deque(maxlen=RECENT) for _ in range(others)]
        self._points = [ChangePoints() for _ in range(others)]
        self._per_byte, self._clean = np.zeros(others), np.full(others, np.inf)  # s a byte; s of a fetch without bytes
        self._noise, self._baseline = np.zeros(others), np.zeros(others)
        self._settled = np.zeros(others, dtype=np.bool_)

    def add(self, place: int, rtt_s: float, nbytes: float, *, epoch: int) -> bool:
        """A fetch from the other part at a place, 0 to P - 2, in ascending order of parts.

        Args:
            place: of the owner.
            rtt_s: seconds from asking to the last byte, above 0.
            nbytes: of it.
            epoch: in which it was.

        Returns:
            Whether a change of the owner's link is found by it.
        """
        if self._first_epoch < 0:
            self._first_epoch = epoch
        if not self._settled[place]:
            warm = self._warm[place]
            if epoch < self._first_epoch + self._warm_epochs or len(warm) < _LEAST:
                if len(warm) < _MOST:
                    warm.append((nbytes, rtt_s))
            else:
                self._settle(place)
        recent = self._recent[place]
        recent.append((rtt_s, nbytes))
        if not self._settled[place]:
            return False
        usual = max(self._clean[place] + self._per_byte[place] * nbytes, LEAST_S)
        changed = self._points[place].add(math.log(max(rtt_s, LEAST_S) / usual))
        while changed and len(recent) > self._points[place].count:
            recent.popleft()
        return changed

    def known(self, place: int) -> int:
        """How many of an owner's newest fetches are of the links as they are now."""
        return self._points[place].count if self._settled[place] else len(self._recent[place])

    def delays_s(self) -> Vector:
        """(P - 1,) seconds by which each owner's replies are late; 0 while it warms up."""
        late = np.zeros(len(self._recent))
        for place in np.flatnonzero(self._settled & (np.array([len(of) for of in self._recent]) > 0)):
            recent = self._recent[place]
            middle = _median([time - self._per_byte[place] * size for time, size in recent])
            if len(recent) == RECENT:  # most of so many undercut a baseline of a slow network
                self._clean[place] = min(self._clean[place], middle)
            start_s, per_byte = self._reference(int(place), _median([size for _, size in recent]))
            if per_byte != self._per_byte[place]:
                middle = _median([time - per_byte * size for time, size in recent])
            late[place] = middle - start_s - self._noise[place]
        return np.asarray(np.maximum(late, 0.0) / self._trips)

    def _reference(self, place: int, nbytes: float) -> tuple[float, float]:
        """Seconds of a clean fetch without bytes, and seconds a byte, that an owner's fetches are compared with.

        These are of the owner's own warm-up, of the quickest owner's, or of the probe; see the class.

        Args:
            place: of the owner, which is settled.
            nbytes: of the fetch for which baselines are compared.
        """
        settled = np.flatnonzero(self._settled)
        levels = self._clean[settled] + self._per_byte[settled] * nbytes
        quickest = settled[levels.argmin()]
        own = self._clean[place] + self._per_byte[place] * nbytes
        if self.probe is not None:
            probed = self.probe.a_s, self.probe.s_per_byte
            if levels.min() > PROBE_SLACK * (probed[0] + probed[1] * nbytes):
                return probed
        chosen = quickest if own > OWNERS_SLACK * levels.min() else place
        return float(self._clean[chosen]), float(self._per_byte[chosen])

    def baselines_s(self) -> Vector:
        """(P - 1,) 15th percentile of the fetches of each owner's warm-up; 0 of one that was not asked."""
        for place in np.flatnonzero(~self._settled):
            if self._warm[place]:
                self._baseline[place] = np.percentile([time for _, time in self._warm[place]], _BASELINE)
        return self._baseline.copy()

    def state_dict(self) -> dict[str, Any]:
        """What clean links were found to be, as plain lists and numbers; recent fetches are not kept."""
        described = (self._per_byte, self._clean, self._noise, self._baseline, self._settled)
        return {"first_epoch": self._first_epoch, "owners": [array.tolist() for array in described]}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned; one of another number of owners is not taken."""
        if len(data["owners"][0]) != len(self._per_byte):
            return
        self._first_epoch = int(data["first_epoch"])
        arrays = (self._per_byte, self._clean, self._noise, self._baseline, self._settled)
        for array, stored in zip(arrays, data["owners"], strict=True):
            array[...] = stored

    def _settle(self, place: int) -> None:
        sizes, times = np.array(self._warm[place], dtype=np.float64).T
        per_byte = relative_line(sizes, times)[1] if self._given is None else self._given
        low, middle = np.percentile(times - per_byte * sizes, (_BASELINE, 50.0))
        self._baseline[place] = np.percentile(times, _BASELINE)
        # a warm-up of which most was late would call that noise: no more than the fetch itself took
        self._noise[place] = min(middle - low, self._baseline[place])
        self._per_byte[place], self._clean[place], self._settled[place] = per_byte, low, True
        self._warm[place] = []


def _median(values: list[float]) -> float:
    ranked, half = sorted(values), len(values) // 2
    return ranked[half] if len(ranked) % 2 else (ranked[half - 1] + ranked[half]) / 2
