"""A cache finds its rows, cannot be changed, and is rejected where memory is too small."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.systems.feature_cache.pipeline.cached_rows import FeatureCache, check_cache_memory


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
