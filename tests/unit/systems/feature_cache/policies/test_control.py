"""Live control remembers clean links and reports changes to the policy."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.systems.feature_cache.actions import CacheActions
from dtdg_lab.systems.feature_cache.pipeline.fetching import OwnerReply
from dtdg_lab.systems.feature_cache.pipeline.keys import KeySpace
from dtdg_lab.systems.feature_cache.pipeline.observations import Boundary, FetchTime
from dtdg_lab.systems.feature_cache.pipeline.window_schedule import Lookahead
from dtdg_lab.systems.feature_cache.policies.control import CacheControl
from dtdg_lab.systems.feature_cache.policies.delay_estimator import LOOK_AGAIN, DelayEstimator
from dtdg_lab.systems.feature_cache.policies.interface import CacheDecision, CacheView
from dtdg_lab.systems.feature_cache.policies.planner import CachePlanner

ROW_BYTES, START_S = 400, 1e-3


def view(step: int) -> CacheView:
    return CacheView(np.zeros(23, np.float32), np.zeros(3), step, 25, CacheActions(4).action(16))


def test_restored_clean_links_are_kept_on_slow_ones() -> None:
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


def test_a_change_in_a_rebuild_s_fetches_is_counted() -> None:
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
            part=0,
            parts=2,
            number=3,
            step=48,
            steps_left=2,
            previous=CacheActions(2).action(16),
            served=16,
            remote=nothing,
            hits=nothing,
            resolve_s=0.0,
            fetches=bulk,
            rebuild_s=0.0,
            late_steps=0,
            stepped=(),
            lookahead=ahead,
            now=now,
        )
    )
    assert [view.changes for view in policy.seen] == [1]
    asked = [step for step in range(now, now + 20) if misses(20 * START_S, step)]
    assert asked == [now + LOOK_AGAIN]
