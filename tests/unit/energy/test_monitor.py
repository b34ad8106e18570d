"""Windows of energy and readers of all kinds, driven by scripts: what is known, what is covered, what is lost."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest import mock

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.core.errors import ConfigError, NotAvailableError
from dtdg_lab.energy.modelled import BusySeconds, ModelledGpuReader, ModelledReader
from dtdg_lab.energy.monitor import EnergyMeter
from dtdg_lab.energy.nvml import NvmlReader
from dtdg_lab.energy.rank_readers import NodeShareReader, readers_for
from dtdg_lab.energy.rapl import RaplReader
from dtdg_lab.energy.readers import ChildSeconds, PowerModel, Reading
from tests.energy_doubles import ReplayClock, ReplayReader, Scripted, replay_meter

RANGE_UJ = 262_143_328_850


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """NVML with one GPU that counts joules and cannot be split; its errors are the real ones."""
    fake = mock.create_autospec(pynvml)
    for name in ("NVMLError", "NVMLError_NotSupported", "NVMLError_GpuIsLost", "NVML_ERROR_NO_PERMISSION"):
        setattr(fake, name, getattr(pynvml, name))
    fake.nvmlDeviceGetCount.return_value = 1
    fake.nvmlDeviceGetUUID.return_value = "GPU-aaaa-1"
    fake.nvmlDeviceGetMigMode.side_effect = pynvml.NVMLError_NotSupported()
    fake.nvmlDeviceGetEnforcedPowerLimit.return_value = 700_000
    fake.nvmlDeviceGetTotalEnergyConsumption.return_value = 5_000
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


def powercap(root: Path, energy_uj: int) -> Path:
    folder = root / "intel-rapl:0"
    folder.mkdir(parents=True)
    (folder / "name").write_text("package-0\n")
    (folder / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    count(root, energy_uj)
    return root


def count(root: Path, energy_uj: int) -> None:
    (root / "intel-rapl:0" / "energy_uj").write_text(f"{energy_uj}\n")


def scripted(*parts: tuple[float, float | None], **kinds: str) -> tuple[ReplayClock, EnergyMeter]:
    clock = ReplayClock(5.0)
    script = [Scripted(*part) for part in parts]
    return clock, EnergyMeter([ReplayReader(script, clock, **kinds)], clock=clock)  # type: ignore[arg-type]


def test_a_window_has_the_joules_of_its_seconds() -> None:
    clock, meter = scripted((2.0, 20.0), (2.0, 200.0))
    clock.advance(1.0)
    meter.begin_window("work")
    clock.advance(2.0)
    measured = meter.end_window("work")
    assert measured.seconds == pytest.approx(2.0)
    assert measured.joules == pytest.approx(10.0 + 100.0)
    assert measured.watts == pytest.approx(55.0)
    assert (measured.coverage, measured.sources) == (pytest.approx(1.0), ("counter",))
    assert [(each.reader, each.scope) for each in measured.readers] == [("replay", "rank")]


def test_windows_overlap_and_neither_takes_from_the_other_nor_from_the_samples() -> None:
    clock, meter = scripted((10.0, 100.0))
    meter.begin_window("outer")
    clock.advance(1.0)
    meter.begin_window("inner")
    clock.advance(2.0)
    assert meter.end_window("inner").joules == pytest.approx(20.0)
    clock.advance(1.0)
    assert meter.end_window("outer").joules == pytest.approx(40.0)
    (reading,) = meter.sample()
    assert (reading.joules, reading.interval_s, reading.watts) == (
        pytest.approx(40.0),
        pytest.approx(4.0),
        pytest.approx(10.0),
    )
    assert meter.sample() == []


def test_a_window_in_a_hole_is_unknown_never_zero_and_one_beside_it_is_covered_in_part() -> None:
    clock, meter = scripted((1.0, 10.0), (3.0, None), (6.0, 60.0))
    clock.advance(1.0)
    meter.begin_window("hole")
    meter.begin_window("half")
    clock.advance(3.0)
    inside = meter.end_window("hole")
    assert (inside.joules, inside.watts, inside.coverage, inside.sources) == (None, None, 0.0, ())
    clock.advance(1.0)
    half = meter.end_window("half")
    assert (half.joules, half.coverage) == (pytest.approx(10.0), pytest.approx(0.25))
    assert half.watts == pytest.approx(10.0)  # of the seconds that are covered


def test_a_window_of_no_length_and_a_meter_without_readers_know_nothing() -> None:
    _, meter = scripted((1.0, 10.0))
    meter.begin_window("none")
    measured = meter.end_window("none")
    assert (measured.joules, measured.coverage, measured.seconds) == (None, 0.0, 0.0)
    bare = EnergyMeter([])
    bare.begin_window("bare")
    assert (bare.end_window("bare").joules, bare.sample()) == (None, [])


def test_windows_are_named_begun_once_and_restarted_on_request() -> None:
    clock, meter = scripted((10.0, 100.0))
    with pytest.raises(ConfigError, match=r"no window 'a' is open \(open: none\)"):
        meter.end_window("a")
    meter.begin_window("a")
    clock.advance(1.0)
    with pytest.raises(ConfigError, match="restart=True"):
        meter.begin_window("a")
    meter.begin_window("a", restart=True)
    clock.advance(1.0)
    assert meter.end_window("a").joules == pytest.approx(10.0)
    with pytest.raises(ConfigError, match="no window 'a'"):
        meter.lap("a")


def test_one_device_is_not_counted_twice() -> None:
    clock = ReplayClock()
    with pytest.raises(ConfigError, match="counted twice"):
        EnergyMeter([ReplayReader([], clock), ReplayReader([], clock)], clock=clock)


def test_a_rank_and_its_node_are_not_added() -> None:
    clock = ReplayClock()
    node = ReplayReader([Scripted(1.0, 100.0)], clock, name="node", scope="node")
    own = ReplayReader([Scripted(1.0, 7.0)], clock, name="own", source="modelled")
    meter = EnergyMeter([node, own], clock=clock)
    meter.begin_window("w")
    clock.advance(1.0)
    measured = meter.end_window("w")
    assert (measured.joules, measured.sources) == (pytest.approx(7.0), ("modelled",))
    assert [each.joules for each in measured.readers] == [pytest.approx(100.0), pytest.approx(7.0)]


def test_a_rank_s_gpu_and_its_node_s_processors_are_two_devices() -> None:
    clock = ReplayClock()
    gpu = ReplayReader([Scripted(1.0, 120.7)], clock, name="nvml:GPU-1", device="gpu")
    node = ReplayReader([Scripted(1.0, 362.1)], clock, name="rapl", scope="node")
    meter = EnergyMeter([gpu, node], clock=clock)
    meter.begin_window("w")
    clock.advance(1.0)
    measured = meter.end_window("w")
    assert (measured.joules, measured.coverage) == (pytest.approx(482.8), pytest.approx(1.0))


def test_a_short_window_of_a_slow_counter_is_filled_by_the_reading_that_comes_later(nvml: mock.Mock) -> None:
    clock = ReplayClock()
    meter = EnergyMeter([NvmlReader(0, clock=clock)], clock=clock)
    meter.begin_window("step")
    clock.advance(0.03)  # the counter tells nothing below 100 ms
    nvml.nvmlDeviceGetTotalEnergyConsumption.return_value = 5_000 + 9_000
    first = meter.lap("step")
    assert meter.settled(first) is None
    clock.advance(0.07)
    nvml.nvmlDeviceGetTotalEnergyConsumption.return_value = 5_000 + 30_000
    second = meter.lap("step")
    parts = [meter.settled(window) for window in (first, second)]
    assert [part and part.joules for part in parts] == [pytest.approx(9.0), pytest.approx(21.0)]
    assert all(part is not None and part.coverage == pytest.approx(1.0) for part in parts)


def test_a_window_does_not_wait_for_ever_for_a_counter_that_stands_still(nvml: mock.Mock) -> None:
    clock = ReplayClock()
    meter = EnergyMeter([NvmlReader(0, clock=clock)], clock=clock)
    meter.begin_window("step")
    clock.advance(0.5)
    window = meter.lap("step")
    clock.advance(9.0)
    assert meter.settled(window) is None
    clock.advance(2.0)
    settled = meter.settled(window)
    assert settled is not None
    assert (settled.joules, settled.coverage) == (None, 0.0)


def test_a_reader_that_is_lost_is_named_and_the_others_go_on(nvml: mock.Mock) -> None:
    clock = ReplayClock()
    other = ReplayReader([Scripted(10.0, 100.0)], clock)
    meter = EnergyMeter([NvmlReader(0, clock=clock), other], clock=clock)
    meter.begin_window("w")
    clock.advance(1.0)
    nvml.nvmlDeviceGetTotalEnergyConsumption.return_value = 105_000
    meter.sample()
    nvml.nvmlDeviceGetTotalEnergyConsumption.side_effect = pynvml.NVMLError_GpuIsLost()
    clock.advance(1.0)
    window = meter.lap("w")
    measured = meter.settled(window)  # nobody waits for the lost one
    assert measured is not None
    assert "no longer answers" in meter.lost["nvml:GPU-aaaa-1"]
    assert [each.coverage for each in measured.readers] == [pytest.approx(0.5), pytest.approx(1.0)]
    assert [each.joules for each in measured.readers] == [pytest.approx(100.0), pytest.approx(20.0)]
    assert measured.coverage == pytest.approx(0.5)
    meter.close()
    meter.close()
    nvml.nvmlShutdown.assert_called_once_with()


@given(
    script=st.lists(st.tuples(st.floats(0.1, 3.0), st.floats(0.0, 50.0)), min_size=1, max_size=6),
    moves=st.lists(st.tuples(st.sampled_from(["lap", "sample", "other", "wait"]), st.floats(0.01, 2.0)), max_size=20),
)
def test_nothing_is_lost_or_counted_twice_however_it_is_read(
    script: list[tuple[float, float]], moves: list[tuple[str, float]]
) -> None:
    clock, meter = scripted(*script, (100.0, 0.0))
    meter.begin_window("w")
    laps, sampled = [], 0.0
    for move, seconds in moves:
        clock.advance(seconds)
        if move == "lap":
            laps.append(meter.lap("w"))
        elif move == "sample":
            sampled += sum(reading.joules for reading in meter.sample())
        elif move == "other":
            meter.begin_window("other", restart=True)
    passed_s = clock() - 5.0
    spent, at_s = 0.0, 0.0
    for seconds, joules in script:
        spent += joules * min(max(passed_s - at_s, 0.0), seconds) / seconds
        at_s += seconds
    last = meter.end_window("w")
    sampled += sum(reading.joules for reading in meter.sample())
    of_laps = [meter.ended(window).joules or 0.0 for window in laps]
    assert sampled == pytest.approx(spent, abs=1e-6)
    assert sum(of_laps) + (last.joules or 0.0) == pytest.approx(spent, abs=1e-6)


def test_threads_share_a_meter_and_no_joule_is_lost() -> None:
    meter = EnergyMeter([ModelledReader(ranks_on_node=1, idle_w=100.0, max_w=100.0)])
    sampled: list[Reading] = []
    stop = threading.Event()

    def side() -> None:
        while not stop.wait(0.001):
            sampled.extend(meter.sample())

    thread = threading.Thread(target=side)
    meter.begin_window("whole")
    meter.begin_window("part")
    meter.sample()  # up to here the samples are not the window's
    thread.start()
    laps = []
    for _ in range(200):
        time.sleep(0.0005)
        laps.append(meter.lap("part"))
    stop.set()
    thread.join()
    whole = meter.end_window("whole")
    sampled.extend(meter.sample())
    assert whole.joules == pytest.approx(100.0 * whole.seconds, rel=0.01)
    assert sum(reading.joules for reading in sampled) == pytest.approx(whole.joules, rel=0.01)
    assert sum(meter.ended(lap).joules or 0.0 for lap in laps) == pytest.approx(whole.joules, rel=0.02)


# readers


def test_power_changes_only_from_now_on() -> None:
    clock, cpu = ReplayClock(), ReplayClock()
    reader = ModelledReader(ranks_on_node=2, idle_w=20, max_w=100, cores=1, wall=clock, processor=cpu)
    meter = EnergyMeter([reader], clock=clock)
    meter.begin_window("w")
    clock.advance(1.0)
    meter.set_power(PowerModel(idle_w=60, max_w=100))
    clock.advance(1.0)
    cpu.advance(0.5)
    assert meter.end_window("w").joules == pytest.approx(10.0 + 30.0 + 40.0 * 0.5)


def test_processor_seconds_that_tick_late_are_not_lost() -> None:
    clock, cpu = ReplayClock(), ReplayClock()
    reader = ModelledReader(ranks_on_node=1, idle_w=0, max_w=100, cores=2, wall=clock, processor=cpu)
    joules = []
    for tick_s in (0.0, 0.03, 0.0, 0.01):  # of 10 ms each at most 20 ms can be used
        clock.advance(0.01)
        cpu.advance(tick_s)
        reading = reader.read()
        assert reading is not None
        joules.append(reading.joules)
    assert joules == pytest.approx([0.0, 1.0, 0.5, 0.5])


def test_a_reader_alone_keeps_what_was_drawn_before_its_powers_changed() -> None:
    clock, cpu = ReplayClock(), ReplayClock()
    reader = ModelledReader(ranks_on_node=1, idle_w=20, max_w=20, cores=1, wall=clock, processor=cpu)
    clock.advance(1.0)
    reader.set_power(PowerModel(idle_w=60, max_w=60))
    clock.advance(1.0)
    reading = reader.read()
    assert reading is not None
    assert (reading.joules, reading.interval_s) == (pytest.approx(80.0), pytest.approx(2.0))


def test_a_gpu_whose_power_is_taken_back_keeps_what_was_known_and_is_unknown_from_then_on() -> None:
    clock, busy = ReplayClock(), BusySeconds()
    known = PowerModel(idle_w=0, max_w=0, gpu_idle_w=30, gpu_max_w=250)
    meter = EnergyMeter([ModelledGpuReader(known, busy, wall=clock)], clock=clock)
    meter.begin_window("w")
    clock.advance(1.0)
    meter.set_power(PowerModel(idle_w=0, max_w=0, gpu_idle_w=30))
    clock.advance(3.0)
    measured = meter.end_window("w")
    assert (measured.joules, measured.coverage) == (pytest.approx(30.0), pytest.approx(0.25))


@pytest.mark.parametrize(
    ("powers", "word"),
    [
        ({"idle_w": 200.0}, "power_idle_w"),
        ({"idle_w": -1.0}, "power_idle_w"),
        ({"gpu_idle_w": 300.0, "gpu_max_w": 250.0}, "power_gpu_max_w"),
        ({"gpu_idle_w": -1.0}, "power_gpu_idle_w"),
        ({"idle_w": float("nan")}, "power_idle_w"),
    ],
)
def test_powers_that_make_no_sense_are_refused(powers: dict[str, float], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        PowerModel(**{"idle_w": 20.0, "max_w": 100.0, **powers})


def test_a_modelled_gpu_follows_its_busy_seconds() -> None:
    clock, busy = ReplayClock(), BusySeconds()
    power = PowerModel(idle_w=0, max_w=0, gpu_idle_w=30, gpu_max_w=250)
    reader = ModelledGpuReader(power, busy, wall=clock)
    assert reader.read() is None
    clock.advance(4.0)
    busy.add(1.0)
    reading = reader.read()
    assert reading is not None
    assert reading.joules == pytest.approx(30 * 4 + 220 * 1)
    assert (reading.source, reading.device, reading.reader) == ("modelled", "gpu", "gpu-model")


def test_a_modelled_gpu_of_unknown_power_is_unknown_until_it_is_told() -> None:
    clock, busy = ReplayClock(), BusySeconds()
    reader = ModelledGpuReader(PowerModel(idle_w=0, max_w=0, gpu_idle_w=30), busy, wall=clock)
    clock.advance(1.0)
    assert reader.read() is None
    reader.set_power(PowerModel(idle_w=0, max_w=0, gpu_idle_w=30, gpu_max_w=100))
    clock.advance(1.0)
    reading = reader.read()
    assert reading is not None
    assert (reading.joules, reading.interval_s) == (pytest.approx(30.0), pytest.approx(1.0))


def test_rapl_may_wrap_again_and_again(tmp_path: Path) -> None:
    clock = ReplayClock()
    root = powercap(tmp_path, RANGE_UJ - 1_000_000)
    reader = RaplReader(root, clock=clock)
    joules = []
    for energy_uj in (4_000_000, 130_000_000_000, RANGE_UJ - 6_000_000, 4_000_000):
        count(root, energy_uj)
        clock.advance(262.0)
        reading = reader.read()
        assert reading is not None
        joules.append(reading.joules)
    assert joules == pytest.approx([5.0, 129_996.0, RANGE_UJ * 1e-6 - 130_006.0, 10.0])
    assert reader.rejected == 0


def test_a_rapl_counter_that_was_set_back_is_unknown_not_a_wrap(tmp_path: Path) -> None:
    clock = ReplayClock()
    root = powercap(tmp_path, 90_000_000_000)
    reader = RaplReader(root, clock=clock)
    meter = EnergyMeter([reader], clock=clock)
    meter.begin_window("w")
    count(root, 1_000_000)  # the machine slept: the counter began again
    clock.advance(1.0)
    assert meter.sample() == []
    count(root, 51_000_000)
    clock.advance(1.0)
    measured = meter.end_window("w")
    assert (measured.joules, measured.coverage, reader.rejected) == (pytest.approx(50.0), pytest.approx(0.5), 1)


def test_an_nvml_counter_that_was_set_back_is_unknown_and_goes_on(nvml: mock.Mock) -> None:
    clock = ReplayClock()
    reader = NvmlReader(0, clock=clock)
    nvml.nvmlDeviceGetTotalEnergyConsumption.return_value = 100
    clock.advance(1.0)
    assert reader.read() is None
    assert reader.rejected == 1
    nvml.nvmlDeviceGetTotalEnergyConsumption.return_value = 80_100
    clock.advance(1.0)
    reading = reader.read()
    assert reading is not None
    assert (reading.joules, reading.interval_s) == (pytest.approx(80.0), pytest.approx(1.0))


@pytest.mark.slow
def test_nvml_without_permission_is_refused_with_whom_to_ask(nvml: mock.Mock) -> None:
    nvml.nvmlDeviceGetTotalEnergyConsumption.side_effect = pynvml.NVMLError_NoPermission()
    with pytest.raises(NotAvailableError, match="administrator"):
        NvmlReader(0)
    nvml.nvmlShutdown.assert_called_once_with()


def test_a_gpu_without_permission_or_split_by_mig_is_modelled_where_its_power_is_known(
    nvml: mock.Mock, tmp_path: Path
) -> None:
    known = {"local_rank": 0, "local_ranks": 1, "idle_w": 20.0, "max_w": 100.0, "rapl_root": tmp_path}
    for setting in ("permission", "mig"):
        if setting == "permission":
            nvml.nvmlDeviceGetTotalEnergyConsumption.side_effect = pynvml.NVMLError_NoPermission()
        else:
            nvml.nvmlDeviceGetMigMode.side_effect = None
            nvml.nvmlDeviceGetMigMode.return_value = [nvml.NVML_DEVICE_MIG_ENABLE, 1]
        power = {"gpu_idle_w": 30.0, "gpu_max_w": 250.0}
        readers, notes = readers_for("cuda", gpu_busy=BusySeconds(), **power, **known)  # type: ignore[arg-type]
        assert [(each.name, each.source) for each in readers] == [
            ("gpu-model", "modelled"),
            ("processor-model", "modelled"),
        ]
        assert notes[0].startswith("GPU energy is modelled from 30 W idle and 250 W busy")
    unknown, notes = readers_for("cuda", gpu_busy=BusySeconds(), **known)  # type: ignore[arg-type]
    assert notes[0].startswith("GPU energy is unknown")
    time.sleep(0.001)
    assert unknown[0].read() is None


def test_shares_of_a_node_sum_to_what_its_ranks_drew() -> None:
    clock = ReplayClock()
    power = PowerModel(idle_w=40, max_w=200)
    busy = [3.0, 1.0]
    cpus, total = [ReplayClock(), ReplayClock()], ReplayClock()
    readers = [
        NodeShareReader(
            ReplayReader([Scripted(2.0, 240.0)], clock, name="rapl", scope="node"),
            power,
            ranks_on_node=2,
            processor=cpu,
            node_processor=total,
        )
        for cpu in cpus
    ]
    clock.advance(2.0)
    for cpu, busy_s in zip(cpus, busy, strict=True):
        cpu.advance(busy_s)
    total.advance(5.0)  # another program had one more
    readings = [reader.read() for reader in readers]
    joules = [reading.joules for reading in readings if reading is not None]
    assert joules == pytest.approx([40 + 160 * 3 / 5, 40 + 160 * 1 / 5])
    assert {(each.scope, each.source, each.reader) for each in readings if each} == {("rank", "counter", "rapl-share")}
    assert readers[0].read() is None


def test_only_a_node_is_shared_out() -> None:
    clock = ReplayClock()
    with pytest.raises(ConfigError, match="whole node"):
        NodeShareReader(ReplayReader([], clock), PowerModel(idle_w=1, max_w=2), ranks_on_node=1)
    with pytest.raises(ConfigError, match="at least 1"):
        NodeShareReader(ReplayReader([], clock, scope="node"), PowerModel(idle_w=1, max_w=2), ranks_on_node=0)


def test_each_rank_has_its_share_beside_the_one_reader_of_the_node(tmp_path: Path) -> None:
    root = powercap(tmp_path, 5_000_000)
    chosen = [
        readers_for("cpu", local_rank=rank, local_ranks=2, idle_w=20, max_w=100, shares=True, rapl_root=root)[0]
        for rank in range(2)
    ]
    assert [[(each.name, each.scope) for each in readers] for readers in chosen] == [
        [("rapl", "node"), ("rapl-share", "rank")],
        [("rapl-share", "rank")],
    ]
    meter = EnergyMeter(chosen[0])
    meter.begin_window("w")
    time.sleep(0.02)
    count(root, 6_000_000)
    measured = meter.end_window("w")
    node, own = measured.readers
    assert (node.joules, node.scope) == (pytest.approx(1.0, rel=0.5), "node")
    assert own.joules is not None
    assert 0.05 < own.joules <= 1.0  # at least its part of the idle power, 20 W for 20 ms, and at most all


def test_processor_seconds_of_children_count_and_stay_when_they_end() -> None:
    work = "import time\nwhile time.process_time() < 0.2: pass\nprint('done', flush=True)\ninput()"
    child = subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    pids = [child.pid]
    seconds = ChildSeconds(lambda: pids)
    assert child.stdout is not None and child.stdin is not None
    child.stdout.readline()
    used = seconds()
    child.communicate(b"\n")
    assert used >= 0.15
    assert seconds() == pytest.approx(used)  # its number is no process any more
    pids.clear()
    assert seconds() == pytest.approx(used)


# replay


def test_a_replay_tells_again_what_was_recorded_with_its_holes() -> None:
    def row(reader: str, end_s: float, interval_s: float, joules: float, source: str = "counter") -> dict[str, object]:
        return {
            "time_ns": int((50.0 + end_s) * 1e9),
            "interval_s": interval_s,
            "joules": joules,
            "reader": reader,
            "source": source,
            "scope": "rank",
        }

    rows = [
        row("nvml:GPU-1", 1.0, 1.0, 100.0),
        row("nvml:GPU-1", 3.0, 1.0, 50.0),
        row("processor-model", 1.0, 1.0, 10.0, "modelled"),
        row("processor-model", 3.0, 2.0, 20.0, "modelled"),
    ]
    clock = ReplayClock()
    meter = replay_meter(rows, clock)
    meter.begin_window("first")
    clock.advance(1.0)
    assert meter.end_window("first").joules == pytest.approx(110.0)
    meter.begin_window("rest")
    clock.advance(2.0)
    gpu, cpu = meter.end_window("rest").readers
    assert (gpu.joules, gpu.coverage, gpu.device) == (pytest.approx(50.0), pytest.approx(0.5), "gpu")
    assert (cpu.joules, cpu.coverage, cpu.source) == (pytest.approx(20.0), pytest.approx(1.0), "modelled")
    clock.advance(1.0)
    assert meter.sample() != []
    clock.advance(1.0)
    assert meter.sample() == []  # beyond the record everything is unknown


@pytest.mark.parametrize("wrong", [Scripted(0.0, 1.0), Scripted(1.0, -1.0)])
def test_a_script_that_makes_no_sense_is_refused(wrong: Scripted) -> None:
    with pytest.raises(ConfigError, match="stretch"):
        ReplayReader([wrong], ReplayClock())
    with pytest.raises(ConfigError, match="nothing to replay"):
        replay_meter([], ReplayClock())
