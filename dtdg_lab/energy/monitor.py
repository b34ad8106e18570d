"""The energy meter of a rank: windows of time, and the joules that all readers measured in each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dtdg_lab.core.errors import ConfigError, NotAvailableError
from dtdg_lab.energy.readers import Device, EnergyReader, PowerModel, Reading, Scope, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderEnergy:
    """The measurement of a window by one reader.

    Attributes:
        reader: its name.
        device: what drew the joules.
        source: how they come about.
        scope: whose they are.
        joules: of the part of the window that is known; None where nothing is, never 0 for that.
        coverage: share of the window's seconds that is known, from 0 to 1.
    """

    reader: str
    device: Device
    source: Source
    scope: Scope
    joules: float | None
    coverage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Energy of a window, reader by reader.

    Attributes:
        key: of the window.
        seconds: it lasted.
        readers: the measurement of each, in order.
    """

    key: str
    seconds: float
    readers: tuple[ReaderEnergy, ...]

    @property
    def joules(self) -> float | None:
        """The sum over all readers, for the time that they cover; None if none is known.

        A rank's and a whole node's joules of one kind of device are never added: where both are read, the rank's count.
        A rank's GPU and its node's processors are two devices, and both count.
        """
        readers = self._counted()
        return sum(reader.joules for reader in readers if reader.joules is not None) if readers else None

    @property
    def coverage(self) -> float:
        """The least coverage of the readers that count; 0 where there is none."""
        return min((reader.coverage for reader in _own(self.readers)), default=0.0)

    @property
    def watts(self) -> float | None:
        """Mean power of the readers that count, each over the seconds that it covers; None if none is known."""
        readers = [reader for reader in self._counted() if reader.coverage > 0]
        if not readers or self.seconds <= 0:
            return None
        return sum((reader.joules or 0.0) / (reader.coverage * self.seconds) for reader in readers)

    @property
    def sources(self) -> tuple[Source, ...]:
        """How the joules come about, each source once."""
        return tuple(dict.fromkeys(reader.source for reader in self._counted()))

    def _counted(self) -> list[ReaderEnergy]:
        return _own([reader for reader in self.readers if reader.joules is not None])


def _own(readers: Sequence[ReaderEnergy]) -> list[ReaderEnergy]:
    """Return the rank's readers of each kind of device, or the node's if the rank has none of its own."""
    rank_devices = {reader.device for reader in readers if reader.scope == "rank"}
    return [reader for reader in readers if reader.scope == "rank" or reader.device not in rank_devices]


_LEAST_S = 1e-9  # of work: less is no measure to share anything out by


def shared_out(
    joules: float, seconds: Mapping[str, float], busy_s: Mapping[str, float], idle_j: float
) -> dict[str, float]:
    """Share out joules by phase: idle power by time, the rest by busy seconds; they sum to ``joules``.

    Args:
        joules: of the whole window.
        seconds: that each phase lasted, above 0 in sum.
        busy_s: of these, what the device worked; phases that are not in it did not. Where none did, all is shared out
            by time.
        idle_j: what the idle device would have drawn in the window; at most ``joules`` of it count.
    """
    worked_s = sum(busy_s.get(phase, 0.0) for phase in seconds)
    worked = worked_s > _LEAST_S
    by_time = min(idle_j, joules) if worked else joules
    joules_by_phase = spread(by_time, seconds)
    if worked:
        for phase in seconds:
            joules_by_phase[phase] += (joules - by_time) * busy_s.get(phase, 0.0) / worked_s
    return joules_by_phase


def spread(amount: float, seconds: Mapping[str, float]) -> dict[str, float]:
    """Share out an amount by time alone; return nothing if there is no time."""
    whole_s = sum(seconds.values())
    return {phase: amount * lasted_s / whole_s for phase, lasted_s in seconds.items()} if whole_s > 0 else {}


PATIENCE_S = 10.0  # a window that ended waits at most so long for readings that reach to its end


class EnergyWindow:
    """A stretch of time, and the parts of readings that fall into it. Made by :class:`EnergyMeter`.

    Attributes:
        key: its name.
        begin_s: on the meter's clock.
        end_s: None while it is open.
    """

    def __init__(self, key: str, begin_s: float) -> None:
        self.key, self.begin_s = key, begin_s
        self.end_s: float | None = None
        self._joules: dict[str, float] = {}
        self._covered_s: dict[str, float] = {}

    def take(self, reading: Reading, end_s: float) -> None:
        """Add the part of a reading, evenly spread over its seconds before ``end_s``, that is in this window."""
        start_s = end_s - reading.interval_s
        last_s = end_s if self.end_s is None else min(end_s, self.end_s)
        inside_s = last_s - max(start_s, self.begin_s)
        if inside_s <= 0:
            return
        name = reading.reader
        self._joules[name] = self._joules.get(name, 0.0) + reading.joules * inside_s / reading.interval_s
        self._covered_s[name] = self._covered_s.get(name, 0.0) + inside_s

    def measured(self, readers: Sequence[EnergyReader]) -> Measurement:
        """Return the measurement so far of a window that has ended."""
        assert self.end_s is not None
        seconds = self.end_s - self.begin_s
        return Measurement(
            key=self.key, seconds=seconds, readers=tuple(self._of(reader, seconds) for reader in readers)
        )

    def _of(self, reader: EnergyReader, seconds: float) -> ReaderEnergy:
        covered_s = self._covered_s.get(reader.name, 0.0)
        return ReaderEnergy(
            reader=reader.name,
            device=reader.device,
            source=reader.source,
            scope=reader.scope,
            joules=self._joules.get(reader.name),
            coverage=min(covered_s / seconds, 1.0) if seconds > 0 else 0.0,
        )


class EnergyMeter:
    """Measures windows of time by all readers of a rank; windows may overlap, and threads may share a meter.

    The readers belong to the meter and may not be read elsewhere, since a reading ends the one before. A window begins
    and ends with a reading of each; where a reader has no value at that moment (a counter that moves every
    100 ms), the reading that comes later is spread evenly over its seconds, and the window gets its part of it.

    Args:
        readers: of the rank; each by another name.
        clock: the readers' monotonic clock, in seconds.

    Attributes:
        lost: why readers no longer answer, by name; their energy is unknown from then on.

    Raises:
        ConfigError: two readers have one name.
    """

    def __init__(self, readers: Sequence[EnergyReader], *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.readers = tuple(readers)
        names = [reader.name for reader in readers]
        if len(set(names)) < len(names):
            raise ConfigError(f"readers {', '.join(names)}: one device would be counted twice; give each once.")
        self.lost: dict[str, str] = {}
        self._clock, self._lock = clock, threading.RLock()
        self._known_to_s = dict.fromkeys(names, clock())
        self._open: dict[str, EnergyWindow] = {}
        self._settling: list[EnergyWindow] = []
        self._untold: dict[str, Reading] = {}
        self._closed = False

    def sample(self) -> list[Reading]:
        """Energy by reader since the last call, whatever windows began or ended meanwhile; the unknown is left out."""
        with self._lock:
            self._read()
            untold, self._untold = list(self._untold.values()), {}
        return untold

    def begin_window(self, key: str, *, restart: bool = False) -> None:
        """Begin a window.

        Args:
            key: its name, until it ends.
            restart: forget an open window of that name, such as one that a cell left open when it failed.

        Raises:
            ConfigError: there is an open window of that name.
        """
        with self._lock:
            if key in self._open and not restart:
                raise ConfigError(f"window {key!r} is open already: end it first, or begin it with restart=True.")
            self._open[key] = EnergyWindow(key, self._read())

    def end_window(self, key: str) -> Measurement:
        """End a window; energy that only later readings would include is not covered.

        Raises:
            ConfigError: there is no open window of that name.
        """
        with self._lock:
            window = self._opened(key)
            window.end_s = self._read()
            del self._open[key]
            return window.measured(self.readers)

    def lap(self, key: str) -> EnergyWindow:
        """End a window and begin the next of that name at the same instant.

        Returns:
            The window that ended; later readings go on to fill it, until :meth:`settled`.

        Raises:
            ConfigError: there is no open window of that name.
        """
        with self._lock:
            window = self._opened(key)
            window.end_s = self._read()
            self._open[key] = EnergyWindow(key, window.end_s)
            self._settling.append(window)
            return window

    def settled(self, window: EnergyWindow) -> Measurement | None:
        """Return the measurement of a window that a lap ended, once no reading can add to it; None before."""
        with self._lock:
            return window.measured(self.readers) if self._is_settled(window, self._clock()) else None

    def ended(self, window: EnergyWindow) -> Measurement:
        """Stop filling a window that a lap ended, and return its measurement so far."""
        with self._lock:
            self._settling = [settling for settling in self._settling if settling is not window]
            return window.measured(self.readers)

    def set_power(self, power: PowerModel) -> None:
        """Assume other powers from now on in all readers that model something."""
        with self._lock:
            self._read()
            for reader in self.readers:
                change = getattr(reader, "set_power", None)  # what measures has none
                if change is not None:
                    change(power)

    def close(self) -> None:
        """Give back the readers; a second call does nothing."""
        with self._lock:
            if not self._closed:
                self._closed = True
                for reader in self.readers:
                    reader.close()

    def _read(self) -> float:
        """Read what can be read, hand it to all windows, and return the instant."""
        now_s = self._clock()
        for reader in () if self._closed else self.readers:
            if reader.name in self.lost:
                continue
            try:
                reading = reader.read()
            except NotAvailableError as error:
                self.lost[reader.name] = str(error)
                continue
            if reading is not None:
                self._hand_out(reading, now_s)
        self._settling = [window for window in self._settling if not self._is_settled(window, now_s)]
        return now_s

    def _hand_out(self, reading: Reading, now_s: float) -> None:
        name = reading.reader
        self._known_to_s[name] = now_s
        for window in (*self._open.values(), *self._settling):
            window.take(reading, now_s)
        untold = self._untold.get(name)
        if untold is not None:
            joules, interval_s = untold.joules + reading.joules, untold.interval_s + reading.interval_s
            reading = replace(reading, joules=joules, interval_s=interval_s, watts=joules / interval_s)
        self._untold[name] = reading

    def _is_settled(self, window: EnergyWindow, now_s: float) -> bool:
        end_s = now_s if window.end_s is None else window.end_s
        waited = now_s > end_s + PATIENCE_S
        return waited or all(known_s >= end_s or name in self.lost for name, known_s in self._known_to_s.items())

    def _opened(self, key: str) -> EnergyWindow:
        if key not in self._open:
            open_keys = ", ".join(map(repr, self._open)) or "none"
            raise ConfigError(f"no window {key!r} is open (open: {open_keys}): begin it with begin_window({key!r}).")
        return self._open[key]
