"""Memory of the device that a rank computes on, and the limits of what a rank keeps there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import torch

# Parts of a rank's share of the memory. The rest is for parameters, gradients and a step's other tensors.
VIEWS_PART, ACTIVATIONS_PART, PULLS_PART = 1 / 2, 1 / 4, 1 / 8

_CGROUPS, _MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_CGROUP_FILES = {  # limit, usage, and the name of reclaimable bytes in memory.stat, by version
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Bytes that a sequence of snapshots keeps at most; what does not fit is computed again.

    Attributes:
        views_bytes: of views, which hold features and operators. Views that are built again have the same bits.
        pulls_bytes: of first-layer pulls. A pull of a pull that is not kept is rounded differently.
        activation_bytes: of activations for backward. Above it, snapshots are recomputed, which adds their gradients
            in another order.
    """

    views_bytes: int
    pulls_bytes: int
    activation_bytes: int

    def without_views(self) -> MemoryLimits:
        """Return the limits of a sequence that keeps no view."""
        return replace(self, views_bytes=0)

    def divided(self, parts: int) -> MemoryLimits:
        """Return the limits of one of several sequences of a rank. Activations are kept by one at a time."""
        return replace(self, views_bytes=self.views_bytes // parts, pulls_bytes=self.pulls_bytes // parts)

    def at_most(self, other: MemoryLimits) -> MemoryLimits:
        """Return the smaller of each two limits."""
        return MemoryLimits(
            min(self.views_bytes, other.views_bytes),
            min(self.pulls_bytes, other.pulls_bytes),
            min(self.activation_bytes, other.activation_bytes),
        )


USUAL_LIMITS = MemoryLimits(4 << 30, 1 << 30, 2 << 30)  # of sequences outside a run, such as those of benchmarks


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Memory that all processes on one device share.

    Attributes:
        owner: the device, by a text that is the same in all processes of the machine.
        capacity_bytes: all of it; on the CPU at most the limit of this process's cgroups.
        free_bytes: free now.
    """

    owner: str
    capacity_bytes: int
    free_bytes: int

    def limits(self, share: float, *, ranks: int) -> MemoryLimits:
        """Return the limits of one rank, for all its sequences together.

        Limits that change bits follow the capacity, so that a run repeats whatever else is in memory. Those of views
        follow the free memory.

        Args:
            share: share of the memory that all ranks may use together, above 0 and at most 1.
            ranks: ranks that share the device.
        """
        capacity, free = self.capacity_bytes * share / ranks, self.free_bytes * share / ranks
        return MemoryLimits(int(VIEWS_PART * free), int(PULLS_PART * capacity), int(ACTIVATIONS_PART * capacity))


def device_memory(device: str) -> DeviceMemory:
    """Return the memory of a device, ``cpu`` or a CUDA device.

    Freed tensors that torch keeps for itself count as free.
    """
    if torch.device(device).type == "cuda":
        free, capacity = torch.cuda.mem_get_info(device)
        free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return DeviceMemory(_cuda_owner(device), int(capacity), int(free))
    machine = psutil.virtual_memory()
    cgroups = list(cgroup_memory())
    capacity = min([machine.total, *(limit for limit, _ in cgroups)])
    return DeviceMemory("cpu", capacity, min([machine.available, *(free for _, free in cgroups)]))


def _cuda_owner(device: str) -> str:
    """Return a name of a GPU: its UUID, which MIG devices share, with its entry in CUDA_VISIBLE_DEVICES."""
    index = torch.device(device).index
    index = torch.cuda.current_device() if index is None else index
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", "")  # old versions of torch have none
    return f"{uuid} {visible[index] if index < len(visible) and visible[index] else index}"


def cgroup_memory(root: Path = _CGROUPS, membership: Path = _MEMBERSHIP) -> Iterator[tuple[int, int]]:
    """Yield limit and free bytes of each cgroup of this process that limits memory, of version 1 or 2.

    Cached files that the kernel can drop count as free. In a container its own group may be the root.

    Args:
        root: folder where cgroups are mounted.
        membership: file with the groups of this process; nothing is yielded without it.
    """
    lines = membership.read_text().splitlines() if membership.is_file() else []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        version, base = (1, root / "memory") if controllers else (2, root)
        group = base / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(base):
                yield from _limit_of(folder, _CGROUP_FILES[version])


def _limit_of(folder: Path, names: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield limit and free bytes of one cgroup, if it has a limit."""
    limit_file, usage_file, reclaimable = names
    if not (folder / limit_file).is_file() or not (folder / usage_file).is_file():
        return
    text = (folder / limit_file).read_text().strip()
    if text == "max" or int(text) >= psutil.virtual_memory().total:  # version 1 writes a huge number for no limit
        return
    stat = dict(line.split(maxsplit=1) for line in (folder / "memory.stat").read_text().splitlines())
    used = int((folder / usage_file).read_text()) - int(stat.get(reclaimable, 0))
    yield int(text), max(0, int(text) - used)
