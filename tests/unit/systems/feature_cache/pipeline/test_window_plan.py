"""A window's length and shares follow the settings or the decision of a policy."""

from __future__ import annotations

import numpy as np

from dtdg_lab.systems.feature_cache.actions import CacheActions
from dtdg_lab.systems.feature_cache.pipeline.feature_path import FeaturePath
from dtdg_lab.systems.feature_cache.pipeline.window_plan import Epochs, WindowPlan, nearest_action, plan_window
from dtdg_lab.systems.feature_cache.policies.interface import CacheDecision

EPOCHS = Epochs(steps=10)


def _plan(path: FeaturePath, first: int = 13, decision: CacheDecision | None = None, **others: object) -> WindowPlan:
    given = {"part": 1, "parts": 4, "epochs": EPOCHS} | others
    return plan_window(2, first, path, decision=decision, **given)  # type: ignore[arg-type]


def test_a_fixed_window_has_any_length_and_preferred_part() -> None:
    plan = _plan(FeaturePath.of_policy("fixed", window=16, bias=3, capacity=50))
    assert (plan.length, plan.biased, plan.capacity, plan.policy) == (16, 3, 50, "fixed")
    assert plan.action == CacheActions(4).action(16, 2)
    np.testing.assert_allclose(plan.shares, [0.2, 0.2, 0.6])
    odd = _plan(FeaturePath.of_policy("fixed", window=7))
    assert (odd.length, odd.action, odd.nearest_action(1)) == (7, -1, CacheActions(4).action(8))


def test_a_preference_for_the_own_part_gives_equal_shares() -> None:
    plan = _plan(FeaturePath.of_policy("fixed", bias=1))
    assert plan.biased == -1
    np.testing.assert_allclose(plan.shares, 1 / 3)


def test_with_two_parts_the_other_gets_the_whole_cache() -> None:
    plan = _plan(FeaturePath.of_policy("fixed", bias=0), parts=2)
    assert plan.shares.tolist() == [1.0]


def test_a_window_follows_the_decision() -> None:
    action = CacheActions(4).action(64, 1)
    plan = _plan(FeaturePath.of_policy("planner", window=5, bias=3), decision=CacheDecision("planner", action))
    assert (plan.length, plan.biased, plan.action, plan.policy) == (64, 2, action, "planner")
    assert plan.nearest_action(1) == action


def test_an_epoch_s_cache_lasts_to_its_end_and_no_window_beyond_the_run() -> None:
    path = FeaturePath.of_policy("epoch_hot", window=3)
    assert [_plan(path, first).length for first in (10, 13, 19, 20)] == [10, 7, 1, 10]
    ending = Epochs(10, stop=15)
    assert _plan(path, 13, epochs=ending).length == 2
    assert _plan(FeaturePath.of_policy("fixed"), 13, epochs=ending).length == 2


def test_the_nearest_action_is_nearest_by_ratio() -> None:
    assert [CacheActions(3).window(nearest_action(window, None, 3)) for window in (1, 3, 11, 12, 1000)] == [
        1,
        4,
        8,
        16,
        128,
    ]
