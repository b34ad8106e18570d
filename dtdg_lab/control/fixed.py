"""The adjuster that adjusts nothing: the same action always."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtdg_lab.control.agent import Choice, checked_action, checked_choices


class Fixed:
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

    def learn(self, state: float, action: int, reward: float, next_state: float) -> None:
        """Nothing is learned."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing is remembered."""
        return {}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Nothing is remembered."""
