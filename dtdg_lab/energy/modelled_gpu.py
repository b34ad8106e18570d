"""Modelled energy of a rank's GPU, for machines where NVML gives nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from dtdg_lab.energy.power_model import PowerModel
from dtdg_lab.energy.reader import Device, Reading, Scope, Source


class BusySeconds:
    """Seconds that something was busy so far: one thread adds, another may ask."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def add(self, seconds: float) -> None:
        """It was busy for so many seconds more."""
        self._seconds += seconds

    def __call__(self) -> float:
        """Seconds so far."""
        return self._seconds


class ModelledGpuReader:
    """Joules of one GPU from its assumed idle and full power: ``P = P_idle + (P_max - P_idle) * busy / wall``.

    While the GPU's full power is 0, which means not known, its energy is unknown.

    Args:
        power: ``gpu_idle_w`` and ``gpu_max_w``.
        busy: seconds that the GPU was busy so far, told after each step. Of a step that is not over nothing is told
            yet, so that a reading may be one step late; together readings are right.
        wall: monotonic clock in seconds.
    """

    name = "gpu-model"
    source: Source = "modelled"
    scope: Scope = "rank"
    device: Device = "gpu"

    def __init__(
        self, power: PowerModel, busy: Callable[[], float], *, wall: Callable[[], float] = time.perf_counter
    ) -> None:
        self._power, self._busy, self._wall = power, busy, wall
        self._last_s, self._last_busy_s = wall(), busy()
        self._joules = self._seconds = 0.0
        self._lock = threading.Lock()

    def set_power(self, power: PowerModel) -> None:
        """Assume other powers from now on; what was drawn before stays as it was."""
        with self._lock:
            self._settle()
            self._power = power

    def read(self) -> Reading | None:
        """Modelled energy since the last reading, or since its power is known; None for a window of no length."""
        with self._lock:
            self._settle()
            joules, interval_s = self._joules, self._seconds
            if interval_s <= 0:
                return None
            self._joules = self._seconds = 0.0
        return Reading(
            joules=joules,
            interval_s=interval_s,
            watts=joules / interval_s,
            source=self.source,
            reader=self.name,
            scope=self.scope,
            device=self.device,
        )

    def close(self) -> None:
        """Nothing is held."""

    def _settle(self) -> None:
        now_s, busy_s = self._wall(), self._busy()
        passed_s = now_s - self._last_s
        if passed_s <= 0:
            return
        if not self._power.gpu_max_w:
            self._joules = self._seconds = 0.0  # a reading ends now: what was known earlier would be a hole in it
            self._last_s, self._last_busy_s = now_s, busy_s
            return
        idle_w, max_w = self._power.gpu_idle_w, self._power.gpu_max_w
        # not clipped: a long step tells its busy seconds at its end, maybe more than have passed since the last reading
        self._joules += idle_w * passed_s + (max_w - idle_w) * (busy_s - self._last_busy_s)
        self._seconds += passed_s
        self._last_s, self._last_busy_s = now_s, busy_s
