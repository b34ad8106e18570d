"""The episodes that are simulated at once, laid out so that one line of arithmetic serves them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.control.cache_episode import CacheEpisode
from dtdg_lab.control.cache_views import CHANGES_WITHIN
from dtdg_lab.control.change_points import LOOK_AGAIN, SAME_CHANGE

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


def _counted(alarms: NDArray[np.bool_]) -> Numbers:
    """(S + 1,) alarms in the last ``CHANGES_WITHIN`` steps; those within ``SAME_CHANGE`` steps of the first as one."""
    lone, last = np.zeros(len(alarms), dtype=np.int64), -SAME_CHANGE
    for step in np.flatnonzero(alarms).tolist():
        if step - last >= SAME_CHANGE:
            lone[step], last = 1, step
    summed = lone.cumsum()
    summed[CHANGES_WITHIN:] -= summed[:-CHANGES_WITHIN].copy()
    return summed


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
        alarms: (B, S + 1) whether a change of some link is found before each step.
        looks: (B, S + 1) whether what serves is to be reconsidered there: at alarms, and a little later.
        found: (B, S + 1) how many there were in the last steps before each one, those close together as one.
        since: (B, S + 1) first step after the latest change point that is known before each step.
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
        self._which, self._noise = np.zeros((runs, steps + 1), dtype=np.int64), np.zeros((runs, steps + 1))
        self.alarms, self.since = np.zeros((runs, steps + 1), dtype=bool), np.zeros((runs, steps + 1), dtype=np.int64)
        self.looks = np.zeros((runs, steps + 1), dtype=bool)
        self.found, self._stall_w = np.zeros((runs, steps + 1), dtype=np.int64), np.zeros(runs)
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
        self._which[place, : last - 1], self._noise[place, : last - 1] = episode.trace.which, episode.noise
        self.alarms[place], self.since[place, :last] = False, episode.since
        self.alarms[place, :last] = episode.alarms
        self.looks[place] = self.alarms[place]
        self.looks[place, LOOK_AGAIN:] |= self.alarms[place, :-LOOK_AGAIN]
        self.found[place] = _counted(self.alarms[place])
        self._stall_w[place] = episode.costs.stall_w

    def at(self, choices: Numbers, step: Numbers) -> tuple[Floats, Floats]:
        """(B,) seconds of one step under a choice each, without its noise, and of them those that rebuilding takes."""
        cost = self._costs[self._places, choices, :, self._which[self._places, step]]
        return cost[:, 0], cost[:, 3]

    def owed(self, choices: Numbers, windows: Numbers, first: Numbers, end: Numbers) -> tuple[Floats, Floats]:
        """(B,) seconds and joules owed by windows that are abandoned; 0 where all steps are served, or the run ends.

        The law spreads a rebuild over the steps of its window. One that is abandoned owes what its own rebuild takes of
        the steps that it does not serve; and the cache that was built meanwhile for its end is thrown away: a whole
        rebuild more, taken to be as large, under the links of the step at which it ends.

        Args:
            choices: (B,) what was chosen for it.
            windows: (B,) W.
            first: (B,) its first step.
            end: (B,) the step after the last that it serves.
        """
        planned, last = np.minimum(first + windows, self.steps), np.minimum(end, self.steps - 1)
        thrown_s = self.at(choices, last)[1] * windows * self._noise[self._places, last]
        seconds = np.where(end < planned, self.window(choices, end, planned).rebuild_s + thrown_s, 0.0)
        return seconds, seconds * self._stall_w

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
