"""Choices of a run that depend on its machines: the library of sparse products, and the limits of memory."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from typing import Any

import torch

from dtdg_lab.config.model_facts import ModelFacts
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.distributed.group import Group, gather_texts, hash_of_host
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.kernels.backend_choice import can_use_dgl, choose_backend, faster, measure_backends
from dtdg_lab.kernels.device_memory import DeviceMemory, MemoryLimits
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
        limits: limits of what a sequence of a rank keeps.
        seconds: this rank's measured seconds of a snapshot's pulls by backend; None if nothing was measured.
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


def earlier_choice(plan: Mapping[str, Any], config: RunConfig, *, device: str) -> ComputeChoice | None:
    """Return the choice in a plan; None without one, or if it was made for another kind of device or kernel."""
    choice = ComputeChoice.read(plan[COMPUTE]) if COMPUTE in plan else None
    requested = (device.partition(":")[0], config["kernel"])
    return choice if choice is not None and (choice.device, choice.kernel) == requested else None


def choose_here(
    config: RunConfig,
    graph: DynamicGraph,
    facts: ModelFacts,
    *,
    device: str,
    dtype: torch.dtype,
    earlier: ComputeChoice | None = None,
) -> tuple[str, Mapping[str, float] | None]:
    """Return the backend that this rank prefers, and its measured seconds.

    ``auto`` measures the model's pulls over the largest training snapshot on a GPU where DGL works, and is torch
    elsewhere.

    Args:
        config: the run's settings.
        graph: its training snapshots.
        facts: facts of its model.
        device: device of this rank.
        dtype: type of the products.
        earlier: the choice of the run that is resumed, replayed or rebuilt; it is repeated.

    Raises:
        NotAvailableError: DGL is requested by name, or was used earlier, and cannot be used here.
    """
    if earlier is not None:
        return choose_backend(earlier.backend, device=device, dtype=dtype), earlier.seconds
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
    memory: DeviceMemory,
    group: Group,
    *,
    device: str,
    earlier: ComputeChoice | None = None,
) -> ComputeChoice:
    """Return the choice of all ranks; collective.

    DGL is taken if all ranks prefer it, and each limit is the smallest of any rank. Ranks that share a device share its
    memory, and so do the sequences of a rank: all nodes, a strategy's own, and with several ranks the evaluator's.

    Args:
        config: the run's settings.
        preferred: backend and seconds, of :func:`choose_here`.
        memory: memory of this rank's device.
        group: the ranks.
        device: device of this rank.
        earlier: the choice of the run that is resumed, replayed or rebuilt. Its limits are repeated if the share of
            memory is the same; that of views, on which no bit depends, only where the memory is large enough.
    """
    backend, seconds = preferred
    memory = replace(memory, owner=f"{hash_of_host():x} {memory.owner}")
    texts = gather_texts(group, json.dumps([backend, *asdict(memory).values()]), device=device)
    backends, memories = [], []
    for text in texts:
        rank_backend, *values = json.loads(text)
        backends.append(rank_backend)
        memories.append(DeviceMemory(*values))
    agreed = "dgl" if set(backends) == {"dgl"} else "torch"
    share = config["memory_share"]
    sequences = 2 if group.size == 1 else 3
    limits = _smallest(memories, share).divided(sequences)
    if earlier is not None and earlier.memory_share == share:
        emptied = [replace(memory, free_bytes=memory.capacity_bytes) for memory in memories]
        fits = earlier.limits.views_bytes <= _smallest(emptied, share).divided(sequences).views_bytes
        limits = replace(earlier.limits, views_bytes=(earlier.limits if fits else limits).views_bytes)
    return ComputeChoice(device.partition(":")[0], config["kernel"], share, agreed, limits, seconds)


def _smallest(memories: Sequence[DeviceMemory], share: float) -> MemoryLimits:
    """Return the smallest limits of any rank."""
    ranks = Counter(memory.owner for memory in memories)
    return reduce(MemoryLimits.at_most, (memory.limits(share, ranks=ranks[memory.owner]) for memory in memories))
