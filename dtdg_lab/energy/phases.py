"""Joules by phase of the steps: rows of the table ``phase_energy``."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from dtdg_lab.energy.modelled import BusySeconds
from dtdg_lab.energy.monitor import EnergyMeter, EnergyWindow, Measurement, ReaderEnergy, shared_out, spread
from dtdg_lab.energy.readers import PowerModel

IDLE = "idle"  # between steps, and not in anything that has a name
STALL = "stall"  # standing still for features that were not there yet, whichever phase that was in
STALLED = ("wait", STALL)  # phases in which a rank does nothing but wait: what they draw is stall energy
GPU_PHASES = ("compute", "update", "evaluate")  # phases in which a GPU is taken to be busy

_KEY = "phases"
_LEAST_S = 1e-6  # between steps; less is rounding
_NONE: Mapping[str, float] = MappingProxyType({})

Row = tuple[int, int, int, str, float | None, float, str | None, float]
Interval = tuple[str, int, int]  # phase, start and end in nanoseconds


@dataclass(slots=True)
class _Stretch:
    """Some steps on end: seconds and processor seconds of each phase, and the window of the meter around them."""

    step: int = 0
    epoch: int = 0
    time_ns: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)
    children_s: float = 0.0
    power: PowerModel | None = None
    window: EnergyWindow | None = None


class PhaseEnergy:
    """Shares a rank's joules out over the phases of its steps, about once a second and at the end of every epoch.

    Steps are too short for most counters. The steps between two rows are therefore one window of the meter, and each
    reader's joules of it are shared out over the phases: idle power by time, what is above it by the seconds that the
    device worked, which are processor seconds, or for a GPU the phases ``compute``, ``update`` and ``evaluate``. For
    the modelled processors that is exactly ``P = P_idle / n + (P_max - P_idle) * utilisation`` in each phase; for a
    counter it is a model of the sharing, and the sum is what was counted. Rows whose readings come later (a counter
    that moves every 100 ms) are given later. Readers of a whole node are left out: give the meter a
    :class:`~dtdg_lab.energy.rank_readers.NodeShareReader` beside them.

    One thread, the training one, calls it.

    Args:
        meter: of the rank; others may use it for windows of their own.
        power: the idle power of the node and of the GPU.
        ranks_on_node: ranks that share the node's idle power.
        gpu_busy: receives the GPU's busy seconds, for its power model.
        processor: processor seconds of this process.
        children: processor seconds of processes that work for this one, such as a server of features; they work beside
            the steps, so they are shared out by time.
        every_s: seconds between two rows of a phase.
        clock: monotonic, in seconds.

    References: GreenDyGNN section II-B (the energy of a rank that stands still).
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
        """Add a step that is over.

        Args:
            step: its number.
            epoch: its epoch.
            intervals: its phases.
            cpu_s: processor seconds of this process, by phase; or of the step: then shared out by time over the phases
                in which the rank does not just wait.
            stalled_s: of phases, the seconds in which this rank stood still for features; they become the phase
                ``stall``.

        Returns:
            Rows that are ready, mostly none.
        """
        seconds = _moved(_seconds(intervals), stalled_s)
        of_phase = _parted(cpu_s, seconds, stalled_s) if isinstance(cpu_s, Mapping) else _by_time(cpu_s, seconds)
        _add(self._now.seconds, seconds)
        _add(self._now.cpu_s, of_phase)
        self._tell_gpu(seconds)
        self._now.step, self._now.epoch = step, epoch
        if self._clock() - self._began_s >= self._every_s:
            self._turn()
        return self._ready()

    def between(self, phase: str, start_ns: int, end_ns: int) -> None:
        """Add something done between steps, such as an evaluation; it must not overlap another phase."""
        seconds = {phase: (end_ns - start_ns) * 1e-9}
        _add(self._now.seconds, seconds)
        self._tell_gpu(seconds)

    def end_epoch(self) -> list[Row]:
        """Return the rows of an epoch that is over; those that wait for a reading come with a later call."""
        self._turn()
        return self._ready()

    def close(self) -> list[Row]:
        """Return all remaining rows, whether or not readings reach to their ends."""
        self._turn()
        stretches, self._waiting = list(self._waiting), deque()
        return [
            row
            for stretch in stretches
            if stretch.window
            for row in self._rows(stretch, self._meter.ended(stretch.window))
        ]

    def set_power(self, power: PowerModel) -> None:
        """Assume other powers from now on, in the meter's models as well."""
        self._turn()
        self._meter.set_power(power)
        self._power = power

    def _begin(self) -> None:
        self._meter.begin_window(_KEY, restart=True)
        self._began_s = self._clock()
        self._last_cpu_s, self._last_children_s = self._processor(), self._children()

    def _tell_gpu(self, seconds: Mapping[str, float]) -> None:
        if self._gpu_busy is not None:
            self._gpu_busy.add(sum(seconds.get(phase, 0.0) for phase in GPU_PHASES))

    def _turn(self) -> None:
        """End the stretch: what is not in a phase was idle, and had the processor seconds that no step had."""
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
        """Return a row for each phase and source; without a reader of the rank's own, an unknown one for each phase."""
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
                    continue  # it did not happen
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


def _moved(seconds: dict[str, float], stalled_s: Mapping[str, float]) -> dict[str, float]:
    """Return seconds by phase with stalls as a phase of their own."""
    for phase, given_s in stalled_s.items():
        still_s = min(max(given_s, 0.0), seconds.get(phase, 0.0))
        if still_s > 0:
            seconds[phase] -= still_s
            seconds[STALL] = seconds.get(STALL, 0.0) + still_s
    return seconds


def _parted(
    cpu_s: Mapping[str, float], seconds: Mapping[str, float], stalled_s: Mapping[str, float]
) -> dict[str, float]:
    """Return processor seconds by phase with stalls as a phase of their own.

    A thread cannot work longer than the rest of its phase. Processor seconds beyond that were spent by other threads,
    such as those that receive features, and count as stalls.
    """
    seconds_by_phase = dict(cpu_s)
    for phase in stalled_s.keys() & seconds.keys() & seconds_by_phase.keys():
        beside_s = max(seconds_by_phase[phase] - seconds[phase], 0.0)
        seconds_by_phase[phase] -= beside_s
        seconds_by_phase[STALL] = seconds_by_phase.get(STALL, 0.0) + beside_s
    return seconds_by_phase


def _by_time(cpu_s: float, seconds: Mapping[str, float]) -> dict[str, float]:
    working = {phase: lasted for phase, lasted in seconds.items() if phase not in STALLED}
    return {**dict.fromkeys(seconds, 0.0), **spread(cpu_s, working if sum(working.values()) > 0 else seconds)}


def _add(totals: dict[str, float], amounts: Mapping[str, float]) -> None:
    for phase, amount in amounts.items():
        totals[phase] = totals.get(phase, 0.0) + amount
