"""Rows on their way between ranks: what a rank holds while it computes something else, and what arrives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Arrived:
    """Rows that arrived, and the seconds they took on this rank.

    Attributes:
        rows: (r, F), those of the group's rank 0 first.
        wait_s: the part of ``exposed_s`` before the last rank started the exchange: nothing could cross yet.
        in_flight_s: from start to completion, whenever it was waited for.
        exposed_s: of this, what the rank stood still in ``wait()``; the rest was hidden behind its own work.
        started_s: when it was started, by ``time.perf_counter``.
        all_started_s: when the last rank started it, by the same clock of this rank: rows cross from then on.
    """

    rows: Tensor
    wait_s: float
    in_flight_s: float
    exposed_s: float
    started_s: float = 0.0
    all_started_s: float = 0.0


class PendingRows(Protocol):
    """An exchange that was started; whoever holds it must wait for it in the end."""

    def wait(self) -> Arrived:
        """Return when the rows are here; a second call returns the same.

        Raises:
            RunFailedError: a rank is at another place, or sent another number of rows than expected.
        """
        ...


@dataclass(frozen=True, slots=True)
class NothingInFlight:
    """Pending rows that are here already, as those of a rank by itself."""

    rows: Tensor

    def wait(self) -> Arrived:
        """The rows, after no time."""
        return Arrived(self.rows, wait_s=0.0, in_flight_s=0.0, exposed_s=0.0)
