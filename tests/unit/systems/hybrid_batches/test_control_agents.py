"""The control room: agents that find what is known to be best, bounded rewards, decisions that can be resumed."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.config.catalogue import names
from dtdg_lab.core.errors import ConfigError, NotFiniteError, PlanError, UnknownNameError
from dtdg_lab.rl.agent import Agent, Fixed, UniformAgent
from dtdg_lab.rl.bandit import Bandit
from dtdg_lab.rl.dqn import DQN
from dtdg_lab.systems.hybrid_batches.policies import (
    BatchDecision,
    BatchPolicy,
    ProgressLaw,
    loss_reward,
    make_batch_policy,
    progress_reward,
    reward,
    time_reward,
)

LEARNING = ("random", "bandit", "dqn")
GRID = tuple((snapshots, vertices) for snapshots in (0.1, 0.3) for vertices in (0.01, 0.05, 0.1))
finite = st.floats(allow_nan=False, allow_infinity=False)
seconds = st.floats(0, allow_nan=False, allow_infinity=False)


def uniform_draws(count: int, seed: int = 0) -> list[tuple[float, int]]:
    draw = np.random.default_rng(seed)
    return [(float(draw.integers(2)), int(draw.integers(2))) for _ in range(count)]


# rewards


@given(seconds, seconds, finite, finite)
def test_a_reward_is_within_its_bounds_whatever_was_measured(a: float, b: float, c: float, d: float) -> None:
    assert -1 <= time_reward(a, b) <= 1
    assert -1 <= loss_reward(c, d) <= 1
    assert reward(a, b, c, d) == time_reward(a, b) + loss_reward(c, d)


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_within_the_bounds_a_reward_is_equation_3(t_l: float, t_c: float, d_l: float, d_c: float) -> None:
    in_bounds = max(-1.0, min(1.0, (t_l - t_c) / t_l)) + max(-1.0, min(1.0, (d_c - d_l) / d_c))
    assert reward(t_l, t_c, d_l, d_c) == pytest.approx(in_bounds)


@given(finite, finite)
def test_a_loss_that_falls_faster_is_never_punished(last: float, now: float) -> None:
    """Not so by the printed equation: with a negative denominator, losses that rise and rise faster earn 1."""
    earned = loss_reward(last, now)
    assert earned >= 0 if now > last else earned <= 0


@pytest.mark.parametrize(
    ("given_numbers", "expected"),
    [
        ((2.0, 1.0, 1.0, 2.0), 0.5 + 0.5),
        ((1.0, 2.0, 2.0, 1.0), -1.0 - 1.0),
        ((1.0, 9.0, 1.0, 1.0), -1.0),
        ((0.0, 0.0, 0.0, 0.0), 0.0),
        ((0.0, 1.0, -1.0, 0.0), -1.0 + 1.0),
        ((0.0, 1.0, 1.0, 0.0), -1.0 - 1.0),
        ((1.0, 0.0, -1.0, -2.0), 1.0 - 0.5),
        ((1.0, 1.0, None, 5.0), 0.0),
        ((1.0, 1.0, 5.0, None), 0.0),
        ((1.0, 1.0, 1e308, -1e308), -1.0),
    ],
)
def test_rewards_by_hand(given_numbers: tuple[float, float, float | None, float | None], expected: float) -> None:
    assert reward(*given_numbers) == expected


@given(finite, finite, seconds, seconds)
def test_progress_is_within_its_bounds_whatever_was_measured(now: float, last: float, took: float, best: float) -> None:
    earned, kept = progress_reward(now, last, took, best)
    assert -1 <= earned <= 1 and math.isfinite(kept) and kept >= 0
    if 0 < took < 1e9 and 1e-9 < abs(last) < 1e9 and abs(now - last) > 1e-6 * abs(last):
        assert earned * (last - now) >= 0, "a loss that falls is never punished"


def test_progress_pays_for_a_size_and_not_for_a_change() -> None:
    best = 0.0
    described = []
    for last, now, took in ((8.0, 4.0, 1.0), (4.0, 2.0, 1.0), (2.0, 1.0, 2.0), (1.0, 2.0, 4.0)):
        earned, best = progress_reward(now, last, took, best)
        described.append(earned)
    assert described == [1.0, 1.0, pytest.approx(0.25 / 0.485), pytest.approx(-0.25 / (0.485 * 0.97))]
    assert reward(1.0, 1.0, 4.0, 2.0) == -1.0, "by equation 3 the second window, as good as the first, is punished"
    assert progress_reward(1.0, 0.0, 1.0, 0.0) == progress_reward(1.0, 1.0, 0.0, 0.0) == (0.0, 0.0)


# memory


def test_the_oldest_transition_makes_room() -> None:
    agent = DQN(5, memory=3)
    for number in range(5):
        agent.learn(number, number, number, number)
    assert [row[0] for row in agent.state_dict()["replay"]] == [2.0, 3.0, 4.0]
    with pytest.raises(ConfigError, match="at least 1"):
        DQN(5, memory=0)


# the deep Q-network

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
        assert parameter.grad is not None
        torch.testing.assert_close(torch.tensor(adam["exp_avg"]), 0.1 * parameter.grad)
        moved = torch.tensor(number) - parameter.detach()
        torch.testing.assert_close(moved, -0.01 * parameter.grad.sign(), atol=1e-4, rtol=0)


# all agents

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
    with pytest.raises(ConfigError, match=r"a batch policy with 1 action has nothing to choose from.*snapshot_sizes"):
        make(1)


def law_world(agent: ProgressLaw, times: int, noise: float, *, spoilt: int = -1) -> list[int]:
    """Choices in a world of the law's own form; a spoilt size makes none of the progress that the law expects."""
    draw, taken, action = np.random.default_rng(3), [], 0
    for _ in range(times):
        snapshots, vertices = GRID[action]
        batch = snapshots * vertices
        step_s = 1e-4 + 0.01 * snapshots + 0.6 * batch
        gain = (0.0 if action == spoilt else batch / (batch + 0.003)) + noise * draw.standard_normal()
        agent.timed(action, step_s)
        agent.learn(0.0, action, gain / step_s, 0.0)
        action = agent.choose(0.0).action
        taken.append(action)
    return taken


def test_the_law_finds_a_good_size_in_a_few_windows_and_leaves_one_it_is_wrong_about() -> None:
    rates = [b / (b + 0.003) / (1e-4 + 0.01 * s + 0.6 * b) for s, v in GRID for b in (s * v,)]
    good = {action for action, rate in enumerate(rates) if rate > 0.95 * max(rates)}
    assert good == {0, 1}, "two of six"
    quiet, loud = (law_world(ProgressLaw(GRID), 60, noise) for noise in (0.0, 0.1))
    assert quiet[0] == 5 and set(quiet[5:]) <= good, "the largest, and soon a good one"
    assert sum(action in good for action in loud[20:]) > 20
    wrong = quiet[-1]
    assert law_world(ProgressLaw(GRID), 60, 0.0, spoilt=wrong)[-30:].count(wrong) <= 3


def test_a_law_needs_sizes() -> None:
    with pytest.raises(ConfigError, match="give sizes"):
        make_batch_policy("law", choices=3, initial=0)
    with pytest.raises(ConfigError, match="above 0"):
        ProgressLaw(((0.1, 0.0), (0.1, 0.1)))
    with pytest.raises(ConfigError, match="1 action has nothing"):
        ProgressLaw(GRID[:1])
    with pytest.raises(ConfigError, match="paper or progress are allowed"):
        make_batch_policy("dqn", choices=3, initial=0, reward="praise")


def test_the_uniform_agent_takes_every_action_equally_often() -> None:
    agent = UniformAgent(4, seed=5)
    counts = np.bincount([agent.choose(0.0).action for _ in range(2000)], minlength=4)
    assert counts.min() > 430


# the batch policy


class EventList(Fixed):
    """An agent that remembers what it was taught."""

    def __init__(self, choices: int, order: tuple[int, ...]) -> None:
        super().__init__(choices)
        self.order, self.lessons = list(order), list[tuple[float, int, float, float]]()

    def choose(self, state: float) -> Any:
        return replace(super().choose(state), action=self.order.pop(0))

    def learn(self, state: float, action: int, reward: float, next_state: float) -> None:
        self.lessons.append((state, action, reward, next_state))


def watch(batch_policy: BatchPolicy, loss: float | None, seconds: float, steps: int = 2) -> BatchDecision:
    for _ in range(steps):
        batch_policy.observe(loss, seconds)
    return batch_policy.decide()


def test_a_window_rewards_the_choice_it_was_made_under() -> None:
    agent = EventList(4, (2, 1, 3, 3))
    batch_policy = BatchPolicy(agent, "told", 4, 0)
    first = watch(batch_policy, 10.0, 1.0)
    assert first.row == (
        "told",
        {"loss_reduction": None, "epsilon": 0.0, "greedy": True, "loss": 10.0, "step_s": 1.0, "steps": 2},
        [None] * 4, 2, None,
    )  # fmt: skip
    assert (batch_policy.choice, batch_policy.steps, agent.lessons) == (2, 0, [])
    second = watch(batch_policy, 8.0, 0.5)
    assert (second.reward, second.state["loss_reduction"]) == (0.5, 2.0), "twice as fast; no reduction before it"
    third = watch(batch_policy, 4.0, 0.5)
    assert (third.reward, third.state["loss_reduction"]) == (0.5, 4.0), "the loss fell twice as fast"
    fourth = watch(batch_policy, 5.0, 1.0)
    assert (fourth.reward, fourth.state["loss_reduction"]) == (-2.0, -1.0)
    assert agent.lessons == [(0.0, 2, 0.5, 2.0), (2.0, 1, 0.5, 4.0), (4.0, 3, -2.0, -1.0)]


def test_steps_of_another_size_are_left_out() -> None:
    batch_policy = BatchPolicy(EventList(3, (1, 2)), "told", 3, 0)
    watch(batch_policy, 1.0, 1.0)
    batch_policy.observe(100.0, 9.0, action=0)
    assert (batch_policy.steps, batch_policy.is_due(1)) == (0, False)
    batch_policy.observe(0.5, 2.0, action=1)
    batch_policy.observe(0.7, 4.0, action=1)
    assert batch_policy.is_due(2)
    assert not batch_policy.is_due(3)
    state = batch_policy.decide().state
    assert (state["loss"], state["step_s"], state["steps"]) == (pytest.approx(0.6), 3.0, 2)


def test_losses_may_be_missing_or_come_from_elsewhere() -> None:
    agent = EventList(2, (1, 0, 1, 1))
    batch_policy = BatchPolicy(agent, "told", 2, 0)
    watch(batch_policy, None, 1.0)
    silent = watch(batch_policy, None, 0.5)
    assert (silent.state["loss"], silent.state["loss_reduction"], silent.reward) == (None, None, 0.5)
    batch_policy.observe(None, 0.5)
    assert batch_policy.decide(3.0).state["loss"] == 3.0
    batch_policy.observe(7.0, 0.5)
    validated = batch_policy.decide(2.0)
    assert (validated.state["loss"], validated.state["loss_reduction"], validated.reward) == (2.0, 1.0, 0.0)


def test_a_size_that_somebody_else_chose_teaches_nothing() -> None:
    agent = EventList(3, (1, 1, 1))
    batch_policy = BatchPolicy(agent, "told", 3, 0)
    watch(batch_policy, 1.0, 1.0)
    batch_policy.observe(0.0, 0.1)
    batch_policy.follow(2)
    assert (batch_policy.choice, batch_policy.steps) == (2, 0)
    watch(batch_policy, 0.5, 1.0)
    assert agent.lessons == []
    with pytest.raises(PlanError, match="numbered from 0 to 2"):
        batch_policy.follow(3)


@pytest.mark.parametrize("paid", ["paper", "progress"])
@pytest.mark.parametrize("name", names("control"))
def test_an_batch_policy_is_resumed_in_the_middle_of_a_window(name: str, paid: str) -> None:
    def made() -> BatchPolicy:
        return make_batch_policy(name, choices=5, initial=2, seed=4, reward=paid, sizes=GRID[:5])

    def lived(batch_policy: BatchPolicy, steps: range) -> list[BatchDecision]:
        found = []
        for step in steps:
            batch_policy.observe(2 + math.sin(step), 1 + batch_policy.choice / 5)
            if batch_policy.is_due(3):
                found.append(batch_policy.decide())
        return found

    whole, first, second = made(), made(), made()
    expected = lived(whole, range(100))
    begun = lived(first, range(46))
    lived(second, range(7))
    second.load_state_dict(first.state_dict())
    assert begun + lived(second, range(46, 100)) == expected
    assert second.state_dict() == whole.state_dict()
    assert all(decision.policy == name for decision in expected)
    if name == "none":
        assert {decision.action for decision in expected} == {2}


def test_what_cannot_be_is_refused() -> None:
    for name in LEARNING:
        with pytest.raises(ConfigError, match="1 action has nothing"):
            make_batch_policy(name, choices=1, initial=0)
    assert make_batch_policy("none", choices=1, initial=0).choice == 0
    with pytest.raises(UnknownNameError, match="Did you mean 'bandit'"):
        make_batch_policy("bandid", choices=3, initial=0)
    with pytest.raises(PlanError, match="numbered from 0 to 2"):
        make_batch_policy("bandit", choices=3, initial=3)
    with pytest.raises(ConfigError, match="agent of 3 actions for 4 sizes"):
        BatchPolicy(Bandit(3), "bandit", 4, 0)
    batch_policy = make_batch_policy("bandit", choices=3, initial=0)
    with pytest.raises(PlanError, match="observe"):
        batch_policy.decide()
    with pytest.raises(PlanError, match="seconds must be 0 or more"):
        batch_policy.observe(1.0, -1.0)
    for wrong in (math.nan, math.inf):
        with pytest.raises(NotFiniteError, match="no batch-size controller can learn"):
            batch_policy.observe(wrong, 1.0)
    with pytest.raises(ConfigError, match="the stored state is of a bandit controller of 3 sizes"):
        make_batch_policy("random", choices=3, initial=0).load_state_dict(batch_policy.state_dict())
    with pytest.raises(ConfigError, match="this is a bandit controller of 4"):
        make_batch_policy("bandit", choices=4, initial=0).load_state_dict(batch_policy.state_dict())
