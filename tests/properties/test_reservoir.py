"""A reservoir holds what it may, hands out by Equation 4, and stands many threads."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.plans import BatchSize
from dtdg_lab.core.rng import generator
from dtdg_lab.systems.hybrid_batches.reservoir import GIB, Reservoir, ReservoirLevel, capacity, check_fits
from dtdg_lab.systems.hybrid_batches.sampler import TargetSampler, load_groups

CAPACITIES = st.lists(st.integers(1, 6), min_size=1, max_size=4)
SIZES = st.lists(st.integers(0, 40), max_size=30)
UNIFORM = st.floats(0, 1, exclude_max=True)


def filled(capacities: list[int], limit_bytes: int, sizes: list[int]) -> Reservoir[str]:
    """Batches of some bytes, put one after another into each action, as one generator an action does."""
    reservoir: Reservoir[str] = Reservoir(capacities, limit_bytes)
    for action in range(len(capacities)):
        for index, nbytes in enumerate(sizes):
            if not reservoir.has_room(action):
                break
            reservoir.put(action, index, f"{action}/{index}", nbytes)
    return reservoir


@given(CAPACITIES, st.integers(4, 200), SIZES)
def test_neither_batches_nor_bytes_are_ever_more_than_allowed(capacities, limit, sizes):
    reservoir = filled(capacities, limit, sizes)
    levels = reservoir.levels()
    assert [level.capacity for level in levels] == capacities
    assert all(level.held <= level.capacity and level.nbytes <= limit // len(capacities) for level in levels)
    assert sum(level.nbytes for level in levels) <= limit
    for action, level in enumerate(levels):
        assert level.nbytes == sum(sizes[: level.held])
        full = level.held == level.capacity
        no_room = level.held < len(sizes) and level.nbytes + sizes[level.held] > limit // len(capacities)
        assert reservoir.has_room(action) == (not full and not no_room)  # it is closed when it should be, and only then


@given(CAPACITIES, st.integers(4, 200), SIZES)
def test_what_is_held_are_the_first_numbers(capacities, limit, sizes):
    reservoir = filled(capacities, limit, sizes)
    for action, level in enumerate(reservoir.levels()):
        held = [reservoir.get(action, index) for index in range(len(sizes))]
        assert held == [f"{action}/{index}" if index < level.held else None for index in range(len(sizes))]


@given(CAPACITIES, SIZES, UNIFORM, UNIFORM)
def test_a_batch_is_taken_by_equation_4(capacities, sizes, u, v):
    reservoir = filled(capacities, 10**6, sizes)
    for action, level in enumerate(reservoir.levels()):
        taken = reservoir.take(action, u, v)
        assert (taken is not None) == (u < level.held / level.capacity)
        if taken is not None:
            index, batch = taken
            assert index == int(v * level.held)
            assert batch == f"{action}/{index}" == reservoir.get(action, index)
    assert reservoir.levels() == filled(capacities, 10**6, sizes).levels()  # what is taken stays


def test_batches_are_taken_as_often_as_equation_4_says_and_each_as_often():
    reservoir = filled([10], 10**6, [1] * 4)
    stream, rounds = generator(0, "test/reservoir"), 4000
    seen = Counter(taken[0] for taken in (reservoir.take(0, *stream.random(2)) for _ in range(rounds)) if taken)
    assert abs(sum(seen.values()) / rounds - 0.4) < 5 * np.sqrt(0.4 * 0.6 / rounds)
    assert sorted(seen) == [0, 1, 2, 3]
    assert max(abs(count / rounds - 0.1) for count in seen.values()) < 5 * np.sqrt(0.1 * 0.9 / rounds)


def test_an_empty_one_gives_nothing_and_a_full_one_always():
    reservoir: Reservoir[str] = Reservoir([2], 10)
    assert reservoir.take(0, 0.0, 0.0) is None
    assert reservoir.put(0, 0, "a", 1)
    assert reservoir.put(0, 0, "again", 1)  # held already: the first stays
    assert reservoir.levels() == [ReservoirLevel(1, 2, 1, 1)]
    assert reservoir.put(0, 1, "b", 1)
    assert not reservoir.put(0, 2, "c", 1)
    assert not reservoir.has_room(0)
    almost = np.nextafter(1.0, 0.0)
    assert reservoir.take(0, almost, almost) == (1, "b")
    reservoir.clear()
    assert (reservoir.levels(), reservoir.has_room(0), reservoir.get(0, 0)) == (
        [ReservoirLevel(0, 2, 0, 0)],
        True,
        None,
    )


def test_batches_of_one_content_count_as_one():
    reservoir: Reservoir[str] = Reservoir([5], 10)
    for index, content in enumerate((7, 7, 8)):
        assert reservoir.put(0, index, "a", 1, content)
    assert reservoir.levels() == [ReservoirLevel(3, 5, 3, 2)]
    reservoir.drop(0, 2)
    assert reservoir.levels() == [ReservoirLevel(2, 5, 2, 1)]


def test_an_action_that_met_its_bytes_takes_no_smaller_batch_either():
    reservoir: Reservoir[str] = Reservoir([5, 5], 20)
    assert reservoir.put(0, 0, "a", 8)
    assert not reservoir.put(0, 1, "b", 3)
    assert not reservoir.put(0, 2, "c", 1)
    assert reservoir.put(1, 0, "d", 10)  # the other action has its own share
    assert [(level.held, level.nbytes) for level in reservoir.levels()] == [(1, 8), (1, 10)]


class SlowBytes(int):
    """A number whose sums take long enough for another thread to come in between."""

    def __radd__(self, other: int) -> int:
        time.sleep(0.02)
        return int(self) + other


def test_a_second_thread_cannot_put_while_a_first_one_does():
    reservoir: Reservoir[int] = Reservoir([1], 100)
    start = threading.Barrier(3)
    put: list[bool] = []

    def write(index: int) -> None:
        start.wait()
        put.append(reservoir.put(0, index, index, SlowBytes(4)))

    threads = [threading.Thread(target=write, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(put) == [False, False, True]
    assert reservoir.levels() == [ReservoirLevel(1, 1, 4, 1)]


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns every few microseconds, so that what is not locked breaks."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty")
def test_threads_that_put_and_take_at_once_lose_nothing():
    actions, writers, each = 3, 4, 150
    reservoir: Reservoir[tuple[int, int]] = Reservoir([writers * each - 7] * actions, 10**9)
    failed: list[BaseException] = []
    start = threading.Barrier(writers * actions + 2)

    def write(action: int, first: int) -> None:
        start.wait()
        for index in range(first, writers * each, writers):
            reservoir.put(action, index, (action, index), 2)

    def read(number: int) -> None:
        stream = generator(0, "test/reader", number)
        start.wait()
        try:
            for _ in range(400):
                action = int(stream.integers(actions))
                taken = reservoir.take(action, *stream.random(2))
                assert taken is None or taken[1] == (action, taken[0])
                assert all(level.nbytes == 2 * level.held <= 2 * level.capacity for level in reservoir.levels())
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(action, k)) for action in range(actions) for k in range(writers)]
    threads += [threading.Thread(target=read, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert failed == []
    full = writers * each - 7
    assert reservoir.levels() == [ReservoirLevel(full, full, 2 * full, full)] * actions
    for action in range(actions):
        held = [index for index in range(writers * each) if reservoir.get(action, index) == (action, index)]
        assert len(held) == full


# sizes


@given(st.integers(1, 60), st.integers(1, 500), st.integers(1, 9), st.data())
def test_all_batches_of_an_action_are_its_share_of_the_part(snapshots, vertices, actions, data):
    size = BatchSize(data.draw(st.integers(1, snapshots)), data.draw(st.integers(1, vertices)))
    most = capacity(size, snapshots=snapshots, vertices=vertices, actions=actions)
    assert most == max(1, int(vertices * snapshots / (size.snapshots * size.vertices) / actions + 1e-9))
    assert most == 1 or most * size.targets * actions <= vertices * snapshots


def test_capacities_of_the_paper_s_sizes():
    sizes = [BatchSize(20, 5), BatchSize(60, 100), BatchSize(200, 1000)]
    assert [capacity(size, snapshots=200, vertices=1000, actions=9) for size in sizes] == [222, 3, 1]


def test_a_reservoir_that_cannot_hold_one_batch_of_each_size_is_refused():
    sizes = [BatchSize(6, 5), BatchSize(6, 50)]
    check_fits([100, 500], 1000, sizes)  # half of it each
    with pytest.raises(ConfigError) as caught:
        check_fits([100, GIB // 4], GIB // 4, sizes)
    said = str(caught.value)
    assert "268,435,456 bytes, 134,217,728 for each of 2 batch sizes" in said
    assert "one batch of 6 snapshots x 50 targets, which takes 268,435,456 bytes" in said
    assert "reservoir_gib to 0.5 or more" in said


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=9), st.integers(1, 10**6))
def test_what_is_let_through_fits(batch_bytes, limit):
    sizes = [BatchSize(1, 1)] * len(batch_bytes)
    reservoir: Reservoir[int] = Reservoir([3] * len(batch_bytes), limit)
    held = [reservoir.put(action, 0, 0, nbytes) for action, nbytes in enumerate(batch_bytes)]
    if all(held):
        check_fits(batch_bytes, limit, sizes)
    else:
        with pytest.raises(ConfigError, match="cannot hold one batch"):
            check_fits(batch_bytes, limit, sizes)


# what is put into it


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 12), st.integers(0, 5), st.data())
def test_every_batch_is_inside_the_training_part_and_the_candidates(vertices, snapshots, groups, index, data):
    candidates = np.array(sorted(data.draw(st.sets(st.integers(0, vertices - 1), min_size=1))))
    size = BatchSize(data.draw(st.integers(1, snapshots)), data.draw(st.integers(1, len(candidates))))
    loads = generator(0, "test/loads", vertices).integers(0, 5, vertices).astype(float)
    train = range(3, 3 + snapshots)
    drawn = TargetSampler(1, 0, load_groups(loads, candidates, groups), train)
    batch = drawn.batch(size, 0, index)
    assert batch.size == size
    assert batch.snapshots.start in train
    assert batch.snapshots[-1] in train
    assert set(batch.targets) <= set(candidates)
    stand_in = drawn.snapshot_batch(size, index)
    assert len(stand_in.snapshots) == size.snapshots
    assert np.array_equal(stand_in.targets, candidates)
