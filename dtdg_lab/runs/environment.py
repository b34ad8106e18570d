"""What a run was done with: versions, processors, memory, GPUs and commit; nothing that names a person or machine."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from dtdg_lab.core.config import RunConfig

PACKAGES = ("dtdg-lab", "numpy", "pandas", "pyarrow", "pydantic", "psutil", "torch", "dgl", "ipyparallel", "pyzmq",
            "panel", "bokeh", "plotly", "jupyterlab", "nvidia-ml-py")  # fmt: skip
SCHEMA = 1


def describe_environment(
    config: RunConfig | None = None, *, graph_source: str | None = None, data_hash: str | None = None
) -> dict[str, Any]:
    """What this process could run and measure with, without importing torch.

    Args:
        config: names the data set and its protocol.
        graph_source: where the data came from, in words, where already known.
        data_hash: SHA-256 of the data set's arrays, where already known.

    Returns:
        A dict that JSON can hold; what is not installed, present or known is None.
    """
    facts: dict[str, Any] = {
        "schema": SCHEMA,
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
    model = platform.processor() or None
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        named = [
            line.partition(":")[2].strip() for line in listing.read_text().splitlines() if line[:10] == "model name"
        ]
        model = named[0] if named else model
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"model": model, "cores": psutil.cpu_count(logical=False), "threads": os.cpu_count(), "usable": usable}


def gpu_count() -> int:
    """GPUs that NVML sees; 0 without a driver."""
    return len(_gpus()["gpus"] or [])


def _gpus() -> dict[str, Any]:
    """Names and memory of the GPUs through NVML, or why there are none to tell."""
    try:
        import pynvml
    except ImportError:
        return {"gpus": None, "gpus_note": "nvidia-ml-py is not installed, so GPUs cannot be listed"}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return {"gpus": [], "gpus_note": f"NVML finds no driver ({error})"}
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        found = [
            {
                "name": _text(pynvml.nvmlDeviceGetName(handle)),
                "memory_bytes": pynvml.nvmlDeviceGetMemoryInfo(handle).total,
            }
            for handle in handles
        ]
        return {"gpus": found, "gpus_note": f"driver {_text(pynvml.nvmlSystemGetDriverVersion())}"}
    except pynvml.NVMLError as error:
        return {"gpus": None, "gpus_note": f"NVML answers with an error ({error})"}
    finally:
        pynvml.nvmlShutdown()


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _git(checkout: Path) -> dict[str, Any] | None:
    """Commit and cleanness of the project's own checkout; None where the package is not in one or git is missing."""
    if not (checkout / ".git").exists():
        return None
    commit = _git_answer(checkout, "rev-parse", "HEAD")
    changed = _git_answer(checkout, "status", "--porcelain", "--untracked-files=no")
    if commit is None or changed is None:
        return None
    return {"commit": commit, "dirty": bool(changed)}


def _git_answer(checkout: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(checkout), *arguments], capture_output=True, text=True, timeout=10,
                              check=True)  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
