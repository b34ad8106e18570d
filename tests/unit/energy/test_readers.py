"""Energy readers against scripted RAPL files and an autospec'd NVML: wrap-around, unknowns, one count per node."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from unittest import mock

import pynvml
import pytest

from dtdg_lab.core.errors import ConfigError, NotAvailableError
from dtdg_lab.energy.modelled import ModelledReader
from dtdg_lab.energy.nvml import NvmlReader, find_gpu
from dtdg_lab.energy.rank_readers import readers_for
from dtdg_lab.energy.rapl import RaplReader
from tests.thinning import thinned


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Powercap:
    """A powercap folder whose counters a test moves."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.add("intel-rapl:0", "package-0", 1_000_000, 262_143_328_850)
        self.add("intel-rapl:0:0", "core", 400_000, 262_143_328_850)
        self.add("intel-rapl:0:1", "dram", 50_000, 65_712_999_613)
        self.add("intel-rapl:1", "psys", 9_000_000, 262_143_328_850)
        self.add("intel-rapl-mmio:0", "package-0", 7_000_000, 262_143_328_850)

    def add(self, folder: str, label: str, energy_uj: int, range_uj: int) -> None:
        (self.root / folder).mkdir(parents=True)
        (self.root / folder / "name").write_text(label + "\n")
        (self.root / folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
        self.set(folder, energy_uj)

    def set(self, folder: str, energy_uj: int) -> None:
        (self.root / folder / "energy_uj").write_text(f"{energy_uj}\n")


@pytest.fixture
def powercap(tmp_path: Path) -> Powercap:
    return Powercap(tmp_path / "powercap")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """NVML with two GPUs that count joules and cannot be split; its errors are the real ones."""
    fake = mock.create_autospec(pynvml)
    for name in ("NVMLError", "NVMLError_NotSupported", "NVMLError_LibraryNotFound", "NVMLError_GpuIsLost"):
        setattr(fake, name, getattr(pynvml, name))
    uuids = ["GPU-aaaa-1", "GPU-bbbb-2"]
    fake.nvmlDeviceGetCount.return_value = len(uuids)
    fake.nvmlDeviceGetHandleByIndex.side_effect = lambda index: index
    fake.nvmlDeviceGetUUID.side_effect = lambda handle: uuids[handle]
    fake.nvmlDeviceGetMigMode.side_effect = pynvml.NVMLError_NotSupported()
    fake.nvmlDeviceGetEnforcedPowerLimit.return_value = 700_000
    fake.nvmlDeviceGetTotalEnergyConsumption.return_value = 5_000
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


def test_model_follows_the_formula_worked_by_hand() -> None:
    wall, cpu = Clock(), Clock()
    reader = ModelledReader(ranks_on_node=4, idle_w=20, max_w=100, cores=8, wall=wall, processor=cpu)
    wall.now_s += 2.0
    cpu.now_s += 4.0  # two of eight cores busy
    reading = reader.read()
    assert reading is not None
    assert reading.watts == pytest.approx(20 / 4 + 80 * 4 / (2 * 8))
    assert reading.joules == pytest.approx(50.0)
    assert (reading.interval_s, reading.source, reading.scope) == (2.0, "modelled", "rank")


def test_modelled_ranks_sum_to_idle_and_to_full_power_of_the_node() -> None:
    for busy_s, node_w in ((0.0, 20.0), (1.0, 100.0)):
        total_w = 0.0
        for _ in range(4):
            wall, cpu = Clock(), Clock()
            reader = ModelledReader(ranks_on_node=4, idle_w=20, max_w=100, cores=4, wall=wall, processor=cpu)
            wall.now_s += 1.0
            cpu.now_s += busy_s
            reading = reader.read()
            assert reading is not None
            total_w += reading.watts
        assert total_w == pytest.approx(node_w)


def test_model_gives_nothing_for_no_time_and_keeps_its_processor_seconds() -> None:
    wall, cpu = Clock(), Clock()
    reader = ModelledReader(ranks_on_node=1, idle_w=0, max_w=100, cores=1, wall=wall, processor=cpu)
    cpu.now_s += 0.5
    assert reader.read() is None
    wall.now_s += 1.0
    reading = reader.read()
    assert reading is not None
    assert reading.joules == pytest.approx(50.0)


@pytest.mark.parametrize("wrong", [{"ranks_on_node": 0}, {"idle_w": 200}, {"idle_w": -1}, {"cores": 0}])
def test_model_refuses_impossible_settings(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        ModelledReader(**{"ranks_on_node": 1, "idle_w": 20, "max_w": 100, **wrong})  # type: ignore[arg-type]


def test_model_on_the_real_clocks_sees_a_busy_loop() -> None:
    reader = ModelledReader(ranks_on_node=1, idle_w=0, max_w=1000, cores=1)
    sum(i * i for i in range(300_000))
    reading = reader.read()
    assert reading is not None
    assert 0 < reading.joules <= 1000 * reading.interval_s


def test_rapl_adds_packages_and_memory_only(powercap: Powercap) -> None:
    clock = Clock()
    reader = RaplReader(powercap.root, clock=clock)
    assert reader.domains == ("package-0", "package-0/dram")
    for folder, energy_uj in (
        ("intel-rapl:0", 61_000_000),
        ("intel-rapl:0:0", 9_000_000),
        ("intel-rapl:0:1", 5_050_000),
    ):
        powercap.set(folder, energy_uj)
    clock.now_s += 0.5
    reading = reader.read()
    assert reading is not None
    assert reading.joules == pytest.approx(65.0)
    assert reading.watts == pytest.approx(130.0)
    assert (reading.source, reading.reader, reading.scope) == ("counter", "rapl", "node")


def test_rapl_continues_a_counter_that_wrapped(powercap: Powercap) -> None:
    clock = Clock()
    powercap.set("intel-rapl:0", 262_143_328_850 - 2_000_000)
    reader = RaplReader(powercap.root, clock=clock)
    powercap.set("intel-rapl:0", 3_000_000)
    clock.now_s += 0.1
    reading = reader.read()
    assert reading is not None
    assert reading.joules == pytest.approx(5.0)


def test_rapl_window_of_no_length_is_unknown_and_loses_nothing(powercap: Powercap) -> None:
    clock = Clock()
    reader = RaplReader(powercap.root, clock=clock)
    powercap.set("intel-rapl:0", 8_000_000)
    assert reader.read() is None
    clock.now_s += 1.0
    reading = reader.read()
    assert reading is not None
    assert reading.joules == pytest.approx(7.0)


def test_rapl_counter_that_stands_still_is_unknown_not_zero(powercap: Powercap) -> None:
    clock = Clock()
    reader = RaplReader(powercap.root, clock=clock)
    clock.now_s += 0.001
    assert reader.read() is None


def test_rapl_window_long_enough_for_two_wraps_is_unknown(powercap: Powercap) -> None:
    clock = Clock()
    reader = RaplReader(powercap.root, clock=clock)
    clock.now_s += 3600.0
    powercap.set("intel-rapl:0", 90_000_000)
    assert reader.read() is None
    clock.now_s += 1.0
    powercap.set("intel-rapl:0", 100_000_000)
    reading = reader.read()
    assert reading is not None
    assert reading.joules == pytest.approx(10.0)


def test_rapl_permission_refused_says_how_to_allow_it(powercap: Powercap) -> None:
    refuse = PermissionError(errno.EACCES, "Permission denied")
    real = Path.read_text

    def read_text(self: Path, *args: object) -> str:
        if self.name == "energy_uj":
            raise refuse
        return real(self)

    with mock.patch.object(Path, "read_text", read_text), pytest.raises(NotAvailableError, match="sudo chmod a\\+r"):
        RaplReader(powercap.root)


def test_rapl_without_its_range_or_with_noise_is_refused(powercap: Powercap) -> None:
    (powercap.root / "intel-rapl:0" / "max_energy_range_uj").unlink()
    with pytest.raises(NotAvailableError, match="max_energy_range_uj"):
        RaplReader(powercap.root)
    (powercap.root / "intel-rapl:0" / "max_energy_range_uj").write_text("many")
    with pytest.raises(NotAvailableError, match="whole number"):
        RaplReader(powercap.root)


def test_rapl_absent_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotAvailableError, match="no RAPL energy counter"):
        RaplReader(tmp_path / "nothing")


def test_nvml_counter_gives_joules_of_the_window(nvml: mock.Mock) -> None:
    clock = Clock()
    reader = NvmlReader(1, clock=clock)
    nvml.nvmlDeviceGetTotalEnergyConsumption.return_value = 205_000
    clock.now_s += 0.5
    reading = reader.read()
    assert reading is not None
    assert (reading.joules, reading.watts) == (pytest.approx(200.0), pytest.approx(400.0))
    assert (reading.source, reading.reader, reading.scope) == ("counter", "nvml:GPU-bbbb-2", "rank")
    nvml.nvmlDeviceGetTotalEnergyConsumption.assert_called_with(1)
    reader.close()
    reader.close()
    nvml.nvmlShutdown.assert_called_once_with()


def test_nvml_short_window_and_still_counter_are_carried_over(nvml: mock.Mock) -> None:
    clock = Clock()
    reader = NvmlReader(0, clock=clock)
    clock.now_s += 0.05
    nvml.nvmlDeviceGetTotalEnergyConsumption.return_value = 15_000
    assert reader.read() is None
    clock.now_s += 0.05001
    reading = reader.read()
    assert reading is not None
    assert reading.joules == pytest.approx(10.0)
    clock.now_s += 0.2
    assert reader.read() is None  # the counter stands still: unknown, not 0 J
    nvml.nvmlDeviceGetTotalEnergyConsumption.return_value = 35_000
    clock.now_s += 0.2
    reading = reader.read()
    assert reading is not None
    assert (reading.joules, reading.interval_s) == (pytest.approx(20.0), pytest.approx(0.4))


def test_nvml_power_beyond_the_limit_is_unknown_and_counted(nvml: mock.Mock) -> None:
    clock = Clock()
    reader = NvmlReader(0, clock=clock)
    nvml.nvmlDeviceGetTotalEnergyConsumption.return_value = 9_000_000
    clock.now_s += 1.0
    assert reader.read() is None
    assert reader.rejected == 1


def test_nvml_without_counter_integrates_sampled_watts(nvml: mock.Mock) -> None:
    clock = Clock()
    nvml.nvmlDeviceGetTotalEnergyConsumption.side_effect = pynvml.NVMLError_NotSupported()
    nvml.nvmlDeviceGetPowerUsage.return_value = 100_000
    reader = NvmlReader(0, clock=clock, sample=False)
    clock.now_s += 1.0
    nvml.nvmlDeviceGetPowerUsage.return_value = 300_000
    reader.poll()
    clock.now_s += 1.0
    reading = reader.read()
    assert reading is not None
    assert reading.source == "polled"
    assert reading.joules == pytest.approx(200.0 + 300.0)
    assert reading.interval_s == pytest.approx(2.0)


def test_nvml_sampling_thread_samples_and_ends(nvml: mock.Mock) -> None:
    nvml.nvmlDeviceGetTotalEnergyConsumption.side_effect = pynvml.NVMLError_NotSupported()
    nvml.nvmlDeviceGetPowerUsage.return_value = 50_000
    reader = NvmlReader(0)
    thread = reader._thread
    assert thread is not None
    thread.join(timeout=0.35)
    assert nvml.nvmlDeviceGetPowerUsage.call_count >= 2  # one on opening, at least one by the thread
    reader.close()
    assert not thread.is_alive()


def test_nvml_offering_neither_energy_nor_power_is_refused_and_released(nvml: mock.Mock) -> None:
    nvml.nvmlDeviceGetTotalEnergyConsumption.side_effect = pynvml.NVMLError_NotSupported()
    nvml.nvmlDeviceGetPowerUsage.side_effect = pynvml.NVMLError_NotSupported()
    with pytest.raises(NotAvailableError, match="stays unknown"):
        NvmlReader(0)
    nvml.nvmlShutdown.assert_called_once_with()


def test_nvml_lost_gpu_is_an_error_not_a_zero(nvml: mock.Mock) -> None:
    clock = Clock()
    reader = NvmlReader(0, clock=clock)
    nvml.nvmlDeviceGetTotalEnergyConsumption.side_effect = pynvml.NVMLError_GpuIsLost()
    clock.now_s += 1.0
    with pytest.raises(NotAvailableError, match="no longer answers"):
        reader.read()


def test_mig_is_refused_with_a_word(nvml: mock.Mock) -> None:
    nvml.nvmlDeviceGetMigMode.side_effect = None
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
        ],
        (4, 5),
    ),
)
def test_the_gpu_is_the_one_cuda_means(
    nvml: mock.Mock, monkeypatch: pytest.MonkeyPatch, visible: str | None, device: int | str, handle: int
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert find_gpu(nvml, device) == handle


@pytest.mark.parametrize(
    ("visible", "device"), thinned([("1", 1), (None, 5), ("GPU-", 0), ("", 0), (None, "GPU-cccc")], (0, 1, 2))
)
def test_a_gpu_that_is_not_there_is_refused(
    nvml: mock.Mock, monkeypatch: pytest.MonkeyPatch, visible: str | None, device: int | str
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(NotAvailableError):
        find_gpu(nvml, device)


def test_no_driver_and_no_pynvml_say_what_to_do(nvml: mock.Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml.nvmlInit.side_effect = pynvml.NVMLError_LibraryNotFound()
    with pytest.raises(NotAvailableError, match="driver is needed"):
        NvmlReader(0)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NotAvailableError, match="pip install nvidia-ml-py"):
        NvmlReader(0)


def test_four_ranks_on_a_node_count_the_node_once(powercap: Powercap) -> None:
    chosen = [
        readers_for("cpu", local_rank=rank, local_ranks=4, idle_w=20, max_w=100, rapl_root=powercap.root)
        for rank in range(4)
    ]
    assert [[reader.name for reader in readers] for readers, _ in chosen] == [["rapl"], [], [], []]
    assert all("read once for the node" in notes[0] for _, notes in chosen[1:])


def test_where_rapl_cannot_be_read_each_rank_models_its_share(tmp_path: Path) -> None:
    chosen = [
        readers_for("cpu", local_rank=rank, local_ranks=4, idle_w=20, max_w=100, rapl_root=tmp_path)
        for rank in range(4)
    ]
    for readers, notes in chosen:
        assert [(reader.source, reader.scope) for reader in readers] == [("modelled", "rank")]
        assert "modelled from 20 W idle and 100 W busy" in notes[0]


def test_each_gpu_is_read_by_its_rank_and_the_processors_once(nvml: mock.Mock, powercap: Powercap) -> None:
    chosen = [
        readers_for("cuda", local_rank=rank, local_ranks=2, idle_w=20, max_w=100, rapl_root=powercap.root)[0]
        for rank in range(2)
    ]
    assert [[reader.name for reader in readers] for readers in chosen] == [
        ["nvml:GPU-aaaa-1", "rapl"],
        ["nvml:GPU-bbbb-2"],
    ]


def test_a_gpu_without_energy_leaves_a_note_not_a_zero(nvml: mock.Mock, tmp_path: Path) -> None:
    nvml.nvmlInit.side_effect = pynvml.NVMLError_LibraryNotFound()
    readers, notes = readers_for("cuda", local_rank=0, local_ranks=1, idle_w=1, max_w=2, rapl_root=tmp_path)
    assert [reader.source for reader in readers] == ["modelled"]
    assert notes[0].startswith("GPU energy is unknown")


@pytest.mark.parametrize("wrong", [{"device": "tpu"}, {"local_rank": 2}, {"local_rank": -1}])
def test_readers_for_refuses_what_makes_no_sense(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        readers_for(**{"device": "cpu", "local_rank": 0, "local_ranks": 2, "idle_w": 1, "max_w": 2, **wrong})  # type: ignore[arg-type]
