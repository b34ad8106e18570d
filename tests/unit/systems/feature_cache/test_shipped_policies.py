"""The learned policies that come with the lab: for two, three and four parts, and the same again from their seeds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.rl.q_network import QNetwork
from dtdg_lab.systems.feature_cache.policies.learned import CacheDQN, learned_policy, shipped_policy
from dtdg_lab.systems.feature_cache.simulation.cases import comparison_cases
from dtdg_lab.systems.feature_cache.simulation.simulator import CacheSimulator
from dtdg_lab.systems.feature_cache.simulation.training import (
    SHIPPED_TRAININGS,
    shipped_training,
    train_policy,
    training_costs,
)

NAMES = [training.name for training in SHIPPED_TRAININGS]
each_policy = pytest.mark.parametrize("name", NAMES)
each_count = pytest.mark.parametrize("parts", [2, 3, 4])


def recorded(policy: CacheDQN, count: int) -> NDArray[np.float32]:
    """What a policy is told while it decides under congestion that it was not trained with, (count, S)."""
    costs = training_costs(policy.stored.parts)
    simulator = CacheSimulator(costs, comparison_cases(), episodes=72, seed=77, restart=True)
    simulator.reset(policy.first)
    described: list[NDArray[np.float32]] = []
    while len(described) * 72 < count:
        views = simulator.views()
        inputs = policy._inputs(views.states, views.runs, views.steps)
        described.append(inputs)
        simulator.step(policy.values(inputs).argmax(axis=1))
    return np.concatenate(described)[:count]


@each_policy
@each_count
def test_a_shipped_policy_is_what_its_training_says(name: str, parts: int) -> None:
    stored, training = shipped_policy(parts, name), shipped_training(name)
    assert (stored.name, stored.parts, stored.seed, stored.double) == (name, parts, 0, True)
    assert stored.training == training.digest() and stored.episodes == training.episodes
    assert stored.hidden == training.hidden and stored.remembers == training.remembers
    assert stored.constants == tuple(cost.digest() for cost in training_costs(parts)), (
        "the calibrated constants have changed since: train again (dtdg_lab train-policy) and say so in CHANGELOG"
    )
    assert np.isfinite(stored.parameters).all()


@each_policy
@each_count
def test_a_shipped_policy_decides_by_what_it_sees(name: str, parts: int) -> None:
    policy = learned_policy(parts, name)
    inputs = recorded(policy, 2000)
    chosen = policy.values(inputs).argmax(axis=1)
    assert len(set(chosen.tolist())) > 1


def test_other_parts_and_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="for 9 parts"):
        learned_policy(9)
    with pytest.raises(UnknownNameError, match="double_dqn_plus"):
        shipped_training("double_dqn_pluss")


@each_policy
def test_the_pipeline_that_makes_them_makes_the_same_again(name: str) -> None:
    """The test below, short: a few episodes, and every decision the same."""
    training = replace(shipped_training(name), episodes=16, explored=8, lanes=8, decisions=32, hidden=(32, 32))
    policies = [CacheDQN(train_policy(2, training)) for _ in range(2)]
    states = recorded(policies[0], 1000)
    assert np.array_equal(*(policy.values(states).argmax(axis=1) for policy in policies))
    untrained = QNetwork.drawn(policies[0].stored.sizes, seed=9).values(states).argmax(axis=1)
    assert (untrained != policies[0].values(states).argmax(axis=1)).mean() > 0.1


@pytest.mark.slow
@each_policy
def test_a_shipped_policy_is_learned_again_from_its_seed(name: str) -> None:
    shipped = learned_policy(4, name)
    again = CacheDQN(train_policy(4, shipped_training(name)))
    states = recorded(shipped, 10_000)
    same = shipped.values(states).argmax(axis=1) == again.values(states).argmax(axis=1)
    assert same.mean() >= 0.99, same.mean()
