"""A policy that knows how slow the links will be, and plans a stretch of steps at a time."""

from __future__ import annotations

from dataclasses import replace

from dtdg_lab.control.cache_costs import CacheCosts
from dtdg_lab.control.clairvoyant import Clairvoyant, clairvoyant_of
from dtdg_lab.control.link_trace import LinkPattern, trace_of_links
from dtdg_lab.core.feature_path import WINDOWS, CacheDecision, CacheView

STRETCH = 8 * WINDOWS[-1]  # steps of a plan, of which the first half is followed


class ForeseenWindows:
    """The windows and allocations that are optimal in the cost model, for congestion known beforehand.

    A stretch of steps is planned where the one before is half over, in the thread that asks: what the last windows of
    a plan are thought to be worth is not followed.

    Args:
        pattern: how slow the links will be.
        costs: of a step.
        part: whose cache it is.
        epoch_steps: of an epoch.

    References: ours; see :func:`dtdg_lab.control.clairvoyant.best_plan`, which is exact over a whole trace.
    """

    name = "clairvoyant"

    def __init__(self, pattern: LinkPattern, costs: CacheCosts, *, part: int, epoch_steps: int) -> None:
        self._pattern, self._costs, self._part, self._epoch_steps = pattern, costs, part, epoch_steps
        self._first = 0
        self._plan: Clairvoyant | None = None

    def decide(self, view: CacheView) -> CacheDecision:
        """The action of the plan."""
        if self._plan is None or not 0 <= view.step - self._first < STRETCH // 2:
            self._first = view.step
            states = [
                self._pattern.at(epoch, place / self._epoch_steps)
                for epoch, place in (divmod(step, self._epoch_steps) for step in range(view.step, view.step + STRETCH))
            ]
            trace = trace_of_links(states, self._part)
            self._plan = clairvoyant_of(trace, self._costs, epoch_steps=self._epoch_steps)
        return self._plan.decide(replace(view, step=view.step - self._first))
