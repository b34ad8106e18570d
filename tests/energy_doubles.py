"""Test doubles: meters that replay joules, and a powercap folder whose counters tests move."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.energy.monitor import EnergyMeter
from dtdg_lab.energy.readers import Device, Reading, Scope, Source

RANGE_UJ = 262_143_328_850
PACKAGE, CORE, MEMORY = "intel-rapl:0", "intel-rapl:0:0", "intel-rapl:0:1"

# A meter that replays scripted or recorded joules, so that everything above the readers runs without hardware.


class ReplayClock:
    """A clock that advances only on request."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds

    def __call__(self) -> float:
        """Seconds now."""
        return self.now_s


@dataclass(frozen=True, slots=True)
class Scripted:
    """Joules spent evenly over some seconds; None if unknown."""

    seconds: float
    joules: float | None


class ReplayReader:
    """Tells scripted joules as a reader would, at whatever times it is read.

    A reading within a stretch that is unknown is None, and the next one covers the time since the end of that stretch.
    After the script's end everything is unknown.

    Args:
        script: stretches on end, from the clock's time when this reader is made.
        clock: drives it; a meter needs the same one.
        name: of the reader.
        source: which its readings claim.
        scope: of its joules.
        device: which draws them.

    Raises:
        ConfigError: a stretch has no length, or negative joules.
    """

    def __init__(
        self,
        script: Iterable[Scripted],
        clock: ReplayClock,
        *,
        name: str = "replay",
        source: Source = "counter",
        scope: Scope = "rank",
        device: Device = "processor",
    ) -> None:
        self.name, self.source, self.scope, self.device = name, source, scope, device
        self._script, self._clock = tuple(script), clock
        for part in self._script:
            if part.seconds <= 0 or (part.joules is not None and part.joules < 0):
                raise ConfigError(f"{part}: a stretch lasts above 0 s and spends 0 J or more, or None for unknown.")
        self._begin_s = self._last_s = clock()

    def read(self) -> Reading | None:
        """Joules since the last reading; None where they are unknown or no time has passed."""
        now_s, at_s = self._clock(), self._begin_s
        since_s, joules = self._last_s, 0.0
        for part in self._script:
            from_s, to_s = max(at_s, since_s), min(at_s + part.seconds, now_s)
            at_s += part.seconds
            if to_s <= from_s:
                continue
            if part.joules is None:
                since_s, joules = to_s, 0.0
            else:
                joules += part.joules * (to_s - from_s) / part.seconds
        self._last_s = now_s
        interval_s = now_s - since_s
        if interval_s <= 0 or now_s > at_s + 1e-9:
            return None
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


def replay_meter(rows: Sequence[Mapping[str, Any]], clock: ReplayClock) -> EnergyMeter:
    """A meter whose readers replay what one rank recorded in the table ``energy``; gaps stay unknown.

    Args:
        rows: of one rank and attempt, with the table's columns.
        clock: which stands for the time of the earliest reading's begin.

    Raises:
        ConfigError: there is no row.
    """
    rows = [row for row in rows if isinstance(row["reader"], str)]  # the others have no reader
    if not rows:
        raise ConfigError("no rows of the table energy: there is nothing to replay.")
    begins_ns = [row["time_ns"] - round(row["interval_s"] * 1e9) for row in rows]
    first_ns = min(begins_ns)
    by_reader: dict[str, list[Mapping[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["time_ns"]):
        by_reader.setdefault(str(row["reader"]), []).append(row)
    return EnergyMeter([_replayed(name, own, first_ns, clock) for name, own in by_reader.items()], clock=clock)


def _replayed(name: str, rows: list[Mapping[str, Any]], first_ns: int, clock: ReplayClock) -> ReplayReader:
    script, at_ns = [], first_ns
    for row in rows:
        hole_s = (row["time_ns"] - at_ns) * 1e-9 - row["interval_s"]
        if hole_s > 1e-6:
            script.append(Scripted(hole_s, None))
        script.append(Scripted((row["time_ns"] - at_ns) * 1e-9 - max(hole_s, 0.0), row["joules"]))
        at_ns = row["time_ns"]
    device: Device = "gpu" if name.startswith(("nvml:", "gpu-")) else "processor"
    return ReplayReader(script, clock, name=name, source=rows[0]["source"], scope=rows[0]["scope"], device=device)


class Powercap:
    """A powercap folder with a package, its core and memory, and domains that are not counted."""

    def __init__(self, root: Path) -> None:
        self.root = root
        labels = {PACKAGE: "package-0", CORE: "core", MEMORY: "dram", "intel-rapl:1": "psys"}
        for folder, label in {**labels, "intel-rapl-mmio:0": "package-0"}.items():
            (root / folder).mkdir(parents=True)
            (root / folder / "name").write_text(f"{label}\n")
            (root / folder / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
            self.set(folder, 1_000_000)

    def set(self, folder: str, energy_uj: int) -> None:
        """Let the counter of a domain show microjoules; a reader never sees half a number."""
        new = self.root / folder / "new"
        new.write_text(f"{energy_uj}\n")
        new.replace(self.root / folder / "energy_uj")

    @contextmanager
    def drawing(self, watts: float) -> Iterator[None]:
        """Let the package draw power, until the context ends."""
        started_s, ended = time.perf_counter(), threading.Event()

        def count() -> None:
            while not ended.wait(1e-3):
                self.set(PACKAGE, 1_000_000 + round(watts * (time.perf_counter() - started_s) * 1e6))

        thread = threading.Thread(target=count)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
