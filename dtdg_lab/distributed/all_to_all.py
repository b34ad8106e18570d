"""Rows from every rank to every other, synchronous or asynchronous, with each rank's time of arrival."""

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

# When a collective ended, told apart from when somebody looked.


STAMP_S = 1.0  # most that a callback comes after what it tells of


class Completion(Protocol):
    """Watches one collective from its start."""

    def wait(self) -> tuple[float, float]:
        """Stand still until the collective has ended.

        Returns:
            Seconds in flight, from start to end; seconds of it that this call stood still.

        Raises:
            RuntimeError: the network's account of a failure.
        """
        ...


def watch(work: dist.Work, started_s: float, device: torch.device) -> Completion:
    """Watch a collective that was started on a device at ``started_s`` of ``time.perf_counter``."""
    return _DeviceCompletion(work, device) if device.type == "cuda" else _HostCompletion(work, started_s)


class _HostCompletion:
    """gloo: a thread of its own completes the work and stamps the time; late by the interpreter's lock at most."""

    def __init__(self, work: dist.Work, started_s: float) -> None:
        self._work, self._started_s = work, started_s
        self._ended_s: list[float] = []
        self._stamped = threading.Event()
        stamps, stamped = self._ended_s, self._stamped  # what the callback keeps alive is these alone

        def stamp(_: Any) -> None:
            stamps.append(time.perf_counter())
            stamped.set()

        work.get_future().add_done_callback(stamp)

    def wait(self) -> tuple[float, float]:
        entered_s = time.perf_counter()
        self._work.wait()
        self._stamped.wait(STAMP_S)  # a callback that came while the interpreter ends would abort the process
        ended_s = self._ended_s[0] if self._ended_s else time.perf_counter()
        return ended_s - self._started_s, max(0.0, ended_s - entered_s)


class _DeviceCompletion:
    """NCCL: its futures are done at launch, so events of the device take the times of start and end."""

    def __init__(self, work: dist.Work, device: torch.device) -> None:
        self._work = work  # it owns what the device still uses
        self._began, self._ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # whoever starts the collective has emptied this stream: the event is stamped at once
        self._began.record(torch.cuda.current_stream(device))
        side = torch.cuda.Stream(device)
        with torch.cuda.stream(side):
            work.wait()  # makes this stream wait, and not the one that computes
            self._ended.record(side)

    def wait(self) -> tuple[float, float]:
        entered_s = time.perf_counter()
        self._ended.synchronize()
        exposed_s = time.perf_counter() - entered_s
        in_flight_s = self._began.elapsed_time(self._ended) * 1e-3
        return in_flight_s, min(exposed_s, in_flight_s)


# Rows on their way between ranks: what a rank holds while it computes something else, and what arrives.


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
class NothingPending:
    """Pending rows that are here already, as those of a rank by itself."""

    rows: Tensor

    def wait(self) -> Arrived:
        """The rows, after no time."""
        return Arrived(self.rows, wait_s=0.0, in_flight_s=0.0, exposed_s=0.0)


# Rows from every rank to every other, with each rank's time of arrival in front of them.


_BITS = {4: torch.int32, 8: torch.int64}  # rows travel as whole numbers of their size: what is in front is no float


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """The ranks of an exchange, as one of them sees them.

    Attributes:
        rank: this one among them.
        numbers: (R,) their ranks in the run, for messages.
        clock_ns: a clock that all share.
        process_group: torch's group of them; the default one where None.
    """

    rank: int
    numbers: Sequence[int]
    clock_ns: Callable[[], int]
    process_group: dist.ProcessGroup | None = None


class RowExchange:
    """Rows between ranks, in one collective that every rank takes part in (see :func:`start_rows`).

    Attributes:
        bytes_sent: what goes to other ranks, numbers in front included.
        bytes_received: what comes from them.
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
        if rows.is_cuda:  # else a rank would arrive before it has computed what it sends
            torch.cuda.current_stream(rows.device).synchronize()
        words = torch.tensor([[members.clock_ns(), count, *place] for count in send_counts], dtype=torch.int64)
        fronts = words.to(rows.device).view(bits)
        self._width, self._head = width, fronts.shape[1]
        own = rows.detach().reshape(-1).view(bits).split([count * width for count in send_counts])
        # both are kept until the rows have arrived: the network reads and writes them meanwhile
        self._sent = torch.cat([piece for pair in zip(fronts.unbind(), own, strict=True) for piece in pair])
        due = [self._head + count * width for count in self._receive_counts]
        self._came = self._sent.new_empty(sum(due))
        self._arrived: Arrived | None = None
        self._completion = self._start(due, [self._head + count * width for count in send_counts])
        itemsize, mine = self._sent.element_size(), self._head + send_counts[members.rank] * width
        self.bytes_sent = itemsize * (len(self._sent) - mine)
        self.bytes_received = itemsize * (len(self._came) - mine)

    def _start(self, due: list[int], lengths: list[int]) -> Completion:
        if self._sent.is_cuda:  # what was just packed is on its way when the clock of the device starts
            torch.cuda.current_stream(self._sent.device).synchronize()
        self._started_s = started_s = time.perf_counter()
        work = dist.all_to_all_single(
            self._came, self._sent, due, lengths, group=self._members.process_group, async_op=True
        )
        return watch(work, started_s, self._sent.device)

    def wait(self) -> Arrived:
        """The rows, when they are here; a second call returns the same.

        A rank that dies is mostly an error here at once, but gloo may lose a send to it and stand still: whoever runs
        ranks watches over them as well (:class:`dtdg_lab.cluster.liveness.Beacon`).

        Raises:
            RunFailedError: a rank is at another place, or sent another number of rows than was expected of it.
            RuntimeError: the network's account of a rank that is gone.
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
        described = torch.cat(pieces[::2]).view(torch.int64).view(len(counts), -1).tolist()  # waits for the device
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
    """Start to send each rank its rows and to receive its own, and return while they travel.

    In front of its rows every rank tells every other its time of arrival, how many rows follow, and its ``place``,
    also where it has no row for it: so all know who came last and that they mean the same exchange, without another
    collective. (More rows than expected end the process on gloo: only fewer can be found here.) Rows are copied: they
    may be changed at once. Several exchanges may travel at a time; all ranks start them in one order. On a GPU what
    was asked of the current stream before is finished first, so that its arrival is the rank's.

    Args:
        rows: (s, F), those for rank 0 first; of 4 or 8 bytes a number; F may be several dimensions.
        send_counts: (R,) rows for each rank.
        receive_counts: (R,) rows expected from each.
        members: the ranks.
        place: numbers that must be the same on all ranks, as many on each, such as a count of exchanges.

    Raises:
        PlanError: counts do not fit the rows or the ranks, or the rows' type has another size.
    """
    check_counts(rows, send_counts, receive_counts, members.rank, len(members.numbers))
    return RowExchange(rows, send_counts, receive_counts, members, place)


def check_counts(rows: Tensor, send_counts: Sequence[int], receive_counts: Sequence[int], rank: int, size: int) -> None:
    """Refuse counts that do not fit the rows, the number of ranks, or each other.

    Raises:
        PlanError: as said.
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
    """The type in which the rows travel."""
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
    """All ranks must be in the same exchange, of as many rows: else rows of one pull would be taken for another's."""
    numbers, own = members.numbers, places[members.rank]
    rank = numbers[members.rank]
    other = next((number for number, place in enumerate(places) if place != own), None)
    if other is not None:
        raise RunFailedError(
            f"rank {rank} is at exchange {own} but rank {numbers[other]} at {places[other]} (number, then what is "
            "exchanged). Every rank must exchange the same things in the same order: a model whose pulls depend on a "
            "rank's own rows cannot run on parts of them. Run it on one rank, or make its pulls alike."
        )
    other = next((number for number, count in enumerate(counts) if count != expected[number]), None)
    if other is not None:
        raise RunFailedError(
            f"rank {numbers[other]} sent {counts[other]} rows where rank {rank} expected {expected[other]}: their "
            "plans are not of one partition, or not for the same snapshots. Make the plans of all ranks from one "
            "partition."
        )
