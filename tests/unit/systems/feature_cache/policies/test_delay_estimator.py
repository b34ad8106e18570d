"""Estimated delays recover injected ones."""

from __future__ import annotations

from time import perf_counter

import numpy as np
import pytest

from dtdg_lab.systems.feature_cache.costs.rpc_model import RpcModel
from dtdg_lab.systems.feature_cache.policies.delay_estimator import DelayEstimator
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


@pytest.mark.slow  # a benchmark
def test_a_decision_costs_little():
    estimator = received(0.02, seed=3)
    spent = []
    for _ in range(50):
        began = perf_counter()
        estimator.delays_s()
        spent.append(perf_counter() - began)
    assert min(spent) < 200e-6
