"""All-to-all exchange of rows, synchronous or asynchronous, with each rank's arrival time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from dtdg_lab.core.errors import PlanError, RunFailedError
from dtdg_lab.kernels.device_clock import DeviceClock, Stamp


@dataclass(frozen=True, slots=True)
class ExchangeTimes:
    """Times of an exchange on this rank, in nanoseconds since the Unix epoch.

    Attributes:
        began_ns: this rank began the exchange.
        all_began_ns: the last rank (the straggler) began it.
        ended_ns: it ended.
        entered_ns: this rank began to wait for it.
    """

    began_ns: int
    all_began_ns: int
    ended_ns: int
    entered_ns: int

    @property
    def in_flight_s(self) -> float:
        """Seconds from start to end."""
        return max(0, self.ended_ns - self.began_ns) * 1e-9

    @property
    def exposed_s(self) -> float:
        """Seconds of these that this rank waited; computation hid the rest."""
        return max(0, self.ended_ns - max(self.entered_ns, self.began_ns)) * 1e-9

    @property
    def wait_s(self) -> float:
        """Part of ``exposed_s`` before the last rank began."""
        return min(max(0, self.all_began_ns - self.entered_ns) * 1e-9, self.exposed_s)

    @property
    def communicate_s(self) -> float:
        """Part of ``exposed_s`` after the last rank began."""
        return self.exposed_s - self.wait_s


ReadTimes = Callable[[], ExchangeTimes]  # waits until the device has passed the exchange
NO_TIME = ExchangeTimes(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Arrived:
    """Received rows, and the times of their exchange.

    Attributes:
        rows: (r, F), ordered by sending rank.
        times: returns the times; on a GPU call it when the next step ends, since it may wait for the device.
    """

    rows: Tensor
    times: ReadTimes


class PendingRows(Protocol):
    """An asynchronous exchange in flight; its owner must call ``wait``."""

    def wait(self) -> Arrived:
        """Wait until the rows have arrived; a second call returns the same. On a GPU only later work waits.

        Raises:
            RunFailedError: a rank is in another exchange, or sent another number of rows than expected; on a GPU the
                times raise it.
        """


@dataclass(frozen=True, slots=True)
class NothingPending:
    """Rows that need no exchange, as on a single rank."""

    rows: Tensor

    def wait(self) -> Arrived:
        """Return the rows at once."""
        return Arrived(self.rows, lambda: NO_TIME)


_BITS = {4: torch.int32, 8: torch.int64}  # by item size: rows travel as integers, because the header has integers


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """The ranks of an exchange, from the view of one of them.

    Attributes:
        rank: this rank among them.
        numbers: (R,) their ranks in the run, for messages.
        clock_ns: a clock shared by all.
        device_clock: clock of this rank's device.
        process_group: their torch group; None is the default group.
    """

    rank: int
    numbers: Sequence[int]
    clock_ns: Callable[[], int]
    device_clock: DeviceClock
    process_group: dist.ProcessGroup | None = None


class RowExchange:
    """Exchange of rows in one collective of all ranks (see :func:`start_rows`).

    Attributes:
        bytes_sent: bytes sent to other ranks, including headers.
        bytes_received: bytes received from them.
    """

    def __init__(
        self,
        rows: Tensor,
        send_counts: Sequence[int],
        receive_counts: Sequence[int],
        members: GroupMembers,
        tag: Sequence[int],
    ) -> None:
        self._members, self._receive_counts = members, list(receive_counts)
        self._dtype, self._tail = rows.dtype, rows.shape[1:]
        bits, width = _bits_of(rows), math.prod(self._tail)
        headers = torch.tensor([[members.clock_ns(), count, *tag] for count in send_counts], dtype=torch.int64)
        fronts = headers.view(bits)
        self._width, self._head = width, fronts.shape[1]
        row_pieces = rows.detach().reshape(-1).view(bits).split([count * width for count in send_counts])
        # the network uses both buffers until the exchange has ended
        self._sent = torch.cat([piece for pair in zip(fronts.unbind(), row_pieces, strict=True) for piece in pair])
        send_lengths = [self._head + count * width for count in send_counts]
        receive_lengths = [self._head + count * width for count in self._receive_counts]
        self._received = self._sent.new_empty(sum(receive_lengths))
        self._arrived: Arrived | None = None
        self._flight = members.device_clock.launch(
            lambda: dist.all_to_all_single(
                self._received, self._sent, receive_lengths, send_lengths, group=members.process_group, async_op=True
            )
        )
        itemsize, own_length = self._sent.element_size(), self._head + send_counts[members.rank] * width
        self.bytes_sent = itemsize * (len(self._sent) - own_length)
        self.bytes_received = itemsize * (len(self._received) - own_length)

    def wait(self) -> Arrived:
        """Block until all rows have arrived; a second call returns the same.

        A dead rank usually raises here at once, but gloo may lose a send to it and hang: the session therefore
        also monitors the ranks (:class:`dtdg_lab.cluster.beacon.Beacon`).

        Raises:
            RunFailedError: a rank is in another exchange, or sent another number of rows than expected.
            RuntimeError: a rank has died.
        """
        if self._arrived is None:
            entered = self._members.device_clock.stamp()
            self._flight.join()
            self._arrived = self._unpack(entered)
            self._sent = self._received = self._sent.new_empty(0)
        return self._arrived

    def _unpack(self, entered: Stamp) -> Arrived:
        counts, members, clock = self._receive_counts, self._members, self._members.device_clock
        pieces = self._received.split([length for count in counts for length in (self._head, count * self._width)])
        headers = torch.cat(pieces[::2]).view(torch.int64).view(len(counts), -1).tolist()
        rows = torch.cat(pieces[1::2]).view(self._dtype).view(sum(counts), *self._tail)
        _check_headers([header[1:] for header in headers], counts, members)
        since_last_ns = members.clock_ns() - max(header[0] for header in headers)
        all_began_ns = clock.ns(clock.stamp()) - since_last_ns
        times = ExchangeTimes(
            clock.ns(self._flight.began), all_began_ns, clock.ns(self._flight.ended), clock.ns(entered)
        )
        return Arrived(rows, lambda: times)


class QueuedRowExchange:
    """Exchange of rows on a device that the host runs ahead of: the headers travel first, in their own collective.

    The headers' collective ends on every rank when the last rank has begun, so its end separates waiting from moving
    rows. Arrival times of the host, as :class:`RowExchange` sends them, would say nothing about the device.

    Attributes:
        bytes_sent: bytes sent to other ranks, including headers.
        bytes_received: bytes received from them.
    """

    def __init__(
        self,
        rows: Tensor,
        send_counts: Sequence[int],
        receive_counts: Sequence[int],
        members: GroupMembers,
        tag: Sequence[int],
    ) -> None:
        self._members, self._receive_counts, clock = members, list(receive_counts), members.device_clock
        _bits_of(rows)
        headers = clock.send(torch.tensor([[count, *tag] for count in send_counts], dtype=torch.int64))
        received_headers = torch.empty_like(headers)
        # the network's stream uses all of them until the device's work has waited for the exchange
        self._buffers: tuple[Tensor, ...] = (headers, received_headers)
        self._sent = rows.detach().clone(memory_format=torch.contiguous_format)
        self._received = rows.new_empty((sum(receive_counts), *rows.shape[1:]))
        self._arrived: Arrived | None = None
        self._meeting = clock.launch(
            lambda: dist.all_to_all_single(received_headers, headers, group=members.process_group, async_op=True)
        )
        read_headers = self._meeting.read_back(received_headers)
        self._check = lambda: _check_headers(read_headers().tolist(), receive_counts, members)
        self._flight = clock.launch(
            lambda: dist.all_to_all_single(
                self._received,
                self._sent,
                self._receive_counts,
                list(send_counts),
                group=members.process_group,
                async_op=True,
            )
        )
        row_bytes = math.prod(rows.shape[1:]) * rows.element_size()
        header_bytes = headers[0].nbytes * (len(send_counts) - 1)
        self.bytes_sent = header_bytes + row_bytes * (sum(send_counts) - send_counts[members.rank])
        self.bytes_received = header_bytes + row_bytes * (sum(receive_counts) - receive_counts[members.rank])

    def wait(self) -> Arrived:
        """Let later work of this rank wait for the rows; a second call returns the same.

        Raises:
            RuntimeError: a rank has died.
        """
        if self._arrived is None:
            clock = self._members.device_clock
            entered = clock.stamp()
            self._meeting.join()
            self._flight.join()
            check, stamps = self._check, (self._meeting.began, self._meeting.ended, self._flight.ended, entered)

            def times() -> ExchangeTimes:
                check()
                return ExchangeTimes(*map(clock.ns, stamps))

            self._arrived = Arrived(self._received, times)
            self._sent = self._received = self._sent.new_empty(0)
            self._buffers = ()
        return self._arrived


def start_rows(
    rows: Tensor,
    send_counts: Sequence[int],
    receive_counts: Sequence[int],
    members: GroupMembers,
    *,
    tag: Sequence[int] = (),
) -> RowExchange | QueuedRowExchange:
    """Start an asynchronous all-to-all of rows.

    Every rank sends each other rank a header with its arrival time, its number of rows and its ``tag``, even without
    rows. So all ranks know which rank was last (the straggler) and that they are in the same exchange, without another
    collective. (More rows than expected abort the process on gloo; only fewer are detected here.) Rows are copied and
    may be changed at once. Several exchanges may be in flight; all ranks must start them in the same order. On a GPU
    nothing waits for the device.

    Args:
        rows: (s, F), ordered by destination rank, 4 or 8 bytes a number; F may be several dimensions.
        send_counts: (R,) rows to each rank.
        receive_counts: (R,) rows expected from each rank.
        members: the ranks.
        tag: numbers that identify the exchange and must be equal on all ranks, such as a count of exchanges.

    Raises:
        PlanError: counts are inconsistent with the rows or the ranks, or the rows' type has another size.
    """
    check_counts(rows, send_counts, receive_counts, members.rank, len(members.numbers))
    exchange = QueuedRowExchange if members.device_clock.is_late else RowExchange
    return exchange(rows, send_counts, receive_counts, members, tag)


def check_counts(rows: Tensor, send_counts: Sequence[int], receive_counts: Sequence[int], rank: int, size: int) -> None:
    """Check counts against the rows, the number of ranks, and each other.

    Raises:
        PlanError: they are inconsistent.
    """
    if len(send_counts) != size or len(receive_counts) != size:
        raise PlanError(
            f"an exchange of rows among {size} rank(s) got {len(send_counts)} counts to send and "
            f"{len(receive_counts)} to receive; give one for each rank. Partition.on_ranks merges the parts of a rank."
        )
    if min(send_counts) < 0 or min(receive_counts) < 0 or sum(send_counts) != len(rows):
        raise PlanError(
            f"counts {list(send_counts)} to send and {list(receive_counts)} to receive do not fit {len(rows)} rows: "
            "counts to send must sum to the rows, and none be below 0."
        )
    if send_counts[rank] != receive_counts[rank]:
        raise PlanError(
            f"rank {rank} sends itself {send_counts[rank]} rows but expects {receive_counts[rank]} of itself; both "
            "counts must be equal."
        )


def _bits_of(rows: Tensor) -> torch.dtype:
    """Return the integer type in which rows are sent.

    Raises:
        PlanError: the rows' numbers do not have 4 or 8 bytes.
    """
    bits = _BITS.get(rows.element_size())
    if bits is None:
        raise PlanError(
            f"rows of {rows.dtype} cannot be exchanged: numbers need 4 or 8 bytes. Convert them to float32 or float64."
        )
    return bits


def _check_headers(headers: list[list[int]], expected: Sequence[int], members: GroupMembers) -> None:
    """Check that all ranks are in the same exchange with the expected numbers of rows.

    Args:
        headers: number of rows and tag of each rank.
        expected: expected numbers of rows.
        members: the ranks.
    """
    counts, tags = [header[0] for header in headers], [tuple(header[1:]) for header in headers]
    numbers, own_tag = members.numbers, tags[members.rank]
    rank = numbers[members.rank]
    sender = next((number for number, tag in enumerate(tags) if tag != own_tag), None)
    if sender is not None:
        raise RunFailedError(
            f"rank {rank} is at exchange {own_tag} but rank {numbers[sender]} at {tags[sender]} (number, layer, "
            "pass). All ranks must make the same exchanges in the same order, so a model whose aggregations depend on "
            "a rank's own rows cannot be distributed. Run it on one rank, or make its aggregations the same on all "
            "ranks."
        )
    sender = next((number for number, count in enumerate(counts) if count != expected[number]), None)
    if sender is not None:
        raise RunFailedError(
            f"rank {numbers[sender]} sent {counts[sender]} rows where rank {rank} expected {expected[sender]}: their "
            "plans belong to different partitions or snapshots. Make the plans of all ranks from one partition."
        )
