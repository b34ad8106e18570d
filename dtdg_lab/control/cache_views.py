"""What policies see of many simulated runs at once, and what a policy is that can decide for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.feature_path import CachePolicy, CacheView

CHANGES_WITHIN = 150  # steps whose change points are counted


@dataclass(frozen=True, slots=True)
class CacheViews:
    """What is seen at a boundary of each of B runs (P parts, A = 8 P actions); the plural of ``CacheView``.

    Attributes:
        states: (B, 3 P + 11) float32.
        delays_s: (B, P - 1) seconds that each other part's replies are thought to be late.
        steps: (B,) the first one that each decision holds for, of the run.
        steps_left: (B,) of the epoch from there on.
        previous: (B,) the action that holds until then.
        forecast: (B, A) seconds per step of every action under delays (B, P - 1), by costs as they were calibrated.
        runs: (B,) number of each run, from 0: what a policy that draws by chance counts by.
        now: (B,) step at which it is decided: it never falls while a run lasts.
        changes: (B,) change points of links found in the last ``CHANGES_WITHIN`` steps, those close together as one.
    """

    states: NDArray[np.float32]
    delays_s: NDArray[np.float64]
    steps: NDArray[np.int64]
    steps_left: NDArray[np.int64]
    previous: NDArray[np.int64]
    forecast: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    runs: NDArray[np.int64]
    now: NDArray[np.int64]
    changes: NDArray[np.int64]

    def one(self, place: int) -> CacheView:
        """What the run at a place sees."""

        def forecast(delays_s: NDArray[np.float64]) -> NDArray[np.float64]:
            return self.forecast(np.broadcast_to(delays_s, self.delays_s.shape))[place]

        return CacheView(
            self.states[place],
            self.delays_s[place],
            int(self.steps[place]),
            int(self.steps_left[place]),
            int(self.previous[place]),
            forecast,
            now=int(self.now[place]),
            changes=int(self.changes[place]),
        )


class ManyPolicy(Protocol):
    """Decides for many simulated runs at once."""

    @property
    def name(self) -> str:
        """Of the policy."""
        ...

    @property
    def first(self) -> int | NDArray[np.int64]:
        """The action that holds in a run's first window, before anything was decided; one, or (B,)."""
        ...

    def decide_all(self, views: CacheViews) -> NDArray[np.int64]:
        """(B,) the action of each run from ``views.steps`` on."""
        ...


@runtime_checkable
class Reconsiders(Protocol):
    """A policy that may abandon a window where a change of the links is found."""

    def reconsider_all(
        self, views: CacheViews, pending: NDArray[np.int64], left: NDArray[np.int64], which: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """(B,) the action to go on with, and (B,) whether to abandon the window that serves for it.

        Args:
            views: what is seen now; ``previous`` serves.
            pending: (B,) what was decided to follow.
            left: (B,) steps that the window which serves has left.
            which: (B,) where a change was found; the others are not asked.
        """
        ...


@runtime_checkable
class PlansEnds(Protocol):
    """A policy that plans beforehand where its windows end."""

    first_lengths: NDArray[np.int64]

    def lengths_all(self, views: CacheViews) -> NDArray[np.int64]:
        """(B,) steps that what it decides is to serve; fewer than its window's abandons it there."""
        ...


class OneByOne:
    """Lets a policy that knows nothing of many runs decide for each in turn; right where it remembers nothing.

    Args:
        policy: asked once for each run.
        first: action of the first window.
    """

    def __init__(self, policy: CachePolicy, first: int) -> None:
        self.name = policy.name
        self.first = first
        self._policy = policy

    def decide_all(self, views: CacheViews) -> NDArray[np.int64]:
        """(B,) what the policy decides for each."""
        return np.array([self._policy.decide(views.one(place)).action for place in range(len(views.steps))])
