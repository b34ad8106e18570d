"""Process group with slow links between its ranks, emulated where rows arrive."""

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
from dtdg_lab.network.links import LinkState


@dataclass(slots=True)
class _Lines:
    """The links to this rank; shared by its group and the groups split from it.

    Attributes:
        links: (R, R) as set last.
        free_s: of each rank of the run, when its link to this one will have passed what is on it.
        flying: exchanges whose times are not known yet, in the order of their starts.
    """

    links: LinkState
    free_s: list[float]
    flying: deque[_LateRows] = field(default_factory=deque)


class LinkedGroup:
    """A group whose exchanges of rows come late by the state of the links between its ranks.

    Rows that rank o sends to rank r come ``delay_s[o, r]`` seconds later, and pass its link at ``bytes_per_s[o, r]``,
    one exchange after another, from when the last rank has started the exchange. It completes on rank r when the rows
    of all ranks that send it any have come: several slow links cost the slowest one's time, not their sum. The
    processor is free meanwhile. What else ranks do together, gradients among it, takes the time it takes, and a group
    by itself has no links.

    Args:
        group: the ranks; what is asked of this one is asked of it.
        links: of its R ranks, see :func:`dtdg_lab.network.links.links_of_ranks`; clean where None.

    Raises:
        PlanError: the links are of another number of ranks.
    """

    def __init__(self, group: Group, links: LinkState | None = None) -> None:
        self.rank, self.size, self.store = group.rank, group.size, group.store
        self._group = group
        self._lines = _Lines(LinkState.clean(self.size), [0.0] * self.size)
        self._numbers = list(range(self.size))
        self._splits: dict[int, tuple[Group, Group]] = {}
        if links is not None:
            self.set_links(links)

    @property
    def inner(self) -> Group:
        """The group inside."""
        return self._group

    @property
    def links(self) -> LinkState:
        """(R, R) the links as set last, of all ranks of the run."""
        return self._lines.links

    def set_links(self, links: LinkState) -> None:
        """Change the links for exchanges that start from now on, also of the groups split from this one.

        A rank reads only the links to itself, so every rank must call this.

        Raises:
            PlanError: the links are of another number of ranks.
        """
        ranks = len(self._lines.free_s)
        if links.parts != ranks:
            raise PlanError(
                f"links between {links.parts} ranks were given to a group of {ranks}: give one row and one column for "
                "each rank; congestion.rank_links makes them of links between parts."
            )
        self._lines.links = links

    @property
    def bytes_sent(self) -> int:
        """Count of the group inside."""
        return self._group.bytes_sent

    @bytes_sent.setter
    def bytes_sent(self, number: int) -> None:
        """Set the count of the group inside."""
        self._group.bytes_sent = number

    @property
    def bytes_received(self) -> int:
        """Count of the group inside."""
        return self._group.bytes_received

    @bytes_received.setter
    def bytes_received(self, number: int) -> None:
        """Set the count of the group inside."""
        self._group.bytes_received = number

    def start_exchange(
        self, rows: Tensor, send_counts: Sequence[int], receive_counts: Sequence[int], *, tag: Sequence[int] = ()
    ) -> PendingRows:
        """Start an exchange of the group inside; it completes when its rows have passed the links."""
        pending = self._group.start_exchange(rows, send_counts, receive_counts, tag=tag)
        links = self._lines.links
        if self.size == 1 or links.is_clean:
            return pending
        width = rows.element_size() * math.prod(rows.shape[1:])
        mine = self._numbers[self.rank]
        coming = [
            _Coming(number, count * width, float(links.delay_s[number, mine]), float(links.bytes_per_s[number, mine]))
            for number, count in zip(self._numbers, receive_counts, strict=True)
            if count and number != mine
        ]
        late = _LateRows(pending, coming, self._lines)
        self._lines.flying.append(late)
        return late

    def split(self, row_ranks: int) -> tuple[Group, Group]:
        """Split the group inside, with the links between its ranks."""
        if row_ranks not in self._splits:
            row_group, column = self._group.split(row_ranks)
            of_rows = self._part(row_group, rows_of(row_ranks, self.size))
            self._splits[row_ranks] = of_rows, self._part(column, columns_of(row_ranks, self.size))
        return self._splits[row_ranks]

    def _part(self, group: Group, parts: list[list[int]]) -> Group:
        """Return this rank's subgroup of a division of the ranks."""
        if group is self._group:
            return self
        if isinstance(group, SoloGroup):
            return group
        part = LinkedGroup(group)
        part._lines = self._lines
        part._numbers = next(numbers for numbers in parts if self.rank in numbers)
        return part

    def all_reduce(self, flat: Tensor) -> None:
        """Sum over ranks by the group inside."""
        self._group.all_reduce(flat)

    def gather_rows(self, rows: Tensor, counts: list[int]) -> Tensor:
        """Gather rows by the group inside."""
        return self._group.gather_rows(rows, counts)

    def broadcast_array(self, array: NDArray[Any] | None) -> NDArray[Any]:
        """Broadcast an array by the group inside."""
        return self._group.broadcast_array(array)

    def broadcast_text(self, text: str) -> str:
        """Broadcast a text by the group inside."""
        return self._group.broadcast_text(text)

    def barrier(self) -> None:
        """Wait for all ranks of the group inside."""
        self._group.barrier()

    def clock_ns(self) -> int:
        """Return the clock of the group inside."""
        return self._group.clock_ns()

    def close(self) -> None:
        """Leave the group inside."""
        self._group.close()


@dataclass(frozen=True, slots=True)
class _Coming:
    """What one rank sends this one in an exchange, and the link it passes."""

    sender: int
    nbytes: int
    delay_s: float
    bytes_per_s: float


class _LateRows:
    """Pending rows that are here when the last of them has passed its link."""

    def __init__(self, pending: PendingRows, coming: list[_Coming], lines: _Lines) -> None:
        self._pending, self._coming, self._lines = pending, coming, lines
        self._started_s = time.perf_counter()
        self._flight_s: float | None = None
        self._arrived: Arrived | None = None

    def wait(self) -> Arrived:
        """Sleep for what is left of the way."""
        if self._arrived is None:
            entered_s = time.perf_counter()
            while self._flight_s is None:  # a link passes what was sent before first: its times are needed
                self._lines.flying.popleft().settle()
            arrived, due_s = self._pending.wait(), self._started_s + self._flight_s
            if (left_s := due_s - time.perf_counter()) > 0:
                time.sleep(left_s)
            exposed_s = min(max(0.0, due_s - entered_s), self._flight_s)
            wait_s = min(max(0.0, arrived.all_started_s - entered_s), exposed_s)
            self._arrived = replace(
                arrived, wait_s=wait_s, in_flight_s=self._flight_s, exposed_s=exposed_s, started_s=self._started_s
            )
        return self._arrived

    def settle(self) -> None:
        """Compute when the rows arrive, once every rank has started to send; times count from this one's start."""
        arrived, free_s = self._pending.wait(), self._lines.free_s
        crossing_s = max(0.0, arrived.all_started_s - self._started_s)
        self._flight_s = max(0.0, arrived.started_s + arrived.in_flight_s - self._started_s)  # inside it may be slower
        for transfer in self._coming:
            passed_s = crossing_s
            if transfer.bytes_per_s < math.inf:
                free = free_s[transfer.sender] - self._started_s
                passed_s = max(crossing_s, free) + transfer.nbytes / transfer.bytes_per_s
                free_s[transfer.sender] = self._started_s + passed_s
            self._flight_s = max(self._flight_s, passed_s + transfer.delay_s)
