"""Interface of energy readers, the assumed power of a machine, and processor seconds of children."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import psutil

from dtdg_lab.core.errors import ConfigError


class ChildSeconds:
    """Processor seconds so far of some processes, including processes that have ended.

    It is thread-safe. The seconds of a process between the last call and its end are lost.

    Args:
        pids: returns the ids of the running processes, such as a rank's feature server.
    """

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self._living: dict[int, psutil.Process] = {}
        self._seconds: dict[tuple[int, float], float] = {}  # by id and start time: ids are reused
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """Return the seconds of all processes together."""
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
                    self._living.pop(pid, None)  # ended since it was listed: keep its last value
            return sum(self._seconds.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerModel:
    """Idle and full power of a node's processors and of one GPU; power in between is linear in utilisation.

    Measured energy needs them too, to divide it over phases (see :mod:`dtdg_lab.energy.monitor`).

    Attributes:
        idle_w: watts of a node's idle processors.
        max_w: watts of the node with all cores busy.
        gpu_idle_w: watts of an idle GPU.
        gpu_max_w: watts of a busy GPU; 0 for unknown, which leaves its energy unknown.

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
                "0 <= gpu_idle_w <= gpu_max_w, or gpu_max_w = 0 if a GPU's power is unknown. "
                "Set power_gpu_idle_w and power_gpu_max_w in the config."
            )


# Unknown energy is ``None``, never 0: if a counter has not moved, a window is too short, or a value is implausible. The
# energy counts in the next reading if the counter still has it.


Source = Literal["counter", "polled", "modelled"]
Scope = Literal["rank", "node"]
Device = Literal["processor", "gpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Energy of one window.

    Attributes:
        joules: energy.
        interval_s: length of the window.
        watts: mean power.
        source: ``counter`` (the device counts joules), ``polled`` (sampled watts, integrated) or ``modelled`` (assumed
            watts times processor time).
        reader: name of the reader.
        scope: ``rank`` if the joules belong to the reading rank, ``node`` for the whole machine, counted once.
        device: ``processor`` (with its memory if that is counted) or ``gpu``.
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
        """Name, such as ``rapl`` or ``nvml:GPU-5f3a...``; the ``reader`` column of the records."""

    @property
    def source(self) -> Source:
        """Origin of its joules."""

    @property
    def scope(self) -> Scope:
        """Owner of its joules, the rank or the node."""

    @property
    def device(self) -> Device:
        """Kind of device that draws them."""

    def read(self) -> Reading | None:
        """Return the energy since the last reading (or since construction); None if it is unknown.

        Raises:
            NotAvailableError: the device can no longer be read.
        """

    def close(self) -> None:
        """Release handles and threads; a second call does nothing."""


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


def joined(first: Reading, second: Reading) -> Reading:
    """Return two readings of one reader as one."""
    joules, interval_s = first.joules + second.joules, first.interval_s + second.interval_s
    return replace(second, joules=joules, interval_s=interval_s, watts=joules / interval_s)
