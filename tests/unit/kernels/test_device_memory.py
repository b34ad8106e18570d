"""Memory of a device, of cgroups that limit it, and the limits that follow for each rank."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from dtdg_lab.kernels import device_memory as module
from dtdg_lab.kernels.device_memory import USUAL_LIMITS, DeviceMemory, MemoryLimits, cgroup_memory, device_memory

GIB = 1 << 30


def _machine(monkeypatch: pytest.MonkeyPatch, *, total: int, available: int) -> None:
    machine = SimpleNamespace(total=total, available=available)
    monkeypatch.setattr(module.psutil, "virtual_memory", lambda: machine)


def _write(root: Path, files: Mapping[str, object]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")


def test_limits_that_change_bits_follow_the_capacity_and_those_of_views_what_is_free() -> None:
    limits = DeviceMemory("cpu", 80 * GIB, 20 * GIB).limits(0.5, ranks=2)
    assert limits == MemoryLimits(views_bytes=5 * GIB // 2, pulls_bytes=5 * GIB // 2, activation_bytes=5 * GIB)
    busy = DeviceMemory("cpu", 80 * GIB, GIB).limits(0.5, ranks=2)
    assert (busy.pulls_bytes, busy.activation_bytes) == (limits.pulls_bytes, limits.activation_bytes)


def test_a_large_gpu_keeps_more_than_the_usual_limits() -> None:
    limits = DeviceMemory("a", 80 * GIB, 79 * GIB).limits(0.8, ranks=1)
    assert limits.at_most(USUAL_LIMITS) == USUAL_LIMITS
    assert limits.views_bytes > 7 * USUAL_LIMITS.views_bytes


def test_limits_of_sequences_and_of_ranks_are_smaller() -> None:
    assert MemoryLimits(9, 6, 5).divided(3) == MemoryLimits(3, 2, 5)  # of three sequences
    assert MemoryLimits(9, 1, 5).at_most(MemoryLimits(3, 2, 7)) == MemoryLimits(3, 1, 5)
    assert MemoryLimits(9, 6, 5).without_views() == MemoryLimits(0, 6, 5)


def test_the_cpu_has_the_memory_of_the_machine_where_no_group_limits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(monkeypatch, total=16 * GIB, available=5 * GIB)
    monkeypatch.setattr(module, "cgroup_memory", lambda: [])
    assert device_memory("cpu") == DeviceMemory("cpu", 16 * GIB, 5 * GIB)
    monkeypatch.setattr(module, "cgroup_memory", lambda: [(4 * GIB, GIB), (8 * GIB, 6 * GIB)])
    assert device_memory("cpu") == DeviceMemory("cpu", 4 * GIB, GIB)


def test_groups_of_version_2_are_found_up_to_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(monkeypatch, total=64 * GIB, available=60 * GIB)
    root, membership = tmp_path / "cgroup", tmp_path / "membership"
    membership.write_text("0::/job/step\n")
    _write(root, {"job/step/memory.max": "max", "job/step/memory.current": GIB, "job/step/memory.stat": ""})
    stat = f"anon 5\ninactive_file {GIB}"
    _write(root, {"job/memory.max": 8 * GIB, "job/memory.current": 3 * GIB, "job/memory.stat": stat})
    assert list(cgroup_memory(root, membership)) == [(8 * GIB, 6 * GIB)]  # a GiB of cached files can be dropped


def test_groups_of_version_1_are_found_where_the_container_shows_its_own_as_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _machine(monkeypatch, total=64 * GIB, available=60 * GIB)
    root, membership = tmp_path / "cgroup", tmp_path / "membership"
    membership.write_text("5:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n0::/docker/1\n")
    limit = {"memory/memory.limit_in_bytes": 2 * GIB, "memory/memory.usage_in_bytes": 3 * GIB}
    _write(root, limit | {"memory/memory.stat": "total_inactive_file 0"})
    assert list(cgroup_memory(root, membership)) == [(2 * GIB, 0)]
    _write(root, {"memory/memory.limit_in_bytes": 9223372036854771712})  # no limit
    assert list(cgroup_memory(root, membership)) == []


def test_a_system_without_groups_limits_nothing(tmp_path: Path) -> None:
    assert list(cgroup_memory(tmp_path, tmp_path / "membership")) == []


@pytest.mark.parametrize(
    ("visible", "device", "owner"),
    [
        ("", "cuda:1", "GPU-1 1"),
        ("MIG-a,MIG-b", "cuda:1", "GPU-1 MIG-b"),  # MIG devices may share the UUID of their GPU
        ("MIG-b", "cuda", "GPU-0 MIG-b"),
        ("3", "cuda:0", "GPU-0 3"),
    ],
)
def test_freed_tensors_that_torch_keeps_are_free_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, visible: str, device: str, owner: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    fake = SimpleNamespace(
        mem_get_info=lambda device: (30 * GIB, 80 * GIB),
        memory_reserved=lambda device: 12 * GIB,
        memory_allocated=lambda device: 2 * GIB,
        current_device=lambda: 0,
        get_device_properties=lambda index: SimpleNamespace(uuid=f"GPU-{index}"),
    )
    monkeypatch.setattr(torch, "cuda", fake)
    assert device_memory(device) == DeviceMemory(owner, 80 * GIB, 40 * GIB)
