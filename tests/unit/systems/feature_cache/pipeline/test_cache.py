"""A rebuild fetches what the current cache lacks, with one request per owner."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.systems.feature_cache.actions import CacheActions
from dtdg_lab.systems.feature_cache.pipeline.cache import (
    CacheBuilder,
    FeatureCache,
    check_cache_memory,
    hot_set,
    hottest_first,
    quotas,
)
from dtdg_lab.systems.feature_cache.pipeline.window_plan import Epochs, WindowPlan
from tests.feature_world import Owners, World

EPOCHS = Epochs(steps=10)


def test_a_rebuild_sends_one_request_per_owner_and_copies_cached_rows() -> None:
    world = World(parts=3, snapshots=1)
    owners, builder = Owners(world), CacheBuilder(0, world.space, 5)
    plan = WindowPlan(0, 0, 4, np.array([0.5, 0.5]), 1000, "fixed")
    first, sent = builder.build(plan, [world.remote(step, 0) for step in range(4)], owners.open().fetch)
    assert (owners.rpcs, owners.rows, first.fetched, first.copied) == (2, len(first.cache), len(first.cache), 0)
    again, nothing = builder.build(plan, [world.remote(step, 0) for step in range(4)], owners.open().fetch, first.cache)
    assert (owners.rpcs, again.fetched, again.copied) == (2, 0, len(first.cache))
    assert [reply.owner for reply in sent] == [1, 2]
    assert nothing == []


@pytest.mark.parametrize("size", [100, 2**40])
def test_a_cache_finds_its_keys_only(size: int) -> None:
    cache = FeatureCache(np.array([3, 7, 99]), np.zeros((3, 2), np.float32), size=size)
    assert cache.find(np.array([99, 0, 3, 98, 7, 50])).tolist() == [2, -1, 0, -1, 1, -1]
    empty = FeatureCache(np.empty(0, np.int64), np.empty((0, 2), np.float32), size=size)
    assert empty.find(np.array([3, 0])).tolist() == [-1, -1]


def test_a_cache_cannot_be_changed() -> None:
    cache = FeatureCache(np.array([3]), np.zeros((1, 2), np.float32), size=9)
    for array in (cache.keys, cache.rows):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


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


def test_unused_quotas_go_to_the_hottest_remaining_rows() -> None:
    counts, owners = np.array([9, 8, 7, 6, 1]), np.array([0, 0, 0, 0, 1])
    hot = hot_set(hottest_first(counts), owners, np.array([0.5, 0.5]), 4)
    assert sorted(hot.tolist()) == [0, 1, 2, 4]


def test_a_biased_cache_holds_more_rows_of_the_preferred_owner() -> None:
    counts, owners = np.full(300, 2), np.repeat([0, 1, 2], 100)
    hot = hot_set(hottest_first(counts), owners, CacheActions(4).shares(8 * 2), 100)
    assert np.bincount(owners[hot]).tolist() == [20, 60, 20]
