"""Live control remembers clean links and reports changes to the policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
import pynvml
import pytest

from dtdg_lab.energy.monitor import EnergyMeter
from dtdg_lab.energy.nvml import NvmlReader
from dtdg_lab.energy.rank_readers import NodeShareReader
from dtdg_lab.energy.rapl import RaplReader
from dtdg_lab.energy.readers import EnergyReader, PowerModel
from dtdg_lab.systems.feature_cache.actions import CacheActions
from dtdg_lab.systems.feature_cache.pipeline.fetching import OwnerReply
from dtdg_lab.systems.feature_cache.pipeline.keys import KeySpace
from dtdg_lab.systems.feature_cache.pipeline.observations import Boundary, FetchTime, StepTime
from dtdg_lab.systems.feature_cache.pipeline.window_schedule import Lookahead
from dtdg_lab.systems.feature_cache.policies.baselines import ThresholdWindow
from dtdg_lab.systems.feature_cache.policies.control import CacheControl, CacheDecisionRow
from dtdg_lab.systems.feature_cache.policies.delay_estimator import LOOK_AGAIN, DelayEstimator
from dtdg_lab.systems.feature_cache.policies.interface import CacheDecision, CacheView
from dtdg_lab.systems.feature_cache.policies.planner import CachePlanner
from tests.energy_doubles import PACKAGE, Powercap, ReplayClock

ROW_BYTES, START_S = 400, 1e-3


def view(step: int) -> CacheView:
    return CacheView(np.zeros(23, np.float32), np.zeros(3), step, 25, CacheActions(4).action(16))


def test_restored_clean_links_are_kept_on_slow_ones() -> None:
    before = DelayEstimator(1)
    draw = np.random.default_rng(0)
    for epoch in (0, 1, 2):
        for _ in range(20):
            before.add(0, 1e-3 * (1 + 0.1 * draw.random()), 4000, epoch=epoch)
    after, fresh = DelayEstimator(1), DelayEstimator(1)
    after.load_state_dict(before.state_dict())
    for estimator in (after, fresh):
        for _ in range(30):
            estimator.add(0, 21e-3, 4000, epoch=3)
    assert after.delays_s()[0] == pytest.approx(0.02, rel=0.1)
    assert fresh.delays_s()[0] < 1e-3, "who hears of slow links first takes them for clean"
    other = DelayEstimator(2)
    other.load_state_dict(before.state_dict())
    assert (other.baselines_s() == 0).all(), "one of other parts is not taken"


def boundary(step: int, **facts: Any) -> Boundary:
    """Part 0 of two at the boundary before a step, without hits."""
    nothing = np.zeros(2, dtype=np.int64)
    return Boundary(
        part=0,
        parts=2,
        number=3,
        step=step,
        steps_left=2,
        previous=CacheActions(2).action(16),
        lookahead=Lookahead(step, [], KeySpace(np.arange(2), 2, 1), part=0, capacity=4, serving=None),
        **{
            "served": 16,
            "remote": nothing,
            "hits": nothing,
            "resolve_s": 0.0,
            "fetches": (),
            "rebuild_s": 0.0,
            "decision_cpu_s": 0.0,
            "late_steps": 0,
            "stepped": (),
            **facts,
        },
    )


class Noting(CachePlanner):
    """Keeps what it was asked about."""

    def __init__(self, actions: CacheActions) -> None:
        super().__init__(actions)
        self.seen: list[CacheView] = []

    def decide(self, view: CacheView) -> CacheDecision:
        self.seen.append(view)
        return super().decide(view)


def test_a_change_in_a_rebuild_s_fetches_is_counted() -> None:
    """They began the owner's level again, so that later misses raised no alarm: no change counted, nothing asked."""
    policy, now = Noting(CacheActions(2)), 41
    control = CacheControl(0, 2, epoch_steps=10, row_bytes=ROW_BYTES, estimator=DelayEstimator(1))
    control.policy = policy

    def misses(rtt_s: float, step: int) -> bool:
        return control.watch([OwnerReply(1, np.zeros((1, 1), np.float32), rtt_s, 4000)], step)

    assert not any(misses(START_S, step) for step in range(now))
    bulk = tuple(FetchTime(1, "bulk", 10, 4000, 20 * START_S, 48) for _ in range(3))
    control.decide(boundary(48, now=now, fetches=bulk))
    assert [view.changes for view in policy.seen] == [1]
    asked = [step for step in range(now, now + 20) if misses(20 * START_S, step)]
    assert asked == [now + LOOK_AGAIN]


STEP_S, EPOCH_STEPS = 1 / 32, 8  # exact seconds: NVML is read in every fourth step
STEPS = 8  # between two decisions


class Machine:
    """A rank's counters, which draw chosen watts while steps pass, and the policy that gets their readings."""

    def __init__(self, powercap: Powercap, nvml: mock.Mock | None) -> None:
        self._clock, self._powercap, self._nvml = ReplayClock(), powercap, nvml
        self._cpu_uj, self._gpu_mj = 1_000_000, 5_000
        node = RaplReader(powercap.root, clock=self._clock)
        alone = PowerModel(idle_w=0.0, max_w=100.0)
        readers: list[EnergyReader] = [
            NodeShareReader(node, alone, ranks_on_node=1, processor=self._clock, node_processor=self._clock)
        ]
        if nvml is not None:
            readers.append(NvmlReader("GPU-aaaa-1", clock=self._clock, sample=False))
        self.meter = EnergyMeter(readers, clock=self._clock)
        self.control = CacheControl(0, 2, epoch_steps=EPOCH_STEPS, row_bytes=ROW_BYTES, estimator=DelayEstimator(1))
        self.control.policy = ThresholdWindow(CacheActions(2))
        self._step = 0

    def decision(self, cpu_w: float, gpu_w: float, *, steps: int = STEPS, step_s: float = STEP_S) -> CacheDecisionRow:
        """Take steps at these powers, and return the decision after them."""
        stepped = []
        for _ in range(steps):
            self._clock.advance(step_s)
            self._cpu_uj += round(cpu_w * step_s * 1e6)
            self._powercap.set(PACKAGE, self._cpu_uj)
            if self._nvml is not None:
                self._gpu_mj += round(gpu_w * step_s * 1e3)
                self._nvml.nvmlDeviceGetTotalEnergyConsumption.return_value = self._gpu_mj
            step = self._step + len(stepped)
            stepped.append(StepTime(step_s, tuple(self.meter.sample("strategy")), step=step, starts=False))
        self._step += steps
        self.control.decide(boundary(self._step, stepped=tuple(stepped)))
        (row,) = self.control.take_rows()
        return row


def test_rewards_are_measured_joules_of_gpu_and_processors(powercap: Powercap, nvml: mock.Mock) -> None:
    """Equation 5: the joules of a step relative to a clean one; seconds alone would say -2."""
    machine = Machine(powercap, nvml)
    first = machine.decision(40.0, 160.0)
    assert (first.reward, first.energy_source) == (None, "counter")
    clean = machine.decision(40.0, 160.0)
    assert clean.reward == pytest.approx(-1.0)
    machine.decision(40.0, 160.0)  # warm-up is over
    waits = machine.decision(30.0, 70.0, step_s=2 * STEP_S)
    assert waits.reward == pytest.approx(-2 * (30 + 70) / (40 + 160))
    assert waits.energy_source == "counter"
    ratio = 3  # of seconds, then of joules: for P = 2 a multiplier and two hit rates come first
    assert waits.state[ratio : ratio + 2] == pytest.approx([np.log(2.0), 0.0], abs=1e-5)
    assert clean.state[ratio : ratio + 2] == pytest.approx([0.0, 0.0], abs=1e-5)


def steps_of(seconds: Sequence[float], first: int, *, starts: bool = False) -> tuple[StepTime, ...]:
    return tuple(StepTime(step_s, (), step=first + index, starts=starts) for index, step_s in enumerate(seconds))


def test_steps_while_the_sampler_fills_its_lookahead_are_no_reference() -> None:
    """A run's first steps took four times as long, so that a policy saw congested steps as fast ones."""
    control = CacheControl(0, 2, epoch_steps=EPOCH_STEPS, row_bytes=ROW_BYTES, estimator=DelayEstimator(1))
    control.policy = ThresholdWindow(CacheActions(2))
    control.decide(boundary(STEPS, stepped=steps_of([4 * STEP_S] * STEPS, 0, starts=True)))
    # this interval ends after the warm epochs; its first steps belong to them
    control.decide(boundary(3 * STEPS, stepped=steps_of([STEP_S] * STEPS + [2 * STEP_S] * STEPS, STEPS)))
    control.decide(boundary(4 * STEPS, stepped=steps_of([2 * STEP_S] * STEPS, 3 * STEPS)))
    rewards = [row.reward for row in control.take_rows()]
    assert rewards == [None, pytest.approx(-1.5), pytest.approx(-2.0)]


def test_a_run_that_was_saved_while_it_started_forgets_its_first_steps_after_all() -> None:
    before, after = (
        CacheControl(0, 2, epoch_steps=EPOCH_STEPS, row_bytes=ROW_BYTES, estimator=DelayEstimator(1)) for _ in range(2)
    )
    before.policy = after.policy = ThresholdWindow(CacheActions(2))
    before.decide(boundary(STEPS, stepped=steps_of([4 * STEP_S] * STEPS, 0, starts=True)))
    after.load_state_dict(before.state_dict())
    for interval in (1, 2):
        after.decide(boundary((interval + 1) * STEPS, stepped=steps_of([STEP_S] * STEPS, interval * STEPS)))
    assert after.take_rows()[-1].reward == pytest.approx(-1.0)


def test_steps_before_a_decision_that_is_kept_count_in_the_next_reward() -> None:
    """An early boundary took them away, so that a reward was of the rest of a window."""
    control = CacheControl(0, 2, epoch_steps=EPOCH_STEPS, row_bytes=ROW_BYTES, estimator=DelayEstimator(1))
    control.policy = ThresholdWindow(CacheActions(2))
    for interval in range(3):
        control.decide(boundary((interval + 1) * STEPS, stepped=steps_of([STEP_S] * STEPS, interval * STEPS)))
    assert control.decide(boundary(4 * STEPS, early=True, stepped=steps_of([3 * STEP_S] * STEPS, 3 * STEPS))) is None
    control.decide(boundary(5 * STEPS, stepped=steps_of([STEP_S] * STEPS, 4 * STEPS)))
    assert control.take_rows()[-1].reward == pytest.approx(-2.0)


def test_a_step_that_a_rebuild_delays_counts_in_rewards_and_in_what_the_policy_observes() -> None:
    """The median of an interval had no rebuild in it, so frequent rebuilds looked free."""
    control = CacheControl(0, 2, epoch_steps=EPOCH_STEPS, row_bytes=ROW_BYTES, estimator=DelayEstimator(1))
    control.policy = ThresholdWindow(CacheActions(2))
    without_rebuild, with_rebuild = [STEP_S] * STEPS, [STEP_S] * (STEPS - 1) + [9 * STEP_S]
    for interval, seconds in enumerate((without_rebuild, without_rebuild, without_rebuild, with_rebuild)):
        control.decide(boundary((interval + 1) * STEPS, stepped=steps_of(seconds, interval * STEPS)))
    *_, row = control.take_rows()
    assert row.reward == pytest.approx(-2.0)
    assert row.state[3] == pytest.approx(np.log(2.0), abs=1e-5)
    restored = CacheControl(0, 2, epoch_steps=EPOCH_STEPS, row_bytes=ROW_BYTES, estimator=DelayEstimator(1))
    restored.load_state_dict(control.state_dict())
    assert restored.state_dict() == control.state_dict()


def test_intervals_too_short_for_a_counter_are_unknown_and_count_in_the_next(
    powercap: Powercap, nvml: mock.Mock
) -> None:
    machine = Machine(powercap, nvml)
    for _ in range(3):
        machine.decision(40.0, 160.0)
    short = machine.decision(20.0, 80.0, steps=2)  # 63 ms, and NVML needs 100 ms
    assert (short.energy_source, short.reward) == (None, pytest.approx(-1.0))
    full = machine.decision(20.0, 80.0, steps=4)
    assert (full.energy_source, full.reward) == ("counter", pytest.approx(-0.5))


def test_polled_power_is_integrated_and_labelled(powercap: Powercap, nvml: mock.Mock) -> None:
    nvml.nvmlDeviceGetTotalEnergyConsumption.side_effect = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    nvml.nvmlDeviceGetPowerUsage.return_value = 160_000
    machine = Machine(powercap, nvml)
    for _ in range(3):
        machine.decision(40.0, 0.0)
    nvml.nvmlDeviceGetPowerUsage.return_value = 60_000
    machine.decision(40.0, 0.0)
    row = machine.decision(40.0, 0.0)
    assert (row.energy_source, row.reward) == ("counter+polled", pytest.approx(-0.5))


def test_clean_watts_survive_a_checkpoint_and_another_machine_s_gpu_is_not_waited_for(
    powercap: Powercap, nvml: mock.Mock
) -> None:
    before = Machine(powercap, nvml)
    before.decision(40.0, 160.0)
    state = before.control.state_dict()
    assert state["clean_w"] == {"rapl-share": pytest.approx(40.0), "nvml:GPU-aaaa-1": pytest.approx(160.0)}
    after = Machine(powercap, None)
    after.control.load_state_dict(state)
    after.decision(40.0, 0.0, steps=30)
    row = after.decision(20.0, 0.0)
    assert (row.energy_source, row.reward) == ("counter", pytest.approx(-0.5))
    with_joules = {**state, "clean": [STEP_S, 4.0]}  # of an older version
    del with_joules["clean_w"], with_joules["clean_steps"]
    after.control.load_state_dict(with_joules)
    assert after.control.state_dict()["clean_steps"] == [STEP_S]
