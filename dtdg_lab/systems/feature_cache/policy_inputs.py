"""Inputs of live cache policies: states at window boundaries, forecasts, and observed costs."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError
from dtdg_lab.network.patterns import Pattern
from dtdg_lab.systems.feature_cache.actions import (
    WINDOWS,
    CacheActions,
    CacheDecision,
    CachePolicy,
    CacheView,
    Fetcher,
    OwnerReply,
)
from dtdg_lab.systems.feature_cache.policies.calibration import least_squares, relative_line
from dtdg_lab.systems.feature_cache.policies.clairvoyant import Clairvoyant, clairvoyant_of
from dtdg_lab.systems.feature_cache.policies.costs import CacheCosts, RpcModel, trace_of_pattern
from dtdg_lab.systems.feature_cache.policies.delay_estimator import LOOK_AGAIN, SAME_CHANGE, DelayEstimator
from dtdg_lab.systems.feature_cache.policies.env import CHANGES_WITHIN, CacheObservation, cache_state
from dtdg_lab.systems.feature_cache.policies.planner import CachePlanner
from dtdg_lab.systems.feature_cache.store import KeySpace
from dtdg_lab.systems.feature_cache.windows import Lookahead

# Observations at a swap of caches, when the next window is decided.


@dataclass(frozen=True, slots=True)
class FetchTime:
    """One RPC.

    Attributes:
        owner: the part that replied.
        purpose: ``miss`` for rows of a batch, ``bulk`` for rows of a cache.
        rows: number of rows.
        nbytes: of request and reply.
        rtt_s: seconds until the last byte.
        step: of the batch, or the first step of the cache's window.
    """

    owner: int
    purpose: str
    rows: int
    nbytes: int
    rtt_s: float
    step: int


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step of training: its seconds, and its joules if known."""

    seconds: float
    joules: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Boundary:
    """Observations at a swap, counted since the previous swap. P parts; vectors have a 0 for the own part.

    Attributes:
        part: the part that owns the cache.
        parts: P.
        number: of the window to decide.
        step: its first step, if it is not late.
        steps_left: steps of the epoch from there on.
        previous: the action until then; the nearest one if the window is not an action's.
        served: number of resolved batches.
        remote: (P,) rows of each part that they needed.
        hits: (P,) of these, rows that the cache contained.
        resolve_s: total seconds of resolving them.
        fetches: RPCs, for batches and for caches.
        rebuild_s: seconds of building the cache just swapped in.
        late_steps: delay of its swap in steps.
        stepped: training steps that ended.
        lookahead: the sampled batches from ``step`` on.
        now: the step that is resolved next.
        early: whether links changed within the current window, which may be abandoned.
        pending: the action decided for the window after it, or the nearest one; -1 if ``early`` is false.
        left: remaining steps of the current window.
    """

    part: int
    parts: int
    number: int
    step: int
    steps_left: int
    previous: int
    served: int
    remote: NDArray[np.int64]
    hits: NDArray[np.int64]
    resolve_s: float
    fetches: tuple[FetchTime, ...]
    rebuild_s: float
    late_steps: int
    stepped: tuple[StepTime, ...]
    lookahead: Lookahead
    now: int = -1
    early: bool = False
    pending: int = -1
    left: int = 0


# Predicted step time for every window and allocation: counted in the batches ahead, timed by recent fetches.


LEAST_S = 1e-9
RECENT = 60  # fetches of an owner that determine its line
FEW = 8  # minimum number of fetches for a line after a change of links
Seconds = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class Forecast:
    """Seconds of every action, (A,), for delays (P - 1,): of a step, and of a whole rebuild."""

    def __init__(self, steps: Seconds, rebuilds: Seconds) -> None:
        self._steps, self.rebuilds = steps, rebuilds

    def __call__(self, delays_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds of a step of every action."""
        return self._steps(delays_s)


class LiveForecast:
    """Seconds per step of each action, for one part.

    A step takes the maximum of three concurrent times: training, the fetch of a batch's misses, and the rebuild, which
    is spread over the window's steps. A rebuild delays training by the initiation of a fetch, so that of equally good
    windows the longest is the cheapest. Owners are asked at once, so the slowest determines the time.

    The time of a fetch is a linear function of its bytes, fitted to each owner's recent fetches. The excess of its
    intercept over the fastest fetch so far is the delay; the excess of its slope over the smallest so far is
    throttling. If a link is assumed less late than now, throttling is reduced in proportion.

    Args:
        actions: the possible actions.
        row_bytes: of a row of features.

    References: ours (see :class:`dtdg_lab.systems.feature_cache.policies.planner.CachePlanner`); GreenDyGNN equation
    1 has the terms.
    """

    def __init__(self, actions: CacheActions, *, row_bytes: int) -> None:
        self._actions, self._row_bytes = actions, row_bytes
        others = actions.parts - 1
        self._recent: list[deque[tuple[int, float]]] = [deque(maxlen=RECENT) for _ in range(others)]
        self._before: list[tuple[float, float] | None] = [None] * others  # lines from before links changed
        self._quickest_s = np.full(others, np.inf)  # each owner's fastest fetch so far
        self._least = np.full(others, np.inf)  # each owner's fewest seconds per byte so far

    def observe(self, boundary: Boundary, known: Sequence[int] | None = None) -> None:
        """Add the fetches since the last boundary.

        Args:
            boundary: contains them.
            known: per owner, how many of the newest fetches are from the current state of the links; None for all.
                Below eight, the previous line is scaled to them.
        """
        for of in boundary.fetches:
            index = of.owner - (of.owner > boundary.part)
            self._recent[index].append((of.nbytes, of.rtt_s))
            self._quickest_s[index] = min(self._quickest_s[index], of.rtt_s)
        for index, count in enumerate(known or ()):
            recent = self._recent[index]
            if count < min(len(recent), FEW):
                self._before[index] = self._before[index] or _line(recent)
            while len(recent) > max(count, 1) and count < RECENT // 2:
                recent.popleft()
            if len(recent) >= FEW:
                self._before[index] = None

    def clean_law(self) -> tuple[float, float] | None:
        """Best seconds of a fetch without bytes, and seconds per byte, over all owners; None before any fetch."""
        if not np.isfinite(self._quickest_s).all() or not np.isfinite(self._least).all():
            return None
        return float(np.median(self._quickest_s)), float(np.median(self._least))

    def of(self, ahead: Lookahead, *, base_s: float, late_s: NDArray[np.float64]) -> Forecast | None:
        """The forecast for the batches ahead; None until every owner has replied.

        Args:
            ahead: sampled batches.
            base_s: seconds of a step without waiting.
            late_s: (P - 1,) estimated current delay of each owner's replies.
        """
        if not all(self._recent):
            return None
        lines = np.array([_line(recent, before) for recent, before in zip(self._recent, self._before, strict=True)])
        self._least = np.minimum(self._least, lines[:, 1])
        more_s, throttled = np.maximum(lines[:, 0] - self._quickest_s, 0.0), lines[:, 1] - self._least
        counted: list[tuple[NDArray[np.float64], NDArray[np.float64], int]] = []

        def links(delays_s: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            if not counted:
                counted.extend(self._count(ahead))
            now = late_s > 0
            share = np.clip(np.divide(delays_s, late_s, out=np.ones_like(late_s), where=now), 0.0, 1.0)
            beyond_s = np.maximum(delays_s - late_s, 0.0)  # more than the current delay
            starts = self._quickest_s + np.where(now, share * more_s + beyond_s, delays_s)
            return starts, (self._least + np.where(now, share, 1.0) * throttled) * self._row_bytes

        def seconds(delays_s: NDArray[np.float64]) -> NDArray[np.float64]:
            starts, per_row = links(delays_s)
            return np.array([_step_s(of, starts, per_row, base_s) for of in counted])

        def rebuilds(delays_s: NDArray[np.float64]) -> NDArray[np.float64]:
            starts, per_row = links(delays_s)
            return np.array([_slowest_s(fetched, starts, per_row) for _, fetched, _ in counted])

        return Forecast(seconds, rebuilds)

    def _count(self, ahead: Lookahead) -> list[tuple[NDArray[np.float64], NDArray[np.float64], int]]:
        """Per action: rows that a step misses of each owner, rows that its rebuild fetches, and its window."""
        found: list[tuple[NDArray[np.float64], NDArray[np.float64], int]] = []
        for action in range(len(self._actions)):
            window = self._actions.window(action)
            if window > ahead.steps and action % len(WINDOWS) and WINDOWS[action % len(WINDOWS) - 1] >= ahead.steps:
                missed, fetched, _ = found[-1]  # no more batches are known than for the previous window
            else:
                outlook = ahead.outlook(window, self._actions.shares(action))
                missed, fetched = outlook.missed, outlook.fetched
            found.append((missed, fetched, window))
        return found


def _line(recent: deque[tuple[int, float]], before: tuple[float, float] | None = None) -> tuple[float, float]:
    """Seconds of an owner's fetch without bytes, and per byte; the previous line, scaled, if there are few fetches."""
    sizes, times = (np.array(of, dtype=np.float64) for of in zip(*recent, strict=True))
    if before is not None and len(sizes) < FEW:
        scale = float(np.median(times / np.maximum(before[0] + before[1] * sizes, LEAST_S)))
        return scale * before[0], scale * before[1]
    if np.ptp(sizes) == 0:  # a line is not identifiable: all time is the intercept
        return float(np.median(times)), 0.0
    return relative_line(sizes, times)


def _step_s(
    counted: tuple[NDArray[np.float64], NDArray[np.float64], int],
    starts: NDArray[np.float64],
    per_row: NDArray[np.float64],
    base_s: float,
) -> float:
    missed, fetched, window = counted
    miss_s, rebuild_s = (_slowest_s(rows, starts, per_row) for rows in (missed, fetched))
    return max(base_s, miss_s, rebuild_s / window) + float(starts.min()) / window


def _slowest_s(rows: NDArray[np.float64], starts: NDArray[np.float64], per_row: NDArray[np.float64]) -> float:
    """Seconds until the slowest owner has sent rows (P - 1,), with few rows as a probability of any request."""
    return float(np.max(starts * -np.expm1(-rows) + per_row * rows))


# Live decisions about a part's cache: the policy's view is made here from measurements.


WARM_EPOCHS = 2  # GreenDyGNN section V-B: their steps and fetches are assumed to be on clean links
CHANGE = 0.05  # lambda: penalty of changing the allocation; the paper's value is unreadable in our copy
CACHE_CONTROL_LEAST_S = 1e-6  # minimum of a fetch or a step, so that ratios stay finite


class CacheControl:
    """Calls a policy at every boundary, and records observations, decisions and rewards.

    The builder's thread calls :meth:`decide`; any thread may change :attr:`policy`.

    Args:
        part: the part that owns the cache.
        parts: P, at least 2.
        epoch_steps: steps of an epoch.
        row_bytes: of a row of features.
        estimator: of delays, per owner.

    Attributes:
        policy: the current policy; None for no decisions.

    References: GreenDyGNN section V-B and algorithm 2.
    """

    def __init__(self, part: int, parts: int, *, epoch_steps: int, row_bytes: int, estimator: DelayEstimator) -> None:
        self.policy: CachePolicy | None = None
        self._part, self._parts, self._epoch_steps = part, parts, epoch_steps
        self._actions, self._others = CacheActions(parts), [other for other in range(parts) if other != part]
        self._estimator = estimator
        self._forecast = LiveForecast(self._actions, row_bytes=row_bytes)
        self._lock, self._rows = threading.Lock(), list[tuple[Any, ...]]()
        self._watches, self._look_again, self._changes = False, -1, deque[int](maxlen=CHANGES_WITHIN)
        self._clean_s: list[float] = []
        self._clean_j: list[float] = []
        self._last: CacheDecision | None = None
        self._was_biased: int | None = None

    @property
    def probed(self) -> bool:
        """Whether the time of a fetch on a clean link is known."""
        return self._estimator.probe is not None

    def probe(self, law: RpcModel) -> None:
        """Set the time of a fetch on a clean link, to compare fetches with."""
        with self._lock:
            self._estimator.probe = law

    def watch(self, replies: Sequence[OwnerReply], step: int) -> bool:
        """Add the fetches of a step's misses; return whether to reconsider the current window.

        True when a link's change is detected, and again a few steps later, when more fetches have been measured.
        """
        with self._lock:
            self._watches = True
            found = self._add_fetches([(of, step) for of in replies], step)
            again = 0 <= self._look_again <= step
            self._look_again = -1 if again else self._look_again
            return (found or again) and isinstance(self.policy, CachePlanner)

    def decide(self, boundary: Boundary) -> CacheDecision | None:
        """The action of the window after the one that begins now.

        At an early boundary, None keeps the previous decision.

        Raises:
            PlanError: there is no policy.
        """
        policy = self.policy
        if policy is None:
            raise PlanError("a window is to be decided, but no policy was set.")
        delays_s = self._delays(boundary)
        step_s, step_j = self._steps(boundary)
        view = self._view(boundary, delays_s, step_s, step_j)
        decision: CacheDecision | None
        if boundary.early:
            decision = policy.reconsider(view) if isinstance(policy, CachePlanner) else None
            if decision is None:
                return None
        else:
            decision = policy.decide(view)
        thought = [] if view.forecast is None else (view.forecast(delays_s) * 1e3).tolist()
        covered = 0 if view.forecast is None else boundary.lookahead.steps
        if self._last is not None and self._last.policy != decision.policy:
            self._last = None  # the reward of an abandoned decision is not recorded
        self._note(boundary, view, decision, self._reward(step_s, step_j), thought=thought, covered=covered)
        self._last, self._was_biased = decision, self._actions.biased(boundary.previous)
        return decision

    def clean_law(self) -> tuple[float, float] | None:
        """Seconds of a fetch on clean links, and seconds per byte, from measured fetches; None if unknown."""
        return self._forecast.clean_law()

    def state_dict(self) -> dict[str, Any]:
        """The times of clean links and steps, as plain lists and numbers."""
        clean = [float(np.median(of)) if of else None for of in (self._clean_s, self._clean_j)]
        return {"estimator": self._estimator.state_dict(), "clean": clean}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._estimator.load_state_dict(data["estimator"])
        self._clean_s, self._clean_j = ([] if of is None else [float(of)] for of in data["clean"])

    def taken(self) -> list[tuple[Any, ...]]:
        """New rows of ``cache_decisions``, without the columns step and epoch."""
        with self._lock:
            taken, self._rows = self._rows, []
        return taken

    # measurements

    def _add_fetches(self, fetches: Sequence[tuple[OwnerReply | FetchTime, int]], now: int) -> bool:
        """Add fetches with the steps that they were for; return whether a change is detected at step ``now``.

        The lock is held. A change is counted, and checked again a few steps later.
        """
        found = [
            self._estimator.add(
                of.owner - (of.owner > self._part), of.rtt_s, of.nbytes, epoch=step // self._epoch_steps
            )
            for of, step in fetches
        ]
        if any(found):
            if not self._changes or now - self._changes[-1] >= SAME_CHANGE:
                self._changes.append(now)
            self._look_again = now + LOOK_AGAIN
        return any(found)

    def _delays(self, boundary: Boundary) -> NDArray[np.float64]:
        with self._lock:
            unheard = [(of, of.step) for of in boundary.fetches if of.purpose == "bulk" or not self._watches]
            self._add_fetches(unheard, boundary.now)
            known = [self._estimator.known(index) for index in range(len(self._others))]
            self._forecast.observe(boundary, known)
            return self._estimator.delays_s()

    def _steps(self, boundary: Boundary) -> tuple[float, float | None]:
        """Medians of seconds and joules of the steps since the last boundary; of all clean steps if there is none."""
        warm = boundary.step < WARM_EPOCHS * self._epoch_steps
        seconds = [of.seconds for of in boundary.stepped]
        joules = [of.joules for of in boundary.stepped if of.joules is not None]
        if warm or not self._clean_s:
            self._clean_s += seconds
            self._clean_j += joules
        step_s = float(np.median(seconds or self._clean_s or [CACHE_CONTROL_LEAST_S]))
        return max(step_s, CACHE_CONTROL_LEAST_S), float(np.median(joules)) if joules else None

    def _view(
        self, boundary: Boundary, delays_s: NDArray[np.float64], step_s: float, step_j: float | None
    ) -> CacheView:
        remote, hits = boundary.remote[self._others], boundary.hits[self._others]
        passed_s = step_s * max(boundary.served, 1)
        base_j = float(np.median(self._clean_j)) if self._clean_j else None
        observation = CacheObservation(
            delays_s=delays_s,
            fetch_s=np.maximum(self._estimator.baselines_s(), CACHE_CONTROL_LEAST_S),
            hit_rates=hits / np.maximum(remote, 1),
            hit_rate=float(hits.sum() / max(remote.sum(), 1)),
            step_s=step_s,
            base_step_s=max(float(np.median(self._clean_s or [step_s])), CACHE_CONTROL_LEAST_S),
            step_j=step_j if base_j else None,
            base_step_j=base_j if step_j else None,
            rebuild_share=boundary.rebuild_s / passed_s,
            miss_share=boundary.resolve_s / passed_s,
            left_share=boundary.steps_left / self._epoch_steps,
            previous=boundary.previous,
        )
        base_s = max(float(np.median(self._clean_s or [step_s])), CACHE_CONTROL_LEAST_S)
        forecast = rebuilds = None
        if isinstance(self.policy, CachePlanner) and boundary.lookahead.steps:
            if self.policy.base_s is not None:
                base_s = min(base_s, self.policy.base_s)  # a warm-up over slow links contains waiting as well
            forecast = self._forecast.of(boundary.lookahead, base_s=base_s, late_s=delays_s)
            rebuilds = None if forecast is None else forecast.rebuilds
        state = cache_state(observation, self._actions)
        due = boundary.step, boundary.steps_left, boundary.previous
        now = boundary.now, self._changed(boundary.now), boundary.pending, boundary.left
        return CacheView(state, delays_s, *due, forecast, rebuilds, *now)

    def _changed(self, now: int) -> int:
        with self._lock:
            return sum(now - step <= CHANGES_WITHIN for step in self._changes)

    # records

    def _reward(self, step_s: float, step_j: float | None) -> float | None:
        """Reward of the previous decision by equation 5, relative to a step without delays.

        Differs from the paper: its reference is a policy's step under the same congestion, which cannot be measured
        live.
        """
        if self._last is None or not self._clean_s:
            return None
        known = step_j is not None and self._clean_j
        ratio = step_j / np.median(self._clean_j) if known and step_j else step_s / np.median(self._clean_s)
        changed = self._actions.biased(self._last.action) != self._was_biased
        return float(-ratio - CHANGE * changed)

    def _note(
        self,
        boundary: Boundary,
        view: CacheView,
        decision: CacheDecision,
        reward: float | None,
        *,
        thought: list[float],
        covered: int,
    ) -> None:
        index = self._actions.biased(decision.action)
        biased = -1 if index is None else self._others[index]
        chosen = decision.action, self._actions.window(decision.action), biased, decision.epsilon, decision.greedy
        seen = decision.policy, view.state.tolist(), list(decision.values)
        row = self._part, *seen, *chosen, reward, (view.delays_s * 1e3).tolist(), thought, covered, boundary.early
        with self._lock:
            self._rows.append(row)


# A policy that knows the future state of the links, and plans a stretch of steps at a time.


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
        """The planned action."""
        if self._plan is None or not 0 <= view.step - self._first < STRETCH // 2:
            self._first = view.step
            steps = range(view.step, view.step + STRETCH)
            trace = trace_of_pattern(self._pattern, self._part, steps, epoch_steps=self._epoch_steps)
            self._plan = clairvoyant_of(trace, self._costs, epoch_steps=self._epoch_steps)
        return self._plan.decide(replace(view, step=view.step - self._first))


# Costs of a run's steps, as far as they can be counted and timed before it begins.


REPEATS, RUN_COSTS_FEW, MANY = 5, 1, 2000  # repetitions, and the smaller and larger number of rows
LEAST = 1e-3
LOGS = 20.0  # bound of logarithms in the search: exponentials stay finite, and beyond it are effectively 0 or infinity


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Measurements of a run.

    Attributes:
        name: of the dataset.
        part: the part that owns the cache.
        space: of all keys.
        capacity: rows of the cache.
        row_bytes: of a row.
        base_s: seconds of a step whose features are local.
        rpc: time of a fetch on clean links.
        busy_w, stall_w: watts of a part while computing, and while waiting.
    """

    name: str
    part: int
    space: KeySpace
    capacity: int
    row_bytes: int
    base_s: float
    rpc: RpcModel
    busy_w: float
    stall_w: float


def timed_fetches(
    fetcher: Fetcher,
    part: int,
    space: KeySpace,
    *,
    row_bytes: int,
    note: Callable[[OwnerReply], None],
    loopback: bool = False,
) -> RpcModel:
    """The time model of a fetch, from medians of a few small and large ones of each other part; passed to ``note``.

    With ``loopback`` the part's own rows are requested instead: the time of a fetch without a slow link.
    """
    times: dict[int, list[float]] = {RUN_COSTS_FEW: [], MANY: []}
    sizes: dict[int, list[int]] = {RUN_COSTS_FEW: [], MANY: []}
    for owner in range(space.parts):
        keys = space.of_part(owner)
        if (owner == part) != loopback or not len(keys):
            continue
        for rows in (RUN_COSTS_FEW, MANY):
            for _ in range(REPEATS):
                began = time.perf_counter()
                reply = fetcher.fetch({owner: keys[:rows]})[owner]
                times[rows].append(time.perf_counter() - began)
                note(reply)
                sizes[rows].append(reply.nbytes)
    few_s, many_s = (float(np.median(times[rows])) for rows in (RUN_COSTS_FEW, MANY))
    few, many = (float(np.median(sizes[rows])) for rows in (RUN_COSTS_FEW, MANY))
    per_byte = max((many_s - few_s) / max(many - few, row_bytes), 1e-12)
    return RpcModel(max(few_s - per_byte * few, 0.0), per_byte)


def run_costs(of: RunFacts, asked: Sequence[NDArray[np.int64]]) -> CacheCosts:
    """Constants of a part's steps, from the keys of its first batches.

    Hit rates and rows of a rebuild are counted for every window, and the functions of :class:`CacheCosts` are fitted to
    them. Training, fetching and rebuilding are concurrent: the longest determines the time. A rebuild delays training
    by the initiation of a fetch, so that of equally good windows the longest is the cheapest.

    Args:
        of: measurements of the run.
        asked: remote keys of the batches, distinct within each.
    """
    others = of.space.parts - 1
    ahead = Lookahead(0, asked, of.space, part=of.part, capacity=of.capacity, serving=None)
    windows = np.array([window for window in WINDOWS if window <= len(asked)] or [1])
    outlooks = [ahead.outlook(int(window), np.full(others, 1 / others)) for window in windows]
    rows = np.array([outlook.asked for outlook in outlooks])
    missed = np.array([outlook.missed.sum() for outlook in outlooks])
    fetched = np.maximum([outlook.fetched.sum() for outlook in outlooks], 1.0)
    hits = 1 - missed / np.maximum(rows.sum(axis=1), 1.0)
    most, least, half, slope = _hit_law(windows, hits)
    exponent = float(np.polyfit(np.log(windows), np.log(fetched), 1)[0]) if len(windows) > 1 else 0.0
    shares = np.maximum(rows[-1], LEAST)
    return CacheCosts(
        name=of.name,
        parts=of.space.parts,
        base_s=of.base_s,
        rows=float(max(rows[-1].sum(), 1.0)),
        row_bytes=float(of.row_bytes),
        link_bytes_per_s=1 / of.rpc.s_per_byte,
        trips=0.0,
        rebuild_trips=1.0,
        miss_trips=1.0,
        hit_max=most,
        hit_min=least,
        hit_half=half,
        hit_slope=slope,
        capacity_exponent=0.5,
        rebuild_rows=float(fetched[0]),
        rebuild_exponent=float(np.clip(exponent, 0.0, 0.99)),
        overlap=1.0,
        rebuild_s=of.rpc.a_s,
        busy_w=of.busy_w,
        stall_w=of.stall_w,
        asked=tuple((shares / shares.sum()).tolist()),
        rpc_s=of.rpc.a_s,
    )


def _hit_law(windows: NDArray[np.int64], hits: NDArray[np.float64]) -> tuple[float, float, float, float]:
    """h_max, h_min, W_half and gamma of a logistic decay fitted to counted hit rates."""
    most, least = (float(np.clip(of, 0.0, 1.0)) for of in (hits[0], hits[-1]))
    if most - least < LEAST:
        return most, min(most, least), 16.0, 1.0

    def left(parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        low, (half, slope) = least * _share(parameters[0]), np.exp(np.clip(parameters[1:], -LOGS, LOGS))
        power = np.exp(np.clip(slope * np.log(windows / half), -LOGS, LOGS))
        return np.asarray(low + (most - low) / (1 + power) - hits)

    found = least_squares(left, np.array([3.0, np.log(16.0), 0.0]))
    half, slope = np.clip(np.exp(np.clip(found[1:], -LOGS, LOGS)), 1e-2, [1e4, 8.0])
    return most, float(least * _share(found[0])), float(half), float(slope)


def _share(of: float) -> float:
    return float(1 / (1 + np.exp(-np.clip(of, -LOGS, LOGS))))
