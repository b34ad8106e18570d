"""Simulated runs whose random numbers are all drawn in advance, one by one and as a batch of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core import rng
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.systems.feature_cache.costs.cache_costs import CacheCosts, CacheTables, cache_choices, cache_tables
from dtdg_lab.systems.feature_cache.policies.delay_estimator import (
    LOOK_AGAIN,
    OWNERS_SLACK,
    PROBE_SLACK,
    RECENT,
    SAME_CHANGE,
    change_points,
)
from dtdg_lab.systems.feature_cache.policies.interface import CHANGES_WITHIN
from dtdg_lab.systems.feature_cache.simulation.cases import WARM_UP_EPOCHS, CacheCase, LinkTrace

BASELINE = 0.15  # section V-B: quantile of the warm-up's fetches that is taken as a fetch on clean links
LEAST_FETCH_S = 1e-4  # minimum fetch time to compare delays with, for costs without a fetch time
MEDIAN = 1.2533  # standard error of a median relative to the mean's, for normally distributed values
DRAWN = ("base_s", "rows", "trips", "rebuild_trips", "hit_half", "rebuild_rows", "rebuild_s")
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheNoise:
    """Standard deviations of logarithms of steps and measurements; 0 for no noise.

    Attributes:
        step: of a step's time and energy, independent of the choice.
        meter: of a window's measured energy.
        fetch: True if fetch times have noise, by ``CacheCosts.rtt_noise``.
        constants: of an episode's constants around the calibrated ones.
        baseline: of the clean fetch that delays are compared with, between episodes.

    Raises:
        ConfigError: a value is negative.
    """

    step: float = 0.05
    meter: float = 0.03
    fetch: bool = True
    constants: float = 0.15
    baseline: float = 0.3

    def __post_init__(self) -> None:
        if min(self.step, self.meter, self.constants, self.baseline) < 0:
            raise ConfigError(f"{self}: set all values to 0 or more.")


NO_NOISE = CacheNoise(step=0.0, meter=0.0, fetch=False, constants=0.0, baseline=0.0)


@dataclass(frozen=True, slots=True, eq=False)
class CacheEpisode:
    """A run of S steps of one part under K conditions of its links.

    Attributes:
        number: number of the episode; together with the simulator's seed it determines all random numbers.
        case: the case of congestion; None for a recorded trace.
        costs: calibrated costs, which a policy may know.
        epoch_steps: steps of an epoch.
        trace: the links, step by step.
        tables: the actual costs of a step, from constants drawn around ``costs``.
        noise: (S,) factor of each step's cost, independent of the choice.
        noise_sums: (S + 1, K) sum of ``noise`` over earlier steps, by condition. The cost of a window is a row of the
            tables times a difference of two such sums.
        late_s: (S + 1, P - 1) seconds of delay, relative to the baseline, in the fetches before each step since the
            last change point, at most 30.
        late_s_per_byte: (S + 1, P - 1) the same for the seconds that a slow link adds to each byte.
        strays: (S + 1, P - 1) noise factor of measured fetch times, except for the links' delay.
        meter: (S + 1,) noise factor of measured energy.
        fetch_s: (P - 1,) seconds of a fetch on clean links.
        alarms: (S + 1,) True if the fetches before the step reveal a change of some link.
        since: (S + 1,) first step after the latest change point known before each step.
    """

    number: int
    case: CacheCase | None
    costs: CacheCosts
    epoch_steps: int
    trace: LinkTrace
    tables: CacheTables
    noise: Floats
    noise_sums: Floats
    late_s: Floats
    late_s_per_byte: Floats
    strays: Floats
    meter: Floats
    fetch_s: Floats
    alarms: NDArray[np.bool_]
    since: NDArray[np.int64]

    @property
    def steps(self) -> int:
        """Number of steps S."""
        return self.trace.steps

    def step_costs(self) -> Floats:
        """Return the (C, S) joules of every step under every choice."""
        return self.tables.step_j[:, self.trace.which] * self.noise

    def rebuild_costs(self) -> Floats:
        """Return the (C, S) joules of every step for rebuilding, under every choice."""
        return self.tables.rebuild_s[:, self.trace.which] * self.noise * self.costs.stall_w


def draw_episode(
    costs: Sequence[CacheCosts],
    cases: Sequence[CacheCase],
    number: int,
    *,
    seed: int,
    epochs: int = 30,
    epoch_steps: int = 25,
    noise: CacheNoise = CacheNoise(),
) -> CacheEpisode:
    """Draw an episode; successive numbers cycle through the cases, then through the costs.

    A pure function of its arguments, independent of other episodes.

    Raises:
        ConfigError: costs, cases or steps are missing.
    """
    if not costs or not cases or epochs < 1 or epoch_steps < 1:
        raise ConfigError(
            f"{len(costs)} costs, {len(cases)} cases, {epochs} epochs of {epoch_steps} steps: give one or more."
        )
    random = rng.generator(seed, "control/cache_episode", number)
    case, calibrated = cases[number % len(cases)], costs[number // len(cases) % len(costs)]
    trace = case.draw(random, calibrated.parts, epochs=epochs, epoch_steps=epoch_steps)
    return _build_episode(trace, calibrated, random, noise, number=number, case=case, epoch_steps=epoch_steps)


def replayed_episode(
    trace: LinkTrace, costs: CacheCosts, *, epoch_steps: int, seed: int = 0, noise: CacheNoise = NO_NOISE
) -> CacheEpisode:
    """Build an episode under recorded or scheduled links, by default without noise."""
    random = rng.generator(seed, "control/cache_replay")
    return _build_episode(trace, costs, random, noise, number=0, case=None, epoch_steps=epoch_steps)


def _build_episode(
    trace: LinkTrace,
    calibrated: CacheCosts,
    random: np.random.Generator,
    noise: CacheNoise,
    *,
    number: int,
    case: CacheCase | None,
    epoch_steps: int,
) -> CacheEpisode:
    steps, num_others = trace.steps, trace.parts - 1
    tables = cache_tables(_draw_constants(calibrated, random, noise), cache_choices(trace.parts, epoch_steps), trace)
    factors = np.exp(noise.step * random.standard_normal(steps))
    active = np.zeros((steps + 1, len(trace.delay_s)))
    active[np.arange(1, steps + 1), trace.which] = 1.0
    counts = active.cumsum(axis=0)
    active[1:] *= factors[:, None]
    slow = 1 / trace.bytes_per_s - np.minimum(1 / trace.bytes_per_s, 1 / calibrated.link_bytes_per_s)
    even = cache_choices(trace.parts, epoch_steps).actions.action(16)
    missed = tables.miss_bytes[even]
    nominal = max(calibrated.rpc_s, LEAST_FETCH_S) + missed / calibrated.link_bytes_per_s
    fetch_s = nominal * np.exp(noise.baseline * random.standard_normal(num_others))
    spread = calibrated.rtt_noise if noise.fetch else 0.0
    fetch_noise = spread * random.standard_normal((steps, num_others))
    log_times = np.log(np.exp(fetch_noise) + (trace.delay_s + slow * missed)[trace.which] / fetch_s)
    detected = [change_points(series, spread) for series in log_times.T]
    alarms = np.any([series for _, series in detected], axis=0)
    starts = np.stack([series for series, _ in detected], axis=1)
    starts = np.maximum(starts, np.arange(steps + 1)[:, None] - RECENT)
    warm_up = min(WARM_UP_EPOCHS * epoch_steps, steps)
    late, late_per_byte = (_medians_since(values, counts, starts) for values in (trace.delay_s, slow))
    base, base_per_byte = (_baseline(values, counts[warm_up]) for values in (trace.delay_s, slow))
    # links that were slow from the first step show against the other owners, and against the calibrated clean fetch
    levels = fetch_s + base + base_per_byte * missed
    is_baseline = (
        levels <= OWNERS_SLACK * levels.min() if levels.min() <= PROBE_SLACK * nominal.min() else np.zeros(num_others)
    )
    summed = np.vstack([np.zeros(num_others), fetch_noise.cumsum(axis=0)])
    columns = np.arange(num_others)
    received = np.maximum(np.arange(steps + 1)[:, None] - starts, 1)
    strays = np.exp(MEDIAN * (summed - summed[starts, columns]) / received)
    return CacheEpisode(
        number=number,
        case=case,
        costs=calibrated,
        epoch_steps=epoch_steps,
        trace=trace,
        tables=tables,
        noise=factors,
        noise_sums=active.cumsum(axis=0),
        late_s=np.maximum(late - base * is_baseline, 0.0),
        late_s_per_byte=np.maximum(late_per_byte - base_per_byte * is_baseline, 0.0),
        strays=strays,
        meter=np.exp(noise.meter * random.standard_normal(steps + 1)),
        fetch_s=fetch_s,
        alarms=alarms,
        since=starts.max(axis=1),
    )


def _draw_constants(costs: CacheCosts, random: np.random.Generator, noise: CacheNoise) -> CacheCosts:
    """Draw constants around the calibrated ones; shares stay unchanged."""
    if not noise.constants:
        return costs
    factors = np.exp(noise.constants * random.standard_normal(len(DRAWN))).tolist()
    return replace(costs, **{name: getattr(costs, name) * factor for name, factor in zip(DRAWN, factors, strict=True)})


def _baseline(values: Floats, counts: Floats) -> Floats:
    """Return the (columns,) 15th percentiles of values (K, columns) by condition, weighted by counts (K,)."""
    order = np.argsort(values, axis=0, kind="stable")
    reached = counts[order].cumsum(axis=0) >= BASELINE * counts.sum()
    return np.take_along_axis(values, np.take_along_axis(order, reached.argmax(axis=0)[None], 0), 0)[0]


def _medians_since(values: Floats, counts: Floats, starts: NDArray[np.int64]) -> Floats:
    """Return the (S + 1, P - 1) medians of the values since each start.

    Args:
        values: (K, P - 1) values by condition.
        counts: (S + 1, K) number of steps of each condition before each step.
        starts: (S + 1, P - 1) first step that counts.
    """
    received = np.empty(starts.shape)
    for owner, owner_values in enumerate(values.T):
        order = np.argsort(owner_values, kind="stable")
        recent = (counts - counts[starts[:, owner]])[:, order]
        half = recent.cumsum(axis=1) >= recent.sum(axis=1, keepdims=True) / 2
        received[:, owner] = owner_values[order][half.argmax(axis=1)]
    return received


Numbers = NDArray[np.int64]


def _count_recent(alarms: NDArray[np.bool_]) -> Numbers:
    """Count (S + 1,) alarms in the last ``CHANGES_WITHIN`` steps; alarms within ``SAME_CHANGE`` steps count as one."""
    lone, last = np.zeros(len(alarms), dtype=np.int64), -SAME_CHANGE
    for step in np.flatnonzero(alarms).tolist():
        if step - last >= SAME_CHANGE:
            lone[step], last = 1, step
    summed = lone.cumsum()
    summed[CHANGES_WITHIN:] -= summed[:-CHANGES_WITHIN].copy()
    return summed


class WindowSums(NamedTuple):
    """The costs of one window in each of B runs, summed over its steps, each (B,).

    Attributes:
        seconds: seconds of its steps.
        joules: joules of one part.
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
        episodes: at least one, with equal numbers of parts and of choices.
        conditions: minimum number of conditions to keep space for.

    Attributes:
        episodes: the current episodes.
        steps: (B,) S of each episode.
        hits: (B, C, P - 1) share of the rows requested from each owner that the cache of each choice contains.
        hit: (B, C) the same over all owners.
        miss_bytes: (B, C, P - 1) bytes of the misses of each owner in a step.
        fetch_s: (B, P - 1) seconds of a fetch on clean links.
        received: (B, 3, S + 1, P - 1) the episodes' ``late_s``, ``late_s_per_byte`` and ``strays``.
        meter: (B, S + 1) noise factor of measured energy.
        alarms: (B, S + 1) True if a change of some link is detected before the step.
        reviews: (B, S + 1) True if the current window is reconsidered at the step: at alarms, and a little later.
        change_counts: (B, S + 1) number of alarms in the last steps before each one; close ones count as one.
        since: (B, S + 1) first step after the latest change point known before each step.
    """

    def __init__(self, episodes: Sequence[CacheEpisode], *, conditions: int = 0) -> None:
        self.episodes = list(episodes)
        runs, (choices, num_others) = len(episodes), episodes[0].tables.hits.shape
        steps = max(episode.steps for episode in episodes)
        conditions = max(conditions, *(episode.noise_sums.shape[1] for episode in episodes))
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
        self._costs[index] = 0.0  # for conditions that this episode lacks
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

    @property
    def conditions(self) -> int:
        """Number of conditions that there is space for; sums over them may depend on it in their last bits."""
        return self._noise_sums.shape[2]

    def at(self, choices: Numbers, step: Numbers) -> tuple[Floats, Floats]:
        """Return the (B,) seconds of one step under a choice per run, without noise, and their part for rebuilding."""
        cost = self._costs[self._indices, choices, :, self._which[self._indices, step]]
        return cost[:, 0], cost[:, 3]

    def owed(self, choices: Numbers, windows: Numbers, first: Numbers, end: Numbers) -> tuple[Floats, Floats]:
        """Return the (B,) seconds and joules owed for abandoned windows; 0 if all steps are served, or the run ends.

        The model spreads a rebuild over the steps of its window. An abandoned window owes the share of its own rebuild
        for the steps that it does not serve. It also owes one more rebuild, of the discarded cache that was being built
        for its end. That is assumed equally large, under the links of the step at which the window ends.

        Args:
            choices: (B,) the window's choice.
            windows: (B,) W.
            first: (B,) its first step.
            end: (B,) the step after the last one that it serves.
        """
        planned, last = np.minimum(first + windows, self.steps), np.minimum(end, self.steps - 1)
        thrown_s = self.at(choices, last)[1] * windows * self._noise[self._indices, last]
        seconds = np.where(end < planned, self.window(choices, end, planned).rebuild_s + thrown_s, 0.0)
        return seconds, seconds * self._stall_w

    def window(self, choices: Numbers, first: Numbers, end: Numbers) -> WindowSums:
        """Return the costs of one window of each run.

        Args:
            choices: (B,) the window's choice.
            first: (B,) its first step.
            end: (B,) the step after its last.
        """
        return self.window_under((choices,), first, end)[0]

    def window_under(self, choices: Sequence[Numbers], first: Numbers, end: Numbers) -> list[WindowSums]:
        """Return the costs of a window of each run under several choices, each (B,)."""
        noise_sums = (self._noise_sums[self._indices, end] - self._noise_sums[self._indices, first])[:, :, None]
        return [WindowSums(*(self._costs[self._indices, choice] @ noise_sums)[:, :, 0].T) for choice in choices]
