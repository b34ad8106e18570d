"""The interface of agents that choose one of a few actions, and the agents that learn nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dtdg_lab.core.errors import ConfigError, PlanError
from dtdg_lab.core.rng import generator


@dataclass(frozen=True, slots=True)
class Choice:
    """An agent's choice and what it knew when it chose.

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
    """A rule that chooses one of a few actions by a single number, the state.

    Draws are a pure function of its seed and of how often it has chosen and learned. ``state_dict`` has plain lists and
    numbers, so that a stored and loaded agent continues as if it had never stopped.
    """

    choices: int

    def choose(self, state: float) -> Choice:
        """Return the action to take in ``state``, and count a decision."""
        raise NotImplementedError

    def learn(self, state: float, action: int, reward: float, next_state: float) -> None:
        """Use the ``reward`` that ``action`` earned in ``state``, and the state it led to; by default, do nothing."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next choice depends on; nothing by default."""
        return {}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Continue from the output of :meth:`state_dict`."""
        return


def checked_choices(choices: int, *, minimum: int = 2) -> int:
    """Return the number of actions, if there is something to choose from.

    Raises:
        ConfigError: there are fewer than ``minimum``.
    """
    if choices < minimum:
        raise ConfigError(
            f"a batch policy with {choices} action{'' if choices == 1 else 's'} has nothing to choose from: at least "
            f"{minimum} are needed. Give more sizes in snapshot_sizes or node_sizes, or set batch_policy to none."
        )
    return choices


def checked_action(action: int, choices: int) -> int:
    """Return the action, if there is one of that number.

    Raises:
        PlanError: it is not within 0 .. choices - 1.
    """
    if not 0 <= action < choices:
        raise PlanError(f"action {action}: there are {choices}, numbered from 0 to {choices - 1}.")
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

    def choose(self, state: float) -> Choice:
        """Return the fixed action."""
        return Choice(self.action, (None,) * self.choices, 0.0, True)


class UniformAgent(Agent):
    """An agent that draws each action with the same probability: what a learner must beat.

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
        """Return a drawn action."""
        rng = generator(self._seed, "control/uniform", self._decisions)
        self._decisions += 1
        return Choice(int(rng.integers(self.choices)), (None,) * self.choices, 1.0, False)

    def state_dict(self) -> dict[str, Any]:
        """Return the number of ``decisions``."""
        return {"decisions": self._decisions}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Continue from the output of :meth:`state_dict`."""
        self._decisions = int(data["decisions"])
