"""Costs of every window and allocation under each of the few conditions of the links."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.systems.feature_cache.actions import WINDOWS, CacheActions
from dtdg_lab.systems.feature_cache.costs.cache_costs import CacheCosts
from dtdg_lab.systems.feature_cache.simulation.link_trace import LinkTrace

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class CacheChoices:
    """The choices of the simulator: the A = 8 P actions, and one more, an evenly shared cache per epoch.

    Attributes:
        actions: those that may be chosen live; their numbers are kept.
        windows: (A + 1,) W of each choice.
        allocations: (A + 1,) 0 for the uniform one, otherwise 1 + the index of the preferred part.
        shares: (A + 1, P - 1) of the cache for each other part's rows.
    """

    actions: CacheActions
    windows: NDArray[np.int64]
    allocations: NDArray[np.int64]
    shares: Floats

    @property
    def per_epoch(self) -> int:
        """Index of the choice that is not an action: rebuild at the start of an epoch (RapidGNN)."""
        return len(self.actions)


@lru_cache(maxsize=64)
def cache_choices(parts: int, epoch_steps: int) -> CacheChoices:
    """Return the choices of P parts for epochs of this length."""
    actions = CacheActions(parts)
    numbers = np.arange(len(actions) + 1)
    windows = np.array([*(actions.window(action) for action in range(len(actions))), epoch_steps])
    allocations = np.append(numbers[:-1] // len(WINDOWS), 0)
    shares = np.stack([*(actions.shares(action) for action in range(len(actions))), actions.shares(0)])
    return CacheChoices(actions, windows, allocations, shares)


@dataclass(frozen=True, slots=True, eq=False)
class CacheTables:
    """Costs of a step by choice and condition (C = A + 1 choices, K conditions, P parts).

    Attributes:
        step_s: (C, K) seconds.
        step_j: (C, K) joules of one part.
        miss_s: (C, K) seconds of the step for the slowest owner's misses.
        rebuild_s: (C, K) seconds of the step for rebuilding.
        hits: (C, P - 1) share of the rows requested from each owner that the cache contains.
        hit: (C,) the same over all owners.
        miss_bytes: (C, P - 1) bytes of the misses of each owner in a step.
    """

    step_s: Floats
    step_j: Floats
    miss_s: Floats
    rebuild_s: Floats
    hits: Floats
    hit: Floats
    miss_bytes: Floats


def cache_tables(costs: CacheCosts, choices: CacheChoices, trace: LinkTrace) -> CacheTables:
    """Return the costs of a step for every choice under every condition of a trace."""
    cost = costs.step(choices.windows[:, None], trace.delay_s, trace.bytes_per_s, choices.shares[:, None, :])
    hits = cost.hits[:, 0]
    return CacheTables(
        step_s=cost.seconds,
        step_j=cost.joules,
        miss_s=cost.miss_s,
        rebuild_s=cost.rebuild_s,
        hits=hits,
        hit=cost.hit[:, 0],
        miss_bytes=costs.row_bytes * costs.rows * np.array(costs.asked) * (1 - hits),
    )
