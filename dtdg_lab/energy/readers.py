"""Energy readers: NVML, RAPL, and power models for CPUs and GPUs without counters."""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol

import psutil

from dtdg_lab.core.errors import ConfigError, NotAvailableError, shortened
from dtdg_lab.energy.nvml import LACKING, NO_PERMISSION, NvmlError, ask, start_nvml, stop_nvml

# Processor seconds of processes that work for a rank.


class ChildSeconds:
    """Processor seconds so far of some processes; those of one that has ended stay counted.

    Threads may share it. What a process used between the last look and its end is lost.

    Args:
        pids: the processes that live now, such as a rank's server of features.
    """

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self._living: dict[int, psutil.Process] = {}
        self._seconds: dict[tuple[int, float], float] = {}  # by number and start: numbers are used again
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """Seconds of all of them together."""
        with self._lock:
            pids = set(self._pids())
            self._living = {pid: process for pid, process in self._living.items() if pid in pids}
            for pid in pids:
                try:
                    if pid not in self._living:
                        self._living[pid] = psutil.Process(pid)
                    process = self._living[pid]
                    times = process.cpu_times()
                    self._seconds[pid, process.create_time()] = times.user + times.system
                except psutil.NoSuchProcess:
                    self._living.pop(pid, None)  # it has ended since it was listed: what was last seen of it stands
            return sum(self._seconds.values())


# Watts that a machine is assumed to draw, where nothing measures them.


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerModel:
    """Idle and full power of a node's processors and of one GPU; power in between is linear in utilisation.

    A measured figure needs them too: the power of waiting and of computing phases is separated by the
    idle power (see :mod:`dtdg_lab.energy.monitor`); the sum stays the measured one.

    Attributes:
        idle_w: watts of a node's idle processors.
        max_w: watts of the node with all cores busy.
        gpu_idle_w: watts of an idle GPU.
        gpu_max_w: watts of a busy one; 0 where they are not known: such a GPU's energy stays unknown.

    Raises:
        ConfigError: a power is negative, or idle power is above full power.
    """

    idle_w: float
    max_w: float
    gpu_idle_w: float = 0.0
    gpu_max_w: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.idle_w <= self.max_w:
            raise ConfigError(
                f"idle_w={self.idle_w:g}, max_w={self.max_w:g}: powers must satisfy 0 <= idle_w <= max_w. "
                "Set power_idle_w and power_max_w in the config."
            )
        if self.gpu_idle_w < 0 or (self.gpu_max_w != 0 and self.gpu_max_w < self.gpu_idle_w):
            raise ConfigError(
                f"gpu_idle_w={self.gpu_idle_w:g}, gpu_max_w={self.gpu_max_w:g}: powers must satisfy "
                "0 <= gpu_idle_w <= gpu_max_w, or gpu_max_w = 0 where a GPU's power is not known. "
                "Set power_gpu_idle_w and power_gpu_max_w in the config."
            )


# What every energy reader gives: joules since its last reading, with where they come from.
#
# Unknown is ``None``, never 0: a counter that did not move, a window too short to mean anything and a value no device
# could draw are unknown, and their energy is carried into the next reading where the counter still holds it.


Source = Literal["counter", "polled", "modelled"]
Scope = Literal["rank", "node"]
Device = Literal["processor", "gpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Energy of one window.

    ``source``: ``counter`` (the device counts its joules), ``polled`` (sampled watts, integrated) or ``modelled``
    (assumed watts times processor time). ``scope``: ``rank`` where the joules belong to the reading rank alone,
    ``node`` where they cover the whole machine and are to be counted once for it. ``device``: ``processor`` (with its
    memory where that is counted) or ``gpu``.
    """

    joules: float
    interval_s: float
    watts: float
    source: Source
    reader: str
    scope: Scope
    device: Device


class EnergyReader(Protocol):
    """A source of energy readings, owned by one rank."""

    @property
    def name(self) -> str:
        """What is read, such as ``rapl`` or ``nvml:GPU-5f3a...``; the ``reader`` column of the records."""

    @property
    def source(self) -> Source:
        """How its joules come about."""

    @property
    def scope(self) -> Scope:
        """Whose joules they are."""

    @property
    def device(self) -> Device:
        """What draws them."""

    def read(self) -> Reading | None:
        """Energy since the last reading (or since construction); None where it is unknown.

        Raises:
            NotAvailableError: what could be read before can no longer be read.
        """

    def close(self) -> None:
        """Give back handles and threads; calling it twice is harmless."""


def reading_of(reader: EnergyReader, joules: float, interval_s: float) -> Reading:
    """What a reader found in a window."""
    return Reading(
        joules=joules,
        interval_s=interval_s,
        watts=joules / interval_s,
        source=reader.source,
        reader=reader.name,
        scope=reader.scope,
        device=reader.device,
    )


class _Modelled:
    """Assumed watts times the time passed: what models of processors and GPUs have in common."""

    name: str
    source: Source = "modelled"
    scope: Scope = "rank"
    device: Device

    def __init__(self, power: PowerModel, wall: Callable[[], float]) -> None:
        self._power, self._wall, self._last_s = power, wall, wall()
        self._joules = self._seconds = 0.0
        self._lock = threading.Lock()  # readings and settings come from different threads

    def set_power(self, power: PowerModel) -> None:
        """Assume other powers from now on; what was drawn before stays as it was."""
        with self._lock:
            self._settle()
            self._power = power

    def read(self) -> Reading | None:
        """Modelled energy since the last reading, or since its power is known; None for a window of no length."""
        with self._lock:
            self._settle()
            joules, interval_s = self._joules, self._seconds
            if interval_s <= 0:
                return None
            self._joules = self._seconds = 0.0
        return reading_of(self, joules, interval_s)

    def close(self) -> None:
        """Nothing is held."""

    def _settle(self) -> None:
        """Add what was drawn up to now."""
        raise NotImplementedError


# Modelled energy of a rank's processors, for machines where nothing can be read.


class ModelledReader(_Modelled):
    """Joules from assumed idle and full power of a node, shared out over its ranks by processor time.

    For a window of ``wall`` seconds in which this process used ``cpu`` processor seconds, with n ranks on the node and
    c cores: ``P = P_idle / n + (P_max - P_idle) * cpu / (wall * c)``. The n ranks together draw ``P_idle`` when idle
    and ``P_max`` when they keep all cores busy. Power is taken as linear in utilisation; what other programs on the
    node draw is not counted.

    Args:
        ranks_on_node: n, ranks that share the node.
        idle_w: P_idle, watts of the idle processors of the node.
        max_w: P_max, watts of the node with all cores busy.
        cores: c, logical cores of the node; the machine's by default.
        wall: monotonic clock in seconds.
        processor: processor seconds of this process, all threads.

    Raises:
        ConfigError: n or c is below 1, or the powers are negative or the wrong way round.
    """

    name = "processor-model"
    device: Device = "processor"

    def __init__(
        self,
        *,
        ranks_on_node: int,
        idle_w: float,
        max_w: float,
        cores: int | None = None,
        wall: Callable[[], float] = time.perf_counter,
        processor: Callable[[], float] = time.process_time,
    ) -> None:
        self._cores = (os.cpu_count() or 1) if cores is None else cores
        if ranks_on_node < 1 or self._cores < 1:
            raise ConfigError(f"ranks_on_node={ranks_on_node}, cores={self._cores}: both must be at least 1.")
        super().__init__(PowerModel(idle_w=idle_w, max_w=max_w), wall)
        self._ranks, self._processor, self._last_cpu_s = ranks_on_node, processor, processor()

    def _settle(self) -> None:
        """Add what was drawn up to now; processor seconds of no time wait for the next."""
        wall_s, cpu_s = self._wall(), self._processor()
        passed_s = wall_s - self._last_s
        if passed_s <= 0:
            return
        # the two clocks tick apart, so that a short window can seem more than fully used: the rest is the next one's
        used_s = min(cpu_s - self._last_cpu_s, passed_s * self._cores)
        self._last_s, self._last_cpu_s = wall_s, self._last_cpu_s + used_s
        busy = used_s / (passed_s * self._cores)
        idle_w, max_w = self._power.idle_w, self._power.max_w
        self._joules += (idle_w / self._ranks + (max_w - idle_w) * busy) * passed_s
        self._seconds += passed_s


# Modelled energy of a rank's GPU, for machines where NVML gives nothing.


class BusySeconds:
    """Seconds that something was busy so far: one thread adds, another may ask."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def add(self, seconds: float) -> None:
        """It was busy for so many seconds more."""
        self._seconds += seconds

    def __call__(self) -> float:
        """Seconds so far."""
        return self._seconds


class ModelledGpuReader(_Modelled):
    """Joules of one GPU from its assumed idle and full power: ``P = P_idle + (P_max - P_idle) * busy / wall``.

    While the GPU's full power is 0, which means not known, its energy is unknown.

    Args:
        power: ``gpu_idle_w`` and ``gpu_max_w``.
        busy: seconds that the GPU was busy so far, updated after each step. A step in progress is not included
            yet, so that a reading may be one step late; together readings are right.
        wall: monotonic clock in seconds.
    """

    name = "gpu-model"
    device: Device = "gpu"

    def __init__(
        self, power: PowerModel, busy: Callable[[], float], *, wall: Callable[[], float] = time.perf_counter
    ) -> None:
        super().__init__(power, wall)
        self._busy, self._last_busy_s = busy, busy()

    def _settle(self) -> None:
        now_s, busy_s = self._wall(), self._busy()
        passed_s = now_s - self._last_s
        if passed_s <= 0:
            return
        if not self._power.gpu_max_w:
            self._joules = self._seconds = 0.0  # a reading ends now: what was known earlier would be a hole in it
            self._last_s, self._last_busy_s = now_s, busy_s
            return
        idle_w, max_w = self._power.gpu_idle_w, self._power.gpu_max_w
        # not clipped: a long step reports its busy seconds at its end, which may exceed the time since the last reading
        self._joules += idle_w * passed_s + (max_w - idle_w) * (busy_s - self._last_busy_s)
        self._seconds += passed_s
        self._last_s, self._last_busy_s = now_s, busy_s


# Energy of one NVIDIA GPU: its own joule counter where it has one, else its watts sampled and integrated.


# Drivers refresh power and energy every 20 to 100 ms; below that a sample repeats the last one or shows zero.
FLOOR_S = 0.1

# A window that shows more than this many times the power limit is a fault of the counter, not energy.
_IMPLAUSIBLE = 2.0


class NvmlReader:
    """Joules of one whole GPU, read by the rank that owns it.

    Args:
        device: CUDA device index of this process (``CUDA_VISIBLE_DEVICES`` is taken into account, numbers in it
            meaning PCI bus order), or the GPU's UUID.
        floor_s: shortest window and sampling period, seconds; values below 0.1 are raised to it.
        clock: monotonic clock in seconds.
        sample: whether watts are sampled in a thread of their own where there is no counter; False leaves calling
            :meth:`poll` to the owner.

    Attributes:
        note: why watts are sampled instead of reading the joule counter; empty where it is read.

    Raises:
        NotAvailableError: no pynvml, no driver, no such GPU, a GPU split by MIG, or neither energy nor power offered.
    """

    scope: Scope = "rank"
    device: Device = "gpu"

    def __init__(
        self,
        device: int | str,
        *,
        floor_s: float = FLOOR_S,
        clock: Callable[[], float] = time.perf_counter,
        sample: bool = True,
    ) -> None:
        self._floor_s, self._clock = max(floor_s, FLOOR_S), clock
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._joules = self._sample_w = self._sample_s = 0.0
        self._closed = False
        self.rejected = 0
        """Windows whose power no GPU of this kind can draw; they count as unknown."""
        self.note = ""
        self._nvml = start_nvml()
        try:
            self._handle = find_gpu(self._nvml, device)
            self.name = f"nvml:{ask(self._nvml, 'nvmlDeviceGetUUID', self._handle)}"
            self._limit_w = self._power_limit_w()
            self.source: Source = self._open()
        except NvmlError as error:
            stop_nvml(self._nvml)
            raise NotAvailableError(
                f"NVML cannot read GPU {device!r}, so its measured energy stays unknown: {error}"
            ) from error
        except NotAvailableError:
            stop_nvml(self._nvml)
            raise
        if self.source == "polled" and sample:
            self._thread = threading.Thread(target=self._sample, name=self.name, daemon=True)
            self._thread.start()

    def read(self) -> Reading | None:
        """Energy of the GPU since the last reading.

        None, with the energy kept for the next reading, while the window is shorter than the floor or the counter
        has not moved; None, counted in :attr:`rejected`, where the power is beyond twice the GPU's limit.

        Raises:
            NotAvailableError: the driver no longer answers.
        """
        try:
            return self._read()
        except NvmlError as error:
            raise NotAvailableError(
                f"{self.name} no longer answers. Its energy is unknown from here. {error}"
            ) from error

    def poll(self) -> None:
        """Take one sample of the watts into the integral (trapezoids); for GPUs without an energy counter.

        Raises:
            NvmlError: the driver no longer answers.
        """
        with self._lock:  # the sampling thread and the reading one must not interleave
            watts, now_s = self._watts(), self._clock()
            self._joules += (watts + self._sample_w) / 2 * (now_s - self._sample_s)
            self._sample_w, self._sample_s = watts, now_s

    def close(self) -> None:
        """Stop sampling and release NVML; calling it twice is harmless."""
        if self._closed:
            return
        self._closed = True
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        stop_nvml(self._nvml)

    def _open(self) -> Source:
        if _mig_on(self._nvml, self._handle):
            raise NotAvailableError(
                f"{self.name} is split by MIG: its counters cover all instances together, so no rank's energy can be "
                "read. Train on a GPU without MIG to measure energy."
            )
        self._last_s = self._sample_s = self._clock()
        try:
            self._last_mj = self._millijoules()
            return "counter"
        except NvmlError as error:
            if error.kind == NO_PERMISSION:
                raise
            self.note = f"{self.name} samples watts, because its joule counter cannot be read: {error}"
        # GPUs before Volta and old drivers have no joule counter
        self._sample_w = self._watts()
        return "polled"

    def _millijoules(self) -> int:
        return int(ask(self._nvml, "nvmlDeviceGetTotalEnergyConsumption", self._handle))

    def _watts(self) -> float:
        return float(ask(self._nvml, "nvmlDeviceGetPowerUsage", self._handle)) / 1e3

    def _read(self) -> Reading | None:
        now_s = self._clock()
        interval_s = now_s - self._last_s
        if interval_s < self._floor_s:
            return None
        if self.source == "counter":
            now_mj = self._millijoules()
            joules, self._last_mj = (now_mj - self._last_mj) / 1e3, now_mj
        else:
            self.poll()
            with self._lock:
                joules, self._joules = self._joules, 0.0
                now_s = self._sample_s
        if joules == 0:
            return None
        interval_s, self._last_s = now_s - self._last_s, now_s
        watts = joules / interval_s
        if joules < 0 or (self._limit_w and watts > _IMPLAUSIBLE * self._limit_w):
            self.rejected += 1
            return None
        return reading_of(self, joules, interval_s)

    def _power_limit_w(self) -> float | None:
        try:
            return float(ask(self._nvml, "nvmlDeviceGetEnforcedPowerLimit", self._handle)) / 1e3
        except NvmlError:
            return None  # no limit to compare with: every reading is taken

    def _sample(self) -> None:
        while not self._stop.wait(self._floor_s):
            try:
                self.poll()
            except NvmlError:
                return  # read() meets the same error in the owner's thread and reports it


def find_gpu(nvml: ModuleType, device: int | str) -> Any:
    """NVML's handle of a GPU, given by CUDA index or UUID (a beginning of it is enough).

    Raises:
        NotAvailableError: there is no such GPU, NVML does not answer, or the name is of a MIG instance.
    """
    name = _visible_name(device) if isinstance(device, int) else device
    if name.startswith("MIG-"):
        raise NotAvailableError(
            f"{name} is a MIG instance: energy is counted for its whole GPU only, so it stays unknown here."
        )
    count = ask(nvml, "nvmlDeviceGetCount")
    if name.isdigit() and int(name) < count:
        return ask(nvml, "nvmlDeviceGetHandleByIndex", int(name))
    uuids: dict[str, Any] = {}
    refusals = []
    for index in range(0 if name.isdigit() else count):
        try:
            handle = ask(nvml, "nvmlDeviceGetHandleByIndex", index)
            uuids[ask(nvml, "nvmlDeviceGetUUID", handle)] = handle
        except NvmlError as error:  # another job's GPU, or one that is lost
            refusals.append(f" GPU {index} does not tell its UUID: {error}")
    matches = [handle for uuid, handle in uuids.items() if uuid.startswith(name)]
    if len(matches) != 1:
        raise NotAvailableError(
            f"GPU {name!r}: {len(matches)} of {count} GPUs match. `dtdg-lab env` lists them.{''.join(refusals)}"
        )
    return matches[0]


def _visible_name(index: int) -> str:
    """The NVML index or UUID behind CUDA device ``index`` of this process."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return str(index)
    names = [name.strip() for name in visible.split(",") if name.strip()]
    if not 0 <= index < len(names):
        raise NotAvailableError(f"CUDA device {index} is not among the visible ones: CUDA_VISIBLE_DEVICES={visible!r}.")
    return names[index]


def _mig_on(nvml: ModuleType, handle: Any) -> bool:
    try:
        current, _ = ask(nvml, "nvmlDeviceGetMigMode", handle)
    except NvmlError as error:
        if error.kind in LACKING:
            return False  # the GPU cannot be split
        raise
    return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)


# Energy counters of the processors and memory, as Linux shows them under powercap (RAPL; Intel, and AMD from Zen).


POWERCAP = Path("/sys/class/powercap")

# No processor package or memory domain draws more; a longer window than this allows may hide a second wrap-around.
_CEILING_W = 1000.0

# Counters move once a millisecond or slower, so a short window may show what was spent before it.
_SLACK_S = 0.01


@dataclass(slots=True)
class _Domain:
    """One counter: its file, the microjoules at which it wraps, and what it showed last."""

    label: str
    file: Path
    range_uj: int
    last_uj: int


class RaplReader:
    """Joules of the whole node: all processor packages, and memory where it is counted apart.

    ``core`` and ``uncore`` are parts of their package, and ``psys`` holds the packages again, so none of them is added.
    A counter that wrapped around is continued by its ``max_energy_range_uj``. One rank of a node reads.

    Args:
        root: the powercap folder.
        clock: monotonic clock in seconds.

    Attributes:
        note: why memory or another part of a package is left out; empty where all is read.

    Raises:
        NotAvailableError: there is no RAPL here, or a package's files cannot be read; the message has the remedy.
    """

    name = "rapl"
    source: Source = "counter"
    scope: Scope = "node"
    device: Device = "processor"

    def __init__(self, root: Path | str = POWERCAP, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._domains, self.note = _find_domains(Path(root))
        self._last_s = clock()
        self.rejected = 0
        """Windows in which a counter was set back; their energy is unknown."""
        self._longest_s = min(domain.range_uj for domain in self._domains) * 1e-6 / _CEILING_W

    @property
    def domains(self) -> tuple[str, ...]:
        """Names of the counters that are added, such as ``package-0`` and ``package-0/dram``."""
        return tuple(domain.label for domain in self._domains)

    def read(self) -> Reading | None:
        """Energy of the node since the last reading.

        None, without losing energy, where no time has passed or the counters have not moved yet; None, with the
        window's energy lost, where it was so long that a counter may have wrapped around twice, or where a counter
        seems to have spent more than anything can draw: it was set back (counted in :attr:`rejected`).

        Raises:
            NotAvailableError: a counter can no longer be read.
        """
        try:
            now_s, counters = self._clock(), [_number(domain.file) for domain in self._domains]
        except _UnreadableError as error:
            raise NotAvailableError(f"RAPL no longer answers. {_explain([error])}") from error
        interval_s = now_s - self._last_s
        by_domain_uj = [_spent_uj(domain, now_uj) for domain, now_uj in zip(self._domains, counters, strict=True)]
        spent_uj = sum(by_domain_uj)
        if interval_s <= 0 or not spent_uj:
            return None
        for domain, now_uj in zip(self._domains, counters, strict=True):
            domain.last_uj = now_uj
        self._last_s = now_s
        if interval_s > self._longest_s:
            return None
        # below 0: the counter was set back, and had counted beyond its range
        if min(by_domain_uj) < 0 or max(by_domain_uj) * 1e-6 > _CEILING_W * (interval_s + _SLACK_S):
            self.rejected += 1
            return None
        joules = spent_uj * 1e-6
        return reading_of(self, joules, interval_s)

    def close(self) -> None:
        """Nothing is held: each reading opens and closes the files."""


def _spent_uj(domain: _Domain, now_uj: int) -> int:
    spent_uj = now_uj - domain.last_uj
    return spent_uj if spent_uj >= 0 else spent_uj + domain.range_uj


class _UnreadableError(Exception):
    """Raised when a file of RAPL cannot be read, or holds no number."""

    def __init__(self, file: Path, reason: str, *, is_refused: bool = False) -> None:
        super().__init__(reason)
        self.file, self.reason, self.is_refused = file, reason, is_refused


def _find_domains(root: Path) -> tuple[list[_Domain], str]:
    """Return the counters to add, and why others are left out.

    A package that cannot be read makes the node's energy unknown. Memory that cannot be read is left out.
    """
    domains: list[_Domain] = []
    needed: list[_UnreadableError] = []
    optional: list[_UnreadableError] = []
    labels: dict[str, str] = {}
    try:
        # intel-rapl-mmio:* shows the same packages through another door, so only intel-rapl:* is read
        names = sorted(name for name in os.listdir(root) if name.startswith("intel-rapl:"))
    except (FileNotFoundError, NotADirectoryError):
        names = []
    except OSError as error:
        raise NotAvailableError(_explain([_unreadable(root, error)])) from error
    for name in names:
        if not os.path.isdir(root / name):
            continue  # a link without its folder, as in containers
        parent = name.rpartition(":")[0]
        failures = optional if parent in labels else needed
        try:
            label = labels[name] = _text(root / name / "name")
        except _UnreadableError as error:
            failures.append(error)
            label = ""
        if label.startswith("package") or label in ("dram", ""):
            domain = _open_domain(root / name, f"{labels[parent]}/{label}" if parent in labels else label, failures)
            domains += [domain] if label and domain is not None else []
    if needed or (optional and not domains):
        raise NotAvailableError(_explain([*needed, *optional]))
    if not domains:
        raise NotAvailableError(
            f"no RAPL energy counter under {root}. Virtual machines and containers rarely pass it through; on a "
            "physical Linux machine load it with `modprobe intel_rapl_msr`. Energy is modelled meanwhile."
        )
    return domains, _explain(optional)


def _open_domain(folder: Path, label: str, failures: list[_UnreadableError]) -> _Domain | None:
    """Return the counter; None, with the reasons added to ``failures``, if a file cannot be read."""
    numbers = []
    for file in (folder / "max_energy_range_uj", folder / "energy_uj"):
        try:
            numbers.append(_number(file))
        except _UnreadableError as error:
            failures.append(error)
    if len(numbers) < 2:
        return None
    range_uj, last_uj = numbers
    if range_uj == 0:
        failures.append(_UnreadableError(folder / "max_energy_range_uj", "it holds 0, no value to wrap at"))
        return None
    return _Domain(label, folder / "energy_uj", range_uj=range_uj, last_uj=last_uj)


def _number(file: Path) -> int:
    text = _text(file)
    if not (text.isascii() and text.isdigit()):
        raise _UnreadableError(file, f"it holds {shortened(text)}; a whole number of microjoules is needed")
    return int(text)


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace").strip()
    except OSError as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: OSError) -> _UnreadableError:
    reason = error.strerror or type(error).__name__
    return _UnreadableError(file, reason, is_refused=isinstance(error, PermissionError))


def _explain(failures: Sequence[_UnreadableError]) -> str:
    """Return the reasons, with one command for all files that only root may read; empty without failures."""
    refused = list(dict.fromkeys(_closed_path(each.file) for each in failures if each.is_refused))
    texts = []
    if refused:
        mode = "-R a+rX" if any(path.is_dir() for path in refused) else "a+r"
        files = shlex.join(map(str, refused))
        texts.append(
            f"permission refused on the RAPL file{'s' if len(refused) > 1 else ''} {', '.join(map(str, refused))}: "
            f"Linux lets only root read. Allow it until the next boot with `sudo chmod {mode} {files}`, on the host "
            "where this is a container."
        )
    texts += [
        f"cannot read the RAPL file {each.file}: {each.reason}. Check that the powercap driver is loaded "
        "(`sudo modprobe intel_rapl_msr`) and supports this processor; other permissions do not help."
        for each in failures
        if not each.is_refused
    ]
    return " ".join(texts)


def _closed_path(file: Path) -> Path:
    """Return the outermost folder above the file that may not be entered, else the file."""
    folders = [folder for folder in reversed(file.parents) if not os.access(folder, os.X_OK, effective_ids=True)]
    return folders[0] if folders else file
