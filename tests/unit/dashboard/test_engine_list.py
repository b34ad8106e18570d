"""Texts on engines."""

from __future__ import annotations

from dataclasses import replace

from dtdg_lab.cluster.engines import EngineState
from dtdg_lab.dashboard.engine_list import list_engines, summarize_devices

GPU = EngineState(True, "cuda:0", "NVIDIA H200", 140 << 30, host="a")
CPU = EngineState(True, "cpu", "A processor", 64 << 30, host="b", problem="the driver is too old.")


def test_each_engine_is_a_line_with_device_memory_and_model() -> None:
    text = list_engines({0: GPU, 1: CPU, 2: EngineState(is_alive=False)})
    assert text.splitlines() == [
        "Engine  Machine  Device       Memory     Model",
        "0       1        cuda:0       140.0 GiB  NVIDIA H200",
        "1       2        cpu          64.0 GiB   A processor",
        "2                not running",
        "",
        "GPUs are not used: the driver is too old.",
    ]
    assert list_engines({0: replace(GPU, problem="it is too old.")}).endswith("\nWarning about GPUs: it is too old.")


def test_devices_are_counted_by_model() -> None:
    assert summarize_devices({0: GPU, 1: GPU}) == "2 × NVIDIA H200"
    assert summarize_devices({0: GPU, 1: CPU}) == "1 × NVIDIA H200, 1 on CPU"
    assert summarize_devices({0: CPU, 1: CPU}) == "on CPU"
    assert summarize_devices({0: EngineState(is_alive=False)}) == ""
