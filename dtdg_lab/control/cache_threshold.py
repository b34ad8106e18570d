"""The rule of thumb: the more a link is late, the shorter the window."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.control.cache_views import CacheViews
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.feature_path import WINDOWS, CacheActions, CacheDecision, CacheView

LATE_S = (2e-3, 10e-3)  # inferred delays from which a window is half and a quarter as long


class ThresholdWindow:
    """W0 below 2 ms of inferred delay, W0 / 2 from 2 ms on, W0 / 4 from 10 ms on; always shared out evenly.

    The delay is that of the owner that is latest. A W0 that is no window of an action, or one divided below them, is
    the next shorter one, at least 1.

    Args:
        actions: what may be chosen.
        window: W0, 1 or more.

    Raises:
        PlanError: the window is below 1.

    References: GreenDyGNN Eq. 7, whose figures are lost: ours.
    """

    name = "threshold"

    def __init__(self, actions: CacheActions, window: int = 16) -> None:
        if window < 1:
            raise PlanError(f"window={window}: at least one step passes between two rebuilds.")
        shorter = [max((w for w in WINDOWS if w <= window // by), default=WINDOWS[0]) for by in (1, 2, 4)]
        self._by_lateness = np.array([actions.action(w) for w in shorter])
        self.first = int(self._by_lateness[0])

    def decide(self, view: CacheView) -> CacheDecision:
        """The action of the latest owner's delay."""
        return CacheDecision(self.name, int(self._chosen(view.delays_s)))

    def decide_all(self, views: CacheViews) -> NDArray[np.int64]:
        """(B,) the same for every run."""
        return self._chosen(views.delays_s)

    def _chosen(self, delays_s: NDArray[np.float64]) -> NDArray[np.int64]:
        return self._by_lateness[np.searchsorted(LATE_S, delays_s.max(axis=-1), side="right")]
