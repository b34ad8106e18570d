"""What a run has sent so far, and the most memory it needed: running totals for charts of loss against cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.views.series import Series


class SpentView:
    """Bytes sent and peaks of memory of one run. What was sent for steps that were computed again stays counted.

    Args:
        points: most that are kept of each rank.
    """

    def __init__(self, points: int) -> None:
        self._points = points
        self._sent: dict[int, Series] = {}  # of each rank, its total
        self._totals: dict[int, float] = {}
        self._newest_ns: dict[int, int] = {}
        self._fetched: dict[int, float] = {}  # bytes of features by stretch of steps
        self._stretch = 1  # steps of one
        self._newest_fetch: dict[tuple[Any, ...], tuple[int, set[Any]]] = {}
        self.peak_bytes: int | None = None  # largest peak of tensor memory of any rank
        self.peak_rss_bytes: int | None = None  # largest resident memory of any rank's process

    def step(self, rank: int, row: Mapping[str, Any], seconds: float) -> None:
        """Add one row of ``steps``; bytes that are unknown add nothing."""
        sent, time_ns = row.get("bytes_sent"), int(row["time_ns"])
        if sent is None or time_ns <= self._newest_ns.get(rank, -1):  # told before
            return
        self._newest_ns[rank] = time_ns
        self._totals[rank] = self._totals.get(rank, 0.0) + float(sent)
        series = self._sent.setdefault(rank, Series(self._points))
        newest = series.last
        series.add(0 if newest is None else newest.step + 1, seconds, self._totals[rank])

    def fetch(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of ``fetches``, requests and replies: features go beside what steps send, probes do not."""
        if row["purpose"] == "probe":
            return
        step, told = int(row["step"]), row["rtt_s"]
        link = (attempt, row["part"], row["owner"], row["purpose"])
        newest, heard = self._newest_fetch.get(link, (-1, set()))
        if step < newest or (step == newest and told in heard):  # told before
            return
        self._newest_fetch[link] = step, {told} if step > newest else heard | {told}
        place = step // self._stretch
        self._fetched[place] = self._fetched.get(place, 0.0) + float(row["bytes"] or 0.0)
        if len(self._fetched) > self._points:
            self._stretch *= 2
            joined: dict[int, float] = {}
            for place, sent in self._fetched.items():
                joined[place // 2] = joined.get(place // 2, 0.0) + sent
            self._fetched = joined

    def memory(self, row: Mapping[str, Any]) -> None:
        """Add one row of ``memory``."""
        for name in ("peak_bytes", "peak_rss_bytes"):
            value, known = row.get(name), getattr(self, name)
            if value is not None and (known is None or value > known):
                setattr(self, name, int(value))

    def bytes_at(self, seconds: ArrayLike, steps: ArrayLike) -> NDArray[np.float64] | None:
        """By all ranks, until these seconds and steps of the run; None where no rank has told any."""
        if not self._sent:
            return None
        asked = np.asarray(seconds, np.float64)
        total = np.zeros(asked.shape)
        for series in self._sent.values():
            points = series.points
            sums = np.array([0.0, *(point.value or 0.0 for point in points)])
            total += sums[np.searchsorted([point.seconds for point in points], asked, side="right")]
        if self._fetched:
            places = np.array(sorted(self._fetched))
            sums = np.append(0.0, np.cumsum([self._fetched[place] for place in places.tolist()]))
            total += sums[np.searchsorted(places * self._stretch, np.asarray(steps), side="left")]
        return total
