"""Arrays of many episodes, for vectorised simulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.systems.feature_cache.policies.change_points import LOOK_AGAIN, SAME_CHANGE
from dtdg_lab.systems.feature_cache.policies.interface import CHANGES_WITHIN
from dtdg_lab.systems.feature_cache.simulation.episode import CacheEpisode, Floats

Numbers = NDArray[np.int64]


def _count_recent(alarms: NDArray[np.bool_]) -> Numbers:
    """Count (S + 1,) alarms in the last ``CHANGES_WITHIN`` steps; those within ``SAME_CHANGE`` steps count as one."""
    lone, last = np.zeros(len(alarms), dtype=np.int64), -SAME_CHANGE
    for step in np.flatnonzero(alarms).tolist():
        if step - last >= SAME_CHANGE:
            lone[step], last = 1, step
    summed = lone.cumsum()
    summed[CHANGES_WITHIN:] -= summed[:-CHANGES_WITHIN].copy()
    return summed


class WindowSums(NamedTuple):
    """The costs of a window of each of B runs, summed over its steps, each (B,).

    Attributes:
        seconds: of its steps.
        joules: of one part.
        miss_s: seconds for misses.
        rebuild_s: seconds for rebuilding.
    """

    seconds: Floats
    joules: Floats
    miss_s: Floats
    rebuild_s: Floats


class CacheBatch:
    """Arrays of B episodes, padded to the largest number of steps and conditions.

    Args:
        episodes: of one number of parts and of one number of choices; at least one.

    Attributes:
        episodes: the current ones.
        steps: (B,) S of each.
        hits: (B, C, P - 1) share of the rows requested from each owner that the cache of each choice contains.
        hit: (B, C) the same over all owners.
        miss_bytes: (B, C, P - 1) bytes of the misses of each owner in a step.
        fetch_s: (B, P - 1) seconds of a fetch on clean links.
        received: (B, 3, S + 1, P - 1) the episodes' ``late_s``, ``late_s_per_byte`` and ``strays``.
        meter: (B, S + 1) noise factor of measured energy.
        alarms: (B, S + 1) whether a change of some link is detected before each step.
        reviews: (B, S + 1) whether to reconsider the current window there: at alarms, and a little later.
        change_counts: (B, S + 1) number of alarms in the last steps before each one, close ones counted as one.
        since: (B, S + 1) first step after the latest change point known before each step.
    """

    def __init__(self, episodes: Sequence[CacheEpisode]) -> None:
        self.episodes = list(episodes)
        runs, (choices, num_others) = len(episodes), episodes[0].tables.hits.shape
        steps = max(episode.steps for episode in episodes)
        conditions = max(episode.noise_sums.shape[1] for episode in episodes)
        self._indices = np.arange(runs)
        self._costs = np.zeros((runs, choices, 4, conditions))
        self._noise_sums = np.zeros((runs, steps + 1, conditions))
        self.steps = np.zeros(runs, dtype=np.int64)
        self.hits, self.hit = np.zeros((runs, choices, num_others)), np.zeros((runs, choices))
        self.miss_bytes, self.fetch_s = np.zeros((runs, choices, num_others)), np.ones((runs, num_others))
        self.received, self.meter = np.zeros((runs, 3, steps + 1, num_others)), np.ones((runs, steps + 1))
        self._which, self._noise = np.zeros((runs, steps + 1), dtype=np.int64), np.zeros((runs, steps + 1))
        self.alarms, self.since = np.zeros((runs, steps + 1), dtype=bool), np.zeros((runs, steps + 1), dtype=np.int64)
        self.reviews = np.zeros((runs, steps + 1), dtype=bool)
        self.change_counts, self._stall_w = np.zeros((runs, steps + 1), dtype=np.int64), np.zeros(runs)
        for index, episode in enumerate(episodes):
            self.store(index, episode)

    def store(self, index: int, episode: CacheEpisode) -> None:
        """Store an episode at an index."""
        tables, last, conditions = episode.tables, episode.steps + 1, episode.noise_sums.shape[1]
        self.episodes[index] = episode
        if last > self._noise_sums.shape[1] or conditions > self._noise_sums.shape[2]:
            self.__init__(self.episodes)  # type: ignore[misc]
            return
        self.steps[index] = episode.steps
        self._costs[index] = 0.0  # of conditions that this episode lacks
        for row, table in enumerate((tables.step_s, tables.step_j, tables.miss_s, tables.rebuild_s)):
            self._costs[index, :, row, :conditions] = table
        self._noise_sums[index, :last, :conditions] = episode.noise_sums
        self.hits[index], self.hit[index], self.miss_bytes[index] = tables.hits, tables.hit, tables.miss_bytes
        self.fetch_s[index] = episode.fetch_s
        for row, received in enumerate((episode.late_s, episode.late_s_per_byte, episode.strays)):
            self.received[index, row, :last] = received
        self.meter[index, :last] = episode.meter
        self._which[index, : last - 1], self._noise[index, : last - 1] = episode.trace.which, episode.noise
        self.alarms[index], self.since[index, :last] = False, episode.since
        self.alarms[index, :last] = episode.alarms
        self.reviews[index] = self.alarms[index]
        self.reviews[index, LOOK_AGAIN:] |= self.alarms[index, :-LOOK_AGAIN]
        self.change_counts[index] = _count_recent(self.alarms[index])
        self._stall_w[index] = episode.costs.stall_w

    def at(self, choices: Numbers, step: Numbers) -> tuple[Floats, Floats]:
        """Return (B,) seconds of one step under a choice each, without noise, and the part of them for rebuilding."""
        cost = self._costs[self._indices, choices, :, self._which[self._indices, step]]
        return cost[:, 0], cost[:, 3]

    def owed(self, choices: Numbers, windows: Numbers, first: Numbers, end: Numbers) -> tuple[Floats, Floats]:
        """Return (B,) seconds and joules owed by abandoned windows; 0 if all steps are served, or the run ends.

        The model spreads a rebuild over the steps of its window. An abandoned window owes the share of its own rebuild
        for the steps that it does not serve. The cache built meanwhile for its end is discarded: that is one more whole
        rebuild, assumed equally large, under the links of the step at which it ends.

        Args:
            choices: (B,) its choice.
            windows: (B,) W.
            first: (B,) its first step.
            end: (B,) the step after the last that it serves.
        """
        planned, last = np.minimum(first + windows, self.steps), np.minimum(end, self.steps - 1)
        thrown_s = self.at(choices, last)[1] * windows * self._noise[self._indices, last]
        seconds = np.where(end < planned, self.window(choices, end, planned).rebuild_s + thrown_s, 0.0)
        return seconds, seconds * self._stall_w

    def window(self, choices: Numbers, first: Numbers, end: Numbers) -> WindowSums:
        """Return the costs of one window of each run.

        Args:
            choices: (B,) its choice.
            first: (B,) its first step.
            end: (B,) the step after its last.
        """
        return self.window_under((choices,), first, end)[0]

    def window_under(self, choices: Sequence[Numbers], first: Numbers, end: Numbers) -> list[WindowSums]:
        """Return the costs of the same window of each run under each of several choices, each (B,)."""
        noise_sums = (self._noise_sums[self._indices, end] - self._noise_sums[self._indices, first])[:, :, None]
        return [WindowSums(*(self._costs[self._indices, choice] @ noise_sums)[:, :, 0].T) for choice in choices]
