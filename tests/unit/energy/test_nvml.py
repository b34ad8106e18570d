"""NVML: joules of its counter, watts that are sampled, and the reason and remedy where a query is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest import mock

import pynvml
import pytest

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.energy.modelled import BusySeconds
from dtdg_lab.energy.monitor import EnergyMeter
from dtdg_lab.energy.nvml import NvmlReader, find_gpu
from dtdg_lab.energy.rank_readers import readers_for
from dtdg_lab.energy.readers import EnergyReader
from dtdg_lab.runs.environment import describe_environment
from tests.energy_doubles import ReplayClock
from tests.thinning import thinned

QUERIES = (
    *(f"nvmlDeviceGet{fact}" for fact in ("Count", "HandleByIndex", "UUID", "Name", "MigMode", "EnforcedPowerLimit")),
    *("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPowerUsage", "nvmlSystemGetDriverVersion"),
)
LACKING = [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND]


def gpu_energy(folder: Path) -> tuple[EnergyReader, str]:
    powers = {"idle_w": 20, "max_w": 100, "gpu_idle_w": 30, "gpu_max_w": 250, "gpu_busy": BusySeconds()}
    readers, notes = readers_for("cuda", local_rank=0, local_ranks=1, rapl_root=folder, **powers)
    for reader in readers:
        reader.close()
    return readers[0], notes[0]


def test_a_counter_gives_joules_of_the_window(nvml: mock.Mock) -> None:
    clock = ReplayClock()
    reader = NvmlReader(1, clock=clock)
    nvml.nvmlDeviceGetTotalEnergyConsumption.return_value = 205_000
    clock.advance(0.5)
    reading = reader.read()
    assert (reading.joules, reading.watts) == (pytest.approx(200.0), pytest.approx(400.0))
    assert (reading.source, reading.reader, reading.scope) == ("counter", "nvml:GPU-bbbb-2", "rank")
    nvml.nvmlDeviceGetTotalEnergyConsumption.assert_called_with(1)
    reader.close()
    reader.close()
    nvml.nvmlShutdown.assert_called_once_with()


def test_a_short_window_and_a_still_counter_are_carried_over(nvml: mock.Mock) -> None:
    clock = ReplayClock()
    reader = NvmlReader(0, clock=clock)
    clock.advance(0.05)
    nvml.nvmlDeviceGetTotalEnergyConsumption.return_value = 15_000
    assert reader.read() is None
    clock.advance(0.05001)
    assert reader.read().joules == pytest.approx(10.0)
    clock.advance(0.2)
    assert reader.read() is None  # the counter stands still: unknown, not 0 J
    nvml.nvmlDeviceGetTotalEnergyConsumption.return_value = 35_000
    clock.advance(0.2)
    reading = reader.read()
    assert (reading.joules, reading.interval_s) == (pytest.approx(20.0), pytest.approx(0.4))


@pytest.mark.parametrize("counted", [9_000_000, 100], ids=["beyond the power limit", "set back"])
def test_a_counter_that_cannot_be_right_is_unknown_and_goes_on(nvml: mock.Mock, counted: int) -> None:
    clock = ReplayClock()
    reader = NvmlReader(0, clock=clock)
    for added, joules in ((0, None), (80_000, 80.0)):
        nvml.nvmlDeviceGetTotalEnergyConsumption.return_value = counted + added
        clock.advance(1.0)
        reading = reader.read()
        assert (reading and reading.joules) == (joules and pytest.approx(joules))
    assert (reader.rejected, reading.interval_s) == (1, pytest.approx(1.0))


def test_without_a_counter_sampled_watts_are_integrated(nvml: mock.Mock) -> None:
    clock = ReplayClock()
    nvml.nvmlDeviceGetTotalEnergyConsumption.side_effect = pynvml.NVMLError_NotSupported()
    reader = NvmlReader(0, clock=clock, sample=False)
    clock.advance(1.0)
    nvml.nvmlDeviceGetPowerUsage.return_value = 300_000
    reader.poll()
    clock.advance(1.0)
    reading = reader.read()
    assert (reading.source, reading.joules) == ("polled", pytest.approx(200.0 + 300.0))
    assert reading.interval_s == pytest.approx(2.0)


def test_the_sampling_thread_samples_and_ends(nvml: mock.Mock) -> None:
    nvml.nvmlDeviceGetTotalEnergyConsumption.side_effect = pynvml.NVMLError_NotSupported()
    reader = NvmlReader(0)
    thread = reader._thread
    thread.join(timeout=0.35)
    assert nvml.nvmlDeviceGetPowerUsage.call_count >= 2  # one on opening, at least one by the thread
    reader.close()
    assert not thread.is_alive()


def test_a_lost_gpu_is_an_error_not_a_zero_and_ends_no_run(nvml: mock.Mock) -> None:
    clock = ReplayClock()
    reader = NvmlReader(0, clock=clock)
    meter = EnergyMeter([reader], clock=clock)
    nvml.nvmlDeviceGetTotalEnergyConsumption.side_effect = pynvml.NVMLError_GpuIsLost()
    nvml.nvmlShutdown.side_effect = pynvml.NVMLError_Uninitialized()
    clock.advance(1.0)
    with pytest.raises(NotAvailableError, match="no longer answers"):
        reader.read()
    assert meter.sample() == []
    assert meter.lost["nvml:GPU-aaaa-1"].endswith("or restart the machine.")
    meter.close()


def test_mig_is_refused(nvml: mock.Mock) -> None:
    nvml.nvmlDeviceGetMigMode.return_value = [nvml.NVML_DEVICE_MIG_ENABLE, 1]
    with pytest.raises(NotAvailableError, match="split by MIG"):
        NvmlReader(0)
    with pytest.raises(NotAvailableError, match="MIG instance"):
        NvmlReader("MIG-1234")
    assert nvml.nvmlShutdown.call_count == 2


@pytest.mark.parametrize(
    ("visible", "device", "handle"),
    thinned(
        [
            (None, 1, 1),
            ("1,0", 0, 1),
            ("GPU-bbbb", 0, 1),
            ("0, GPU-bbbb-2", 1, 1),
            ("1", "GPU-aaaa-1", 0),
            (None, "1", 1),
            ("1", 1, None),
            (None, 5, None),
            ("GPU-", 0, None),
            ("", 0, None),
            (None, "GPU-cccc", None),
        ],
        (4, 5, 6, 7, 8),
    ),
)
def test_the_gpu_is_the_one_cuda_means(
    nvml: mock.Mock, monkeypatch: pytest.MonkeyPatch, visible: str | None, device: int | str, handle: int | None
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    if handle is not None:
        assert find_gpu(nvml, device) == handle
    else:
        with pytest.raises(NotAvailableError):
            find_gpu(nvml, device)


def test_a_gpu_of_another_job_does_not_hide_ones_own(nvml: mock.Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(index: int) -> int:
        if index == 0:
            raise pynvml.NVMLError_NoPermission()
        return index

    nvml.nvmlDeviceGetHandleByIndex.side_effect = handle
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-bbbb-2")
    reader = NvmlReader(0)
    assert reader.name == "nvml:GPU-bbbb-2"
    reader.close()
    with pytest.raises(NotAvailableError, match="GPU 0 does not tell its UUID"):
        NvmlReader("GPU-cccc")


@pytest.mark.parametrize("query", QUERIES)
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
    nvml.nvmlDeviceGetUUID.side_effect = lambda handle: [b"GPU-aaaa-1", b"GPU-bbbb-2"][handle]
    nvml.nvmlDeviceGetName.return_value = b"Tesla P100"
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


def test_a_missing_pynvml_says_what_to_install(nvml: mock.Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NotAvailableError, match="pip install nvidia-ml-py"):
        NvmlReader(0)
