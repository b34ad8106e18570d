"""Energy models: the formula by hand, powers that change in a run, and what is unknown."""

from __future__ import annotations

import pytest

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.energy.modelled import BusySeconds, ModelledGpuReader, ModelledReader
from dtdg_lab.energy.monitor import EnergyMeter
from dtdg_lab.energy.readers import PowerModel
from tests.energy_doubles import ReplayClock


def processor(**settings: float) -> tuple[ReplayClock, ReplayClock, ModelledReader]:
    """Return the clocks of the wall and of the processor, and a reader that they drive."""
    wall, cpu = ReplayClock(), ReplayClock()
    given = {"ranks_on_node": 1, "idle_w": 0, "max_w": 100, "cores": 1, **settings}
    return wall, cpu, ModelledReader(**given, wall=wall, processor=cpu)


def gpu(**powers: float) -> tuple[ReplayClock, BusySeconds, ModelledGpuReader]:
    clock, busy = ReplayClock(), BusySeconds()
    return clock, busy, ModelledGpuReader(PowerModel(idle_w=0, max_w=0, gpu_idle_w=30, **powers), busy, wall=clock)


def test_the_formula_worked_by_hand() -> None:
    wall, cpu, reader = processor(ranks_on_node=4, idle_w=20, cores=8)
    wall.advance(2.0)
    cpu.advance(4.0)  # two of eight cores busy
    reading = reader.read()
    assert reading.watts == pytest.approx(20 / 4 + 80 * 4 / (2 * 8))
    assert reading.joules == pytest.approx(50.0)
    assert (reading.interval_s, reading.source, reading.scope) == (2.0, "modelled", "rank")


@pytest.mark.parametrize(("busy_s", "node_w"), [(0.0, 20.0), (1.0, 100.0)])
def test_ranks_sum_to_idle_and_to_full_power_of_the_node(busy_s: float, node_w: float) -> None:
    total_w = 0.0
    for _ in range(4):
        wall, cpu, reader = processor(ranks_on_node=4, idle_w=20, cores=4)
        wall.advance(1.0)
        cpu.advance(busy_s)
        total_w += reader.read().watts
    assert total_w == pytest.approx(node_w)


def test_processor_seconds_that_tick_in_no_time_or_late_are_not_lost() -> None:
    wall, cpu, reader = processor(cores=2)
    cpu.advance(0.005)
    assert reader.read() is None
    joules = []
    for tick_s in (0.0, 0.03, 0.0, 0.01):  # of 10 ms each at most 20 ms can be used
        wall.advance(0.01)
        cpu.advance(tick_s)
        joules.append(reader.read().joules)
    assert joules == pytest.approx([0.25, 1.0, 0.5, 0.5])


def test_the_real_clocks_see_a_busy_loop() -> None:
    reader = ModelledReader(ranks_on_node=1, idle_w=0, max_w=1000, cores=1)
    sum(i * i for i in range(300_000))
    reading = reader.read()
    assert 0 < reading.joules <= 1000 * reading.interval_s


@pytest.mark.parametrize("wrong", [{"ranks_on_node": 0}, {"idle_w": 200}, {"cores": 0}])
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        processor(**wrong)


def test_power_that_changes_rules_from_then_on() -> None:
    wall, cpu, reader = processor(ranks_on_node=2, idle_w=20)
    wall.advance(1.0)
    reader.set_power(PowerModel(idle_w=60, max_w=100))
    wall.advance(1.0)
    cpu.advance(0.5)
    reading = reader.read()
    assert (reading.joules, reading.interval_s) == (pytest.approx(10.0 + 30.0 + 40.0 * 0.5), pytest.approx(2.0))


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


def test_a_gpu_follows_its_busy_seconds() -> None:
    clock, busy, reader = gpu(gpu_max_w=250)
    assert reader.read() is None
    clock.advance(4.0)
    busy.add(1.0)
    reading = reader.read()
    assert reading.joules == pytest.approx(30 * 4 + 220 * 1)
    assert (reading.source, reading.device, reading.reader) == ("modelled", "gpu", "gpu-model")


def test_a_gpu_of_unknown_power_is_unknown_until_it_is_told() -> None:
    clock, _, reader = gpu()
    clock.advance(1.0)
    assert reader.read() is None
    reader.set_power(PowerModel(idle_w=0, max_w=0, gpu_idle_w=30, gpu_max_w=100))
    clock.advance(1.0)
    reading = reader.read()
    assert (reading.joules, reading.interval_s) == (pytest.approx(30.0), pytest.approx(1.0))


def test_a_gpu_whose_power_is_taken_back_keeps_what_was_known() -> None:
    clock, _, reader = gpu(gpu_max_w=250)
    meter = EnergyMeter([reader], clock=clock)
    meter.begin_window("w")
    clock.advance(1.0)
    meter.set_power(PowerModel(idle_w=0, max_w=0, gpu_idle_w=30))
    clock.advance(3.0)
    measured = meter.end_window("w")
    assert (measured.joules, measured.coverage) == (pytest.approx(30.0), pytest.approx(0.25))
