"""What this machine can run and measure, with a remedy for everything that is missing.

Torch and DGL are imported in child processes, so that the caller does not import them and a crash or hang of an import
becomes a finding. This module and ``cli`` are above all other layers.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dtdg_lab.config.catalogue import entry
from dtdg_lab.config.options import option
from dtdg_lab.core.child_process import environment
from dtdg_lab.core.errors import NotAvailableError, PartitionError
from dtdg_lab.datasets.names import list_datasets
from dtdg_lab.energy.nvml import name_gpus, start_nvml, stop_nvml
from dtdg_lab.energy.rank_readers import readers_for
from dtdg_lab.energy.rapl import POWERCAP, RaplReader
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.network.netem import may_administer, tc_program

State = Literal["yes", "partly", "modelled", "no"]

_PACKAGES = ("numpy", "torch", "dgl", "jupyterlab", "ipywidgets", "plotly", "panel", "ipyparallel", "nvidia-ml-py")
_INSTALL = "`make env`, or `pip install -e .[lab] -c constraints.txt` in this environment"

# Each prints lines of JSON; only the last one is read. Other output of libraries is ignored.
_TORCH_PROBE = """
import json, torch
import torch.distributed as dist
ready = dist.is_available()
gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
print(json.dumps({"version": torch.__version__, "cuda_build": torch.version.cuda,
    "gpus": [torch.cuda.get_device_name(i) for i in range(gpus)],
    "gloo": ready and dist.is_gloo_available(), "nccl": ready and dist.is_nccl_available()}))
"""
_DGL_PROBE = """
import json, warnings
warnings.simplefilter("ignore")
import dgl, torch
assert dgl.graph(([0, 1, 2, 3], [1, 2, 3, 0])).in_degrees().sum().item() == 4
defect = "torch finds no CUDA device"
if torch.cuda.is_available():
    from dtdg_lab.kernels.backend_choice import dgl_defect
    defect = dgl_defect("cuda", torch.float32)
print(json.dumps({"version": dgl.__version__, "gpu_defect": defect}))
"""
_DATA = "data "  # prefix of the findings on data sets
_NEEDED = ("torch", "gloo", "loopback ports")  # without these nothing trains on several ranks
_LIBRARIES = {"metis": "pymetis", "hypergraph": "mtkahypar"}  # partitioner -> the library that it needs


@dataclass(frozen=True, slots=True)
class Finding:
    """One capability: whether it is available or modelled, a description, and the remedy if it is missing."""

    name: str
    state: State
    value: str
    remedy: str = ""


def environment_report(*, timeout_s: float = 90.0, rapl_root: Path | str = POWERCAP) -> list[Finding]:
    """Check this machine and installation; takes a few seconds, since torch and DGL are imported in child processes.

    Args:
        timeout_s: longest time allowed for importing torch and for importing DGL.
        rapl_root: the powercap folder.
    """
    with ThreadPoolExecutor() as pool:
        probes = pool.map(_probed, (_TORCH_PROBE, _DGL_PROBE), (timeout_s, timeout_s))
        gpus = _gpu_names()
        findings = [_python(), *_versions(), _gpus(gpus)]
        torch_seen, dgl_seen = probes
    findings += [*_torch(torch_seen, gpus), _dgl(dgl_seen, gpus), *_partitioners(), _solver()]
    cuda = isinstance(gpus, list) and isinstance(torch_seen, dict) and bool(torch_seen["gpus"])
    findings += [_nvml(gpus), _rapl(rapl_root), _energy(cuda, rapl_root)]
    return [*findings, _ports(), _netem(), _browser(), *_data()]


def format_report(findings: list[Finding]) -> str:
    """Return the findings as aligned text, with remedies on separate lines, data sets in one line, and a verdict."""
    data = [finding for finding in findings if finding.name.startswith(_DATA)]
    shown = [finding for finding in findings if finding not in data]
    if data:
        absent = sum(finding.state != "yes" for finding in data)
        later = f"; {absent} more are downloaded on first use" if absent else ""
        value = f"{len(data) - absent} are here{later} (`dtdg-lab datasets` lists them)"
        shown.append(Finding("data sets", "yes", value))
    width = max(len(finding.name) for finding in shown)
    lines = []
    for finding in shown:
        lines.append(f"{finding.name:<{width}}  {finding.state:<8}  {finding.value}".rstrip())
        indent = " " * (width + 12)
        lines += textwrap.wrap(finding.remedy, 110, initial_indent=indent + "-> ", subsequent_indent=indent + "   ")
    return "\n".join([*lines, "", _verdict(shown)])


def _verdict(findings: list[Finding]) -> str:
    """Return in a sentence whether this machine can train, on what, and what else it lacks."""
    states = {finding.name: finding.state for finding in findings}
    if lacking := [name for name in _NEEDED if states.get(name) == "no"]:
        return f"This machine cannot train yet: {', '.join(lacking)} must be mended first, as said above."
    on_gpus = states.get("gpus") == states.get("torch") == states.get("nccl") == "yes"
    absent = ", ".join(name for name, state in states.items() if state == "no") or "nothing"
    return (
        f"This machine can train on {'its GPUs' if on_gpus else 'its CPU'}; `dtdg-lab env --check` tests it. "
        f"Missing, and not needed for that: {absent}."
    )


def _finding(name: str, is_available: object, value: str, remedy: str) -> Finding:
    """Return a capability that is available or missing; the remedy is for a missing one."""
    return Finding(name, "yes", value) if is_available else Finding(name, "no", value, remedy)


def _python() -> Finding:
    value = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    if sys.version_info >= (3, 12):
        return Finding(
            "python", "partly", value, "DGL has no build for this Python. Use 3.11 (conda: environment.yml)."
        )
    return Finding("python", "yes", value)


def _versions() -> list[Finding]:
    versions = {name: _version(name) for name in _PACKAGES}
    remedy = f"install it with {_INSTALL}"
    return [
        _finding(f"package {name}", version, version or "not installed", remedy) for name, version in versions.items()
    ]


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _gpu_names() -> list[str] | str:
    """Return the names of the GPUs from NVML, or the reason why there are none."""
    try:
        nvml = start_nvml()
    except NotAvailableError as error:
        return str(error)
    try:
        return name_gpus(nvml)
    except NotAvailableError as error:
        return str(error)
    finally:
        stop_nvml(nvml)


def _gpus(gpus: list[str] | str) -> Finding:
    is_available = isinstance(gpus, list) and gpus
    value = f"{len(gpus)}: {', '.join(gpus)}" if is_available else "none; ranks compute on the CPU"
    return _finding("gpus", is_available, value, "optional: a machine with an NVIDIA GPU and driver")


def _nvml(gpus: list[str] | str) -> Finding:
    if isinstance(gpus, list):
        return Finding("nvml", "yes", f"works, {len(gpus)} GPUs")
    return Finding("nvml", "no", "cannot be read", gpus)


def _probed(code: str, timeout_s: float) -> dict[str, Any] | str:
    """Return the output of a probe, or the reason why there is none."""
    command, env = [sys.executable, "-P", "-c", code], {**environment(), "DGLBACKEND": "pytorch"}
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=env, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer in {timeout_s:g} s"
    answers = [line for line in process.stdout.splitlines() if line.startswith("{")]
    if answers:
        answer: dict[str, Any] = json.loads(answers[-1])
        return answer
    errors = [line for line in process.stderr.splitlines() if line.strip()]
    return errors[-1] if errors else f"the import ended with exit code {process.returncode}"


def _torch(probe: dict[str, Any] | str, gpus: list[str] | str) -> list[Finding]:
    if isinstance(probe, str):
        remedy = f"required for training: {_INSTALL}"
        return [Finding(name, "no", probe, remedy) for name in ("torch", "gloo", "nccl")]
    devices = ", ".join(probe["gpus"]) or "cpu"
    build = f"CUDA {probe['cuda_build']}" if probe["cuda_build"] else "CPU build"
    unused = isinstance(gpus, list) and bool(gpus) and not probe["gpus"]
    remedy = "the GPUs are unused: install a CUDA build of torch that the driver supports" if unused else ""
    findings = [Finding("torch", "partly" if unused else "yes", f"{probe['version']} ({build}): {devices}", remedy)]
    for name, meaning in (("gloo", "ranks on CPU"), ("nccl", "ranks on GPU")):
        remedy = f"only needed for {meaning}; install a torch build that has it"
        findings.append(_finding(name, probe[name], f"process groups of {meaning}", remedy))
    return findings


def _dgl(probe: dict[str, Any] | str, gpus: list[str] | str) -> Finding:
    if isinstance(probe, str):
        return Finding(
            "dgl", "no", probe, "optional: without it the lab uses torch kernels. On Python 3.11, " + _INSTALL
        )
    if not gpus or isinstance(gpus, str):
        return Finding("dgl", "yes", f"{probe['version']}: cpu")
    if defect := probe["gpu_defect"]:
        remedy = f"on GPUs torch kernels are used: {defect}"
        return Finding("dgl", "partly", f"{probe['version']}: cpu", remedy)
    return Finding("dgl", "yes", f"{probe['version']}: cpu, cuda")


def _partitioners() -> list[Finding]:
    """Return whether each partitioner that needs a library works, by cutting a ring of eight nodes in two."""
    ring = Snapshot(np.arange(9), np.roll(np.arange(8, dtype=np.int32), 1))
    zeros = np.zeros((1, 8), np.float32)
    graph = DynamicGraph("ring", (ring,), zeros[..., None], zeros, zeros, source="environment report", edge_life=1)
    findings = []
    for name, library in _LIBRARIES.items():
        try:
            entry("partition", name).load()(graph, 2)
        except (NotAvailableError, PartitionError) as error:
            findings.append(Finding(name, "no", str(error), f"optional: `pip install -c constraints.txt {library}`"))
        else:
            findings.append(Finding(name, "yes", f"{library} {_version(library)}"))
    return findings


def _solver() -> Finding:
    version = _version("ortools")
    value = f"OR-Tools CP-SAT {version}" if version else "no OR-Tools"
    remedy = "`pip install -c constraints.txt ortools`, for schedules by integer programming"
    return _finding("solver", version, value, remedy)


def _rapl(root: Path | str) -> Finding:
    try:
        reader = RaplReader(root)
    except NotAvailableError as error:
        return Finding("rapl", "no", "cannot be read", str(error))
    return Finding("rapl", "partly" if reader.note else "yes", ", ".join(reader.domains), reader.note)


def _energy(cuda: bool, root: Path | str) -> Finding:
    idle_w, max_w = option("power_idle_w").default, option("power_max_w").default
    device: Literal["cpu", "cuda"] = "cuda" if cuda else "cpu"
    readers, notes = readers_for(device, local_rank=0, local_ranks=1, idle_w=idle_w, max_w=max_w, rapl_root=root)
    for reader in readers:
        reader.close()
    value = ", ".join(f"{reader.name} ({reader.source})" for reader in readers)
    modelled = any(reader.source == "modelled" for reader in readers)
    if not notes:
        return Finding("energy of a run", "yes", value)
    remedy = "; ".join(note for note in notes if note.startswith(("GPU", "nvml"))) or "see rapl above for the reason"
    if modelled:
        value += f" from {idle_w:g} W idle and {max_w:g} W busy"
        remedy += "; set power_idle_w and power_max_w to this machine's"
    return Finding("energy of a run", "modelled" if modelled and len(readers) == 1 else "partly", value, remedy)


def _ports() -> Finding:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as bound:
            bound.bind(("127.0.0.1", 0))
            bound.listen(1)
            with socket.create_connection(bound.getsockname(), timeout=5):
                return Finding("loopback ports", "yes", "can be bound and reached")
    except OSError as error:
        return Finding("loopback ports", "no", str(error), "clusters and the dashboard need them: allow 127.0.0.1")


def _netem() -> Finding:
    if sys.platform != "linux":
        return Finding("netem", "no", "not Linux", "delays are emulated in the program instead")
    tool, allowed = tc_program(), may_administer()
    if tool and allowed:
        return Finding("netem", "yes", "tc and NET_ADMIN (sch_netem in the kernel is checked on use)")
    missing = [
        word
        for word, is_available in (("tc (package iproute2)", tool), ("capability NET_ADMIN", allowed))
        if not is_available
    ]
    return Finding("netem", "no", f"without {' and '.join(missing)}", "optional: delays are emulated in the program")


def _browser() -> Finding:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if shutil.which(name):
            state: State = "yes" if importlib.util.find_spec("playwright") else "partly"
            remedy = "" if state == "yes" else "`pip install playwright`, for the browser test"
            return Finding("chromium", state, name, remedy)
    return Finding("chromium", "no", "not found", "`apt-get install chromium`, for the browser test")


def _data() -> list[Finding]:
    remedy = "downloaded on first use, or set DTDG_LAB_DATA to its folder"
    return [_finding(f"{_DATA}{info.name}", info.on_this_machine, info.where, remedy) for info in list_datasets()]
