"""Phases of a step as intervals that touch: they sum to the step by construction."""

from __future__ import annotations

import time

import torch


class PhaseClock:
    """Marks where one phase ends and the next begins; on a GPU the device is waited for at each mark.

    Args:
        device: ``cpu`` or a CUDA device.
    """

    def __init__(self, device: str) -> None:
        self._cuda = device.startswith("cuda")
        self._epoch_offset_ns = time.time_ns() - time.perf_counter_ns()
        self.intervals: list[tuple[str, int, int]] = []
        self._last_ns = 0
        self.start()

    def start(self) -> None:
        """Begin a step: forget the last one's intervals."""
        self.intervals.clear()
        self._last_ns = self._now_ns()

    def _now_ns(self) -> int:
        if self._cuda:
            torch.cuda.synchronize()
        return time.perf_counter_ns() + self._epoch_offset_ns

    def __call__(self, phase: str) -> None:
        """The time since the last mark was ``phase``."""
        now_ns = self._now_ns()
        self.intervals.append((phase, self._last_ns, now_ns))
        self._last_ns = now_ns

    def exchange(self, wait_s: float) -> None:
        """The time since the last mark was an exchange, of which the first ``wait_s`` were waiting for others."""
        now_ns = self._now_ns()
        arrived_ns = min(self._last_ns + round(wait_s * 1e9), now_ns)
        self.intervals.append(("wait", self._last_ns, arrived_ns))
        self.intervals.append(("communicate", arrived_ns, now_ns))
        self._last_ns = now_ns

    def block(self, number: int, way: str) -> None:
        """Nothing: a block of time is no phase."""

    def seconds(self) -> dict[str, float]:
        """Seconds by phase since the start; a phase marked twice is summed."""
        total: dict[str, float] = {}
        for phase, start_ns, end_ns in self.intervals:
            total[phase] = total.get(phase, 0.0) + (end_ns - start_ns) * 1e-9
        return total
