"""Estimated delays recover injected ones."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dtdg_lab.systems.feature_cache.costs.cache_costs import RpcModel
from dtdg_lab.systems.feature_cache.policies.delay_estimator import (
    ChangePoints,
    DelayEstimator,
    LatenessMemory,
    RunsMemory,
    change_points,
    memory_size,
)
from dtdg_lab.systems.feature_cache.policies.interface import state_size
from tests.thinning import thinned

MODEL = RpcModel(1.3e-3, 3e-9)


def received(delay_s, *, seed, owner=1, nbytes=4e5, noise=0.4, epochs=5):
    """An estimator that heard fetches with the fitted noise: 25 steps an epoch, every eighth with 8 times the bytes."""
    draw = np.random.default_rng(seed)
    estimator = DelayEstimator(3)
    for step in range(25 * epochs):
        for place in range(3):
            size = nbytes * np.exp(0.5 * draw.normal()) * (8 if step % 8 == 0 else 1)
            late = delay_s if step >= 50 and place == owner else 0.0
            estimator.add(
                place, float(MODEL.rtt_s(size)) * np.exp(noise * draw.normal()) + late, size, epoch=step // 25
            )
    return estimator


@pytest.mark.parametrize("delay_ms", thinned([5, 10, 20, 50], keep=2))
def test_injected_delays_are_recovered(delay_ms):
    described = np.array([received(delay_ms / 1e3, seed=seed).delays_s() for seed in range(20)]) * 1e3
    assert (np.abs(described[:, 1] / delay_ms - 1) < 0.2).mean() >= 0.9
    assert np.median(described[:, 1]) == pytest.approx(delay_ms, rel=0.1)
    assert (described[:, [0, 2]] < 1.5).all()  # owners that are not late


def test_large_fetches_are_not_taken_for_late_ones():
    estimator = received(0.0, seed=1, noise=0.05)
    for _ in range(30):
        estimator.add(0, float(MODEL.rtt_s(2e7)), 2e7, epoch=9)
    assert estimator.delays_s()[0] < 0.1 * MODEL.rtt_s(2e7)
    assert MODEL.rtt_s(2e7) > 0.06


def test_the_warm_up_has_no_delay_and_sets_the_baseline():
    estimator = DelayEstimator(2)
    times = np.arange(1, 101) / 1e3
    for time in times:
        estimator.add(0, float(time), 0, epoch=1)
    assert (estimator.delays_s() == 0).all()
    np.testing.assert_allclose(estimator.baselines_s(), [np.percentile(times, 15), 0])
    for _ in range(30):
        estimator.add(0, 0.5, 0, epoch=3)
    noise = np.percentile(
        times, 15
    )  # median less percentile would be 35 ms: a warm-up that was late itself is not noise
    assert estimator.delays_s()[0] == pytest.approx(0.5 - 2 * noise)
    assert estimator.baselines_s()[0] == pytest.approx(noise)


def test_a_faster_network_lowers_the_baseline():
    draw = np.random.default_rng(0)
    estimator = DelayEstimator(1)
    for late, epochs in ((0.02, range(7, 10)), (0.0, range(10, 12)), (0.02, range(12, 14))):  # resumed amid congestion
        for epoch in epochs:
            for _ in range(25):
                estimator.add(0, 2e-3 * np.exp(0.1 * draw.normal()) + late, 1e4, epoch=epoch)
            described = estimator.delays_s()[0]
        assert described == pytest.approx(0.02 if epoch == 13 else 0.0, rel=0.2, abs=1e-3)


NOISE = 0.4


def series(seed: int, *levels: tuple[int, float]) -> np.ndarray:
    random = np.random.default_rng(seed)
    return np.concatenate([level + NOISE * random.standard_normal(count) for count, level in levels])


@pytest.mark.parametrize("seed", range(8))
def test_one_at_a_time_is_as_all_at_once(seed: int) -> None:
    values = series(seed, (70, 0.0), (5, 2.0), (90, 0.5), (40, 3.0), (200, 0.0))
    starts, alarms = change_points(values, NOISE)
    points = ChangePoints(NOISE)
    for place, value in enumerate(values, start=1):
        assert points.add(float(value)) == alarms[place]
        assert place - points.count == starts[place]
    assert points.alarms == alarms.sum() >= 3


@pytest.mark.parametrize(("level", "within"), [(3.0, 3), (1.5, 5), (0.8, 13)])
def test_a_change_is_found_within_a_few_fetches(level: float, within: int) -> None:
    late = []
    for seed in range(40):
        alarms = change_points(series(seed, (60, 0.0), (60, level)), NOISE)[1]
        after = np.flatnonzero(alarms[61:]) + 1
        late.append(int(after[0]) if len(after) else 60)
    assert np.percentile(late, 90) <= within


def test_where_nothing_changes_alarms_are_rare_and_one_outlier_raises_none() -> None:
    alarms = sum(int(change_points(series(seed, (750, 0.0)), NOISE)[1].sum()) for seed in range(60))
    assert alarms <= 60  # one in 750 fetches
    quiet = np.zeros(100)
    quiet[50] = 4.0
    assert not change_points(quiet, 0.1)[1].any()


def test_the_noise_is_estimated_where_it_is_not_given() -> None:
    points, found = ChangePoints(), 0
    for value in series(3, (200, 0.0), (20, 2.0)):
        found += points.add(float(value))
    assert 1 <= found <= 3 and points.count <= 21


def states(late: list[list[float]]) -> NDArray[np.float32]:
    found = np.zeros((len(late), state_size(4)), np.float32)
    found[:, :3] = late
    return found


def test_averages_fade_by_steps_not_by_observations() -> None:
    often, seldom = LatenessMemory(1, 4), LatenessMemory(1, 4)
    for memory in (often, seldom):
        memory.take_in(states([[0, 0, 0]]), np.zeros(1, np.int64))
    for _ in range(10):
        described = often.take_in(states([[1, 0, 2]]), np.array([10]))
    rarely = seldom.take_in(states([[1, 0, 2]]), np.array([100]))
    remembered = described[0, state_size(4) :].reshape(3, 3)
    assert memory_size(4) == remembered.size
    assert remembered[0] == pytest.approx([1 - np.exp(-2), 0, 2 - 2 * np.exp(-2)], rel=1e-5)
    assert remembered[1] == pytest.approx([1 - np.exp(-0.5), 0, 2 - 2 * np.exp(-0.5)], rel=1e-5)
    assert rarely[0, : state_size(4) + 6] == pytest.approx(described[0, : state_size(4) + 6], rel=1e-5)


def test_alternating_links_differ_from_a_steady_one() -> None:
    memory = LatenessMemory(2, 4)
    for turn in range(40):
        now = [1.0, 0.0] if turn // 2 % 2 else [0.0, 1.0]
        described = memory.take_in(states([[1, 0, 0], [*now, 0]]), np.array([25, 25]))
    apart = described[:, -3:]
    assert apart[0] == pytest.approx([0, 0, 0], abs=1e-6)
    assert apart[1, 0] > 0.4 and apart[1, 1] > 0.4


def test_a_new_or_restarted_run_has_an_empty_memory() -> None:
    memory, alone = RunsMemory(4), RunsMemory(4)
    for step in (0, 16, 32):
        memory.take_in(states([[2, 0, 0], [0, 3, 0]]), np.array([5, 6]), np.array([step, step]))
    described = memory.take_in(states([[1, 0, 0], [0, 1, 0]]), np.array([5, 7]), np.array([16, 48]))
    fresh = alone.take_in(states([[1, 0, 0], [0, 1, 0]]), np.array([5, 7]), np.array([16, 48]))
    assert np.array_equal(described, fresh)
