"""The processes of one run: rank, size, collectives, and a shared clock."""

from __future__ import annotations

import datetime
import math
import os
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed import distributed_c10d

from dtdg_lab.core.errors import ClusterError, ConfigError, PlanError
from dtdg_lab.distributed.all_to_all import Arrived, GroupMembers, NothingPending, PendingRows, check_counts, start_rows
from dtdg_lab.distributed.heartbeat import OtherRankError
from dtdg_lab.distributed.store import SignedStore
from dtdg_lab.kernels.device_clock import DeviceClock, Flight, clock_of

_TYPES = ("uint8", "int32", "int64", "float64")


_MOST_DIMENSIONS = 6


_HEADER = 2 + _MOST_DIMENSIONS  # type, dimensions, lengths


_REFUSED = -1


def broadcast_array(
    array: NDArray[Any] | None, *, rank: int, device: str, process_group: dist.ProcessGroup | None = None
) -> NDArray[Any]:
    """Broadcast rank 0's array, with shape and type, to a writable copy on every rank.

    Args:
        array: the array to send on rank 0; ignored on other ranks.
        rank: this process.
        device: device of the group's tensors.
        process_group: torch group of the ranks; None is the default group.

    Raises:
        ConfigError: rank 0 has no array of an allowed type; raised on all ranks.
    """
    header, refusal = torch.zeros(_HEADER, dtype=torch.int64), None
    if rank == 0:
        try:
            header = _header_of(checked(array))
        except ConfigError as error:
            header[0], refusal = _REFUSED, error
    header = header.to(device)
    source = 0 if process_group is None else dist.get_global_rank(process_group, 0)
    dist.broadcast(header, source, group=process_group)
    code, dimensions, *lengths = header.tolist()
    if code == _REFUSED:
        raise refusal or ConfigError("rank 0 has no array that can be broadcast. See the error of rank 0.")
    shape = tuple(lengths[:dimensions])
    # rank 0 sends a copy, because torch warns about read-only arrays
    local_array = np.empty(shape, dtype=_TYPES[code]) if rank else np.array(array, order="C")
    if not math.prod(shape):
        return local_array
    data = torch.from_numpy(local_array.reshape(-1)).to(device)
    dist.broadcast(data, source, group=process_group)
    return np.asarray(data.cpu().numpy().reshape(shape))


def checked(array: NDArray[Any] | None) -> NDArray[Any]:
    """Check that an array can be broadcast.

    Raises:
        ConfigError: its type or number of dimensions is not allowed.
    """
    if isinstance(array, np.ndarray) and array.dtype in _TYPES and array.ndim <= _MOST_DIMENSIONS:
        return array
    description = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
    raise ConfigError(
        f"rank 0 cannot send {description} to the others: give an array of {', '.join(_TYPES)} with at most "
        f"{_MOST_DIMENSIONS} dimensions."
    )


def moved_bytes(array: NDArray[Any], rank: int, size: int) -> tuple[int, int]:
    """Return bytes sent and received by this rank if rank 0 sends to each other rank directly."""
    total = array.nbytes + 8 * _HEADER
    return (total * (size - 1), 0) if rank == 0 else (0, total)


def _header_of(array: NDArray[Any]) -> torch.Tensor:
    lengths = array.shape + (0,) * (_MOST_DIMENSIONS - array.ndim)
    return torch.tensor([_TYPES.index(array.dtype.name), array.ndim, *lengths], dtype=torch.int64)


# Ranks of a row group have the same snapshots; ranks of a column have the same rows.


def rows_of(row_ranks: int, ranks: int) -> list[list[int]]:
    """Return the row groups: ranks of equal r // G, where G = ``row_ranks`` divides R."""
    return [list(range(start, start + row_ranks)) for start in range(0, ranks, row_ranks)]


def columns_of(row_ranks: int, ranks: int) -> list[list[int]]:
    """Return the columns: ranks of equal r % G."""
    return [list(range(start, ranks, row_ranks)) for start in range(row_ranks)]


def check_split(row_ranks: int, ranks: int, *, is_whole: bool = True) -> None:
    """Check that ranks can be split into row groups.

    Raises:
        PlanError: ``row_ranks`` does not divide the ranks, or they are a subgroup.
    """
    if row_ranks < 1 or ranks % row_ranks:
        raise PlanError(
            f"{ranks} rank(s) cannot be split into groups of row_ranks={row_ranks}: set row_ranks to a divisor of "
            f"{ranks}."
        )
    if not is_whole:
        raise PlanError(f"a subgroup of {ranks} rank(s) cannot be split again: split the group of the run.")


def new_subgroup(parts: list[list[int]], rank: int, timeout: datetime.timedelta) -> tuple[list[int], dist.ProcessGroup]:
    """Create the torch groups of all parts, in the same order on all ranks; return this rank's members and group.

    Args:
        parts: ranks of each part; every rank is in one part.
        rank: this rank in the default group.
        timeout: time-out of their collectives.
    """
    groups = [dist.new_group(part, timeout=timeout) for part in parts]
    number = next(number for number, part in enumerate(parts) if rank in part)
    return parts[number], groups[number]


# long, because heartbeats detect dead ranks, and a pause must not end a run
COLLECTIVE_TIMEOUT = datetime.timedelta(minutes=30)


class Group(Protocol):
    """The interface of a process group for training."""

    rank: int
    size: int
    store: Any
    bytes_sent: int
    bytes_received: int

    @property
    def device_clock(self) -> DeviceClock:
        """Clock of this rank's device."""

    def all_reduce(self, flat: Tensor) -> None:
        """Sum over ranks, in place."""

    def start_sum(self, flat: Tensor) -> Flight:
        """Start a sum over ranks, in place; the tensor must not change until its end."""

    def gather_rows(self, rows: Tensor, counts: list[int]) -> Tensor:
        """Gather the ranks' rows in rank order, (sum(counts), F); rank r has ``counts[r]`` rows; no gradient."""

    def gather_on_host(self, row: Tensor) -> Tensor:
        """Gather a small row of the host from each rank, (n,) -> (R, n), without waiting for the devices."""

    def start_exchange(
        self, rows: Tensor, send_counts: Sequence[int], receive_counts: Sequence[int], *, tag: Sequence[int] = ()
    ) -> PendingRows:
        """Start an all-to-all of rows, without gradient.

        Every rank must call it, even without rows; counts must be consistent between ranks. Several exchanges may be
        in flight; all ranks must start them in the same order and wait for each. Rows are copied and may be changed at
        once. The group counts the bytes.

        Args:
            rows: (s, F), ordered by destination rank.
            send_counts: (R,) rows to each rank.
            receive_counts: (R,) rows from each rank.
            tag: numbers that identify the exchange and must be equal on all ranks.

        Raises:
            PlanError: counts are inconsistent with the rows or the ranks. Other errors are raised by ``wait()``.
        """

    def split(self, row_ranks: int) -> tuple[Group, Group]:
        """Split off the row group and the column of this rank r (see ``core.plans.SnapshotBlocks``).

        The row group has the G = ``row_ranks`` ranks of equal r // G; this rank is number r % G in it. The column has
        the R / G ranks of equal r % G; this rank is number r // G in it. Both are created once per G; the first call
        with a G is collective. They close with this group, which counts their bytes too.

        Raises:
            PlanError: ``row_ranks`` does not divide the ranks, or this is a subgroup.
        """

    def broadcast_array(self, array: NDArray[Any] | None) -> NDArray[Any]:
        """Broadcast rank 0's array (uint8, int32, int64 or float64, at most six dimensions); others pass None.

        Raises:
            ConfigError: rank 0 has no array of an allowed type; raised on all ranks.
        """

    def broadcast_text(self, text: str) -> str:
        """Broadcast rank 0's text; the argument of other ranks is ignored."""

    def barrier(self) -> None:
        """Wait until every rank has called it."""

    def clock_ns(self) -> int:
        """Return the nanoseconds of a clock shared by all ranks."""

    def check(self) -> None:
        """Raise if the group was aborted: values that it has exchanged since, and results of them, are invalid.

        Raises:
            OtherRankError: another rank has failed, and this group was aborted.
        """

    def close(self) -> None:
        """Leave the group; a second call does nothing."""


class SoloGroup:
    """A single process: every exchange is the identity and sends nothing.

    Args:
        device: device of the process.
        clock: clock of the device; a new one if None.
    """

    def __init__(self, device: str = "cpu", *, clock: DeviceClock | None = None) -> None:
        self.rank, self.size, self.bytes_sent, self.bytes_received = 0, 1, 0, 0
        self.store: Any = None
        self.device_clock: DeviceClock = clock or clock_of(device)

    def all_reduce(self, flat: Tensor) -> None:
        """Do nothing: the sum over one rank is its own tensor."""

    def start_sum(self, flat: Tensor) -> Flight:
        """Return a flight that has ended."""
        return self.device_clock.launch(lambda: None)

    def gather_rows(self, rows: Tensor, counts: list[int]) -> Tensor:
        """Return the rows."""
        return rows

    def gather_on_host(self, row: Tensor) -> Tensor:
        """Return the row alone."""
        return row.unsqueeze(0)

    def start_exchange(
        self, rows: Tensor, send_counts: Sequence[int], receive_counts: Sequence[int], *, tag: Sequence[int] = ()
    ) -> PendingRows:
        """Return the rows that this rank sends to itself; they are available at once."""
        check_counts(rows, send_counts, receive_counts, self.rank, self.size)
        return NothingPending(rows.detach())

    def split(self, row_ranks: int) -> tuple[Group, Group]:
        """Return this group as its own row group and column."""
        check_split(row_ranks, self.size)
        return self, self

    def broadcast_array(self, array: NDArray[Any] | None) -> NDArray[Any]:
        """Return a copy of this rank's array."""
        return checked(array).copy()

    def broadcast_text(self, text: str) -> str:
        """Return this rank's text."""
        return text

    def barrier(self) -> None:
        """Return at once."""

    def clock_ns(self) -> int:
        """Return the nanoseconds of this machine's monotonic clock."""
        return time.monotonic_ns()

    def check(self) -> None:
        """Do nothing: there is no other rank."""

    def close(self) -> None:
        """Do nothing: there is no group to leave."""


@dataclass(slots=True)
class ProcessGroup:
    """R processes joined by torch.distributed, or a subgroup of them.

    GPUs exchange by NCCL. Processors exchange by gloo, and so do ranks that share GPUs: their tensors are copied
    through the memory of the machine, since gloo exchanges CUDA tensors only in some collectives.

    Bytes are counted by the ring algorithms' formulas: an all-reduce of b bytes sends 2 b (R - 1) / R from each rank
    and receives the same; a gather sends a rank's rows to R - 1 others; an exchange of rows counts the rows for other
    ranks and their headers; a broadcast counts R - 1 times the array.
    """

    rank: int
    size: int
    store: Any
    device: str = "cpu"
    bytes_sent: int = 0
    bytes_received: int = 0
    wire: str = "cpu"
    """Device of the tensors that are exchanged."""
    _offset_ns: int = 0
    _whole: ProcessGroup | None = field(default=None, repr=False)  # the parent of a subgroup
    clock: InitVar[DeviceClock | None] = None  # a new one of the device if None
    device_clock: DeviceClock = field(init=False, repr=False)
    _members: GroupMembers = field(init=False, repr=False)
    _splits: dict[int, tuple[Group, Group]] = field(default_factory=dict, repr=False)
    _beside: tuple[dist.ProcessGroup, Any] | None = field(default=None, init=False, repr=False)
    is_aborted: bool = field(default=False, init=False, repr=False)
    """True if another rank has failed, and this one has left its exchanges."""
    _leaving: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _on_host: dist.ProcessGroup | None = field(default=None, init=False, repr=False)

    def __post_init__(self, clock: DeviceClock | None) -> None:
        self.device_clock = clock or clock_of(self.device, waits=self.wire != self.device)
        self._members = GroupMembers(self.rank, range(self.size), self.clock_ns, self.device_clock)

    @classmethod
    def join(
        cls,
        store: Any,
        rank: int,
        size: int,
        *,
        device: str = "cpu",
        shares_gpus: bool = False,
        clock: DeviceClock | None = None,
    ) -> ProcessGroup:
        """Form the group through a store that all ranks reach, and leave any earlier group.

        Args:
            store: the run's store.
            rank: this process.
            size: number of processes.
            device: device of this rank.
            shares_gpus: whether some ranks have the same GPU, which NCCL refuses.
            clock: clock of the device; a new one if None.

        Raises:
            ClusterError: the processes could not connect; the message says what to check.
        """
        if dist.is_initialized():
            dist.destroy_process_group()
        backend = "nccl" if device.startswith("cuda") and not shares_gpus else "gloo"
        if backend == "nccl":  # on an error, abort communicators, but do not end the engine (torch's default, 3)
            os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2")
        try:
            torch_store = store.unsigned if backend == "nccl" and isinstance(store, SignedStore) else store
            dist.init_process_group(
                backend,
                store=dist.PrefixStore("group", torch_store),
                rank=rank,
                world_size=size,
                timeout=COLLECTIVE_TIMEOUT,
            )
        except (RuntimeError, ValueError) as error:
            raise ClusterError(
                f"rank {rank} of {size} could not join the {backend} group: {error}. Check that the machines of all "
                "ranks reach each other, and that GLOO_SOCKET_IFNAME names an interface that they share."
            ) from error
        group = cls(rank, size, store, device, wire=device if backend == "nccl" else "cpu", clock=clock)
        group._agree_on_clock()
        return group

    def _agree_on_clock(self) -> None:
        # one machine shares its monotonic clock; several machines set their clocks to zero at a barrier
        host = torch.tensor([float(abs(hash_of_host()) % 2**31)], dtype=torch.float64, device=self.wire)
        hosts = [torch.zeros_like(host) for _ in range(self.size)]
        dist.all_gather(hosts, host)
        if any(bool(other_host != host) for other_host in hosts):
            self.barrier()
            self._offset_ns = time.monotonic_ns()

    def all_reduce(self, flat: Tensor) -> None:
        """Sum over ranks, in place."""
        self._count_sum(flat)
        on_wire = flat.to(self.wire)
        dist.all_reduce(on_wire, group=self._members.process_group)
        if on_wire is not flat:
            flat.copy_(on_wire)

    def start_sum(self, flat: Tensor) -> Flight:
        """Start a sum over ranks, in place, without a copy: on the device of the group's exchanges."""
        self._count_sum(flat)
        process_group = self._members.process_group
        return self.device_clock.launch(lambda: dist.all_reduce(flat, group=process_group, async_op=True))

    def _count_sum(self, flat: Tensor) -> None:
        moved = 2 * flat.numel() * flat.element_size() * (self.size - 1) // self.size
        self._count(moved, moved)

    def gather_rows(self, rows: Tensor, counts: list[int]) -> Tensor:
        """Gather the ranks' rows in rank order, padded to the largest share: gloo refuses uneven gathers."""
        width = max(counts)
        padded = torch.zeros(width, rows.shape[1], dtype=rows.dtype, device=self.wire)
        padded[: len(rows)] = rows
        shares = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(shares, padded, group=self._members.process_group)
        moved = padded.numel() * padded.element_size() * (self.size - 1)
        self._count(moved, moved)
        return torch.cat([share[:count] for share, count in zip(shares, counts, strict=True)]).to(rows.device)

    def gather_on_host(self, row: Tensor) -> Tensor:
        """Gather through gloo, also beside NCCL. A subgroup of GPUs has no gloo, and waits for its devices."""
        if not self.device_clock.is_late or self._whole is not None:
            return self.gather_rows(row.unsqueeze(0).to(self.wire), [1] * self.size).cpu()
        if self._on_host is None:
            self._on_host = dist.new_group(backend="gloo", timeout=COLLECTIVE_TIMEOUT)
        rows = [torch.empty_like(row) for _ in range(self.size)]
        dist.all_gather(rows, row, group=self._on_host)
        self._count(*[row.nbytes * (self.size - 1)] * 2)
        return torch.stack(rows)

    def start_exchange(
        self, rows: Tensor, send_counts: Sequence[int], receive_counts: Sequence[int], *, tag: Sequence[int] = ()
    ) -> PendingRows:
        """Start one uneven all-to-all of rows on the network's own threads or streams."""
        pending = start_rows(rows.to(self.wire), send_counts, receive_counts, self._members, tag=tag)
        self._count(pending.bytes_sent, pending.bytes_received)
        return pending if self.wire == self.device else _StagedRows(pending, self.device)

    def split(self, row_ranks: int) -> tuple[Group, Group]:
        """Create the torch groups; all ranks together or one rank alone need none."""
        check_split(row_ranks, self.size, is_whole=self._whole is None)
        if row_ranks not in self._splits:
            self._splits[row_ranks] = (
                self._part(rows_of(row_ranks, self.size)),
                self._part(columns_of(row_ranks, self.size)),
            )
        return self._splits[row_ranks]

    def _part(self, parts: list[list[int]]) -> Group:
        """Return this rank's group among the parts."""
        if len(parts) == 1:
            return self
        if len(parts) == self.size:
            return SoloGroup(self.device, clock=self.device_clock)
        numbers, process_group = new_subgroup(parts, self.rank, COLLECTIVE_TIMEOUT)
        rank = numbers.index(self.rank)
        part = ProcessGroup(
            rank,
            len(numbers),
            self.store,
            self.device,
            wire=self.wire,
            _offset_ns=self._offset_ns,
            _whole=self,
            clock=self.device_clock,
        )
        part._members = GroupMembers(rank, numbers, self.clock_ns, self.device_clock, process_group)
        return part

    def second_group(self) -> tuple[dist.ProcessGroup, Any]:
        """Return a second torch group with the same ranks, and a second connection to the store.

        They serve asynchronous exchanges that must not mix with this group's. The first call creates both and is
        collective; they close with this group. The caller counts their bytes.

        Raises:
            PlanError: this is a subgroup.
        """
        if self._whole is not None:
            raise PlanError(f"a subgroup of {self.size} rank(s) has no second group: use the group of the run.")
        if self._beside is None:
            # a store's connection serves one thread at a time, and a wait on it would block all others
            store = self.store.reconnect()
            group = dist.new_group(timeout=COLLECTIVE_TIMEOUT)
            dist.all_reduce(torch.zeros(1, device=self.wire), group=group)  # NCCL connects at first use
            self._beside = (group, store)
        return self._beside

    def _count(self, sent: int, received: int) -> None:
        self.bytes_sent += sent
        self.bytes_received += received
        if self._whole is not None:
            self._whole._count(sent, received)

    def broadcast_array(self, array: NDArray[Any] | None) -> NDArray[Any]:
        """Broadcast rank 0's array, after its shape and type."""
        received = broadcast_array(array, rank=self.rank, device=self.wire, process_group=self._members.process_group)
        self._count(*moved_bytes(received, self.rank, self.size))
        return received

    def broadcast_text(self, text: str) -> str:
        """Broadcast rank 0's text, as an array of its bytes."""
        letters = np.frombuffer(text.encode(), dtype=np.uint8) if self.rank == 0 else None
        return self.broadcast_array(letters).tobytes().decode()

    def barrier(self) -> None:
        """Wait until every rank has called it."""
        # without device_ids, NCCL guesses a GPU from the rank
        index = torch.device(self.wire).index
        dist.barrier(group=self._members.process_group, device_ids=None if index is None else [index])

    def clock_ns(self) -> int:
        """Return the nanoseconds of the machine's monotonic clock.

        With several machines they count from the forming of the group; the skew is that of a barrier's exit.
        """
        return time.monotonic_ns() - self._offset_ns

    def check(self) -> None:
        """Raise if the group was aborted."""
        if (self._whole or self).is_aborted:
            raise OtherRankError(f"another rank has failed, so the exchanges of rank {self.rank} were aborted.")

    def abort(self) -> None:
        """End exchanges in flight on this rank, and leave the group; another thread may call it.

        Exchanges by NCCL then return invalid values at once, and later ones raise an error: see :meth:`check`. Gloo
        cannot abort; its exchanges raise an error when a rank closes its connections.
        """
        with self._leaving:
            self.is_aborted = True
            if self.wire != "cpu" and dist.is_initialized():
                # before torch 2.6, destroying a group aborts it
                getattr(distributed_c10d, "_abort_process_group", dist.destroy_process_group)()

    def close(self) -> None:
        """Leave the group and its subgroups; a subgroup closes with its parent."""
        self._splits.clear()
        self._beside = self._on_host = None
        with self._leaving:
            if self._whole is None and dist.is_initialized():
                dist.destroy_process_group()


@dataclass(frozen=True, slots=True)
class _StagedRows:
    """Pending rows that are copied to a device after their exchange."""

    pending: PendingRows
    device: str

    def wait(self) -> Arrived:
        arrived = self.pending.wait()
        return Arrived(arrived.rows.to(self.device), arrived.times)


def hash_of_host() -> int:
    """Return a number that identifies this machine and boot."""
    from hashlib import sha256

    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        name = socket.gethostname()
    return int.from_bytes(sha256(name.encode()).digest()[:4], "little")


# All-gather of short texts.


MOST_BYTES = 600


def gather_texts(group: Group, text: str, *, device: str = "cpu") -> list[str]:
    """Gather the ranks' texts in rank order; collective.

    Args:
        group: the ranks.
        text: text of this rank; truncated to 600 bytes.
        device: device of the group's tensors.
    """
    letters = text.encode()
    if len(letters) > MOST_BYTES:
        letters = letters[: MOST_BYTES - 3] + b"..."
    row = torch.zeros(1, MOST_BYTES, dtype=torch.int64, device=device)
    row[0, : len(letters)] = torch.tensor(list(letters), dtype=torch.int64, device=device)
    rows = group.gather_rows(row, [1] * group.size).cpu().tolist()
    return [bytes(byte for byte in row if byte).decode(errors="replace") for row in rows]
