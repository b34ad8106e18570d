"""Joules by phase: they follow the model in each phase, sum to what was read, and say what nobody knows."""

from __future__ import annotations

import time
from typing import Any
from unittest import mock

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.config.record_tables import PHASES, TABLES
from dtdg_lab.energy.modelled import BusySeconds, ModelledGpuReader, ModelledReader
from dtdg_lab.energy.monitor import EnergyMeter, shared_out
from dtdg_lab.energy.nvml import NvmlReader
from dtdg_lab.energy.phases import IDLE, STALL, PhaseEnergy, Row
from dtdg_lab.energy.readers import EnergyReader, PowerModel
from dtdg_lab.energy.total import total_of
from dtdg_lab.runs.summary import energy_facts, joules_per_loss, spent
from tests.energy_doubles import ReplayClock, ReplayReader, Scripted

POWER = PowerModel(idle_w=20.0, max_w=100.0, gpu_idle_w=30.0, gpu_max_w=250.0)


def phase_frame(rows: list[Any]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["rank", *TABLES["phase_energy"]])


def evaluated(rows: list[Any]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["split", "time_ns", "loss"])


class Bench:
    """A rank whose time and processor seconds pass when told, and its rows as dicts."""

    def __init__(self, *readers: EnergyReader, clock: ReplayClock, cpu: ReplayClock, **more: object) -> None:
        self.clock, self.cpu = clock, cpu
        self.meter = EnergyMeter(readers, clock=clock)
        self.energy = PhaseEnergy(self.meter, POWER, processor=cpu, clock=clock, **more)
        self.rows: list[dict[str, object]] = []
        self._step = 0

    def step(
        self,
        phases: dict[str, float],
        cpu_s: float | dict[str, float],
        *,
        epoch: int = 0,
        stalled_s: dict[str, float] | None = None,
    ) -> None:
        intervals = []
        for phase, seconds in phases.items():
            start_ns = round(self.clock() * 1e9)
            self.clock.advance(seconds)
            intervals.append((phase, start_ns, round(self.clock() * 1e9)))
        self.cpu.advance(sum(cpu_s.values()) if isinstance(cpu_s, dict) else cpu_s)
        self.take(self.energy.add(self._step, epoch, intervals, cpu_s, stalled_s=stalled_s or {}))
        self._step += 1

    def take(self, rows: list[Row]) -> None:
        self.rows += [dict(zip(TABLES["phase_energy"], row, strict=True)) for row in rows]

    def joules(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for row in self.rows:
            assert row["joules"] is not None
            found[str(row["phase"])] = found.get(str(row["phase"]), 0.0) + float(row["joules"])
        return found


def modelled(ranks: int = 1, **more: object) -> Bench:
    clock, cpu = ReplayClock(), ReplayClock()
    reader = ModelledReader(ranks_on_node=ranks, idle_w=20, max_w=100, cores=2, wall=clock, processor=cpu)
    return Bench(reader, clock=clock, cpu=cpu, ranks_on_node=ranks, **more)


def test_the_model_holds_in_each_phase() -> None:
    bench = modelled(ranks=2)
    bench.step({"compute": 0.6, "wait": 0.3, "update": 0.1}, {"compute": 0.9, "wait": 0.0, "update": 0.1})
    bench.take(bench.energy.close())
    # 20 W idle shared by two ranks; 80 W for two busy cores
    assert bench.joules() == pytest.approx({"compute": 6 + 36, "wait": 3.0, "update": 1 + 4})
    assert [(row["source"], row["coverage"]) for row in bench.rows] == [("modelled", pytest.approx(1.0))] * 3


def test_processor_seconds_of_a_step_belong_to_the_phases_that_do_not_wait() -> None:
    bench = modelled()
    bench.step({"compute": 0.5, "communicate": 0.25, "wait": 0.25}, 0.75)
    bench.take(bench.energy.close())
    assert bench.joules() == pytest.approx({"compute": 10 + 20.0, "communicate": 5 + 10.0, "wait": 5.0})


def test_standing_still_for_features_is_a_phase_of_its_own() -> None:
    bench = modelled()
    stalled_s = {"transfer": 0.4, "batch": 5.0, "control": 0.1}  # more than batch lasted, and a phase that was not
    bench.step({"transfer": 0.5, "batch": 0.1, "wait": 0.4}, {"transfer": 0.1}, stalled_s=stalled_s)
    bench.take(bench.energy.close())
    seconds = {row["phase"]: row["seconds"] for row in bench.rows}
    assert seconds == pytest.approx({"transfer": 0.1, STALL: 0.5, "wait": 0.4})
    assert bench.joules() == pytest.approx({"transfer": 2 + 4.0, STALL: 10.0, "wait": 8.0})


def test_what_is_received_while_standing_still_is_drawn_by_the_standing_still() -> None:
    bench = modelled()
    bench.step({"transfer": 0.5}, {"transfer": 0.3}, stalled_s={"transfer": 0.4})
    bench.clock.advance(0.4)
    bench.take(bench.energy.close())
    # one thread cannot have worked more than 0.1 s in the rest of the phase
    assert bench.joules() == pytest.approx({"transfer": 2 + 4.0, STALL: 8 + 8.0, IDLE: 8.0})


def test_between_steps_is_idle_but_for_what_has_a_name() -> None:
    bench = modelled()
    bench.step({"compute": 0.5}, 0.5)
    start_s = bench.clock()
    bench.clock.advance(1.0)
    bench.cpu.advance(1.0)
    bench.energy.between("evaluate", round(start_s * 1e9), round(bench.clock() * 1e9))
    bench.clock.advance(3.0)
    bench.take(bench.energy.end_epoch())
    joules = bench.joules()
    assert joules.keys() == {"compute", "evaluate", IDLE}
    assert joules["compute"] == pytest.approx(10 + 20)
    assert sum(joules.values()) == pytest.approx(20 * 4.5 + 40 * 1.5)
    assert joules[IDLE] > joules["evaluate"] > 20.0  # the second of no phase's processor time is shared by time


def test_what_children_use_is_spread_over_the_time() -> None:
    children = ReplayClock()
    clock, cpu = ReplayClock(), ReplayClock()
    reader = ModelledReader(
        ranks_on_node=1, idle_w=20, max_w=100, cores=2, wall=clock, processor=lambda: cpu() + children()
    )
    bench = Bench(reader, clock=clock, cpu=cpu, children=children)
    children.advance(0.4)
    bench.step({"compute": 0.5, "wait": 0.5}, {"compute": 0.5})
    bench.take(bench.energy.close())
    assert bench.joules() == pytest.approx({"compute": 10 + 20 + 8.0, "wait": 10 + 8.0})


@given(
    steps=st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from(PHASES), st.floats(0.001, 1.0), min_size=1),
            st.floats(0.0, 1.0),
            st.just(0.0) | st.floats(0.001, 0.5),
            st.booleans(),
        ),
        min_size=1,
        max_size=12,
    ),
    watts=st.floats(0.0, 200.0),
)
def test_phases_sum_to_what_was_read(steps: list[tuple[dict[str, float], float, float, bool]], watts: float) -> None:
    clock, cpu = ReplayClock(), ReplayClock()
    reader = ReplayReader([Scripted(1000.0, watts * 1000.0)], clock)
    bench = Bench(reader, clock=clock, cpu=cpu)
    for phases, busy, pause_s, ends in steps:
        bench.step(phases, busy * sum(phases.values()))
        clock.advance(pause_s)
        if ends:
            bench.take(bench.energy.end_epoch())
    bench.take(bench.energy.close())
    assert sum(bench.joules().values()) == pytest.approx(watts * clock(), abs=1e-6)
    assert sum(float(row["seconds"]) for row in bench.rows) == pytest.approx(clock(), abs=1e-6)
    assert all(float(row["joules"]) >= 0 for row in bench.rows)


def test_a_counter_gives_waiting_its_idle_power_and_work_the_rest() -> None:
    clock, cpu = ReplayClock(), ReplayClock()
    bench = Bench(ReplayReader([Scripted(10.0, 700.0)], clock), clock=clock, cpu=cpu)
    bench.step({"compute": 0.5, "wait": 0.5}, 0.3)
    bench.take(bench.energy.close())
    assert bench.joules() == pytest.approx({"compute": 10 + 50.0, "wait": 10.0})
    assert shared_out(6.0, {"a": 1.0, "b": 2.0}, {"a": 1.0}, 30.0) == pytest.approx({"a": 2.0, "b": 4.0})  # all idle
    assert shared_out(6.0, {"a": 1.0, "b": 2.0}, {}, 1.0) == pytest.approx({"a": 2.0, "b": 4.0})  # nothing worked


def test_a_modelled_gpu_is_busy_while_it_computes_and_idles_in_a_stall() -> None:
    clock, cpu, busy = ReplayClock(), ReplayClock(), BusySeconds()
    bench = Bench(ModelledGpuReader(POWER, busy, wall=clock), clock=clock, cpu=cpu, gpu_busy=busy)
    bench.step({"compute": 0.4, "transfer": 0.6}, 0.1, stalled_s={"transfer": 0.5})
    bench.take(bench.energy.close())
    assert bench.joules() == pytest.approx({"compute": 100.0, "transfer": 3.0, STALL: 15.0})


def test_power_changed_in_the_run_rules_from_then_on() -> None:
    bench = modelled()
    bench.step({"compute": 0.25, "wait": 0.25}, {"compute": 0.25})
    bench.energy.set_power(PowerModel(idle_w=60.0, max_w=100.0))
    bench.step({"compute": 0.25, "wait": 0.25}, {"compute": 0.25})
    bench.take(bench.energy.close())
    by_row = [(row["phase"], row["joules"]) for row in bench.rows]
    assert by_row == [
        ("compute", pytest.approx(5 + 10.0)),
        ("wait", pytest.approx(5.0)),
        ("compute", pytest.approx(15 + 5.0)),
        ("wait", pytest.approx(15.0)),
    ]


def test_measured_and_modelled_joules_are_rows_apart() -> None:
    clock, cpu = ReplayClock(), ReplayClock()
    gpu = ReplayReader([Scripted(10.0, 1000.0)], clock, name="nvml:GPU-1", device="gpu")
    cpu_model = ModelledReader(ranks_on_node=1, idle_w=20, max_w=100, cores=2, wall=clock, processor=cpu)
    bench = Bench(gpu, cpu_model, clock=clock, cpu=cpu)
    bench.step({"compute": 0.5, "wait": 0.5}, {"compute": 0.5})
    bench.take(bench.energy.close())
    found = {(row["phase"], row["source"]): row["joules"] for row in bench.rows}
    assert found == pytest.approx(
        {
            ("compute", "counter"): 15 + 70.0,
            ("wait", "counter"): 15.0,
            ("compute", "modelled"): 30.0,
            ("wait", "modelled"): 10.0,
        }
    )
    facts = spent(phase_frame([{"rank": 0, **row} for row in bench.rows if row["phase"] == "compute"]))
    assert (facts.joules, facts.seconds) == (pytest.approx(115.0), pytest.approx(0.5))


def test_a_rank_that_nothing_reads_is_unknown_never_zero() -> None:
    clock, cpu = ReplayClock(), ReplayClock()
    node = ReplayReader([Scripted(10.0, 700.0)], clock, scope="node")
    for readers in ((), (node,)):  # the node's joules are not this rank's
        bench = Bench(*readers, clock=clock, cpu=cpu)
        bench.step({"compute": 1.0}, 0.3)
        bench.take(bench.energy.close())
        assert [(row["joules"], row["source"], row["coverage"]) for row in bench.rows] == [(None, None, 0.0)]


def test_a_hole_in_the_readings_is_told_by_the_coverage() -> None:
    clock, cpu = ReplayClock(), ReplayClock()
    bench = Bench(
        ReplayReader([Scripted(0.75, None), Scripted(9.0, 900.0), Scripted(1.0, None)], clock), clock=clock, cpu=cpu
    )
    bench.step({"compute": 1.0}, 1.0)
    clock.advance(8.75)
    bench.take(bench.energy.end_epoch())
    clock.advance(0.5)
    bench.take(bench.energy.close())
    described = [(row["phase"], row["joules"], row["coverage"]) for row in bench.rows]
    assert described[0] == ("compute", pytest.approx(25.0), pytest.approx(0.25))
    assert described[-1] == (IDLE, None, 0.0)


def test_idle_power_is_taken_for_the_seconds_that_are_known() -> None:
    clock, cpu = ReplayClock(), ReplayClock()
    bench = Bench(ReplayReader([Scripted(0.5, None), Scripted(9.5, 665.0)], clock), clock=clock, cpu=cpu)
    bench.step({"compute": 0.5, "wait": 0.5}, {"compute": 0.5})
    bench.take(bench.energy.close())
    assert bench.joules() == pytest.approx({"compute": 5 + 25.0, "wait": 5.0})  # 35 J, of which 20 W for 0.5 s idle


def test_rows_come_once_a_second_and_at_the_end_of_every_epoch() -> None:
    bench = modelled()
    for step in range(32):
        bench.step({"compute": 0.125}, 0.05, epoch=step // 20)
        if step % 20 == 19:
            bench.take(bench.energy.end_epoch())
    bench.take(bench.energy.close())
    assert [(row["step"], row["epoch"], row["seconds"]) for row in bench.rows] == [
        (7, 0, 1.0),
        (15, 0, 1.0),
        (19, 0, 0.5),
        (27, 1, 1.0),
        (31, 1, 0.5),
    ]
    assert bench.energy.close() == []


def test_short_epochs_wait_for_a_counter_that_moves_every_tenth_of_a_second(nvml: mock.Mock) -> None:
    clock, cpu = ReplayClock(), ReplayClock()
    nvml.nvmlDeviceGetTotalEnergyConsumption.side_effect = lambda _: round(clock() * 200e3)  # 200 W
    bench = Bench(NvmlReader(0, clock=clock), clock=clock, cpu=cpu)
    for epoch in range(10):
        bench.step({"compute": 0.02, "wait": 0.01}, 0.01, epoch=epoch)
        bench.take(bench.energy.end_epoch())
    assert {row["epoch"] for row in bench.rows} <= set(range(8))  # the last ones wait
    clock.advance(0.1)
    bench.take(bench.energy.close())
    epochs = phase_frame([{"rank": 0, **row} for row in bench.rows]).groupby("epoch")["joules"].sum()
    assert [joules for epoch, joules in epochs.items() if epoch < 9] == pytest.approx([6.0] * 9)
    assert sum(bench.joules().values()) == pytest.approx(200 * clock())


def test_on_the_real_clocks_work_draws_more_than_waiting() -> None:
    reader = ModelledReader(ranks_on_node=1, idle_w=10.0, max_w=1000.0, cores=1)
    meter = EnergyMeter([reader])
    energy = PhaseEnergy(meter, PowerModel(idle_w=10.0, max_w=1000.0), every_s=0.02)
    meter.begin_window("all")
    rows: list[Row] = []
    for step in range(8):
        start_ns, cpu_s = time.perf_counter_ns(), time.process_time()
        while time.process_time() - cpu_s < 0.01:
            pass
        middle_ns, used_s = time.perf_counter_ns(), time.process_time() - cpu_s
        time.sleep(0.01)
        intervals = [("compute", start_ns, middle_ns), ("wait", middle_ns, time.perf_counter_ns())]
        rows += energy.add(step, 0, intervals, {"compute": used_s, "wait": 0.0})
    rows += energy.close()
    whole = meter.end_window("all")
    frame = phase_frame([{"rank": 0, **dict(zip(TABLES["phase_energy"], row, strict=True))} for row in rows])
    found = {str(phase): spent(own) for phase, own in frame.groupby("phase")}
    known = [each.joules for each in found.values() if each.joules is not None]
    assert whole.joules is not None
    assert sum(known) == pytest.approx(whole.joules, rel=0.02)
    work, wait = found["compute"], found["wait"]
    assert wait.joules / wait.seconds < 30.0 < work.joules / work.seconds


# figures of a whole run


def described(rank: int, phase: str, joules: float | None, **more: object) -> dict[str, object]:
    return {
        "rank": rank,
        "step": 3,
        "epoch": 0,
        "time_ns": 1,
        "phase": phase,
        "joules": joules,
        "seconds": 2.0,
        "source": "modelled" if joules is not None else None,
        "coverage": 1.0 if joules is not None else 0.0,
        **more,
    }


ROWS = [
    described(0, "compute", 60.0),
    described(0, "wait", 10.0),
    described(0, STALL, 20.0),
    described(0, IDLE, 10.0, epoch=1, time_ns=2),
    described(1, "compute", 80.0),
    described(1, "wait", 20.0, epoch=1, time_ns=2),
]


def test_facts_of_a_run() -> None:
    evaluations = [
        {"split": split, "time_ns": at, "loss": loss}
        for split, at, loss in (("train", 2, 0.5), ("train", 1, 0.9), ("validation", 3, 7.0), ("train", 3, None))
    ]
    energy = [
        {
            "rank": rank,
            "reader": reader,
            "source": source,
            "scope": scope,
            "joules": joules,
            "time_ns": 1,
            "interval_s": 1.0,
            "device": device,
            "node": "a",
        }
        for rank, reader, source, scope, joules, device in (
            (0, "nvml:GPU-1", "counter", "rank", 30.0, "gpu"),
            (0, "rapl", "counter", "node", 50.0, "processor"),
            (0, "rapl-share", "counter", "rank", 11.0, "processor"),
            (1, "gpu-model", "modelled", "rank", 5.0, "gpu"),
            (1, "rapl", "counter", "node", float("nan"), "processor"),
        )
    ]
    total, rows, scored = total_of(energy), phase_frame(ROWS), evaluated(evaluations)
    assert total.joules("gpu") == {"counter": 30.0, "modelled": 5.0} and total.joules("processor") == {"counter": 50.0}
    facts = energy_facts(rows, total, scored)
    assert facts == {
        "energy_j": {"counter": 80.0, "modelled": 5.0},
        "total_j": 85.0,
        "energy_coverage": {"read": pytest.approx(2 / 3), "modelled": pytest.approx(1 / 3), "unknown": 0.0},
        "phase_j": {"compute": 140.0, "wait": 30.0, STALL: 20.0, IDLE: 10.0},
        "stall_j": 50.0,
        "stall_share": 0.25,
        "epoch_j": 100.0,
        "epoch_j_spread": pytest.approx(2**0.5 * 70),
        "epoch_j_median": 100.0,
        "epoch_j_clean": None,
        "epoch_j_congested": None,
        "joules_per_loss": pytest.approx(500.0),
        "phase_energy_coverage": 1.0,
        "gpu_j": 35.0,
        "processor_j": 50.0,
    }
    parted = energy_facts(rows, total, scored, finished=[0, 1], congested={1})
    assert (parted["epoch_j_clean"], parted["epoch_j_congested"]) == (170.0, 30.0)
    assert energy_facts(rows, total, scored, finished=[0])["epoch_j"] == 170.0
    assert spent(rows[rows["phase"].isin(["wait", STALL])]).seconds == 6.0


def test_facts_of_nothing_and_of_the_unknown_are_unknown() -> None:
    nothing = evaluated([])
    assert set(energy_facts(phase_frame([]), total_of([]), nothing).values()) == {None}
    rows = phase_frame([described(0, "wait", None), described(0, "compute", float("nan"), coverage=0.0)])
    unknown = energy_facts(rows, total_of([]), nothing)
    assert unknown.pop("phase_energy_coverage") == 0.0
    assert set(unknown.values()) == {None}
    busy = energy_facts(phase_frame([described(0, "compute", 3.0)]), total_of([]), nothing)
    assert busy["stall_j"] == 0.0, "nobody waited, and that is known"
    rising = [{"split": "train", "time_ns": at, "loss": float(at)} for at in (1, 2)]
    assert joules_per_loss(5.0, evaluated(rising)) is None
    assert joules_per_loss(None, evaluated(rising[::-1])) is None
    assert joules_per_loss(5.0, evaluated(rising[:1])) is None
