"""Cache policies without a cost model: fixed, epoch-hot (RapidGNN), random, user rule and threshold."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core import rng
from dtdg_lab.core.errors import PlanError
from dtdg_lab.systems.feature_cache.actions import WINDOWS, CacheActions, other_parts
from dtdg_lab.systems.feature_cache.policies.interface import CacheDecision, CacheView, CacheViews


class EpochHot:
    """Rebuilds at the beginning of each epoch.

    For the simulator only: a run has a mode of the pipeline for it, without decisions. Its window, the steps of an
    epoch, belongs to no action; the simulator numbers it after the actions
    (:class:`dtdg_lab.systems.feature_cache.costs.cache_costs.CacheTables`).

    Its costs extrapolate the cost model to the epoch's length: as in our pipeline, the next epoch's cache is fetched
    during this one, and its bytes are spread over all steps. An epoch of 25 steps then costs nearly as much as W = 16.
    In the authors' measurements RapidGNN takes 5 to 35 % more joules than W = 16, although their steps at W = 32 and
    W = 16 differ by only about 1 %. The cause is not documented, and no calibrated cost reproduces it. Not modelled:

    - waiting between epochs, while the next epoch's cache is fetched at once, and its joules;
    - sampling and counting a whole epoch ahead, and its memory or disk space;
    - RapidGNN's own server, client and loader: the constants are those of GreenDyGNN's pipeline, whatever the window;
    - building the first cache before step 0, which no policy pays for.

    So the advantage of policies over RapidGNN is smaller here than with the original.

    Args:
        actions: the possible actions.

    References: GreenDyGNN section VI-A ("RapidGNN").
    """

    name = "epoch_hot"

    def __init__(self, actions: CacheActions) -> None:
        self.first = len(actions)

    def decide_all(self, views: CacheViews) -> NDArray[np.int64]:
        """Return (B,) the window of an epoch for every run."""
        return np.full(len(views.steps), self.first)


class FixedWindow:
    """Rebuilds every W steps.

    Args:
        actions: the possible actions.
        window: W, a window of the actions.
        biased: index of the preferred other part; None for the uniform allocation.

    Raises:
        PlanError: no action has this window and allocation.

    References: GreenDyGNN section VI-H ("w/o RL": static W = 16).
    """

    name = "fixed"

    def __init__(self, actions: CacheActions, window: int = 16, biased: int | None = None) -> None:
        self.first = actions.action(window, biased)

    def decide(self, view: CacheView) -> CacheDecision:
        """Return the fixed action."""
        return CacheDecision(self.name, self.first)

    def decide_all(self, views: CacheViews) -> NDArray[np.int64]:
        """Return (B,) the fixed action."""
        return np.full(len(views.steps), self.first)


class RandomWindows:
    """Draws actions uniformly; the draw depends on the seed, the part or run, and the step.

    Args:
        actions: the possible actions.
        seed: seed of the draws.
        part: the part that owns the cache.
    """

    name = "random"

    def __init__(self, actions: CacheActions, *, seed: int = 0, part: int = 0) -> None:
        self._actions = actions
        self._seed = seed
        self._part = part
        self.first = actions.action(16)

    def decide(self, view: CacheView) -> CacheDecision:
        """Draw an action."""
        return CacheDecision(self.name, self._draw(self._part, view.step), (), 1.0, False)

    def decide_all(self, views: CacheViews) -> NDArray[np.int64]:
        """Draw (B,) actions."""
        return np.array([self._draw(int(run), int(step)) for run, step in zip(views.runs, views.steps, strict=True)])

    def _draw(self, counter: int, step: int) -> int:
        return int(rng.generator(self._seed, "control/random_windows", counter, step).integers(len(self._actions)))


Rule = Callable[[Mapping[int, float]], tuple[int, int | None]]


class RuleWindows:
    """Decides by a function from the estimated delay of each other part's replies to a window and a preferred part.

    Args:
        actions: the possible actions.
        rule: function from milliseconds by part to W, a window of the actions, and a part; None for the uniform
            allocation.
        part: the part that owns the cache; in the simulator 0 owns it, and 1 to P - 1 are the others.
        first: W of a simulated run's first window, with the uniform allocation.

    Raises:
        PlanError: (at a decision) the rule returns no valid window and part.
    """

    name = "rule"

    def __init__(self, actions: CacheActions, rule: Rule, *, part: int = 0, first: int = 16) -> None:
        self._actions, self._rule = actions, rule
        self._others = other_parts(part, actions.parts)
        self.first = actions.action(first)

    def decide(self, view: CacheView) -> CacheDecision:
        """Return the result of the rule for the observed delays."""
        return CacheDecision(self.name, self._actions_for(view.delays_s))

    def decide_all(self, views: CacheViews) -> NDArray[np.int64]:
        """Return (B,) results of the rule."""
        return np.array([self._actions_for(delays_s) for delays_s in views.delays_s], dtype=np.int64)

    def _actions_for(self, delays_s: NDArray[np.float64]) -> int:
        late_ms = dict(zip(self._others, (1e3 * delays_s).tolist(), strict=True))
        try:
            window, preferred = self._rule(late_ms)
        except (TypeError, ValueError) as error:
            raise PlanError(
                f"the rule must return a window and a part or None, such as (16, None): {error}."
            ) from error
        if preferred is not None and preferred not in self._others:
            raise PlanError(
                f"the rule preferred part {preferred}. Valid parts are {', '.join(map(str, self._others))}."
            )
        return self._actions.action(window, None if preferred is None else self._others.index(preferred))


LATE_S = (2e-3, 10e-3)  # estimated delays from which a window is half and a quarter as long


class ThresholdWindow:
    """W0 below 2 ms of estimated delay, W0 / 2 from 2 ms on, W0 / 4 from 10 ms on; always in equal shares.

    The largest delay of all owners counts. A window that no action has is shortened to the next that one has, at least
    1.

    Args:
        actions: the possible actions.
        window: W0, 1 or more.

    Raises:
        PlanError: the window is below 1.

    References: GreenDyGNN Eq. 7. Its numbers are unreadable in our copy; these are ours.
    """

    name = "threshold"

    def __init__(self, actions: CacheActions, window: int = 16) -> None:
        if window < 1:
            raise PlanError(f"window={window}: give at least one step between two rebuilds.")
        shorter = [max((w for w in WINDOWS if w <= window // by), default=WINDOWS[0]) for by in (1, 2, 4)]
        self._by_lateness = np.array([actions.action(w) for w in shorter])
        self.first = int(self._by_lateness[0])

    def decide(self, view: CacheView) -> CacheDecision:
        """Return the action for the largest delay."""
        return CacheDecision(self.name, int(self._actions_for(view.delays_s)))

    def decide_all(self, views: CacheViews) -> NDArray[np.int64]:
        """Return (B,) actions for the largest delays."""
        return self._actions_for(views.delays_s)

    def _actions_for(self, delays_s: NDArray[np.float64]) -> NDArray[np.int64]:
        return self._by_lateness[np.searchsorted(LATE_S, delays_s.max(axis=-1), side="right")]
