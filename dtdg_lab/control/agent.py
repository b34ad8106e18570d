"""What an agent is: it is told a number, chooses an action, and is told later what that was worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from dtdg_lab.core.errors import ConfigError, PlanError


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


class Agent(Protocol):
    """Chooses one of a few actions by a single number, the state.

    What it draws is a pure function of its seed and of how often it has chosen and learned, and ``state_dict`` is made
    of plain lists and numbers, so that an agent that is stored and loaded goes on as if it had never stopped.
    """

    choices: int

    def choose(self, state: float) -> Choice:
        """The action to take in ``state``; counts as a decision."""
        ...

    def learn(self, state: float, action: int, reward: float, next_state: float) -> None:
        """Take in that ``action``, taken in ``state``, earned ``reward`` and led to ``next_state``."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next choice depends on."""
        ...

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        ...


def checked_choices(choices: int, *, least: int = 2) -> int:
    """The number of actions, if there is something to choose from.

    Raises:
        ConfigError: there are fewer than ``least``.
    """
    if choices < least:
        raise ConfigError(
            f"an adjuster with {choices} action{'' if choices == 1 else 's'} has nothing to choose from: at least "
            f"{least} are needed. Give more sizes in snapshot_sizes or vertex_sizes, or set adjuster to none."
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
