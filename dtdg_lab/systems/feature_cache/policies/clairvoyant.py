"""The optimal policy of a trace: a dynamic programme over every step at which a cache could be rebuilt.

Windows may be abandoned before their last step, at the price that every policy pays (``CacheBatch.owed``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError
from dtdg_lab.network.patterns import Pattern
from dtdg_lab.systems.feature_cache.actions import WINDOWS
from dtdg_lab.systems.feature_cache.costs.cache_costs import CacheChoices, CacheCosts, cache_choices, cache_tables
from dtdg_lab.systems.feature_cache.policies.interface import CacheDecision, CacheView, CacheViews
from dtdg_lab.systems.feature_cache.simulation.cases import LinkTrace, trace_of_pattern
from dtdg_lab.systems.feature_cache.simulation.episode import CacheEpisode

AT_ONCE = 64  # maximum number of runs planned together; more would need gigabytes
Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class CachePlan:
    """The optimum from every step on, for B runs of S steps and C choices.

    Attributes:
        choices: the possible choices.
        to_go: (B, S + 1) minimal joules from a step to the end.
        best: (B, S) the optimal choice; of equally good ones, the lowest index.
        lengths: (B, S) steps of that choice: its window's, or fewer if it is best abandoned early.
    """

    choices: CacheChoices
    to_go: Floats
    best: Numbers
    lengths: Numbers

    @property
    def totals(self) -> Floats:
        """(B,) minimal joules of the whole run."""
        return self.to_go[:, 0]

    def windows(self, run: int = 0) -> list[tuple[int, int]]:
        """Return (first step, choice) of every window of one run."""
        step, windows = 0, []
        while step < self.best.shape[1]:
            windows.append((step, int(self.best[run, step])))
            step += int(self.lengths[run, step])
        return windows


def best_plan(episodes: Sequence[CacheEpisode], *, only_actions: bool = False) -> CachePlan:
    """Compute the exact optimum of each of B episodes; no policy can do better on them.

    Args:
        episodes: episodes of the same length and number of parts.
        only_actions: True to allow only whole windows of actions, as in a run. This excludes abandoned windows and the
            window of an epoch.

    Raises:
        PlanError: there are no episodes, or they are of different sizes.
    """
    sizes = {(episode.steps, episode.trace.parts, episode.epoch_steps) for episode in episodes}
    if len(sizes) != 1:
        raise PlanError(f"episodes have (steps, parts, steps of an epoch) {sorted(sizes)}, but one size is needed.")
    ((_, parts, epoch_steps),) = sizes
    choices, plans = cache_choices(parts, epoch_steps), []
    for first in range(0, len(episodes), AT_ONCE):
        some = episodes[first : first + AT_ONCE]
        costs = np.stack([episode.step_costs() for episode in some])
        rebuilds = None if only_actions else np.stack([episode.rebuild_costs() for episode in some])
        plans.append(_solve(choices, costs[:, :-1] if only_actions else costs, rebuilds))
    to_go, best, lengths = (
        np.concatenate(arrays)
        for arrays in zip(*((plan.to_go, plan.best, plan.lengths) for plan in plans), strict=True)
    )
    return CachePlan(choices, to_go, best, lengths)


def _solve(choices: CacheChoices, costs: Floats, rebuilds: Floats | None = None) -> CachePlan:
    """Plan backwards from the last step.

    Args:
        choices: the first C are used.
        costs: (B, C, S) joules of a step under each choice.
        rebuilds: (B, C, S) the part of the costs for rebuilding, if windows may be abandoned.
    """
    runs, count, steps = costs.shape
    windows, row = choices.windows[:count], np.arange(count)
    cost_sums = _prefix_sums(costs)
    to_go = np.zeros((runs, steps + 1))
    best, lengths = (np.zeros((runs, steps), dtype=np.int64) for _ in range(2))
    early_ends = None if rebuilds is None else _EarlyEnds(windows, cost_sums, rebuilds)
    for step in range(steps - 1, -1, -1):
        end = np.minimum(step + windows, steps)
        cost = cost_sums[:, row, end] - cost_sums[:, :, step] + to_go[:, end]
        served = np.broadcast_to(end - step, cost.shape)
        if early_ends is not None:
            cost, served = early_ends.least(step, cost, served)
        best[:, step], to_go[:, step] = cost.argmin(axis=1), cost.min(axis=1)
        lengths[:, step] = served[np.arange(runs), best[:, step]]
        if early_ends is not None:
            early_ends.add(step, to_go[:, step])
    return CachePlan(choices, to_go, best, lengths)


class _EarlyEnds:
    """Optimal early ends of windows: minima over the steps at which they could end, updated backwards in time.

    The cost of a window from s that ends at t is a term in t plus a term in s. The minimum over any range of t is the
    minimum of two overlapping spans whose lengths are a power of 2. Each span is computed from two spans of half its
    length. Only the spans of the last 256 steps are stored.
    """

    def __init__(self, windows: Numbers, cost_sums: Floats, rebuilds: Floats) -> None:
        self._order = np.argsort(windows, kind="stable")
        self._windows = windows[self._order]
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

    def add(self, step: int, to_go: Floats) -> None:
        """Add the minimum from a step on, (B,); call in descending order of steps."""
        slot = step % self._ring
        self._least[0, slot] = self._ending[:, :, step] + to_go[:, None]
        self._where[0, slot] = step
        for level, first in enumerate(self._from[1:], start=1):
            far = (step + 2 ** (level - 1)) % self._ring
            below, ends = self._least[level - 1, :, :, first:], self._where[level - 1, :, :, first:]
            nearer = below[slot] <= below[far]
            self._least[level, slot, :, first:] = np.where(nearer, below[slot], below[far])
            self._where[level, slot, :, first:] = np.where(nearer, ends[slot], ends[far])

    def least(self, step: int, cost: Floats, served: Numbers) -> tuple[Floats, Numbers]:
        """Return (B, C) costs from a step on and steps served, with early ends if they are cheaper."""
        cost, served = cost.copy(), served.copy()
        last = np.minimum(step + self._windows, self._steps)  # possible early ends: step + 1 to last - 1
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
    """Return exclusive prefix sums and the total: (..., S) -> (..., S + 1)."""
    summed = np.zeros((*costs.shape[:-1], costs.shape[-1] + 1))
    np.cumsum(costs, axis=-1, out=summed[..., 1:])
    return summed


def cost_of(episode: CacheEpisode, windows: Sequence[tuple[int, int]]) -> float:
    """Return the joules of an episode, given the first steps and the choices of its windows.

    A window lasts until the next one begins, even if that was late in a run. A window that ended before its last step
    was abandoned, and pays for it.

    Args:
        episode: links and costs of the run.
        windows: (first step, choice) of each window, ascending from step 0.

    Raises:
        PlanError: the windows do not begin at step 0, do not ascend, or begin after the end.
    """
    firsts, ends = [first for first, _ in windows], [*(first for first, _ in windows[1:]), episode.steps]
    if firsts[:1] != [0] or any(first >= end for first, end in zip(firsts, ends, strict=True)):
        raise PlanError(f"windows begin at steps {firsts[:8]}. They must ascend from 0, below {episode.steps}.")
    lengths = cache_choices(episode.trace.parts, episode.epoch_steps).windows
    costs, rebuilds, total = episode.step_costs(), episode.rebuild_costs(), 0.0
    for (first, choice), end in zip(windows, ends, strict=True):
        total += costs[choice, first:end].sum()
        planned = min(first + lengths[choice], episode.steps)
        if end < planned:
            total += rebuilds[choice, end:planned].sum() + lengths[choice] * rebuilds[choice, end]
    return float(total)


class Clairvoyant:
    """Follows the optimal plan for known links.

    Args:
        plan: plan of the runs that it decides for; of one run outside the simulator.
        runs: index of each run, as in views; from 0 by default.

    References: ours; the paper has no optimum.
    """

    name = "clairvoyant"

    def __init__(self, plan: CachePlan, runs: Sequence[int] | None = None) -> None:
        numbers = range(len(plan.best)) if runs is None else runs
        self._plan = plan
        self._rows = {number: row for row, number in enumerate(numbers)}
        self.first, self.first_lengths = plan.best[:, 0], plan.lengths[:, 0]

    def decide(self, view: CacheView) -> CacheDecision:
        """Return the optimal action from ``view.step`` on."""
        step = min(view.step, self._plan.best.shape[1] - 1)  # after the end of the plan, keep its last action
        return CacheDecision(self.name, int(self._plan.best[0, step]))

    def decide_all(self, views: CacheViews) -> Numbers:
        """Return (B,) the optimal choice of each run."""
        return self._plan.best[self._indices(views)]

    def lengths_all(self, views: CacheViews) -> Numbers:
        """Return (B,) the steps of each choice."""
        return self._plan.lengths[self._indices(views)]

    def _indices(self, views: CacheViews) -> tuple[Numbers, Numbers]:
        rows = np.array([self._rows[run] for run in views.runs.tolist()])
        return rows, np.minimum(views.steps, self._plan.best.shape[1] - 1)


def clairvoyant_of(trace: LinkTrace, costs: CacheCosts, *, epoch_steps: int) -> Clairvoyant:
    """Plan a run with scheduled or recorded congestion, by whole windows of actions only.

    Args:
        trace: links to the part that owns the cache, step by step to the end of the run.
        costs: calibrated costs; their errors make the plan suboptimal.
        epoch_steps: steps of an epoch.
    """
    choices = cache_choices(trace.parts, epoch_steps)
    tables = cache_tables(costs, choices, trace)
    return Clairvoyant(_solve(choices, tables.step_j[None, :-1, trace.which]))


STRETCH = 8 * WINDOWS[-1]  # steps of a plan; only the first half is used


class ForeseenWindows:
    """The windows and allocations that are optimal in the cost model, for known future congestion.

    The next stretch of steps is planned in the calling thread when half of the previous one is over. The last windows
    of a plan are unreliable and not used.

    Args:
        pattern: state of the links over time.
        costs: costs of a step.
        part: the part that owns the cache.
        epoch_steps: steps of an epoch.

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
