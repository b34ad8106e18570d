"""Rows asked for and found in the cache, epoch by epoch, for runs of any length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dtdg_lab.systems.feature_cache.log import ResolvedStep

_KEPT = 4000  # epochs


@dataclass(slots=True)
class EpochHits:
    """What all parts asked for in one epoch, as far as it was told.

    Attributes:
        first: step.
        last: step.
        remote: rows of other parts that were asked for.
        hit: of these, those that caches had.
        bytes: that the others moved.
        wait_s: seconds that training stood still for them.
    """

    first: int
    last: int
    remote: int = 0
    hit: int = 0
    bytes: float = 0.0
    wait_s: float = 0.0
    attempts: dict[int, int] = field(default_factory=dict)  # part -> attempt that told it last

    @property
    def middle(self) -> float:
        """Where it is drawn, in steps."""
        return (self.first + self.last) / 2

    @property
    def rate(self) -> float | None:
        """Share of the rows that caches had; None where nothing was asked for."""
        return self.hit / self.remote if self.remote else None


class HitSums:
    """Sums by epoch over rows of ``resolved``; each part tells its steps in order, and again where it is resumed."""

    def __init__(self) -> None:
        self._epochs: dict[int, EpochHits] = {}
        self._described: dict[int, tuple[int, int]] = {}  # part -> attempt, newest step

    def add(self, row: ResolvedStep, attempt: int) -> None:
        """Add one row; one that is told twice counts once."""
        if (attempt, row.step) <= self._described.get(row.part, (-1, -1)):
            return
        self._described[row.part] = (attempt, row.step)
        self._count(row, attempt)
        while len(self._epochs) > _KEPT:
            del self._epochs[min(self._epochs)]

    def _count(self, row: ResolvedStep, attempt: int) -> None:
        sums = self._epochs.setdefault(row.epoch, EpochHits(row.step, row.step))
        sums.first, sums.last = min(sums.first, row.step), max(sums.last, row.step)
        sums.remote += row.remote
        sums.hit += row.hit
        sums.bytes += row.bytes
        sums.wait_s += row.wait_s
        sums.attempts[row.part] = attempt

    def truncate(self, step: int, attempt: int, kept: Sequence[ResolvedStep]) -> None:
        """Forget epochs that an earlier attempt had not ended by ``step``, and count them anew.

        Args:
            step: that a later attempt began at.
            attempt: its number.
            kept: rows that are still known, of which the epoch that is cut in two is counted.
        """
        cut = {
            epoch
            for epoch, sums in self._epochs.items()
            if sums.last >= step and any(each < attempt for each in sums.attempts.values())
        }
        for epoch in cut:
            del self._epochs[epoch]
        for row in sorted((row for row in kept if row.epoch in cut), key=lambda each: each.step):
            self._count(row, attempt - (row.step < step))
        self._described = {
            part: (its, newest if its >= attempt else min(newest, step - 1))
            for part, (its, newest) in self._described.items()
        }

    def epochs(self, *, since: int = 0) -> dict[int, EpochHits]:
        """By epoch, those that ended at step ``since`` or later."""
        return {epoch: self._epochs[epoch] for epoch in sorted(self._epochs) if self._epochs[epoch].last >= since}
