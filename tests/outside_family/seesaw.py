"""A batch-size controller outside the package: the smallest and the largest size by turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtdg_lab.rl.agent import Agent, AgentChoice, checked_choices
from dtdg_lab.systems.hybrid_batches.controller import SizeSettings


class Seesaw(Agent):
    """The first and the last action by turns."""

    def __init__(self, choices: int) -> None:
        self.choices, self._decisions = checked_choices(choices), 0

    def choose(self, state: float) -> AgentChoice:
        """Return the other end."""
        self._decisions += 1
        return AgentChoice(self._decisions % 2 * (self.choices - 1), (None,) * self.choices, 0.0, True)

    def state_dict(self) -> dict[str, Any]:
        """Return the number of decisions."""
        return {"decisions": self._decisions}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Continue after :meth:`state_dict`."""
        self._decisions = int(data["decisions"])


def seesaw(of: SizeSettings) -> Agent:
    """Take the smallest and the largest size by turns."""
    return Seesaw(of.choices)
