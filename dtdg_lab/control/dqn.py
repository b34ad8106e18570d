"""A deep Q-network over a few actions, whose state is a single number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.control.adam import Adam
from dtdg_lab.control.agent import Choice, checked_choices
from dtdg_lab.control.replay import Replay
from dtdg_lab.core import streams

HIDDEN, MEMORY, BATCH, SOFT = 16, 1000, 5, 0.01

Array = NDArray[np.float64]


class DQN:
    """Epsilon-greedy on a network Q(state, action) with one hidden layer, learned from replayed transitions.

    Every transition is followed by one step of Adam on the squared error of Q(s, a) against
    r + gamma max_a' Q'(s', a') over a few transitions drawn from the memory, as soon as it holds so many; then the
    target network Q' moves by ``soft`` of the way to Q. Epsilon is 1 at the first decision and falls by a factor with
    every decision.

    Args:
        choices: A, number of actions, 2 or more.
        seed: of the weights and of all draws.
        discount: gamma.
        epsilon_decay: factor by which epsilon falls.
        epsilon_min: where it stays.
        rate: Adam's learning rate.
        hidden: width of the hidden layer.
        memory: transitions remembered.
        batch: transitions of a step.
        soft: share of the way that the target network goes.

    Raises:
        ConfigError: there is nothing to choose from.

    References: DynaHB section 5.1 (state, gamma, epsilon, rate) and its released code (network, memory, batch, soft
    target), after Mnih et al. 2015 and, for the soft target, Lillicrap et al. 2016.
    Differs from the paper: it names neither the loss nor the optimiser; ours are the squared error and Adam, in
    float64, written out: on four small arrays that takes a tenth of what a framework's calls do.
    """

    def __init__(
        self,
        choices: int,
        *,
        seed: int = 0,
        discount: float = 0.99,
        epsilon_decay: float = 0.95,
        epsilon_min: float = 0.1,
        rate: float = 0.005,
        hidden: int = HIDDEN,
        memory: int = MEMORY,
        batch: int = BATCH,
        soft: float = SOFT,
    ) -> None:
        self.choices = checked_choices(choices)
        self._seed, self._discount, self._batch, self._soft = seed, discount, batch, soft
        self._epsilon_decay, self._epsilon_min = epsilon_decay, epsilon_min
        self._replay = Replay(memory)
        self._online = _drawn_parameters(choices, hidden, seed)
        self._target = [parameter.copy() for parameter in self._online]
        self._adam = Adam(self._online, rate)
        self._decisions = 0
        self._learned = 0

    @property
    def epsilon(self) -> float:
        """Probability that the next choice is drawn."""
        return max(self._epsilon_min, self._epsilon_decay**self._decisions)

    def values(self, state: float) -> list[float]:
        """Q(state, action) for each action."""
        found: list[float] = _q(self._online, np.array([state]))[1][0].tolist()
        return found

    def choose(self, state: float) -> Choice:
        """A drawn action with probability epsilon, else the one of the highest Q-value; ties go to the lower one."""
        values, epsilon = self.values(state), self.epsilon
        draw = streams.generator(self._seed, "control/dqn/choice", self._decisions)
        self._decisions += 1
        explores = draw.random() < epsilon
        action = int(draw.integers(self.choices)) if explores else values.index(max(values))
        return Choice(action, tuple(values), epsilon, not explores)

    def learn(self, state: float, action: int, reward: float, next_state: float) -> None:
        """Remember the transition, and take one step on a few remembered ones once there are enough."""
        self._replay.add(state, action, reward, next_state)
        if len(self._replay) < self._batch:
            return
        draw = streams.generator(self._seed, "control/dqn/replay", self._learned)
        self._learned += 1
        before, actions, rewards, after = self._replay.sample(self._batch, draw).T
        goal = rewards + self._discount * _q(self._target, after)[1].max(axis=1)
        self._adam.step(_gradients(self._online, before, actions.astype(np.int64), goal))
        for slow, parameter in zip(self._target, self._online, strict=True):
            slow[...] = slow + self._soft * (parameter - slow)

    def state_dict(self) -> dict[str, Any]:
        """Both networks, Adam's means, the memory and the counters, as plain lists and numbers."""
        return {
            "decisions": self._decisions,
            "learned": self._learned,
            "online": [parameter.tolist() for parameter in self._online],
            "target": [parameter.tolist() for parameter in self._target],
            "adam": self._adam.state_dict(),
            "replay": self._replay.rows(),
        }

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        self._decisions, self._learned = int(data["decisions"]), int(data["learned"])
        for parameters, stored in ((self._online, data["online"]), (self._target, data["target"])):
            for parameter, numbers in zip(parameters, stored, strict=True):
                parameter[...] = numbers
        self._adam.load_state_dict(data["adam"])
        self._replay.load(data["replay"])


def _drawn_parameters(choices: int, hidden: int, seed: int) -> list[Array]:
    """Weights and biases (H,), (H,), (A, H), (A,), uniform within one over the root of a layer's inputs."""
    draw = streams.generator(seed, "control/dqn/parameters")

    def uniform(*shape: int, inputs: int) -> Array:
        return draw.uniform(-1, 1, shape) / np.sqrt(inputs)

    return [
        uniform(hidden, inputs=1),
        uniform(hidden, inputs=1),
        uniform(choices, hidden, inputs=hidden),
        uniform(choices, inputs=hidden),
    ]


def _q(parameters: Sequence[Array], states: Array) -> tuple[Array, Array]:
    """States (B,) -> the hidden layer (B, H) and values (B, A)."""
    into, bias, out, offset = parameters
    hidden = np.maximum(states[:, np.newaxis] * into + bias, 0.0)
    return hidden, hidden @ out.T + offset


def _gradients(parameters: Sequence[Array], states: Array, actions: NDArray[np.int64], goal: Array) -> list[Array]:
    """Of the mean squared error of the values of some actions, (B,), against a goal (B,)."""
    hidden, values = _q(parameters, states)
    rows = np.arange(len(states))
    of_values = np.zeros_like(values)
    of_values[rows, actions] = 2 * (values[rows, actions] - goal) / len(states)
    of_hidden = (of_values @ parameters[2]) * (hidden > 0)
    return [states @ of_hidden, of_hidden.sum(axis=0), of_values.T @ hidden, of_values.sum(axis=0)]
