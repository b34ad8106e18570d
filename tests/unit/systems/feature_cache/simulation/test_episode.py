"""Episodes cost what their steps do, repeat by seed, and report delays like live runs."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.systems.feature_cache.actions import CacheActions
from dtdg_lab.systems.feature_cache.costs.cache_costs import CacheCosts
from dtdg_lab.systems.feature_cache.policies.delay_estimator import DelayEstimator
from dtdg_lab.systems.feature_cache.simulation.cases import (
    ALL_STEADY,
    STEADY,
    CacheCase,
    comparison_cases,
    training_cases,
)
from dtdg_lab.systems.feature_cache.simulation.episode import NO_NOISE, CacheEpisode, CacheNoise, draw_episode
from dtdg_lab.systems.feature_cache.simulation.simulator import REFERENCE, CacheSimulator
from dtdg_lab.systems.feature_cache.simulation.training import training_costs

COSTS = training_costs(4)
ACTIONS = CacheActions(4)
SLOW = CacheCase("one_slow", "bad", 0.02)


def slow_cost(episode: CacheEpisode, costs: CacheCosts, order: list[tuple[int, int]]) -> tuple[float, float]:
    """Joules and seconds of windows (first step, action), step by step."""
    joules = seconds = 0.0
    for (first, action), end in zip(order, [*(first for first, _ in order[1:]), episode.steps], strict=True):
        for step in range(first, end):
            at = episode.trace.which[step]
            links = episode.trace.delay_s[at], episode.trace.bytes_per_s[at]
            cost = costs.step(ACTIONS.window(action), *links, ACTIONS.shares(action))
            joules += float(cost.joules) * episode.noise[step]
            seconds += float(cost.seconds) * episode.noise[step]
    return joules, seconds


@pytest.mark.parametrize("case", comparison_cases()[3::7], ids=lambda case: case.name)
def test_windows_cost_what_their_steps_do(case: CacheCase) -> None:
    random = np.random.default_rng(1)
    noise = CacheNoise(step=0.3, constants=0.0)
    simulator = CacheSimulator(COSTS, [case], episodes=2, seed=5, epochs=9, epoch_steps=20, noise=noise)
    simulator.reset()
    orders = [[(0, ACTIONS.action(REFERENCE))] for _ in range(2)]
    sums = simulator.first_window()
    joules, seconds = sums.joules, sums.seconds
    while not simulator.done.all():
        actions = random.integers(0, len(ACTIONS), 2)
        steps = simulator.views().steps
        for run in np.flatnonzero(~simulator.done):
            orders[run].append((int(steps[run]), int(actions[run])))
        info = simulator.step(actions)[3]
        joules, seconds = joules + info.joules, seconds + info.seconds
    for run, (episode, order) in enumerate(zip(simulator.running, orders, strict=True)):
        assert episode.costs == COSTS[run]
        expected_j, expected_s = slow_cost(episode, COSTS[run], order)
        assert joules[run] == pytest.approx(expected_j, rel=1e-9)
        assert seconds[run] == pytest.approx(expected_s, rel=1e-9)
        windows = np.diff([first for first, _ in order])
        assert windows.tolist() == [ACTIONS.window(action) for _, action in order[:-1]]


def test_episodes_depend_on_seed_and_number_alone() -> None:
    def states(episodes: int, seed: int, number: int) -> np.ndarray:
        simulator = CacheSimulator(COSTS, training_cases(), episodes=episodes, seed=seed, epochs=8)
        simulator.reset(number=number)
        for _ in range(4):
            last = simulator.step(np.full(episodes, ACTIONS.action(32)))[0]
        return last

    np.testing.assert_array_equal(states(20, 0, 0)[12:15], states(3, 0, 12))
    assert (states(20, 0, 0) != states(20, 1, 0)).any(axis=1).all()
    one, other = (draw_episode(COSTS, training_cases(), number, seed=0) for number in (4, 4 + len(training_cases())))
    assert one.case == other.case
    assert one.costs != other.costs


def received(case: CacheCase, noise: CacheNoise = NO_NOISE) -> tuple[np.ndarray, CacheEpisode]:
    """(S, P - 1) delays heard before each step of a run with W = 1."""
    simulator = CacheSimulator(COSTS[:1], [case], seed=4, noise=noise, epochs=16, epoch_steps=20)
    simulator.reset(ACTIONS.action(1))
    delays = [simulator.views().delays_s[0]]
    while not simulator.done[0]:
        simulator.step([ACTIONS.action(1)])
        delays.append(simulator.views().delays_s[0])
    return np.array(delays), simulator.running[0]


def test_a_delay_is_known_two_fetches_after_it_began() -> None:
    """With the median of 30 fetches it took 15."""
    delays, episode = received(SLOW)
    met = episode.trace.delay_s[episode.trace.which]
    onset = int(met.any(axis=1).argmax())
    assert not delays[: onset + 2].any()
    np.testing.assert_allclose(delays[onset + 2 : onset + 60], met[onset : onset + 58], rtol=1e-12)
    assert episode.alarms[onset + 2] and not episode.alarms[: onset + 2].any()
    assert met.max() == pytest.approx(0.02)


@pytest.mark.slow
def test_a_slow_link_appears_as_the_delay_of_its_bytes() -> None:
    rate = 1e6
    delays, _ = received(CacheCase("one_slow", "x", 0.0, rate))
    shares = np.full(3, 1 / 3)
    misses = COSTS[0].row_bytes * COSTS[0].rows / 3 * (1 - COSTS[0].step(1, np.zeros(3), np.inf, shares).hits[0])
    assert misses > 0 or delays.max() == 0
    assert delays.max() == pytest.approx(misses * (1 / rate - 1 / COSTS[0].link_bytes_per_s))
    for case, owners in ((STEADY, 1), (ALL_STEADY, 3)):
        steady, _ = received(CacheCase(case, "x", 0.05))  # the warm-up was no cleaner: other owners and a probe were
        assert (np.isclose(steady[1:], 0.05, rtol=1e-6).sum(axis=1) == owners).all(), case


def test_simulated_delays_equal_those_of_the_live_estimator() -> None:
    delays, episode = received(SLOW, CacheNoise(step=0.0, meter=0.0, constants=0.0, baseline=0.0))
    estimator, random = DelayEstimator(3), np.random.default_rng(0)
    met = episode.trace.delay_s[episode.trace.which]
    live = [estimator.delays_s()]
    for step in range(episode.steps - 1):
        for owner in range(3):
            rtt_s = episode.fetch_s[owner] * np.exp(0.2 * random.standard_normal()) + met[step, owner]
            estimator.add(owner, float(rtt_s), 1000.0, epoch=step // 20)
        live.append(estimator.delays_s())
    owner = int(met.any(axis=0).argmax())
    onset = int(met[:, owner].astype(bool).argmax())
    for heard_s in (np.array(live)[:, owner], delays[:, owner]):
        assert heard_s[45 : onset + 1].max() < 0.3 * 0.02
        assert np.median(heard_s[onset + 20 : onset + 60]) == pytest.approx(0.02, rel=0.1)
        assert 2 <= np.argmax(heard_s[onset:] > 0.01) <= 4
