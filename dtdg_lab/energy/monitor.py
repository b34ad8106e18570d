"""Energy meter of a rank: windows of time, and the readings of all its readers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from dtdg_lab.core.errors import ConfigError, NotAvailableError
from dtdg_lab.energy.measurement import Measurement, ReaderEnergy
from dtdg_lab.energy.readers import EnergyReader, PowerModel, Reading

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
