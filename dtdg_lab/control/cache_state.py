"""What a cache policy is told at a boundary, as 3 P + 11 numbers: made here both live and in the simulator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.feature_path import WINDOWS, CacheActions

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
