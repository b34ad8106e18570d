"""Rewards, boundaries and restarts of the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError, PlanError
from dtdg_lab.systems.feature_cache.actions import WINDOWS, CacheActions
from dtdg_lab.systems.feature_cache.simulation.cases import CacheCase, training_cases
from dtdg_lab.systems.feature_cache.simulation.episode import NO_NOISE, CacheNoise, draw_episode
from dtdg_lab.systems.feature_cache.simulation.simulator import CacheSimulator
from dtdg_lab.systems.feature_cache.simulation.training import training_costs

COSTS = training_costs(4)
ACTIONS = CacheActions(4)


def test_rewards_compare_with_the_reference_on_the_same_steps() -> None:
    settings = {"episodes": 12, "seed": 2, "epochs": 10, "penalty": 0.25}
    paper = CacheSimulator(COSTS, training_cases(), **settings)  # type: ignore[arg-type]
    saving = CacheSimulator(COSTS, training_cases(), reward="saved", **settings)  # type: ignore[arg-type]
    paper.reset()
    saving.reset()
    same, biased = np.full(12, ACTIONS.action(16)), np.full(12, ACTIONS.action(8, 2))
    assert paper.step(same)[1] == pytest.approx(-1)
    assert saving.step(same)[1] == pytest.approx(0)
    (_, rewards, _, info), (_, saved, *_) = paper.step(biased), saving.step(biased)
    assert info.changed.all()
    ratio = info.joules / info.reference_j
    np.testing.assert_allclose(rewards, -ratio - 0.25)
    np.testing.assert_allclose(saved, (1 - ratio) * 8 / 16 - 0.25)
    rewards, info = paper.step(biased)[1::2]
    assert not info.changed.any()
    np.testing.assert_allclose(rewards, -info.joules / info.reference_j)
    assert (np.abs(ratio - 1) > 1e-3).all()


def test_what_is_decided_holds_from_the_next_boundary_on() -> None:
    simulator = CacheSimulator(COSTS, [CacheCase("none", "x")], noise=NO_NOISE, epochs=10)
    simulator.reset(ACTIONS.action(4))
    assert simulator.views().steps.tolist() == [4]
    states = simulator.step([ACTIONS.action(128, 1)])[0]
    assert simulator.views().steps.tolist() == [132]
    hits = COSTS[0].step(4, np.zeros(3), np.inf, np.full(3, 1 / 3)).hits
    np.testing.assert_allclose(states[0, 3:6], hits, rtol=1e-6)  # of the window that ended, not of the one decided
    assert states[0, 12:].tolist() == [*[0] * 7, 1, 0, 1, 0]
    states = simulator.step([0])[0]
    np.testing.assert_allclose(states[0, 3:6], COSTS[0].step(128, np.zeros(3), np.inf, ACTIONS.shares(15 + 8)).hits)
    assert states[0, 11] == pytest.approx((25 - 133 % 25) / 25)
    assert simulator.views().steps_left.tolist() == [25 - 133 % 25]


def test_the_forecast_is_that_of_the_calibrated_costs() -> None:
    simulator = CacheSimulator(COSTS, training_cases()[:24], episodes=90, epochs=4)
    simulator.reset()
    views = simulator.views()
    delays_s = np.random.default_rng(0).random((90, 3)) * 0.02
    forecast = views.forecast(delays_s)
    for run in (0, 40, 80):
        costs = simulator.running[run].costs
        expected = [
            costs.step_s(ACTIONS.window(action), delays_s[run], np.inf, ACTIONS.shares(action)) for action in range(32)
        ]
        np.testing.assert_allclose(forecast[run], expected)
    assert {simulator.running[0].costs, simulator.running[40].costs} == set(COSTS)


def test_ended_runs_cost_nothing() -> None:
    simulator = CacheSimulator(COSTS, training_cases(), episodes=2, epochs=4)
    simulator.reset()
    while not simulator.done[0]:
        simulator.step([ACTIONS.action(128), ACTIONS.action(1)])
    assert not simulator.done[1]
    states, rewards, done, info = simulator.step([ACTIONS.action(8, 2), 0])
    assert (rewards[0], info.joules[0], info.seconds[0], info.steps[0], info.changed[0]) == (0, 0, 0, 0, False)
    assert done.tolist() == [True, False]
    assert info.joules[1] > 0
    assert np.isfinite(states).all()


def test_restarted_runs_equal_separate_ones() -> None:
    def followed(restart: bool, episodes: int, most: int) -> dict[int, list[tuple[float, ...]]]:
        """(reward, step, sum of the final state) of every decision of each episode, by its number."""
        simulator = CacheSimulator(COSTS, training_cases(), episodes=episodes, seed=7, epochs=6, restart=restart)
        simulator.reset()
        found: dict[int, list[tuple[float, ...]]] = {}
        for _ in range(most):
            views, live = simulator.views(), ~simulator.done
            actions = (views.runs * 5 + views.steps) % len(ACTIONS)
            _, rewards, _, info = simulator.step(actions)
            for run in np.flatnonzero(live):
                facts = (rewards[run], views.steps[run], float(info.final_states[run].sum()))
                found.setdefault(int(views.runs[run]), []).append(facts)
            if not restart and simulator.done.all():
                break
        return found

    again, once = followed(True, 5, 60), followed(False, 30, 400)
    assert list(again)[:5] == [0, 1, 2, 3, 4]
    assert sorted(again) == list(range(len(again)))
    assert len(again) > 8
    for number, facts in again.items():
        if number < 30:
            assert facts == once[number][: len(facts)]


def test_a_restarted_run_begins_with_the_states_of_a_new_one() -> None:
    simulator = CacheSimulator(COSTS, training_cases(), episodes=2, seed=1, epochs=4, restart=True)
    simulator.reset()
    done = np.zeros(2, dtype=bool)
    while not done.any():
        states, _, done, info = simulator.step([ACTIONS.action(128), ACTIONS.action(1)])
    fresh = CacheSimulator(COSTS, training_cases(), seed=1, epochs=4)
    np.testing.assert_array_equal(states[0], fresh.reset(number=2)[0])
    assert (info.final_states[0] != states[0]).any()
    np.testing.assert_array_equal(info.final_states[1], states[1])


def test_invalid_simulations_are_rejected() -> None:
    cases = training_cases()
    for wrong, words in (
        ({"episodes": 0}, "at least one episode"),
        ({"penalty": -1}, "0 or more"),
        ({"reward": "best"}, "'saved'"),
    ):
        with pytest.raises(ConfigError, match=words):
            CacheSimulator(COSTS, cases, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="needs cases"):
        CacheSimulator(COSTS)
    with pytest.raises(ConfigError, match="equal parts"):
        CacheSimulator([*COSTS, *training_costs(3)], cases)
    with pytest.raises(ConfigError, match="0 or more"):
        CacheNoise(step=-0.1)
    with pytest.raises(ConfigError, match="give one or more"):
        draw_episode(COSTS, [], 0, seed=0)
    simulator = CacheSimulator(COSTS, cases, episodes=2)
    with pytest.raises(PlanError, match="Call reset first"):
        simulator.step([0, 0])
    simulator.reset()
    for actions in ([0], [0, 33], [-1, 0]):
        with pytest.raises(PlanError, match="one each"):
            simulator.step(actions)
    assert len(WINDOWS) * 4 == 32
