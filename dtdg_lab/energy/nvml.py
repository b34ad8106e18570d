"""NVML: start it, ask it, stop it. Each refusal is a NotAvailableError with its reason and the remedy for it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from dtdg_lab.core.errors import NotAvailableError

_DRIVER = "An NVIDIA driver is needed: install it, or start the container with `--gpus all`."
_RESET = "Reset the GPU with `sudo nvidia-smi --gpu-reset`, or restart the machine."

# by the name of the error's class: pynvml has one class for each of NVML's return codes
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
    """Raised when NVML does not answer a query.

    Args:
        query: NVML's function.
        reason: as NVML states it.
        kind: name of the error's class.

    Attributes:
        reason: with the remedy, where there is one.
    """

    def __init__(self, query: str, reason: str, kind: str) -> None:
        self.kind = kind
        self.reason = " ".join([f"{reason.rstrip('.')}.", *([_REMEDIES[kind]] if kind in _REMEDIES else [])])
        super().__init__(f"{query}: {self.reason}")


def start_nvml() -> ModuleType:
    """Return pynvml, started; :func:`stop_nvml` ends it.

    Raises:
        NotAvailableError: pynvml is not installed, or there is no driver that answers.
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
    """Return NVML's answer; text is decoded, which old versions of pynvml leave to the caller.

    Args:
        nvml: pynvml, started.
        query: name of the function, such as ``nvmlDeviceGetPowerUsage``.
        arguments: of the function.

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
        return  # of a lost GPU or driver, which has released everything already


def name_gpus(nvml: ModuleType) -> list[str]:
    """Return the names of all GPUs; of one that does not answer, the reason.

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
