"""What went between ranks in the exchanges of a step, and how much of their time the rank stood still for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.comm.pending_rows import Arrived
from dtdg_lab.parallel.layout import Marks, Unmarked
from dtdg_lab.parallel.leg_times import LegTimes

LinkRow = tuple[int, str, int, int, int]


class ExchangeLog:
    """Rows and bytes by link, and seconds by leg, since the last drain.

    Args:
        ranks: by its place among the ranks that exchange, each one's number in the run.

    Attributes:
        marks: told where waiting for an exchange begins and ends; set anew for every step.
        number: exchanges so far, which every rank counts alike.
        legs: seconds by leg.
    """

    def __init__(self, ranks: Sequence[int]) -> None:
        self.marks: Marks = Unmarked()
        self.number = 0
        self._ranks = list(ranks)
        self._links: dict[tuple[int, str], NDArray[np.int64]] = {}
        self.legs = LegTimes()

    def start(self, layer: int, way: str, send_counts: Sequence[int], row_bytes: int, *, own: int) -> int:
        """Note what an exchange sends to each rank; what this one sends itself moves nowhere. Returns its number."""
        sent = np.array([0 if place == own else count for place, count in enumerate(send_counts)])
        link = self._links.setdefault((layer, way), np.zeros((2, len(sent)), dtype=np.int64))
        link += np.outer([1, row_bytes], sent)
        self.number += 1
        return self.number

    def arrived(self, layer: int, way: str, leg: str, found: Arrived) -> None:
        """Note that an exchange has been waited for, just now."""
        self.marks.exchange(found.wait_s)
        self.legs.add(layer, way, leg, found)

    def drain(self) -> list[LinkRow]:
        """(layer, way, to, rows, bytes) of every link that carried rows; forgets them."""
        links, self._links = self._links, {}
        return [
            (layer, way, self._ranks[to], int(rows), int(moved))
            for (layer, way), sent in links.items()
            for to, (rows, moved) in enumerate(sent.T)
            if rows
        ]
