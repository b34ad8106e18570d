"""Interface of energy readers, the assumed power of a machine, and processor seconds of children."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

import psutil

from dtdg_lab.core.errors import ConfigError

# Processor seconds of processes that work for a rank.


class ChildSeconds:
    """Processor seconds so far of some processes; those of one that has ended stay counted.

    Threads may share it. What a process used between the last look and its end is lost.

    Args:
        pids: the processes that live now, such as a rank's server of features.
    """

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self._living: dict[int, psutil.Process] = {}
        self._seconds: dict[tuple[int, float], float] = {}  # by number and start: numbers are used again
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """Seconds of all of them together."""
        with self._lock:
            pids = set(self._pids())
            self._living = {pid: process for pid, process in self._living.items() if pid in pids}
            for pid in pids:
                try:
                    if pid not in self._living:
                        self._living[pid] = psutil.Process(pid)
                    process = self._living[pid]
                    times = process.cpu_times()
                    self._seconds[pid, process.create_time()] = times.user + times.system
                except psutil.NoSuchProcess:
                    self._living.pop(pid, None)  # it has ended since it was listed: what was last seen of it stands
            return sum(self._seconds.values())


# Watts that a machine is assumed to draw, where nothing measures them.


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerModel:
    """Idle and full power of a node's processors and of one GPU; power in between is linear in utilisation.

    A measured figure needs them too: the power of waiting and of computing phases is separated by the
    idle power (see :mod:`dtdg_lab.energy.monitor`); the sum stays the measured one.

    Attributes:
        idle_w: watts of a node's idle processors.
        max_w: watts of the node with all cores busy.
        gpu_idle_w: watts of an idle GPU.
        gpu_max_w: watts of a busy one; 0 where they are not known: such a GPU's energy stays unknown.

    Raises:
        ConfigError: a power is negative, or idle power is above full power.
    """

    idle_w: float
    max_w: float
    gpu_idle_w: float = 0.0
    gpu_max_w: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.idle_w <= self.max_w:
            raise ConfigError(
                f"idle_w={self.idle_w:g}, max_w={self.max_w:g}: powers must satisfy 0 <= idle_w <= max_w. "
                "Set power_idle_w and power_max_w in the config."
            )
        if self.gpu_idle_w < 0 or (self.gpu_max_w != 0 and self.gpu_max_w < self.gpu_idle_w):
            raise ConfigError(
                f"gpu_idle_w={self.gpu_idle_w:g}, gpu_max_w={self.gpu_max_w:g}: powers must satisfy "
                "0 <= gpu_idle_w <= gpu_max_w, or gpu_max_w = 0 where a GPU's power is not known. "
                "Set power_gpu_idle_w and power_gpu_max_w in the config."
            )


# What every energy reader gives: joules since its last reading, with where they come from.
#
# Unknown is ``None``, never 0: a counter that did not move, a window too short to mean anything and a value no device
# could draw are unknown, and their energy is carried into the next reading where the counter still holds it.


Source = Literal["counter", "polled", "modelled"]
Scope = Literal["rank", "node"]
Device = Literal["processor", "gpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Energy of one window.

    ``source``: ``counter`` (the device counts its joules), ``polled`` (sampled watts, integrated) or ``modelled``
    (assumed watts times processor time). ``scope``: ``rank`` where the joules belong to the reading rank alone,
    ``node`` where they cover the whole machine and are to be counted once for it. ``device``: ``processor`` (with its
    memory where that is counted) or ``gpu``.
    """

    joules: float
    interval_s: float
    watts: float
    source: Source
    reader: str
    scope: Scope
    device: Device


class EnergyReader(Protocol):
    """A source of energy readings, owned by one rank."""

    @property
    def name(self) -> str:
        """What is read, such as ``rapl`` or ``nvml:GPU-5f3a...``; the ``reader`` column of the records."""

    @property
    def source(self) -> Source:
        """How its joules come about."""

    @property
    def scope(self) -> Scope:
        """Whose joules they are."""

    @property
    def device(self) -> Device:
        """What draws them."""

    def read(self) -> Reading | None:
        """Energy since the last reading (or since construction); None where it is unknown.

        Raises:
            NotAvailableError: what could be read before can no longer be read.
        """

    def close(self) -> None:
        """Give back handles and threads; calling it twice is harmless."""


def reading_of(reader: EnergyReader, joules: float, interval_s: float) -> Reading:
    """Create the reading of a reader over a window."""
    return Reading(
        joules=joules,
        interval_s=interval_s,
        watts=joules / interval_s,
        source=reader.source,
        reader=reader.name,
        scope=reader.scope,
        device=reader.device,
    )
