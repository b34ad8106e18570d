"""Peak memory of a step beside its forecast, on the CPU."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
import torch

from dtdg_lab.config import catalogue
from dtdg_lab.device_check import peak_memory
from dtdg_lab.device_check.peak_memory import TOLERANCE, measure_peak, memory_configs
from dtdg_lab.distributed import group
from dtdg_lab.kernels.device_clock import HostClock
from dtdg_lab.training.block_memory import BlockMemory
from dtdg_lab.training.memory import MemoryTrace


@pytest.mark.usefixtures("one_thread")
def test_the_peak_of_a_system_with_blocks_is_as_forecast() -> None:
    configs = memory_configs(catalogue.names("systems"))
    assert set(configs) == {"esdg", "esdg-hybrid", "hypergraph-vertex", "adgnn-t"}
    peak = measure_peak(configs["esdg"], "cpu")
    assert abs(peak.error) < TOLERANCE and peak.measured_bytes > 2**20


def test_on_a_gpu_caches_of_the_first_step_count_as_in_the_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, peaks = iter([100]), iter([450, 500])
    components = Mock()
    components.strategy.block_memory = BlockMemory(100.0, 10.0, 0.0, 30)
    components.strategy.plan.blocks = 1
    devices: list[str] = []
    monkeypatch.setattr(group, "clock_of", lambda device, **_: devices.append(device) or HostClock())
    monkeypatch.setattr(peak_memory, "build", Mock(return_value=components))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: next(reads))

    def trace(*_: object, device: str) -> MemoryTrace:
        assert next(reads, None) is None  # what is held was read before the first step
        return MemoryTrace(next(peaks), (), (), ())

    monkeypatch.setattr(peak_memory, "largest_trace", trace)
    peak = measure_peak(memory_configs(["esdg"])["esdg"], "cuda:0")
    assert (peak.forecast_bytes, peak.measured_bytes) == (400.0, 400.0)
    assert devices == ["cuda:0"]
