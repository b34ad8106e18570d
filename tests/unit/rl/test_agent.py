"""Agents of a few actions: the bandit, the uniform draw and the DQN; each continues from its stored state."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.rl.agent import Agent, Bandit, Fixed, UniformAgent
from dtdg_lab.rl.dqn import DQN
from dtdg_lab.systems.hybrid_batches.progress_law import ProgressLaw

GRID = tuple((snapshots, vertices) for snapshots in (0.1, 0.3) for vertices in (0.01, 0.05, 0.1))


def uniform_draws(count: int, seed: int = 0) -> list[tuple[float, int]]:
    draw = np.random.default_rng(seed)
    return [(float(draw.integers(2)), int(draw.integers(2))) for _ in range(count)]


def test_the_oldest_transition_makes_room() -> None:
    agent = DQN(5, memory=3)
    for number in range(5):
        agent.learn(number, number, number, number)
    assert [row[0] for row in agent.state_dict()["replay"]] == [2.0, 3.0, 4.0]
    with pytest.raises(ConfigError, match="at least 1"):
        DQN(5, memory=0)


REWARDS = ((0.5, 0.0), (0.0, 2.0))  # of state and action; action a leads to state a


def best_values(discount: float) -> np.ndarray:
    values = np.zeros((2, 2))
    for _ in range(200):
        values = np.array(REWARDS) + discount * values.max(axis=1)[None, :]
    return values


@pytest.mark.slow
def test_the_values_of_a_small_world_are_found() -> None:
    discount = 0.6
    agent = DQN(2, seed=1, discount=discount, rate=0.01, soft=0.1, batch=16)
    for state, action in uniform_draws(900):
        agent.learn(state, action, REWARDS[int(state)][action], float(action))
    expected = best_values(discount)
    assert expected.argmax(axis=1).tolist() == [1, 1]
    assert np.argmax(REWARDS, axis=1).tolist() == [0, 1], "who looks at rewards alone stays in state 0"
    found = np.array([agent.values(0.0), agent.values(1.0)])
    np.testing.assert_allclose(found, expected, atol=0.1)


@pytest.mark.slow
def test_without_a_discount_it_learns_rewards_only() -> None:
    agent = DQN(2, seed=2, discount=0.0, rate=0.02, batch=16)
    for state, action in uniform_draws(600):
        agent.learn(state, action, REWARDS[int(state)][action], float(action))
    np.testing.assert_allclose([agent.values(0.0), agent.values(1.0)], REWARDS, atol=0.1)


def test_epsilon_falls_by_its_factor_and_stays_at_its_least() -> None:
    agent = DQN(3, epsilon_decay=0.5, epsilon_min=0.1)
    assert [agent.choose(0.0).epsilon for _ in range(6)] == [1.0, 0.5, 0.25, 0.125, 0.1, 0.1]
    of_paper = DQN(3)
    seen = [of_paper.choose(0.0) for _ in range(60)]
    assert [choice.epsilon for choice in seen[:45]] == pytest.approx([0.95**k for k in range(45)])
    assert {choice.epsilon for choice in seen[45:]} == {0.1}
    assert not seen[0].greedy, "the first choice is always drawn"


def test_the_share_of_drawn_choices_is_epsilon() -> None:
    agent = DQN(4, epsilon_decay=0.0, epsilon_min=0.25)
    choices = [agent.choose(0.3) for _ in range(1000)][1:]
    assert sum(not choice.greedy for choice in choices) / 999 == pytest.approx(0.25, abs=0.05)
    best = int(np.argmax(agent.values(0.3)))
    assert {choice.action for choice in choices if choice.greedy} == {best}
    assert {choice.action for choice in choices if not choice.greedy} == {0, 1, 2, 3}


def test_the_target_network_goes_a_share_of_the_way() -> None:
    agent = DQN(3, soft=0.25, batch=2)
    before = agent.state_dict()
    assert before["target"] == before["online"]
    agent.learn(0.1, 0, 1.0, 0.2)
    assert agent.state_dict()["online"] == before["online"], "one transition of the two that a step needs"
    agent.learn(0.2, 1, -1.0, 0.3)
    after = agent.state_dict()
    for target, online, was in zip(after["target"], after["online"], before["target"], strict=True):
        np.testing.assert_allclose(target, 0.75 * np.array(was) + 0.25 * np.array(online), rtol=1e-12)
        assert not np.array_equal(online, was)


def test_a_step_is_one_of_adam_on_the_squared_error() -> None:
    """Adam's first mean is a tenth of the gradient, and its first step the rate in the direction of the sign."""
    agent = DQN(2, seed=3, discount=0.5, rate=0.01, batch=1)
    stored = agent.state_dict()
    into, bias, out, offset = (torch.tensor(numbers, requires_grad=True) for numbers in stored["online"])

    def values(state: float) -> torch.Tensor:
        return torch.relu(state * into + bias) @ out.T + offset

    goal = 0.7 + 0.5 * values(-0.4).max().detach()
    ((values(0.4)[1] - goal) ** 2).backward()
    agent.learn(0.4, 1, 0.7, -0.4)
    after = agent.state_dict()
    assert after["learned"] == 1, "the next step draws others"
    for number, adam, parameter in zip(after["online"], after["adam"], (into, bias, out, offset), strict=True):
        torch.testing.assert_close(torch.tensor(adam["exp_avg"]), 0.1 * parameter.grad)
        moved = torch.tensor(number) - parameter.detach()
        torch.testing.assert_close(moved, -0.01 * parameter.grad.sign(), atol=1e-4, rtol=0)


MAKE: dict[str, Callable[[int], Agent]] = {
    "none": lambda seed: Fixed(3, 1),
    "random": lambda seed: UniformAgent(3, seed=seed),
    "bandit": lambda seed: Bandit(3),
    "dqn": lambda seed: DQN(3, seed=seed),
    "law": lambda seed: ProgressLaw(GRID[:3]),
}


def live(agent: Agent, times: int, start: int = 0) -> list[Any]:
    """Decisions in a world whose rewards depend on the action and on the time."""
    choices = []
    for time in range(start, start + times):
        choice = agent.choose(math.sin(time))
        choices.append(choice)
        if isinstance(agent, ProgressLaw):
            agent.timed(choice.action, 1.0 + choice.action)
        agent.learn(math.sin(time), choice.action, math.cos(time) * choice.action, math.sin(time + 1))
    return choices


@pytest.mark.parametrize("name", MAKE)
def test_the_same_seed_decides_the_same(name: str) -> None:
    one, same, other = (live(MAKE[name](seed), 60) for seed in (1, 1, 2))
    assert one == same
    if name in {"random", "dqn"}:
        assert [choice.action for choice in one] != [choice.action for choice in other]


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("at", [0, 3, 37])
def test_an_agent_that_was_stored_goes_on_as_if_it_had_not_stopped(name: str, at: int) -> None:
    whole = live(MAKE[name](1), 60)
    first = MAKE[name](1)
    assert live(first, at) == whole[:at]
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = MAKE[name](99 if name in {"bandit", "law"} else 1)
    live(second, 5)  # what it has lived through is replaced
    second.load_state_dict(torch.load(file, weights_only=True))
    assert live(second, 60 - at, at) == whole[at:]


def test_the_bandit_finds_the_best_action_and_follows_a_change() -> None:
    draw = np.random.default_rng(0)
    agent, means = Bandit(4), [0.0, 0.6, -0.3, 0.2]
    taken = []
    for time in range(600):
        arms = means if time < 300 else means[::-1]
        choice = agent.choose(0.0)
        agent.learn(0.0, choice.action, arms[choice.action] + 0.2 * draw.standard_normal(), 0.0)
        taken.append(choice.action)
    assert taken[:4] == [0, 1, 2, 3]
    assert taken[200:300].count(1) > 60
    assert taken[500:].count(2) > 60


def test_the_bandit_s_means_fade() -> None:
    agent = Bandit(2, forget=0.5)
    assert agent.choose(0.0).values == (None, None)
    agent.learn(0.0, 0, 1.0, 0.0)
    agent.learn(0.0, 0, 0.0, 0.0)
    values = agent.choose(0.0).values
    assert values[0] == pytest.approx((0.5 * 1 + 1 * 0) / 1.5)
    assert values[1] is None


@pytest.mark.parametrize("make", [UniformAgent, Bandit, DQN])
def test_one_action_is_nothing_to_choose_from(make: Callable[[int], Agent]) -> None:
    with pytest.raises(
        ConfigError, match=r"a batch-size controller with 1 action has nothing to choose from.*snapshot_sizes"
    ):
        make(1)


def test_the_uniform_agent_takes_every_action_equally_often() -> None:
    agent = UniformAgent(4, seed=5)
    counts = np.bincount([agent.choose(0.0).action for _ in range(2000)], minlength=4)
    assert counts.min() > 430
