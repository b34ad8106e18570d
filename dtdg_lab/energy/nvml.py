"""NVML: access and errors, and the energy of one NVIDIA GPU."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from itertools import takewhile
from types import ModuleType
from typing import Any

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.energy.readers import Device, Reading, Scope, Source, reading_of

_DRIVER = "An NVIDIA driver is needed: install it, or start the container with `--gpus all`."
_RESET = "Reset the GPU with `sudo nvidia-smi --gpu-reset`, or restart the machine."

# by name of the error class: pynvml has a class for each of NVML's return codes
_REMEDIES = {
    "NVMLError_LibraryNotFound": _DRIVER,
    "NVMLError_DriverNotLoaded": _DRIVER,
    "NVMLError_LibRmVersionMismatch": "The driver was updated, and the old one still runs: restart the machine.",
    "NVMLError_NoPermission": (
        "Ask the machine's administrator to let this account read the GPU's counters (see `nvidia-smi -q`)."
    ),
    "NVMLError_GpuIsLost": _RESET,
    "NVMLError_ResetRequired": _RESET,
}
NO_PERMISSION = "NVMLError_NoPermission"
# the GPU, its driver or pynvml lacks the query
LACKING = frozenset({"NVMLError_NotSupported", "NVMLError_FunctionNotFound", "AttributeError"})


class NvmlError(NotAvailableError):
    """NVML has returned an error.

    Args:
        query: NVML's function.
        reason: NVML's message.
        kind: name of the error's class.

    Attributes:
        reason: message with a remedy, if there is one.
    """

    def __init__(self, query: str, reason: str, kind: str) -> None:
        self.kind = kind
        self.reason = " ".join([f"{reason.rstrip('.')}.", *([_REMEDIES[kind]] if kind in _REMEDIES else [])])
        super().__init__(f"{query}: {self.reason}")


def start_nvml() -> ModuleType:
    """Initialise NVML, and return pynvml; :func:`stop_nvml` releases it.

    Raises:
        NotAvailableError: pynvml is not installed, or no driver answers.
    """
    try:
        import pynvml
    except ImportError as error:
        raise NotAvailableError("pynvml is not installed: `pip install nvidia-ml-py`.") from error
    module: ModuleType = pynvml
    try:
        ask(module, "nvmlInit")
    except NvmlError as error:
        raise NotAvailableError(f"NVML does not start: {error.reason}") from error
    return module


def ask(nvml: ModuleType, query: str, *arguments: Any) -> Any:
    """Call an NVML function, and return its result; bytes of old versions of pynvml are decoded.

    Args:
        nvml: pynvml, initialised.
        query: name of the function, such as ``nvmlDeviceGetPowerUsage``.
        arguments: arguments of the function.

    Raises:
        NvmlError: NVML returns an error, or this pynvml does not have the function.
    """
    function = getattr(nvml, query, None)
    if function is None:
        raise NvmlError(query, "this pynvml does not have it; nvidia-ml-py replaces it", "AttributeError")
    try:
        answer = function(*arguments)
    except nvml.NVMLError as error:
        raise NvmlError(query, str(error), type(error).__name__) from error
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer


def stop_nvml(nvml: ModuleType) -> None:
    """Release NVML."""
    try:
        nvml.nvmlShutdown()
    except nvml.NVMLError:
        return  # a lost GPU or driver has released everything already


def name_gpus(nvml: ModuleType) -> list[str]:
    """Return the names of all GPUs, or the error of a GPU that does not answer.

    Raises:
        NvmlError: NVML cannot count them.
    """
    names = []
    for index in range(ask(nvml, "nvmlDeviceGetCount")):
        try:
            names.append(str(ask(nvml, "nvmlDeviceGetName", ask(nvml, "nvmlDeviceGetHandleByIndex", index))))
        except NvmlError as error:
            names.append(f"GPU {index} ({error})")
    return names


# Drivers refresh power and energy every 20 to 100 ms; faster samples repeat the last value or are zero.
FLOOR_S = 0.1


# A mean power above this multiple of the power limit is a fault of the counter.
_IMPLAUSIBLE = 2.0


class NvmlReader:
    """Joules of one whole GPU, read by the rank that owns it.

    Args:
        device: CUDA device index of this process, or the GPU's UUID. Numbers in ``CUDA_VISIBLE_DEVICES`` are taken in
            PCI bus order.
        floor_s: shortest window and sampling period, seconds; at least 0.1.
        clock: monotonic clock in seconds.
        sample: whether a background thread samples watts if there is no counter; with False the owner calls
            :meth:`poll`.

    Attributes:
        note: why watts are sampled instead of reading the joule counter; empty if the counter is read.

    Raises:
        NotAvailableError: there is no pynvml, driver or such GPU, the GPU is split by MIG, or it reports neither energy
            nor power.
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
        """Number of windows with implausible power; they count as unknown."""
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
        """Return the energy of the GPU since the last reading; None if it is unknown.

        If the window is shorter than the floor, or the counter has not moved, the energy counts in the next reading. If
        the power exceeds twice the GPU's limit, the energy is lost, and counted in :attr:`rejected`.

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
        """Add one sample of watts to the integral (trapezoidal rule); for GPUs without an energy counter.

        Raises:
            NvmlError: the driver no longer answers.
        """
        with self._lock:  # the sampling and the reading thread must not interleave
            watts, now_s = self._watts(), self._clock()
            self._joules += (watts + self._sample_w) / 2 * (now_s - self._sample_s)
            self._sample_w, self._sample_s = watts, now_s

    def close(self) -> None:
        """Stop sampling and release NVML; a second call does nothing."""
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
            return None  # without a limit every reading is plausible

    def _sample(self) -> None:
        while not self._stop.wait(self._floor_s):
            try:
                self.poll()
            except NvmlError:
                return  # read() meets the same error in the owner's thread and reports it


def find_gpu(nvml: ModuleType, device: int | str) -> Any:
    """Return NVML's handle of a GPU, given by CUDA index or by UUID or its prefix.

    Raises:
        NotAvailableError: there is no such GPU, NVML does not answer, or the name is of a MIG instance.
    """
    name = visible_name(device) if isinstance(device, int) else device
    if name.startswith("MIG-"):
        raise NotAvailableError(
            f"{name} is a MIG instance, whose energy is unknown: NVML counts only whole GPUs. Train on a GPU without "
            "MIG to measure energy."
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
            f"GPU {name!r}: {len(matches)} of {count} GPUs match. `dtdg-lab env` lists them; a MIG instance is none of "
            f"them, and its energy is unknown.{''.join(refusals)}"
        )
    return matches[0]


def visible_name(index: int) -> str:
    """Return the NVML index or UUID behind CUDA device ``index`` of this process."""
    names = visible_names()
    if names is None:
        return str(index)
    if not 0 <= index < len(names):
        raise NotAvailableError(
            f"CUDA device {index} is not among the visible ones: "
            f"CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']!r}."
        )
    return names[index]


def visible_names() -> list[str] | None:
    """Return the NVML indices or UUIDs in CUDA_VISIBLE_DEVICES; None if it is not set, and all GPUs are visible.

    Another word, such as -1, or NoDevFiles of old versions of Slurm, hides itself and what follows.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return None
    names = (name.strip() for name in visible.split(","))
    return list(takewhile(lambda name: name.isdigit() or name.startswith(("GPU-", "MIG-")), names))


def _mig_on(nvml: ModuleType, handle: Any) -> bool:
    try:
        current, _ = ask(nvml, "nvmlDeviceGetMigMode", handle)
    except NvmlError as error:
        if error.kind in LACKING:
            return False  # the GPU cannot be split
        raise
    return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)
