"""What policies of the cache spent beyond the clairvoyant on one simulated run, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.control.cache_episode import CacheEpisode
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.views.policy_table import CLAIRVOYANT

Windows = Sequence[tuple[int, int]]  # first step, choice


def regret_lines(episode: CacheEpisode, windows: Mapping[str, Windows]) -> dict[str, list[float]]:
    """Joules beyond the clairvoyant's after each step, by policy; the clairvoyant itself is left out.

    A line may fall for a while: the optimum spends early what it saves later. At the end no line is below 0.

    Args:
        episode: what all of them met.
        windows: by policy, its windows in the episode; those of ``clairvoyant`` among them.

    Raises:
        ConfigError: the clairvoyant is missing.
    """
    if CLAIRVOYANT not in windows:
        raise ConfigError(
            f"regret of {', '.join(windows) or 'no policy'}: the windows of {CLAIRVOYANT} are needed too."
        )
    costs = episode.step_costs()
    spent = {name: np.cumsum(_per_step(costs, each)) for name, each in windows.items()}
    return {name: (each - spent[CLAIRVOYANT]).tolist() for name, each in spent.items() if name != CLAIRVOYANT}


def _per_step(costs: NDArray[np.float64], windows: Windows) -> NDArray[np.float64]:
    """(steps,) joules of each step, of (choices, steps) of all choices."""
    steps = costs.shape[1]
    found = np.empty(steps)
    for (first, choice), (end, _) in pairwise([*windows, (steps, 0)]):
        found[first:end] = costs[choice, first:end]
    return found
