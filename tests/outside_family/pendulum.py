"""A cache policy outside the package: a short window and a long one by turns."""

from __future__ import annotations

from dtdg_lab.systems.feature_cache.actions import CacheActions
from dtdg_lab.systems.feature_cache.policies.builders import PathAndPolicy, PathSettings
from dtdg_lab.systems.feature_cache.policies.interface import CacheDecision, CacheView


class Pendulum:
    """Windows of 2 and of 4 steps by turns, in equal shares."""

    name = "pendulum"

    def __init__(self, actions: CacheActions) -> None:
        self._short, self._long = actions.action(2), actions.action(4)

    def decide(self, view: CacheView) -> CacheDecision:
        """Return the action that the window before did not have."""
        return CacheDecision(self.name, self._long if view.previous == self._short else self._short)


def pendulum(of: PathSettings) -> PathAndPolicy:
    """Swing between windows of 2 and of 4 steps."""
    return of.path(), Pendulum(of.actions)
