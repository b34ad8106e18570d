"""Double deep Q-learning over states of many numbers, for many episodes at once."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.rng import generator
from dtdg_lab.kernels.optimizers import OPTIMIZERS
from dtdg_lab.rl.q_network import Array, QNetwork, as_tensor
from dtdg_lab.rl.replay import TransitionRing, Transitions

HIDDEN, MEMORY, BATCH, TARGET_EVERY, CLIP, DISCOUNT = (256, 256), 50_000, 64, 100, 10.0, 0.99
RATE = 5e-4


def double_target(rewards: Array, follows: Array, online: Array, target: Array, *, double: bool = True) -> Array:
    """Return the target of Q(s, a), (B,).

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

    Every draw is a pure function of the seed and of the numbers of choices and updates: on one machine, equal seeds
    and transitions give equal networks.

    Args:
        inputs: S, numbers of a state.
        choices: A, number of actions, 2 or more.
        seed: of the weights and of all draws.
        double: Double DQN; False for DQN.
        hidden: widths of the hidden layers.
        memory: transitions in the replay buffer.
        batch: transitions of an update.
        target_every: updates between two copies to the target network.
        clip: maximum norm of the gradient.

    Raises:
        ConfigError: there is nothing to choose from, or a number that must be above 0 is not.

    References: GreenDyGNN section IV-C2 (network, memory, batch, target, clip).
    Differs from the paper: Adam's rate is not given there.
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
        for name, value in {"inputs": inputs, "batch": batch, "target_every": target_every, "clip": clip}.items():
            if not value > 0:
                raise ConfigError(f"{name}={value}: a learner needs a number above 0.")
        if choices < 2:
            raise ConfigError(f"choices={choices}: a learner with nothing to choose from; give it at least 2 actions.")
        sizes = (inputs, *hidden, choices)
        self.choices, self.double = choices, double
        self.online = QNetwork.drawn(sizes, seed)
        self._target = QNetwork(sizes, self.online.parameters)
        self._ring = TransitionRing(memory, inputs)
        self._adam = OPTIMIZERS["adam"](self.online.module.parameters(), lr=RATE, foreach=False)
        self._seed, self._batch, self._target_every, self._clip = seed, batch, target_every, clip
        self._chosen = self.updates = 0

    def choose(self, states: NDArray[np.float32], epsilon: float = 0.0) -> NDArray[np.int64]:
        """Return actions (B,) for states (B, S): the best, ties to the lower, or random with probability epsilon."""
        best: NDArray[np.int64] = self.online.values(states).argmax(axis=1)
        rng = generator(self._seed, "control/double_dqn/choice", self._chosen)
        self._chosen += 1
        explores = rng.random(len(best)) < epsilon
        return np.where(explores, rng.integers(self.choices, size=len(best)), best)

    def remember(self, new: Transitions) -> None:
        """Add transitions to the replay buffer."""
        self._ring.add(new)

    def learn(self, rate: float = RATE) -> float | None:
        """Update once and return the mean Huber loss; None while the buffer has too few transitions.

        Args:
            rate: Adam's learning rate.
        """
        if len(self._ring) < self._batch:
            return None
        rng = generator(self._seed, "control/double_dqn/replay", self.updates)
        rows = self._ring.sample(self._batch, rng)
        goal = double_target(
            rows.rewards.astype(np.float64),
            rows.follows.astype(np.float64),
            self.online.values(rows.after) if self.double else np.empty(0),
            self._target.values(rows.after),
            double=self.double,
        )
        loss = torch.nn.functional.huber_loss(self.online.of_actions(rows.states, rows.actions), as_tensor(goal))
        self._adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.online.module.parameters(), self._clip)
        self._adam.param_groups[0]["lr"] = rate
        self._adam.step()
        self.updates += 1
        if self.updates % self._target_every == 0:
            self._target.module.load_state_dict(self.online.module.state_dict())
        return loss.item()
