"""The input of a learned cache policy at a boundary: 3 P + 11 numbers, live and simulated."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.systems.feature_cache.actions import WINDOWS, CacheActions

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
    """Return the length of a state for P parts: 3 P + 11."""
    return 3 * parts + 11


def state_bounds(actions: CacheActions) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return (3 P + 11,) minimum and maximum of each number of a state."""
    low, high, _ = _bounds_and_marks(actions)
    return low.astype(np.float32), high.astype(np.float32)


def cache_state(observation: CacheObservation, actions: CacheActions) -> NDArray[np.float32]:
    """Return (..., 3 P + 11) float32 inputs of a learned policy.

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
    num_others = actions.parts - 1
    if delays_s.ndim == 0 or delays_s.shape[-1] != num_others:
        raise ConfigError(f"delays of shape {delays_s.shape} for {actions.parts} parts: the last must be {num_others}.")
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
        raise ConfigError("an observation has a value that is not a number: every time and share must be measured.")
    return np.minimum(np.maximum(state, low, out=state), high, out=state).astype(np.float32)


@lru_cache(maxsize=16)
def _bounds_and_marks(actions: CacheActions) -> tuple[Floats, Floats, Floats]:
    """Return minimum and maximum of each number, (3 P + 11,) each, and one-hot codes of each action, (A, P + 7)."""
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
