"""State of a cache policy: the 3 P + 11 features, their memory over time, and views of many simulated runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.systems.feature_cache.actions import WINDOWS, CacheActions, CacheView

# Averages of the owners' past delays, and of their variation: information that a state alone lacks.


FAST_STEPS, SLOW_STEPS = 50.0, 200.0  # time constants of the averages: steps after which a weight falls to 1 / e
KINDS = 3


def memory_size(parts: int) -> int:
    """Length of the memory for P parts: 3 (P - 1)."""
    return KINDS * (parts - 1)


class LatenessMemory:
    """Exponential averages of the congestion multipliers in states, one memory for each of B runs.

    For each other part: a fast average, a slow average, and the average distance from the slow one. A link that is slow
    intermittently, or two that alternate, are indistinguishable from a slow link at one moment; the averages differ.

    Args:
        runs: B.
        parts: P.
    """

    def __init__(self, runs: int, parts: int) -> None:
        self._held = np.zeros((runs, KINDS, parts - 1))
        self._fresh = np.ones(runs, dtype=bool)

    def forget(self, which: NDArray[np.bool_]) -> None:
        """Reset the memory of some of the runs (B,)."""
        self._held[which] = 0.0
        self._fresh[which] = True

    def take_in(self, states: NDArray[np.float32], steps: NDArray[np.int64]) -> NDArray[np.float32]:
        """Add states (B, 3 P + 11), given steps (B,) after the last ones; return them joined with the memory.

        Returns:
            (B, 3 P + 11 + 3 (P - 1)) float32.
        """
        late = states[:, : self._held.shape[2]].astype(np.float64)
        for index, lasts in ((0, FAST_STEPS), (1, SLOW_STEPS)):
            self._move(index, late, steps, lasts)
        self._move(2, np.abs(late - self._held[:, 1]), steps, SLOW_STEPS)
        self._fresh[:] = False
        return self.recall(states, np.arange(len(states)))

    def recall(self, states: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """States (R, 3 P + 11) of some runs (R,), joined with their previous memory."""
        remembered = self._held[rows].reshape(len(rows), -1).astype(np.float32)
        return np.concatenate([states, remembered], axis=1)

    def _move(self, index: int, received: NDArray[np.float64], steps: NDArray[np.int64], lasts: float) -> None:
        share = np.where(self._fresh, 1.0, -np.expm1(-steps / lasts))[:, np.newaxis]
        self._held[:, index] += share * (received - self._held[:, index])


class RunsMemory:
    """A memory for policies that identify runs by number: a new run starts with an empty one.

    Args:
        parts: P.
    """

    def __init__(self, parts: int) -> None:
        self._parts = parts
        self._memory = LatenessMemory(0, parts)
        self._runs = self._steps = np.zeros(0, dtype=np.int64)

    def take_in(
        self, states: NDArray[np.float32], runs: NDArray[np.int64], steps: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Add states (B, 3 P + 11) of runs of these numbers (B,) at these steps (B,); return them with the memory.

        The memory at an index is reset for a different run, or an earlier step.
        """
        if len(runs) != len(self._runs):
            self._memory = LatenessMemory(len(runs), self._parts)
            self._runs, self._steps = runs, steps
        self._memory.forget((runs != self._runs) | (steps < self._steps))
        described = self._memory.take_in(states, np.maximum(steps - self._steps, 0))
        self._runs, self._steps = runs.copy(), steps.copy()
        return described

    def recall(self, states: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """States (R, 3 P + 11) at some indices (R,), joined with their previous memory; nothing is added."""
        return self._memory.recall(states, rows)


# The observation of a cache policy at a boundary, 3 P + 11 numbers, both live and in the simulator.


MOST_LOG = 6.0  # limit of logarithms: a link 400 times slower
LEAST = 1e-9  # minimum of ratios, so that they have a logarithm
MOST_SHARE = 4.0  # limit of shares: rebuilding for four times as long as a window
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheObservation:
    """Measurements over the window that ends at a boundary; ``...`` stands for any leading axes.

    Attributes:
        delays_s: (..., P - 1) estimated seconds of delay of each other part's replies.
        fetch_s: (..., P - 1) or broadcastable to it: seconds of a fetch without delay.
        hit_rates: (..., P - 1) of each other part's rows, from 0 to 1.
        hit_rate: (...) over all of them.
        step_s: (...) seconds of a step.
        base_step_s: (...) the same without delay.
        step_j: (...) joules of a step; None if not measured: then assumed proportional to the seconds.
        base_step_j: (...) the same without delay; None as above.
        rebuild_share: (...) seconds of the last rebuild, relative to those of the window meanwhile.
        miss_share: (...) seconds of resolving misses, relative to those of the window.
        left_share: (...) remaining steps of the epoch, relative to those of an epoch.
        previous: (...) index of the action that holds from here until the new decision takes effect.
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
    """Length of a state for P parts: 3 P + 11."""
    return 3 * parts + 11


def state_bounds(actions: CacheActions) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(3 P + 11,) minimum and maximum of each number of a state."""
    low, high, _ = _bounds_and_marks(actions)
    return low.astype(np.float32), high.astype(np.float32)


def cache_state(observation: CacheObservation, actions: CacheActions) -> NDArray[np.float32]:
    """(..., 3 P + 11) float32 inputs of a learned policy.

    In order: P - 1 congestion multipliers, P hit rates (of each other part, of all), step time and step energy relative
    to their base, the shares of the window for rebuilding and for misses, the remaining share of the epoch, the current
    window (8, one-hot) and its preferred part (P - 1, one-hot, all 0 if uniform).

    Differs from the paper: multipliers and the two ratios are given as natural logarithms, within +-6, because a
    throttled link multiplies a fetch by hundreds; shares are limited to 4.

    Raises:
        ConfigError: the observation is of another number of parts, its base times are not positive, or it has a NaN.

    References: GreenDyGNN section IV-C1 (23 numbers for P = 4).
    """
    delays_s = np.asarray(observation.delays_s, dtype=np.float64)
    others = actions.parts - 1
    if delays_s.ndim == 0 or delays_s.shape[-1] != others:
        raise ConfigError(f"delays of shape {delays_s.shape} for {actions.parts} parts: the last must be {others}.")
    if not (np.asarray(observation.fetch_s) > 0).all() or not (np.asarray(observation.base_step_s) > 0).all():
        raise ConfigError("base times of fetches and steps must be above 0: measure both on clean links.")
    leading = delays_s.shape[:-1]
    state = np.empty((*leading, state_size(actions.parts)))
    np.log1p(delays_s / observation.fetch_s, out=state[..., :others])
    state[..., others : 2 * others] = observation.hit_rates
    at = 2 * others
    state[..., at] = observation.hit_rate
    slower = np.log(np.maximum(observation.step_s / np.asarray(observation.base_step_s), LEAST))
    state[..., at + 1] = state[..., at + 2] = slower
    if observation.step_j is not None and observation.base_step_j is not None:
        state[..., at + 2] = np.log(np.maximum(observation.step_j / np.asarray(observation.base_step_j), LEAST))
    state[..., at + 3] = observation.rebuild_share
    state[..., at + 4] = observation.miss_share
    state[..., at + 5] = observation.left_share
    low, high, marks = _bounds_and_marks(actions)
    state[..., at + 6 :] = marks[observation.previous]
    if not np.isfinite(state).all():
        raise ConfigError("an observation has a value that is not a number: every time and share must be measured.")
    return np.minimum(np.maximum(state, low, out=state), high, out=state).astype(np.float32)


@lru_cache(maxsize=16)
def _bounds_and_marks(actions: CacheActions) -> tuple[Floats, Floats, Floats]:
    """(3 P + 11,) minimum and (3 P + 11,) maximum of each number; (A, P + 7) one-hot codes of each action."""
    others = actions.parts - 1
    ones = np.ones(len(WINDOWS) + others)
    logs = np.full(2, MOST_LOG)
    high = np.concatenate([np.full(others, MOST_LOG), ones[:others], [1.0], logs, [MOST_SHARE] * 2, [1.0], ones])
    low = np.concatenate([np.zeros(2 * others + 1), -logs, np.zeros(3), 0 * ones])
    numbers = np.arange(len(actions))
    marks = np.zeros((len(actions), len(ones)))
    marks[numbers, numbers % len(WINDOWS)] = 1.0
    biased = numbers[len(WINDOWS) :]
    marks[biased, len(WINDOWS) - 1 + biased // len(WINDOWS)] = 1.0
    return low, high, marks


# Views of many simulated runs, and the interface of policies that decide for all of them at once.


Forecast = Callable[[Floats], Floats]
CHANGES_WITHIN = 150  # latest steps in which change points are counted


@dataclass(frozen=True, slots=True)
class CacheViews:
    """Observations at a boundary of each of B runs (P parts, A = 8 P actions); a batch of ``CacheView``.

    Attributes:
        states: (B, 3 P + 11) float32.
        delays_s: (B, P - 1) estimated seconds of delay of each other part's replies.
        steps: (B,) first step of each decision, counted from the start of the run.
        steps_left: (B,) of the epoch from there on.
        previous: (B,) the action until then.
        forecast: (B, A) seconds per step of every action under delays (B, P - 1), by the calibrated costs; None if
            unknown.
        runs: (B,) index of each run, from 0: the counter of random policies.
        now: (B,) current step: it never decreases within a run.
        changes: (B,) change points of links found in the last ``CHANGES_WITHIN`` steps, close ones counted as one.
        rebuilds: (B, A) seconds of a whole rebuild, likewise; None if costs are known.
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
        """The view of one run, as that of a batch of one."""

        def of_each(one: Forecast | None) -> Forecast | None:
            return None if one is None else lambda delays_s: np.stack([one(each) for each in delays_s])

        given = (view.step, view.steps_left, view.previous, 0, view.at, view.changes)
        steps, steps_left, previous, runs, now, changes = (np.array([each]) for each in given)
        return CacheViews(
            view.state[np.newaxis],
            view.delays_s[np.newaxis],
            steps,
            steps_left,
            previous,
            of_each(view.forecast),
            runs,
            now,
            changes,
            of_each(view.rebuilds),
        )


class ManyPolicy(Protocol):
    """Decides for many simulated runs at once."""

    @property
    def name(self) -> str:
        """Of the policy."""
        ...

    @property
    def first(self) -> int | NDArray[np.int64]:
        """The action of a run's first window, before any decision; one, or (B,)."""
        ...

    def decide_all(self, views: CacheViews) -> NDArray[np.int64]:
        """(B,) the action of each run from ``views.steps`` on."""
        ...


@runtime_checkable
class Reconsiders(Protocol):
    """A policy that may abandon a window when a change of the links is detected."""

    def reconsider_all(
        self, views: CacheViews, pending: NDArray[np.int64], left: NDArray[np.int64], which: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """(B,) the action to continue with, and (B,) whether to abandon the current window for it.

        Args:
            views: current observations; ``previous`` is the current action.
            pending: (B,) the action decided for the next window.
            left: (B,) remaining steps of the current window.
            which: (B,) where a change was detected; the others are ignored.
        """
        ...


@runtime_checkable
class PlansEnds(Protocol):
    """A policy that plans in advance where its windows end."""

    first_lengths: NDArray[np.int64]

    def lengths_all(self, views: CacheViews) -> NDArray[np.int64]:
        """(B,) steps of each decision; fewer than its window's abandons it there."""
        ...
