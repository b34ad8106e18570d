"""Windows follow each other, and caches of superseded orders are dropped."""

from __future__ import annotations

import numpy as np

from dtdg_lab.systems.feature_cache.pipeline.cache import BuiltCache, FeatureCache
from dtdg_lab.systems.feature_cache.pipeline.feature_path import FeaturePath
from dtdg_lab.systems.feature_cache.pipeline.window_plan import Epochs, plan_window
from dtdg_lab.systems.feature_cache.pipeline.window_schedule import Lookahead, WindowSchedule
from tests.feature_world import World

EPOCHS = Epochs(steps=10)


def _ready(schedule: WindowSchedule, path: FeaturePath, epochs: Epochs = EPOCHS) -> None:
    order, schedule.order = schedule.order, None
    assert order is not None
    plan = plan_window(order.number, order.first, path, part=0, parts=2, epochs=epochs, decision=None)
    cache = FeatureCache(np.empty(0, np.int64), np.empty((0, 1), np.float32), size=4)
    schedule.offer(order, BuiltCache(plan, cache, 0, 0, np.zeros(2, np.int64), 0.0))


def test_a_late_window_lasts_from_its_swap() -> None:
    path, schedule = FeaturePath.of_policy("fixed", window=4), WindowSchedule(EPOCHS)
    schedule.begin(2, path, first=True)
    assert schedule.swap_at(2, path) is None
    _ready(schedule, path)
    swap = schedule.swap_at(2, path)
    assert swap is not None
    assert (swap.due, swap.late_steps, schedule.ends) == (2, 0, 6)
    _ready(schedule, path)
    assert [schedule.swap_at(step, path) for step in (3, 4, 5)] == [None] * 3
    assert schedule.serving is swap.built
    swap = schedule.swap_at(6, path)
    assert swap is not None
    assert (swap.built.plan.number, schedule.ends) == (1, 10)
    assert schedule.swap_at(10, path) is None
    _ready(schedule, path)
    swap = schedule.swap_at(12, path)
    assert swap is not None
    assert (swap.due, swap.late_steps, schedule.ends) == (10, 2, 16)


def test_an_epoch_s_late_cache_does_not_move_the_next_epoch_s() -> None:
    path, schedule = FeaturePath.of_policy("epoch_hot"), WindowSchedule(EPOCHS)
    schedule.begin(3, path, first=True)
    _ready(schedule, path)
    assert schedule.swap_at(3, path) is not None
    assert schedule.ends == 10
    _ready(schedule, path)
    swap = schedule.swap_at(14, path)
    assert swap is not None
    assert (swap.late_steps, schedule.ends) == (4, 20)


def test_orders_before_a_change_of_settings_are_dropped() -> None:
    path, schedule = FeaturePath.of_policy("fixed", window=4), WindowSchedule(EPOCHS)
    schedule.begin(0, path, first=True)
    _ready(schedule, path)
    first = schedule.swap_at(0, path)
    order = schedule.order
    assert order is not None
    assert first is not None
    other = FeaturePath.of_policy("fixed", window=8)
    schedule.begin(1, other, first=False)
    assert not schedule.current(order)
    schedule.offer(order, first.built)
    assert schedule.swap_at(4, other) is None
    assert schedule.serving is first.built
    schedule.begin(5, FeaturePath.of_policy("prefetch"), first=False)
    assert schedule.serving is None
    assert schedule.order is None


def test_no_cache_is_ordered_beyond_the_run() -> None:
    path, epochs = FeaturePath.of_policy("fixed", window=4), Epochs(10, stop=4)
    schedule = WindowSchedule(epochs)
    schedule.begin(0, path, first=True)
    _ready(schedule, path, epochs)
    assert schedule.swap_at(0, path) is not None
    assert schedule.order is None


def test_an_empty_lookahead_predicts_zeros() -> None:
    space = World().space
    seen = Lookahead(3, [], space, part=0, capacity=5, serving=None).outlook(4, np.array([0.5, 0.5]))
    assert (seen.steps, seen.copied, seen.requested.tolist(), seen.missed.tolist()) == (0, 0, [0, 0], [0, 0])
