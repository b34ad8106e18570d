"""A slow network between ranks that are in fact close, for tests of what is hidden behind computing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.comm.group import Group
from dtdg_lab.comm.pending_rows import Arrived, PendingRows


class DelayedGroup:
    """A group whose exchanges of rows take at least ``delay_s`` from start to completion.

    The processor is free meanwhile, as it is where a network is slow. Other collectives take the time they take.
    A group by itself has nothing in flight, and is not delayed.

    Args:
        group: the ranks; what is asked of this one is asked of it.
        delay_s: seconds, at least 0.
        bytes_per_s: that a rank's rows leave at, one exchange after another, before the delay of each.
    """

    def __init__(self, group: Group, delay_s: float, bytes_per_s: float = float("inf")) -> None:
        self.rank, self.size, self.store = group.rank, group.size, group.store
        self._group, self._delay_s, self._bytes_per_s = group, delay_s, bytes_per_s
        self._free_s = 0.0  # when what was sent before has left
        self._splits: dict[int, tuple[Group, Group]] = {}

    @property
    def bytes_sent(self) -> int:
        """As counted by the group inside."""
        return self._group.bytes_sent

    @bytes_sent.setter
    def bytes_sent(self, number: int) -> None:
        self._group.bytes_sent = number

    @property
    def bytes_received(self) -> int:
        """As counted by the group inside."""
        return self._group.bytes_received

    @bytes_received.setter
    def bytes_received(self, number: int) -> None:
        self._group.bytes_received = number

    def exchange_rows(
        self, rows: Tensor, send_counts: Sequence[int], receive_counts: Sequence[int], *, place: Sequence[int] = ()
    ) -> tuple[Tensor, float]:
        """A start and a wait: all of the delay is stood still for."""
        arrived = self.start_exchange(rows, send_counts, receive_counts, place=place).wait()
        return arrived.rows, arrived.wait_s

    def start_exchange(
        self, rows: Tensor, send_counts: Sequence[int], receive_counts: Sequence[int], *, place: Sequence[int] = ()
    ) -> PendingRows:
        """An exchange of the group inside that completes ``delay_s`` from now, or later."""
        pending = self._group.start_exchange(rows, send_counts, receive_counts, place=place)
        if self.size == 1:
            return pending
        now_s, own = time.perf_counter(), send_counts[self.rank]
        leaving = (len(rows) - own) * rows[:1].nbytes
        self._free_s = max(now_s, self._free_s) + leaving / self._bytes_per_s
        return _LateRows(pending, self._free_s - now_s + self._delay_s)

    def split(self, row_ranks: int) -> tuple[Group, Group]:
        """The groups of the group inside, as late as this one."""
        if row_ranks not in self._splits:
            row_group, column = self._group.split(row_ranks)
            of_rows, of_column = (DelayedGroup(each, self._delay_s, self._bytes_per_s) for each in (row_group, column))
            self._splits[row_ranks] = of_rows, of_column
        return self._splits[row_ranks]

    def all_reduce(self, flat: Tensor) -> None:
        """As the group inside does."""
        self._group.all_reduce(flat)

    def gather_rows(self, rows: Tensor, counts: list[int]) -> Tensor:
        """As the group inside does."""
        return self._group.gather_rows(rows, counts)

    def broadcast_array(self, array: NDArray[Any] | None) -> NDArray[Any]:
        """As the group inside does."""
        return self._group.broadcast_array(array)

    def broadcast_text(self, text: str) -> str:
        """As the group inside does."""
        return self._group.broadcast_text(text)

    def barrier(self) -> None:
        """As the group inside does."""
        self._group.barrier()

    def clock_ns(self) -> int:
        """As the group inside has it."""
        return self._group.clock_ns()

    def close(self) -> None:
        """Leave the group inside."""
        self._group.close()


class _LateRows:
    """Pending rows that are here, at the earliest, some time after their start."""

    def __init__(self, pending: PendingRows, delay_s: float) -> None:
        self._pending, self._delay_s = pending, delay_s
        self._started_s = time.perf_counter()
        self._arrived: Arrived | None = None

    def wait(self) -> Arrived:
        """Sleep for what is left of the delay."""
        if self._arrived is None:
            entered_s = time.perf_counter()
            arrived = self._pending.wait()
            left_s = self._started_s + self._delay_s - time.perf_counter()
            if left_s > 0:
                time.sleep(left_s)
            due_s = self._started_s + max(self._delay_s, arrived.in_flight_s)
            in_flight_s, exposed_s = due_s - self._started_s, max(0.0, due_s - entered_s)
            # what the network inside took longer than the delay is known better by itself
            self._arrived = replace(arrived, in_flight_s=in_flight_s, exposed_s=max(arrived.exposed_s, exposed_s))
        return self._arrived
