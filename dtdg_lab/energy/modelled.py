"""Modelled energy of processors and GPUs, for machines without readable counters."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.energy.readers import Device, PowerModel, Reading, Scope, Source, reading_of


class _Modelled:
    """Base class of the models of processors and GPUs: assumed watts times the time passed."""

    name: str
    source: Source = "modelled"
    scope: Scope = "rank"
    device: Device

    def __init__(self, power: PowerModel, wall: Callable[[], float]) -> None:
        self._power, self._wall, self._last_s = power, wall, wall()
        self._joules = self._seconds = 0.0
        self._lock = threading.Lock()  # readings and settings come from different threads

    def set_power(self, power: PowerModel) -> None:
        """Assume other powers from now on; energy before stays as it was."""
        with self._lock:
            self._integrate()
            self._power = power

    def read(self) -> Reading | None:
        """Return the modelled energy since the last reading, or since its power is known; None for an empty window."""
        with self._lock:
            self._integrate()
            joules, interval_s = self._joules, self._seconds
            if interval_s <= 0:
                return None
            self._joules = self._seconds = 0.0
        return reading_of(self, joules, interval_s)

    def close(self) -> None:
        """Do nothing: there are no handles."""

    def _integrate(self) -> None:
        """Add the energy up to now."""
        raise NotImplementedError


class ModelledReader(_Modelled):
    """Joules from the assumed idle and full power of a node, divided over its ranks by processor time.

    For a window of ``wall`` seconds in which this process used ``cpu`` processor seconds, with n ranks on the node and
    c cores: ``P = P_idle / n + (P_max - P_idle) * cpu / (wall * c)``. The n ranks together draw ``P_idle`` when idle
    and ``P_max`` when they keep all cores busy. The model is linear in utilisation, and ignores other programs on the
    node.

    Args:
        ranks_on_node: n, ranks that share the node.
        idle_w: P_idle, watts of the idle processors of the node.
        max_w: P_max, watts of the node with all cores busy.
        cores: c, logical cores of the node; the machine's by default.
        wall: monotonic clock in seconds.
        processor: processor seconds of this process, all threads.

    Raises:
        ConfigError: n or c is below 1, or the powers are negative or the wrong way round.
    """

    name = "processor-model"
    device: Device = "processor"

    def __init__(
        self,
        *,
        ranks_on_node: int,
        idle_w: float,
        max_w: float,
        cores: int | None = None,
        wall: Callable[[], float] = time.perf_counter,
        processor: Callable[[], float] = time.process_time,
    ) -> None:
        self._cores = (os.cpu_count() or 1) if cores is None else cores
        if ranks_on_node < 1 or self._cores < 1:
            raise ConfigError(f"ranks_on_node={ranks_on_node}, cores={self._cores}: both must be at least 1.")
        super().__init__(PowerModel(idle_w=idle_w, max_w=max_w), wall)
        self._ranks, self._processor, self._last_cpu_s = ranks_on_node, processor, processor()

    def _integrate(self) -> None:
        """Add the energy up to now; processor seconds without wall time count in the next call."""
        wall_s, cpu_s = self._wall(), self._processor()
        passed_s = wall_s - self._last_s
        if passed_s <= 0:
            return
        # the clocks differ, so a short window may seem more than fully used: the rest counts in the next window
        used_s = min(cpu_s - self._last_cpu_s, passed_s * self._cores)
        self._last_s, self._last_cpu_s = wall_s, self._last_cpu_s + used_s
        busy = used_s / (passed_s * self._cores)
        idle_w, max_w = self._power.idle_w, self._power.max_w
        self._joules += (idle_w / self._ranks + (max_w - idle_w) * busy) * passed_s
        self._seconds += passed_s


class BusySeconds:
    """Counter of busy seconds; one thread adds to it, another may read it."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def add(self, seconds: float) -> None:
        """Add busy seconds."""
        self._seconds += seconds

    def __call__(self) -> float:
        """Return the seconds so far."""
        return self._seconds


class ModelledGpuReader(_Modelled):
    """Joules of one GPU from its assumed idle and full power: ``P = P_idle + (P_max - P_idle) * busy / wall``.

    A full power of 0 means unknown; the GPU's energy is then unknown too.

    Args:
        power: ``gpu_idle_w`` and ``gpu_max_w``.
        busy: returns the GPU's busy seconds so far, updated after each step. So a reading may lag by one step; the sum
            of readings is right.
        wall: monotonic clock in seconds.
    """

    name = "gpu-model"
    device: Device = "gpu"

    def __init__(
        self, power: PowerModel, busy: Callable[[], float], *, wall: Callable[[], float] = time.perf_counter
    ) -> None:
        super().__init__(power, wall)
        self._busy, self._last_busy_s = busy, busy()

    def _integrate(self) -> None:
        now_s, busy_s = self._wall(), self._busy()
        passed_s = now_s - self._last_s
        if passed_s <= 0:
            return
        if not self._power.gpu_max_w:
            self._joules = self._seconds = 0.0  # drop earlier energy: a reading must not have a gap
            self._last_s, self._last_busy_s = now_s, busy_s
            return
        idle_w, max_w = self._power.gpu_idle_w, self._power.gpu_max_w
        # not clipped: a long step reports its busy seconds at its end, which may exceed the time since the last reading
        self._joules += idle_w * passed_s + (max_w - idle_w) * (busy_s - self._last_busy_s)
        self._seconds += passed_s
        self._last_s, self._last_busy_s = now_s, busy_s
