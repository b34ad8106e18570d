"""Hot sets and caches against slow references, on whatever hypothesis finds."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.systems.feature_cache.pipeline.cache import (
    CacheBuilder,
    FeatureCache,
    hot_set,
    hottest_first,
    key_counts,
    quotas,
)
from dtdg_lab.systems.feature_cache.pipeline.resolving import resolve
from dtdg_lab.systems.feature_cache.pipeline.window_plan import WindowPlan
from dtdg_lab.systems.feature_cache.pipeline.window_schedule import Lookahead
from tests.feature_world import Batch, Owners, World

PARTS = 4
WORLD = World(nodes=30, parts=PARTS, snapshots=2, features=3, seed=5)
PART = 1
OTHERS = [0, 2, 3]

keys = st.lists(st.integers(0, WORLD.space.size - 1), max_size=40, unique=True).map(lambda of: np.array(of, np.int64))
batches = st.lists(keys, max_size=6)
weights = st.lists(st.integers(0, 10), min_size=3, max_size=3).filter(any)


def _shares(weights: list[int]) -> np.ndarray:
    return np.array(weights) / sum(weights)


def _slow_hot_set(counts: list[int], owners: list[int], quota: list[int], capacity: int) -> set[int]:
    """One key after the other, the hottest first: within its owner's quota, then whoever is left."""
    order = sorted(range(len(counts)), key=lambda place: (-counts[place], place))
    held, used = [], Counter[int]()
    for place in order:
        if used[owners[place]] < quota[owners[place]]:
            held.append(place)
            used[owners[place]] += 1
    for place in order:
        if len(held) < capacity and place not in held:
            held.append(place)
    return set(held)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 2)), max_size=50), weights, st.integers(1, 60))
def test_hot_set_is_the_slow_one(asked: list[tuple[int, int]], weights: list[int], capacity: int) -> None:
    counts, owners = (np.array([pair[place] for pair in asked], dtype=np.int64) for place in (0, 1))
    found = hot_set(hottest_first(counts), owners, _shares(weights), capacity)
    quota = quotas(capacity, _shares(weights)).tolist()
    assert set(found.tolist()) == _slow_hot_set(counts.tolist(), owners.tolist(), quota, capacity)
    assert len(found) == len(set(found.tolist())) == min(capacity, len(counts))


@given(st.lists(st.integers(2**15 - 2, 2**15 + 2), max_size=20))
def test_counts_of_any_size_are_put_in_order(counts: list[int]) -> None:
    order = hottest_first(np.array(counts, dtype=np.int64))
    assert order.tolist() == sorted(range(len(counts)), key=lambda place: (-counts[place], place))


@given(st.integers(0, 1000), weights)
def test_quotas_share_out_the_whole_capacity(capacity: int, weights: list[int]) -> None:
    found = quotas(capacity, _shares(weights))
    assert found.sum() == capacity
    assert (np.abs(found - _shares(weights) * capacity) < 1 + 1e-6).all()


@given(batches, st.sampled_from((WORLD.space.size, 2**40)))
def test_keys_are_counted_with_and_without_a_counter_for_each(asked: list[np.ndarray], size: int) -> None:
    found, counts = key_counts(asked, size)
    expected = Counter(int(key) for batch in asked for key in batch)
    assert dict(zip(found.tolist(), counts.tolist(), strict=True)) == expected
    assert (np.diff(found) > 0).all()


@given(keys, keys, keys, st.sampled_from((WORLD.space.size, 2**40)))
def test_any_cache_gives_bitwise_the_rows_of_indexing(
    asked: np.ndarray, held: np.ndarray, before: np.ndarray, size: int
) -> None:
    held = np.sort(held[WORLD.space.owners(held) != PART])
    owners, batch = Owners(WORLD), Batch(asked)
    resolved, replies = resolve(
        0, batch, WORLD.own(PART), owners.open().fetch, cache=FeatureCache(held, WORLD.rows[held], size=size), window=7
    )
    assert resolved.rows.tobytes() == WORLD.rows[asked].tobytes()
    remote = [int(key) for key in asked if WORLD.space.owner[key % WORLD.space.nodes] != PART]
    hits, misses = [0] * PARTS, [0] * PARTS
    for key in remote:
        (hits if key in held else misses)[WORLD.space.owner[key % WORLD.space.nodes]] += 1
    facts = resolved.facts
    assert (facts.hits.tolist(), facts.misses.tolist(), facts.remote) == (hits, misses, len(remote))
    assert facts.rpcs == owners.rpcs == sum(map(bool, misses)) == len(replies)
    assert facts.nbytes == owners.nbytes
    assert owners.rows == sum(misses)


@given(batches, batches, weights, st.integers(1, 50))
def test_a_rebuilt_cache_holds_the_hot_rows_and_fetches_only_new_ones(
    earlier: list[np.ndarray], later: list[np.ndarray], weights: list[int], capacity: int
) -> None:
    owners, builder = Owners(WORLD), CacheBuilder(PART, WORLD.space, WORLD.rows.shape[1])
    plan = WindowPlan(0, 0, 6, _shares(weights), capacity, "x")
    asked = [[batch[WORLD.space.owners(batch) != PART] for batch in batches] for batches in (earlier, later)]
    first, _ = builder.build(plan, asked[0], owners.open().fetch)
    fetched = owners.rows
    built, replies = builder.build(plan, asked[1], owners.open().fetch, first.cache)
    held = set(built.cache.keys.tolist())
    assert built.cache.rows.tobytes() == WORLD.rows[built.cache.keys].tobytes()
    assert built.copied == len(held & set(first.cache.keys.tolist()))
    assert built.fetched == len(held) - built.copied == owners.rows - fetched
    assert built.by_owner.sum() == len(held)
    assert built.by_owner[PART] == 0
    assert sum(len(reply.rows) for reply in replies) == built.fetched
    _looked_ahead_truly(asked[1], first.cache, plan, built)


def _looked_ahead_truly(asked: list[np.ndarray], serving: FeatureCache, plan: WindowPlan, built) -> None:
    seen = Lookahead(0, asked, WORLD.space, part=PART, capacity=plan.capacity, serving=serving).outlook(6, plan.shares)
    missed = np.zeros(PARTS)
    for batch in asked:
        missed += np.bincount(WORLD.space.owners(batch[built.cache.find(batch) < 0]), minlength=PARTS)
    assert seen.steps == len(asked)
    np.testing.assert_allclose(seen.missed * max(len(asked), 1), missed[OTHERS], atol=1e-9)
    assert seen.fetched.sum() == built.fetched
    assert seen.copied == built.copied
