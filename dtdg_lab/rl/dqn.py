"""A small deep Q-network over a state of one number."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.rng import generator
from dtdg_lab.kernels.optimizers import OPTIMIZERS
from dtdg_lab.rl.agent import Agent, Choice, checked_choices
from dtdg_lab.rl.q_network import Array, QNetwork, as_tensor

DQN_HIDDEN, DQN_MEMORY, DQN_BATCH, SOFT = 16, 1000, 5, 0.01


class DQN(Agent):
    """An epsilon-greedy agent on a network Q(state, action) with one hidden layer, learned from replayed transitions.

    Every transition is followed by one step of Adam on the squared error of Q(s, a) against
    r + gamma max_a' Q'(s', a') over a batch drawn from the replay buffer, once it has that many; then the target
    network Q' moves by ``soft`` of the way to Q. Epsilon is 1 at the first decision and falls by a factor with every
    decision.

    Args:
        choices: A, number of actions, 2 or more.
        seed: of the weights and of all draws.
        discount: gamma.
        epsilon_decay: factor by which epsilon falls.
        epsilon_min: its lower bound.
        rate: Adam's learning rate.
        hidden: width of the hidden layer.
        memory: transitions in the replay buffer.
        batch: transitions of a step.
        soft: share of the way that the target network goes.

    Raises:
        ConfigError: there is nothing to choose from, or no transition could be kept.

    References: DynaHB section 5.1 (state, gamma, epsilon, rate) and its released code (network, memory, batch, soft
    target), after Mnih et al. 2015 and, for the soft target, Lillicrap et al. 2016.
    Differs from the paper: it names neither the loss nor the optimiser; ours are the squared error and Adam, in
    float64.
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
        hidden: int = DQN_HIDDEN,
        memory: int = DQN_MEMORY,
        batch: int = DQN_BATCH,
        soft: float = SOFT,
    ) -> None:
        if memory < 1:
            raise ConfigError(f"a replay memory of {memory} transitions: at least 1 is needed.")
        self.choices = checked_choices(choices)
        self._seed, self._discount, self._batch, self._soft = seed, discount, batch, soft
        self._epsilon_decay, self._epsilon_min = epsilon_decay, epsilon_min
        self._replay = deque[tuple[float, int, float, float]](maxlen=memory)  # Lin 1992 (experience replay)
        line = _drawn_parameters(choices, hidden, seed)
        self._online, self._target = (QNetwork((1, hidden, choices), line) for _ in range(2))
        self._adam = OPTIMIZERS["adam"](self._online.module.parameters(), lr=rate, foreach=False)
        self._decisions = 0
        self._learned = 0

    @property
    def epsilon(self) -> float:
        """Probability that the next choice is random."""
        return max(self._epsilon_min, self._epsilon_decay**self._decisions)

    def values(self, state: float) -> list[float]:
        """Return Q(state, action) for each action."""
        values: list[float] = self._online.values(np.array([[state]]))[0].tolist()
        return values

    def choose(self, state: float) -> Choice:
        """Return a random action with probability epsilon, else the one of the highest Q-value; ties to the lower."""
        values, epsilon = self.values(state), self.epsilon
        rng = generator(self._seed, "control/dqn/choice", self._decisions)
        self._decisions += 1
        explores = rng.random() < epsilon
        action = int(rng.integers(self.choices)) if explores else values.index(max(values))
        return Choice(action, tuple(values), epsilon, not explores)

    def learn(self, state: float, action: int, reward: float, next_state: float) -> None:
        """Store the transition, and take one step on a batch of stored ones once there are enough."""
        self._replay.append((float(state), int(action), float(reward), float(next_state)))
        if len(self._replay) < self._batch:
            return
        rng = generator(self._seed, "control/dqn/replay", self._learned)
        self._learned += 1
        indices = rng.choice(len(self._replay), size=self._batch, replace=False)
        states, actions, rewards, after = np.array([self._replay[index] for index in indices]).T
        goal = rewards + self._discount * self._target.values(after[:, None]).max(axis=1)
        errors = self._online.of_actions(states[:, None], actions) - as_tensor(goal)
        self._adam.zero_grad()
        errors.square().mean().backward()
        self._adam.step()
        with torch.no_grad():
            for slow, parameter in zip(*self._parameters(), strict=True):
                slow.lerp_(parameter, self._soft)

    def _parameters(self) -> tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]]:
        """Return weights and biases of each layer: of the target network, and of the one that learns."""
        return list(self._target.module.parameters()), list(self._online.module.parameters())

    def state_dict(self) -> dict[str, Any]:
        """Return both networks, Adam's means, the replay buffer and the counters, as plain lists and numbers."""
        target, online = self._parameters()
        return {
            "decisions": self._decisions,
            "learned": self._learned,
            "online": [_plain(parameter) for parameter in online],
            "target": [_plain(parameter) for parameter in target],
            "adam": [
                {"step": int(moments["step"]), **{name: _plain(moments[name]) for name in ("exp_avg", "exp_avg_sq")}}
                for moments in (self._adam.state[parameter] for parameter in online if parameter in self._adam.state)
            ],
            "replay": [list(row) for row in self._replay],
        }

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Continue from the output of :meth:`state_dict`."""
        self._decisions, self._learned = int(data["decisions"]), int(data["learned"])
        target, online = self._parameters()
        with torch.no_grad():
            for parameters, stored in ((target, data["target"]), (online, data["online"])):
                for parameter, numbers in zip(parameters, stored, strict=True):
                    parameter.copy_(as_tensor(numbers).view_as(parameter))
        self._adam.state.clear()
        for parameter, moments in zip(online, data["adam"], strict=False):  # none before the first step
            means = {name: as_tensor(moments[name]).view_as(parameter) for name in ("exp_avg", "exp_avg_sq")}
            self._adam.state[parameter] = {"step": torch.tensor(float(moments["step"])), **means}
        self._replay.clear()
        self._replay.extend(
            (float(state), int(action), float(reward), float(after)) for state, action, reward, after in data["replay"]
        )


def _plain(parameter: torch.Tensor) -> list[Any]:
    """Return a parameter as lists; the weights of the single input as one list."""
    rows: list[Any] = (parameter[:, 0] if parameter.shape[1:] == (1,) else parameter).tolist()
    return rows


def _drawn_parameters(choices: int, hidden: int, seed: int) -> Array:
    """Return weights and biases (H,), (H,), (A, H), (A,) in one vector, uniform within one over the root of inputs."""
    rng = generator(seed, "control/dqn/parameters")
    into, bias = rng.uniform(-1, 1, (2, hidden))
    out, offset = (rng.uniform(-1, 1, shape) / np.sqrt(hidden) for shape in ((choices, hidden), choices))
    return np.concatenate([into, bias, out.T.ravel(), offset])
