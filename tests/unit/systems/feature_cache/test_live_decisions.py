"""Do forecasts tell throttled links from late ones, plans follow what is foreseen, and baselines outlive a rebuild?"""

from __future__ import annotations

import numpy as np
import pytest

import dtdg_lab as lab
from dtdg_lab.core.errors import DataError
from dtdg_lab.network.patterns import load_trace, make_pattern
from dtdg_lab.systems.feature_cache.actions import CacheActions
from dtdg_lab.systems.feature_cache.calibration.shipped import reddit
from dtdg_lab.systems.feature_cache.pipeline.fetching import OwnerReply
from dtdg_lab.systems.feature_cache.pipeline.keys import KeySpace
from dtdg_lab.systems.feature_cache.pipeline.lookahead import Lookahead, Outlook
from dtdg_lab.systems.feature_cache.pipeline.observations import Boundary, FetchTime
from dtdg_lab.systems.feature_cache.policies.change_points import LOOK_AGAIN
from dtdg_lab.systems.feature_cache.policies.clairvoyant import STRETCH, ForeseenWindows, clairvoyant_of
from dtdg_lab.systems.feature_cache.policies.control import CacheControl
from dtdg_lab.systems.feature_cache.policies.delay_estimator import DelayEstimator
from dtdg_lab.systems.feature_cache.policies.interface import CacheDecision, CacheView
from dtdg_lab.systems.feature_cache.policies.live_forecast import LiveForecast
from dtdg_lab.systems.feature_cache.policies.planner import CachePlanner
from dtdg_lab.systems.feature_cache.simulation.link_trace import trace_of_pattern

ROW_BYTES, START_S = 400, 1e-3


class Fetch:
    def __init__(self, owner: int, nbytes: int, rtt_s: float) -> None:
        self.owner, self.nbytes, self.rtt_s = owner, nbytes, rtt_s


class Heard:
    """A boundary of part 0 of 2, after fetches of a few and of many rows."""

    part = 0

    def __init__(self, per_byte: float, delay_s: float) -> None:
        sizes = [ROW_BYTES * rows for rows in (10, 50, 200, 800, 3000)] * 8
        self.fetches = tuple(Fetch(1, size, START_S + delay_s + per_byte * size) for size in sizes)


class Ahead:
    """Batches of which a window of W steps misses 10 W rows a step, and whose rebuild fetches 100."""

    steps = 128

    def outlook(self, window: int, shares: np.ndarray) -> Outlook:
        return Outlook(window, np.array([1e4]), np.array([10.0 * window]), np.array([100.0]), 0)


def law(window: int, per_byte: float, delay_s: float) -> float:
    missed, fetched = 10.0 * window, 100.0
    miss_s, rebuild_s = (START_S + delay_s + per_byte * ROW_BYTES * rows for rows in (missed, fetched))
    return max(1e-3, miss_s, rebuild_s / window)


@pytest.mark.parametrize(("per_byte", "delay_s"), [(1e-9, 0.0), (1e-9, 0.02), (6.4e-7, 0.0), (6.4e-7, 0.01)])
def test_the_forecast_is_the_law_of_what_was_heard(per_byte: float, delay_s: float) -> None:
    actions = CacheActions(2)
    forecast = LiveForecast(actions, row_bytes=ROW_BYTES)
    forecast.observe(Heard(1e-9, 0.0))
    assert forecast.of(Ahead(), base_s=1e-3, late_s=np.zeros(1)) is not None
    for _ in range(2):  # so that nothing of before is left among the recent ones
        forecast.observe(Heard(per_byte, delay_s))
    late_s = np.array([delay_s + per_byte * 200 * ROW_BYTES if per_byte > 1e-8 else delay_s])  # as an estimator hears
    seconds = forecast.of(Ahead(), base_s=1e-3, late_s=late_s)
    assert seconds is not None
    found = seconds(late_s)
    for action in range(len(actions)):
        window = actions.window(action)
        start_s = (START_S + delay_s) / window  # what a rebuild costs training
        assert found[action] == pytest.approx(law(window, per_byte, delay_s) + start_s, rel=0.05)
    free = seconds(np.zeros(1))
    assert (free <= found + 1e-9).all(), "links that recover cost no more"


def test_what_fetches_took_at_best_is_the_law_of_clean_links() -> None:
    forecast = LiveForecast(CacheActions(2), row_bytes=ROW_BYTES)
    assert forecast.clean_line() is None
    forecast.observe(Heard(2e-9, 0.0))
    forecast.of(Ahead(), base_s=1e-3, late_s=np.zeros(1))
    forecast.observe(Heard(5e-7, 0.03))
    forecast.of(Ahead(), base_s=1e-3, late_s=np.array([0.03]))
    start_s, per_byte = forecast.clean_line() or (0.0, 0.0)
    assert start_s == pytest.approx(START_S, rel=0.1) and per_byte == pytest.approx(2e-9, rel=0.1)


def view(step: int) -> CacheView:
    return CacheView(np.zeros(23, np.float32), np.zeros(3), step, 25, CacheActions(4).action(16))


def test_plans_by_stretches_begin_as_the_plan_of_the_whole() -> None:
    pattern = make_pattern("one_slow", parts=4, seed=3, mbit=80.0, delay_ms=0.0, first_epoch=1, cycle=4, epochs=60)
    policy = ForeseenWindows(pattern, reddit(), part=0, epoch_steps=25)
    epochs = -(-STRETCH // 25)
    whole = clairvoyant_of(trace_of_pattern(pattern, 0, range(25 * epochs), epoch_steps=25), reddit(), epoch_steps=25)
    steps = range(0, STRETCH // 2, 50)
    ours, best = ([each.decide(view(step)).action for step in steps] for each in (policy, whole))
    assert ours == best and len(set(ours)) > 1
    later = policy.decide(view(5 * STRETCH + 7))  # beyond the first plan, at a place where another begins
    assert 0 <= later.action < 32 and later.policy == "clairvoyant"


def test_what_clean_links_were_is_not_learnt_anew_from_slow_ones() -> None:
    before = DelayEstimator(1)
    draw = np.random.default_rng(0)
    for epoch in (0, 1, 2):
        for _ in range(20):
            before.add(0, 1e-3 * (1 + 0.1 * draw.random()), 4000, epoch=epoch)
    after, fresh = DelayEstimator(1), DelayEstimator(1)
    after.load_state_dict(before.state_dict())
    for estimator in (after, fresh):
        for _ in range(30):
            estimator.add(0, 21e-3, 4000, epoch=3)
    assert after.delays_s()[0] == pytest.approx(0.02, rel=0.1)
    assert fresh.delays_s()[0] < 1e-3, "who hears of slow links first takes them for clean"
    other = DelayEstimator(2)
    other.load_state_dict(before.state_dict())
    assert (other.baselines_s() == 0).all(), "one of other parts is not taken"


class Noting(CachePlanner):
    """Keeps what it was asked about."""

    def __init__(self, actions: CacheActions) -> None:
        super().__init__(actions)
        self.seen: list[CacheView] = []

    def decide(self, view: CacheView) -> CacheDecision:
        self.seen.append(view)
        return super().decide(view)


def test_a_change_found_in_the_fetches_of_a_rebuild_is_one_that_a_policy_is_asked_about() -> None:
    """They began the owner's level again, so that later misses raised no alarm: no change counted, nothing asked."""
    policy, now, nothing = Noting(CacheActions(2)), 41, np.zeros(2, dtype=np.int64)
    control = CacheControl(0, 2, epoch_steps=10, row_bytes=ROW_BYTES, estimator=DelayEstimator(1))
    control.policy = policy

    def misses(rtt_s: float, step: int) -> bool:
        return control.watch([OwnerReply(1, np.zeros((1, 1), np.float32), rtt_s, 4000)], step)

    assert not any(misses(START_S, step) for step in range(now))
    ahead = Lookahead(48, [], KeySpace(np.arange(2), 2, 1), part=0, capacity=4, serving=None)
    bulk = tuple(FetchTime(1, "bulk", 10, 4000, 20 * START_S, 48) for _ in range(3))
    control.decide(
        Boundary(
            part=0, parts=2, number=3, step=48, steps_left=2, previous=CacheActions(2).action(16), served=16,
            remote=nothing, hits=nothing, resolve_s=0.0, fetches=bulk, rebuild_s=0.0, late_steps=0, stepped=(),
            lookahead=ahead, now=now,
        )
    )  # fmt: skip
    assert [view.changes for view in policy.seen] == [1]
    asked = [step for step in range(now, now + 20) if misses(20 * START_S, step)]
    assert asked == [now + LOOK_AGAIN]


def test_a_run_writes_the_links_that_another_repeats(tmp_path) -> None:
    config = lab.RunConfig(
        system="bgl", dataset="growing", model="tgcn", parts=2, epochs=3, batch_size=300, generated_nodes=120,
        generated_edges=400, generated_snapshots=12, congestion="one_slow", congestion_from=1, congestion_ms=1.0,
        congestion_cycle=2, device="cpu", evaluate_every=100,
    )  # fmt: skip
    run = lab.train(config, runs_dir=tmp_path, progress=False)
    file = lab.congestion.save_trace(run, tmp_path / "links.jsonl")
    pattern = make_pattern(
        "one_slow", parts=2, seed=config.seed, delay_ms=1.0, mbit=0.0, first_epoch=1, cycle=2, epochs=3
    )
    trace = load_trace(file, 2)
    for epoch in range(3):
        assert trace.at(epoch, 0.0) == pattern.at(epoch, 0.0)
    plain = lab.train(lab.RunConfig(system="single", dataset="growing", epochs=1, **{
        name: config[name] for name in ("generated_nodes", "generated_edges", "generated_snapshots", "device")
    }), runs_dir=tmp_path, progress=False)  # fmt: skip
    with pytest.raises(DataError, match="has no link records"):
        lab.congestion.save_trace(plain, tmp_path / "none.jsonl")
