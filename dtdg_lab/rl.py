"""Agents that choose one of a few actions: deep Q-networks on torch, a bandit, and two that learn nothing."""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError, PlanError
from dtdg_lab.core.rng import generator

if TYPE_CHECKING:
    import torch

# The interface of an agent: it gets a state, chooses an action, and later gets the reward.


@dataclass(frozen=True, slots=True)
class Choice:
    """An agent's choice and what it knew when it chose.

    Attributes:
        action: number of the action, from 0.
        values: what each action was thought to be worth, None where the agent has no opinion.
        epsilon: probability with which it would choose at random.
        greedy: whether the action is the one thought best; False where chance or curiosity chose.
    """

    action: int
    values: tuple[float | None, ...]
    epsilon: float
    greedy: bool


class Agent:
    """Chooses one of a few actions by a single number, the state.

    What it draws is a pure function of its seed and of how often it has chosen and learned, and ``state_dict`` is made
    of plain lists and numbers, so that an agent that is stored and loaded continues as if it had never stopped.
    """

    choices: int

    def choose(self, state: float) -> Choice:
        """The action to take in ``state``; counts as a decision."""
        raise NotImplementedError

    def learn(self, state: float, action: int, reward: float, next_state: float) -> None:
        """Use the ``reward`` that ``action`` earned in ``state``, and the state it led to; by default, do nothing."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next choice depends on: nothing by default."""
        return {}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        return


def checked_choices(choices: int, *, least: int = 2) -> int:
    """The number of actions, if there is something to choose from.

    Raises:
        ConfigError: there are fewer than ``least``.
    """
    if choices < least:
        raise ConfigError(
            f"a batch policy with {choices} action{'' if choices == 1 else 's'} has nothing to choose from: at least "
            f"{least} are needed. Give more sizes in snapshot_sizes or node_sizes, or set batch_policy to none."
        )
    return choices


def checked_action(action: int, choices: int) -> int:
    """The action, if there is one of that number.

    Raises:
        PlanError: it is not within 0 .. choices - 1.
    """
    if not 0 <= action < choices:
        raise PlanError(f"action {action}: there are {choices}, numbered from 0 to {choices - 1}.")
    return action


# Discounted UCB: the action whose recent rewards were best, or might be for all one knows.


FORGET = 0.99  # a reward counts half after 69 decisions
WIDTH = 0.5


class Bandit(Agent):
    """Chooses the action of the highest upper confidence bound, where old rewards fade; blind to the state.

    With N(a) = sum over the times a was taken of forget^age, and m(a) the mean of its rewards so weighted, the bound is
    m(a) + width sqrt(ln(sum of N) / N(a)). Actions that were never tried come first, the lower number before.
    It draws nothing: the same rewards, the same choices.

    Args:
        choices: A, number of actions, 2 or more.
        forget: weight that a reward keeps from one decision to the next, in (0, 1].
        width: of the confidence bound, in units of the reward.

    Raises:
        ConfigError: there is nothing to choose from.

    References: Garivier, Moulines 2011 (discounted UCB), section 2.1; Kocsis, Szepesvári 2006.
    Differs from the paper: its width, 2 B sqrt(xi) with B the rewards' range, is one for the worst case (6 for rewards
    within [-2, 2]) and would try bad actions most of the time over the few hundred decisions of a run; ours is 0.5.
    """

    def __init__(self, choices: int, *, forget: float = FORGET, width: float = WIDTH) -> None:
        self.choices = checked_choices(choices)
        self._forget, self._width = forget, width
        self._counts = [0.0] * choices
        self._sums = [0.0] * choices

    def choose(self, state: float) -> Choice:
        """The action of the highest bound, whatever the state; ties go to the lower one."""
        total = math.log(max(sum(self._counts), 1.0))
        means = tuple(reward / count if count else None for reward, count in zip(self._sums, self._counts, strict=True))
        bounds = [
            math.inf if mean is None else mean + self._width * math.sqrt(total / count)
            for mean, count in zip(means, self._counts, strict=True)
        ]
        action = bounds.index(max(bounds))
        best = max((mean for mean in means if mean is not None), default=None)
        return Choice(action, means, 0.0, means[action] is not None and means[action] == best)

    def learn(self, state: float, action: int, reward: float, next_state: float) -> None:
        """Let all that was fade by one decision, and add the reward to its action."""
        checked_action(action, self.choices)
        self._counts = [self._forget * count for count in self._counts]
        self._sums = [self._forget * total for total in self._sums]
        self._counts[action] += 1.0
        self._sums[action] += float(reward)

    def state_dict(self) -> dict[str, Any]:
        """Faded ``counts`` and ``sums`` of rewards, one of each per action."""
        return {"counts": list(self._counts), "sums": list(self._sums)}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        self._counts = [float(count) for count in data["counts"]]
        self._sums = [float(total) for total in data["sums"]]


Array = NDArray[np.float64]

# A small Q-network: the value of each action in a state.


@functools.cache
def _linear() -> type[torch.nn.Linear]:
    """Torch's layer, which draws nothing from the global stream; its own skip_init imports sympy for half a second."""
    import torch

    return type("Linear", (torch.nn.Linear,), {"reset_parameters": lambda _: None})


class QNetwork:
    """A torch module in float64: linear layers with ReLU between a state and the values of all actions.

    torch is imported here, not with the module: what only shows policies works without it.

    Args:
        sizes: widths (S, H, .., A): numbers of a state, hidden units, actions.
        parameters: all weights in one line, as :attr:`parameters`; zeros where None.

    Attributes:
        sizes: the widths.
        module: the layers.

    Raises:
        PlanError: parameters of another length than the widths need.
    """

    def __init__(self, sizes: Sequence[int], parameters: NDArray[np.floating] | None = None) -> None:
        import torch

        self.sizes = tuple(sizes)
        needed = sum((into + 1) * out for into, out in pairwise(self.sizes))
        if parameters is not None and parameters.shape != (needed,):
            raise PlanError(
                f"parameters of shape {parameters.shape} for layers of {' x '.join(map(str, self.sizes))}: ({needed},) "
                "are needed."
            )
        self._layers = [_linear()(into, out, dtype=torch.float64, device="cpu") for into, out in pairwise(self.sizes)]
        stacked = [each for layer in self._layers for each in (layer, torch.nn.ReLU())]
        self.module = torch.nn.Sequential(*stacked[:-1])
        left = np.zeros(needed) if parameters is None else parameters.astype(np.float64)
        with torch.no_grad():
            for layer, (into, out) in zip(self._layers, pairwise(self.sizes), strict=True):
                matrix, left = left[: (into + 1) * out].reshape(into + 1, out), left[(into + 1) * out :]
                layer.weight.copy_(torch.from_numpy(matrix[:-1].T))
                layer.bias.copy_(torch.from_numpy(matrix[-1]))

    @staticmethod
    def drawn(sizes: Sequence[int], seed: int) -> QNetwork:
        """One with weights and biases uniform within one over the root of a layer's inputs."""
        draw = generator(seed, "control/q_network")
        layers = [draw.uniform(-1, 1, (into + 1) * out) / np.sqrt(into) for into, out in pairwise(sizes)]
        return QNetwork(sizes, np.concatenate(layers))

    @property
    def parameters(self) -> Array:
        """(n,) a copy: of each layer a matrix (inputs + 1, outputs) whose last row is the bias."""
        rows = [(layer.weight.detach().numpy().T, layer.bias.detach().numpy()) for layer in self._layers]
        return np.concatenate([np.vstack(each).ravel() for each in rows])

    def values(self, states: NDArray[np.floating]) -> Array:
        """States (B, S) -> values (B, A)."""
        import torch

        with torch.no_grad():
            found: Array = self.module(_tensor(states)).numpy()
        return found

    def of_actions(self, states: NDArray[np.floating], actions: NDArray[np.int64]) -> torch.Tensor:
        """States (B, S) and actions (B,) -> their values (B,), with gradients."""
        found: torch.Tensor = self.module(_tensor(states)).gather(1, _tensor(actions, np.int64)[:, None])[:, 0]
        return found


def _tensor(values: Any, kind: type = np.float64) -> torch.Tensor:
    import torch

    return torch.from_numpy(np.array(values, dtype=kind))


# What a learner has lived through, as arrays: the last transitions, to learn from more than once.


class Transitions(NamedTuple):
    """B transitions.

    Attributes:
        states: (B, S) float32 in which was decided.
        actions: (B,) int64 taken.
        rewards: (B,) float32 earned.
        after: (B, S) float32 that followed.
        follows: (B,) float32 by which the value of what follows counts: the discount, and 0 where nothing follows.
    """

    states: NDArray[np.float32]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float32]
    after: NDArray[np.float32]
    follows: NDArray[np.float32]

    def taken(self, places: NDArray[Any]) -> Transitions:
        """Some of them."""
        return Transitions(*(given[places] for given in self))


class TransitionRing:
    """A replay memory of the newest transitions.

    Args:
        capacity: most transitions kept.
        inputs: S, numbers of a state.

    Raises:
        ConfigError: nothing could be kept.

    References: Lin 1992, Mnih et al. 2015 (experience replay).
    """

    def __init__(self, capacity: int, inputs: int) -> None:
        if capacity < 1:
            raise ConfigError(f"a replay memory of {capacity} transitions: at least 1 is needed.")
        self._held = Transitions(
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
        """Keep some, in their order."""
        places = (self._added + np.arange(len(new.actions))) % self._capacity
        for name in Transitions._fields:
            getattr(self._held, name)[places[-self._capacity :]] = getattr(new, name)[-self._capacity :]
        self._added += len(places)

    def sample(self, count: int, draw: np.random.Generator) -> Transitions:
        """``count`` of those held, each drawn for itself."""
        return self._held.taken(draw.integers(len(self), size=count))


# Double deep Q-learning over states of many numbers, for many episodes at once.


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

    Every draw is a pure function of the seed and of how often was chosen and learned before: on one machine, the same
    seed and transitions give the same network.

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
        from dtdg_lab.kernels.optimizers import OPTIMIZERS

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
        self._adam = OPTIMIZERS["adam"](self.online.module.parameters(), lr=RATE, foreach=False)
        self._seed, self._batch, self._target_every, self._clip = seed, batch, target_every, clip
        self._chosen = self.updates = 0

    def choose(self, states: NDArray[np.float32], epsilon: float = 0.0) -> NDArray[np.int64]:
        """States (B, S) -> actions (B,): the best ones, ties to the lower, or with probability epsilon any."""
        best: NDArray[np.int64] = self.online.values(states).argmax(axis=1)
        draw = generator(self._seed, "control/double_dqn/choice", self._chosen)
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
        import torch

        if len(self._ring) < self._batch:
            return None
        draw = generator(self._seed, "control/double_dqn/replay", self.updates)
        rows = self._ring.sample(self._batch, draw)
        goal = double_target(
            rows.rewards.astype(np.float64),
            rows.follows.astype(np.float64),
            self.online.values(rows.after) if self.double else np.empty(0),
            self._target.values(rows.after),
            double=self.double,
        )
        loss = torch.nn.functional.huber_loss(self.online.of_actions(rows.states, rows.actions), _tensor(goal))
        self._adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.online.module.parameters(), self._clip)
        self._adam.param_groups[0]["lr"] = rate
        self._adam.step()
        self.updates += 1
        if self.updates % self._target_every == 0:
            self._target.module.load_state_dict(self.online.module.state_dict())
        return loss.item()


# A small deep Q-network over a state of one number.


DQN_HIDDEN, DQN_MEMORY, DQN_BATCH, SOFT = 16, 1000, 5, 0.01


class DQN(Agent):
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
        from dtdg_lab.kernels.optimizers import OPTIMIZERS

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
        """Probability that the next choice is drawn."""
        return max(self._epsilon_min, self._epsilon_decay**self._decisions)

    def values(self, state: float) -> list[float]:
        """Q(state, action) for each action."""
        found: list[float] = self._online.values(np.array([[state]]))[0].tolist()
        return found

    def choose(self, state: float) -> Choice:
        """A drawn action with probability epsilon, else the one of the highest Q-value; ties go to the lower one."""
        values, epsilon = self.values(state), self.epsilon
        draw = generator(self._seed, "control/dqn/choice", self._decisions)
        self._decisions += 1
        explores = draw.random() < epsilon
        action = int(draw.integers(self.choices)) if explores else values.index(max(values))
        return Choice(action, tuple(values), epsilon, not explores)

    def learn(self, state: float, action: int, reward: float, next_state: float) -> None:
        """Remember the transition, and take one step on a few remembered ones once there are enough."""
        import torch

        self._replay.append((float(state), int(action), float(reward), float(next_state)))
        if len(self._replay) < self._batch:
            return
        draw = generator(self._seed, "control/dqn/replay", self._learned)
        self._learned += 1
        places = draw.choice(len(self._replay), size=self._batch, replace=False)
        before, actions, rewards, after = np.array([self._replay[place] for place in places]).T
        goal = rewards + self._discount * self._target.values(after[:, None]).max(axis=1)
        missed = self._online.of_actions(before[:, None], actions) - _tensor(goal)
        self._adam.zero_grad()
        missed.square().mean().backward()
        self._adam.step()
        with torch.no_grad():
            for slow, parameter in zip(*self._parameters(), strict=True):
                slow.lerp_(parameter, self._soft)

    def _parameters(self) -> tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]]:
        """Weights and biases of each layer: of the target network, and of the one that learns."""
        return list(self._target.module.parameters()), list(self._online.module.parameters())

    def state_dict(self) -> dict[str, Any]:
        """Both networks, Adam's means, the memory and the counters, as plain lists and numbers."""
        target, online = self._parameters()
        return {
            "decisions": self._decisions,
            "learned": self._learned,
            "online": [_plain(parameter) for parameter in online],
            "target": [_plain(parameter) for parameter in target],
            "adam": [
                {"step": int(held["step"]), **{name: _plain(held[name]) for name in ("exp_avg", "exp_avg_sq")}}
                for held in (self._adam.state[parameter] for parameter in online if parameter in self._adam.state)
            ],
            "replay": [list(row) for row in self._replay],
        }

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        import torch

        self._decisions, self._learned = int(data["decisions"]), int(data["learned"])
        target, online = self._parameters()
        with torch.no_grad():
            for parameters, stored in ((target, data["target"]), (online, data["online"])):
                for parameter, numbers in zip(parameters, stored, strict=True):
                    parameter.copy_(_tensor(numbers).view_as(parameter))
        self._adam.state.clear()
        for parameter, held in zip(online, data["adam"], strict=False):  # none before the first step
            means = {name: _tensor(held[name]).view_as(parameter) for name in ("exp_avg", "exp_avg_sq")}
            self._adam.state[parameter] = {"step": torch.tensor(float(held["step"])), **means}
        self._replay.clear()
        self._replay.extend((float(of[0]), int(of[1]), float(of[2]), float(of[3])) for of in data["replay"])


def _plain(parameter: torch.Tensor) -> list[Any]:
    """As lists; the weights of the single input as one list."""
    rows: list[Any] = (parameter[:, 0] if parameter.shape[1:] == (1,) else parameter).tolist()
    return rows


def _drawn_parameters(choices: int, hidden: int, seed: int) -> Array:
    """Weights and biases (H,), (H,), (A, H), (A,), in one line; uniform within one over the root of inputs."""
    draw = generator(seed, "control/dqn/parameters")
    into, bias = draw.uniform(-1, 1, (2, hidden))
    out, offset = (draw.uniform(-1, 1, shape) / np.sqrt(hidden) for shape in ((choices, hidden), choices))
    return np.concatenate([into, bias, out.T.ravel(), offset])


# The batch policy that adjusts nothing: the same action always.


class Fixed(Agent):
    """Chooses one action always; what the others are compared with.

    Args:
        choices: number of actions, 1 or more.
        action: the one it chooses.

    Raises:
        PlanError: there is no such action.

    References: the fixed batch sizes of DynaHB table 8.
    """

    def __init__(self, choices: int, action: int = 0) -> None:
        self.choices = checked_choices(choices, least=1)
        self.action = checked_action(action, choices)

    def choose(self, state: float) -> Choice:
        """The action that was given, whatever the state."""
        return Choice(self.action, (None,) * self.choices, 0.0, True)


# Any action, as likely as another: what an agent that learns must beat.


class UniformAgent(Agent):
    """Draws each action with the same probability.

    Args:
        choices: number of actions, 2 or more.
        seed: of its draws.

    Raises:
        ConfigError: there is nothing to choose from.

    References: "Random" of DynaHB table 10.
    """

    def __init__(self, choices: int, *, seed: int = 0) -> None:
        self.choices = checked_choices(choices)
        self._seed = seed
        self._decisions = 0

    def choose(self, state: float) -> Choice:
        """A drawn action, whatever the state."""
        draw = generator(self._seed, "control/uniform", self._decisions)
        self._decisions += 1
        return Choice(int(draw.integers(self.choices)), (None,) * self.choices, 1.0, False)

    def state_dict(self) -> dict[str, Any]:
        """``decisions`` made so far."""
        return {"decisions": self._decisions}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        self._decisions = int(data["decisions"])
