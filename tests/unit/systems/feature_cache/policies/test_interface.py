"""The state of a policy has the paper's numbers within their bounds."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.systems.feature_cache.actions import CacheActions
from dtdg_lab.systems.feature_cache.policies.interface import CacheObservation, cache_state, state_bounds, state_size

ACTIONS = CacheActions(4)


def observation(**changes: object) -> CacheObservation:
    measured: dict[str, object] = {
        "delays_s": np.array([0.0, 0.01, 0.2]),
        "fetch_s": 0.01,
        "hit_rates": np.array([0.1, 0.2, 0.3]),
        "hit_rate": 0.25,
        "step_s": 0.2,
        "base_step_s": 0.1,
        "step_j": 30.0,
        "base_step_j": 10.0,
        "rebuild_share": 0.4,
        "miss_share": 0.5,
        "left_share": 0.6,
        "previous": ACTIONS.action(16, 1),
    }
    return CacheObservation(**{**measured, **changes})  # type: ignore[arg-type]


def test_a_state_is_what_the_paper_lists() -> None:
    state = cache_state(observation(), ACTIONS)
    late = [0.0, np.log(2), np.log(21)]
    loads = [np.log(2), np.log(3), 0.4, 0.5, 0.6]
    expected = [*late, 0.1, 0.2, 0.3, 0.25, *loads, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0]
    np.testing.assert_allclose(state, expected, rtol=1e-6)
    assert state.dtype == np.float32
    assert len(state) == state_size(4) == 23
    uniform = cache_state(observation(previous=0), ACTIONS)
    assert uniform[12:].tolist() == [1, *[0] * 10]


def test_unmeasured_energy_follows_the_seconds() -> None:
    state = cache_state(observation(step_j=None), ACTIONS)
    assert state[8] == state[7] == pytest.approx(np.log(2))


@pytest.mark.parametrize("parts", [2, 3, 4, 7])
def test_states_of_many_runs_are_those_of_each_and_lie_within_their_bounds(parts: int) -> None:
    actions, random = CacheActions(parts), np.random.default_rng(parts)
    runs = 3 * len(actions)
    values = {
        "delays_s": random.exponential(1.0, (runs, parts - 1)),
        "fetch_s": random.uniform(1e-4, 1, (runs, parts - 1)),
        "hit_rates": random.random((runs, parts - 1)),
        "hit_rate": random.random(runs),
        "step_s": 10 ** random.normal(0, 5, runs),
        "base_step_s": random.uniform(0.1, 1, runs),
        "step_j": random.random(runs),
        "base_step_j": random.uniform(1, 2, runs),
        "rebuild_share": random.uniform(0, 9, runs),
        "miss_share": random.random(runs),
        "left_share": random.random(runs),
        "previous": np.arange(runs) % len(actions),
    }
    many = cache_state(CacheObservation(**values), actions)
    low, high = state_bounds(actions)
    assert many.shape == (runs, 3 * parts + 11)
    assert ((low <= many) & (many <= high)).all()
    assert len(np.unique(many[:, 2 * parts + 4 :], axis=0)) == len(actions)  # what holds can be told from the state
    for run in range(0, runs, 5):
        one = cache_state(CacheObservation(**{name: value[run] for name, value in values.items()}), actions)
        np.testing.assert_array_equal(one, many[run])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"delays_s": np.zeros(2)}, "the last axis must be 3"),
        ({"base_step_s": 0.0}, "must be above 0"),
        ({"fetch_s": np.array([1.0, 0.0, 1.0])}, "must be above 0"),
        ({"hit_rate": np.nan}, "NaN"),
        ({"delays_s": np.array([0.0, 0.0, np.inf])}, "NaN"),
    ],
)
def test_invalid_observations_are_rejected(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        cache_state(observation(**changes), ACTIONS)
