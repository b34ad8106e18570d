"""Baseline policies decide by their rules, for one run as for many."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.core.errors import PlanError
from dtdg_lab.systems.feature_cache.actions import CacheActions
from dtdg_lab.systems.feature_cache.costs.cache_costs import cache_choices
from dtdg_lab.systems.feature_cache.policies.baselines import EpochHot, FixedWindow, RandomWindows, ThresholdWindow
from dtdg_lab.systems.feature_cache.policies.interface import CacheView, CacheViews
from dtdg_lab.systems.feature_cache.simulation.cases import comparison_cases
from dtdg_lab.systems.feature_cache.simulation.comparison import run_policy
from dtdg_lab.systems.feature_cache.simulation.simulator import CacheSimulator
from dtdg_lab.systems.feature_cache.simulation.training import training_costs
from tests.feature_world import view_of

COSTS = training_costs(4)
ACTIONS = CacheActions(4)


def view(delays_ms: tuple[float, ...] = (0.0, 0.0, 0.0), step: int = 0) -> CacheView:
    return CacheView(np.zeros(23, np.float32), np.array(delays_ms) / 1e3, step, 25, ACTIONS.action(16))


def views(delays_ms: np.ndarray, step: int = 0) -> CacheViews:
    runs = np.arange(len(delays_ms))
    return CacheViews(
        np.zeros((len(runs), 23), np.float32),
        delays_ms / 1e3,
        np.full_like(runs, step),
        np.full_like(runs, 25),
        np.full_like(runs, ACTIONS.action(16)),
        lambda delays_s: np.zeros((len(delays_s), 32)),
        runs,
        np.full_like(runs, step),
        np.zeros_like(runs),
    )


@pytest.mark.parametrize(
    ("delays_ms", "window"),
    [((0, 0, 0), 16), ((1.9, 1.9, 1.9), 16), ((0, 2.0, 0), 8), ((9.9, 0, 3), 8), ((0, 0, 10.0), 4), ((0, 500, 0), 4)],
)
def test_the_threshold_goes_by_the_latest_owner(delays_ms: tuple[float, ...], window: int) -> None:
    decision = ThresholdWindow(ACTIONS).decide(view(delays_ms))
    assert (decision.policy, decision.action, decision.values) == ("threshold", ACTIONS.action(window), ())


@pytest.mark.parametrize(("given", "windows"), [(64, (64, 32, 16)), (2, (2, 1, 1)), (1, (1, 1, 1)), (25, (16, 8, 4))])
def test_a_threshold_s_windows_are_those_of_actions(given: int, windows: tuple[int, ...]) -> None:
    policy = ThresholdWindow(ACTIONS, given)
    chosen = policy.decide_all(views(np.array([[0.0] * 3, [5.0] * 3, [50.0] * 3])))
    assert [ACTIONS.window(action) for action in chosen] == list(windows)
    assert policy.first == ACTIONS.action(windows[0])


def test_random_windows_are_drawn_evenly_and_again() -> None:
    policy = RandomWindows(ACTIONS, seed=1, part=2)
    drawn = [policy.decide(view(step=step)).action for step in range(3200)]
    assert drawn[:50] == [RandomWindows(ACTIONS, seed=1, part=2).decide(view(step=step)).action for step in range(50)]
    assert drawn[:50] != [RandomWindows(ACTIONS, seed=2, part=2).decide(view(step=step)).action for step in range(50)]
    counts = np.bincount(drawn, minlength=32)
    assert ((counts - 100) ** 2 / 100).sum() < 70  # chi-squared of 31 degrees of freedom: 1 in 10,000
    decision = policy.decide(view())
    assert (decision.epsilon, decision.greedy) == (1.0, False)
    assert policy.decide_all(views(np.zeros((3, 3)), step=9))[2] == policy.decide(view(step=9)).action


def test_fixed_windows_are_fixed() -> None:
    policy = FixedWindow(ACTIONS, 8, 1)
    assert policy.decide(view((90.0, 0, 0))).action == policy.first == ACTIONS.action(8, 1)
    with pytest.raises(PlanError, match="window=25"):
        FixedWindow(ACTIONS, 25)
    with pytest.raises(PlanError, match="at least one step"):
        ThresholdWindow(ACTIONS, 0)


def test_deciding_for_all_is_deciding_for_each() -> None:
    delays_ms = np.random.default_rng(0).exponential(6.0, (40, 3))
    for policy in (FixedWindow(ACTIONS, 4), ThresholdWindow(ACTIONS)):
        many = views(delays_ms)
        each = [policy.decide(view_of(many, place)).action for place in range(40)]
        np.testing.assert_array_equal(each, policy.decide_all(many))


def simulator(**settings: object) -> CacheSimulator:
    return CacheSimulator(COSTS[:1], comparison_cases()[::7], episodes=6, epochs=6, **settings)  # type: ignore[arg-type]


def test_one_cache_for_each_epoch_is_rebuilt_where_epochs_begin() -> None:
    runs = run_policy(simulator(epoch_steps=23), EpochHot(ACTIONS))
    assert all([first for first, _ in run] == list(range(0, 138, 23)) for run in runs.windows)
    assert (runs.decisions == 5).all()
    choices = cache_choices(4, 23)
    even = choices.per_epoch
    assert (choices.windows[even], choices.allocations[even], choices.shares[even].tolist()) == (23, 0, [1 / 3] * 3)
    assert [choices.allocations[ACTIONS.action(16, biased)] for biased in (None, 0, 1, 2)] == [0, 1, 2, 3]
