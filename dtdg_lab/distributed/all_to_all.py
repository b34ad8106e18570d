"""All-to-all exchange of rows, synchronous or asynchronous, with each rank's arrival time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from dtdg_lab.core.errors import PlanError, RunFailedError
from dtdg_lab.distributed.completion import Completion, watch


@dataclass(frozen=True, slots=True)
class Arrived:
    """Received rows and the timing of their exchange on this rank.

    Attributes:
        rows: (r, F), ordered by sending rank.
        wait_s: part of ``exposed_s`` before the last rank (the straggler) started the exchange.
        in_flight_s: seconds from start to completion.
        exposed_s: part of ``in_flight_s`` that this rank blocked in ``wait()``; computation hid the rest.
        started_s: start time, by ``time.perf_counter``.
        all_started_s: time when the last rank started it, by the same clock of this rank.
    """

    rows: Tensor
    wait_s: float
    in_flight_s: float
    exposed_s: float
    started_s: float = 0.0
    all_started_s: float = 0.0


class PendingRows(Protocol):
    """An asynchronous exchange in flight; its owner must call ``wait``."""

    def wait(self) -> Arrived:
        """Block until the rows have arrived; a second call returns the same.

        Raises:
            RunFailedError: a rank is in another exchange, or sent another number of rows than expected.
        """


@dataclass(frozen=True, slots=True)
class NothingPending:
    """Rows that need no exchange, as on a single rank."""

    rows: Tensor

    def wait(self) -> Arrived:
        """Return the rows at once."""
        return Arrived(self.rows, wait_s=0.0, in_flight_s=0.0, exposed_s=0.0)


_BITS = {4: torch.int32, 8: torch.int64}  # by item size: rows travel as integers, because the header has integers


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """The ranks of an exchange, from the view of one of them.

    Attributes:
        rank: this rank among them.
        numbers: (R,) their ranks in the run, for messages.
        clock_ns: a clock shared by all.
        process_group: their torch group; None is the default group.
    """

    rank: int
    numbers: Sequence[int]
    clock_ns: Callable[[], int]
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
        if rows.is_cuda:  # else the arrival time would precede the computation of the rows
            torch.cuda.current_stream(rows.device).synchronize()
        headers = torch.tensor([[members.clock_ns(), count, *tag] for count in send_counts], dtype=torch.int64)
        fronts = headers.to(rows.device).view(bits)
        self._width, self._head = width, fronts.shape[1]
        row_pieces = rows.detach().reshape(-1).view(bits).split([count * width for count in send_counts])
        # the network uses both buffers until the exchange has ended
        self._sent = torch.cat([piece for pair in zip(fronts.unbind(), row_pieces, strict=True) for piece in pair])
        receive_lengths = [self._head + count * width for count in self._receive_counts]
        self._received = self._sent.new_empty(sum(receive_lengths))
        self._arrived: Arrived | None = None
        self._completion = self._start(receive_lengths, [self._head + count * width for count in send_counts])
        itemsize, own_length = self._sent.element_size(), self._head + send_counts[members.rank] * width
        self.bytes_sent = itemsize * (len(self._sent) - own_length)
        self.bytes_received = itemsize * (len(self._received) - own_length)

    def _start(self, receive_lengths: list[int], send_lengths: list[int]) -> Completion:
        if self._sent.is_cuda:  # the timing must not include packing
            torch.cuda.current_stream(self._sent.device).synchronize()
        self._started_s = started_s = time.perf_counter()
        work = dist.all_to_all_single(
            self._received,
            self._sent,
            receive_lengths,
            send_lengths,
            group=self._members.process_group,
            async_op=True,
        )
        return watch(work, started_s, self._sent.device)

    def wait(self) -> Arrived:
        """Block until the rows have arrived; a second call returns the same.

        A dead rank usually raises here at once, but gloo may lose a send to it and hang: the session therefore
        also monitors the ranks (:class:`dtdg_lab.cluster.beacon.Beacon`).

        Raises:
            RunFailedError: a rank is in another exchange, or sent another number of rows than expected.
            RuntimeError: a rank has died.
        """
        if self._arrived is None:
            entered_ns = self._members.clock_ns()
            in_flight_s, exposed_s = self._completion.wait()
            self._arrived = self._unpack(entered_ns, in_flight_s, exposed_s)
            self._sent = self._received = self._sent.new_empty(0)
        return self._arrived

    def _unpack(self, entered_ns: int, in_flight_s: float, exposed_s: float) -> Arrived:
        counts, members = self._receive_counts, self._members
        pieces = self._received.split([length for count in counts for length in (self._head, count * self._width)])
        headers = torch.cat(pieces[::2]).view(torch.int64).view(len(counts), -1).tolist()  # waits for the device
        rows = torch.cat(pieces[1::2]).view(self._dtype).view(sum(counts), *self._tail)
        _check_fit([header[1] for header in headers], counts, [tuple(header[2:]) for header in headers], members)
        last_ns = max(header[0] for header in headers)
        wait_s = min(max(0, last_ns - entered_ns) * 1e-9, exposed_s)
        since_last_s = (members.clock_ns() - last_ns) * 1e-9
        return Arrived(rows, wait_s, in_flight_s, exposed_s, self._started_s, time.perf_counter() - since_last_s)


def start_rows(
    rows: Tensor,
    send_counts: Sequence[int],
    receive_counts: Sequence[int],
    members: GroupMembers,
    *,
    tag: Sequence[int] = (),
) -> RowExchange:
    """Start an asynchronous all-to-all of rows.

    Every rank sends each other rank a header with its arrival time, its number of rows and its ``tag``, even without
    rows. So all ranks know which rank was last (the straggler) and that they are in the same exchange, without another
    collective. (More rows than expected abort the process on gloo; only fewer are detected here.) Rows are copied and
    may be changed at once. Several exchanges may be in flight; all ranks must start them in the same order. On a GPU
    the current stream is synchronised first, so that the arrival time includes its work.

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
    return RowExchange(rows, send_counts, receive_counts, members, tag)


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


def _check_fit(counts: list[int], expected: Sequence[int], tags: list[tuple[int, ...]], members: GroupMembers) -> None:
    """Check that all ranks are in the same exchange with the expected numbers of rows."""
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
