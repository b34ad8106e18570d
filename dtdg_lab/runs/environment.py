"""The environment of a run: versions, processors, memory, GPUs and commit, without personal or machine names."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.energy.nvml import ask, name_gpus, start_nvml, stop_nvml, visible_names

_OF_DATA = ("numpy", "pandas", "pyarrow", "pydantic", "psutil")


_OF_TRAINING = ("torch", "dgl", "ipyparallel", "pyzmq")


_OF_PAGES = ("panel", "bokeh", "plotly", "jupyterlab")


PACKAGES = ("dtdg-lab", *_OF_DATA, *_OF_TRAINING, *_OF_PAGES, "nvidia-ml-py")


ENVIRONMENT_SCHEMA = 1


def describe_environment(
    config: RunConfig | None = None, *, graph_source: str | None = None, data_hash: str | None = None
) -> dict[str, Any]:
    """Describe the environment of this process, without importing torch.

    Args:
        config: settings with the data set and its protocol.
        graph_source: origin of the data, if already known.
        data_hash: SHA-256 of the data set's arrays, if already known.

    Returns:
        A JSON-compatible dict; missing or unknown values are None.
    """
    facts: dict[str, Any] = {
        "schema": ENVIRONMENT_SCHEMA,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "versions": {name: _version(name) for name in PACKAGES},
        "cpu": _cpu(),
        "memory_bytes": psutil.virtual_memory().total,
        **_gpus(),
        "git": _git(Path(__file__).resolve().parents[2]),
    }
    if config is not None:
        facts["data"] = {"dataset": config.dataset, "source": graph_source, "sha256": data_hash}
    return facts


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _cpu() -> dict[str, Any]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "model": cpu_model(),
        "cores": psutil.cpu_count(logical=False),
        "threads": os.cpu_count(),
        "usable": usable,
    }


def cpu_model() -> str | None:
    """Return the model of this machine's processor; None if it is unknown."""
    model = platform.processor() or None
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        named = [
            line.partition(":")[2].strip() for line in listing.read_text().splitlines() if line[:10] == "model name"
        ]
        model = named[0] if named else model
    return model


def gpu_count() -> int:
    """Return the number of GPUs for new engines: those that NVML reports and CUDA_VISIBLE_DEVICES does not hide.

    Each MIG instance in CUDA_VISIBLE_DEVICES counts.
    """
    count, names = len(_gpus()["gpus"] or []), visible_names()
    if names is None or not count:
        return count
    instances = sum(name.startswith("MIG-") for name in names)
    return instances or min(count, len(names))


def _gpus() -> dict[str, Any]:
    """Return names and memory of the GPUs from NVML, or the reason why there are none."""
    try:
        nvml = start_nvml()
    except NotAvailableError as error:
        return {"gpus": [], "gpus_note": str(error)}
    try:
        gpus = [
            {"name": name, "memory_bytes": _memory_bytes(nvml, index)} for index, name in enumerate(name_gpus(nvml))
        ]
        return {"gpus": gpus, "gpus_note": f"driver {ask(nvml, 'nvmlSystemGetDriverVersion')}"}
    except NotAvailableError as error:
        return {"gpus": None, "gpus_note": f"NVML does not answer. {error}"}
    finally:
        stop_nvml(nvml)


def _memory_bytes(nvml: ModuleType, index: int) -> int | None:
    """Return a GPU's memory; None if it does not report it, such as a GPU that shares the machine's memory."""
    try:
        return int(ask(nvml, "nvmlDeviceGetMemoryInfo", ask(nvml, "nvmlDeviceGetHandleByIndex", index)).total)
    except NotAvailableError:
        return None


def _git(checkout: Path) -> dict[str, Any] | None:
    """Return the commit of this checkout, and True if it has changes; None without a checkout or git."""
    if not (checkout / ".git").exists():
        return None
    commit = _git_answer(checkout, "rev-parse", "HEAD")
    changed = _git_answer(checkout, "status", "--porcelain", "--untracked-files=no")
    if commit is None or changed is None:
        return None
    return {"commit": commit, "dirty": bool(changed)}


def _git_answer(checkout: Path, *arguments: str) -> str | None:
    try:
        process = subprocess.run(
            ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout.strip()
