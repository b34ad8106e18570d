"""All-to-all exchange of rows, synchronous or asynchronous, with each rank's arrival time."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from dtdg_lab.core.errors import PlanError, RunFailedError

# The end time of a collective, which differs from the time of the check.


STAMP_S = 1.0  # maximum delay of a completion callback


class Completion(Protocol):
    """Measures one collective from its start."""

    def wait(self) -> tuple[float, float]:
        """Block until the collective has ended.

        Returns:
            Seconds in flight, from start to end; seconds of it that this call blocked.

        Raises:
            RuntimeError: the network failed.
        """


def watch(work: dist.Work, started_s: float, device: torch.device) -> Completion:
    """Watch a collective that was started on a device at ``started_s`` of ``time.perf_counter``."""
    return _DeviceCompletion(work, device) if device.type == "cuda" else _HostCompletion(work, started_s)


class _HostCompletion:
    """gloo: a background thread completes the work and records the time, up to a delay by the GIL."""

    def __init__(self, work: dist.Work, started_s: float) -> None:
        self._work, self._started_s = work, started_s
        self._ended_s: list[float] = []
        self._stamped = threading.Event()
        stamps, stamped = self._ended_s, self._stamped  # the callback must keep only these alive

        def stamp(_: Any) -> None:
            stamps.append(time.perf_counter())
            stamped.set()

        work.get_future().add_done_callback(stamp)

    def wait(self) -> tuple[float, float]:
        entered_s = time.perf_counter()
        self._work.wait()
        self._stamped.wait(STAMP_S)  # a callback during interpreter shutdown would abort the process
        ended_s = self._ended_s[0] if self._ended_s else time.perf_counter()
        return ended_s - self._started_s, max(0.0, ended_s - entered_s)


class _DeviceCompletion:
    """NCCL: futures are done at launch, so CUDA events record start and end."""

    def __init__(self, work: dist.Work, device: torch.device) -> None:
        self._work = work  # keeps buffers alive that the device still uses
        self._began, self._ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # the caller has synchronised this stream, so the event is recorded at once
        self._began.record(torch.cuda.current_stream(device))
        side = torch.cuda.Stream(device)
        with torch.cuda.stream(side):
            work.wait()  # blocks this stream instead of the compute stream
            self._ended.record(side)

    def wait(self) -> tuple[float, float]:
        entered_s = time.perf_counter()
        self._ended.synchronize()
        exposed_s = time.perf_counter() - entered_s
        in_flight_s = self._began.elapsed_time(self._ended) * 1e-3
        return in_flight_s, min(exposed_s, in_flight_s)


# Rows in flight between ranks, and rows that arrived.


@dataclass(frozen=True, slots=True)
class Arrived:
    """Received rows and the timing of their exchange on this rank.

    Attributes:
        rows: (r, F), those of the group's rank 0 first.
        wait_s: the share of ``exposed_s`` before the last rank (the straggler) started the exchange.
        in_flight_s: from start to completion.
        exposed_s: share of it that this rank blocked in ``wait()``; the rest was hidden behind computation.
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
        """The rows, without waiting."""
        return Arrived(self.rows, wait_s=0.0, in_flight_s=0.0, exposed_s=0.0)


# All-to-all of rows; a header carries each rank's arrival time.


_BITS = {4: torch.int32, 8: torch.int64}  # rows are sent as integers of their size, because the header is not float


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
        place: Sequence[int],
    ) -> None:
        self._members, self._receive_counts = members, list(receive_counts)
        self._dtype, self._tail = rows.dtype, rows.shape[1:]
        bits, width = _bits_of(rows), math.prod(self._tail)
        if rows.is_cuda:  # else the arrival time would precede the computation of the rows
            torch.cuda.current_stream(rows.device).synchronize()
        words = torch.tensor([[members.clock_ns(), count, *place] for count in send_counts], dtype=torch.int64)
        fronts = words.to(rows.device).view(bits)
        self._width, self._head = width, fronts.shape[1]
        own = rows.detach().reshape(-1).view(bits).split([count * width for count in send_counts])
        # both buffers are kept until the exchange has ended, because the network uses them
        self._sent = torch.cat([piece for pair in zip(fronts.unbind(), own, strict=True) for piece in pair])
        due = [self._head + count * width for count in self._receive_counts]
        self._came = self._sent.new_empty(sum(due))
        self._arrived: Arrived | None = None
        self._completion = self._start(due, [self._head + count * width for count in send_counts])
        itemsize, mine = self._sent.element_size(), self._head + send_counts[members.rank] * width
        self.bytes_sent = itemsize * (len(self._sent) - mine)
        self.bytes_received = itemsize * (len(self._came) - mine)

    def _start(self, due: list[int], lengths: list[int]) -> Completion:
        if self._sent.is_cuda:  # the timing must not include packing
            torch.cuda.current_stream(self._sent.device).synchronize()
        self._started_s = started_s = time.perf_counter()
        work = dist.all_to_all_single(
            self._came, self._sent, due, lengths, group=self._members.process_group, async_op=True
        )
        return watch(work, started_s, self._sent.device)

    def wait(self) -> Arrived:
        """Block until the rows have arrived; a second call returns the same.

        A dead rank usually raises here at once, but gloo may lose a send to it and hang: the session therefore
        also monitors the ranks (:class:`dtdg_lab.cluster.liveness.Beacon`).

        Raises:
            RunFailedError: a rank is in another exchange, or sent another number of rows than expected.
            RuntimeError: a rank has died.
        """
        if self._arrived is None:
            entered_ns = self._members.clock_ns()
            in_flight_s, exposed_s = self._completion.wait()
            self._arrived = self._unpack(entered_ns, in_flight_s, exposed_s)
            self._sent = self._came = self._sent.new_empty(0)
        return self._arrived

    def _unpack(self, entered_ns: int, in_flight_s: float, exposed_s: float) -> Arrived:
        counts, members = self._receive_counts, self._members
        pieces = self._came.split([length for count in counts for length in (self._head, count * self._width)])
        described = (
            torch.cat(pieces[::2]).view(torch.int64).view(len(counts), -1).tolist()
        )  # synchronises with the device
        got = torch.cat(pieces[1::2]).view(self._dtype).view(sum(counts), *self._tail)
        _check_fit([word[1] for word in described], counts, [tuple(word[2:]) for word in described], members)
        last_ns = max(word[0] for word in described)
        wait_s = min(max(0, last_ns - entered_ns) * 1e-9, exposed_s)
        ago_s = (members.clock_ns() - last_ns) * 1e-9
        return Arrived(got, wait_s, in_flight_s, exposed_s, self._started_s, time.perf_counter() - ago_s)


def start_rows(
    rows: Tensor,
    send_counts: Sequence[int],
    receive_counts: Sequence[int],
    members: GroupMembers,
    *,
    place: Sequence[int] = (),
) -> RowExchange:
    """Start an asynchronous all-to-all of rows.

    Every rank sends each other rank a header with its arrival time, its number of rows and its ``place``, also if it
    has no rows for it. So all ranks know which rank was last (the straggler) and that they are in the same exchange,
    without another collective. (More rows than expected abort the process on gloo; only fewer are detected here.) Rows
    are copied and may be changed at once. Several exchanges may be in flight; all ranks must start them in the same
    order. On a GPU the current stream is synchronised first, so that the arrival time includes its work.

    Args:
        rows: (s, F), those for rank 0 first; of 4 or 8 bytes a number; F may be several dimensions.
        send_counts: (R,) rows for each rank.
        receive_counts: (R,) rows expected from each.
        members: the ranks.
        place: numbers that identify the exchange and must be equal on all ranks, such as a count of exchanges.

    Raises:
        PlanError: counts are inconsistent with the rows or the ranks, or the rows' type has another size.
    """
    check_counts(rows, send_counts, receive_counts, members.rank, len(members.numbers))
    return RowExchange(rows, send_counts, receive_counts, members, place)


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
            "those to send must sum to the rows, and none be below 0."
        )
    if send_counts[rank] != receive_counts[rank]:
        raise PlanError(
            f"rank {rank} sends itself {send_counts[rank]} rows but expects {receive_counts[rank]} of itself; both "
            "counts must be equal."
        )


def _bits_of(rows: Tensor) -> torch.dtype:
    """The integer type in which rows are sent."""
    bits = _BITS.get(rows.element_size())
    if bits is None:
        raise PlanError(
            f"rows of {rows.dtype} cannot be exchanged; numbers of 4 or 8 bytes can. Convert them to float32 or "
            "float64."
        )
    return bits


def _check_fit(
    counts: list[int], expected: Sequence[int], places: list[tuple[int, ...]], members: GroupMembers
) -> None:
    """Check that all ranks are in the same exchange with the expected numbers of rows."""
    numbers, own = members.numbers, places[members.rank]
    rank = numbers[members.rank]
    other = next((number for number, place in enumerate(places) if place != own), None)
    if other is not None:
        raise RunFailedError(
            f"rank {rank} is at exchange {own} but rank {numbers[other]} at {places[other]} (number, then what is "
            "exchanged). All ranks must make the same exchanges in the same order, so a model whose aggregations "
            "depend on a rank's own rows cannot be distributed. Run it on one rank, or make its aggregations uniform."
        )
    other = next((number for number, count in enumerate(counts) if count != expected[number]), None)
    if other is not None:
        raise RunFailedError(
            f"rank {numbers[other]} sent {counts[other]} rows where rank {rank} expected {expected[other]}: their "
            "plans belong to different partitions or snapshots. Make the plans of all ranks from one partition."
        )
