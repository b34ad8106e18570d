"""Keys number rows by snapshot and vertex, and own rows are found by key."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.systems.feature_cache.pipeline.keys import KeySpace
from tests.feature_world import World


def test_keys_of_two_snapshots_by_hand() -> None:
    space = KeySpace(np.array([1, 0, 1]), parts=2, snapshots=2)
    assert space.size == 6
    assert space.key(np.array([0, 2]), np.array([1, 0])).tolist() == [3, 2]
    assert space.vertices(np.array([3, 5])).tolist() == [0, 2]
    assert space.owners(np.arange(6)).tolist() == [1, 0, 1, 1, 0, 1]
    assert space.of_part(1).tolist() == [0, 2, 3, 5]
    assert space.own_places(np.array([0, 2, 3, 5])).tolist() == [0, 1, 2, 3]
    assert space.own_places(np.array([1, 4])).tolist() == [0, 1]


def test_keys_of_static_features_are_vertices() -> None:
    space = KeySpace(np.array([1, 0, 1]), parts=3)
    assert space.key(np.array([2, 0]), 7).tolist() == [2, 0]
    assert space.own_places(np.array([2, 0])).tolist() == [1, 0]
    assert space.of_part(2).tolist() == []


@pytest.mark.parametrize("snapshots", [1, 3])
def test_own_rows_are_those_of_indexing(snapshots: int) -> None:
    world = World(snapshots=snapshots)
    keys = np.random.default_rng(1).permutation(world.space.of_part(2))[:50]
    assert world.own(2).take(keys).tobytes() == world.rows[keys].tobytes()
