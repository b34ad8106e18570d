"""The rows of a cache are the hottest ones within each owner's quota."""

from __future__ import annotations

import numpy as np

from dtdg_lab.systems.feature_cache.actions import CacheActions
from dtdg_lab.systems.feature_cache.pipeline.hot_set import hot_set, hottest_first, quotas


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
