"""The episodes that are simulated at once, laid out so that one line of arithmetic serves them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.control.cache_episode import CacheEpisode

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


class WindowSums(NamedTuple):
    """What a window of each of B runs costs, summed over its steps, each (B,).

    Attributes:
        seconds: of its steps.
        joules: of one part.
        miss_s: of its seconds, those that misses take.
        rebuild_s: of its seconds, those that rebuilding takes.
    """

    seconds: Floats
    joules: Floats
    miss_s: Floats
    rebuild_s: Floats


class CacheBatch:
    """Arrays of B episodes, padded to the most steps and conditions that one of them has.

    Args:
        episodes: of one number of parts and of one number of choices; at least one.

    Attributes:
        episodes: the ones there are now.
        steps: (B,) S of each.
        hits: (B, C, P - 1) share of the rows asked of each owner that the cache of each choice holds.
        hit: (B, C) the same over all owners.
        miss_bytes: (B, C, P - 1) bytes of the misses of each owner in a step.
        fetch_s: (B, P - 1) seconds of a fetch on clean links.
        heard: (B, 3, S + 1, P - 1) the episodes' ``late_s``, ``late_s_per_byte`` and ``strays``.
        meter: (B, S + 1) by which energy that is heard is multiplied.
    """

    def __init__(self, episodes: Sequence[CacheEpisode]) -> None:
        self.episodes = list(episodes)
        runs, (choices, others) = len(episodes), episodes[0].tables.hits.shape
        steps = max(episode.steps for episode in episodes)
        conditions = max(episode.met.shape[1] for episode in episodes)
        self._places = np.arange(runs)
        self._costs = np.zeros((runs, choices, 4, conditions))
        self._met = np.zeros((runs, steps + 1, conditions))
        self.steps = np.zeros(runs, dtype=np.int64)
        self.hits, self.hit = np.zeros((runs, choices, others)), np.zeros((runs, choices))
        self.miss_bytes, self.fetch_s = np.zeros((runs, choices, others)), np.ones((runs, others))
        self.heard, self.meter = np.zeros((runs, 3, steps + 1, others)), np.ones((runs, steps + 1))
        for place, episode in enumerate(episodes):
            self.put(place, episode)

    def put(self, place: int, episode: CacheEpisode) -> None:
        """Give a place to an episode."""
        tables, last, conditions = episode.tables, episode.steps + 1, episode.met.shape[1]
        self.episodes[place] = episode
        if last > self._met.shape[1] or conditions > self._met.shape[2]:
            self.__init__(self.episodes)  # type: ignore[misc]
            return
        self.steps[place] = episode.steps
        self._costs[place] = 0.0  # of conditions that this one does not have
        for row, table in enumerate((tables.step_s, tables.step_j, tables.miss_s, tables.rebuild_s)):
            self._costs[place, :, row, :conditions] = table
        self._met[place, :last, :conditions] = episode.met
        self.hits[place], self.hit[place], self.miss_bytes[place] = tables.hits, tables.hit, tables.miss_bytes
        self.fetch_s[place] = episode.fetch_s
        for row, heard in enumerate((episode.late_s, episode.late_s_per_byte, episode.strays)):
            self.heard[place, row, :last] = heard
        self.meter[place, :last] = episode.meter

    def window(self, choices: Numbers, first: Numbers, end: Numbers) -> WindowSums:
        """What one window of each run costs.

        Args:
            choices: (B,) what was chosen for it.
            first: (B,) its first step.
            end: (B,) the step after its last.
        """
        return self.window_under((choices,), first, end)[0]

    def window_under(self, choices: Sequence[Numbers], first: Numbers, end: Numbers) -> list[WindowSums]:
        """What the same window of each run costs under each of several choices, each (B,)."""
        met = (self._met[self._places, end] - self._met[self._places, first])[:, :, None]
        return [WindowSums(*(self._costs[self._places, chosen] @ met)[:, :, 0].T) for chosen in choices]
