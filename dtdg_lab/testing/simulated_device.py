"""A simulated device: queues of work and of collectives on a clock of its own, in place of a GPU.

The code under test runs unchanged on CPU tensors. What it queues takes the seconds that the test gives, and a host that
reads a time before the device has passed it waits, which is counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from torch import Tensor

from dtdg_lab.kernels.device_clock import StartCollective

START_NS = 1_700_000_000_000_000_000  # simulated second 0, since the Unix epoch
POLL_S = 1e-4  # seconds of the host for a look at a collective


def alone(began_s: float) -> float:
    """Return when the last rank begins a collective, for a rank whose peers are always first."""
    return began_s


@dataclass(frozen=True, slots=True)
class SimulatedStamp:
    """A point in a queue, reached at a simulated second."""

    seconds: float


class SimulatedDevice:
    """A device that computes in a queue of work, and moves rows in a queue beside it.

    It is a :class:`dtdg_lab.kernels.device_clock.DeviceClock`, so that groups and clocks take it.

    Args:
        collectives_s: seconds that collectives take once the last rank has begun, in order, again and again.
        last_begins: returns when the last rank begins a collective, from when this rank does.

    Attributes:
        host_s: time of the host.
        waits: how often the host waited for the device.
        moved_s: when each collective began and ended.
    """

    is_late = True

    def __init__(
        self, collectives_s: Iterable[float] = (0.0,), *, last_begins: Callable[[float], float] = alone
    ) -> None:
        self._collectives_s: Iterator[float] = itertools.cycle(collectives_s)
        self._last_begins = last_begins
        self.host_s = self._computed_s = self._network_s = 0.0
        self.waits = 0
        self.moved_s: list[tuple[float, float]] = []

    def compute(self, seconds: float) -> None:
        """Queue work of the device."""
        self._computed_s = max(self._computed_s, self.host_s) + seconds

    def work_on_host(self, seconds: float) -> None:
        """Let the host work; the device continues with its queue."""
        self.host_s += seconds

    def wait_until(self, seconds: float) -> None:
        """Let the host wait for a moment of the device, if that has not come."""
        if seconds > self.host_s:
            self.waits += 1
            self.host_s = seconds

    def join_at(self, seconds: float) -> None:
        """Let queued work begin no earlier than this."""
        self._computed_s = max(self._computed_s, seconds)

    # DeviceClock

    def stamp(self) -> SimulatedStamp:
        """Mark the end of the queue of work."""
        self.compute(0.0)
        return SimulatedStamp(self._computed_s)

    def host_ns(self) -> int:
        """Return the time of the host."""
        return START_NS + round(self.host_s * 1e9)

    def align(self) -> None:
        """Do nothing: both count the same seconds."""

    def ns(self, stamp: SimulatedStamp) -> int:
        """Return the time of a stamp, after waiting for it."""
        self.wait_until(stamp.seconds)
        return START_NS + round(stamp.seconds * 1e9)

    def launch(self, start: StartCollective) -> SimulatedFlight:
        """Start a collective behind the queued work and earlier collectives; its tensors are exchanged at once."""
        began_s = max(self._computed_s, self.host_s)
        work = start()
        if work is not None:
            work.wait()
        self._network_s = self._last_begins(max(began_s, self._network_s)) + next(self._collectives_s)
        self.moved_s.append((began_s, self._network_s))
        return SimulatedFlight(self, began_s, self._network_s)

    def send(self, tensor: Tensor) -> Tensor:
        """Return the tensor."""
        return tensor

    def read_back(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Start a copy behind the queued work."""
        return self.copy_at(self.stamp().seconds, tensor)

    def copy_at(self, seconds: float, tensor: Tensor) -> Callable[[], Tensor]:
        """Return a function that waits until this moment, and returns a copy made then."""
        copy = tensor.detach().clone()

        def read() -> Tensor:
            self.wait_until(seconds)
            return copy

        return read


class SimulatedFlight:
    """A collective of a simulated device.

    Args:
        device: the device.
        began_s: when this rank began.
        ended_s: when the collective ends.
    """

    def __init__(self, device: SimulatedDevice, began_s: float, ended_s: float) -> None:
        self._device, self._ended_s = device, ended_s
        self.began, self.ended = SimulatedStamp(began_s), SimulatedStamp(ended_s)

    def has_ended(self) -> bool:
        """Return whether the host's time is past the end; a look takes the host a moment."""
        self._device.work_on_host(POLL_S)
        return self._device.host_s >= self._ended_s

    def join(self) -> None:
        """Let later work begin after the end."""
        self._device.join_at(self._ended_s)

    def read_back(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Start a copy behind the collective."""
        return self._device.copy_at(self._ended_s, tensor)
