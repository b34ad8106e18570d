"""Peak memory of a step beside its forecast, on the CPU."""

from __future__ import annotations

import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.device_check.peak_memory import TOLERANCE, measure_peak, memory_configs


@pytest.mark.usefixtures("one_thread")
def test_the_peak_of_a_system_with_blocks_is_as_forecast() -> None:
    configs = memory_configs(catalogue.names("systems"))
    assert set(configs) == {"esdg", "esdg-hybrid", "hypergraph-vertex", "adgnn-t"}
    peak = measure_peak(configs["esdg"], "cpu")
    assert abs(peak.error) < TOLERANCE and peak.measured_bytes > 2**20
