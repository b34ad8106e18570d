"""A rebuild fetches what the current cache lacks, with one request per owner."""

from __future__ import annotations

import numpy as np

from dtdg_lab.systems.feature_cache.pipeline.cache_builder import CacheBuilder
from dtdg_lab.systems.feature_cache.pipeline.feature_path import FeaturePath
from dtdg_lab.systems.feature_cache.pipeline.window_plan import Epochs, WindowPlan, plan_window
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


def test_a_rebuild_with_one_part_fetches_nothing() -> None:
    world = World(parts=1)
    plan = plan_window(0, 0, FeaturePath(mode="windows"), part=0, parts=1, epochs=EPOCHS, decision=None)
    built, _ = CacheBuilder(0, world.space, 5).build(plan, [world.remote(0, 0)], Owners(world).open().fetch)
    assert len(built.cache) == 0
    assert plan.action == -1
