"""Clocks of devices: when queued work was done, read later, so that nothing waits for the device."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

Stamp = Any  # a point in a device's queue of work; only its clock can read it
StartCollective = Callable[[], "dist.Work | None"]


class Flight(Protocol):
    """A collective in flight.

    Attributes:
        began: stamp of its start, after all earlier work of this rank.
    """

    began: Stamp

    @property
    def ended(self) -> Stamp:
        """Stamp of its end; known after :meth:`join`."""

    def has_ended(self) -> bool:
        """Return whether it has ended, without waiting."""

    def join(self) -> None:
        """Let this rank's later work begin after the collective's end; a second call does nothing.

        Raises:
            RuntimeError: the network failed.
        """

    def read_back(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Start a copy to the host behind the collective; the returned function waits for it and returns it."""


class DeviceClock(Protocol):
    """Times of the work that this rank queues on a device, and of its collectives.

    Attributes:
        is_late: whether stamps lie ahead of the host, so that a step's are read when the next step ends.
    """

    is_late: bool

    def stamp(self) -> Stamp:
        """Mark this point in the queue of work, without waiting."""

    def host_ns(self) -> int:
        """Return the current time of the host, in nanoseconds since the Unix epoch."""

    def align(self) -> None:
        """Bring the device's time in line with the host's, which may drift apart; waits for the device."""

    def ns(self, stamp: Stamp) -> int:
        """Return the time of a stamp in nanoseconds since the Unix epoch, once the device has passed it."""

    def launch(self, start: StartCollective) -> Flight:
        """Start a collective behind all queued work and earlier collectives, beside later work.

        The caller keeps its tensors until the flight is joined.

        Args:
            start: starts it and returns its handle; None if there is nothing to send.
        """

    def send(self, tensor: Tensor) -> Tensor:
        """Copy a small tensor of the host to the device, without waiting."""

    def read_back(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Start a copy to the host, behind all queued work; the returned function waits for it and returns it."""


STAMP_S = 1.0  # maximum delay of a completion callback


class HostClock:
    """Clock of the CPU, where work is done when its call returns."""

    is_late = False

    def __init__(self) -> None:
        self._epoch_offset_ns = time.time_ns() - time.perf_counter_ns()

    def stamp(self) -> int:
        """Return the current time."""
        return self.host_ns()

    def host_ns(self) -> int:
        """Return the current time."""
        return time.perf_counter_ns() + self._epoch_offset_ns

    def align(self) -> None:
        """Do nothing: the device is the host."""

    def ns(self, stamp: int) -> int:
        """Return the stamp."""
        return stamp

    def launch(self, start: StartCollective) -> HostFlight:
        """Start a collective on the network's threads."""
        return HostFlight(self, start)

    def send(self, tensor: Tensor) -> Tensor:
        """Return the tensor."""
        return tensor

    def read_back(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Return a function that returns the tensor."""
        return lambda: tensor


class HostFlight:
    """A collective on gloo: a background thread records its end, delayed at most by the GIL."""

    def __init__(self, clock: HostClock, start: StartCollective) -> None:
        self.began = clock.stamp()
        self._clock, self._ends, self._stamped = clock, list[int](), threading.Event()
        self._work = start()
        if self._work is None:
            self._ends.append(self.began)
            return
        ends, stamped = self._ends, self._stamped  # the callback must keep only these alive

        def stamp(_: Any) -> None:
            ends.append(clock.host_ns())
            stamped.set()

        self._work.get_future().add_done_callback(stamp)

    @property
    def ended(self) -> int:
        """Time of its end."""
        return self._ends[0]

    def has_ended(self) -> bool:
        """Return whether it has ended."""
        return self._work is None or bool(self._work.is_completed())

    def join(self) -> None:
        """Block until it has ended."""
        if self._work is None:
            return
        self._work.wait()
        self._stamped.wait(STAMP_S)  # a callback during interpreter shutdown would abort the process
        self._work = None
        if not self._ends:
            self._ends.append(self._clock.host_ns())

    def read_back(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Return a function that waits for the end and returns the tensor."""

        def read() -> Tensor:
            self.join()
            return tensor

        return read


REBASE_MS = 1000.0  # longest time between two events whose distance is read: it is a float32


class CudaClock:
    """Clock of a GPU: stamps are events on the current stream, and collectives run on a stream beside it.

    Times chain from event to event, from one moment that the host and the device both know. Not thread-safe.

    Args:
        device: a CUDA device.

    Source: CUDA runtime API, event management (resolution 0.5 microseconds).
    """

    is_late = True

    def __init__(self, device: str | torch.device) -> None:
        self._device = torch.device(device)
        self.collectives = torch.cuda.Stream(self._device)
        self._epoch_offset_ns = time.time_ns() - time.perf_counter_ns()
        self.align()

    def align(self) -> None:
        """Wait for the device, and read later times from this moment."""
        self._base = self.stamp()
        self._base.synchronize()
        self._base_ns = self.host_ns()

    def host_ns(self) -> int:
        """Return the current time of the host."""
        return time.perf_counter_ns() + self._epoch_offset_ns

    def stamp(self) -> torch.cuda.Event:
        """Record an event on the current stream."""
        return recorded_event(torch.cuda.current_stream(self._device))

    def ns(self, stamp: torch.cuda.Event) -> int:
        """Return the time of an event, and wait for it if the device has not passed it."""
        stamp.synchronize()
        distance_ms = self._base.elapsed_time(stamp)
        stamp_ns = self._base_ns + round(distance_ms * 1e6)
        if distance_ms > REBASE_MS:
            self._base, self._base_ns = stamp, stamp_ns
        return stamp_ns

    def launch(self, start: StartCollective) -> CudaFlight:
        """Start a collective on the stream of collectives."""
        return CudaFlight(self._device, self.collectives, start)

    def send(self, tensor: Tensor) -> Tensor:
        """Copy from pinned memory, which the allocator keeps until the copy is done."""
        return tensor.pin_memory().to(self._device, non_blocking=True)

    def read_back(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Copy into pinned memory behind the current stream's work."""
        return read_from(torch.cuda.current_stream(self._device), tensor)


class CudaFlight:
    """A collective on NCCL: its start and end are events on the stream of collectives."""

    def __init__(self, device: torch.device, stream: torch.cuda.Stream, start: StartCollective) -> None:
        self._device, self._stream = device, stream
        self.began = recorded_event(torch.cuda.current_stream(device))
        stream.wait_event(self.began)
        with torch.cuda.stream(stream):
            work = start()
            if work is not None:
                work.wait()  # blocks this stream, not the host
            self.ended = recorded_event(stream)

    def has_ended(self) -> bool:
        """Return whether the device has passed the end."""
        return bool(self.ended.query())

    def join(self) -> None:
        """Let the current stream wait for the end."""
        torch.cuda.current_stream(self._device).wait_event(self.ended)

    def read_back(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Copy into pinned memory behind the collective."""
        return read_from(self._stream, tensor)


def read_from(stream: torch.cuda.Stream, tensor: Tensor) -> Callable[[], Tensor]:
    """Start a copy into pinned memory on a stream; the returned function waits for it and returns it."""
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    with torch.cuda.stream(stream):
        copy.copy_(tensor, non_blocking=True)
        copied = recorded_event(stream)

    def read() -> Tensor:
        copied.synchronize()
        return copy

    return read


def recorded_event(stream: torch.cuda.Stream) -> torch.cuda.Event:
    """Return an event with a time, recorded on a stream."""
    event = torch.cuda.Event(enable_timing=True, blocking=True)  # a waiting host sleeps, and uses no energy
    event.record(stream)
    return event


class WaitingClock(HostClock):
    """Clock of a GPU whose ranks exchange through the host, and so wait for it: a stamp waits for the device.

    Args:
        device: a CUDA device.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = device

    def stamp(self) -> int:
        """Return the time when the device has done all queued work."""
        torch.cuda.synchronize(self._device)
        return self.host_ns()


def clock_of(device: str, *, waits: bool = False) -> DeviceClock:
    """Return a new clock of a device.

    Args:
        device: ``cpu`` or a CUDA device.
        waits: whether the ranks of GPUs exchange through the host.
    """
    if not device.startswith("cuda"):
        return HostClock()
    return WaitingClock(device) if waits else CudaClock(device)
