"""State of a cache policy: the 3 P + 11 features, their memory over time, and views of many simulated runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.feature_store import WINDOWS, CacheActions, CachePolicy, CacheView

# How late the owners have been for a while, and how unsteadily: what a state alone does not tell.


FAST_STEPS, SLOW_STEPS = 50.0, 200.0  # steps after which two thirds of what was heard are forgotten
KINDS = 3


def memory_size(parts: int) -> int:
    """How many numbers are remembered for P parts: 3 (P - 1)."""
    return KINDS * (parts - 1)


class LatenessMemory:
    """Fading means of the congestion multipliers in states, one memory for each of B runs.

    Of each other part: the mean of late, the mean over longer, and the mean distance between what is heard and the
    latter. A link that is slow now and then, or two that take turns, look like a slow one at the moment: it is these
    that tell them apart.

    Args:
        runs: B.
        parts: P.
    """

    def __init__(self, runs: int, parts: int) -> None:
        self._held = np.zeros((runs, KINDS, parts - 1))
        self._fresh = np.ones(runs, dtype=bool)

    def forget(self, which: NDArray[np.bool_]) -> None:
        """Begin anew for some of the runs (B,)."""
        self._held[which] = 0.0
        self._fresh[which] = True

    def take_in(self, states: NDArray[np.float32], steps: NDArray[np.int64]) -> NDArray[np.float32]:
        """Hear states (B, 3 P + 11), so many steps (B,) after the last ones; them and what is remembered, as one.

        Returns:
            (B, 3 P + 11 + 3 (P - 1)) float32.
        """
        late = states[:, : self._held.shape[2]].astype(np.float64)
        for place, lasts in ((0, FAST_STEPS), (1, SLOW_STEPS)):
            self._move(place, late, steps, lasts)
        self._move(2, np.abs(late - self._held[:, 1]), steps, SLOW_STEPS)
        self._fresh[:] = False
        return self.recall(states, np.arange(len(states)))

    def recall(self, states: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """States (R, 3 P + 11) of some runs (R,), and what was remembered of these before, as one."""
        remembered = self._held[rows].reshape(len(rows), -1).astype(np.float32)
        return np.concatenate([states, remembered], axis=1)

    def _move(self, place: int, received: NDArray[np.float64], steps: NDArray[np.int64], lasts: float) -> None:
        share = np.where(self._fresh, 1.0, -np.expm1(-steps / lasts))[:, np.newaxis]
        self._held[:, place] += share * (received - self._held[:, place])


class RunsMemory:
    """The same for whoever decides in runs, and is told which run is where: a run that is new begins anew.

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
        """States (B, 3 P + 11) of runs of these numbers (B,) at these steps (B,); them and what is remembered, as one.

        A place with another run than before, or at an earlier step, forgets.
        """
        if len(runs) != len(self._runs):
            self._memory = LatenessMemory(len(runs), self._parts)
            self._runs, self._steps = runs, steps
        self._memory.forget((runs != self._runs) | (steps < self._steps))
        described = self._memory.take_in(states, np.maximum(steps - self._steps, 0))
        self._runs, self._steps = runs.copy(), steps.copy()
        return described

    def recall(self, states: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """States (R, 3 P + 11) at some places (R,), and what was remembered there before; nothing is taken in."""
        return self._memory.recall(states, rows)


# What a cache policy is told at a boundary, as 3 P + 11 numbers: made here both live and in the simulator.


MOST_LOG = 6.0  # a link 400 times slower is as bad as it gets
LEAST = 1e-9  # a ratio that has a logarithm
MOST_SHARE = 4.0  # rebuilding for four times as long as a window lasts, likewise
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheObservation:
    """What was measured over the window that ends at a boundary; ``...`` stands for any leading axes.

    Attributes:
        delays_s: (..., P - 1) seconds that each other part's replies are thought to be late.
        fetch_s: (..., P - 1) or anything that broadcasts to it: seconds of a fetch where nothing is late.
        hit_rates: (..., P - 1) of each other part's rows, from 0 to 1.
        hit_rate: (...) over all of them.
        step_s: (...) seconds of a step.
        base_step_s: (...) the same where nothing was late.
        step_j: (...) joules of a step; None where nothing measures them: they are then taken to follow the seconds.
        base_step_j: (...) the same where nothing was late; None as above.
        rebuild_share: (...) seconds that the last rebuild took, over those of the window meanwhile.
        miss_share: (...) seconds that misses took to resolve, over those of the window.
        left_share: (...) steps left in the epoch, over those of an epoch.
        previous: (...) number of the action that holds from here on, until what is decided now does.
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
    """How many numbers a state of P parts has: 3 P + 11."""
    return 3 * parts + 11


def state_names(parts: int) -> tuple[str, ...]:
    """What each of the 3 P + 11 numbers is, for labels; the other parts are counted from 1."""
    others = range(1, parts)
    return (
        *(f"late {other}" for other in others),
        *(f"hits {other}" for other in others),
        "hits",
        "step time",
        "step energy",
        "rebuilding",
        "missing",
        "left",
        *(f"W={window}" for window in WINDOWS),
        *(f"prefers {other}" for other in others),
    )


def state_bounds(actions: CacheActions) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(3 P + 11,) least and most that each number of a state can be."""
    low, high, _ = _bounds_and_marks(actions)
    return low.astype(np.float32), high.astype(np.float32)


def cache_state(observation: CacheObservation, actions: CacheActions) -> NDArray[np.float32]:
    """(..., 3 P + 11) float32 numbers that a learned policy sees.

    In order: P - 1 congestion multipliers, P hit rates (of each other part, of all), step time and step energy over
    their base, the share of the window that rebuilding and misses took, what is left of the epoch, the window that
    holds (8, one of them 1) and the part that it prefers (P - 1, none of them 1 where it is uniform).

    Differs from the paper: multipliers and the two ratios are given as natural logarithms, within +-6, because a
    throttled link multiplies a fetch by hundreds; shares end at 4.

    Raises:
        ConfigError: the observation is of another number of parts, compares with no time, or holds what is no number.

    References: GreenDyGNN section IV-C1 (23 numbers for P = 4).
    """
    delays_s = np.asarray(observation.delays_s, dtype=np.float64)
    others = actions.parts - 1
    if delays_s.ndim == 0 or delays_s.shape[-1] != others:
        raise ConfigError(f"delays of shape {delays_s.shape} for {actions.parts} parts: the last must be {others}.")
    if not (np.asarray(observation.fetch_s) > 0).all() or not (np.asarray(observation.base_step_s) > 0).all():
        raise ConfigError("fetches and steps of no time to compare with: both must have been measured on clean links.")
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
        raise ConfigError("an observation with a value that is no number: every time and share must be measured.")
    return np.minimum(np.maximum(state, low, out=state), high, out=state).astype(np.float32)


@lru_cache(maxsize=16)
def _bounds_and_marks(actions: CacheActions) -> tuple[Floats, Floats, Floats]:
    """(3 P + 11,) least and (3 P + 11,) most of each number; (A, P + 7) ones and zeros that stand for each action."""
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


# What policies see of many simulated runs at once, and what a policy is that can decide for all of them.


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
