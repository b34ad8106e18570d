"""Energy where a query of NVML is refused: a stated source, its reason, and a remedy that works."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest import mock

import pynvml
import pytest

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.energy.modelled import BusySeconds
from dtdg_lab.energy.monitor import EnergyMeter
from dtdg_lab.energy.nvml import NvmlReader
from dtdg_lab.energy.rank_readers import readers_for
from dtdg_lab.energy.readers import EnergyReader
from dtdg_lab.runs.environment import describe_environment
from tests.energy_doubles import ReplayClock

QUERIES = {
    "nvmlDeviceGetCount": 1,
    "nvmlDeviceGetHandleByIndex": "handle",
    "nvmlDeviceGetUUID": "GPU-aaaa-1",
    "nvmlDeviceGetName": "NVIDIA H200",
    "nvmlDeviceGetMigMode": [0, 0],
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetTotalEnergyConsumption": 5_000,
    "nvmlDeviceGetPowerUsage": 100_000,
    "nvmlSystemGetDriverVersion": "600.1",
}
LACKING = [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """NVML with one GPU that answers every query; its errors are the real ones."""
    fake = mock.create_autospec(pynvml)
    fake.NVMLError, fake.NVML_DEVICE_MIG_ENABLE = pynvml.NVMLError, pynvml.NVML_DEVICE_MIG_ENABLE
    for name, value in QUERIES.items():
        getattr(fake, name).return_value = value
    fake.nvmlDeviceGetMemoryInfo.return_value.total = 2**30
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


def gpu_energy(folder: Path) -> tuple[EnergyReader, str]:
    readers, notes = readers_for(
        "cuda",
        local_rank=0,
        local_ranks=1,
        idle_w=20,
        max_w=100,
        gpu_idle_w=30,
        gpu_max_w=250,
        gpu_busy=BusySeconds(),
        rapl_root=folder,
    )
    for reader in readers:
        reader.close()
    return readers[0], notes[0]


@pytest.mark.parametrize("query", sorted(QUERIES))
def test_any_query_may_be_refused_by_nvml(nvml: mock.Mock, tmp_path: Path, query: str) -> None:
    for code in sorted(pynvml.NVMLError._valClassMapping):
        getattr(nvml, query).side_effect = pynvml.NVMLError(code)
        reader, note = gpu_energy(tmp_path)
        if reader.source != "counter":
            assert reader.source in ("polled", "modelled") and f"{query}: {pynvml.NVMLError(code)}".rstrip(".") in note
        if query in ("nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetName"):
            facts = describe_environment(mock.MagicMock(), graph_source="", data_hash="")
            assert str(pynvml.NVMLError(code)) in f"{facts['gpus']} {facts['gpus_note']}"


@pytest.mark.parametrize("code", LACKING)
def test_a_function_that_is_not_found_is_as_one_that_is_not_supported(
    nvml: mock.Mock, tmp_path: Path, code: int
) -> None:
    error = pynvml.NVMLError(code)
    nvml.nvmlDeviceGetMigMode.side_effect = nvml.nvmlDeviceGetEnforcedPowerLimit.side_effect = error
    assert gpu_energy(tmp_path)[0].source == "counter"
    nvml.nvmlDeviceGetTotalEnergyConsumption.side_effect = error
    reader, note = gpu_energy(tmp_path)
    assert reader.source == "polled" and "samples watts, because its joule counter cannot be read" in note
    nvml.nvmlDeviceGetPowerUsage.side_effect = error
    reader, note = gpu_energy(tmp_path)
    assert reader.source == "modelled" and f"nvmlDeviceGetPowerUsage: {error}" in note
    assert nvml.nvmlShutdown.call_count == nvml.nvmlInit.call_count


def test_a_pynvml_without_the_function_and_with_bytes_is_read_as_well(nvml: mock.Mock, tmp_path: Path) -> None:
    del nvml.nvmlDeviceGetTotalEnergyConsumption, nvml.nvmlDeviceGetMigMode
    nvml.nvmlDeviceGetUUID.return_value, nvml.nvmlDeviceGetName.return_value = b"GPU-aaaa-1", b"Tesla P100"
    reader, note = gpu_energy(tmp_path)
    assert (reader.name, reader.source) == ("nvml:GPU-aaaa-1", "polled") and "this pynvml does not have it" in note
    NvmlReader("GPU-aaaa").close()
    assert describe_environment(mock.MagicMock(), graph_source="", data_hash="")["gpus"][0]["name"] == "Tesla P100"


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (pynvml.NVMLError_LibraryNotFound(), "An NVIDIA driver is needed"),
        (pynvml.NVMLError_LibRmVersionMismatch(), "restart the machine"),
        (pynvml.NVMLError_NoPermission(), "administrator"),
        (pynvml.NVMLError_NotReady(), ""),
    ],
)
def test_nvml_that_does_not_start_has_the_remedy_of_its_error(
    nvml: mock.Mock, tmp_path: Path, error: pynvml.NVMLError, remedy: str
) -> None:
    nvml.nvmlInit.side_effect = error
    reader, note = gpu_energy(tmp_path)
    assert reader.source == "modelled" and str(error) in note and remedy in note
    assert ("driver is needed" in note) == ("driver is needed" in remedy)


def test_a_gpu_of_another_job_does_not_hide_ones_own(nvml: mock.Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(index: int) -> str:
        if index == 0:
            raise pynvml.NVMLError_NoPermission()
        return "handle"

    nvml.nvmlDeviceGetCount.return_value = 2
    nvml.nvmlDeviceGetHandleByIndex.side_effect = handle
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-aaaa-1")
    reader = NvmlReader(0)
    assert reader.name == "nvml:GPU-aaaa-1"
    reader.close()
    with pytest.raises(NotAvailableError, match="GPU 0 does not tell its UUID"):
        NvmlReader("GPU-cccc")


def test_a_gpu_that_is_lost_in_a_run_ends_neither_the_run_nor_its_end(nvml: mock.Mock) -> None:
    clock = ReplayClock()
    meter = EnergyMeter([NvmlReader(0, clock=clock)], clock=clock)
    nvml.nvmlDeviceGetTotalEnergyConsumption.side_effect = pynvml.NVMLError_GpuIsLost()
    nvml.nvmlShutdown.side_effect = pynvml.NVMLError_Uninitialized()
    clock.advance(1.0)
    assert meter.sample() == []
    assert meter.lost["nvml:GPU-aaaa-1"].endswith("or restart the machine.")
    meter.close()
