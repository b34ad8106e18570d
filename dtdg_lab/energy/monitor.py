"""Energy meter: selects readers, measures windows, and shares a node's energy among its ranks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import psutil

from dtdg_lab.core.errors import ConfigError, NotAvailableError
from dtdg_lab.energy.readers import (
    POWERCAP,
    BusySeconds,
    Device,
    EnergyReader,
    ModelledGpuReader,
    ModelledReader,
    NvmlReader,
    PowerModel,
    RaplReader,
    Reading,
    Scope,
    Source,
    reading_of,
)

# A rank's share of the joules that a whole node's counter shows.


SHARE = "-share"  # suffix of these readers' names; their joules are included in the node's reader
_NOT_BUSY = ("idle", "iowait", "guest", "guest_nice")  # guests are in user and nice already


class NodeShareReader:
    """Shares a node's counted joules out to this rank: idle power evenly over ranks, the rest by processor seconds.

    Of J joules in ``wall`` seconds, with n ranks on the node: ``min(J, P_idle * wall) / n`` and of what is left the
    part that this process's processor seconds are of all processors' busy seconds. The ranks' shares sum to at most
    J; the rest is what other programs drew. The joules are counted, the sharing is a model.

    Args:
        node: reads the whole node, for this rank alone: each rank has its own.
        power: ``idle_w``.
        ranks_on_node: n.
        processor: processor seconds of this process, all threads.
        node_processor: busy seconds of all processors of the node.

    Raises:
        ConfigError: n is below 1, or the reader given does not read a node.
    """

    scope: Scope = "rank"
    device: Device = "processor"

    def __init__(
        self,
        node: EnergyReader,
        power: PowerModel,
        *,
        ranks_on_node: int,
        processor: Callable[[], float] = time.process_time,
        node_processor: Callable[[], float] | None = None,
    ) -> None:
        if ranks_on_node < 1:
            raise ConfigError(f"ranks_on_node={ranks_on_node}: at least 1.")
        if node.scope != "node":
            raise ConfigError(f"{node.name} reads one rank: only what reads a whole node can be shared out.")
        self.name = f"{node.name}{SHARE}"
        self.source: Source = node.source
        self._node, self._power, self._ranks = node, power, ranks_on_node
        self._processor, self._node_processor = processor, node_processor or _busy_s
        self._last_s, self._last_node_s = self._processor(), self._node_processor()

    def set_power(self, power: PowerModel) -> None:
        """Assume another idle power, from the next reading on."""
        self._power = power

    def read(self) -> Reading | None:
        """This rank's part of the node's energy since the last reading; None where that is unknown.

        Raises:
            NotAvailableError: the node's counter can no longer be read.
        """
        reading = self._node.read()
        if reading is None:  # processor seconds are kept for the reading that has the joules
            return None
        own_s, node_s = self._processor(), self._node_processor()
        used_s, all_s = own_s - self._last_s, node_s - self._last_node_s
        self._last_s, self._last_node_s = own_s, node_s
        idle_j = min(reading.joules, self._power.idle_w * reading.interval_s)
        # the node's seconds come in ticks of 10 ms and can lag behind this process's own
        part = used_s / max(all_s, used_s) if used_s > 0 else 0.0
        joules = idle_j / self._ranks + (reading.joules - idle_j) * part
        return reading_of(self, joules, reading.interval_s)

    def close(self) -> None:
        """Close the node's reader."""
        self._node.close()


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(getattr(times, name) for name in times._fields if name not in _NOT_BUSY))


# Which energy readers a rank has: what can be measured is, the rest is modelled, and the notes say which.


_Chosen = tuple[list[EnergyReader], list[str]]  # readers and notes


def readers_for(
    device: Literal["cpu", "cuda"],
    *,
    local_rank: int,
    local_ranks: int,
    device_index: int | str | None = None,
    idle_w: float,
    max_w: float,
    gpu_idle_w: float = 0.0,
    gpu_max_w: float = 0.0,
    gpu_busy: BusySeconds | None = None,
    shares: bool = False,
    processor: Callable[[], float] = time.process_time,
    rapl_root: Path | str = POWERCAP,
) -> tuple[list[EnergyReader], list[str]]:
    """The readers of one rank, such that all ranks of a node together count the node once.

    A GPU is read by the rank that computes on it, and modelled where NVML gives nothing. The processors are read from
    RAPL by local rank 0 alone, for the whole node; where RAPL cannot be read, each rank models its own share of them,
    on GPU machines as well.

    Args:
        device: where the rank computes.
        local_rank: the rank's number on its node, from 0.
        local_ranks: ranks on the node.
        device_index: CUDA index or UUID of the rank's GPU; ``local_rank`` by default.
        idle_w: assumed watts of the node's idle processors, for the model.
        max_w: assumed watts of the node with all cores busy, for the model.
        gpu_idle_w: assumed watts of an idle GPU, for its model.
        gpu_max_w: assumed watts of a busy GPU; 0 where not known, which leaves its energy unknown.
        gpu_busy: seconds that the GPU was busy; without it, a GPU that NVML cannot read stays unknown.
        shares: whether each rank, besides, shares the node's counter out to itself
            (:class:`~dtdg_lab.energy.monitor.NodeShareReader`), which joules by phase and rank need.
        processor: processor seconds of the rank, all threads.
        rapl_root: the powercap folder.

    Returns:
        The readers, and notes on what could not be read and what is done instead.

    Raises:
        ConfigError: ``device`` or ``local_rank`` is not one of those allowed, or the powers make no sense.
    """
    if device not in ("cpu", "cuda"):
        raise ConfigError(f"device={device!r}: energy is read for 'cpu' or 'cuda'.")
    if not 0 <= local_rank < local_ranks:
        raise ConfigError(
            f"local_rank={local_rank} of local_ranks={local_ranks}: a number from 0 to {local_ranks - 1}."
        )
    power = PowerModel(idle_w=idle_w, max_w=max_w, gpu_idle_w=gpu_idle_w, gpu_max_w=gpu_max_w)
    readers: list[EnergyReader] = []
    notes: list[str] = []
    if device == "cuda":
        _add_gpu(local_rank if device_index is None else device_index, power, gpu_busy, to=(readers, notes))
    _add_processors(
        power, local_rank, local_ranks, shares=shares, processor=processor, rapl_root=rapl_root, to=(readers, notes)
    )
    return readers, notes


def _add_gpu(device: int | str, power: PowerModel, busy: BusySeconds | None, *, to: _Chosen) -> None:
    readers, notes = to
    try:
        reader = NvmlReader(device)
    except NotAvailableError as error:
        reason = str(error)
    else:
        readers.append(reader)
        notes += [reader.note] if reader.note else []
        return
    if busy is not None:
        readers.append(ModelledGpuReader(power, busy))
    if busy is None or not power.gpu_max_w:
        notes.append(f"GPU energy is unknown: {reason}")
        return
    idle_w, max_w = power.gpu_idle_w, power.gpu_max_w
    notes.append(f"GPU energy is modelled from {idle_w:g} W idle and {max_w:g} W busy, not measured: {reason}")


def _add_processors(
    power: PowerModel,
    local_rank: int,
    local_ranks: int,
    *,
    shares: bool,
    processor: Callable[[], float],
    rapl_root: Path | str,
    to: _Chosen,
) -> None:
    readers, notes = to
    idle_w, max_w = power.idle_w, power.max_w
    try:
        node, shared = RaplReader(rapl_root), RaplReader(rapl_root)  # a reading ends the one before: each has its own
    except NotAvailableError as error:
        notes.append(f"processor energy is modelled from {idle_w:g} W idle and {max_w:g} W busy, not measured: {error}")
        model = ModelledReader(ranks_on_node=local_ranks, idle_w=idle_w, max_w=max_w, processor=processor)
        readers.append(model)
        return
    if node.note:
        notes.append(f"processor energy leaves out a part that cannot be read: {node.note}")
    if local_rank == 0:
        readers.append(node)
    else:
        notes.append("processor energy is read once for the node, by its local rank 0.")
    if shares:
        readers.append(NodeShareReader(shared, power, ranks_on_node=local_ranks, processor=processor))


# What is known of the energy of one window: joules by reader, each with its source and how much of it is covered.


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
        known = self._counted()
        return sum(each.joules for each in known if each.joules is not None) if known else None

    @property
    def coverage(self) -> float:
        """The least coverage of the readers that count; 0 where there is none."""
        return min((each.coverage for each in _own(self.readers)), default=0.0)

    @property
    def watts(self) -> float | None:
        """Mean power of the readers that count, each over the seconds that it covers; None if none is known."""
        known = [each for each in self._counted() if each.coverage > 0]
        if not known or self.seconds <= 0:
            return None
        return sum((each.joules or 0.0) / (each.coverage * self.seconds) for each in known)

    @property
    def sources(self) -> tuple[Source, ...]:
        """How the joules come about, each source once."""
        return tuple(dict.fromkeys(each.source for each in self._counted()))

    def _counted(self) -> list[ReaderEnergy]:
        return _own([each for each in self.readers if each.joules is not None])


def _own(readers: Sequence[ReaderEnergy]) -> list[ReaderEnergy]:
    """Of each kind of device the rank's readers, and the node's where the rank has none of its own."""
    own = {each.device for each in readers if each.scope == "rank"}
    return [each for each in readers if each.scope == "rank" or each.device not in own]


# How a window's joules are shared out over what was done in it.


_LEAST_S = 1e-9  # of work: less is no measure to share anything out by


def shared_out(
    joules: float, seconds: Mapping[str, float], busy_s: Mapping[str, float], idle_j: float
) -> dict[str, float]:
    """Joules by phase: idle power by time, what is above it by busy seconds. They sum to ``joules``.

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
    found = spread(by_time, seconds)
    if worked:
        for phase in seconds:
            found[phase] += (joules - by_time) * busy_s.get(phase, 0.0) / worked_s
    return found


def spread(amount: float, seconds: Mapping[str, float]) -> dict[str, float]:
    """An amount shared out by time alone; nothing where there is no time."""
    whole_s = sum(seconds.values())
    return {phase: amount * lasted_s / whole_s for phase, lasted_s in seconds.items()} if whole_s > 0 else {}


# Energy of windows of time: ``begin_window``, ``end_window``, and the readings of all of a rank's readers.


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
        """What is known of it so far; it must have ended."""
        assert self.end_s is not None
        seconds = self.end_s - self.begin_s
        return Measurement(key=self.key, seconds=seconds, readers=tuple(self._of(each, seconds) for each in readers))

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
        """What is known of a window that a lap ended, once no reading can add to it; None before."""
        with self._lock:
            return window.measured(self.readers) if self._is_settled(window, self._clock()) else None

    def ended(self, window: EnergyWindow) -> Measurement:
        """What is known by now of a window that a lap ended; it is filled no more."""
        with self._lock:
            self._settling = [each for each in self._settling if each is not window]
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
        before = self._untold.get(name)
        if before is not None:
            joules, interval_s = before.joules + reading.joules, before.interval_s + reading.interval_s
            reading = replace(reading, joules=joules, interval_s=interval_s, watts=joules / interval_s)
        self._untold[name] = reading

    def _is_settled(self, window: EnergyWindow, now_s: float) -> bool:
        end_s = now_s if window.end_s is None else window.end_s
        waited = now_s > end_s + PATIENCE_S
        return waited or all(known_s >= end_s or name in self.lost for name, known_s in self._known_to_s.items())

    def _opened(self, key: str) -> EnergyWindow:
        if key not in self._open:
            known = ", ".join(map(repr, self._open)) or "none"
            raise ConfigError(f"no window {key!r} is open (open: {known}): begin it with begin_window({key!r}).")
        return self._open[key]
