"""Interface of cache policies: observations and views, of a run or of many simulated runs, and decisions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.systems.feature_cache.actions import WINDOWS, CacheActions

MOST_LOG = 6.0  # limit of logarithms: a link 400 times slower
LEAST = 1e-9  # minimum of ratios, so that they have a logarithm
MOST_SHARE = 4.0  # limit of shares: a rebuild that takes four times as long as a window
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheObservation:
    """Measurements over the window that ends at a boundary; ``...`` stands for any leading axes.

    Attributes:
        delays_s: (..., P - 1) estimated seconds of delay of each other part's replies.
        fetch_s: (..., P - 1) or broadcastable: seconds of a fetch without delay.
        hit_rates: (..., P - 1) hit rate of each other part's rows, from 0 to 1.
        hit_rate: (...) hit rate over all parts.
        step_s: (...) seconds of a step.
        base_step_s: (...) seconds of a step without delay.
        step_j: (...) joules of a step; None if not measured, then assumed proportional to the seconds.
        base_step_j: (...) joules of a step without delay; None if not measured.
        rebuild_share: (...) seconds of the last rebuild, relative to the window's.
        miss_share: (...) seconds of resolving misses, relative to the window's.
        left_share: (...) remaining steps of the epoch, relative to its steps.
        previous: (...) index of the action that applies until the new decision takes effect.
    """

    delays_s: Floats
    fetch_s: Floats | float
    hit_rates: Floats
    hit_rate: Floats | float
    step_s: Floats | float
    base_step_s: Floats | float
    step_j: Floats | float | None
    base_step_j: Floats | float | None
    rebuild_share: Floats | float
    miss_share: Floats | float
    left_share: Floats | float
    previous: NDArray[np.int64] | int


def state_size(parts: int) -> int:
    """Return the length of a state for P parts: 3 P + 11."""
    return 3 * parts + 11


def state_bounds(actions: CacheActions) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the (3 P + 11,) minimum and maximum of each element of a state."""
    low, high, _ = _bounds_and_marks(actions)
    return low.astype(np.float32), high.astype(np.float32)


def cache_state(observation: CacheObservation, actions: CacheActions) -> NDArray[np.float32]:
    """Return (..., 3 P + 11) float32 inputs of a learned policy.

    In order: P - 1 congestion multipliers; P hit rates (each other part's, and overall); step time and step energy
    relative to their base; the shares of the window for rebuilding and for misses; the remaining share of the epoch;
    the current window (8, one-hot) and its preferred part (P - 1, one-hot, all 0 if uniform).

    Differs from the paper: multipliers and the two ratios are given as natural logarithms, within +-6, because a
    throttled link multiplies a fetch by hundreds; shares are limited to 4.

    Raises:
        ConfigError: the number of parts differs, a base time is not positive, or a value is NaN.

    References: GreenDyGNN section IV-C1 (23 numbers for P = 4).
    """
    delays_s = np.asarray(observation.delays_s, dtype=np.float64)
    num_others = actions.parts - 1
    if delays_s.ndim == 0 or delays_s.shape[-1] != num_others:
        raise ConfigError(f"delays_s has shape {delays_s.shape}, but the last axis must be {num_others} (P - 1).")
    if not (np.asarray(observation.fetch_s) > 0).all() or not (np.asarray(observation.base_step_s) > 0).all():
        raise ConfigError("base times of fetches and steps must be above 0: measure both on clean links.")
    leading = delays_s.shape[:-1]
    state = np.empty((*leading, state_size(actions.parts)))
    np.log1p(delays_s / observation.fetch_s, out=state[..., :num_others])
    state[..., num_others : 2 * num_others] = observation.hit_rates
    offset = 2 * num_others
    state[..., offset] = observation.hit_rate
    slower = np.log(np.maximum(observation.step_s / np.asarray(observation.base_step_s), LEAST))
    state[..., offset + 1] = state[..., offset + 2] = slower
    if observation.step_j is not None and observation.base_step_j is not None:
        state[..., offset + 2] = np.log(np.maximum(observation.step_j / np.asarray(observation.base_step_j), LEAST))
    state[..., offset + 3] = observation.rebuild_share
    state[..., offset + 4] = observation.miss_share
    state[..., offset + 5] = observation.left_share
    low, high, marks = _bounds_and_marks(actions)
    state[..., offset + 6 :] = marks[observation.previous]
    if not np.isfinite(state).all():
        raise ConfigError("an observation has a NaN or infinite value: measure every time and share.")
    return np.minimum(np.maximum(state, low, out=state), high, out=state).astype(np.float32)


@lru_cache(maxsize=16)
def _bounds_and_marks(actions: CacheActions) -> tuple[Floats, Floats, Floats]:
    """Return the (3 P + 11,) minimum and maximum of a state, and the (A, P + 7) one-hot codes of the actions."""
    num_others = actions.parts - 1
    ones = np.ones(len(WINDOWS) + num_others)
    logs = np.full(2, MOST_LOG)
    high = np.concatenate(
        [np.full(num_others, MOST_LOG), ones[:num_others], [1.0], logs, [MOST_SHARE] * 2, [1.0], ones]
    )
    low = np.concatenate([np.zeros(2 * num_others + 1), -logs, np.zeros(3), 0 * ones])
    numbers = np.arange(len(actions))
    marks = np.zeros((len(actions), len(ones)))
    marks[numbers, numbers % len(WINDOWS)] = 1.0
    biased = numbers[len(WINDOWS) :]
    marks[biased, len(WINDOWS) - 1 + biased // len(WINDOWS)] = 1.0
    return low, high, marks


@dataclass(frozen=True, slots=True)
class CacheView:
    """The input of a policy's decision.

    Attributes:
        state: (3 P + 11,) float32; see :mod:`dtdg_lab.systems.feature_cache.policies.state`.
        delays_s: (P - 1,) estimated delay of each other part's replies.
        step: first step that the decision applies to.
        steps_left: remaining steps of the epoch from there.
        previous: the action that applies until then.
        forecast: maps delays (P - 1,) to the predicted seconds per step of every action, (A,); None if unknown.
        rebuilds: maps delays to the predicted seconds of a rebuild for every action.
        now: step of the decision, non-decreasing during a run; -1 if it is ``step``.
        changes: number of change points of links detected so far.
        pending: the action already decided for the next window, if the current one may be ended early; otherwise -1.
        left: remaining steps of the current window.
    """

    state: NDArray[np.float32]
    delays_s: NDArray[np.float64]
    step: int
    steps_left: int
    previous: int
    forecast: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None
    rebuilds: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None
    now: int = -1
    changes: int = 0
    pending: int = -1
    left: int = 0

    @property
    def at(self) -> int:
        """Step of the decision."""
        return self.step if self.now < 0 else self.now


@dataclass(frozen=True, slots=True)
class CacheDecision:
    """The decision of a policy.

    Attributes:
        policy: name of the policy.
        action: index of an action; see :class:`CacheActions`.
        values: estimated value of each action, larger is better; empty if the policy estimates none.
        epsilon: probability of a random choice.
        greedy: True if the action has the highest estimated value.
    """

    policy: str
    action: int
    values: tuple[float, ...] = ()
    epsilon: float = 0.0
    greedy: bool = True


class CachePolicy(Protocol):
    """Chooses the window and the allocation of the next rebuild."""

    name: str

    def decide(self, view: CacheView) -> CacheDecision:
        """Return the action that applies from ``view.step``."""
        ...


Forecast = Callable[[Floats], Floats]
CHANGES_WITHIN = 150  # number of latest steps in which change points are counted


@dataclass(frozen=True, slots=True)
class CacheViews:
    """Observations at a boundary of each of B runs, a batch of :class:`CacheView`; P parts, A = 8 P actions.

    Attributes:
        states: (B, 3 P + 11) float32.
        delays_s: (B, P - 1) estimated seconds of delay of each other part's replies.
        steps: (B,) first step of each decision, counted from the start of the run.
        steps_left: (B,) remaining steps of the epoch from there.
        previous: (B,) the action until then.
        forecast: maps delays (B, P - 1) to the seconds per step of every action, (B, A), by the calibrated costs; None
            if unknown.
        runs: (B,) index of each run, from 0: the counter of random policies.
        now: (B,) current step; it never decreases within a run.
        changes: (B,) change points of links found in the last ``CHANGES_WITHIN`` steps; close ones count as one.
        rebuilds: maps delays to the seconds of a whole rebuild, (B, A); None if the policy knows the costs.
    """

    states: NDArray[np.float32]
    delays_s: NDArray[np.float64]
    steps: NDArray[np.int64]
    steps_left: NDArray[np.int64]
    previous: NDArray[np.int64]
    forecast: Forecast | None
    runs: NDArray[np.int64]
    now: NDArray[np.int64]
    changes: NDArray[np.int64]
    rebuilds: Forecast | None = None

    @staticmethod
    def of(view: CacheView) -> CacheViews:
        """Return the view of one run as a batch of one."""

        def batched(forecast: Forecast | None) -> Forecast | None:
            return None if forecast is None else lambda delays_s: np.stack([forecast(row) for row in delays_s])

        return CacheViews(
            states=view.state[np.newaxis],
            delays_s=view.delays_s[np.newaxis],
            steps=np.array([view.step]),
            steps_left=np.array([view.steps_left]),
            previous=np.array([view.previous]),
            forecast=batched(view.forecast),
            runs=np.zeros(1, dtype=np.int64),
            now=np.array([view.at]),
            changes=np.array([view.changes]),
            rebuilds=batched(view.rebuilds),
        )


class ManyPolicy(Protocol):
    """Decides for many simulated runs at once."""

    @property
    def name(self) -> str:
        """Name of the policy."""
        ...

    @property
    def first(self) -> int | NDArray[np.int64]:
        """The action of each run's first window, before any decision: one, or (B,)."""
        ...

    def decide_all(self, views: CacheViews) -> NDArray[np.int64]:
        """Return the (B,) action of each run from ``views.steps`` on."""
        ...


@runtime_checkable
class Reconsiders(Protocol):
    """A policy that may abandon a window when a change of the links is detected."""

    def reconsider_all(
        self, views: CacheViews, pending: NDArray[np.int64], steps_left: NDArray[np.int64], which: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the (B,) action to continue with, and (B,) True to abandon the current window for it.

        Args:
            views: current observations; ``previous`` is the current action.
            pending: (B,) the action decided for the next window.
            steps_left: (B,) remaining steps of the current window.
            which: (B,) True where a change was detected; other runs are ignored.
        """
        ...


@runtime_checkable
class PlansEnds(Protocol):
    """A policy that plans the ends of its windows in advance."""

    first_lengths: NDArray[np.int64]

    def lengths_all(self, views: CacheViews) -> NDArray[np.int64]:
        """Return the (B,) steps of each decision; fewer than its window's steps abandon it early."""
        ...
