"""Estimates from the times of recent fetches how late each owner's replies are."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.control.change_points import ChangePoints
from dtdg_lab.control.rpc_model import RpcModel
from dtdg_lab.control.small_fit import relative_line
from dtdg_lab.core.errors import PlanError

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
    found (:mod:`dtdg_lab.control.change_points`), its fetches of before the change are dropped. A baseline that most of
    the last 30 fetches undercut was taken from a slow network, and is lowered. An owner whose own baseline takes more
    than 2 times the quickest owner's was slow in the warm-up, and is compared with the quickest one; where even that
    takes more than 3 times the probe's fetch, all were slow, and all are compared with the probe.
    """

    def __init__(
        self, others: int, *, model: RpcModel | None = None, probe: RpcModel | None = None,
        warm_epochs: int = WARM_EPOCHS,
    ) -> None:  # fmt: skip
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
        told = (self._per_byte, self._clean, self._noise, self._baseline, self._settled)
        return {"first_epoch": self._first_epoch, "owners": [array.tolist() for array in told]}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave; one of another number of owners is not taken."""
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
