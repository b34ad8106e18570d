"""Clock of a step's phases, as adjacent intervals that sum to the step."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from dtdg_lab.distributed.all_to_all import ExchangeTimes, ReadTimes
from dtdg_lab.energy.phases import Interval
from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.kernels.device_clock import DeviceClock, Stamp


@dataclass(frozen=True, slots=True)
class StepPhases:
    """The marked phases of a step, whose times are read later.

    Attributes:
        start: start of the step.
        ends: phase, its end and, for an exchange, a function that returns its times.
        cpu_s: processor seconds of this process, all threads, by phase.
    """

    start: Stamp
    ends: list[tuple[str, Stamp, ReadTimes | None]]
    cpu_s: dict[str, float]

    def read_exchanges(self) -> list[ExchangeTimes]:
        """Return the times of the exchanges.

        Raises:
            RunFailedError: ranks were in different exchanges.
        """
        return [read_times() for _, _, read_times in self.ends if read_times is not None]

    def intervals(self, clock: DeviceClock) -> list[Interval]:
        """Return (phase, start, end) in nanoseconds since the Unix epoch; an exchange is ``wait``, then its phase."""
        exchanges = iter(self.read_exchanges())  # first: behind an exchange that does not fit, no mark is ever reached
        intervals, last_ns = [], clock.ns(self.start)
        for phase, end, read_times in self.ends:
            end_ns = clock.ns(end)
            if read_times is not None:
                arrived_ns = min(last_ns + round(next(exchanges).wait_s * 1e9), end_ns)
                intervals.append(("wait", last_ns, arrived_ns))
                last_ns = arrived_ns
            intervals.append((phase, last_ns, end_ns))
            last_ns = end_ns
        return intervals


class PhaseClock(StepMarks):
    """Times of a step's phases. A mark waits for the device only if its clock does, as of ranks that share a GPU.

    Args:
        clock: clock of the device.
    """

    def __init__(self, clock: DeviceClock) -> None:
        self.device_clock = clock
        self.start()

    @property
    def is_late(self) -> bool:
        """Whether times of a step are read when the next step ends."""
        return self.device_clock.is_late

    def start(self) -> None:
        """Begin a step."""
        self._last_cpu_s = time.process_time()
        self.phases = StepPhases(self.device_clock.stamp(), [], {})

    def __call__(self, phase: str) -> None:
        """End a phase, which began at the last mark."""
        self._end(phase, None)

    def exchange(self, times: ReadTimes) -> None:
        """End an exchange; this rank has waited for it since the last mark."""
        self._end("communicate", times)  # a waiting rank uses next to no processor time

    def _end(self, phase: str, times: ReadTimes | None) -> None:
        phases, cpu_s = self.phases, time.process_time()
        phases.ends.append((phase, self.device_clock.stamp(), times))
        phases.cpu_s[phase] = phases.cpu_s.get(phase, 0.0) + cpu_s - self._last_cpu_s
        self._last_cpu_s = cpu_s

    def intervals(self) -> list[Interval]:
        """Return the intervals of this step so far; on a GPU this waits for the device."""
        return self.phases.intervals(self.device_clock)


def seconds_by_phase(intervals: Iterable[Interval]) -> dict[str, float]:
    """Return the seconds of each phase, summed over its intervals."""
    total: dict[str, float] = {}
    for phase, start_ns, end_ns in intervals:
        total[phase] = total.get(phase, 0.0) + (end_ns - start_ns) * 1e-9
    return total
