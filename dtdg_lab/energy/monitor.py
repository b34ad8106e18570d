"""The energy meter of a rank: windows of time, and the joules that all readers measured in each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dtdg_lab.core.errors import ConfigError, NotAvailableError
from dtdg_lab.energy.readers import Device, EnergyReader, PowerModel, Reading, Scope, Source, joined


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderEnergy:
    """The measurement of a window by one reader.

    Attributes:
        reader: name of the reader.
        device: kind of device that drew the joules.
        source: origin of the joules.
        scope: whether they belong to the rank or to the whole node.
        joules: joules of the known part of the window; None (never 0) if nothing is known.
        coverage: known share of the window's seconds, from 0 to 1.
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
        key: name of the window.
        seconds: length of the window.
        readers: the measurement of each reader, in order.
    """

    key: str
    seconds: float
    readers: tuple[ReaderEnergy, ...]

    @property
    def joules(self) -> float | None:
        """Sum over all readers, for the time that they cover; None if nothing is known.

        If a kind of device has readers of both the rank and the whole node, only the rank's count. A rank's GPU and its
        node's processors are two devices, and both count.
        """
        readers = self._counted()
        return sum(reader.joules for reader in readers if reader.joules is not None) if readers else None

    @property
    def coverage(self) -> float:
        """Lowest coverage of the readers that count; 0 without any."""
        return min((reader.coverage for reader in _own(self.readers)), default=0.0)

    @property
    def watts(self) -> float | None:
        """Mean power of the readers that count, each over its covered seconds; None if nothing is known."""
        readers = [reader for reader in self._counted() if reader.coverage > 0]
        if not readers or self.seconds <= 0:
            return None
        return sum((reader.joules or 0.0) / (reader.coverage * self.seconds) for reader in readers)

    @property
    def sources(self) -> tuple[Source, ...]:
        """Distinct sources of the joules."""
        return tuple(dict.fromkeys(reader.source for reader in self._counted()))

    def _counted(self) -> list[ReaderEnergy]:
        return _own([reader for reader in self.readers if reader.joules is not None])


def _own(readers: Sequence[ReaderEnergy]) -> list[ReaderEnergy]:
    """Return the rank's readers of each kind of device, or the node's if the rank has none of its own."""
    rank_devices = {reader.device for reader in readers if reader.scope == "rank"}
    return [reader for reader in readers if reader.scope == "rank" or reader.device not in rank_devices]


_LEAST_S = 1e-9  # fewest busy seconds by which energy is divided


def shared_out(
    joules: float, seconds: Mapping[str, float], busy_s: Mapping[str, float], idle_j: float
) -> dict[str, float]:
    """Divide joules over phases: idle power by time, the rest by busy seconds; they sum to ``joules``.

    Args:
        joules: joules of the whole window.
        seconds: duration of each phase, above 0 in sum.
        busy_s: busy seconds of the device by phase; missing phases have none. Without any, joules are divided by time.
        idle_j: joules of an idle device over the window; at most ``joules`` count.
    """
    total_busy_s = sum(busy_s.get(phase, 0.0) for phase in seconds)
    was_busy = total_busy_s > _LEAST_S
    by_time = min(idle_j, joules) if was_busy else joules
    joules_by_phase = spread(by_time, seconds)
    if was_busy:
        for phase in seconds:
            joules_by_phase[phase] += (joules - by_time) * busy_s.get(phase, 0.0) / total_busy_s
    return joules_by_phase


def spread(amount: float, seconds: Mapping[str, float]) -> dict[str, float]:
    """Divide an amount by time; return an empty dict if there is no time."""
    total_s = sum(seconds.values())
    return {phase: amount * lasted_s / total_s for phase, lasted_s in seconds.items()} if total_s > 0 else {}


PATIENCE_S = 10.0  # time-out of an ended window for readings that reach its end


class EnergyWindow:
    """A time window with its parts of readings, made by :class:`EnergyMeter`.

    Attributes:
        key: name of the window.
        begin_s: start, on the meter's clock.
        end_s: end; None while it is open.
    """

    def __init__(self, key: str, begin_s: float) -> None:
        self.key, self.begin_s = key, begin_s
        self.end_s: float | None = None
        self._joules: dict[str, float] = {}
        self._covered_s: dict[str, float] = {}

    def take(self, reading: Reading, end_s: float) -> None:
        """Add this window's part of a reading, which is spread evenly over its seconds before ``end_s``."""
        start_s = end_s - reading.interval_s
        last_s = end_s if self.end_s is None else min(end_s, self.end_s)
        inside_s = last_s - max(start_s, self.begin_s)
        if inside_s <= 0:
            return
        name = reading.reader
        self._joules[name] = self._joules.get(name, 0.0) + reading.joules * inside_s / reading.interval_s
        self._covered_s[name] = self._covered_s.get(name, 0.0) + inside_s

    def measured(self, readers: Sequence[EnergyReader]) -> Measurement:
        """Return the measurement so far of an ended window."""
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

    The meter owns the readers, which must not be read elsewhere, since a reading ends the previous one. A window begins
    and ends with a reading of each reader. If a reader has no value at that moment (such as a counter that moves every
    100 ms), its later reading is spread evenly over its seconds, and the window gets its part.

    Args:
        readers: readers of the rank, with distinct names.
        clock: the readers' monotonic clock, in seconds.

    Attributes:
        lost: errors of readers that no longer answer, by name; their energy is unknown from then on.

    Raises:
        ConfigError: two readers have the same name.
    """

    def __init__(self, readers: Sequence[EnergyReader], *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.readers = tuple(readers)
        names = [reader.name for reader in readers]
        if len(set(names)) < len(names):
            raise ConfigError(f"readers {', '.join(names)} would count a device twice. Give each reader once.")
        self.lost: dict[str, str] = {}
        self._clock, self._lock = clock, threading.RLock()
        self._known_to_s = dict.fromkeys(names, clock())
        self._open: dict[str, EnergyWindow] = {}
        self._settling: list[EnergyWindow] = []
        self._unsampled: dict[str, dict[str, Reading]] = {"": {}}  # by consumer, then by reader
        self._closed = False

    def sample(self, consumer: str = "") -> list[Reading]:
        """Return the energy by reader since a consumer's last call, independent of windows and of other consumers.

        Unknown energy is left out. The first call of a named consumer has the readings that arrive with it.
        """
        with self._lock:
            self._unsampled.setdefault(consumer, {})
            self._read()
            unsampled, self._unsampled[consumer] = list(self._unsampled[consumer].values()), {}
        return unsampled

    def begin_window(self, key: str, *, restart: bool = False) -> None:
        """Begin a window.

        Args:
            key: name of the window.
            restart: whether to drop an open window of that name, for example one of a failed cell.

        Raises:
            ConfigError: a window of that name is open.
        """
        with self._lock:
            if key in self._open and not restart:
                raise ConfigError(f"window {key!r} is open already: end it first, or begin it with restart=True.")
            self._open[key] = EnergyWindow(key, self._read())

    def end_window(self, key: str) -> Measurement:
        """End a window, and return its measurement; energy that only later readings include is not covered.

        Raises:
            ConfigError: there is no open window of that name.
        """
        with self._lock:
            window = self._opened(key)
            window.end_s = self._read()
            del self._open[key]
            return window.measured(self.readers)

    def lap(self, key: str) -> EnergyWindow:
        """End a window, and begin the next one of that name at the same instant.

        Returns:
            The ended window; later readings still fill it, until :meth:`settled`.

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
        """Return the measurement of a window that :meth:`lap` ended, once it is final; None before."""
        with self._lock:
            return window.measured(self.readers) if self._is_settled(window, self._clock()) else None

    def ended(self, window: EnergyWindow) -> Measurement:
        """Stop filling a window that :meth:`lap` ended, and return its measurement so far."""
        with self._lock:
            self._settling = [settling for settling in self._settling if settling is not window]
            return window.measured(self.readers)

    def set_power(self, power: PowerModel) -> None:
        """Assume other powers from now on in all modelling readers."""
        with self._lock:
            self._read()
            for reader in self.readers:
                set_power = getattr(reader, "set_power", None)  # only modelling readers have it
                if set_power is not None:
                    set_power(power)

    def close(self) -> None:
        """Close the readers; a second call does nothing."""
        with self._lock:
            if not self._closed:
                self._closed = True
                for reader in self.readers:
                    reader.close()

    def _read(self) -> float:
        """Read all readers, add the readings to all windows, and return the time."""
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
        for unsampled in self._unsampled.values():
            unsampled[name] = joined(unsampled[name], reading) if name in unsampled else reading

    def _is_settled(self, window: EnergyWindow, now_s: float) -> bool:
        end_s = now_s if window.end_s is None else window.end_s
        waited = now_s > end_s + PATIENCE_S
        return waited or all(known_s >= end_s or name in self.lost for name, known_s in self._known_to_s.items())

    def _opened(self, key: str) -> EnergyWindow:
        if key not in self._open:
            open_keys = ", ".join(map(repr, self._open)) or "none"
            raise ConfigError(f"no window {key!r} is open (open: {open_keys}): begin it with begin_window({key!r}).")
        return self._open[key]
