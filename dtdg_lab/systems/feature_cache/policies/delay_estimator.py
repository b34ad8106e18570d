"""Estimates of the delay of each owner's replies from the times of recent fetches."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.systems.feature_cache.calibration.fitting import relative_line
from dtdg_lab.systems.feature_cache.costs.rpc_model import RpcModel
from dtdg_lab.systems.feature_cache.policies.change_points import ChangePoints

Vector = NDArray[np.float64]
WARM_EPOCHS = 2
RECENT = 30  # GreenDyGNN section V-B: fetches of an owner that determine its delay; one per step in the simulator
_BASELINE = 15.0  # percentile of the warm-up's fetches
_LEAST = 4  # minimum number of fetches of a warm-up
_MOST = 1000  # maximum number of fetches of an owner in a warm-up
OWNERS_SLACK = 2.0  # an owner whose warm-up took longer than this multiple of the fastest owner's was slow then
PROBE_SLACK = 3.0  # all owners were slow if even the fastest took longer than this multiple of the probe
LEAST_S = 1e-6


class DelayEstimator:
    """Delays of the P - 1 other parts' replies, from fetches of rows.

        probe: time of a fetch without a slow link, to detect that all owners were slow in the warm-up; None if not
            measured.
    percentile of the rest. Later the delay is the median of the rest of the last 30 fetches, over that baseline, at
    least 0. A throttled link appears as a delay as well: that of its typical fetch.

    Args:
        num_others: P - 1.

    Attributes:
        probe: time of a fetch without a slow link, to detect that all owners were slow in the warm-up; None if unknown.

    References: GreenDyGNN section V-B, equation 8, with our model of a fetch.

    Differs from the paper: bytes are subtracted from each fetch first, since fetches differ in size. The distance from
    the 15th percentile to the median in the warm-up is treated as noise, not as delay. After a change of an owner's
    link (:class:`ChangePoints`) its previous fetches are dropped. A baseline that most of the last 30 fetches undercut
    is lowered, since it was measured on a slow network. An owner whose own baseline exceeds 2 times the fastest
    owner's was slow in the warm-up, and is compared with the fastest one. If even that exceeds 3 times the probe, all
    were slow, and all are compared with the probe.
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
        """Add a fetch from the other part at an index, 0 to P - 2, in ascending order of parts.

        Args:
            owner: index of the owner.
            rtt_s: seconds from the request to the last byte, above 0.
            nbytes: of the fetch.
            epoch: in which it happened.

        Returns:
            Whether it reveals a change of the owner's link.
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
        """Return the number of an owner's latest fetches that are from the current state of its link."""
        return self._points[owner].count if self._settled[owner] else len(self._recent[owner])

    def delays_s(self) -> Vector:
        """Return (P - 1,) estimated delay of each owner's replies in seconds; 0 during its warm-up."""
        late = np.zeros(len(self._recent))
        for owner in np.flatnonzero(self._settled & (np.array([len(fetches) for fetches in self._recent]) > 0)):
            recent = self._recent[owner]
            middle = median([time - self._per_byte[owner] * size for time, size in recent])
            if len(recent) == RECENT:  # most of them undercut a baseline of a slow network
                self._clean[owner] = min(self._clean[owner], middle)
            start_s, per_byte = self._reference(int(owner), median([size for _, size in recent]))
            if per_byte != self._per_byte[owner]:
                middle = median([time - per_byte * size for time, size in recent])
            late[owner] = middle - start_s - self._noise[owner]
        return np.asarray(np.maximum(late, 0.0))

    def _reference(self, owner: int, nbytes: float) -> tuple[float, float]:
        """Return seconds of a clean fetch without bytes, and seconds per byte, to compare an owner with.

        They are from the owner's own warm-up, from the fastest owner's, or from the probe; see the class.

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
        """Return the times of clean links, as plain lists and numbers; recent fetches are not included."""
        arrays = (self._per_byte, self._clean, self._noise, self._baseline, self._settled)
        return {"first_epoch": self._first_epoch, "owners": [array.tolist() for array in arrays]}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned; ignored if the number of owners differs."""
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
        # a warm-up of mostly delayed fetches would count as noise: limit it to the time of the fetch itself
        self._noise[owner] = min(middle - low, self._baseline[owner])
        self._per_byte[owner], self._clean[owner], self._settled[owner] = per_byte, low, True
        self._warm[owner] = []
