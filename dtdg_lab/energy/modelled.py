"""Modelled energy of a rank's processors, for machines where nothing can be read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.energy.reader import Reading, Scope, Source


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
        if not 0 <= idle_w <= max_w:
            raise ConfigError(
                f"idle_w={idle_w:g}, max_w={max_w:g}: powers must satisfy 0 <= idle_w <= max_w. "
                "Set power_idle_w and power_max_w in the config."
            )
        self._idle_share_w = idle_w / ranks_on_node
        self._range_w = max_w - idle_w
        self._wall, self._processor = wall, processor
        self._last_wall_s, self._last_cpu_s = wall(), processor()

    def read(self) -> Reading | None:
        """Modelled energy since the last reading; None for a window of no length."""
        wall_s, cpu_s = self._wall(), self._processor()
        interval_s = wall_s - self._last_wall_s
        if interval_s <= 0:
            return None
        # the two clocks tick apart, so that a short window can seem more than fully used
        busy = min((cpu_s - self._last_cpu_s) / (interval_s * self._cores), 1.0)
        self._last_wall_s, self._last_cpu_s = wall_s, cpu_s
        watts = self._idle_share_w + self._range_w * busy
        return Reading(
            joules=watts * interval_s,
            interval_s=interval_s,
            watts=watts,
            source=self.source,
            reader=self.name,
            scope=self.scope,
        )

    def close(self) -> None:
        """Nothing is held."""
