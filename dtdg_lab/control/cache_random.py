"""Any window and any allocation, as likely as another: what a policy that learns must beat."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.control.cache_views import CacheViews
from dtdg_lab.core import streams
from dtdg_lab.core.feature_path import CacheActions, CacheDecision, CacheView


class RandomWindows:
    """Draws each action with the same probability; what it draws depends on its seed, the part or run, and the step.

    Args:
        actions: what may be chosen.
        seed: of its draws.
        part: the one that it decides for.
    """

    name = "random"

    def __init__(self, actions: CacheActions, *, seed: int = 0, part: int = 0) -> None:
        self._actions = actions
        self._seed = seed
        self._part = part
        self.first = actions.action(16)

    def decide(self, view: CacheView) -> CacheDecision:
        """A drawn action, whatever is seen."""
        return CacheDecision(self.name, self._drawn(self._part, view.step), (), 1.0, False)

    def decide_all(self, views: CacheViews) -> NDArray[np.int64]:
        """(B,) drawn actions."""
        return np.array([self._drawn(int(run), int(step)) for run, step in zip(views.runs, views.steps, strict=True)])

    def _drawn(self, counter: int, step: int) -> int:
        return int(streams.generator(self._seed, "control/random_windows", counter, step).integers(len(self._actions)))
