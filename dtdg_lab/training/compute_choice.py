"""Choices of a run that depend on its machines: the library of sparse products, and the limits of memory."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import reduce
from typing import Any

import torch

from dtdg_lab.config.model_facts import ModelFacts
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.distributed.group import Group, gather_texts, hash_of_host
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.kernels.backend_choice import can_use_dgl, choose_backend, faster, measure_backends
from dtdg_lab.kernels.device_memory import DeviceMemory, MemoryLimits, device_memory
from dtdg_lab.kernels.operators import OperatorSettings
from dtdg_lab.records.events import Kernel

COMPUTE = "compute"  # key of the choice in a plan, beside what a strategy keeps there


@dataclass(frozen=True, slots=True)
class ComputeChoice:
    """The choice of a run, the same on all ranks. A resumed or replayed run repeats what changes bits.

    Attributes:
        device: kind of device, ``cpu`` or ``cuda``.
        kernel: requested kernel.
        memory_share: requested share of the memory.
        backend: chosen backend, ``torch`` or ``dgl``.
        limits: limits of what a rank keeps.
        seconds: measured seconds of a snapshot's pulls by backend; None if nothing was measured.
    """

    device: str
    kernel: str
    memory_share: float
    backend: str
    limits: MemoryLimits
    seconds: Mapping[str, float] | None = None

    def write(self) -> dict[str, Any]:
        """Return plain values, for checkpoints and events."""
        values = {**asdict(self), **asdict(self.limits)}
        return {name: value for name, value in values.items() if name != "limits" and value is not None}

    def event(self, device: str) -> Kernel:
        """Return the event that records it, with the device and threads of this rank."""
        return Kernel(**{**self.write(), "device": device, "threads": torch.get_num_threads()})

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> ComputeChoice:
        """Read the output of :meth:`write`, with a device that may have a number; other names are ignored."""
        names = ("kernel", "memory_share", "backend")
        limits = MemoryLimits(**{name: data[name] for name in MemoryLimits.__slots__})
        kind = data["device"].partition(":")[0]
        return cls(kind, **{name: data[name] for name in names}, limits=limits, seconds=data.get("seconds"))

    def is_for(self, config: RunConfig, device: str) -> bool:
        """Return whether it was made for this kind of device, kernel and share of memory."""
        requested = (device.partition(":")[0], config["kernel"], config["memory_share"])
        return (self.device, self.kernel, self.memory_share) == requested


def choose_here(
    config: RunConfig, graph: DynamicGraph, facts: ModelFacts, *, device: str, dtype: torch.dtype
) -> tuple[str, Mapping[str, float] | None]:
    """Return the backend that this rank prefers, and its measured seconds.

    ``auto`` measures the model's pulls over the largest snapshot on a GPU where DGL works, and is torch elsewhere.

    Raises:
        NotAvailableError: ``kernel="dgl"`` cannot be used here.
    """
    if config["kernel"] != "auto" or device == "cpu" or not can_use_dgl(device, dtype):
        return choose_backend(config["kernel"], device=device, dtype=dtype), None
    shapes = [(pull.kind, pull.width) for pull in facts.along_edges if not pull.of_features]
    if not shapes:
        return "torch", None  # the others are computed once
    snapshot = max(graph.snapshots, key=lambda snapshot: snapshot.num_edges)
    settings = OperatorSettings(dtype=dtype, device=device, norm=config["norm"], self_loops=config["self_loops"])
    seconds = measure_backends(snapshot, settings, shapes)
    return faster(seconds), seconds


def agree(
    config: RunConfig,
    preferred: tuple[str, Mapping[str, float] | None],
    group: Group,
    *,
    device: str,
    earlier: Mapping[str, Any] | None,
) -> ComputeChoice:
    """Return the choice of all ranks; collective.

    DGL is taken if all ranks prefer it, and each limit is the smallest of any rank. Ranks that share a device share its
    memory.

    Args:
        config: the run's settings.
        preferred: backend and seconds, of :func:`choose_here`.
        group: the ranks.
        device: device of this rank.
        earlier: the choice of the run that is resumed or replayed; used if it was made for the same kind of device,
            kernel and share of memory. Only limits that change no bits are then chosen again.
    """
    backend, seconds = preferred
    memory = device_memory(device)
    memory = replace(memory, owner=f"{hash_of_host():x} {memory.owner}")
    texts = gather_texts(group, json.dumps([backend, *asdict(memory).values()]), device=device)
    offers = [json.loads(text) for text in texts]
    memories = [DeviceMemory(*values) for _, *values in offers]
    ranks = Counter(memory.owner for memory in memories)
    share = config["memory_share"]
    limits = reduce(MemoryLimits.at_most, (memory.limits(share, ranks=ranks[memory.owner]) for memory in memories))
    agreed = "dgl" if all(offer[0] == "dgl" for offer in offers) else "torch"
    if earlier is not None and (recorded := ComputeChoice.read(earlier)).is_for(config, device):
        return replace(recorded, limits=replace(recorded.limits, views_bytes=limits.views_bytes))
    return ComputeChoice(device.partition(":")[0], config["kernel"], share, agreed, limits, seconds)
