"""The feature pipeline gives the same rows in every mode, ahead of training."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError, RunFailedError
from dtdg_lab.energy.readers import Reading
from dtdg_lab.systems.feature_cache.actions import CacheActions
from dtdg_lab.systems.feature_cache.pipeline.cache import hot_set, hottest_first, key_counts
from dtdg_lab.systems.feature_cache.pipeline.feature_path import FeaturePath
from dtdg_lab.systems.feature_cache.pipeline.feature_pipeline import FeaturePipeline
from dtdg_lab.systems.feature_cache.pipeline.fetching import OwnerReply
from dtdg_lab.systems.feature_cache.pipeline.observations import Boundary, StepTime
from dtdg_lab.systems.feature_cache.pipeline.resolving import Sampled
from dtdg_lab.systems.feature_cache.policies.interface import CacheDecision
from tests.feature_world import Owners, World
from tests.thinning import thinned

PART, EPOCH = 1, 12
JOULES = Reading(
    joules=3.0, interval_s=1.0, watts=3.0, source="counter", reader="rapl-share", scope="rank", device="processor"
)
PATHS = {
    "on_demand": FeaturePath(mode="on_demand"),
    "prefetch": FeaturePath(mode="prefetch", depth=2),
    "epoch_hot": FeaturePath(mode="epoch_hot", capacity=40),
    "fixed": FeaturePath.of_policy("fixed", window=3, bias=2, capacity=30, depth=1),
    "every step": FeaturePath.of_policy("fixed", window=1, capacity=20),
    "decides": FeaturePath.of_policy("turning", window=2, capacity=30, ahead=8),
}


def _turning(boundary: Boundary) -> CacheDecision:
    """Every window and allocation in turn."""
    return CacheDecision("turning", (5 * boundary.number) % len(CacheActions(boundary.parts)))


@contextmanager
def _running(
    path: FeaturePath, owners: Owners, *, first: int = 0, **others: Any
) -> Iterator[tuple[FeaturePipeline, World]]:
    world = owners.world
    given: dict[str, Any] = {"sample": world.sample, "epoch_steps": EPOCH, "decide": _turning} | others
    pipeline = FeaturePipeline(world.own(PART), fetcher=owners.open, path=path, **given)
    try:
        pipeline.start(first)
        yield pipeline, world
    finally:
        pipeline.close()


def _take(pipeline: FeaturePipeline, world: World, step: int) -> None:
    resolved = pipeline.next(step)
    keys = world.batch(step).keys
    assert resolved.facts.step == step
    assert resolved.sampled.keys.tolist() == keys.tolist()
    assert resolved.rows.tobytes() == world.rows[keys].tobytes()


def _until(true: Callable[[], object], seconds: float = 30.0) -> None:
    end = time.perf_counter() + seconds
    while not true():
        assert time.perf_counter() < end, "it did not happen in time"
        time.sleep(0.002)


def _built(pipeline: FeaturePipeline) -> None:
    """Wait until the cache of the next window is there."""
    assert pipeline._stages
    schedule = pipeline._stages._schedule
    _until(lambda: schedule.pending)


def _alive() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("features-")]


@pytest.mark.parametrize("path", PATHS.values(), ids=list(PATHS))
def test_every_mode_gives_the_rows_of_indexing_and_counts_what_it_sends(path: FeaturePath) -> None:
    owners = Owners(World())
    with _running(path, owners, stop=30) as (pipeline, world):
        for step in range(30):
            _take(pipeline, world, step)
        pipeline.check()
    rows = pipeline.take_rows()
    for step, (part, _window, remote, hits, misses, rpcs, _nbytes, _resolve_s, wait_s) in enumerate(rows["resolved"]):
        asked = np.bincount(world.space.owners(world.remote(step, PART)), minlength=3)
        assert part == PART
        assert np.add(hits, misses).tolist() == asked.tolist()
        assert remote == asked.sum()
        assert rpcs == sum(map(bool, misses))
        assert wait_s >= 0
    misses = sum(sum(row[4]) for row in rows["resolved"])
    fetched = sum(row[7 + 4] for row in rows["windows"])
    miss_rpcs = [row for row in rows["fetches"] if row[2] == "miss"]
    assert len(rows["fetches"]) == owners.rpcs
    assert sum(row[3] for row in rows["fetches"]) == owners.rows >= misses + fetched
    assert sum(row[4] for row in rows["fetches"]) == owners.nbytes
    assert sum(row[3] for row in miss_rpcs) == misses
    assert sum(row[4] for row in miss_rpcs) == sum(row[6] for row in rows["resolved"])
    assert (sum(sum(row[3]) for row in rows["resolved"]) > 0) == path.caches
    assert pipeline.take_rows() == {"resolved": [], "fetches": [], "windows": []}
    assert owners.opened == owners.closed
    assert max(world.asked) < 30


def test_hits_equal_those_of_a_brute_force_cache() -> None:
    owners, path = Owners(World(seed=3)), FeaturePath.of_policy("fixed", window=6, bias=2, capacity=25, depth=1)
    with _running(path, owners) as (pipeline, world):
        for step in range(48):
            _built(pipeline)
            _take(pipeline, world, step)
    rows, on_time = pipeline.take_rows(), 0
    for window in rows["windows"]:
        number, first, length, late = window[1:5]
        if late:
            continue  # its batches were counted from another step on
        on_time += 1
        keys, counts = key_counts([world.remote(step, PART) for step in range(first, first + length)], 2**40)
        owner = world.space.owners(keys)
        hot = hot_set(hottest_first(counts), owner - (owner > PART), np.array([0.4, 0.6]), 25)
        held = keys[hot]
        assert window[9] == len(hot)
        assert window[12] == np.bincount(owner[hot], minlength=3).tolist()
        for step, row in enumerate(rows["resolved"]):
            if row[1] == number:
                asked = world.remote(step, PART)
                missed = world.space.owners(asked[~np.isin(asked, held)])
                assert row[4] == np.bincount(missed, minlength=3).tolist()
    assert on_time >= 2


class _Bulk:
    """Lets fetches pass, but holds the builder's up until the gate opens, or so long; some first ones pass freely."""

    def __init__(self, seconds: float, *, free: int = 1) -> None:
        self.gate, self.seconds, self.free, self.begun = threading.Event(), seconds, free, 0

    def __call__(self, wanted: Mapping[int, NDArray[np.int64]]) -> None:
        if "builder" in threading.current_thread().name:
            self.begun += 1
            if self.begun > self.free:
                self.gate.wait(self.seconds)


@pytest.mark.slow
def test_training_never_waits_for_a_rebuild_and_a_late_swap_is_counted() -> None:
    bulk = _Bulk(1.0)
    owners = Owners(World(), before=bulk)
    with _running(FeaturePath.of_policy("fixed", window=4, capacity=30), owners) as (pipeline, world):
        _take(pipeline, world, 0)
        began, longest, steps = time.perf_counter(), 0.0, count(1)
        while time.perf_counter() - began < 1.2:
            before = time.perf_counter()
            _take(pipeline, world, next(steps))
            longest = max(longest, time.perf_counter() - before)
            time.sleep(0.01)
        bulk.gate.set()
        rows = pipeline.take_rows()
    assert longest < 0.4
    first, second = rows["windows"][:2]
    assert (first[2], first[4]) == (0, 0)
    assert second[2] == 4
    assert second[4] > 20
    assert second[13] > 1.0
    assert second[14] == 0.0
    served = [row[1] for row in rows["resolved"]]
    assert served[: second[2] + second[4]] == [0] * (second[2] + second[4])
    assert served[second[2] + second[4]] == 1


def test_the_wait_for_the_first_cache_is_recorded() -> None:
    owners = Owners(World(), before=_Bulk(0.2, free=0))
    with _running(PATHS["fixed"], owners) as (pipeline, world):
        _take(pipeline, world, 0)
        rows = pipeline.take_rows()
        assert rows["resolved"][0][1] == 0
        assert rows["resolved"][0][8] < 0.15
        assert 0.1 < rows["windows"][0][14] < 1.0
        assert rows["windows"][0][13] > 0.2


def test_a_cache_is_never_seen_half_swapped() -> None:
    owners, seen, wrong, over = Owners(World()), {}, [], threading.Event()

    def hammer(pipeline: FeaturePipeline) -> None:
        while not over.is_set():
            cache = pipeline.serving
            if cache is not None:
                seen[id(cache)] = cache  # kept, so that no other one gets its id
                if cache.rows[:, 0].astype(np.int64).tolist() != cache.keys.tolist():
                    wrong.append(cache)

    with _running(PATHS["every step"], owners) as (pipeline, world):
        readers = [threading.Thread(target=hammer, args=(pipeline,)) for _ in range(1)]
        for reader in readers:
            reader.start()
        step = 0
        while step < 100 or (len(seen) < 3 and step < 5000):  # the reader may get no turn on a loaded machine
            _take(pipeline, world, step)
            step += 1
        over.set()
        for reader in readers:
            reader.join()
        swaps = len(pipeline.take_rows()["windows"])
    assert swaps > 5
    assert len(seen) > 2
    assert wrong == []


def test_settings_change_between_any_two_steps() -> None:
    owners, random = Owners(World()), np.random.default_rng(0)
    paths = list(PATHS.values())
    pairs = [(before, after) for before in paths for after in paths if before is not after]
    random.shuffle(pairs)  # type: ignore[arg-type]
    with _running(paths[0], owners) as (pipeline, world):
        step = 0
        for before, after in pairs:
            for path in (before, after):
                pipeline.apply_settings(path)
                for _ in range(int(random.integers(1, 4))):
                    _take(pipeline, world, step)
                    step += 1
        pipeline.apply_settings(PATHS["fixed"])
        steps = count(step)
        _until(lambda: _take(pipeline, world, next(steps)) or pipeline.serving)
        served = pipeline.serving
        pipeline.apply_settings(PATHS["prefetch"])
        assert pipeline.serving is None
        pipeline.check()
    assert served is not None
    assert sum(row[3] for row in pipeline.take_rows()["fetches"]) == owners.rows


def test_another_window_begins_at_once_and_the_old_cache_serves_until_it_is_there() -> None:
    bulk = _Bulk(10.0)
    owners = Owners(World(), before=bulk)
    with _running(FeaturePath.of_policy("fixed", window=1000, capacity=30), owners) as (pipeline, world):
        for step in range(5):
            _take(pipeline, world, step)
        before = pipeline.serving
        pipeline.apply_settings(FeaturePath.of_policy("fixed", window=4, capacity=30))
        for step in range(5, 15):
            _take(pipeline, world, step)
        assert pipeline.serving is before
        bulk.gate.set()
        steps = count(15)
        _until(lambda: _take(pipeline, world, next(steps)) or pipeline.serving is not before)
        assert [row[3] for row in pipeline.take_rows()["windows"]][:2] == [1000, 4]


def test_a_start_in_the_middle_of_a_window_begins_one_there() -> None:
    owners = Owners(World())
    with _running(PATHS["fixed"], owners) as (pipeline, world):
        for step in range(5):
            _take(pipeline, world, step)
        pipeline.take_rows()
        pipeline.start(7)
        for step in range(7, 12):
            _take(pipeline, world, step)
        number, first, length = pipeline.take_rows()["windows"][0][1:4]
        assert (number, first, length) == (0, 7, 3)
    assert owners.opened == owners.closed


def test_an_epoch_s_cache_lasts_from_the_start_to_the_epoch_s_end() -> None:
    with _running(FeaturePath.of_policy("epoch_hot"), Owners(World()), first=8) as (pipeline, world):
        for step in range(8, 30):
            _built(pipeline)
            _take(pipeline, world, step)
        rows = pipeline.take_rows()
    windows = rows["windows"]
    assert [row[2] for row in windows] == [8, 12, 24]
    assert windows[0][3] == 4
    assert all(row[3] == 12 for row in windows[1:] if not row[4])  # a late one was counted from a later step
    first = [row for row in rows["resolved"] if row[1] == 0]
    assert len(first) >= 4
    assert all(sum(row[4]) == 0 for row in first[:4])


def test_a_boundary_counts_since_the_last_swap() -> None:
    seen: list[Boundary] = []
    starting: list[bool] = []

    def decide(boundary: Boundary) -> CacheDecision:
        seen.append(boundary)
        return CacheDecision("mine", CacheActions(3).action(4, boundary.number % 2))

    owners = Owners(World())
    path = FeaturePath.of_policy("mine", window=5, capacity=20, ahead=16)
    with _running(path, owners, decide=decide, stop=48) as (pipeline, world):
        for step in range(48):
            if step < 36:
                _built(pipeline)
            _take(pipeline, world, step)
            starting.append(pipeline.is_starting(step))
            pipeline.stepped(StepTime(0.5 + step, () if step % 2 else (JOULES,), step=step, starts=starting[-1]))
            time.sleep(0.002)
        rows = pipeline.take_rows()
    second = 5 + seen[1].late_steps + 4
    assert [(of.step, of.number, of.steps_left, of.previous) for of in seen[:2]] == [
        (5, 1, 7, CacheActions(3).action(4)),  # 5 steps are none of the actions' windows; 4 is the nearest
        (second, 2, EPOCH - second % EPOCH, CacheActions(3).action(4, 1)),
    ]
    for row in rows["windows"][1:]:
        preferred = row[1] % 2
        assert row[5:8] == ("mine", CacheActions(3).action(4, preferred), (0, 2)[preferred])
    assert sum(of.served for of in seen[1:]) > 10
    for of in seen:
        assert of.parts == 3
        assert of.remote[PART] == of.hits[PART] == 0
        assert (of.hits <= of.remote).all()
        assert of.lookahead.first == of.step
    hits = np.sum([row[3] for row in rows["resolved"][: sum(of.served for of in seen)]], axis=0)
    assert np.sum([of.hits for of in seen], axis=0).tolist() == hits.tolist()
    assert {fetch.purpose for of in seen for fetch in of.fetches} == {"miss", "bulk"}
    described = [step for of in seen for step in of.stepped]
    assert [step.seconds for step in described] == [0.5 + step for step in range(len(described))]
    assert [step.readings for step in described[:2]] == [(JOULES,), ()]
    assert max(of.lookahead.steps for of in seen) >= 8
    assert not starting[-1] and starting == sorted(starting, reverse=True)
    assert seen[0].decision_cpu_s == 0.0 and all(of.decision_cpu_s > 0.0 for of in seen[1:])


@pytest.mark.parametrize("policy", ["turning", "fixed"])
def test_steps_are_a_run_s_start_until_the_pipeline_is_filled(policy: str) -> None:
    world, may_sample = World(), threading.Event()

    def sample(step: int) -> Sampled:
        if step >= 6:
            may_sample.wait(30)
        return world.sample(step)

    path = FeaturePath.of_policy(policy, window=4, capacity=20, ahead=8, depth=1)
    with _running(path, Owners(world), sample=sample) as (pipeline, _):
        for step in range(5):
            _take(pipeline, world, step)
            assert pipeline.is_starting(step)
        may_sample.set()
        _until(lambda: not pipeline.is_starting(5))
        assert pipeline.is_starting(4), "what was trained before stays so"
        pipeline.apply_settings(replace(path, capacity=10))
        assert pipeline.is_starting(6)


def test_a_window_longer_than_the_path_looks_ahead_is_decided_while_the_one_before_serves() -> None:
    """The sampler stops 16 steps past the window that serves: a decision that waited for 64 came at its last step."""
    seen: list[Boundary] = []

    def decide(boundary: Boundary) -> CacheDecision:
        seen.append(boundary)
        return CacheDecision("mine", CacheActions(3).action(16))

    path = FeaturePath.of_policy("mine", window=64, capacity=20, ahead=16)
    with _running(path, Owners(World()), decide=decide) as (pipeline, world):
        _take(pipeline, world, 0)
        _until(lambda: seen)
        assert seen[0].step == 64 and seen[0].lookahead.steps == 16
        assert seen[0].now <= 1 + path.depth, "nothing more was taken by training"


@pytest.mark.parametrize("abandons", [True, False])
def test_a_window_is_abandoned_where_links_change_and_both_rebuilds_are_counted(abandons: bool) -> None:
    early: list[Boundary] = []
    changed = 0

    def decide(boundary: Boundary) -> CacheDecision | None:
        if not boundary.early:
            return CacheDecision("mine", CacheActions(3).action(32))
        early.append(boundary)
        return CacheDecision("mine", CacheActions(3).action(16, 1)) if abandons else None

    def watch(replies: Sequence[OwnerReply], step: int) -> bool:
        nonlocal changed
        changed += step >= 8 and not changed
        return changed == 1 and step >= 8 and not early

    path = FeaturePath.of_policy("mine", window=32, capacity=20, ahead=64)
    with _running(path, Owners(World()), decide=decide, watch=watch, stop=64) as (pipeline, world):
        assert pipeline._stages
        schedule = pipeline._stages._schedule
        for step in range(64):
            if step < 8:
                _built(pipeline)
            if step == 12:
                _until(lambda: early and (not abandons or schedule.ends < 32))
            _take(pipeline, world, step)
        rows = pipeline.take_rows()
    assert [(of.previous, of.pending) for of in early[:1]] == [(CacheActions(3).action(32), CacheActions(3).action(32))]
    assert 0 < early[0].left <= 32 - 8 and 8 <= early[0].now < 32
    bulk = [row for row in rows["fetches"] if row[2] == "bulk"]
    built = sum(row[11] for row in rows["windows"])
    windows = [row[2] for row in rows["windows"]]
    if abandons:
        assert 8 < windows[1] < 32 and rows["windows"][1][7] == 2, "the second window began early, with a preference"
        assert sum(row[3] for row in bulk) > built, "the cache that was thrown away was fetched, too"
    else:
        assert windows[:2] == [0, 32]


def _at_five(step: int) -> None:
    if step == 5:
        raise ValueError("a bad batch")


@pytest.mark.parametrize("path", PATHS.values(), ids=list(PATHS))
def test_an_exception_of_the_sampler_reaches_training(path: FeaturePath) -> None:
    world = World()

    def sample(step: int) -> Any:
        _at_five(step)
        return world.batch(step)

    with _running(path, Owners(world), sample=sample) as (pipeline, _):
        with pytest.raises((RunFailedError, ValueError), match="a bad batch") as raised:
            for step in range(6):
                pipeline.next(step)
        if path.runs_ahead:
            assert isinstance(raised.value.__cause__, ValueError)
            with pytest.raises(RunFailedError, match="sampler of part 1's features"):
                pipeline.check()
            with pytest.raises(RunFailedError):
                pipeline.next(6)
            _until(lambda: not _alive())


@pytest.mark.parametrize("who", ["builder", "resolver"])
def test_an_owner_that_does_not_answer_is_named_in_training(who: str) -> None:
    def before(wanted: object) -> None:
        if who in threading.current_thread().name:
            raise RunFailedError("part 2 did not answer part 1 for 10.0 s.")

    with _running(PATHS["fixed"], Owners(World(), before=before)) as (pipeline, _):
        with pytest.raises(RunFailedError, match=f"the {who} of part 1's features failed: .*part 2 did not") as raised:
            for step in range(50):
                pipeline.next(step)
        assert isinstance(raised.value.__cause__, RunFailedError)
    assert not _alive()


def test_an_exception_of_a_policy_reaches_training() -> None:
    def decide(boundary: Boundary) -> CacheDecision:
        raise ZeroDivisionError

    with (
        _running(PATHS["decides"], Owners(World()), decide=decide) as (pipeline, _),
        pytest.raises(RunFailedError, match=r"builder.*ZeroDivisionError"),
    ):
        for step in range(5000):  # the builder may get no turn on a loaded machine
            pipeline.next(step)
            time.sleep(0.001)


@pytest.mark.parametrize("who", thinned(["resolver", "builder", "sampler"], [2]))
def test_close_waits_for_no_stuck_thread(who: str) -> None:
    gate, stuck, world = threading.Event(), threading.Event(), World()

    def block(_: object) -> None:
        if who in threading.current_thread().name:
            stuck.set()
            gate.wait(10)

    def sample(step: int) -> Any:
        block(step)
        return world.batch(step)

    owners = Owners(world, before=block)
    with _running(PATHS["fixed"], owners, sample=sample) as (pipeline, _):
        waiting: list[BaseException] = []
        trainer = threading.Thread(target=_train, args=(pipeline, waiting))
        trainer.start()
        assert stuck.wait(5)
        began = time.perf_counter()
        pipeline.close()
        assert time.perf_counter() - began < 3.0
        pipeline.close()
    trainer.join(5)
    assert isinstance(waiting[0], RunFailedError | PlanError)
    gate.set()
    _until(lambda: not _alive())
    assert owners.opened == owners.closed


def _train(pipeline: FeaturePipeline, failed: list[BaseException]) -> None:
    try:
        for step in count():
            pipeline.next(step)
    except (RunFailedError, PlanError) as error:
        failed.append(error)


@pytest.mark.parametrize("path", PATHS.values(), ids=list(PATHS))
def test_it_may_be_closed_at_any_time(path: FeaturePath) -> None:
    owners = Owners(World())
    for steps in range(4):
        with _running(path, owners) as (pipeline, world):
            for step in range(steps):
                _take(pipeline, world, step)
            began = time.perf_counter()
            pipeline.close()
            assert time.perf_counter() - began < 3.0
    assert not _alive()
    assert owners.opened == owners.closed
    with pytest.raises(PlanError, match="has not started"):
        pipeline.next(0)


def test_batches_beyond_the_limit_are_forgotten_and_sampled_again() -> None:
    world = World()
    limit = 3 * world.batch(0).nbytes
    path = FeaturePath(mode="epoch_hot", depth=2, ahead_bytes=limit)
    held = []
    with _running(path, Owners(world), stop=EPOCH) as (pipeline, _):
        for step in range(EPOCH):
            _take(pipeline, world, step)
            held.append(pipeline.held_bytes)
    assert sorted(set(world.asked)) == list(range(EPOCH))
    assert EPOCH < len(world.asked) <= 2 * EPOCH
    assert max(held) <= limit + 3 * world.batch(0).nbytes


def test_no_batch_is_sampled_twice_where_all_may_be_held() -> None:
    world = World()
    with _running(PATHS["fixed"], Owners(world), stop=30) as (pipeline, _):
        for step in range(30):
            _take(pipeline, world, step)
    assert sorted(world.asked) == list(range(30))


def test_no_more_batches_are_prepared_than_may_wait() -> None:
    world = World()
    with _running(FeaturePath(mode="prefetch", depth=3), Owners(world)) as (pipeline, _):
        _take(pipeline, world, 0)
        _until(lambda: len(world.asked) == 8)  # one was taken, three wait with their features, and four without
        time.sleep(0.05)
        assert sorted(world.asked) == list(range(8))
        resolved = sum(row[2] == "miss" for row in pipeline.take_rows()["fetches"])
    assert resolved <= 4 * 2  # four batches of two owners


def test_a_step_out_of_turn_is_refused() -> None:
    with _running(PATHS["fixed"], Owners(World()), first=4, stop=6) as (pipeline, world):
        with pytest.raises(PlanError, match=r"step 5 was requested, but 4 is next. Call start\(5\)"):
            pipeline.next(5)
        _take(pipeline, world, 4)
        _take(pipeline, world, 5)
        with pytest.raises(PlanError, match="the run stops at 6"):
            pipeline.next(6)


def test_one_part_fetches_nothing() -> None:
    owners = Owners(World(parts=1))
    for path in PATHS.values():
        pipeline = FeaturePipeline(
            owners.world.own(0),
            sample=owners.world.sample,
            fetcher=owners.open,
            path=path,
            epoch_steps=4,
            decide=_turning,
        )
        pipeline.start(0)
        for step in range(9):
            _take(pipeline, owners.world, step)
        pipeline.close()
    assert owners.rpcs == 0
