"""Energy by phase of the steps, as rows of the table ``phase_energy``."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from dtdg_lab.energy.modelled import BusySeconds
from dtdg_lab.energy.monitor import EnergyMeter, EnergyWindow, Measurement, ReaderEnergy, shared_out, spread
from dtdg_lab.energy.readers import PowerModel

IDLE = "idle"  # time between steps outside named phases
STALL = "stall"  # waiting for features, in any phase
STALLED = ("wait", STALL)  # phases in which a rank only waits: their energy is stall energy
GPU_PHASES = ("compute", "update", "evaluate")  # phases in which a GPU counts as busy

_KEY = "phases"
_LEAST_S = 1e-6  # shortest idle time; less is rounding
_NONE: Mapping[str, float] = MappingProxyType({})

Row = tuple[int, int, int, str, float | None, float, str | None, float]
Interval = tuple[str, int, int]  # phase, start and end in nanoseconds


@dataclass(slots=True)
class _Stretch:
    """Several consecutive steps: seconds and processor seconds of each phase, and the meter's window."""

    step: int = 0
    epoch: int = 0
    time_ns: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)
    children_s: float = 0.0
    power: PowerModel | None = None
    window: EnergyWindow | None = None


class PhaseEnergy:
    """Divides a rank's joules over the phases of its steps, about once a second and at the end of every epoch.

    Steps are too short for most counters, so the steps between two rows are one window of the meter. Each reader's
    joules of the window are divided over the phases: idle power by time, the rest by busy seconds. Busy seconds are
    processor seconds, or for a GPU the phases ``compute``, ``update`` and ``evaluate``. For modelled processors this is
    exactly ``P = P_idle / n + (P_max - P_idle) * utilisation`` in each phase. For a counter the division is a model,
    but the sum is measured. Rows are delayed until their readings arrive. Readers of a whole node are ignored: give the
    meter a :class:`~dtdg_lab.energy.rank_readers.NodeShareReader` too.

    Only the training thread may call it.

    Args:
        meter: meter of the rank; others may use it for their own windows.
        power: the idle power of the node and of the GPU.
        ranks_on_node: ranks that share the node's idle power.
        gpu_busy: receives the GPU's busy seconds, for its power model.
        processor: returns processor seconds of this process.
        children: returns processor seconds of processes that work for this one, such as a feature server; they run in
            parallel to the steps, so they are divided by time.
        every_s: seconds between two rows of a phase.
        clock: monotonic clock in seconds.

    References: GreenDyGNN section II-B (energy of a waiting rank).
    """

    def __init__(
        self,
        meter: EnergyMeter,
        power: PowerModel,
        *,
        ranks_on_node: int = 1,
        gpu_busy: BusySeconds | None = None,
        processor: Callable[[], float] = time.process_time,
        children: Callable[[], float] = lambda: 0.0,
        every_s: float = 1.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._meter, self._power, self._ranks = meter, power, ranks_on_node
        self._gpu_busy, self._processor, self._children = gpu_busy, processor, children
        self._every_s, self._clock = every_s, clock
        self._waiting: deque[_Stretch] = deque()
        self._now = _Stretch()
        self._begin()

    def add(
        self,
        step: int,
        epoch: int,
        intervals: Iterable[Interval],
        cpu_s: float | Mapping[str, float],
        *,
        stalled_s: Mapping[str, float] = _NONE,
    ) -> list[Row]:
        """Add a finished step.

        Args:
            step: number of the step.
            epoch: epoch of the step.
            intervals: phases of the step.
            cpu_s: processor seconds of this process by phase; or of the whole step, which are divided by time over the
                phases without waiting.
            stalled_s: seconds of phases in which this rank waited for features; they become the phase ``stall``.

        Returns:
            The finished rows, mostly none.
        """
        seconds = _split_stalls(_seconds(intervals), stalled_s)
        cpu_by_phase = _split_cpu(cpu_s, seconds, stalled_s) if isinstance(cpu_s, Mapping) else _by_time(cpu_s, seconds)
        _add(self._now.seconds, seconds)
        _add(self._now.cpu_s, cpu_by_phase)
        self._add_gpu_seconds(seconds)
        self._now.step, self._now.epoch = step, epoch
        if self._clock() - self._began_s >= self._every_s:
            self._end_stretch()
        return self._ready()

    def between(self, phase: str, start_ns: int, end_ns: int) -> None:
        """Add work between steps, such as an evaluation; it must not overlap another phase."""
        seconds = {phase: (end_ns - start_ns) * 1e-9}
        _add(self._now.seconds, seconds)
        self._add_gpu_seconds(seconds)

    def end_epoch(self) -> list[Row]:
        """End an epoch, and return the finished rows; rows that wait for a reading come with a later call."""
        self._end_stretch()
        return self._ready()

    def close(self) -> list[Row]:
        """Return all remaining rows, even if readings are incomplete."""
        self._end_stretch()
        stretches, self._waiting = list(self._waiting), deque()
        return [
            row
            for stretch in stretches
            if stretch.window
            for row in self._rows(stretch, self._meter.ended(stretch.window))
        ]

    def set_power(self, power: PowerModel) -> None:
        """Assume other powers from now on, also in the meter's models."""
        self._end_stretch()
        self._meter.set_power(power)
        self._power = power

    def _begin(self) -> None:
        self._meter.begin_window(_KEY, restart=True)
        self._began_s = self._clock()
        self._last_cpu_s, self._last_children_s = self._processor(), self._children()

    def _add_gpu_seconds(self, seconds: Mapping[str, float]) -> None:
        if self._gpu_busy is not None:
            self._gpu_busy.add(sum(seconds.get(phase, 0.0) for phase in GPU_PHASES))

    def _end_stretch(self) -> None:
        """End the stretch; time outside phases is idle, with the processor seconds that no step has."""
        stretch = self._now
        stretch.window = self._meter.lap(_KEY)
        self._now = _Stretch(step=stretch.step, epoch=stretch.epoch)
        self._began_s = self._clock()
        end_s = stretch.window.end_s
        assert end_s is not None
        stretch.time_ns, stretch.power = time.time_ns(), self._power
        idle_s = end_s - stretch.window.begin_s - sum(stretch.seconds.values())
        if idle_s > _LEAST_S:
            stretch.seconds[IDLE] = idle_s
        cpu_s, children_s = self._processor(), self._children()
        rest_s = max(cpu_s - self._last_cpu_s - sum(stretch.cpu_s.values()), 0.0)
        without = {phase: lasted for phase, lasted in stretch.seconds.items() if phase not in stretch.cpu_s}
        _add(stretch.cpu_s, spread(rest_s, without))
        stretch.children_s = max(children_s - self._last_children_s, 0.0)
        self._last_cpu_s, self._last_children_s = cpu_s, children_s
        if sum(stretch.seconds.values()) > 0:
            self._waiting.append(stretch)
        else:
            self._meter.ended(stretch.window)

    def _ready(self) -> list[Row]:
        rows: list[Row] = []
        while self._waiting:
            stretch = self._waiting[0]
            measured = None if stretch.window is None else self._meter.settled(stretch.window)
            if measured is None:
                break
            self._waiting.popleft()
            rows += self._rows(stretch, measured)
        return rows

    def _rows(self, stretch: _Stretch, measured: Measurement) -> list[Row]:
        """Return a row for each phase and source, or for each phase with unknown energy if the rank has no reader."""
        rank_readers = [reader for reader in measured.readers if reader.scope == "rank"]
        by_source: dict[str | None, list[ReaderEnergy]] = {}
        for reader in rank_readers:
            by_source.setdefault(reader.source, []).append(reader)
        rows: list[Row] = []
        for source, readers in by_source.items() or [(None, [])]:
            parts = [self._shared(reader, stretch, measured.seconds) for reader in readers if reader.joules is not None]
            coverage = sum(reader.coverage for reader in readers) / len(readers) if readers else 0.0
            for phase, lasted_s in stretch.seconds.items():
                joules = sum(part[phase] for part in parts) if parts else None
                if lasted_s <= 0 and not joules:
                    continue
                rows.append((stretch.step, stretch.epoch, stretch.time_ns, phase, joules, lasted_s, source, coverage))
        return rows

    def _shared(self, reader: ReaderEnergy, stretch: _Stretch, seconds: float) -> dict[str, float]:
        joules = reader.joules or 0.0
        covered_s, power = reader.coverage * seconds, stretch.power or self._power
        if reader.device == "gpu":
            busy_s = {phase: lasted for phase, lasted in stretch.seconds.items() if phase in GPU_PHASES}
            return shared_out(joules, stretch.seconds, busy_s, power.gpu_idle_w * covered_s)
        busy_s = dict(stretch.cpu_s)
        _add(busy_s, spread(stretch.children_s, stretch.seconds))
        return shared_out(joules, stretch.seconds, busy_s, power.idle_w / self._ranks * covered_s)


def _seconds(intervals: Iterable[Interval]) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for phase, start_ns, end_ns in intervals:
        seconds[phase] = seconds.get(phase, 0.0) + (end_ns - start_ns) * 1e-9
    return seconds


def _split_stalls(seconds: dict[str, float], stalled_s: Mapping[str, float]) -> dict[str, float]:
    """Return seconds by phase, with stalls as a separate phase."""
    for phase, reported_s in stalled_s.items():
        stall_s = min(max(reported_s, 0.0), seconds.get(phase, 0.0))
        if stall_s > 0:
            seconds[phase] -= stall_s
            seconds[STALL] = seconds.get(STALL, 0.0) + stall_s
    return seconds


def _split_cpu(
    cpu_s: Mapping[str, float], seconds: Mapping[str, float], stalled_s: Mapping[str, float]
) -> dict[str, float]:
    """Return processor seconds by phase, with stalls as a separate phase.

    A thread cannot work longer than the rest of its phase. Further processor seconds belong to other threads, such as
    those that receive features, and count as stalls.
    """
    seconds_by_phase = dict(cpu_s)
    for phase in stalled_s.keys() & seconds.keys() & seconds_by_phase.keys():
        excess_s = max(seconds_by_phase[phase] - seconds[phase], 0.0)
        seconds_by_phase[phase] -= excess_s
        seconds_by_phase[STALL] = seconds_by_phase.get(STALL, 0.0) + excess_s
    return seconds_by_phase


def _by_time(cpu_s: float, seconds: Mapping[str, float]) -> dict[str, float]:
    working = {phase: lasted for phase, lasted in seconds.items() if phase not in STALLED}
    return {**dict.fromkeys(seconds, 0.0), **spread(cpu_s, working if sum(working.values()) > 0 else seconds)}


def _add(totals: dict[str, float], amounts: Mapping[str, float]) -> None:
    for phase, amount in amounts.items():
        totals[phase] = totals.get(phase, 0.0) + amount
