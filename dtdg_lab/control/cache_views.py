"""What policies see of many simulated runs at once, and what a policy is that can decide for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.feature_path import CachePolicy, CacheView


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
    """

    states: NDArray[np.float32]
    delays_s: NDArray[np.float64]
    steps: NDArray[np.int64]
    steps_left: NDArray[np.int64]
    previous: NDArray[np.int64]
    forecast: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    runs: NDArray[np.int64]

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
