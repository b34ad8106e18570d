"""The policy that never changes its mind: one window and one allocation throughout."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.control.cache_views import CacheViews
from dtdg_lab.core.feature_path import CacheActions, CacheDecision, CacheView


class FixedWindow:
    """Rebuilds every W steps.

    Args:
        actions: what may be chosen.
        window: W, one of the windows of an action.
        biased: place of the other part that is preferred, None for the uniform allocation.

    Raises:
        PlanError: no action has this window and allocation.

    References: GreenDyGNN section VI-H ("w/o RL": static W = 16).
    """

    name = "fixed"

    def __init__(self, actions: CacheActions, window: int = 16, biased: int | None = None) -> None:
        self.first = actions.action(window, biased)

    def decide(self, view: CacheView) -> CacheDecision:
        """The action that was given, whatever is seen."""
        return CacheDecision(self.name, self.first)

    def decide_all(self, views: CacheViews) -> NDArray[np.int64]:
        """(B,) the same action for every run."""
        return np.full(len(views.steps), self.first)
