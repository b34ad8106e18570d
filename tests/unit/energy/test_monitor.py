"""Windows of energy and readers of all kinds, driven by scripts: what is known, what is covered, what is lost."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from unittest import mock

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.energy.modelled import ModelledReader
from dtdg_lab.energy.monitor import EnergyMeter
from dtdg_lab.energy.nvml import NvmlReader
from dtdg_lab.energy.readers import ChildSeconds, Reading
from tests.energy_doubles import ReplayClock, ReplayReader, Scripted, replay_meter


def scripted(*parts: tuple[float, float | None], **kinds: str) -> tuple[ReplayClock, EnergyMeter]:
    clock = ReplayClock(5.0)
    script = [Scripted(*part) for part in parts]
    return clock, EnergyMeter([ReplayReader(script, clock, **kinds)], clock=clock)


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
    with pytest.raises(ConfigError, match="count a device twice"):
        EnergyMeter([ReplayReader([], clock), ReplayReader([], clock)], clock=clock)


@pytest.mark.parametrize(
    ("device", "source", "joules"),
    [("processor", "modelled", 7.0), ("gpu", "counter", 107.0)],
    ids=["its processors are the node's", "its gpu is another device"],
)
def test_a_rank_and_its_node_are_added_only_where_they_are_two_devices(device: str, source: str, joules: float) -> None:
    clock = ReplayClock()
    node = ReplayReader([Scripted(1.0, 100.0)], clock, name="node", scope="node")
    own = ReplayReader([Scripted(1.0, 7.0)], clock, name="own", source=source, device=device)
    meter = EnergyMeter([node, own], clock=clock)
    meter.begin_window("w")
    clock.advance(1.0)
    measured = meter.end_window("w")
    assert (measured.joules, measured.sources) == (pytest.approx(joules), (source,))
    assert [each.joules for each in measured.readers] == [pytest.approx(100.0), pytest.approx(7.0)]


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


# children


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
