"""Learning what actions are worth: targets by hand, known values, overestimation, the same bits again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError, PlanError
from dtdg_lab.rl.dqn import DoubleDQN, QNetwork, TransitionRing, Transitions, double_target


def transitions(states: Any, actions: Any, rewards: Any, after: Any, follows: Any) -> Transitions:
    f4 = np.float32
    return Transitions(
        np.asarray(states, f4),
        np.asarray(actions),
        np.asarray(rewards, f4),
        np.asarray(after, f4),
        np.asarray(follows, f4),
    )


def drawn(count: int, inputs: int, choices: int, seed: int = 0) -> Transitions:
    draw = np.random.default_rng(seed)
    return transitions(
        draw.normal(size=(count, inputs)),
        draw.integers(choices, size=count),
        draw.normal(size=count),
        draw.normal(size=(count, inputs)),
        np.where(draw.random(count) < 0.1, 0, 0.9),
    )


def test_parameters_are_loaded_and_given_back_and_values_are_those_of_the_layers() -> None:
    network = QNetwork.drawn((3, 4, 2), 1)
    line, states = network.parameters, np.random.default_rng(0).normal(size=(5, 3))
    assert np.array_equal(QNetwork((3, 4, 2), line).parameters, line)
    first, second = line[:16].reshape(4, 4), line[16:].reshape(5, 2)
    hidden = np.maximum(states @ first[:-1] + first[-1], 0.0)
    np.testing.assert_allclose(network.values(states), hidden @ second[:-1] + second[-1], rtol=1e-12)


def test_a_network_of_other_widths_is_refused() -> None:
    with pytest.raises(PlanError, match=r"layers of 3 x 4 x 2: \(26,\) are needed"):
        QNetwork((3, 4, 2), np.zeros(25))


# targets


def test_double_targets_by_hand() -> None:
    online, target = np.array([[1.0, 5.0, 2.0], [0.0, 0.0, 0.0]]), np.array([[10.0, 3.0, 20.0], [7.0, 8.0, 9.0]])
    rewards, follows = np.array([1.0, -2.0]), np.array([0.5, 0.0])
    assert double_target(rewards, follows, online, target).tolist() == [1.0 + 0.5 * 3.0, -2.0]
    assert double_target(rewards, follows, online, target, double=False).tolist() == [1.0 + 0.5 * 20.0, -2.0]


# a small decision process: three places in a line, to the right or to the left; the right end pays, the left a little

GAMMA = 0.9


def of_the_line() -> tuple[Transitions, NDArray[np.float64]]:
    """Every transition once, and Q* (3, 2) by value iteration."""
    rewards, after = np.zeros((3, 2)), np.array([[0, 1], [0, 2], [1, 2]])
    rewards[0, 0], rewards[2, 1] = 0.2, 1.0
    values = np.zeros((3, 2))
    for _ in range(500):
        values = rewards + GAMMA * values.max(axis=1)[after]
    places, actions = (grid.ravel() for grid in np.meshgrid(np.arange(3), np.arange(2), indexing="ij"))
    one_hot = np.eye(3)
    return transitions(one_hot[places], actions, rewards.ravel(), one_hot[after.ravel()], np.full(6, GAMMA)), values


@pytest.mark.slow
@pytest.mark.parametrize("double", [True, False])
def test_known_values_are_found(double: bool) -> None:
    every, known = of_the_line()
    learner = DoubleDQN(3, 2, double=double, hidden=(32, 32), batch=16, memory=600, target_every=20)
    learner.remember(every.rows(np.arange(600) % 6))
    for update in range(1500):
        learner.learn(3e-3 if update < 1000 else 3e-4)
    found = learner.online.values(np.eye(3))
    assert np.abs(found - known).max() < 0.05 * known.max(), (found, known)
    assert learner.choose(np.eye(3, dtype=np.float32)).tolist() == known.argmax(axis=1).tolist()


def overestimated(double: bool) -> float:
    """What the best of ten actions is thought to be worth, on average, where all are worth nothing but noise."""
    learner = DoubleDQN(1, 10, double=double, hidden=(16,), memory=100, batch=32, target_every=40)
    noise, state, best = np.random.default_rng(5), np.ones((20, 1)), []
    for _ in range(600):
        learner.remember(
            transitions(state, noise.integers(10, size=20), noise.normal(size=20), state, np.full(20, 0.9))
        )
        learner.learn(5e-3)
        best.append(float(learner.online.values(state[:1]).max()))
    return float(np.mean(best[300:]))


@pytest.mark.slow
def test_a_double_dqn_overestimates_less() -> None:
    plain, double = overestimated(False), overestimated(True)
    assert plain > 1.0, plain
    assert double < 0.7 * plain, (plain, double)


# the same again


def bits(learner: DoubleDQN) -> bytes:
    return learner.online.parameters.tobytes()


def trained(learner: DoubleDQN, rounds: range) -> list[NDArray[np.int64]]:
    chosen = []
    for place in rounds:
        rows = drawn(40, 5, 6, seed=place)
        chosen.append(learner.choose(rows.states, 0.3))
        learner.remember(rows)
        learner.learn()
    return chosen


def test_the_same_seed_gives_the_same_bits_and_another_does_not() -> None:
    one, two, other = (DoubleDQN(5, 6, hidden=(16, 16), seed=seed, target_every=7) for seed in (1, 1, 2))
    for a, b in zip(trained(one, range(30)), trained(two, range(30)), strict=True):
        assert np.array_equal(a, b)
    assert bits(one) == bits(two)
    trained(other, range(30))
    assert bits(one) != bits(other)


def test_curiosity_draws_every_action_and_none_is_drawn_without() -> None:
    learner, states = DoubleDQN(2, 8, hidden=(4,)), np.ones((4000, 2), np.float32)
    counts = np.bincount(learner.choose(states, 1.0), minlength=8)
    assert counts.min() > 400 and counts.max() < 600
    assert len(set(learner.choose(states, 0.0).tolist())) == 1


def test_the_oldest_transitions_make_room() -> None:
    ring, all_of_them = TransitionRing(10, 3), drawn(27, 3, 4)
    for start in range(0, 27, 4):
        ring.add(all_of_them.rows(np.arange(start, min(start + 4, 27))))
    assert len(ring) == 10
    held = ring.sample(2000, np.random.default_rng(0)).rewards
    assert set(held.tolist()) == set(all_of_them.rewards[-10:].tolist())
    ring.add(all_of_them)  # more than there is room for
    held = ring.sample(2000, np.random.default_rng(0)).rewards
    assert set(held.tolist()) == set(all_of_them.rewards[-10:].tolist())


def test_too_few_transitions_teach_nothing() -> None:
    learner = DoubleDQN(5, 6, hidden=(4,), batch=64)
    learner.remember(drawn(63, 5, 6))
    assert learner.learn() is None and learner.updates == 0
    learner.remember(drawn(1, 5, 6))
    assert learner.learn() is not None


@pytest.mark.parametrize(
    ("wrong", "described"),
    [
        ({"choices": 1}, "at least 2"),
        ({"memory": 0}, "at least 1"),
        ({"batch": 0}, "batch=0"),
        ({"clip": -1.0}, "clip=-1"),
    ],
)
def test_a_learner_that_cannot_learn_is_refused(wrong: dict[str, Any], described: str) -> None:
    with pytest.raises(ConfigError, match=described):
        DoubleDQN(**{"inputs": 3, "choices": 4, **wrong})
