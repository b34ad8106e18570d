"""Devices of engines: made-up reports, and engines with a made-up torch.cuda and NVML."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from types import SimpleNamespace
from unittest import mock

import pynvml
import pytest
import torch

from dtdg_lab.cluster.devices import DeviceReport, Gpu, assign_gpus, choose_devices, free_instances, report_devices
from dtdg_lab.cluster.engines import Engine, EngineState
from dtdg_lab.cluster.worker import warm_up
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.runs.environment import gpu_count

GIB = 1 << 30
OLD = (
    "the machine has 4 GPUs, but its driver 470.1 supports CUDA up to 11.4, and torch 2.13.0 is built for CUDA 13.0. "
    "Update the driver, or install a build of torch for CUDA 11.4 or older. The warning of torch: The NVIDIA driver on "
    "your system is too old."
)


def report(*uuids: str, host: str = "a", problem: str = "") -> DeviceReport:
    gpus = tuple(Gpu(index, uuid, "NVIDIA H200", 140 * GIB) for index, uuid in enumerate(uuids))
    return DeviceReport(host, "A processor", 64 * GIB, gpus, problem)


def uuids(reports: Sequence[DeviceReport]) -> list[str | None]:
    return [gpu and gpu.uuid for gpu in assign_gpus(reports)]


# Assignment.


def test_engines_that_see_the_same_gpus_get_one_each_in_order() -> None:
    choice = choose_devices("auto", [report("A", "B", "C", "D")] * 4)
    assert choice.devices == ("cuda:0", "cuda:1", "cuda:2", "cuda:3")
    assert (choice.is_shared, choice.note) == (False, "")


def test_engines_that_see_one_gpu_each_as_under_slurm_use_their_cuda_0() -> None:
    reports = [report("A"), report("B"), report("C", host="b"), report("D", host="b")]
    for request in ("auto", "cuda", "cuda_shared"):
        assert choose_devices(request, reports).devices == ("cuda:0",) * 4


def test_mig_instances_are_gpus() -> None:
    reports = [report("MIG-1"), report("MIG-2")]
    assert choose_devices("cuda", reports).devices == ("cuda:0", "cuda:0")
    assert uuids([report("MIG-1"), report("MIG-1")]) == ["MIG-1", None]
    assert reports[0].gpus[0].is_mig and not report("GPU-1").gpus[0].is_mig


def test_ranks_on_mig_instances_of_one_machine_exchange_by_gloo() -> None:
    reports = [report("MIG-1"), report("MIG-2"), report("MIG-3", host="b")]
    for request in ("auto", "cuda", "cuda_shared"):
        choice = choose_devices(request, reports)
        assert choice.is_shared and "by gloo" in choice.note
    for ranks in ((0, 2), (1,)):
        choice = choose_devices("cuda", reports, ranks=ranks)
        assert (choice.is_shared, choice.note) == (False, "")


def test_an_engine_that_sees_fewer_gpus_takes_precedence() -> None:
    assert uuids([report("A", "B"), report("A")]) == ["B", "A"]
    assert uuids([report("A", "B", "C"), report("A", "B"), report("A"), report("C")]) == ["C", "B", "A", None]
    assert choose_devices("cuda", [report("A", "B"), report("A")]).devices == ("cuda:1", "cuda:0")


def test_a_rank_without_a_gpu_moves_all_ranks_to_the_cpu_and_the_note_says_why() -> None:
    choice = choose_devices("auto", [report("A", "B"), report("A", "B"), report(host="b")])
    assert choice.devices == ("cpu",) * 3
    assert choice.note == (
        "Ranks compute on CPUs, since a machine has 0 usable GPUs for 1 rank. Use fewer ranks or more GPUs."
    )
    few = choose_devices("auto", [report("A")] * 2)
    assert few.note == (
        "Ranks compute on CPUs, since the machine has 1 usable GPU for 2 ranks. Use fewer ranks or more GPUs, or "
        "device='cuda_shared'."
    )


def test_machines_without_gpus_need_no_note() -> None:
    assert choose_devices("auto", [report(), report(host="b")]).note == ""
    assert choose_devices("cpu", [report("A")]).devices == ("cpu",)


def test_the_note_names_a_driver_that_is_too_old() -> None:
    choice = choose_devices("auto", [report(problem=OLD)] * 2)
    assert choice.devices == ("cpu", "cpu") and OLD in choice.note


def test_requested_gpus_that_are_missing_are_an_error_with_counts_and_remedies() -> None:
    with pytest.raises(
        ConfigError, match=r"1 usable GPU for 2 ranks.*fewer ranks or more GPUs, or device='cuda_shared'"
    ):
        choose_devices("cuda", [report("A")] * 2)
    with pytest.raises(ConfigError, match=r"0 usable GPUs for 1 rank.*more GPUs\. device='auto' falls back"):
        choose_devices("cuda_shared", [report("A"), report(host="b")])
    with pytest.raises(ConfigError, match=r"driver 470\.1"):
        choose_devices("cuda", [report(problem=OLD)])


def test_shared_gpus_are_dealt_evenly_with_a_warning() -> None:
    choice = choose_devices("cuda_shared", [report("A", "B")] * 5)
    assert choice.devices[:2] == ("cuda:0", "cuda:1") and sorted(choice.devices).count("cuda:0") == 3
    assert choice.is_shared and "2 usable GPUs for 5 ranks" in choice.note and "gloo" in choice.note
    assert choose_devices("cuda_shared", [report("A"), report("A", "B"), report("A")]).devices == (
        *("cuda:0", "cuda:1", "cuda:0"),
    )


def test_runs_side_by_side_get_gpus_only_if_there_is_one_for_each_engine() -> None:
    reports = [report("A", "B")] * 4
    assert choose_devices("auto", reports, ranks=(0, 1)).devices == ("cpu", "cpu")
    assert choose_devices("cuda", reports, ranks=(0, 1)).devices == ("cuda:0", "cuda:1")
    with pytest.raises(ConfigError, match=r"2 usable GPUs for 4 engines\. Engines with a GPU: 0, 1\. Use fewer"):
        choose_devices("cuda", reports, ranks=(2, 3))
    four = [report("A", "B", "C", "D")] * 4
    assert choose_devices("auto", four, ranks=(3, 1)).devices == ("cuda:3", "cuda:1")


def test_the_state_of_an_engine_names_its_gpu_or_its_processor() -> None:
    reports = [report("A"), report("A", problem="")]
    states = [EngineState.of(*pair) for pair in zip(reports, assign_gpus(reports), strict=True)]
    assert [(state.device, state.name, state.memory_bytes) for state in states] == [
        ("cuda:0", "NVIDIA H200", 140 * GIB),
        ("cpu", "A processor", 64 * GIB),
    ]
    warned = report("A", problem="GPU0 is too old.")
    assert [EngineState.of(warned, gpu).problem for gpu in (warned.gpus[0], None)] == ["GPU0 is too old.", ""]


def test_a_report_survives_the_file_of_a_session() -> None:
    engine = Engine(3, 4711, report("GPU-1", "MIG-2", problem="none"))
    assert Engine.from_json(asdict(engine)) == engine


def test_new_engines_get_the_mig_instances_that_no_other_engine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1, MIG-2,MIG-3")
    assert free_instances([], 2) == ["MIG-1", "MIG-2"]
    assert free_instances([report("MIG-1"), report("MIG-3")], 2) == ["MIG-2", ""]
    for other in ("0,1", ""):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", other)
        assert free_instances([], 1) == [""]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert free_instances([], 1) == [""]


# The engine's side.


class PretendCuda:
    """torch.cuda with some GPUs, or with a driver that is too old."""

    def __init__(self, count: int, warning: str = "", *, warning_of_gpu: str = "") -> None:
        self._count, self._warning, self._warning_of_gpu = count, warning, warning_of_gpu

    def is_available(self) -> bool:
        if self._warning:
            warnings.warn(self._warning, stacklevel=2)
        return self._count > 0 and not self._warning

    def device_count(self) -> int:
        return self._count  # as NVML counts, even if the driver is too old

    def get_device_properties(self, index: int) -> SimpleNamespace:
        if self._warning_of_gpu:
            warnings.warn(self._warning_of_gpu, stacklevel=2)
        return SimpleNamespace(uuid=f"aaaa-{index}", name="NVIDIA H200", total_memory=140 * GIB)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """A machine with four GPUs and a driver for CUDA 11.4."""
    fake = mock.create_autospec(pynvml)
    fake.NVMLError = pynvml.NVMLError
    fake.nvmlDeviceGetCount.return_value = 4
    fake.nvmlSystemGetDriverVersion.return_value = "470.1"
    fake.nvmlSystemGetCudaDriverVersion.return_value = 11040
    fake.nvmlDeviceGetHandleByIndex.side_effect = lambda index: index
    fake.nvmlDeviceGetName.return_value = "NVIDIA H200"
    fake.nvmlDeviceGetMemoryInfo.return_value.total = GIB
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch, "__version__", "2.13.0")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    return fake


def test_an_engine_reports_the_gpus_that_torch_can_use(nvml: mock.Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "cuda", PretendCuda(2))
    reported = report_devices()
    assert reported.gpus == (
        Gpu(0, "GPU-aaaa-0", "NVIDIA H200", 140 * GIB),
        Gpu(1, "GPU-aaaa-1", "NVIDIA H200", 140 * GIB),
    )
    assert reported.problem == "" and reported.memory_bytes > 0
    too_old = "Tesla K80 with CUDA capability sm_37 is not compatible with the current PyTorch installation."
    monkeypatch.setattr(torch, "cuda", PretendCuda(1, warning_of_gpu=too_old))
    assert report_devices().problem == too_old


def test_a_mig_instance_is_known_by_its_own_uuid(nvml: mock.Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "cuda", PretendCuda(1))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-5f,MIG-6a")
    assert gpu_count() == 2
    assert [gpu.uuid for gpu in report_devices().gpus] == ["MIG-5f"]
    pid, reported = warm_up("MIG-6a")
    assert pid == os.getpid() and [gpu.uuid for gpu in reported.gpus] == ["MIG-6a"]


def test_a_driver_that_is_too_old_is_reported_with_both_versions(
    nvml: mock.Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "cuda", PretendCuda(4, "The NVIDIA driver on your system is too old"))
    reported = report_devices()
    assert reported.gpus == () and reported.problem == OLD
    nvml.nvmlShutdown.assert_called_once_with()


def test_other_reasons_for_unused_gpus_are_reported(nvml: mock.Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml.nvmlSystemGetCudaDriverVersion.return_value = 13000
    monkeypatch.setattr(torch.version, "cuda", "13.2")  # the driver is of the same major version, so it is no cause
    monkeypatch.setattr(torch, "cuda", PretendCuda(4, "initialization  error."))
    assert report_devices().problem == (
        "the machine has 4 GPUs, but torch 2.13.0 (CUDA 13.2) cannot use them: initialization error."
    )
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "is a build for CPUs. Install a build of torch for CUDA 13.0 or older" in report_devices().problem
    nvml.nvmlDeviceGetCount.side_effect = pynvml.NVMLError_GpuIsLost()
    assert "NVML does not answer" in report_devices().problem


def test_hidden_gpus_and_machines_without_gpus_are_no_problem(nvml: mock.Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "cuda", PretendCuda(0))
    for hidden in ("", "-1", "NoDevFiles", "-1,0"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert report_devices().problem == "" and gpu_count() == 0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    assert gpu_count() == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,-1,2")
    assert gpu_count() == 1
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert gpu_count() == 4
    nvml.nvmlInit.side_effect = pynvml.NVMLError_LibraryNotFound()
    assert report_devices().problem == "" and gpu_count() == 0
