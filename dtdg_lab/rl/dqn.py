"""Deep Q-networks: DQN over a scalar state, and Double DQN over many episodes at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError, PlanError
from dtdg_lab.core.rng import generator
from dtdg_lab.kernels.optimizers import OPTIMIZERS
from dtdg_lab.rl.agent import Agent, AgentChoice, checked_choices

Array = NDArray[np.float64]


class _Linear(torch.nn.Linear):
    """torch's linear layer without initialisation; torch's skip_init would import sympy for half a second."""

    def reset_parameters(self) -> None:
        """Leave the parameters to the caller."""


class QNetwork:
    """A torch module: linear layers with ReLU between a state and the values of all actions.

    Args:
        sizes: widths (S, H, .., A): numbers of a state, hidden units, actions.
        parameters: flat vector of all weights, as :attr:`parameters`; None for zeros.
        precision: torch type of the layers.

    Attributes:
        sizes: the widths.
        module: the layers.

    Raises:
        PlanError: the number of parameters does not fit the widths.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        parameters: NDArray[np.floating] | None = None,
        *,
        precision: torch.dtype = torch.float64,
    ) -> None:
        self.sizes, self._precision = tuple(sizes), precision
        count = sum((into + 1) * out for into, out in pairwise(self.sizes))
        if parameters is not None and parameters.shape != (count,):
            raise PlanError(
                f"parameters of shape {parameters.shape} do not fit layers of {' x '.join(map(str, self.sizes))}: "
                f"({count},) are needed."
            )
        self._layers = [_Linear(into, out, dtype=precision, device="cpu") for into, out in pairwise(self.sizes)]
        stacked = [module for layer in self._layers for module in (layer, torch.nn.ReLU())]
        self.module = torch.nn.Sequential(*stacked[:-1])
        self.load_parameters(np.zeros(count) if parameters is None else parameters)

    def load_parameters(self, parameters: NDArray[np.floating]) -> None:
        """Replace all parameters by those of a vector, as :attr:`parameters`."""
        rest = parameters.astype(np.float64)
        with torch.no_grad():
            for layer, (into, out) in zip(self._layers, pairwise(self.sizes), strict=True):
                matrix, rest = rest[: (into + 1) * out].reshape(into + 1, out), rest[(into + 1) * out :]
                layer.weight.copy_(torch.from_numpy(matrix[:-1].T))
                layer.bias.copy_(torch.from_numpy(matrix[-1]))

    @staticmethod
    def drawn(sizes: Sequence[int], seed: int, *, precision: torch.dtype = torch.float64) -> QNetwork:
        """Return a network with uniform weights and biases within 1 / sqrt(inputs of the layer)."""
        rng = generator(seed, "control/q_network")
        layers = [rng.uniform(-1, 1, (into + 1) * out) / np.sqrt(into) for into, out in pairwise(sizes)]
        return QNetwork(sizes, np.concatenate(layers), precision=precision)

    @property
    def parameters(self) -> Array:
        """Copy of all parameters, (n,): for each layer a matrix (inputs + 1, outputs) whose last row is the bias."""
        rows = [(layer.weight.detach().numpy().T, layer.bias.detach().numpy()) for layer in self._layers]
        return np.concatenate([np.vstack(pair).ravel() for pair in rows])

    def values(self, states: NDArray[np.floating]) -> Array:
        """Return the values (B, A) of all actions in states (B, S)."""
        with torch.no_grad():
            values: Array = self.module(as_tensor(states).to(self._precision)).numpy()
        return values

    def of_actions(self, states: NDArray[np.floating], actions: NDArray[np.int64]) -> torch.Tensor:
        """Return the values (B,) of actions (B,) in states (B, S), with gradients."""
        values: torch.Tensor = self.module(as_tensor(states).to(self._precision))
        return values.gather(1, as_tensor(actions, np.int64)[:, None])[:, 0]

    def join_parameters(self) -> torch.nn.Parameter:
        """Return all parameters as one vector, whose gradient is 0; those of the layers become views of it.

        An optimizer, a norm and a reset of the gradient then take one operation each.
        """
        layers = list(self.module.parameters())
        joined = torch.nn.Parameter(torch.nn.utils.parameters_to_vector(layers).detach())
        joined.grad = torch.zeros_like(joined)
        sizes = [layer.numel() for layer in layers]
        for layer, values, gradient in zip(layers, joined.detach().split(sizes), joined.grad.split(sizes), strict=True):
            layer.data, layer.grad = values.view_as(layer), gradient.view_as(layer)
        return joined


def as_tensor(values: Any, dtype: type = np.float64) -> torch.Tensor:
    """Return a copy of values as a tensor."""
    return torch.from_numpy(np.array(values, dtype=dtype))


DQN_HIDDEN, DQN_MEMORY, DQN_BATCH, SOFT = 16, 1000, 5, 0.01


class DQN(Agent):
    """An epsilon-greedy agent on a network Q(state, action) with one hidden layer, trained on replayed transitions.

    Every transition is followed by one step of Adam, once the replay buffer has a batch: on the squared error of
    Q(s, a) against r + gamma max_a' Q'(s', a'). Then the target network Q' moves towards Q by the factor ``soft``.
    Epsilon is 1 at the first decision and decays with every decision.

    Args:
        choices: number of actions, A, 2 or more.
        seed: seed of the weights and of all draws.
        discount: discount factor, gamma.
        epsilon_decay: decay factor of epsilon.
        epsilon_min: lower bound of epsilon.
        rate: Adam's learning rate.
        hidden: width of the hidden layer.
        memory: capacity of the replay buffer.
        batch: batch size.
        soft: soft update factor of the target network.

    Raises:
        ConfigError: there is nothing to choose from, or the replay buffer has no capacity.

    References: DynaHB section 5.1 (state, gamma, epsilon, rate) and its released code (network, memory, batch, soft
    target), after Mnih et al. 2015 and, for the soft target, Lillicrap et al. 2016.
    Differs from the paper: it specifies neither loss nor optimizer; ours are the squared error and Adam, in float64.
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
            raise ConfigError(f"a replay buffer of {memory} transitions is too small. Choose a size of at least 1.")
        self.choices = checked_choices(choices)
        self._seed, self._discount, self._batch, self._soft = seed, discount, batch, soft
        self._epsilon_decay, self._epsilon_min = epsilon_decay, epsilon_min
        self._replay = deque[tuple[float, int, float, float]](maxlen=memory)  # Lin 1992 (experience replay)
        parameters = _drawn_parameters(choices, hidden, seed)
        self._online, self._target = (QNetwork((1, hidden, choices), parameters) for _ in range(2))
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

    def choose(self, state: float) -> AgentChoice:
        """Return a random action with probability epsilon, else the best by Q-value; ties go to the lower."""
        values, epsilon = self.values(state), self.epsilon
        rng = generator(self._seed, "control/dqn/choice", self._decisions)
        self._decisions += 1
        explores = rng.random() < epsilon
        action = int(rng.integers(self.choices)) if explores else values.index(max(values))
        return AgentChoice(action, tuple(values), epsilon, not explores)

    def learn(self, state: float, action: int, reward: float, next_state: float) -> None:
        """Store the transition, and train one step on a replayed batch once there are enough transitions."""
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
        """Return weights and biases of each layer, of the target network and of the online network."""
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
    """Return weights and biases (H,), (H,), (A, H), (A,) in one vector, uniform within 1 / sqrt(inputs)."""
    rng = generator(seed, "control/dqn/parameters")
    into, bias = rng.uniform(-1, 1, (2, hidden))
    out, offset = (rng.uniform(-1, 1, shape) / np.sqrt(hidden) for shape in ((choices, hidden), choices))
    return np.concatenate([into, bias, out.T.ravel(), offset])


class Transitions(NamedTuple):
    """B transitions.

    Attributes:
        states: (B, S) float32, states before the actions.
        actions: (B,) int64.
        rewards: (B,) float32.
        after: (B, S) float32, the next states.
        follows: (B,) float32, discount of the next state's value; 0 at an episode's end.
    """

    states: NDArray[np.float32]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float32]
    after: NDArray[np.float32]
    follows: NDArray[np.float32]

    def rows(self, indices: NDArray[Any]) -> Transitions:
        """Return the transitions at some indices."""
        return Transitions(*(column[indices] for column in self))


class TransitionRing:
    """A ring buffer of the newest transitions.

    Args:
        capacity: maximum number of transitions.
        inputs: numbers of a state, S.

    Raises:
        ConfigError: the capacity is below 1.

    References: Lin 1992, Mnih et al. 2015 (experience replay).
    """

    def __init__(self, capacity: int, inputs: int) -> None:
        if capacity < 1:
            raise ConfigError(f"a replay buffer of {capacity} transitions is too small. Choose a size of at least 1.")
        self._transitions = Transitions(
            states=np.zeros((capacity, inputs), np.float32),
            actions=np.zeros(capacity, np.int64),
            rewards=np.zeros(capacity, np.float32),
            after=np.zeros((capacity, inputs), np.float32),
            follows=np.zeros(capacity, np.float32),
        )
        self._capacity, self._added = capacity, 0

    def __len__(self) -> int:
        return min(self._added, self._capacity)

    def add(self, new: Transitions) -> None:
        """Add transitions, in their order."""
        slots = (self._added + np.arange(len(new.actions))) % self._capacity
        for name in Transitions._fields:
            getattr(self._transitions, name)[slots[-self._capacity :]] = getattr(new, name)[-self._capacity :]
        self._added += len(slots)

    def sample(self, count: int, rng: np.random.Generator) -> Transitions:
        """Return ``count`` transitions, drawn with replacement."""
        return self._transitions.rows(rng.integers(len(self), size=count))

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return the stored transitions and their number, as arrays."""
        return {**self._transitions.rows(np.arange(len(self)))._asdict(), "added": np.array(self._added)}

    def load_state_dict(self, data: Mapping[str, NDArray[Any]]) -> None:
        """Continue from the output of :meth:`state_dict`."""
        self._added = int(data["added"])
        for name in Transitions._fields:
            getattr(self._transitions, name)[: len(self)] = data[name]


HIDDEN, MEMORY, BATCH, TARGET_EVERY, CLIP, DISCOUNT = (256, 256), 50_000, 64, 100, 10.0, 0.99
RATE = 5e-4


def double_target(rewards: Array, follows: Array, online: Array, target: Array, *, double: bool = True) -> Array:
    """Return the target of Q(s, a), (B,).

    Args:
        rewards: (B,) rewards of the actions.
        follows: (B,) discounts of the next state's value.
        online: (B, A) values of the next state by the online network.
        target: (B, A) values of the next state by the target network.
        double: whether the online network selects the best next action (Double DQN) or the target network (DQN). The
            target network evaluates it in both cases.

    References: van Hasselt, Guez, Silver 2016; GreenDyGNN section IV-C2, Eq. 6.
    """
    best = np.argmax(online if double else target, axis=1)
    return rewards + follows * target[np.arange(len(target)), best]


class DoubleDQN:
    """A Q-network with ReLU layers, trained on replayed transitions with Adam on the Huber loss.

    Every draw is a pure function of the seed and of the numbers of choices and updates: on one machine, equal seeds
    and transitions give equal networks.

    Args:
        inputs: numbers of a state, S.
        choices: number of actions, A, 2 or more.
        seed: seed of the weights and of all draws.
        double: whether to use Double DQN; False for DQN.
        hidden: widths of the hidden layers.
        memory: capacity of the replay buffer.
        batch: batch size.
        target_every: updates between two copies to the target network.
        clip: maximum norm of the gradient.
        precision: "float64", or "float32", whose updates take less than half of the time.

    Raises:
        ConfigError: there is nothing to choose from, or a number that must be above 0 is not.

    References: GreenDyGNN section IV-C2 (network, memory, batch, target, clip).
    Differs from the paper: it does not give Adam's learning rate.
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
        precision: Literal["float64", "float32"] = "float64",
    ) -> None:
        for name, value in {"inputs": inputs, "batch": batch, "target_every": target_every, "clip": clip}.items():
            if not value > 0:
                raise ConfigError(f"{name}={value} is not above 0. Choose a larger number.")
        if choices < 2:
            raise ConfigError(f"choices={choices} leaves nothing to choose from. Give at least 2 actions.")
        sizes = (inputs, *hidden, choices)
        self.choices, self.double = choices, double
        kind = getattr(torch, precision)
        self.online = QNetwork.drawn(sizes, seed, precision=kind)
        self._target = QNetwork(sizes, self.online.parameters, precision=kind)
        self._ring = TransitionRing(memory, inputs)
        self._joins = precision == "float32"
        self._updated = [self.online.join_parameters()] if self._joins else list(self.online.module.parameters())
        self._adam = OPTIMIZERS["adam"](self._updated, lr=RATE, foreach=False, fused=self._joins)
        self._seed, self._batch, self._target_every, self._clip = seed, batch, target_every, clip
        self._chosen = self.updates = 0

    def choose(self, states: NDArray[np.float32], epsilon: float = 0.0) -> NDArray[np.int64]:
        """Return actions (B,) for states (B, S): random with probability epsilon, else the best; ties to the lower."""
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
        values = self.online.of_actions(rows.states, rows.actions)
        loss = torch.nn.functional.huber_loss(values, as_tensor(goal).to(values.dtype))
        self._adam.zero_grad(set_to_none=not self._joins)  # layers keep their views of the joined gradient
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._updated, self._clip)
        self._adam.param_groups[0]["lr"] = rate
        self._adam.step()
        self.updates += 1
        if self.updates % self._target_every == 0:
            self._target.module.load_state_dict(self.online.module.state_dict())
        return loss.item()

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return both networks, Adam's means, the replay buffer and the counters, as arrays."""
        moments = {
            f"adam_{index}_{name}": value.numpy()
            for index, parameter in enumerate(self._updated)
            for name, value in self._adam.state.get(parameter, {}).items()
        }
        return {
            "online": self.online.parameters,
            "target": self._target.parameters,
            "counts": np.array([self._chosen, self.updates]),
            **moments,
            **{f"ring_{name}": column for name, column in self._ring.state_dict().items()},
        }

    def load_state_dict(self, data: Mapping[str, NDArray[Any]]) -> None:
        """Continue from the output of :meth:`state_dict`, bit for bit."""
        self.online.load_parameters(data["online"])
        self._target.load_parameters(data["target"])
        self._chosen, self.updates = map(int, data["counts"])
        self._ring.load_state_dict({name.removeprefix("ring_"): column for name, column in data.items()})
        for index, parameter in enumerate(self._updated):
            prefix = f"adam_{index}_"
            moments = {name: values for name, values in data.items() if name.startswith(prefix)}
            self._adam.state[parameter] = {
                name.removeprefix(prefix): torch.from_numpy(values.copy()) for name, values in moments.items()
            }
            if not moments:  # none before the first update
                del self._adam.state[parameter]
