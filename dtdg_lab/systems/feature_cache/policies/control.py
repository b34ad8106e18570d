"""Decisions about a part's cache during a run: from measurements to the policy's view."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError
from dtdg_lab.systems.feature_cache.actions import CacheActions, other_parts
from dtdg_lab.systems.feature_cache.costs.cache_costs import RpcModel
from dtdg_lab.systems.feature_cache.pipeline.fetching import OwnerReply
from dtdg_lab.systems.feature_cache.pipeline.observations import Boundary, FetchTime
from dtdg_lab.systems.feature_cache.policies.delay_estimator import LOOK_AGAIN, SAME_CHANGE, DelayEstimator
from dtdg_lab.systems.feature_cache.policies.interface import (
    CHANGES_WITHIN,
    CacheDecision,
    CacheObservation,
    CachePolicy,
    CacheView,
    cache_state,
)
from dtdg_lab.systems.feature_cache.policies.live_forecast import LiveForecast
from dtdg_lab.systems.feature_cache.policies.planner import CachePlanner
from dtdg_lab.systems.feature_cache.policies.step_energy import StepEnergy

WARM_EPOCHS = 2  # GreenDyGNN section V-B: in these epochs, links are assumed to be clean
CHANGE = 0.05  # lambda, the penalty of changing the allocation; the paper's value is unreadable in our copy
MIN_S = 1e-6  # minimum of a fetch or a step, so that ratios stay finite


class CacheDecisionRow(NamedTuple):
    """A decision about a part's cache: a row of the table ``cache_decisions``, without step and epoch."""

    part: int
    policy: str
    state: list[float]
    values: list[float]
    action: int
    window: int
    biased: int
    epsilon: float
    greedy: bool
    reward: float | None
    delays_ms: list[float]
    forecast_ms: list[float]
    covered: int
    early: bool
    energy_source: str | None


class CacheControl:
    """Calls a policy at every boundary, and records observations, decisions and rewards.

    The builder's thread calls :meth:`decide`; any thread may change :attr:`policy`.

    Args:
        part: the part that owns the cache.
        parts: P, at least 2.
        epoch_steps: steps of an epoch.
        row_bytes: bytes of a row of features.
        estimator: estimates the delay of each owner.

    Attributes:
        policy: the current policy; None if nothing is decided.

    References: GreenDyGNN section V-B and algorithm 2.
    """

    def __init__(self, part: int, parts: int, *, epoch_steps: int, row_bytes: int, estimator: DelayEstimator) -> None:
        self.policy: CachePolicy | None = None
        self._part, self._parts, self._epoch_steps = part, parts, epoch_steps
        self._actions, self._others = CacheActions(parts), other_parts(part, parts)
        self._estimator = estimator
        self._forecast = LiveForecast(self._actions, row_bytes=row_bytes)
        self._lock, self._rows = threading.Lock(), list[CacheDecisionRow]()
        self._watches, self._look_again, self._changes = False, -1, deque[int](maxlen=CHANGES_WITHIN)
        self._clean_s: list[float] = []  # of steps on clean links; of the run's first steps until there are others
        self._is_starting = True
        self._since_s: list[float] = []  # of the steps since the last decision
        self._energy = StepEnergy()
        self._last: CacheDecision | None = None
        self._was_biased: int | None = None

    @property
    def probed(self) -> bool:
        """True if the time of a fetch on a clean link was measured."""
        return self._estimator.probe is not None

    def probe(self, law: RpcModel) -> None:
        """Set the time of a fetch on a clean link."""
        with self._lock:
            self._estimator.probe = law

    def watch(self, replies: Sequence[OwnerReply], step: int) -> bool:
        """Add the fetches of a step's misses; return True if the current window should be reconsidered.

        True when a link's change is detected, and again a few steps later, when more fetches have been measured.
        """
        with self._lock:
            self._watches = True
            is_changed = self._add_fetches([(reply, step) for reply in replies], step)
            is_due = 0 <= self._look_again <= step
            self._look_again = -1 if is_due else self._look_again
            return (is_changed or is_due) and isinstance(self.policy, CachePlanner)

    def decide(self, boundary: Boundary) -> CacheDecision | None:
        """Choose the action of the next window.

        At an early boundary, None keeps the previous decision.

        Raises:
            PlanError: there is no policy.
        """
        policy = self.policy
        if policy is None:
            raise PlanError("no cache policy is set. Set CacheControl.policy before a window is decided.")
        delays_s = self._delays(boundary)
        step_s = self._add_steps(boundary)
        view = self._view(boundary, delays_s, step_s)
        if not boundary.early:
            decision = policy.decide(view)
        elif not isinstance(policy, CachePlanner) or (reconsidered := policy.reconsider(view)) is None:
            return None
        else:
            decision = reconsidered
        if self._last is not None and self._last.policy != decision.policy:
            self._last = None  # the reward of an abandoned decision is not recorded
        index = self._actions.biased(decision.action)
        row = CacheDecisionRow(
            part=self._part,
            policy=decision.policy,
            state=view.state.tolist(),
            values=list(decision.values),
            action=decision.action,
            window=self._actions.window(decision.action),
            biased=-1 if index is None else self._others[index],
            epsilon=decision.epsilon,
            greedy=decision.greedy,
            reward=self._reward(step_s),
            delays_ms=(delays_s * 1e3).tolist(),
            forecast_ms=[] if view.forecast is None else (view.forecast(delays_s) * 1e3).tolist(),
            covered=0 if view.forecast is None else boundary.lookahead.steps,
            early=boundary.early,
            energy_source=self._energy.source,
        )
        self._since_s = []
        with self._lock:
            self._rows.append(row)
        self._last, self._was_biased = decision, self._actions.biased(boundary.previous)
        return decision

    def clean_line(self) -> tuple[float, float] | None:
        """Return seconds of a fetch on clean links, and per byte, from measured fetches; None if unknown."""
        return self._forecast.clean_line()

    def state_dict(self) -> dict[str, Any]:
        """Return the times of clean links and steps, as lists and numbers."""
        return {
            "estimator": self._estimator.state_dict(),
            "clean_steps": list(self._clean_s),
            "clean_steps_start": self._is_starting,
            "clean_w": self._energy.state_dict(),
        }

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Restore a state dict of :meth:`state_dict`."""
        self._estimator.load_state_dict(data["estimator"])
        # older checkpoints have the median under "clean", with joules after it
        steps = data["clean_steps"] if "clean_steps" in data else data["clean"][:1]
        self._clean_s = [float(seconds) for seconds in steps if seconds is not None]
        self._is_starting = bool(data.get("clean_steps_start", not self._clean_s))
        self._energy.load_state_dict(data.get("clean_w", {}))

    def take_rows(self) -> list[CacheDecisionRow]:
        """Return new rows of ``cache_decisions``, without step and epoch."""
        with self._lock:
            rows, self._rows = self._rows, []
        return rows

    # measurements

    def _add_fetches(self, fetches: Sequence[tuple[OwnerReply | FetchTime, int]], current_step: int) -> bool:
        """Add fetches with their steps; return True if they reveal a change of links.

        The caller holds the lock. A change is counted, and checked again a few steps later.
        """
        changes = [
            self._estimator.add(
                fetch.owner - (fetch.owner > self._part), fetch.rtt_s, fetch.nbytes, epoch=step // self._epoch_steps
            )
            for fetch, step in fetches
        ]
        if any(changes):
            if not self._changes or current_step - self._changes[-1] >= SAME_CHANGE:
                self._changes.append(current_step)
            self._look_again = current_step + LOOK_AGAIN
        return any(changes)

    def _delays(self, boundary: Boundary) -> NDArray[np.float64]:
        with self._lock:
            unheard = [
                (fetch, fetch.step) for fetch in boundary.fetches if fetch.purpose == "bulk" or not self._watches
            ]
            self._add_fetches(unheard, boundary.now)
            known_counts = [self._estimator.current_fetches(index) for index in range(len(self._others))]
            self._forecast.observe(boundary, known_counts)
            return self._estimator.delays_s()

    def _add_steps(self, boundary: Boundary) -> float:
        """Add a boundary's steps and energy; return the mean seconds of the steps since the last decision.

        If there are none, those of clean steps. A rebuild delays a few steps of a window: the median would not show it,
        and the simulator's steps have it.
        """
        warm_until = WARM_EPOCHS * self._epoch_steps
        warm = boundary.step < warm_until
        seconds = [step.seconds for step in boundary.stepped]
        clean = [step.seconds for step in boundary.stepped if step.step < warm_until and not step.starts]
        if self._is_starting and clean:
            self._clean_s, self._is_starting = [], False
        if not self._is_starting:
            self._clean_s += clean
        elif warm or not self._clean_s:
            self._clean_s += seconds
        self._energy.end_interval([reading for step in boundary.stepped for reading in step.readings], is_clean=warm)
        self._since_s += seconds
        return max(fmean(self._since_s), MIN_S) if self._since_s else self._base_s

    @property
    def _base_s(self) -> float:
        """Mean seconds of a clean step."""
        return max(fmean(self._clean_s), MIN_S) if self._clean_s else MIN_S

    def _view(self, boundary: Boundary, delays_s: NDArray[np.float64], step_s: float) -> CacheView:
        remote, hits = boundary.remote[self._others], boundary.hits[self._others]
        passed_s = step_s * max(boundary.served, 1)
        base_s = self._base_s if self._clean_s else step_s
        watts, clean_w = self._energy.watts, self._energy.clean_w
        observation = CacheObservation(
            delays_s=delays_s,
            fetch_s=np.maximum(self._estimator.baselines_s(), MIN_S),
            hit_rates=hits / np.maximum(remote, 1),
            hit_rate=float(hits.sum() / max(remote.sum(), 1)),
            step_s=step_s,
            base_step_s=base_s,
            step_j=None if watts is None else watts * step_s,
            base_step_j=None if clean_w is None else clean_w * base_s,
            rebuild_share=boundary.rebuild_s / passed_s,
            miss_share=boundary.resolve_s / passed_s,
            left_share=boundary.steps_left / self._epoch_steps,
            previous=boundary.previous,
        )
        forecast = None
        if isinstance(self.policy, CachePlanner) and boundary.lookahead.steps:
            free_s = float(np.median(self._clean_s or [step_s]))  # most steps have no rebuild beside them
            if self.policy.base_s is not None:
                free_s = min(free_s, self.policy.base_s)  # the warm-up's steps include waiting if its links were slow
            forecast = self._forecast.predict(
                boundary.lookahead,
                base_s=free_s,
                late_s=delays_s,
                decision_cpu_s=boundary.decision_cpu_s,
                recounts=not boundary.early,
            )
        with self._lock:
            changes = sum(boundary.now - step <= CHANGES_WITHIN for step in self._changes)
        return CacheView(
            state=cache_state(observation, self._actions),
            delays_s=delays_s,
            step=boundary.step,
            steps_left=boundary.steps_left,
            previous=boundary.previous,
            forecast=None if forecast is None else forecast.steps,
            rebuilds=None if forecast is None else forecast.rebuilds,
            now=boundary.now,
            changes=changes,
            pending=boundary.pending,
            left=boundary.left,
        )

    # records

    def _reward(self, step_s: float) -> float | None:
        """Return the reward of the previous decision by equation 5, relative to a step without delays.

        While energy is unknown, it counts as proportional to the seconds.

        Differs from the paper: its reference is a policy's step under the same congestion, which a run cannot measure.
        """
        if self._last is None or not self._clean_s:
            return None
        ratio = step_s / self._base_s
        if self._energy.watts is not None and self._energy.clean_w is not None:
            ratio *= self._energy.watts / self._energy.clean_w
        changed = self._actions.biased(self._last.action) != self._was_biased
        return float(-ratio - CHANGE * changed)
