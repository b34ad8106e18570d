"""Any action, as likely as another: what an agent that learns must beat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtdg_lab.control.agent import Choice, checked_choices
from dtdg_lab.core import streams


class Uniform:
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
        draw = streams.generator(self._seed, "control/uniform", self._decisions)
        self._decisions += 1
        return Choice(int(draw.integers(self.choices)), (None,) * self.choices, 1.0, False)

    def learn(self, state: float, action: int, reward: float, next_state: float) -> None:
        """Nothing is learned."""

    def state_dict(self) -> dict[str, Any]:
        """``decisions`` made so far."""
        return {"decisions": self._decisions}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        self._decisions = int(data["decisions"])
