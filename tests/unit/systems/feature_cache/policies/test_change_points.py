"""Change points of fetch times: found soon, not found where nothing changes, one at a time as all at once."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.systems.feature_cache.policies.change_points import ChangePoints, change_points

NOISE = 0.4


def series(seed: int, *levels: tuple[int, float]) -> np.ndarray:
    random = np.random.default_rng(seed)
    return np.concatenate([level + NOISE * random.standard_normal(count) for count, level in levels])


@pytest.mark.parametrize("seed", range(8))
def test_one_at_a_time_is_as_all_at_once(seed: int) -> None:
    values = series(seed, (70, 0.0), (5, 2.0), (90, 0.5), (40, 3.0), (200, 0.0))
    starts, alarms = change_points(values, NOISE)
    points = ChangePoints(NOISE)
    for place, value in enumerate(values, start=1):
        assert points.add(float(value)) == alarms[place]
        assert place - points.count == starts[place]
    assert points.alarms == alarms.sum() >= 3


@pytest.mark.parametrize(("level", "within"), [(3.0, 3), (1.5, 5), (0.8, 13)])
def test_a_change_is_found_within_a_few_fetches(level: float, within: int) -> None:
    late = []
    for seed in range(40):
        alarms = change_points(series(seed, (60, 0.0), (60, level)), NOISE)[1]
        after = np.flatnonzero(alarms[61:]) + 1
        late.append(int(after[0]) if len(after) else 60)
    assert np.percentile(late, 90) <= within


def test_where_nothing_changes_alarms_are_rare_and_one_outlier_raises_none() -> None:
    alarms = sum(int(change_points(series(seed, (750, 0.0)), NOISE)[1].sum()) for seed in range(60))
    assert alarms <= 60  # one in 750 fetches
    quiet = np.zeros(100)
    quiet[50] = 4.0
    assert not change_points(quiet, 0.1)[1].any()


def test_the_noise_is_estimated_where_it_is_not_given() -> None:
    points, found = ChangePoints(), 0
    for value in series(3, (200, 0.0), (20, 2.0)):
        found += points.add(float(value))
    assert 1 <= found <= 3 and points.count <= 21
