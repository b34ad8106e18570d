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
from dtdg_lab.core.feature_store import (
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
from dtdg_lab.systems.feature_cache.policies.costs import CacheCosts, RpcModel
from dtdg_lab.systems.feature_cache.policies.delay_estimator import LOOK_AGAIN, SAME_CHANGE, DelayEstimator
from dtdg_lab.systems.feature_cache.policies.env import CHANGES_WITHIN, CacheObservation, cache_state
from dtdg_lab.systems.feature_cache.policies.link_trace import LinkPattern, trace_of_links
from dtdg_lab.systems.feature_cache.policies.planner import CachePlanner
from dtdg_lab.systems.feature_cache.store import KeySpace
from dtdg_lab.systems.feature_cache.windows import Lookahead

# What is known where a cache was swapped in and the next window is decided.


@dataclass(frozen=True, slots=True)
class FetchTime:
    """One RPC.

    Attributes:
        owner: part that was asked.
        purpose: ``miss`` for rows of a batch, ``bulk`` for those of a cache.
        rows: asked for.
        nbytes: of request and reply.
        rtt_s: seconds until the last byte.
        step: of the batch, or the first of the cache's window.
    """

    owner: int
    purpose: str
    rows: int
    nbytes: int
    rtt_s: float
    step: int


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step of training: its seconds, and its joules where they are known."""

    seconds: float
    joules: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Boundary:
    """Facts at a swap; what is counted is counted since the swap before. P parts; vectors have a 0 for the own part.

    Attributes:
        part: the part that owns the cache.
        parts: P.
        number: of the window that is to be decided.
        step: its first step, if it is not late.
        steps_left: of the epoch from there on.
        previous: action that holds until then; the nearest one where the window is none of the actions'.
        served: batches resolved.
        remote: (P,) rows of each part that they asked for.
        hits: (P,) of these, rows that the cache held.
        resolve_s: seconds that resolving them took in all.
        fetches: RPCs made, for batches and for caches.
        rebuild_s: seconds that building the cache just swapped in took.
        late_steps: by which its swap came late.
        stepped: steps of training that ended.
        lookahead: the batches from ``step`` on that are sampled already.
        now: the step that is resolved next.
        early: whether a change of the links was found within the window that serves, which may be abandoned.
        pending: action that was decided to follow it, or the nearest one; -1 where it is not early.
        left: steps that it has left then.
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


# What a step would take under every window and allocation: counted in the batches ahead, timed by recent fetches.


LEAST_S = 1e-9
RECENT = 60  # fetches of an owner that its rate is told by
FEW = 8  # fetches since links changed that no line is put through yet
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

    A step takes as long as the longest of three things that go on beside each other: training, the fetch of what a
    batch misses, and the rebuild, which has the window's steps for it. A rebuild costs training as long as initiating
    a fetch, so that of windows that are as good the longest is the cheapest. Owners are asked at once, so that the
    slowest decides.

    A fetch takes a line over its bytes, put through each owner's recent fetches: what its start has over the quickest
    fetch ever is the delay in it, what its slope has over the least ever a throttled link. Links that are thought less
    late than now are thought less throttled in proportion.

    Args:
        actions: what may be chosen.
        row_bytes: of a row of features.

    References: ours (see :class:`dtdg_lab.systems.feature_cache.policies.planner.CachePlanner`); GreenDyGNN equation
    1 has the terms.
    """

    def __init__(self, actions: CacheActions, *, row_bytes: int) -> None:
        self._actions, self._row_bytes = actions, row_bytes
        others = actions.parts - 1
        self._recent: list[deque[tuple[int, float]]] = [deque(maxlen=RECENT) for _ in range(others)]
        self._before: list[tuple[float, float] | None] = [None] * others  # lines of before links changed
        self._quickest_s = np.full(others, np.inf)  # of each owner's fetches ever
        self._least = np.full(others, np.inf)  # seconds a byte of each owner at its best

    def hear(self, boundary: Boundary, known: Sequence[int] | None = None) -> None:
        """Take in the fetches since the last boundary.

        Args:
            boundary: that has them.
            known: of each owner, how many of the newest are of the links as they are now; all where None. Until there
                are eight, the line of before is scaled to them.
        """
        for of in boundary.fetches:
            place = of.owner - (of.owner > boundary.part)
            self._recent[place].append((of.nbytes, of.rtt_s))
            self._quickest_s[place] = min(self._quickest_s[place], of.rtt_s)
        for place, count in enumerate(known or ()):
            recent = self._recent[place]
            if count < min(len(recent), FEW):
                self._before[place] = self._before[place] or _line(recent)
            while len(recent) > max(count, 1) and count < RECENT // 2:
                recent.popleft()
            if len(recent) >= FEW:
                self._before[place] = None

    def clean_law(self) -> tuple[float, float] | None:
        """Seconds of a fetch without bytes, and seconds a byte, at their best over owners; None before any."""
        if not np.isfinite(self._quickest_s).all() or not np.isfinite(self._least).all():
            return None
        return float(np.median(self._quickest_s)), float(np.median(self._least))

    def of(self, ahead: Lookahead, *, base_s: float, late_s: NDArray[np.float64]) -> Forecast | None:
        """The forecast for the batches ahead; None while some owner has not been asked yet.

        Args:
            ahead: batches that are sampled.
            base_s: seconds of a step for which nothing is waited.
            late_s: (P - 1,) by which each owner's replies are thought to be late now.
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
            beyond_s = np.maximum(delays_s - late_s, 0.0)  # later than they are now
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
        """Of each action: rows a step misses of each owner, rows its rebuild fetches, and its window."""
        found: list[tuple[NDArray[np.float64], NDArray[np.float64], int]] = []
        for action in range(len(self._actions)):
            window = self._actions.window(action)
            if window > ahead.steps and action % len(WINDOWS) and WINDOWS[action % len(WINDOWS) - 1] >= ahead.steps:
                missed, fetched, _ = found[-1]  # no more batches are known than for the window before
            else:
                outlook = ahead.outlook(window, self._actions.shares(action))
                missed, fetched = outlook.missed, outlook.fetched
            found.append((missed, fetched, window))
        return found


def _line(recent: deque[tuple[int, float]], before: tuple[float, float] | None = None) -> tuple[float, float]:
    """Seconds of an owner's fetch without bytes, and seconds a byte; a line of before, scaled, where they are few."""
    sizes, times = (np.array(of, dtype=np.float64) for of in zip(*recent, strict=True))
    if before is not None and len(sizes) < FEW:
        scale = float(np.median(times / np.maximum(before[0] + before[1] * sizes, LEAST_S)))
        return scale * before[0], scale * before[1]
    if np.ptp(sizes) == 0:  # nothing tells them apart: what it takes is its start
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
    """Seconds until the slowest owner has sent rows (P - 1,); of one of whom few are missed, most steps ask nothing."""
    return float(np.max(starts * -np.expm1(-rows) + per_row * rows))


# What decides about a part's cache while it trains: what a policy sees is made here of what was measured.


WARM_EPOCHS = 2  # GreenDyGNN section V-B: whose steps and fetches are those of clean links
CHANGE = 0.05  # lambda: what changing the allocation costs of a reward; the paper's value is lost
CACHE_CONTROL_LEAST_S = 1e-6  # of a fetch or a step, so that ratios stay numbers


class CacheControl:
    """Asks a policy at every boundary, and notes what it saw, chose and earned.

    The builder's thread calls :meth:`decide`; any thread may change :attr:`policy`.

    Args:
        part: the part that owns the cache.
        parts: P, at least 2.
        epoch_steps: steps of an epoch.
        row_bytes: of a row of features.
        estimator: of delays, owner by owner.

    Attributes:
        policy: what is asked; None while nothing decides.

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
        """Whether it is known what a fetch takes that no link slows."""
        return self._estimator.probe is not None

    def probe(self, law: RpcModel) -> None:
        """Compare fetches with this law of one that no link slows."""
        with self._lock:
            self._estimator.probe = law

    def watch(self, replies: Sequence[OwnerReply], step: int) -> bool:
        """Take in the fetches of a step's misses; whether the window that serves is to be reconsidered.

        So it is where a change of a link is found, and again a few steps later, when more fetches have met it.
        """
        with self._lock:
            self._watches = True
            found = self._apply_control([(of, step) for of in replies], step)
            again = 0 <= self._look_again <= step
            self._look_again = -1 if again else self._look_again
            return (found or again) and isinstance(self.policy, CachePlanner)

    def decide(self, boundary: Boundary) -> CacheDecision | None:
        """The action of the window that comes after the one that begins now.

        Where the boundary is early, None keeps to what was decided before.

        Raises:
            PlanError: nothing was set that decides.
        """
        policy = self.policy
        if policy is None:
            raise PlanError("a window is to be decided, and no policy was set.")
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
            self._last = None  # what it earned is not this one's
        self._note(boundary, view, decision, self._reward(step_s, step_j), thought=thought, covered=covered)
        self._last, self._was_biased = decision, self._actions.biased(boundary.previous)
        return decision

    def clean_law(self) -> tuple[float, float] | None:
        """Seconds of a fetch over clean links, and seconds a byte, as far as fetches have told; else None."""
        return self._forecast.clean_law()

    def state_dict(self) -> dict[str, Any]:
        """What clean links and steps were found to be, as plain lists and numbers."""
        clean = [float(np.median(of)) if of else None for of in (self._clean_s, self._clean_j)]
        return {"estimator": self._estimator.state_dict(), "clean": clean}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._estimator.load_state_dict(data["estimator"])
        self._clean_s, self._clean_j = ([] if of is None else [float(of)] for of in data["clean"])

    def taken(self) -> list[tuple[Any, ...]]:
        """Rows of ``cache_decisions`` since the last call, without the step and epoch columns."""
        with self._lock:
            taken, self._rows = self._rows, []
        return taken

    # what was measured

    def _apply_control(self, fetches: Sequence[tuple[OwnerReply | FetchTime, int]], now: int) -> bool:
        """Take in fetches and the steps that they were for; whether a change is found at step ``now``.

        The lock is held. A change is counted, and is looked at again a few steps later.
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
            self._apply_control(unheard, boundary.now)
            known = [self._estimator.known(place) for place in range(len(self._others))]
            self._forecast.hear(boundary, known)
            return self._estimator.delays_s()

    def _steps(self, boundary: Boundary) -> tuple[float, float | None]:
        """Medians of seconds and joules of the steps since the last boundary; of all clean ones where there is none."""
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
                base_s = min(base_s, self.policy.base_s)  # steps of a warm-up over slow links waited, too
            forecast = self._forecast.of(boundary.lookahead, base_s=base_s, late_s=delays_s)
            rebuilds = None if forecast is None else forecast.rebuilds
        return CacheView(
            cache_state(observation, self._actions),
            delays_s,
            boundary.step,
            boundary.steps_left,
            boundary.previous,
            forecast,
            rebuilds,
            boundary.now,
            self._changed(boundary.now),
            boundary.pending,
            boundary.left,
        )

    def _changed(self, now: int) -> int:
        with self._lock:
            return sum(now - step <= CHANGES_WITHIN for step in self._changes)

    # what is noted

    def _reward(self, step_s: float, step_j: float | None) -> float | None:
        """Of the decision before this one: see equation 5; the reference is a step where nothing was late.

        Differs from the paper: its reference is a policy's step under the same congestion, which nobody measures live.
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
        place = self._actions.biased(decision.action)
        row = (
            self._part,
            decision.policy,
            view.state.tolist(),
            list(decision.values),
            decision.action,
            self._actions.window(decision.action),
            -1 if place is None else self._others[place],
            decision.epsilon,
            decision.greedy,
            reward,
            (view.delays_s * 1e3).tolist(),
            thought,
            covered,
            boundary.early,
        )
        with self._lock:
            self._rows.append(row)


# A policy that knows how slow the links will be, and plans a stretch of steps at a time.


STRETCH = 8 * WINDOWS[-1]  # steps of a plan, of which the first half is followed


class ForeseenWindows:
    """The windows and allocations that are optimal in the cost model, for congestion known beforehand.

    A stretch of steps is planned where the one before is half over, in the thread that asks: what the last windows of
    a plan are thought to be worth is not followed.

    Args:
        pattern: how slow the links will be.
        costs: of a step.
        part: the part that owns the cache.
        epoch_steps: of an epoch.

    References: ours; see :func:`dtdg_lab.systems.feature_cache.policies.clairvoyant.best_plan`, which is exact over a
    whole trace.
    """

    name = "clairvoyant"

    def __init__(self, pattern: LinkPattern, costs: CacheCosts, *, part: int, epoch_steps: int) -> None:
        self._pattern, self._costs, self._part, self._epoch_steps = pattern, costs, part, epoch_steps
        self._first = 0
        self._plan: Clairvoyant | None = None

    def decide(self, view: CacheView) -> CacheDecision:
        """The action of the plan."""
        if self._plan is None or not 0 <= view.step - self._first < STRETCH // 2:
            self._first = view.step
            states = [
                self._pattern.at(epoch, place / self._epoch_steps)
                for epoch, place in (divmod(step, self._epoch_steps) for step in range(view.step, view.step + STRETCH))
            ]
            trace = trace_of_links(states, self._part)
            self._plan = clairvoyant_of(trace, self._costs, epoch_steps=self._epoch_steps)
        return self._plan.decide(replace(view, step=view.step - self._first))


# What steps of a run cost, as far as it can be counted and timed before it begins.


REPEATS, RUN_COSTS_FEW, MANY = 5, 1, 2000  # fetches of so many rows
LEAST = 1e-3
LOGS = 20.0  # a search may try any number: powers of e up to here stay finite, and are as good as 0 or infinity


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What was measured of a run.

    Attributes:
        name: of the data.
        part: the part that owns the cache.
        space: of all keys.
        capacity: rows of the cache.
        row_bytes: of a row.
        base_s: seconds of a step whose features are here.
        rpc: law of a fetch over clean links.
        busy_w, stall_w: watts of a part while it computes, and while it waits.
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
    """The law of a fetch, by medians of a few small and a few larger ones of each other part, told to ``note``.

    With ``loopback`` the part's own rows are asked for instead: what a fetch takes that no link slows.
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
    """Constants of a part's steps, from what its first batches ask for.

    Hit rates and rows of a rebuild are counted for every window, and the laws of :class:`CacheCosts` put through them.
    Training, fetching and rebuilding go on beside each other: the longest decides. A rebuild is taken to cost training
    as long as initiating a fetch, so that of windows that are as good the longest is the cheapest.

    Args:
        of: what was measured.
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
    """h_max, h_min, W_half and gamma of a logistic decay through counted hit rates."""
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
