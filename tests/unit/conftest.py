"""A powercap folder and an NVML whose counters tests move; tests on the simulated device."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import pynvml
import pytest

from tests.energy_doubles import Powercap
from tests.simulated_tensors import DEVICE, simulated_device

UUIDS = ("GPU-aaaa-1", "GPU-bbbb-2")


@pytest.fixture
def powercap() -> Iterator[Powercap]:
    """A powercap folder that other accounts can reach."""
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    yield Powercap(root / "powercap")
    shutil.rmtree(root)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """NVML with two GPUs that count joules and answer every query; its errors are the real ones."""
    fake = mock.create_autospec(pynvml)
    fake.NVMLError, fake.NVML_DEVICE_MIG_ENABLE = pynvml.NVMLError, pynvml.NVML_DEVICE_MIG_ENABLE
    fake.nvmlDeviceGetCount.return_value = len(UUIDS)
    fake.nvmlDeviceGetHandleByIndex.side_effect = lambda index: index
    fake.nvmlDeviceGetUUID.side_effect = lambda handle: UUIDS[handle]
    fake.nvmlDeviceGetName.return_value = "NVIDIA H200"
    fake.nvmlDeviceGetMigMode.return_value = [0, 0]
    fake.nvmlDeviceGetEnforcedPowerLimit.return_value = 700_000
    fake.nvmlDeviceGetTotalEnergyConsumption.return_value = 5_000
    fake.nvmlDeviceGetPowerUsage.return_value = 100_000
    fake.nvmlSystemGetDriverVersion.return_value = "600.1"
    fake.nvmlDeviceGetMemoryInfo.return_value.total = 2**30
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


@pytest.fixture(autouse=True)
def _device(request: pytest.FixtureRequest) -> Iterator[None]:
    """Enter the simulated device for a test whose ``device`` it is."""
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    with simulated_device() if parameters.get("device") == DEVICE else nullcontext():
        yield
