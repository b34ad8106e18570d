"""Process group with slow links between its ranks, emulated at the receiver."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.core.errors import PlanError
from dtdg_lab.distributed.all_to_all import Arrived, PendingRows
from dtdg_lab.distributed.group import Group, SoloGroup, columns_of, rows_of
from dtdg_lab.kernels.device_clock import DeviceClock, Flight
from dtdg_lab.network.links import LinkState


@dataclass(slots=True)
class _Lines:
    """The links to this rank; shared by its group and the groups split from it.

    Attributes:
        links: (R, R) the current links.
        free_ns: for each rank of the run, when its link to this rank becomes free, since the Unix epoch.
        flying: exchanges whose arrival is not computed yet, in the order of their starts.
    """

    links: LinkState
    free_ns: list[int]
    flying: deque[_LateRows] = field(default_factory=deque)


class LinkedGroup:
    """A group whose exchanges of rows are delayed by the links between its ranks.

    Rows from rank o to rank r arrive ``delay_s[o, r]`` seconds later, and pass the link at ``bytes_per_s[o, r]``, one
    exchange after another, starting when the last rank has started the exchange. An exchange completes on rank r when
    all its rows have arrived: several slow links cost the slowest one's time, not their sum. The processor is free
    meanwhile. Other collectives, such as of gradients, are not delayed.

    Args:
        group: the underlying group.
        links: links of its R ranks, see :func:`dtdg_lab.network.links.links_of_ranks`; None for clean links.

    Raises:
        PlanError: the links have another number of ranks.
    """

    def __init__(self, group: Group, links: LinkState | None = None) -> None:
        self.rank, self.size, self.store = group.rank, group.size, group.store
        self._group = group
        self._lines = _Lines(LinkState.clean(self.size), [0] * self.size)
        self._numbers = list(range(self.size))
        self._splits: dict[int, tuple[Group, Group]] = {}
        if links is not None:
            self.set_links(links)

    @property
    def device_clock(self) -> DeviceClock:
        """Clock of the underlying group."""
        return self._group.device_clock

    @property
    def inner(self) -> Group:
        """The underlying group."""
        return self._group

    @property
    def links(self) -> LinkState:
        """Current links of all ranks of the run, (R, R)."""
        return self._lines.links

    def set_links(self, links: LinkState) -> None:
        """Change the links for exchanges that start from now on, also in subgroups.

        A rank uses only the links to itself, so every rank must call this.

        Raises:
            PlanError: the links have another number of ranks.
        """
        ranks = len(self._lines.free_ns)
        if links.parts != ranks:
            raise PlanError(
                f"links between {links.parts} ranks do not fit a group of {ranks}. Give one row and one column for "
                "each rank; links_of_ranks makes them from links between parts."
            )
        self._lines.links = links

    @property
    def bytes_sent(self) -> int:
        """Count of the underlying group."""
        return self._group.bytes_sent

    @bytes_sent.setter
    def bytes_sent(self, number: int) -> None:
        """Set the count of the underlying group."""
        self._group.bytes_sent = number

    @property
    def bytes_received(self) -> int:
        """Count of the underlying group."""
        return self._group.bytes_received

    @bytes_received.setter
    def bytes_received(self, number: int) -> None:
        """Set the count of the underlying group."""
        self._group.bytes_received = number

    def start_exchange(
        self, rows: Tensor, send_counts: Sequence[int], receive_counts: Sequence[int], *, tag: Sequence[int] = ()
    ) -> PendingRows:
        """Start an exchange; it completes when its rows have passed the links."""
        pending = self._group.start_exchange(rows, send_counts, receive_counts, tag=tag)
        links = self._lines.links
        if self.size == 1 or links.is_clean:
            return pending
        width = rows.element_size() * math.prod(rows.shape[1:])
        own_number = self._numbers[self.rank]
        transfers = [
            _Transfer(
                number,
                count * width,
                float(links.delay_s[number, own_number]),
                float(links.bytes_per_s[number, own_number]),
            )
            for number, count in zip(self._numbers, receive_counts, strict=True)
            if count and number != own_number
        ]
        late = _LateRows(pending, transfers, self._lines, self.device_clock)
        self._lines.flying.append(late)
        return late

    def split(self, row_ranks: int) -> tuple[Group, Group]:
        """Split the underlying group, with the links between its ranks."""
        if row_ranks not in self._splits:
            row_group, column = self._group.split(row_ranks)
            linked_rows = self._part(row_group, rows_of(row_ranks, self.size))
            self._splits[row_ranks] = linked_rows, self._part(column, columns_of(row_ranks, self.size))
        return self._splits[row_ranks]

    def _part(self, group: Group, parts: list[list[int]]) -> Group:
        """Return this rank's group among the parts."""
        if group is self._group:
            return self
        if isinstance(group, SoloGroup):
            return group
        part = LinkedGroup(group)
        part._lines = self._lines
        part._numbers = next(numbers for numbers in parts if self.rank in numbers)
        return part

    def all_reduce(self, flat: Tensor) -> None:
        """Sum over ranks by the underlying group."""
        self._group.all_reduce(flat)

    def start_sum(self, flat: Tensor) -> Flight:
        """Start a sum by the underlying group."""
        return self._group.start_sum(flat)

    def gather_rows(self, rows: Tensor, counts: list[int]) -> Tensor:
        """Gather rows by the underlying group."""
        return self._group.gather_rows(rows, counts)

    def gather_on_host(self, row: Tensor) -> Tensor:
        """Gather rows of the host by the underlying group."""
        return self._group.gather_on_host(row)

    def broadcast_array(self, array: NDArray[Any] | None) -> NDArray[Any]:
        """Broadcast an array by the underlying group."""
        return self._group.broadcast_array(array)

    def broadcast_text(self, text: str) -> str:
        """Broadcast a text by the underlying group."""
        return self._group.broadcast_text(text)

    def barrier(self) -> None:
        """Wait for all ranks of the underlying group."""
        self._group.barrier()

    def clock_ns(self) -> int:
        """Return the clock of the underlying group."""
        return self._group.clock_ns()

    def check(self) -> None:
        """Raise if the underlying group was aborted."""
        self._group.check()

    def close(self) -> None:
        """Leave the underlying group."""
        self._group.close()


@dataclass(frozen=True, slots=True)
class _Transfer:
    """Rows that one rank sends to this rank in an exchange, and their link."""

    sender: int
    nbytes: int
    delay_s: float
    bytes_per_s: float


class _LateRows:
    """Pending rows that arrive when the last of them has passed its link. Also on a GPU the host sleeps until then."""

    def __init__(self, pending: PendingRows, transfers: list[_Transfer], lines: _Lines, clock: DeviceClock) -> None:
        self._pending, self._transfers, self._lines, self._clock = pending, transfers, lines, clock
        self._due_ns: int | None = None
        self._arrived: Arrived | None = None

    def wait(self) -> Arrived:
        """Wait for the rows, and sleep for the rest of their emulated flight."""
        if self._arrived is None:
            entered_ns = self._clock.host_ns()
            while self._due_ns is None:  # earlier exchanges pass the links first
                self._lines.flying.popleft().compute_flight()
            arrived, due_ns = self._pending.wait(), self._due_ns
            if (left_ns := due_ns - self._clock.host_ns()) > 0:
                time.sleep(left_ns * 1e-9)
            times = replace(arrived.times(), ended_ns=due_ns, entered_ns=entered_ns)
            self._arrived = Arrived(arrived.rows, lambda: times)
        return self._arrived

    def compute_flight(self) -> None:
        """Compute when the last row is due; every rank must have started the exchange."""
        times, free_ns = self._pending.wait().times(), self._lines.free_ns
        began_ns = max(times.all_began_ns, times.began_ns)
        self._due_ns = times.ended_ns  # the real exchange may be slower
        for transfer in self._transfers:
            passed_ns = began_ns
            if transfer.bytes_per_s < math.inf:
                passed_ns = max(began_ns, free_ns[transfer.sender])
                passed_ns += round(1e9 * transfer.nbytes / transfer.bytes_per_s)
                free_ns[transfer.sender] = passed_ns
            self._due_ns = max(self._due_ns, passed_ns + round(1e9 * transfer.delay_s))
