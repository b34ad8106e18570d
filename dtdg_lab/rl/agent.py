"""Agents that choose one of a few actions: their interface, fixed and uniform baselines, and discounted UCB."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dtdg_lab.core.errors import ConfigError, PlanError
from dtdg_lab.core.rng import generator


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """An agent's choice and its estimates at that time.

    Attributes:
        action: number of the action, from 0.
        values: estimated value of each action; None for an action without an estimate.
        epsilon: probability of a random choice.
        greedy: whether the action has the best estimate; False after a random or exploring choice.
    """

    action: int
    values: tuple[float | None, ...]
    epsilon: float
    greedy: bool


class Agent:
    """An agent that chooses one of a few actions from a scalar state.

    Draws are a pure function of its seed and its numbers of choices and updates. ``state_dict`` has plain lists and
    numbers; an agent restored from it continues as if it had never stopped.
    """

    choices: int

    def choose(self, state: float) -> AgentChoice:
        """Return the action to take in ``state``, and count a decision."""
        raise NotImplementedError

    def learn(self, state: float, action: int, reward: float, next_state: float) -> None:
        """Learn from the ``reward`` of ``action`` in ``state``, and the next state; by default, do nothing."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the agent; empty by default."""
        return {}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Continue from the output of :meth:`state_dict`."""
        return


def checked_choices(choices: int, *, minimum: int = 2) -> int:
    """Return the number of actions after checking it.

    Raises:
        ConfigError: there are fewer than ``minimum`` actions.
    """
    if choices < minimum:
        raise ConfigError(
            f"a batch-size controller with {choices} action{'' if choices == 1 else 's'} has nothing to choose from: "
            f"at least {minimum} are needed. Add sizes to snapshot_sizes or node_sizes, or set batch_policy to none."
        )
    return choices


def checked_action(action: int, choices: int) -> int:
    """Return the action after checking it.

    Raises:
        PlanError: the action is not within 0 .. choices - 1.
    """
    if not 0 <= action < choices:
        raise PlanError(f"action {action} does not exist. Choose one from 0 to {choices - 1}.")
    return action


class Fixed(Agent):
    """An agent that always chooses the same action: the baseline of the others.

    Args:
        choices: number of actions, 1 or more.
        action: the action it chooses.

    Raises:
        PlanError: there is no such action.

    References: the fixed batch sizes of DynaHB table 8.
    """

    def __init__(self, choices: int, action: int = 0) -> None:
        self.choices = checked_choices(choices, minimum=1)
        self.action = checked_action(action, choices)

    def choose(self, state: float) -> AgentChoice:
        """Return the fixed action."""
        return AgentChoice(self.action, (None,) * self.choices, 0.0, True)


class UniformAgent(Agent):
    """An agent that draws actions uniformly: the baseline of a learner.

    Args:
        choices: number of actions, 2 or more.
        seed: seed of the draws.

    Raises:
        ConfigError: there is nothing to choose from.

    References: "Random" of DynaHB table 10.
    """

    def __init__(self, choices: int, *, seed: int = 0) -> None:
        self.choices = checked_choices(choices)
        self._seed = seed
        self._decisions = 0

    def choose(self, state: float) -> AgentChoice:
        """Return a drawn action."""
        rng = generator(self._seed, "control/uniform", self._decisions)
        self._decisions += 1
        return AgentChoice(int(rng.integers(self.choices)), (None,) * self.choices, 1.0, False)

    def state_dict(self) -> dict[str, Any]:
        """Return the number of ``decisions``."""
        return {"decisions": self._decisions}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Continue from the output of :meth:`state_dict`."""
        self._decisions = int(data["decisions"])


FORGET = 0.99  # half-life of 69 decisions
WIDTH = 0.5


class Bandit(Agent):
    """An agent that takes the highest upper confidence bound over discounted rewards; blind to the state.

    With N(a) the sum of forget^age over the times a was taken, and m(a) the mean of its rewards with these weights, the
    bound is m(a) + width sqrt(ln(sum of N) / N(a)). Untried actions come first, in order. It is deterministic.

    Args:
        choices: number of actions, A, 2 or more.
        forget: discount of rewards from one decision to the next, in (0, 1].
        width: width of the confidence bound, in units of the reward.

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

    def choose(self, state: float) -> AgentChoice:
        """Return the action of the highest bound; ties go to the lower one."""
        total = math.log(max(sum(self._counts), 1.0))
        means = tuple(reward / count if count else None for reward, count in zip(self._sums, self._counts, strict=True))
        bounds = [
            math.inf if mean is None else mean + self._width * math.sqrt(total / count)
            for mean, count in zip(means, self._counts, strict=True)
        ]
        action = bounds.index(max(bounds))
        best = max((mean for mean in means if mean is not None), default=None)
        return AgentChoice(action, means, 0.0, means[action] is not None and means[action] == best)

    def learn(self, state: float, action: int, reward: float, next_state: float) -> None:
        """Discount all rewards by one decision, and add the reward to its action."""
        checked_action(action, self.choices)
        self._counts = [self._forget * count for count in self._counts]
        self._sums = [self._forget * total for total in self._sums]
        self._counts[action] += 1.0
        self._sums[action] += float(reward)

    def state_dict(self) -> dict[str, Any]:
        """Return discounted ``counts`` and ``sums`` of rewards, one of each per action."""
        return {"counts": list(self._counts), "sums": list(self._sums)}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Continue from the output of :meth:`state_dict`."""
        self._counts = [float(count) for count in data["counts"]]
        self._sums = [float(total) for total in data["sums"]]
