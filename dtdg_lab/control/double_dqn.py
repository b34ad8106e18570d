"""Double deep Q-learning over states of many numbers, for many episodes at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.control.adam import Adam
from dtdg_lab.control.q_network import Array, QNetwork
from dtdg_lab.control.transitions import TransitionRing, Transitions
from dtdg_lab.core import streams
from dtdg_lab.core.errors import ConfigError

HIDDEN, MEMORY, BATCH, TARGET_EVERY, CLIP, DISCOUNT = (256, 256), 50_000, 64, 100, 10.0, 0.99
RATE = 5e-4


def double_target(rewards: Array, follows: Array, online: Array, target: Array, *, double: bool = True) -> Array:
    """What Q(s, a) should have been, (B,).

    Args:
        rewards: (B,) earned by the action.
        follows: (B,) by which the value of the next state counts.
        online: (B, A) values of the next state by the network that learns.
        target: (B, A) the same by the target network.
        double: whether the learning network names the best next action (Double DQN) or the target network does (DQN).
            The target network says in both cases what that action is worth.

    References: van Hasselt, Guez, Silver 2016; GreenDyGNN section IV-C2, Eq. 6.
    """
    best = np.argmax(online if double else target, axis=1)
    return rewards + follows * target[np.arange(len(target)), best]


class DoubleDQN:
    """A Q-network with ReLU layers, learned from replayed transitions with Adam on the Huber loss.

    Every draw is a pure function of the seed and of how often was chosen and learned before, and all products of
    matrices are exact (:mod:`dtdg_lab.control.exact_product`): the same seed and transitions give the same bits.

    Args:
        inputs: S, numbers of a state.
        choices: A, number of actions, 2 or more.
        seed: of the weights and of all draws.
        double: Double DQN; False for DQN.
        hidden: widths of the hidden layers.
        memory: transitions remembered.
        batch: transitions of an update.
        target_every: updates between two copies to the target network.
        clip: longest gradient; longer ones are shortened to it.

    Raises:
        ConfigError: there is nothing to choose from, or a number that must be above 0 is not.

    References: GreenDyGNN section IV-C2 (network, memory, batch, target, clip).
    Differs from the paper: written out in numpy; on two layers of 256 that takes about what a framework takes, and
    keeps this room free of it. Adam's rate is not given there.
    """

    def __init__(
        self,
        inputs: int,
        choices: int,
        *,
        seed: int = 0,
        double: bool = True,
        hidden: tuple[int, ...] = HIDDEN,
        memory: int = MEMORY,
        batch: int = BATCH,
        target_every: int = TARGET_EVERY,
        clip: float = CLIP,
    ) -> None:
        for name, given in {"inputs": inputs, "batch": batch, "target_every": target_every, "clip": clip}.items():
            if not given > 0:
                raise ConfigError(f"{name}={given}: a learner needs a number above 0.")
        if choices < 2:
            raise ConfigError(f"choices={choices}: a learner with nothing to choose from; give it at least 2 actions.")
        sizes = (inputs, *hidden, choices)
        self.choices, self.double = choices, double
        self.online = QNetwork.drawn(sizes, seed)
        self._target = QNetwork(sizes, self.online.parameters)
        self._ring = TransitionRing(memory, inputs)
        self._adam = Adam([self.online.parameters], RATE)
        self._seed, self._batch, self._target_every, self._clip = seed, batch, target_every, clip
        self._chosen = self.updates = 0

    def choose(self, states: NDArray[np.float32], epsilon: float = 0.0) -> NDArray[np.int64]:
        """States (B, S) -> actions (B,): the best ones, ties to the lower, or with probability epsilon any."""
        best: NDArray[np.int64] = self.online.values(states).argmax(axis=1)
        draw = streams.generator(self._seed, "control/double_dqn/choice", self._chosen)
        self._chosen += 1
        explores = draw.random(len(best)) < epsilon
        return np.where(explores, draw.integers(self.choices, size=len(best)), best)

    def remember(self, new: Transitions) -> None:
        """Take in what followed some actions."""
        self._ring.add(new)

    def learn(self, rate: float = RATE) -> float | None:
        """One update; the mean Huber loss, None while too few transitions are remembered.

        Args:
            rate: Adam's learning rate.
        """
        if len(self._ring) < self._batch:
            return None
        draw = streams.generator(self._seed, "control/double_dqn/replay", self.updates)
        rows = self._ring.sample(self._batch, draw)
        goal = double_target(
            rows.rewards.astype(np.float64),
            rows.follows.astype(np.float64),
            self.online.values(rows.after) if self.double else np.empty(0),
            self._target.values(rows.after),
            double=self.double,
        )
        loss, gradient = self._loss(rows, goal)
        length = float(np.sqrt(np.square(gradient).sum()))
        if length > self._clip:
            gradient *= np.float32(self._clip / length)
        self._adam.step([gradient], rate)
        self.online.changed()
        self.updates += 1
        if self.updates % self._target_every == 0:
            self._target.copy_of(self.online)
        return loss

    def _loss(self, rows: Transitions, goal: Array) -> tuple[float, Array]:
        """Mean Huber loss, width 1, of Q(s, a) against a goal (B,), and its gradient (n,)."""
        (values, inputs), places = self.online.traced(rows.states), np.arange(len(rows))
        beside = values[places, rows.actions] - goal
        of_values = np.zeros_like(values)
        of_values[places, rows.actions] = np.clip(beside, -1, 1) / len(rows)
        far = np.abs(beside)
        loss = np.where(far <= 1, beside**2 / 2, far - 0.5).mean()
        return float(loss), self.online.gradient(inputs, of_values)

    def state_dict(self) -> dict[str, Any]:
        """Both networks, Adam's means, the memory and the counters."""
        return {
            "chosen": self._chosen,
            "updates": self.updates,
            "online": self.online.parameters.copy(),
            "target": self._target.parameters.copy(),
            "adam": self._adam.state_dict(),
            "ring": self._ring.state_dict(),
        }

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        self._chosen, self.updates = int(data["chosen"]), int(data["updates"])
        for network, name in ((self.online, "online"), (self._target, "target")):
            network.parameters[...] = data[name]
            network.changed()
        self._adam.load_state_dict(data["adam"])
        self._ring.load_state_dict(data["ring"])
