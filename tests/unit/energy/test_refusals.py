"""Energy where a file of RAPL or a query of NVML is refused: a stated source, its reason, and a remedy that works."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pynvml
import pytest

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.energy.monitor import EnergyMeter, readers_for
from dtdg_lab.energy.readers import BusySeconds, EnergyReader, NvmlReader, RaplReader
from dtdg_lab.runs.environment import describe_environment
from tests.doubles import ReplayClock

NOBODY = 65534
RANGE_UJ = 262_143_328_850
PACKAGE, CORE, MEMORY = "intel-rapl:0", "intel-rapl:0:0", "intel-rapl:0:1"


@pytest.fixture
def powercap() -> Iterator[Path]:
    """A powercap folder that other accounts can reach, with a package and its core, memory and platform."""
    root = Path(tempfile.mkdtemp()) / "powercap"
    root.parent.chmod(0o755)
    for folder, label in ((PACKAGE, "package-0"), (CORE, "core"), (MEMORY, "dram"), ("intel-rapl:1", "psys")):
        (root / folder).mkdir(parents=True)
        (root / folder / "name").write_text(f"{label}\n")
        (root / folder / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
        (root / folder / "energy_uj").write_text("1000000\n")
    yield root
    shutil.rmtree(root.parent)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Act as an account to which file modes apply."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@contextmanager
def failing_reads(file: Path, code: int) -> Iterator[None]:
    """Reading this one file fails with an error of the system."""
    read = Path.read_text

    def read_text(self: Path, *arguments: str) -> str:
        if self == file:
            raise OSError(code, os.strerror(code))
        return read(self, *arguments)

    with mock.patch.object(Path, "read_text", read_text):
        yield


def processor_energy(root: Path) -> tuple[list[EnergyReader], str]:
    readers, notes = readers_for("cpu", local_rank=0, local_ranks=1, idle_w=20, max_w=100, rapl_root=root, shares=True)
    return readers, " ".join(notes)


@pytest.mark.parametrize(
    "closed",
    [
        [f"{PACKAGE}/max_energy_range_uj"],
        [f"{PACKAGE}/energy_uj"],
        [f"{PACKAGE}/name"],
        [f"{PACKAGE}/energy_uj", f"{PACKAGE}/max_energy_range_uj", f"{MEMORY}/energy_uj", f"{MEMORY}/name"],
        [PACKAGE],
        [PACKAGE, MEMORY],
        ["."],
    ],
)
def test_one_command_opens_every_rapl_file_that_is_refused(powercap: Path, closed: list[str]) -> None:
    for name in closed:
        (powercap / name).chmod(0)
    with unprivileged():
        readers, note = processor_energy(powercap)
    assert [reader.source for reader in readers] == ["modelled"]
    assert note.startswith("processor energy is modelled from 20 W idle and 100 W busy, not measured: permission")
    (command,) = re.findall(r"`sudo (chmod [^`]*)`", note)
    for name in closed:
        assert str((powercap / name).resolve()) in shlex.split(command)
    assert str(powercap / CORE) not in command and "psys" not in command and "*" not in command
    subprocess.run(shlex.split(command), check=True)
    with unprivileged():
        assert RaplReader(powercap).domains == ("package-0", "package-0/dram")


def test_memory_that_is_refused_is_left_out_with_the_command_that_allows_it(powercap: Path) -> None:
    (powercap / MEMORY / "max_energy_range_uj").chmod(0)
    with unprivileged():
        readers, note = processor_energy(powercap)
        domains = RaplReader(powercap).domains
    assert [reader.name for reader in readers] == ["rapl", "rapl-share"] and domains == ("package-0",)
    assert "leaves out a part" in note and f"`sudo chmod a+r {powercap}/{MEMORY}/max_energy_range_uj`" in note


@pytest.mark.parametrize(("folder", "source"), [(PACKAGE, "modelled"), (MEMORY, "counter")])
def test_a_rapl_file_that_gives_no_value_is_stated_without_a_chmod(powercap: Path, folder: str, source: str) -> None:
    for file in ("name", "energy_uj", "max_energy_range_uj"):
        for code in (errno.EINVAL, errno.EIO, errno.ENODATA, errno.ENODEV, errno.ENOENT):
            with failing_reads(powercap / folder / file, code):
                readers, note = processor_energy(powercap)
            assert {reader.source for reader in readers} == {source}
            assert "chmod" not in note and f"{folder}/{file}: {os.strerror(code)}" in note


def test_links_without_their_folder_and_files_without_a_number_are_stated(powercap: Path) -> None:
    (powercap / MEMORY / "max_energy_range_uj").write_text("0")
    assert "it holds 0" in processor_energy(powercap)[1]
    for content in (b"", b"many", "²".encode(), b"\xff\xfe", b"-5"):
        (powercap / PACKAGE / "energy_uj").write_bytes(content)
        readers, note = processor_energy(powercap)
        assert [reader.source for reader in readers] == ["modelled"] and "a whole number" in note
    for folder in powercap.iterdir():
        shutil.rmtree(folder)
        folder.symlink_to(powercap / "masked" / folder.name)
    assert "no RAPL energy counter" in processor_energy(powercap)[1]


@pytest.mark.parametrize("code", [errno.EACCES, errno.EINVAL, errno.EIO, errno.ENODATA, errno.ENOENT])
def test_a_rapl_domain_that_goes_away_in_a_run_is_lost_with_its_reason(powercap: Path, code: int) -> None:
    clock = ReplayClock()
    meter = EnergyMeter([RaplReader(powercap, clock=clock)], clock=clock)
    meter.begin_window("w")
    clock.advance(1.0)
    with failing_reads(powercap / MEMORY / "energy_uj", code):
        assert meter.sample() == []
    assert f"{MEMORY}/energy_uj" in meter.lost["rapl"]
    assert ("chmod" in meter.lost["rapl"]) == (code == errno.EACCES)
    clock.advance(1.0)
    assert meter.end_window("w").joules is None


def test_the_second_reader_of_rapl_may_be_refused_too(powercap: Path) -> None:
    made = RaplReader(powercap)
    refusals = [made, NotAvailableError("went away")]
    with mock.patch("dtdg_lab.energy.monitor.RaplReader", side_effect=refusals):
        readers, note = processor_energy(powercap)
    assert [reader.source for reader in readers] == ["modelled"] and note.endswith("went away")


def test_a_counter_set_back_from_beyond_its_range_gives_no_negative_joules(powercap: Path) -> None:
    clock = ReplayClock()
    for folder in (PACKAGE, MEMORY):
        (powercap / folder / "energy_uj").write_text(str(60 * RANGE_UJ))
    reader = RaplReader(powercap, clock=clock)
    for folder in (PACKAGE, MEMORY):
        (powercap / folder / "energy_uj").write_text("1000")
    clock.advance(1.0)
    assert reader.read() is None and reader.rejected == 1


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
        "cuda", local_rank=0, local_ranks=1, idle_w=20, max_w=100, gpu_idle_w=30, gpu_max_w=250,
        gpu_busy=BusySeconds(), rapl_root=folder,
    )  # fmt: skip
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
