"""Keys, caches, plans and schedules of windows: by hand, and against what may not pass."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError, PlanError, RunFailedError, UnknownNameError
from dtdg_lab.systems.feature_cache.actions import CacheActions
from dtdg_lab.systems.feature_cache.pipeline.cache_builder import BuiltCache, CacheBuilder
from dtdg_lab.systems.feature_cache.pipeline.cached_rows import FeatureCache, check_cache_memory
from dtdg_lab.systems.feature_cache.pipeline.feature_path import FeaturePath
from dtdg_lab.systems.feature_cache.pipeline.fetching import OwnerReply, fetch_into
from dtdg_lab.systems.feature_cache.pipeline.hot_set import hot_set, hottest_first, quotas
from dtdg_lab.systems.feature_cache.pipeline.keys import KeySpace, OwnRows
from dtdg_lab.systems.feature_cache.pipeline.lookahead import Lookahead
from dtdg_lab.systems.feature_cache.pipeline.window_plan import Epochs, WindowPlan, nearest_action, plan_window
from dtdg_lab.systems.feature_cache.pipeline.window_schedule import WindowSchedule
from dtdg_lab.systems.feature_cache.policies.interface import CacheDecision
from tests.feature_world import Owners, World

EPOCHS = Epochs(steps=10)


def test_keys_of_two_snapshots_by_hand() -> None:
    space = KeySpace(np.array([1, 0, 1]), parts=2, snapshots=2)
    assert space.size == 6
    assert space.key(np.array([0, 2]), np.array([1, 0])).tolist() == [3, 2]
    assert space.vertices(np.array([3, 5])).tolist() == [0, 2]
    assert space.owners(np.arange(6)).tolist() == [1, 0, 1, 1, 0, 1]
    assert space.of_part(1).tolist() == [0, 2, 3, 5]
    assert space.own_places(np.array([0, 2, 3, 5])).tolist() == [0, 1, 2, 3]
    assert space.own_places(np.array([1, 4])).tolist() == [0, 1]


def test_keys_of_features_that_never_change_are_vertices() -> None:
    space = KeySpace(np.array([1, 0, 1]), parts=3)
    assert space.key(np.array([2, 0]), 7).tolist() == [2, 0]
    assert space.own_places(np.array([2, 0])).tolist() == [1, 0]
    assert space.of_part(2).tolist() == []


@pytest.mark.parametrize(("owner", "parts", "snapshots"), [([0, 3], 3, 1), ([-1], 1, 1), ([], 1, 1), ([0], 1, 0)])
def test_keys_of_owners_that_are_no_parts_are_refused(owner: list[int], parts: int, snapshots: int) -> None:
    with pytest.raises(PlanError, match=r"parts are 0 to|at least one"):
        KeySpace(np.array(owner), parts, snapshots)


@pytest.mark.parametrize("snapshots", [1, 3])
def test_own_rows_are_those_of_indexing(snapshots: int) -> None:
    world = World(snapshots=snapshots)
    keys = np.random.default_rng(1).permutation(world.space.of_part(2))[:50]
    assert world.own(2).take(keys).tobytes() == world.rows[keys].tobytes()


def test_own_rows_that_do_not_fit_are_refused() -> None:
    world = World()
    rows = world.rows[world.space.of_part(0)]
    for wrong in (rows[:-1], rows.astype(np.float64), rows[:, 0]):
        with pytest.raises(PlanError, match=f"its {len(rows)} keys"):
            OwnRows(0, world.space, wrong)
    with pytest.raises(PlanError, match="parts are 0 to 2"):
        OwnRows(3, world.space, rows)


@pytest.mark.parametrize("size", [100, 2**40])
def test_a_cache_finds_what_it_holds_and_nothing_else(size: int) -> None:
    cache = FeatureCache(np.array([3, 7, 99]), np.zeros((3, 2), np.float32), size=size)
    assert cache.find(np.array([99, 0, 3, 98, 7, 50])).tolist() == [2, -1, 0, -1, 1, -1]
    assert FeatureCache.empty(2, size=size).find(np.array([3, 0])).tolist() == [-1, -1]
    assert cache.nbytes >= 24 + 24


def test_a_cache_cannot_be_changed() -> None:
    cache = FeatureCache(np.array([3]), np.zeros((1, 2), np.float32), size=9)
    for array in (cache.keys, cache.rows):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize("keys", [[2, 1], [1, 1], [-1, 1], [1, 9]])
def test_a_cache_of_keys_out_of_order_is_refused(keys: list[int]) -> None:
    with pytest.raises(PlanError, match="from 0 to 8"):
        FeatureCache(np.array(keys), np.zeros((2, 1), np.float32), size=9)
    with pytest.raises(PlanError, match="one row per key"):
        FeatureCache(np.array([1]), np.zeros((2, 1), np.float32), size=9)


def test_a_cache_larger_than_memory_is_refused_with_numbers() -> None:
    check_cache_memory(100, 400, available=80_000)
    with pytest.raises(ConfigError, match=r"cache_rows=101 .* 8\.08e-05 GB, and 8e-05 GB .* at most 100 rows"):
        check_cache_memory(101, 400, available=80_000)
    with pytest.raises(ConfigError, match=r"for each of 2 parts.*at most 50 rows"):
        check_cache_memory(100, 400, caches=2, available=80_000)
    with pytest.raises(ConfigError, match="exceeds memory"):
        check_cache_memory(10**12, 400)


def test_quotas_by_hand() -> None:
    assert quotas(10, np.array([0.6, 0.2, 0.2])).tolist() == [6, 2, 2]
    assert quotas(5, np.array([0.6, 0.2, 0.2])).tolist() == [3, 1, 1]
    assert quotas(4, np.full(3, 1 / 3)).tolist() == [2, 1, 1]
    assert quotas(4, np.empty(0)).tolist() == []
    for wrong in ([0.5, 0.4], [1.5, -0.5]):
        with pytest.raises(PlanError, match="summing to 1"):
            quotas(4, np.array(wrong))


def test_what_an_owner_leaves_unused_goes_to_the_hottest_others() -> None:
    counts, owners = np.array([9, 8, 7, 6, 1]), np.array([0, 0, 0, 0, 1])
    hot = hot_set(hottest_first(counts), owners, np.array([0.5, 0.5]), 4)
    assert sorted(hot.tolist()) == [0, 1, 2, 4]


def test_a_bias_holds_more_of_the_owner_it_prefers() -> None:
    counts, owners = np.full(300, 2), np.repeat([0, 1, 2], 100)
    hot = hot_set(hottest_first(counts), owners, CacheActions(4).shares(8 * 2), 100)
    assert np.bincount(owners[hot]).tolist() == [20, 60, 20]


def test_an_owner_that_sends_something_else_is_named() -> None:
    rows, keys, owners = np.zeros((2, 3), np.float32), np.array([4, 5]), np.array([2, 2])

    def wrong(wanted: object) -> dict[int, OwnerReply]:
        return {2: OwnerReply(2, np.zeros((2, 4), np.float32), 0.0, 0)}

    with pytest.raises(RunFailedError, match=r"part 2 sent \(2, 4\) for 2 rows of 3 features"):
        fetch_into(rows, np.arange(2), keys, owners, wrong)
    with pytest.raises(RunFailedError, match="part 2 sent nothing"):
        fetch_into(rows, np.arange(2), keys, owners, lambda wanted: {})


def test_a_rebuild_asks_each_owner_once_and_copies_what_it_has() -> None:
    world = World(parts=3, snapshots=1)
    owners, builder = Owners(world), CacheBuilder(0, world.space, 5)
    plan = WindowPlan(0, 0, 4, np.array([0.5, 0.5]), 1000, "fixed")
    first, sent = builder.build(plan, [world.remote(step, 0) for step in range(4)], owners.open().fetch)
    assert (owners.rpcs, owners.rows, first.fetched, first.copied) == (2, len(first.cache), len(first.cache), 0)
    again, nothing = builder.build(plan, [world.remote(step, 0) for step in range(4)], owners.open().fetch, first.cache)
    assert (owners.rpcs, again.fetched, again.copied) == (2, 0, len(first.cache))
    assert [reply.owner for reply in sent] == [1, 2]
    assert nothing == []


def test_a_rebuild_in_a_world_of_one_part_fetches_nothing() -> None:
    world = World(parts=1)
    plan = plan_window(0, 0, FeaturePath(mode="windows"), part=0, parts=1, epochs=EPOCHS, decision=None)
    built, _ = CacheBuilder(0, world.space, 5).build(plan, [world.remote(0, 0)], Owners(world).open().fetch)
    assert len(built.cache) == 0
    assert plan.action == -1


def test_nothing_ahead_is_nothing_seen() -> None:
    space = World().space
    seen = Lookahead(3, [], space, part=0, capacity=5, serving=None).outlook(4, np.array([0.5, 0.5]))
    assert (seen.steps, seen.copied, seen.asked.tolist(), seen.missed.tolist()) == (0, 0, [0, 0], [0, 0])


def _plan(path: FeaturePath, first: int = 13, decision: CacheDecision | None = None, **others: object) -> WindowPlan:
    given = {"part": 1, "parts": 4, "epochs": EPOCHS} | others
    return plan_window(2, first, path, decision=decision, **given)  # type: ignore[arg-type]


def test_a_fixed_window_may_have_any_length_and_prefer_a_part() -> None:
    plan = _plan(FeaturePath.of_policy("fixed", window=16, bias=3, capacity=50))
    assert (plan.length, plan.biased, plan.capacity, plan.policy) == (16, 3, 50, "fixed")
    assert plan.action == CacheActions(4).action(16, 2)
    np.testing.assert_allclose(plan.shares, [0.2, 0.2, 0.6])
    odd = _plan(FeaturePath.of_policy("fixed", window=7))
    assert (odd.length, odd.action, odd.nearest_action(1)) == (7, -1, CacheActions(4).action(8))


def test_a_part_that_is_preferred_itself_shares_its_cache_equally() -> None:
    plan = _plan(FeaturePath.of_policy("fixed", bias=1))
    assert plan.biased == -1
    np.testing.assert_allclose(plan.shares, 1 / 3)


def test_two_parts_can_only_prefer_each_other() -> None:
    plan = _plan(FeaturePath.of_policy("fixed", bias=0), parts=2)
    assert plan.shares.tolist() == [1.0]


def test_a_decision_is_planned_as_it_says() -> None:
    action = CacheActions(4).action(64, 1)
    plan = _plan(FeaturePath.of_policy("planner", window=5, bias=3), decision=CacheDecision("planner", action))
    assert (plan.length, plan.biased, plan.action, plan.policy) == (64, 2, action, "planner")
    assert plan.nearest_action(1) == action


def test_an_epoch_s_cache_lasts_to_its_end_and_no_window_beyond_the_run() -> None:
    path = FeaturePath.of_policy("epoch_hot", window=3)
    assert [_plan(path, first).length for first in (10, 13, 19, 20)] == [10, 7, 1, 10]
    assert _plan(path, 13, epochs=Epochs(10, first=4)).length == 1
    ending = Epochs(10, stop=15)
    assert _plan(path, 13, epochs=ending).length == 2
    assert _plan(FeaturePath.of_policy("fixed"), 13, epochs=ending).length == 2


def test_the_nearest_window_is_that_by_ratio() -> None:
    assert [CacheActions(3).window(nearest_action(window, None, 3)) for window in (1, 3, 11, 12, 1000)] == [
        1, 4, 8, 16, 128,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "mode", "decides"),
    [
        ("on_demand", "on_demand", False),
        ("prefetch", "prefetch", False),
        ("epoch_hot", "epoch_hot", False),
        ("fixed", "windows", False),
        ("double_dqn", "windows", True),
    ],
)
def test_a_policy_names_its_mode(policy: str, mode: str, decides: bool) -> None:
    path = FeaturePath.of_policy(policy, window=4, bias=2, ahead=9, depth=7)
    assert (path.mode, path.policy, path.decides, path.depth) == (mode, policy, decides, 7)
    assert path.biased == (2 if policy == "fixed" else None)
    assert path.ahead == (9 if decides else 0)


def test_a_path_with_a_number_out_of_range_is_refused() -> None:
    for name in ("window", "capacity", "depth"):
        with pytest.raises(ConfigError, match=f"{name}=0"):
            FeaturePath(mode="windows", **{name: 0})
    with pytest.raises(ConfigError, match="biased=-1"):
        FeaturePath(mode="windows", biased=-1)
    with pytest.raises(UnknownNameError, match="Did you mean 'prefetch'"):
        FeaturePath(mode="prefetched")


def _ready(schedule: WindowSchedule, path: FeaturePath, epochs: Epochs = EPOCHS) -> None:
    order, schedule.order = schedule.order, None
    assert order is not None
    plan = plan_window(order.number, order.first, path, part=0, parts=2, epochs=epochs, decision=None)
    cache = FeatureCache.empty(1, size=4)
    schedule.offer(order, BuiltCache(plan, cache, 0, 0, np.zeros(2, np.int64), 0.0))


def test_windows_follow_each_other_and_late_ones_last_from_their_swap() -> None:
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


def test_what_was_ordered_before_a_change_is_dropped() -> None:
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


def test_nothing_is_ordered_beyond_the_run() -> None:
    path, epochs = FeaturePath.of_policy("fixed", window=4), Epochs(10, stop=4)
    schedule = WindowSchedule(epochs)
    schedule.begin(0, path, first=True)
    _ready(schedule, path, epochs)
    assert schedule.swap_at(0, path) is not None
    assert schedule.order is None
