"""Modelled energy of a rank's processors, for machines where nothing can be read."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.energy.power_model import PowerModel
from dtdg_lab.energy.reader import Device, Reading, Scope, Source


class ModelledReader:
    """Joules from assumed idle and full power of a node, shared out over its ranks by processor time.

    For a window of ``wall`` seconds in which this process used ``cpu`` processor seconds, with n ranks on the node and
    c cores: ``P = P_idle / n + (P_max - P_idle) * cpu / (wall * c)``. The n ranks together draw ``P_idle`` when idle
    and ``P_max`` when they keep all cores busy. Power is taken as linear in utilisation; what other programs on the
    node draw is not counted.

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
    source: Source = "modelled"
    scope: Scope = "rank"
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
        self._ranks, self._power = ranks_on_node, PowerModel(idle_w=idle_w, max_w=max_w)
        self._wall, self._processor = wall, processor
        self._last_wall_s, self._last_cpu_s = wall(), processor()
        self._lock = threading.Lock()
        self._joules = self._seconds = 0.0

    def set_power(self, power: PowerModel) -> None:
        """Assume other powers from now on; what was drawn before stays as it was."""
        with self._lock:  # readings and settings come from different threads
            self._settle()
            self._power = power

    def read(self) -> Reading | None:
        """Modelled energy since the last reading; None for a window of no length."""
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
        """Add what was drawn up to now; processor seconds of no time wait for the next."""
        wall_s, cpu_s = self._wall(), self._processor()
        passed_s = wall_s - self._last_wall_s
        if passed_s <= 0:
            return
        # the two clocks tick apart, so that a short window can seem more than fully used: the rest is the next one's
        used_s = min(cpu_s - self._last_cpu_s, passed_s * self._cores)
        self._last_wall_s, self._last_cpu_s = wall_s, self._last_cpu_s + used_s
        busy = used_s / (passed_s * self._cores)
        idle_w, max_w = self._power.idle_w, self._power.max_w
        self._joules += (idle_w / self._ranks + (max_w - idle_w) * busy) * passed_s
        self._seconds += passed_s
