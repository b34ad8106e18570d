"""The environment passes Gymnasium's checker and repeats the simulator."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError, PlanError
from dtdg_lab.systems.feature_cache.actions import CacheActions
from dtdg_lab.systems.feature_cache.simulation.cases import training_cases
from dtdg_lab.systems.feature_cache.simulation.simulator import CacheSimulator
from dtdg_lab.systems.feature_cache.simulation.training import training_costs

COSTS = training_costs(4)
ACTIONS = CacheActions(4)


def test_the_environment_passes_gymnasium_s_checker() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    from gymnasium.utils.env_checker import check_env

    from dtdg_lab.systems.feature_cache.simulation.gym_env import ENV_ID, CacheEnv, register_env

    register_env()
    register_env()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(ENV_ID, epochs=4).unwrapped)
    env = CacheEnv(epochs=4, seed=3)
    with pytest.raises(PlanError, match="reset first"):
        env.step(0)
    states, described = env.reset(options={"number": 5})
    assert described["number"] == 5
    np.testing.assert_array_equal(states, CacheSimulator(COSTS, training_cases(), seed=3, epochs=4).reset(number=5)[0])
    with pytest.raises(PlanError, match="action 32"):
        env.step(32)
    ended = False
    while not ended:
        _, reward, ended, truncated, info = env.step(ACTIONS.action(32))
        assert reward < 0
        assert not truncated
    assert {"joules", "seconds", "steps", "reference_j", "case", "costs"} <= set(info)
    with pytest.raises(PlanError, match="reset first"):
        env.step(0)
    with pytest.raises(ConfigError, match="only option is number"):
        env.reset(options={"numbre": 1})
    with pytest.raises(ConfigError, match="not longer than the first window"):
        CacheEnv(epochs=1, epoch_steps=16)
