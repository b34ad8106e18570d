"""Devices of engines: what each engine can compute on, and the device that a run gets on it."""

from __future__ import annotations

import platform
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from dtdg_lab.core.errors import ConfigError, NotAvailableError
from dtdg_lab.energy.nvml import ask, start_nvml, stop_nvml, visible_name, visible_names
from dtdg_lab.runs.environment import cpu_model
from dtdg_lab.runs.liveness import host_id

SHARED = "cuda_shared"  # choice of the option ``device``
MIG = "MIG-"  # prefix of the UUID of a part of a GPU
_MIG_NOTE = (
    "Several ranks compute on MIG instances of one machine. They exchange through the memory of the machine by gloo, "
    "because the instances may be parts of one GPU, and NCCL refuses two ranks on one GPU."
)


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, or a MIG instance of one, as the process of an engine sees it.

    Attributes:
        index: its CUDA index in that process.
        uuid: NVIDIA's identifier, ``GPU-...`` or ``MIG-...``; the same in all processes.
        name: its model.
        memory_bytes: its memory.
    """

    index: int
    uuid: str
    name: str
    memory_bytes: int

    @property
    def is_mig(self) -> bool:
        """True for a MIG instance."""
        return self.uuid.startswith(MIG)


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """What an engine can compute on.

    Attributes:
        host: its machine, see ``runs.liveness.host_id``.
        cpu: model of the machine's processor.
        memory_bytes: memory of the machine.
        gpus: GPUs that the engine's process can use, by CUDA index.
        problem: why it can use none, although the machine has some; or torch's warnings about those that it can use,
            such as one that is too old for this build of torch; mostly empty.
    """

    host: str
    cpu: str
    memory_bytes: int
    gpus: tuple[Gpu, ...] = ()
    problem: str = ""

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> DeviceReport:
        """Return the report of its ``dataclasses.asdict``."""
        return cls(**{**facts, "gpus": tuple(Gpu(**gpu) for gpu in facts["gpus"])})


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """The devices of a run.

    Attributes:
        devices: torch device of each rank, in its engine's process.
        is_shared: True if several ranks compute on one GPU, or on MIG instances of one machine.
        note: why ranks compute on the CPU, or share a GPU, although there are GPUs; empty otherwise.
    """

    devices: tuple[str, ...]
    is_shared: bool = False
    note: str = ""


# On the engine.


def report_devices() -> DeviceReport:
    """Report the devices of this process; it imports torch, and initialises CUDA if there is a usable GPU."""
    import torch

    gpus: tuple[Gpu, ...] = ()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if torch.cuda.is_available():  # device_count alone asks NVML, which counts GPUs that torch cannot use
            gpus = tuple(_describe_gpu(index) for index in range(torch.cuda.device_count()))
    warning_text = " ".join(" ".join(str(warning.message) for warning in caught).split())
    problem = warning_text if gpus else _explain_unused(warning_text)
    return DeviceReport(host_id(), cpu_model() or platform.machine(), psutil.virtual_memory().total, gpus, problem)


def _describe_gpu(index: int) -> Gpu:
    import torch

    facts = torch.cuda.get_device_properties(index)
    name = visible_name(index)  # torch may report the UUID of the whole GPU for a MIG instance
    return Gpu(index, name if name.startswith(MIG) else f"GPU-{facts.uuid}", facts.name, int(facts.total_memory))


def _explain_unused(torch_warning: str) -> str:
    """Return why torch can use none of the GPUs that NVML reports; empty if NVML reports none, or they are hidden."""
    import torch

    try:
        nvml = start_nvml()
    except NotAvailableError:
        return ""  # there is no driver, so there is nothing to use
    try:
        count = ask(nvml, "nvmlDeviceGetCount")
        driver, newest_cuda = ask(nvml, "nvmlSystemGetDriverVersion"), ask(nvml, "nvmlSystemGetCudaDriverVersion")
    except NotAvailableError as error:
        return f"NVML does not answer: {error}"
    finally:
        stop_nvml(nvml)
    if not count or visible_names() == []:
        return ""
    version, built_for = torch.__version__, torch.version.cuda
    gpus = f"{count} GPU{'s' * (count > 1)}"
    if built_for is None:
        return (
            f"the machine has {gpus}, but torch {version} is a build for CPUs. Install a build of torch for CUDA "
            f"{_cuda_text(newest_cuda)} or older, which driver {driver} supports."
        )
    reason = torch_warning.rstrip(".") or "torch gives no reason"
    if newest_cuda // 1000 < int(built_for.split(".")[0]):  # within a major version old drivers run new builds
        return (
            f"the machine has {gpus}, but its driver {driver} supports CUDA up to {_cuda_text(newest_cuda)}, and torch "
            f"{version} is built for CUDA {built_for}. Update the driver, or install a build of torch for CUDA "
            f"{_cuda_text(newest_cuda)} or older. The warning of torch: {reason}."
        )
    return f"the machine has {gpus}, but torch {version} (CUDA {built_for}) cannot use them: {reason}."


def _cuda_text(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


# In the session.


def free_instances(reports: Sequence[DeviceReport], count: int) -> list[str]:
    """Return a MIG instance for each of some new engines; empty texts without enough of them.

    A CUDA process sees only the first of the instances that CUDA_VISIBLE_DEVICES lists, so each engine needs its own.

    Args:
        reports: reports of the other engines of this machine.
        count: number of new engines.
    """
    taken = {gpu.uuid for report in reports for gpu in report.gpus}
    listed = [name for name in visible_names() or () if name.startswith(MIG) and name not in taken]
    return (listed + [""] * count)[:count]


def choose_devices(request: str, reports: Sequence[DeviceReport], ranks: Sequence[int] | None = None) -> DeviceChoice:
    """Choose the device of each rank: a GPU of its own, or for all ranks the CPU, since a group has one backend.

    Args:
        request: the option ``device``. With ``auto``, ranks take GPUs only if there is one for each engine, so that
            runs side by side compute on equal devices.
        reports: reports of the engines that may train at the same time.
        ranks: indices of the run's engines among them, in rank order; all by default.

    Raises:
        ConfigError: ``cuda`` or ``cuda_shared`` was requested, and GPUs are missing.
    """
    numbers = range(len(reports)) if ranks is None else ranks
    on_cpu = ("cpu",) * len(numbers)
    if request == "cpu":
        return DeviceChoice(on_cpu)
    gpus = assign_gpus(reports)
    own_gpus = [gpus[number] for number in numbers]
    if None not in (gpus if request == "auto" else own_gpus):
        instances = Counter(reports[number].host for number in numbers if (gpu := gpus[number]) and gpu.is_mig)
        is_shared = max(instances.values(), default=0) > 1
        return DeviceChoice(_names(own_gpus), is_shared, _MIG_NOTE if is_shared else "")
    shortage = _describe_shortage(reports, gpus, counts_engines=len(numbers) < len(reports))
    can_share = all(report.gpus for report in reports)
    if request == SHARED and can_share:
        shared_gpus = share_out(reports, gpus)
        note = (
            f"Ranks share GPUs, since {shortage} They exchange through the memory of the machine by gloo, because NCCL "
            "needs a GPU for each rank, and their times include each other's load."
        )
        return DeviceChoice(_names([shared_gpus[number] for number in numbers]), is_shared=True, note=note)
    remedy = f"Use fewer ranks or more GPUs{f', or device={SHARED!r}' * can_share}."
    if not any(report.gpus for report in reports):
        remedy = "`dtdg-lab env` says what torch and the driver find."
    if request != "auto":
        raise ConfigError(f"device={request!r} needs GPUs, but {shortage} {remedy} device='auto' falls back to CPUs.")
    has_gpus = any(report.gpus or report.problem for report in reports)
    return DeviceChoice(on_cpu, note=f"Ranks compute on CPUs, since {shortage} {remedy}" if has_gpus else "")


def assign_gpus(reports: Sequence[DeviceReport]) -> list[Gpu | None]:
    """Return a GPU of its own for as many engines as possible, and None for the others.

    Engines that see the same GPUs get them in order. An engine that sees fewer GPUs than another one takes
    precedence where they compete (augmenting paths of a bipartite matching).
    """
    owners: dict[str, int] = {}  # UUID -> engine
    gpus: list[Gpu | None] = [None] * len(reports)

    def take(engine: int, seen: set[str]) -> bool:
        """Find a GPU for an engine; engines that have one may move to another."""
        for gpu in sorted(reports[engine].gpus, key=lambda gpu: gpu.uuid in owners):  # free ones first
            if gpu.uuid in seen:
                continue
            seen.add(gpu.uuid)
            if gpu.uuid not in owners or take(owners[gpu.uuid], seen):
                owners[gpu.uuid], gpus[engine] = engine, gpu
                return True
        return False

    for engine in range(len(reports)):
        take(engine, set())
    return gpus


def share_out(reports: Sequence[DeviceReport], gpus: Sequence[Gpu | None]) -> list[Gpu]:
    """Return a GPU for every engine: its own, or the least shared one that it sees.

    Args:
        reports: reports of the engines; each sees a GPU.
        gpus: the GPUs of their own, as of :func:`assign_gpus`.
    """
    loads = Counter(gpu.uuid for gpu in gpus if gpu is not None)
    shared = []
    for report, own_gpu in zip(reports, gpus, strict=True):
        gpu = own_gpu or min(report.gpus, key=lambda gpu: loads[gpu.uuid])
        loads[gpu.uuid] += own_gpu is None
        shared.append(gpu)
    return shared


def _names(gpus: Sequence[Gpu | None]) -> tuple[str, ...]:
    return tuple(f"cuda:{gpu.index}" for gpu in gpus if gpu is not None)


def _describe_shortage(
    reports: Sequence[DeviceReport], gpus: Sequence[Gpu | None], *, counts_engines: bool = False
) -> str:
    """Return the number of GPUs and ranks of each machine where a rank has no GPU, and why GPUs cannot be used.

    Args:
        reports: reports of the engines.
        gpus: the GPUs of their own.
        counts_engines: whether the run has only some of the engines; those with a GPU are then named.
    """
    texts = []
    noun = "engine" if counts_engines else "rank"
    for host in dict.fromkeys(report.host for report, gpu in zip(reports, gpus, strict=True) if gpu is None):
        of_host = [report for report in reports if report.host == host]
        count = len({gpu.uuid for report in of_host for gpu in report.gpus})
        problems = dict.fromkeys(report.problem for report in of_host if report.problem and not report.gpus)
        counted = f"{count} usable GPU{'s' * (count != 1)} for {len(of_host)} {noun}{'s' * (len(of_host) > 1)}"
        texts.append(": ".join([counted, *problems]).rstrip("."))
    machines = len({report.host for report in reports})
    location = "a machine has" if machines > 1 else "the machine has"
    shortage = "; ".join(f"{location} {text}" for text in texts) + "."
    with_gpus = ", ".join(str(engine) for engine, gpu in enumerate(gpus) if gpu is not None)
    return f"{shortage} Engines with a GPU: {with_gpus}." if counts_engines and with_gpus else shortage
