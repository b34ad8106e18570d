"""Clock of a step's phases, as adjacent intervals that sum to the step."""

from __future__ import annotations

import time

import torch

from dtdg_lab.engine.strategy import StepMarks


class PhaseClock(StepMarks):
    """Times of a step's phases; on a GPU each mark synchronises with the device.

    Args:
        device: ``cpu`` or a CUDA device.

    Attributes:
        intervals: (phase, start, end) of the current step, in nanoseconds since the Unix epoch.
        cpu_s: processor seconds of this process, all threads, by phase.
    """

    def __init__(self, device: str) -> None:
        self._cuda = device.startswith("cuda")
        self._epoch_offset_ns = time.time_ns() - time.perf_counter_ns()
        self.intervals: list[tuple[str, int, int]] = []
        self.cpu_s: dict[str, float] = {}
        self._last_ns = 0
        self.start()

    def start(self) -> None:
        """Begin a step, and clear the last step's intervals."""
        self.intervals.clear()
        self.cpu_s.clear()
        self._last_cpu_s = time.process_time()
        self._last_ns = self._now_ns()

    def _now_ns(self) -> int:
        if self._cuda:
            torch.cuda.synchronize()
        return time.perf_counter_ns() + self._epoch_offset_ns

    def __call__(self, phase: str) -> None:
        """End a phase, which began at the last mark."""
        now_ns = self._now_ns()
        self.intervals.append((phase, self._last_ns, now_ns))
        self._last_ns = now_ns
        self._count(phase)

    def exchange(self, wait_s: float) -> None:
        """End an exchange, which began at the last mark with ``wait_s`` seconds of waiting."""
        now_ns = self._now_ns()
        arrived_ns = min(self._last_ns + round(wait_s * 1e9), now_ns)
        self.intervals.append(("wait", self._last_ns, arrived_ns))
        self.intervals.append(("communicate", arrived_ns, now_ns))
        self._last_ns = now_ns
        self._count("communicate")  # a waiting rank uses next to no processor time

    def _count(self, phase: str) -> None:
        cpu_s = time.process_time()
        self.cpu_s[phase] = self.cpu_s.get(phase, 0.0) + cpu_s - self._last_cpu_s
        self._last_cpu_s = cpu_s

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each phase since the start, summed over its intervals."""
        total: dict[str, float] = {}
        for phase, start_ns, end_ns in self.intervals:
            total[phase] = total.get(phase, 0.0) + (end_ns - start_ns) * 1e-9
        return total
