"""Interface of cache policies: views of a run, or of many simulated runs, and decisions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.systems.feature_cache.policies.state import Floats


@dataclass(frozen=True, slots=True)
class CacheView:
    """The input of a policy's decision.

    Attributes:
        state: (3 P + 11,) float32; see :mod:`dtdg_lab.systems.feature_cache.policies.state`.
        delays_s: (P - 1,) estimated delay of each other part's replies.
        step: first step of the run that the decision applies to.
        steps_left: remaining steps of the epoch from there.
        previous: the action that applies until then.
        forecast: maps delays (P - 1,) to the predicted seconds per step of every action, (A,); None if unknown.
        rebuilds: maps delays to the predicted seconds of a rebuild for every action.
        now: step of the decision, non-decreasing during a run; -1 if it is ``step``.
        changes: number of change points of links detected so far.
        pending: the next action already decided, if the current window may be ended early; else -1.
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
        policy: its name.
        action: see :class:`CacheActions`.
        values: estimated value of each action, larger is better; empty if the policy estimates none.
        epsilon: probability of a random choice.
        greedy: whether the action has the highest estimated value.
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
        """Of the policy."""
        ...

    @property
    def first(self) -> int | NDArray[np.int64]:
        """The action of a run's first window, before any decision; one, or (B,)."""
        ...

    def decide_all(self, views: CacheViews) -> NDArray[np.int64]:
        """Return (B,) the action of each run from ``views.steps`` on."""
        ...


@runtime_checkable
class Reconsiders(Protocol):
    """A policy that may abandon a window when a change of the links is detected."""

    def reconsider_all(
        self, views: CacheViews, pending: NDArray[np.int64], steps_left: NDArray[np.int64], which: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return (B,) the action to continue with, and (B,) whether to abandon the current window for it.

        Args:
            views: current observations; ``previous`` is the current action.
            pending: (B,) the action decided for the next window.
            steps_left: (B,) remaining steps of the current window.
            which: (B,) where a change was detected; the others are ignored.
        """
        ...


@runtime_checkable
class PlansEnds(Protocol):
    """A policy that plans in advance where its windows end."""

    first_lengths: NDArray[np.int64]

    def lengths_all(self, views: CacheViews) -> NDArray[np.int64]:
        """Return (B,) steps of each decision; fewer than its window's abandons it there."""
        ...
