"""A rule of one's own for the window and the allocation of a cache, in place of a policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.control.cache_views import CacheViews
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.feature_path import CacheActions, CacheDecision, CacheView

Rule = Callable[[Mapping[int, float]], tuple[int, int | None]]


class RuleWindows:
    """Decides by a function: how late each other part's replies are thought to be -> a window and a preferred part.

    Args:
        actions: what may be chosen.
        rule: from milliseconds by part to W, one of the windows of an action, and a part; None for the uniform
            allocation.
        part: the one that it decides for; in the simulator 0 asks, and 1 to P - 1 are asked.
        first: W of a simulated run's first window, uniform.

    Raises:
        PlanError: (where it decides) the rule gives no window and part that can be chosen.
    """

    name = "rule"

    def __init__(self, actions: CacheActions, rule: Rule, *, part: int = 0, first: int = 16) -> None:
        self._actions, self._rule = actions, rule
        self._others = [other for other in range(actions.parts) if other != part]
        self.first = actions.action(first)

    def decide(self, view: CacheView) -> CacheDecision:
        """What the rule says of the delays that are seen."""
        return CacheDecision(self.name, self._chosen(view.delays_s))

    def decide_all(self, views: CacheViews) -> NDArray[np.int64]:
        """(B,) the same for every run."""
        return np.array([self._chosen(delays_s) for delays_s in views.delays_s], dtype=np.int64)

    def _chosen(self, delays_s: NDArray[np.float64]) -> int:
        late_ms = dict(zip(self._others, (1e3 * delays_s).tolist(), strict=True))
        try:
            window, preferred = self._rule(late_ms)
        except (TypeError, ValueError) as error:
            raise PlanError(f"a rule must give a window and a part or None, such as (16, None): {error}.") from error
        if preferred is not None and preferred not in self._others:
            raise PlanError(f"a rule preferred part {preferred}: others are {', '.join(map(str, self._others))}.")
        return self._actions.action(window, None if preferred is None else self._others.index(preferred))
