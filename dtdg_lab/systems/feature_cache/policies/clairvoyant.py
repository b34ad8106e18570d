"""The optimal policy of a trace: a dynamic programme over every step at which a cache could be rebuilt.

Windows may be abandoned before their last step, at the price that policies pay for it (``CacheBatch.owed``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError
from dtdg_lab.network.patterns import Pattern
from dtdg_lab.systems.feature_cache.actions import WINDOWS
from dtdg_lab.systems.feature_cache.costs.cache_costs import CacheCosts
from dtdg_lab.systems.feature_cache.costs.choices import CacheChoices, cache_choices, cache_tables
from dtdg_lab.systems.feature_cache.policies.interface import CacheDecision, CacheView, CacheViews
from dtdg_lab.systems.feature_cache.simulation.episode import CacheEpisode
from dtdg_lab.systems.feature_cache.simulation.link_trace import LinkTrace, trace_of_pattern
from dtdg_lab.systems.feature_cache.simulation.simulator import REFERENCE

AT_ONCE = 64  # runs that are planned at once: more need gigabytes
Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class CachePlan:
    """The optimum from every step on (B runs of S steps, P previous allocations, C choices).

    Attributes:
        choices: the possible choices.
        to_go: (B, S + 1, P) minimal joules (or seconds) from a step to the end, by the previous allocation.
        best: (B, S, P) the optimal choice; the lowest index of equally good ones.
        lengths: (B, S, P) steps of that choice: its window's, or fewer if it is best abandoned.
    """

    choices: CacheChoices
    to_go: Floats
    best: Numbers
    lengths: Numbers

    @property
    def totals(self) -> Floats:
        """(B,) minimum of the whole run; the first choice costs no change."""
        return self.to_go[:, 0].min(axis=1)

    @property
    def firsts(self) -> Numbers:
        """(B,) the choice of the first window."""
        return self.best[np.arange(len(self.best)), 0, self.to_go[:, 0].argmin(axis=1)]

    @property
    def first_lengths(self) -> Numbers:
        """(B,) steps of the first window."""
        return self.lengths[np.arange(len(self.best)), 0, self.to_go[:, 0].argmin(axis=1)]

    def windows(self, run: int = 0) -> list[tuple[int, int]]:
        """Return (first step, choice) of every window of one run."""
        step, choice, length, windows = 0, int(self.firsts[run]), int(self.first_lengths[run]), []
        while True:
            windows.append((step, choice))
            step += length
            if step >= self.best.shape[1]:
                return windows
            allocation = self.choices.allocations[choice]
            choice, length = int(self.best[run, step, allocation]), int(self.lengths[run, step, allocation])


def best_plan(
    episodes: Sequence[CacheEpisode], *, of_joules: bool = True, change_s: float = 0.0, only_actions: bool = False
) -> CachePlan:
    """Return the exact optimum of each of B episodes: no policy can do better on the same episodes.

    Args:
        episodes: of one length and one number of parts.
        of_joules: minimise joules; otherwise seconds.
        change_s: as in the simulator.
        only_actions: only whole windows of actions, as live: excludes the window of an epoch, which is not an action,
            and abandoned windows.

    Raises:
        PlanError: there are no episodes, or they are of different sizes.
    """
    sizes = {(episode.steps, episode.trace.parts, episode.epoch_steps) for episode in episodes}
    if len(sizes) != 1:
        raise PlanError(f"episodes of (steps, parts, steps of an epoch) {sorted(sizes)}: one size is needed.")
    ((_, parts, epoch_steps),) = sizes
    choices = cache_choices(parts, epoch_steps)
    if len(episodes) > AT_ONCE:
        some = [
            best_plan(
                episodes[first : first + AT_ONCE], of_joules=of_joules, change_s=change_s, only_actions=only_actions
            )
            for first in range(0, len(episodes), AT_ONCE)
        ]
        to_go, best, lengths = (
            np.concatenate(arrays)
            for arrays in zip(*((plan.to_go, plan.best, plan.lengths) for plan in some), strict=True)
        )
        return CachePlan(choices, to_go, best, lengths)
    reference = choices.actions.action(REFERENCE)
    costs = np.stack([episode.step_costs(of_joules=of_joules) for episode in episodes])
    seconds = np.stack([episode.step_costs(of_joules=False)[reference] for episode in episodes])
    references = np.stack([costs[:, reference], seconds])
    rebuilds = np.stack([episode.rebuild_costs(of_joules=of_joules) for episode in episodes])
    if only_actions:
        return _solve(choices, costs[:, :-1], references, change_s)
    return _solve(choices, costs, references, change_s, rebuilds)


def _solve(
    choices: CacheChoices, costs: Floats, references: Floats, change_s: float, rebuilds: Floats | None = None
) -> CachePlan:
    """Return the plan from costs of every step.

    Args:
        choices: the first ones are used.
        costs: (B, C, S) of a step under each of them.
        references: (2, B, S) cost and seconds of the reference's steps: the price of a second of change.
        change_s: as in the simulator.
        rebuilds: (B, C, S) the part of the costs for rebuilding, if windows may be abandoned.
    """
    runs, count, steps = costs.shape
    windows, allocations, row = choices.windows[:count], choices.allocations[:count], np.arange(count)
    cost_sums, spent = _prefix_sums(costs), _prefix_sums(references)
    to_go = np.zeros((runs, steps + 1, choices.actions.parts))
    best, lengths = (np.zeros((runs, steps, choices.actions.parts), dtype=np.int64) for _ in range(2))
    changes_allocation = (
        allocations != np.arange(choices.actions.parts)[:, None]
    )  # (P, C) whether a choice changes the allocation
    ends = None if rebuilds is None else _EarlyEnds(windows, allocations, cost_sums, rebuilds)
    for step in range(steps - 1, -1, -1):
        end = np.minimum(step + windows, steps)
        cost = cost_sums[:, row, end] - cost_sums[:, :, step] + to_go[:, end, allocations]
        served = np.broadcast_to(end - step, cost.shape)
        if ends is not None:
            cost, served = ends.least(step, cost, served)
        if change_s:
            passed = spent[:, :, end] - spent[:, :, step, None]
            price = change_s * passed[0] / passed[1]
            by_held = cost[:, None, :] + price[:, None, :] * changes_allocation
            best[:, step], to_go[:, step] = by_held.argmin(axis=2), by_held.min(axis=2)
        else:
            best[:, step], to_go[:, step] = cost.argmin(axis=1)[:, None], cost.min(axis=1)[:, None]
        lengths[:, step] = np.take_along_axis(served, best[:, step], 1)
        if ends is not None:
            ends.reached(step, to_go[:, step])
    return CachePlan(choices, to_go, best, lengths)


class _EarlyEnds:
    """Optimal early ends of windows: minima over the steps at which they could end, updated backwards in time.

    The cost of a window from s that ends at t is the sum of a term in t and a term in s. The minimum over the t of any
    window is that of two overlapping spans whose lengths are a power of 2, and each of these of two spans half as
    long. Only the spans of the last 256 steps are stored.
    """

    def __init__(self, windows: Numbers, allocations: Numbers, cost_sums: Floats, rebuilds: Floats) -> None:
        self._order = np.argsort(windows, kind="stable")
        self._windows, self._allocations = windows[self._order], allocations[self._order]
        self._rebuilt, self._before = _prefix_sums(rebuilds)[:, self._order], cost_sums[:, self._order]
        self._steps = rebuilds.shape[2]
        thrown = self._windows[:, None] * rebuilds[:, self._order]
        self._ending = self._before[:, :, :-1] - self._rebuilt[:, :, :-1] + thrown
        longest = int(windows.max())
        self._ring = 1 << longest.bit_length()
        # for span 2^i, the first choice whose window is long enough to need it
        self._from = [int(np.searchsorted(self._windows, 2**level + 1)) for level in range((longest - 1).bit_length())]
        shape = (max(len(self._from), 1), self._ring, len(cost_sums), len(windows))
        self._least, self._where = np.full(shape, np.inf), np.zeros(shape, dtype=np.int32)

    def reached(self, step: int, to_go: Floats) -> None:
        """Add the minimum from a step on, (B, P), before the steps before it."""
        slot = step % self._ring
        self._least[0, slot] = self._ending[:, :, step] + to_go[:, self._allocations]
        self._where[0, slot] = step
        for level, first in enumerate(self._from[1:], start=1):
            far = (step + 2 ** (level - 1)) % self._ring
            below, ends = self._least[level - 1, :, :, first:], self._where[level - 1, :, :, first:]
            nearer = below[slot] <= below[far]
            self._least[level, slot, :, first:] = np.where(nearer, below[slot], below[far])
            self._where[level, slot, :, first:] = np.where(nearer, ends[slot], ends[far])

    def least(self, step: int, cost: Floats, served: Numbers) -> tuple[Floats, Numbers]:
        """Return (B, C) costs from a step on and steps served, with early ends where these are cheaper."""
        cost, served = cost.copy(), served.copy()
        last = np.minimum(step + self._windows, self._steps)  # it may end at those from step + 1 to last - 1
        (may,) = np.nonzero(last > step + 1)
        if not len(may):
            return cost, served
        last, choices = last[may], self._order[may]
        level = np.log2(last - step - 1).astype(np.int64)
        near, far = np.full_like(level, (step + 1) % self._ring), (last - 2**level) % self._ring
        values = self._least[level, near, :, may].T, self._least[level, far, :, may].T
        nearer = values[0] <= values[1]
        ends = np.where(nearer, self._where[level, near, :, may].T, self._where[level, far, :, may].T)
        owed = np.take_along_axis(self._rebuilt[:, may], last[None, :, None], 2)[..., 0] - self._before[:, may, step]
        early = np.where(nearer, *values) + owed
        better = early < cost[:, choices]
        cost[:, choices] = np.where(better, early, cost[:, choices])
        served[:, choices] = np.where(better, ends - step, served[:, choices])
        return cost, served


def _prefix_sums(costs: Floats) -> Floats:
    """Return sums over the steps before: (..., S) -> (..., S + 1)."""
    summed = np.zeros((*costs.shape[:-1], costs.shape[-1] + 1))
    np.cumsum(costs, axis=-1, out=summed[..., 1:])
    return summed


def cost_of(
    episode: CacheEpisode, windows: Sequence[tuple[int, int]], *, of_joules: bool = True, change_s: float = 0.0
) -> float:
    """Return joules (or seconds) of an episode with given first steps and choices of its windows.

    A window lasts until the next one begins, also if that was late in a live run. A window that ended before its last
    step was abandoned, and pays for it.

    Args:
        episode: links and costs of the run.
        windows: (first step, choice) of each, ascending from step 0.
        of_joules: joules; otherwise seconds.
        change_s: as in the simulator.

    Raises:
        PlanError: the windows do not begin at step 0, do not ascend, or begin after the end.
    """
    firsts, ends = [first for first, _ in windows], [*(first for first, _ in windows[1:]), episode.steps]
    if firsts[:1] != [0] or any(first >= end for first, end in zip(firsts, ends, strict=True)):
        raise PlanError(f"windows from steps {firsts[:8]}: they must ascend from 0, below {episode.steps}.")
    choices = cache_choices(episode.trace.parts, episode.epoch_steps)
    costs = episode.step_costs(of_joules=of_joules)
    reference = choices.actions.action(REFERENCE)
    joules, seconds = episode.step_costs()[reference], episode.step_costs(of_joules=False)[reference]
    rebuilds = episode.rebuild_costs(of_joules=of_joules)
    total, allocation = 0.0, choices.allocations[windows[0][1]]
    for (first, choice), end in zip(windows, ends, strict=True):
        changed = choices.allocations[choice] != allocation
        planned = min(first + choices.windows[choice], episode.steps)
        price = change_s * (joules[first:planned].sum() / seconds[first:planned].sum() if of_joules else 1.0)
        total += costs[choice, first:end].sum() + price * changed
        if end < planned:
            total += rebuilds[choice, end:planned].sum() + choices.windows[choice] * rebuilds[choice, end]
        allocation = choices.allocations[choice]
    return float(total)


class Clairvoyant:
    """Follows the optimal plan for known links.

    Args:
        plan: of the runs that it decides for; live, of one.
        runs: index of each, as in views; from 0 by default.

    References: ours; the paper has no optimum.
    """

    name = "clairvoyant"

    def __init__(self, plan: CachePlan, runs: Sequence[int] | None = None) -> None:
        numbers = range(len(plan.best)) if runs is None else runs
        self._plan = plan
        self._rows = {number: row for row, number in enumerate(numbers)}
        self.first, self.first_lengths = plan.firsts, plan.first_lengths

    def decide(self, view: CacheView) -> CacheDecision:
        """Return the optimal action from ``view.step`` on."""
        allocation = self._plan.choices.allocations[view.previous]
        step = min(view.step, self._plan.best.shape[1] - 1)  # a run that continues after its plan keeps the last
        return CacheDecision(self.name, int(self._plan.best[0, step, allocation]))

    def decide_all(self, views: CacheViews) -> Numbers:
        """Return (B,) the optimal choice of each run."""
        return self._plan.best[self._indices(views)]

    def lengths_all(self, views: CacheViews) -> Numbers:
        """Return (B,) the steps of each choice."""
        return self._plan.lengths[self._indices(views)]

    def _indices(self, views: CacheViews) -> tuple[Numbers, Numbers, Numbers]:
        rows = np.array([self._rows[run] for run in views.runs.tolist()])
        steps = np.minimum(views.steps, self._plan.best.shape[1] - 1)
        return rows, steps, self._plan.choices.allocations[views.previous]


def clairvoyant_of(trace: LinkTrace, costs: CacheCosts, *, epoch_steps: int) -> Clairvoyant:
    """Plan a live run with scheduled or recorded congestion, by whole windows of actions only.

    Args:
        trace: links to the part that owns the cache, step by step to the end of the run.
        costs: calibrated; errors in them make the plan suboptimal.
        epoch_steps: steps of an epoch.
    """
    choices = cache_choices(trace.parts, epoch_steps)
    tables = cache_tables(costs, choices, trace)
    reference = choices.actions.action(REFERENCE)
    references = np.stack([tables.step_j[reference], tables.step_s[reference]])[:, None, trace.which]
    return Clairvoyant(_solve(choices, tables.step_j[None, :-1, trace.which], references, 0.0))


STRETCH = 8 * WINDOWS[-1]  # steps of a plan; the first half is used


class ForeseenWindows:
    """The windows and allocations that are optimal in the cost model, for known future congestion.

    The next stretch of steps is planned when half of the previous one is over, in the calling thread: the last windows
    of a plan are unreliable and not used.

    Args:
        pattern: state of the links over time.
        costs: of a step.
        part: the part that owns the cache.
        epoch_steps: of an epoch.

    References: ours; see :func:`dtdg_lab.systems.feature_cache.policies.clairvoyant.best_plan`, which is exact over a
    whole trace.
    """

    name = "clairvoyant"

    def __init__(self, pattern: Pattern, costs: CacheCosts, *, part: int, epoch_steps: int) -> None:
        self._pattern, self._costs, self._part, self._epoch_steps = pattern, costs, part, epoch_steps
        self._first = 0
        self._plan: Clairvoyant | None = None

    def decide(self, view: CacheView) -> CacheDecision:
        """Return the planned action."""
        if self._plan is None or not 0 <= view.step - self._first < STRETCH // 2:
            self._first = view.step
            steps = range(view.step, view.step + STRETCH)
            trace = trace_of_pattern(self._pattern, self._part, steps, epoch_steps=self._epoch_steps)
            self._plan = clairvoyant_of(trace, self._costs, epoch_steps=self._epoch_steps)
        return self._plan.decide(replace(view, step=view.step - self._first))
