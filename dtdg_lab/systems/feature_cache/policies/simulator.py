"""Simulator of training under congestion: cases, drawn episodes, and many runs at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core import rng
from dtdg_lab.core.errors import ConfigError, PlanError, UnknownNameError
from dtdg_lab.network.patterns import BITS
from dtdg_lab.systems.feature_cache.actions import CacheActions
from dtdg_lab.systems.feature_cache.policies.costs import (
    CacheCosts,
    CacheTables,
    LinkTrace,
    cache_choices,
    cache_tables,
)
from dtdg_lab.systems.feature_cache.policies.delay_estimator import (
    LOOK_AGAIN,
    OWNERS_SLACK,
    PROBE_SLACK,
    RECENT,
    SAME_CHANGE,
    change_points,
)
from dtdg_lab.systems.feature_cache.policies.env import CHANGES_WITHIN, CacheObservation, CacheViews, cache_state

# Congestion for training and comparing cache policies: archetypes, severity, onset and duration.


PAPER_ARCHETYPES = ("none", "one_slow", "one_fast", "two_symmetric", "two_asymmetric", "oscillating")
STEADY, ALL_STEADY = "steady", "all_steady"  # one link, or all of them, from the first step to the last
ARCHETYPES = (*PAPER_ARCHETYPES, "rotating", "markov", "all_slow", STEADY, ALL_STEADY)
KINDS = ("delay", "rate")
# (name, added milliseconds, remaining Mbit/s): policies are compared at other severities than they are trained with,
# and accepted at others again, since constants may have been chosen by comparing
TRAINED_SEVERITIES = (("mild", 4.0, 800.0), ("middling", 12.0, 300.0), ("severe", 28.0, 80.0))
COMPARED_SEVERITIES = (("light", 6.0, 500.0), ("medium", 16.0, 200.0), ("heavy", 22.0, 50.0))
TRAINED_SPREAD, COMPARED_SPREAD = 0.15, 0.05
LEVELS = 8  # steps between no congestion and full congestion, for swinging links
WARM_UP_EPOCHS = 2  # GreenDyGNN section V-B: the baseline of fetch times is taken there
SLOW_EPOCHS = ((3.0, 9.0), (1.0, 4.0))  # shortest and longest phase with congestion, and without
FAST_EPOCHS = ((0.15, 0.6), (0.15, 0.6))
SWING_EPOCHS = (1.0, 6.0)  # shortest and longest time from one owner to the other and back
TURN_EPOCHS = (0.5, 3.0)  # shortest and longest turn of one owner, for rotating congestion
MARKOV_EPOCHS = ((0.5, 3.0), (1.0, 6.0))  # bounds of the mean time that a link stays slow, and that it stays clean


@dataclass(frozen=True, slots=True)
class CacheCase:
    """One archetype of congestion at one severity; each episode draws its owners, onset and lengths.

    If a part has only one other, both links are the same. ``one_slow`` and ``one_fast`` are our reading of "single-
    link slow or fast": phases of several epochs, and phases shorter than one. Five more archetypes are ours.
    ``rotating``: one owner after another is slow, each for the same time. ``markov``: each link becomes slow and clean
    again independently, after exponentially distributed times. ``all_slow``: all links in the phases of ``one_slow``.
    ``steady`` and ``all_steady``: one link, or all links, from the first step to the last.

    Attributes:
        archetype: one of ``ARCHETYPES``.
        severity: its name.
        delay_s: maximum seconds added to a reply.
        bytes_per_s: minimum rate of replies; infinite for no limit.
        spread: relative range of an episode's delay and rate around these.

    Raises:
        UnknownNameError: the archetype is unknown.
        ConfigError: a delay is negative, a rate is not above 0, or the spread is not from 0 to below 1.

    References: GreenDyGNN section IV-C2 (six archetypes x three severities; their figures are not given: ours).
    """

    archetype: str
    severity: str
    delay_s: float = 0.0
    bytes_per_s: float = np.inf
    spread: float = 0.0

    def __post_init__(self) -> None:
        if self.archetype not in ARCHETYPES:
            raise UnknownNameError("archetype of congestion", self.archetype, ARCHETYPES)
        if not (0 <= self.delay_s < np.inf and self.bytes_per_s > 0 and 0 <= self.spread < 1):
            raise ConfigError(
                f"{self}: the delay must be 0 s or more, the rate above 0 bytes/s and the spread from 0 to below 1."
            )

    @property
    def name(self) -> str:
        """Archetype, severity and kind, as in ``one_slow/heavy/delay``."""
        return f"{self.archetype}/{self.severity}/{KINDS[int(np.isfinite(self.bytes_per_s))]}"

    def draw(self, random: np.random.Generator, parts: int, *, epochs: int, epoch_steps: int) -> LinkTrace:
        """The links of one episode to a part that has P - 1 others.

        The first two epochs are clean, except those of ``steady`` and ``all_steady``.

        Args:
            random: draws the owners, the onset, the lengths and the severity.
            parts: P, at least 2.
            epochs: of the episode.
            epoch_steps: steps of each.
        """
        steps, others = epochs * epoch_steps, parts - 1
        bad = random.uniform(1 - self.spread, 1 + self.spread)
        owners = random.permutation(others)
        levels, which = self._levels(random, others, steps, epoch_steps)
        used = owners[: levels.shape[1]]
        shares = np.zeros((len(levels), others))
        shares[:, used] = levels[:, : len(used)]
        with np.errstate(divide="ignore"):
            return LinkTrace(self.delay_s * bad * shares, self.bytes_per_s / bad / shares, which)

    def _levels(
        self, random: np.random.Generator, others: int, steps: int, epoch_steps: int
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """(K, owners) severity of each condition for each drawn owner, from 0 to 1; (S,) index of the condition."""
        if self.archetype == "none":
            return np.zeros((1, 2)), np.zeros(steps, dtype=np.int64)
        if self.archetype in (STEADY, ALL_STEADY):
            return np.ones((1, 1 if self.archetype == STEADY else others)), np.zeros(steps, dtype=np.int64)
        earliest = WARM_UP_EPOCHS * epoch_steps
        onset = min(int(random.uniform(earliest, max(earliest, 0.4 * steps) + 1)), steps)
        if self.archetype == "oscillating":
            return _swinging(random, steps, onset, epoch_steps)
        if self.archetype == "rotating":
            turn = max(round(random.uniform(*TURN_EPOCHS) * epoch_steps), 1)
            passed = np.arange(steps) - onset
            return np.vstack([np.zeros(others), np.eye(others)]), np.where(passed >= 0, 1 + passed // turn % others, 0)
        if self.archetype == "markov":
            return _flipping(random, others, steps, onset, np.array(MARKOV_EPOCHS) * epoch_steps)
        second = {"two_symmetric": 1.0, "two_asymmetric": 0.5}.get(self.archetype, 0.0)
        congested = np.ones(others) if self.archetype == "all_slow" else np.array([1.0, second])
        lengths = FAST_EPOCHS if self.archetype == "one_fast" else SLOW_EPOCHS
        phases = _phases(random, steps, onset, np.array(lengths) * epoch_steps)
        return np.stack([np.zeros_like(congested), congested]), phases


def training_cases(archetypes: tuple[str, ...] = ARCHETYPES) -> tuple[CacheCase, ...]:
    """The cases of policy training: each archetype at three severities, by delay and by rate, spread by 15 %.

    The paper's ``double_dqn`` is trained with ``PAPER_ARCHETYPES`` only.
    """
    return cases_of(archetypes, TRAINED_SEVERITIES, TRAINED_SPREAD)


def comparison_cases(archetypes: tuple[str, ...] = ARCHETYPES) -> tuple[CacheCase, ...]:
    """The cases of policy comparison: the same at severities that training never draws."""
    return cases_of(archetypes, COMPARED_SEVERITIES, COMPARED_SPREAD)


def cases_of(
    archetypes: tuple[str, ...], severities: tuple[tuple[str, float, float], ...], spread: float
) -> tuple[CacheCase, ...]:
    """Each archetype at each severity (name, milliseconds, Mbit/s), by delay and by rate."""
    return tuple(
        CacheCase(archetype, name, delay_ms / 1e3, np.inf, spread)
        if kind == "delay"
        else CacheCase(archetype, name, 0.0, mbit / BITS, spread)
        for archetype in archetypes
        for kind in KINDS
        for name, delay_ms, mbit in severities
    )


def _phases(random: np.random.Generator, steps: int, onset: int, lengths: NDArray[np.float64]) -> NDArray[np.int64]:
    """(S,) 1 under congestion: from the onset on, phases with and without it alternate."""
    drawn = random.uniform(lengths[:, 0], lengths[:, 1], (max(2, int(steps / lengths[:, 0].sum()) + 1), 2))
    ends = onset + np.cumsum(np.maximum(np.rint(drawn).astype(np.int64), 1).ravel())
    turn = np.searchsorted(ends, np.arange(steps), side="right")
    return np.where(np.arange(steps) >= onset, 1 - turn % 2, 0)


def _swinging(
    random: np.random.Generator, steps: int, onset: int, epoch_steps: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Congestion that moves from one owner to the other and back, in steps; condition 0 is clean."""
    up = np.arange(LEVELS + 1) / LEVELS
    levels = np.vstack([np.zeros((1, 2)), np.stack([1 - up, up], axis=1)])
    period = random.uniform(*SWING_EPOCHS) * epoch_steps
    moved = (1 - np.cos(2 * np.pi * (np.arange(steps) - onset) / period)) / 2
    return levels, np.where(np.arange(steps) >= onset, 1 + np.rint(moved * LEVELS).astype(np.int64), 0)


def _flipping(
    random: np.random.Generator, others: int, steps: int, onset: int, means: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Links that become slow and clean again independently; the mean times (2, 2) are bounds in steps."""
    slow = np.zeros((steps, others), dtype=np.int64)
    stays = random.uniform(means[:, 0], means[:, 1])
    for owner in range(others):
        step, is_slow = onset + int(random.exponential(stays[1])), 1
        while step < steps:
            lasts = 1 + int(random.exponential(stays[1 - is_slow]))
            slow[step : step + lasts, owner] = is_slow
            step, is_slow = step + lasts, 1 - is_slow
    codes, which = np.unique(slow @ 2 ** np.arange(others), return_inverse=True)
    return (codes[:, None] >> np.arange(others) & 1).astype(np.float64), which


# One simulated run in which all random numbers are drawn in advance, so that it can be repeated.


BASELINE = 0.15  # section V-B: quantile of the warm-up's fetches that counts as a fetch on clean links
LEAST_FETCH_S = 1e-4  # minimum fetch time to compare delays with, for costs without one
MEDIAN = 1.2533  # standard error of a median relative to that of a mean, for normally distributed values
DRAWN = ("base_s", "rows", "trips", "rebuild_trips", "hit_half", "rebuild_rows", "rebuild_s")
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheNoise:
    """Standard deviations of logarithms of steps and measurements; 0 for no noise.

    Attributes:
        step: of a step's time and energy, independent of the choice.
        meter: of a window's measured energy.
        fetch: whether fetch times have noise, by ``CacheCosts.rtt_noise``.
        constants: of an episode's constants around the calibrated ones.
        baseline: of the clean fetch that delays are compared with, between episodes.

    Raises:
        ConfigError: one is negative.
    """

    step: float = 0.05
    meter: float = 0.03
    fetch: bool = True
    constants: float = 0.15
    baseline: float = 0.3

    def __post_init__(self) -> None:
        if min(self.step, self.meter, self.constants, self.baseline) < 0:
            raise ConfigError(f"{self}: all values must be 0 or more.")


NO_NOISE = CacheNoise(step=0.0, meter=0.0, fetch=False, constants=0.0, baseline=0.0)


@dataclass(frozen=True, slots=True, eq=False)
class CacheEpisode:
    """A run of S steps of one part under K conditions of its links.

    Attributes:
        number: of the episode; together with the simulator's seed it determines everything that is drawn.
        case: the congestion that it was drawn from; None for a recorded trace.
        costs: calibrated costs, which a policy may know.
        epoch_steps: steps of an epoch.
        trace: the links, step by step.
        tables: the actual costs of a step, from constants drawn around ``costs``.
        noise: (S,) factor of each step's cost, independent of the choice.
        met: (S + 1, K) sum of ``noise`` over the steps before, by condition: the cost of a window is a row of the
            tables times a difference of two of these.
        late_s: (S + 1, P - 1) seconds of delay in the fetches since the last change point, at most 30, before each
            step, relative to the baseline.
        late_s_per_byte: (S + 1, P - 1) the same for the seconds that a slow link adds to each byte.
        strays: (S + 1, P - 1) noise factor of measured fetch times, except for the links' delay.
        meter: (S + 1,) noise factor of measured energy.
        fetch_s: (P - 1,) seconds of a fetch on clean links.
        alarms: (S + 1,) whether a change of some link is detected in the fetches before each step.
        since: (S + 1,) first step after the latest change point known before each step.
    """

    number: int
    case: CacheCase | None
    costs: CacheCosts
    epoch_steps: int
    trace: LinkTrace
    tables: CacheTables
    noise: Floats
    met: Floats
    late_s: Floats
    late_s_per_byte: Floats
    strays: Floats
    meter: Floats
    fetch_s: Floats
    alarms: NDArray[np.bool_]
    since: NDArray[np.int64]

    @property
    def steps(self) -> int:
        """S."""
        return self.trace.steps

    def step_costs(self, *, of_joules: bool = True) -> Floats:
        """(C, S) joules (or seconds) of every step under every choice."""
        table = self.tables.step_j if of_joules else self.tables.step_s
        return table[:, self.trace.which] * self.noise

    def rebuild_costs(self, *, of_joules: bool = True) -> Floats:
        """(C, S) joules (or seconds) of every step for rebuilding, under every choice."""
        seconds = self.tables.rebuild_s[:, self.trace.which] * self.noise
        return seconds * self.costs.stall_w if of_joules else seconds


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
    """The episode of a number: it cycles through the cases, then through the costs; everything else is drawn.

    A pure function of its arguments, independent of other episodes.

    Raises:
        ConfigError: there are no costs or no cases, or no steps.
    """
    if not costs or not cases or epochs < 1 or epoch_steps < 1:
        raise ConfigError(
            f"{len(costs)} costs, {len(cases)} cases, {epochs} epochs of {epoch_steps} steps: at least one of each."
        )
    random = rng.generator(seed, "control/cache_episode", number)
    case, calibrated = cases[number % len(cases)], costs[number // len(cases) % len(costs)]
    trace = case.draw(random, calibrated.parts, epochs=epochs, epoch_steps=epoch_steps)
    return _episode(trace, calibrated, random, noise, number=number, case=case, epoch_steps=epoch_steps)


def replayed_episode(
    trace: LinkTrace, costs: CacheCosts, *, epoch_steps: int, seed: int = 0, noise: CacheNoise = NO_NOISE
) -> CacheEpisode:
    """An episode under recorded or scheduled links; by default without noise."""
    random = rng.generator(seed, "control/cache_replay")
    return _episode(trace, costs, random, noise, number=0, case=None, epoch_steps=epoch_steps)


def _episode(
    trace: LinkTrace,
    calibrated: CacheCosts,
    random: np.random.Generator,
    noise: CacheNoise,
    *,
    number: int,
    case: CacheCase | None,
    epoch_steps: int,
) -> CacheEpisode:
    steps, others = trace.steps, trace.parts - 1
    tables = cache_tables(_drawn(calibrated, random, noise), cache_choices(trace.parts, epoch_steps), trace)
    factors = np.exp(noise.step * random.standard_normal(steps))
    held = np.zeros((steps + 1, len(trace.delay_s)))
    held[np.arange(1, steps + 1), trace.which] = 1.0
    counts = held.cumsum(axis=0)
    held[1:] *= factors[:, None]
    slow = 1 / trace.bytes_per_s - np.minimum(1 / trace.bytes_per_s, 1 / calibrated.link_bytes_per_s)
    even = cache_choices(trace.parts, epoch_steps).actions.action(16)
    missed = tables.miss_bytes[even]
    nominal = max(calibrated.rpc_s, LEAST_FETCH_S) + missed / calibrated.link_bytes_per_s
    fetch_s = nominal * np.exp(noise.baseline * random.standard_normal(others))
    spread = calibrated.rtt_noise if noise.fetch else 0.0
    drawn = spread * random.standard_normal((steps, others))
    met = np.log(np.exp(drawn) + (trace.delay_s + slow * missed)[trace.which] / fetch_s)
    found = [change_points(of, spread) for of in met.T]
    starts, alarms = np.stack([of for of, _ in found], axis=1), np.any([of for _, of in found], axis=0)
    starts = np.maximum(starts, np.arange(steps + 1)[:, None] - RECENT)
    warm_up = min(WARM_UP_EPOCHS * epoch_steps, steps)
    late, late_per_byte = (_observed(values, counts, starts) for values in (trace.delay_s, slow))
    base, base_per_byte = (_baseline(values, counts[warm_up]) for values in (trace.delay_s, slow))
    # links that were slow from the first step are detected by the other owners, and by the calibrated clean fetch
    levels = fetch_s + base + base_per_byte * missed
    kept = levels <= OWNERS_SLACK * levels.min() if levels.min() <= PROBE_SLACK * nominal.min() else np.zeros(others)
    summed = np.vstack([np.zeros(others), drawn.cumsum(axis=0)])
    columns = np.arange(others)
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
        met=held.cumsum(axis=0),
        late_s=np.maximum(late - base * kept, 0.0),
        late_s_per_byte=np.maximum(late_per_byte - base_per_byte * kept, 0.0),
        strays=strays,
        meter=np.exp(noise.meter * random.standard_normal(steps + 1)),
        fetch_s=fetch_s,
        alarms=alarms,
        since=starts.max(axis=1),
    )


def _drawn(costs: CacheCosts, random: np.random.Generator, noise: CacheNoise) -> CacheCosts:
    """Constants drawn around the calibrated ones; shares are not changed."""
    if not noise.constants:
        return costs
    factors = np.exp(noise.constants * random.standard_normal(len(DRAWN))).tolist()
    return replace(costs, **{name: getattr(costs, name) * factor for name, factor in zip(DRAWN, factors, strict=True)})


def _baseline(values: Floats, counts: Floats) -> Floats:
    """(columns,) the 15th percentile of values (K, columns) by condition, weighted by counts (K,)."""
    order = np.argsort(values, axis=0, kind="stable")
    reached = counts[order].cumsum(axis=0) >= BASELINE * counts.sum()
    return np.take_along_axis(values, np.take_along_axis(order, reached.argmax(axis=0)[None], 0), 0)[0]


def _observed(values: Floats, counts: Floats, starts: NDArray[np.int64]) -> Floats:
    """(S + 1, P - 1) median of the values since each start.

    Args:
        values: (K, P - 1) by condition.
        counts: (S + 1, K) steps of each condition before each step.
        starts: (S + 1, P - 1) first step that counts.
    """
    received = np.empty(starts.shape)
    for owner, given in enumerate(values.T):
        order = np.argsort(given, kind="stable")
        recent = (counts - counts[starts[:, owner]])[:, order]
        half = recent.cumsum(axis=1) >= recent.sum(axis=1, keepdims=True) / 2
        received[:, owner] = given[order][half.argmax(axis=1)]
    return received


# A batch of episodes in arrays, for vectorised simulation.


Numbers = NDArray[np.int64]


def _counted(alarms: NDArray[np.bool_]) -> Numbers:
    """(S + 1,) alarms in the last ``CHANGES_WITHIN`` steps; those within ``SAME_CHANGE`` steps count as one."""
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
        looks: (B, S + 1) whether to reconsider the current window there: at alarms, and a little later.
        found: (B, S + 1) number of alarms in the last steps before each one, close ones counted as one.
        since: (B, S + 1) first step after the latest change point known before each step.
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
        self.received, self.meter = np.zeros((runs, 3, steps + 1, others)), np.ones((runs, steps + 1))
        self._which, self._noise = np.zeros((runs, steps + 1), dtype=np.int64), np.zeros((runs, steps + 1))
        self.alarms, self.since = np.zeros((runs, steps + 1), dtype=bool), np.zeros((runs, steps + 1), dtype=np.int64)
        self.looks = np.zeros((runs, steps + 1), dtype=bool)
        self.found, self._stall_w = np.zeros((runs, steps + 1), dtype=np.int64), np.zeros(runs)
        for index, episode in enumerate(episodes):
            self.put(index, episode)

    def put(self, index: int, episode: CacheEpisode) -> None:
        """Store an episode at an index."""
        tables, last, conditions = episode.tables, episode.steps + 1, episode.met.shape[1]
        self.episodes[index] = episode
        if last > self._met.shape[1] or conditions > self._met.shape[2]:
            self.__init__(self.episodes)  # type: ignore[misc]
            return
        self.steps[index] = episode.steps
        self._costs[index] = 0.0  # of conditions that this episode lacks
        for row, table in enumerate((tables.step_s, tables.step_j, tables.miss_s, tables.rebuild_s)):
            self._costs[index, :, row, :conditions] = table
        self._met[index, :last, :conditions] = episode.met
        self.hits[index], self.hit[index], self.miss_bytes[index] = tables.hits, tables.hit, tables.miss_bytes
        self.fetch_s[index] = episode.fetch_s
        for row, received in enumerate((episode.late_s, episode.late_s_per_byte, episode.strays)):
            self.received[index, row, :last] = received
        self.meter[index, :last] = episode.meter
        self._which[index, : last - 1], self._noise[index, : last - 1] = episode.trace.which, episode.noise
        self.alarms[index], self.since[index, :last] = False, episode.since
        self.alarms[index, :last] = episode.alarms
        self.looks[index] = self.alarms[index]
        self.looks[index, LOOK_AGAIN:] |= self.alarms[index, :-LOOK_AGAIN]
        self.found[index] = _counted(self.alarms[index])
        self._stall_w[index] = episode.costs.stall_w

    def at(self, choices: Numbers, step: Numbers) -> tuple[Floats, Floats]:
        """(B,) seconds of one step under a choice each, without its noise, and the part of them for rebuilding."""
        cost = self._costs[self._places, choices, :, self._which[self._places, step]]
        return cost[:, 0], cost[:, 3]

    def owed(self, choices: Numbers, windows: Numbers, first: Numbers, end: Numbers) -> tuple[Floats, Floats]:
        """(B,) seconds and joules owed by abandoned windows; 0 if all steps are served, or the run ends.

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
        thrown_s = self.at(choices, last)[1] * windows * self._noise[self._places, last]
        seconds = np.where(end < planned, self.window(choices, end, planned).rebuild_s + thrown_s, 0.0)
        return seconds, seconds * self._stall_w

    def window(self, choices: Numbers, first: Numbers, end: Numbers) -> WindowSums:
        """The costs of one window of each run.

        Args:
            choices: (B,) its choice.
            first: (B,) its first step.
            end: (B,) the step after its last.
        """
        return self.window_under((choices,), first, end)[0]

    def window_under(self, choices: Sequence[Numbers], first: Numbers, end: Numbers) -> list[WindowSums]:
        """The costs of the same window of each run under each of several choices, each (B,)."""
        met = (self._met[self._places, end] - self._met[self._places, first])[:, :, None]
        return [WindowSums(*(self._costs[self._places, chosen] @ met)[:, :, 0].T) for chosen in choices]


# Simulated training under congestion: many runs at once, in which a policy decides at every rebuild of a cache.
#
# The cost of a window is the sum over its steps of the calibrated costs for its length, its allocation and the links at
# that step, times noise that is independent of the choice. As in live runs, a decision at a boundary takes effect at
# the next one: while one window trains, the cache of the next is built. Windows may extend over the end of an epoch.
#
# After a change of the links a window may be abandoned: its successor begins when the new cache is built, and the
# wasted rebuild is paid (``CacheBatch.owed``).


REFERENCE = 16  # the evenly shared window that rewards are relative to (Eq. 5), and at whose power a change is paid
SLOW_BASE = 1.5  # a warm-up whose steps exceed this multiple of calibrated clean ones was congested itself
Booleans = NDArray[np.bool_]
States = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class StepInfo:
    """The result of one decision in each of B runs; runs that had ended before contain zeros.

    Attributes:
        joules: (B,) of the decided window, including the price of changing the allocation.
        seconds: (B,) likewise.
        steps: (B,) its length: W, or less at the end of the run.
        passed: (B,) steps between the previous decision and this one.
        reference_j: (B,) joules of the same steps with W = 16, evenly shared.
        changed: (B,) whether the allocation changes.
        final_states: (B, 3 P + 11) states before indices are given to new runs; otherwise equal to ``states``.
    """

    joules: Floats
    seconds: Floats
    steps: Numbers
    passed: Numbers
    reference_j: Floats
    changed: Booleans
    final_states: States


class CacheSimulator:
    """B simulated runs (P parts, A = 8 P actions).

    Args:
        costs: calibrated costs, one for each data set; all of one number of parts P.
        cases: congestion that episodes are drawn from, in turn.
        episodes: B, number of simultaneous runs.
        seed: of all random numbers; an episode is a pure function of the seed and its number.
        epochs: of a run.
        epoch_steps: steps of an epoch.
        penalty: lambda, subtracted from the reward if the allocation changes.
        reward: "ratio" is ``-E / E_ref`` of the decided window (the paper's: means over its steps, so that a long
            window has the weight of a short one); "saved" is ``(1 - E / E_ref) steps / 16`` (ours: it adds up to
            the savings of a run). E_ref is that of W = 16, evenly shared, over the same steps.
        change_s: seconds that a change of the allocation costs, at the mean power of the reference.
        noise: of steps and measurements.
        restart: replace a run that ends by the next episode at once.
        draw: makes the episode of a number instead of ``cases``, for recorded links.

    Attributes:
        actions: the possible actions.
        choices: the same, and the window of an epoch.
        episodes: B.
        reference: index of the action that rewards are relative to.
        restarts: whether ended runs are replaced.

    Raises:
        ConfigError: there is nothing to simulate, or a number is out of range.

    References: GreenDyGNN sections IV-B and IV-C. Differs from the paper: the reward is that of the decided window,
    although it begins one window later (the paper is ambiguous here).
    """

    def __init__(
        self,
        costs: Sequence[CacheCosts],
        cases: Sequence[CacheCase] = (),
        *,
        episodes: int = 1,
        seed: int = 0,
        epochs: int = 30,
        epoch_steps: int = 25,
        penalty: float = 0.05,
        reward: Literal["ratio", "saved"] = "ratio",
        change_s: float = 0.0,
        noise: CacheNoise | None = None,
        restart: bool = False,
        draw: Callable[[int], CacheEpisode] | None = None,
    ) -> None:
        if not costs or len({cost.parts for cost in costs}) != 1:
            raise ConfigError(f"costs of {[cost.parts for cost in costs]} parts: at least one, all equal, are needed.")
        if episodes < 1 or min(penalty, change_s) < 0 or reward not in ("ratio", "saved"):
            raise ConfigError(
                f"episodes={episodes}, penalty={penalty}, change_s={change_s}, reward={reward!r}: at least one "
                "episode, 0 or more, and 'ratio' or 'saved' are needed."
            )
        if not cases and draw is None:
            raise ConfigError("a simulation without cases: give cases of congestion, or draw, which makes episodes.")
        self.actions = CacheActions(costs[0].parts)
        self.choices = cache_choices(self.actions.parts, epoch_steps)
        self.episodes, self.epoch_steps = episodes, epoch_steps
        self.reference = self.actions.action(REFERENCE)
        self._references = np.full(episodes, self.reference)
        self._penalty, self._reward, self._change_s, self.restarts = penalty, reward, change_s, restart

        def drawn(number: int) -> CacheEpisode:
            return draw_episode(
                costs, cases, number, seed=seed, epochs=epochs, epoch_steps=epoch_steps, noise=noise or CacheNoise()
            )

        self._draw = draw or drawn
        self._next_number = 0
        self._batch: CacheBatch | None = None

    def reset(
        self, first: ArrayLike | None = None, *, number: int | None = None, length: ArrayLike | None = None
    ) -> States:
        """Start B episodes, and return their states (B, 3 P + 11) at step 0.

        Args:
            first: the choice of the first window, which no policy decides, one or (B,); W = 16, evenly shared, by
                default.
            number: index of the first episode; by default the one after the last.
            length: (B,) steps of the first window, if it is to be abandoned before its last.

        Raises:
            PlanError: there is no such choice.
        """
        self._first = self._references
        if first is not None:
            self._first = self._checked(np.broadcast_to(np.asarray(first), (self.episodes,)))
        self._next_number = self._next_number if number is None else number
        self._batch = CacheBatch([self._draw(self._next_number + index) for index in range(self.episodes)])
        self._next_number += self.episodes
        windows = self.choices.windows[self._first]
        self._first_end = np.minimum(windows if length is None else np.asarray(length), self._batch.steps)
        self._at = self._fresh()
        return self._states()

    def step(self, actions: ArrayLike, lengths: ArrayLike | None = None) -> tuple[States, Floats, Booleans, StepInfo]:
        """Decide in every run, and advance to its next boundary.

        Args:
            actions: (B,) indices of actions, or of the choice after them; ignored for runs that have ended.
            lengths: (B,) steps after which the decided window is abandoned, at its price; W by default.

        Returns:
            states (B, 3 P + 11), rewards (B,), done (B,) and costs. If runs restart, ``done`` marks those that ended
            just now, and their states are those of the new runs.

        Raises:
            PlanError: the simulation has not started, or the action does not exist.
        """
        batch, chosen, at = self._running(), self._checked(actions), self._at
        windows = self.choices.windows[chosen]
        planned = windows if lengths is None else np.asarray(lengths, dtype=np.int64)
        end = np.minimum(at.upcoming + planned, batch.steps)
        steps = end - at.upcoming
        changed = (self.choices.allocations[chosen] != self.choices.allocations[at.current]) & (steps > 0)
        window, reference = batch.window_under((chosen, self._references), at.upcoming, end)
        extra_s, joules = changed * self._change_s, window.joules
        if self._change_s:
            whole = batch.window(self._references, at.upcoming, np.minimum(at.upcoming + windows, batch.steps))
            joules = joules + extra_s * _quotient(whole.joules, whole.seconds)
        if lengths is not None:
            owed_s, owed_j = self._owed(chosen, at.upcoming, end)
            joules, extra_s = joules + owed_j, extra_s + owed_s
        ratio = _quotient(joules, reference.joules)
        rewards = -ratio if self._reward == "ratio" else (1 - ratio) * steps / REFERENCE
        self._at = _Runs(
            boundary=at.upcoming,
            upcoming=end,
            current=chosen,
            observed=at.current,
            length=at.upcoming - at.boundary,
            base=at.base,
            looked=at.upcoming,
        )
        info = StepInfo(
            joules, window.seconds + extra_s, steps, self._at.length, reference.joules, changed, self._states()
        )
        done = self.done & (steps > 0) if self.restarts else self.done
        return self._next_states(done, info.final_states), rewards - self._penalty * changed, done, info

    def first_window(self) -> WindowSums:
        """The costs of the runs' first window, before any decision; each (B,)."""
        sums = self._from_start(self._first, self._first_end)
        none = np.zeros_like(self._first_end)
        owed_s, owed_j = self._owed(self._first, none, self._first_end)
        return sums._replace(seconds=sums.seconds + owed_s, joules=sums.joules + owed_j)

    def views(self) -> CacheViews:
        """The current views of policies."""
        return self._views(self._at)

    def look(self) -> Booleans:
        """(B,) in which runs a change of the links is detected before the current window ends; advance to it.

        Each call continues from the last one, until none is found. ``alarm_views`` and ``abandon`` then refer to
        these steps.
        """
        at, batch = self._at, self._running()
        steps = np.arange(batch.looks.shape[1])
        found = batch.looks & (steps > at.looked[:, None]) & (steps < at.upcoming[:, None] - 1)
        found &= (at.upcoming < batch.steps)[:, None]
        self._alarmed: Booleans = np.asarray(found.any(axis=1))
        self._at = at._replace(looked=np.where(self._alarmed, found.argmax(axis=1), at.upcoming))
        return self._alarmed

    def alarm_views(self) -> tuple[CacheViews, Numbers]:
        """The views where a change was detected, and (B,) the remaining steps of the current window."""
        at = self._at
        seen = at._replace(
            boundary=np.where(self._alarmed, at.looked, at.boundary),
            length=np.where(self._alarmed, at.looked - at.boundary, at.length),
            observed=np.where(self._alarmed, at.current, at.observed),
        )
        return self._views(seen), at.upcoming - at.looked

    def abandon(self, actions: ArrayLike, which: Booleans) -> tuple[Booleans, Floats, Floats]:
        """End windows in which a change was detected as soon as the cache of another action is built.

        Its rebuild takes the modelled time for the links of that step, and the old cache is used meanwhile. If the
        window ends before that, nothing is abandoned.

        Args:
            actions: (B,) the next actions: pass them to :meth:`step` next.
            which: (B,) runs to apply it to.

        Returns:
            (B,) where a window was abandoned, and its additional (or saved) seconds and joules: (B,) each.
        """
        at, batch = self._at, self._running()
        chosen = self._checked(actions)
        looked = np.minimum(at.looked, batch.steps - 1)
        step_s = batch.at(at.current, looked)[0]
        rebuild_s = batch.at(chosen, looked)[1] * self.choices.windows[chosen]
        end = at.looked + np.maximum(np.ceil(rebuild_s / step_s).astype(np.int64), 1)
        done = which & self._alarmed & (end < at.upcoming)
        end = np.where(done, end, at.upcoming)
        unserved = batch.window(at.current, end, at.upcoming)
        before_s, before_j = self._owed(at.current, at.boundary, at.upcoming)
        owed_s, owed_j = self._owed(at.current, at.boundary, end)
        self._at = at._replace(upcoming=end, looked=np.where(done, end, at.looked))
        return done, owed_s - before_s - unserved.seconds, owed_j - before_j - unserved.joules

    @property
    def running(self) -> tuple[CacheEpisode, ...]:
        """The current episodes."""
        return tuple(self._running().episodes)

    @property
    def upcoming(self) -> Numbers:
        """(B,) first step of the next decision."""
        return self._at.upcoming

    @property
    def done(self) -> Booleans:
        """(B,) which runs have no decisions left."""
        return np.asarray(self._at.upcoming >= self._running().steps)

    def _views(self, at: _Runs) -> CacheViews:
        batch = self._running()
        return CacheViews(
            states=self._states(at),
            delays_s=self._delays_s(at),
            steps=at.upcoming,
            steps_left=self.epoch_steps - at.upcoming % self.epoch_steps,
            previous=at.current,
            forecast=self._forecast,
            runs=np.array([episode.number for episode in self.running]),
            now=at.boundary,
            changes=batch.found[np.arange(self.episodes), at.boundary],
        )

    def _owed(self, choices: Numbers, first: Numbers, end: Numbers) -> tuple[Floats, Floats]:
        return self._running().owed(choices, self.choices.windows[choices], first, end)

    def _running(self) -> CacheBatch:
        if self._batch is None:
            raise PlanError("the simulation has not started: call reset first.")
        return self._batch

    def _checked(self, actions: ArrayLike) -> Numbers:
        chosen = np.asarray(actions, dtype=np.int64)
        if chosen.shape != (self.episodes,) or chosen.min() < 0 or chosen.max() >= len(self.choices.windows):
            raise PlanError(
                f"actions of shape {chosen.shape} for {self.episodes} runs: one each, from 0 to "
                f"{len(self.choices.windows) - 1}."
            )
        return chosen

    def _from_start(self, choices: Numbers, steps: ArrayLike) -> WindowSums:
        """The costs of the first steps of all runs."""
        batch = self._running()
        return batch.window(choices, np.zeros_like(batch.steps), np.minimum(steps, batch.steps))

    def _fresh(self) -> _Runs:
        """All runs at step 0: nothing is observed yet, and their first window is about to start."""
        batch, none = self._running(), np.zeros(self.episodes, dtype=np.int64)
        warm_up = WARM_UP_EPOCHS * self.epoch_steps
        sums = self._from_start(self._references, warm_up)
        base = np.stack([sums.seconds, sums.joules]) / np.minimum(warm_up, batch.steps)
        clean = np.array([_clean_step(episode.costs, self.reference) for episode in self.running]).T
        return _Runs(
            boundary=none,
            upcoming=self._first_end,
            current=self._first,
            observed=self._first,
            length=none,
            base=np.where(base[0] > SLOW_BASE * clean[0], clean, base),
            looked=none,
        )

    def _next_states(self, done: Booleans, states: States) -> States:
        """The next states: if runs restart, those of the episodes that replace ended ones."""
        if not (self.restarts and done.any()):
            return states
        for index in np.flatnonzero(done).tolist():
            self._running().put(index, self._draw(self._next_number))
            self._next_number += 1
        self._at = _Runs(*(np.where(done, new, old) for new, old in zip(self._fresh(), self._at, strict=True)))
        return self._states()

    def _states(self, at: _Runs | None = None) -> States:
        """(B, 3 P + 11) observations of the window that ended at the current boundary.

        Only its steps since the latest change point count.
        """
        at, batch = self._at if at is None else at, self._running()
        rows = np.arange(self.episodes)
        first = np.maximum(at.boundary - at.length, np.minimum(batch.since[rows, at.boundary], at.boundary - 1))
        first = np.maximum(np.where(at.length > 0, first, at.boundary), 0)
        seconds, joules, miss_s, rebuild_s = batch.window(at.observed, first, at.boundary)
        steps = np.maximum(at.boundary - first, 1)
        began = at.length > 0
        observation = CacheObservation(
            delays_s=self._delays_s(at),
            fetch_s=batch.fetch_s,
            hit_rates=batch.hits[rows, at.observed] * began[:, None],
            hit_rate=batch.hit[rows, at.observed] * began,
            step_s=np.where(began, seconds / steps, at.base[0]),
            base_step_s=at.base[0],
            step_j=np.where(began, joules / steps * batch.meter[rows, at.boundary], at.base[1]),
            base_step_j=at.base[1],
            rebuild_share=_quotient(rebuild_s, seconds),
            miss_share=_quotient(miss_s, seconds),
            left_share=1 - at.upcoming % self.epoch_steps / self.epoch_steps,
            previous=np.minimum(at.current, len(self.actions) - 1),
        )
        return cache_state(observation, self.actions)

    def _delays_s(self, at: _Runs) -> Floats:
        """(B, P - 1) the estimated delays from the last fetches: a slow link appears as a delay of its bytes."""
        batch = self._running()
        rows = np.arange(self.episodes)
        received = batch.received[rows, :, at.boundary]
        late, per_byte, strays = received[:, 0], received[:, 1], received[:, 2]
        fetch_s = batch.fetch_s + per_byte * batch.miss_bytes[rows, at.observed]
        return np.maximum(fetch_s * strays + late - batch.fetch_s, 0.0)  # an added delay is the same for all fetches

    def _forecast(self, delays_s: Floats) -> Floats:
        """(B, A) seconds of a step of every action under delays (B, P - 1), by the calibrated costs."""
        forecast = np.empty((self.episodes, len(self.actions)))
        known = [episode.costs for episode in self.running]
        for costs in set(known):
            rows = np.array([costs == other for other in known])
            forecast[rows] = costs.of_actions(delays_s[rows]).seconds
        return forecast


class _Runs(NamedTuple):
    """The positions of all runs; the last axis of each array is B.

    Attributes:
        boundary: step at which a decision is due.
        upcoming: first step that it is for.
        current: choice until then.
        observed: choice of the window that ended at the boundary.
        length: its steps; 0 if none ended.
        base: (2, B) seconds and joules of a step in the warm-up, at W = 16, evenly shared; the calibrated ones of clean
            links if these are far smaller.
        looked: step up to which changes of the links were searched.
    """

    boundary: Numbers
    upcoming: Numbers
    current: Numbers
    observed: Numbers
    length: Numbers
    base: Floats
    looked: Numbers


@lru_cache(maxsize=256)
def _clean_step(costs: CacheCosts, action: int) -> tuple[float, float]:
    """Seconds and joules of a step on clean links, as calibrated."""
    clean = costs.of_actions(np.zeros(costs.parts - 1))
    return float(clean.seconds[action]), float(clean.joules[action])


def _quotient(above: Floats, below: Floats) -> Floats:
    """The quotient, 0 if the divisor is 0: in runs that have ended, or not begun."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)
