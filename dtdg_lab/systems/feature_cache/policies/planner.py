"""A planning cache policy: it takes the action with the lowest expected cost under possible changes of the links."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.systems.feature_cache.actions import WINDOWS, CacheActions
from dtdg_lab.systems.feature_cache.costs.cache_costs import CacheCosts, StepCosts
from dtdg_lab.systems.feature_cache.policies.delay_estimator import RunsMemory
from dtdg_lab.systems.feature_cache.policies.interface import (
    CHANGES_WITHIN,
    CacheDecision,
    CacheView,
    CacheViews,
    Forecast,
)

TURNS = 5.0  # factor of an owner's probability to become late, per unit of the logarithm of its average multiplier
LATE_S = 15e-3  # assumed delay of an owner that becomes late
LATE_NOISE = 0.2  # delays below this share of a clean fetch are treated as noise
OBSERVED_AGE = 3  # average age of observed delays in steps
CHANGES, CHANGE_STEPS = 1.0, 60.0  # prior of the rate of changes: change points, and number of steps
TRUSTED_STEPS = 200.0  # time constant of the account of savings and losses
TRUST = 2.5  # loss against equal shares, in steps of time, beyond which equal shares are used
PRICE = 2.0  # a window is abandoned if that saves this multiple of its price
STRAYS = 0.2  # relative uncertainty of an owner's delay
STAY = 0.02  # share of a step that another allocation must save to be chosen
Array = NDArray[np.float64]


class LinkGuess(NamedTuple):
    """Assumed effect of the links: (B, P - 1) seconds per reply, and per byte."""

    delays_s: Array
    s_per_byte: Array

    def with_later(self, owner: int) -> LinkGuess:
        """Return the guess with one owner slightly later, to allow for noise."""
        factors = np.ones(self.delays_s.shape[1])
        factors[owner] += STRAYS
        return LinkGuess(self.delays_s * factors, self.s_per_byte * factors)

    def with_only(self, owner: int, at_least: LinkGuess) -> LinkGuess:
        """Return a guess in which only one owner is late: like the latest owner, or at least like ``at_least``."""
        guess = LinkGuess(np.zeros_like(self.delays_s), np.zeros_like(self.delays_s))
        for into, values, lowest in zip(guess, self, at_least, strict=True):
            into[:, owner] = np.maximum(values.max(axis=1), lowest[:, owner])
        return guess


class _Observed(NamedTuple):
    """Observations of B runs, and the model of their steps.

    Attributes:
        states: (B, S) states including the memory.
        delays_s: (B, P - 1) delay of each other part's replies.
        previous: (B,) the current actions.
        rate: (B,) expected changes of the links per step.
        costs: cost model; None to use the view's forecasts.
        forecast: maps delays (B, P - 1) to the seconds of a step of every action, by the view.
        rebuild_forecast: maps delays to the seconds of a whole rebuild.
    """

    states: NDArray[np.float32]
    delays_s: Array
    previous: NDArray[np.int64]
    rate: Array
    costs: CacheCosts | None
    forecast: Forecast | None
    rebuild_forecast: Forecast | None

    def seconds(self, links: LinkGuess) -> Array:
        """Return the (B, A) seconds of a step of every action."""
        if self.costs is None:
            assert self.forecast is not None
            return self.forecast(links.delays_s)
        return self._step_costs(self.costs, links).seconds

    def rebuild_seconds(self, links: LinkGuess, windows: NDArray[np.int64]) -> Array:
        """Return the (B, A) seconds of a whole rebuild of every action, whose windows are (A,)."""
        if self.costs is None:
            assert self.rebuild_forecast is not None
            return self.rebuild_forecast(links.delays_s)
        return self._step_costs(self.costs, links).rebuild_s * windows

    @staticmethod
    def _step_costs(costs: CacheCosts, links: LinkGuess) -> StepCosts:
        return costs.of_actions(links.delays_s, 1 / (1 / costs.link_bytes_per_s + links.s_per_byte))


class _Account:
    """Savings of the planner's own choices over equal shares, in steps of time, for each of B runs.

    Savings are counted whether the choices are used or not. After losses, equal shares are used until the choices pay
    again. Steps before a run was first seen, at ``now``, are not counted: a run may be resumed, or its policy set, at
    any step.
    """

    def __init__(self, runs: NDArray[np.int64], steps: NDArray[np.int64], first: int) -> None:
        self.runs, self.saved, self.now = runs, np.zeros(len(runs)), steps.copy()
        self.serving, self.pending = np.full(len(runs), first), np.full(len(runs), first)
        self._share = np.zeros(len(runs))  # share of a step that the current choice saved at the last update

    def take_in(self, rows: NDArray[np.int64], seconds: Array, steps: NDArray[np.int64]) -> None:
        """Count the steps since the last call, with the current (R, A) seconds of each action."""
        even = seconds[:, : len(WINDOWS)].min(axis=1)
        share = 1 - seconds[np.arange(len(rows)), self.serving[rows]] / even
        passed = np.maximum(steps - self.now[rows], 0)
        decay = np.exp(-passed / TRUSTED_STEPS)
        self.saved[rows] = decay * self.saved[rows] + passed * (share + self._share[rows]) / 2
        self._share[rows], self.now[rows] = share, steps

    def begin(self, rows: NDArray[np.int64], seconds: Array, actions: NDArray[np.int64]) -> None:
        """Record that other actions take effect now."""
        self.serving[rows] = actions
        self._share[rows] = 1 - seconds[np.arange(len(rows)), actions] / seconds[:, : len(WINDOWS)].min(axis=1)

    def for_runs(self, runs: NDArray[np.int64], steps: NDArray[np.int64], first: int) -> _Account:
        """Return this account, with the entries of new runs reset."""
        if len(runs) != len(self.runs):
            return _Account(runs, steps, first)
        fresh = (runs != self.runs) | (steps < self.now)
        self.saved[fresh] = self._share[fresh] = 0.0
        self.now[fresh] = steps[fresh]
        self.serving[fresh] = self.pending[fresh] = first
        self.runs = runs
        return self


class CachePlanner:
    """Takes the action with the least expected regret over possible changes of the links.

    A chosen window begins when the current one ends, and lasts for W steps. The links may change before or during it:
    with probability 1 - exp(-lambda s) within s steps after the observation, to clean links or to one late owner. So
    long windows are chosen if they are cheap in all cases. A cache biased to one owner is kept for long only if that
    owner will stay late. Lambda is the number of change points in the last 150 steps, per step. The memory of the run
    (:mod:`dtdg_lab.systems.feature_cache.policies.interface`) indicates which owner may be the next.

    When a change is detected, the current window is abandoned if that saves twice its cost: the wasted rebuilds. An
    account is kept of the savings of the planner's own choices over equal shares, used or not. After recent losses of
    2.5 steps of time or more, equal shares are used.

    In a run, the view's forecast predicts the time of each action: it counts the batches ahead and knows the links'
    rates. In the simulator the costs predict it. The slowdown of a step tells a late owner from a throttled one: a
    delay adds many round trips, a throttled link only its transfer time. With neither costs nor a forecast, all
    lateness counts as delay.

    Args:
        actions: the possible actions.
        costs: calibrated costs for the same number of parts, for simulated runs and for a view without a forecast.
        longest: maximum window, so that changes are noticed soon.

    Attributes:
        base_s: seconds of a step without fetches, by the costs; None without costs.

    References: ours, for the questions of GreenDyGNN section IV-C; Camacho, Bordons 2007 (model-predictive control).
    """

    name = "planner"

    def __init__(
        self,
        actions: CacheActions,
        costs: CacheCosts | None = None,
        *,
        longest: int = WINDOWS[-1],
    ) -> None:
        self.first = actions.action(16)
        self._actions, self._costs = actions, costs
        self.base_s = None if costs is None else costs.base_s
        self._windows = np.array([actions.window(action) for action in range(len(actions))])
        self._longest = max(longest, WINDOWS[0])
        self._memory = RunsMemory(actions.parts)
        nothing = np.zeros(0, dtype=np.int64)
        self._account = _Account(nothing, nothing, self.first)
        self._allocation = np.arange(len(actions)) // len(WINDOWS)
        if costs is not None:
            clean = costs.of_actions(np.zeros(actions.parts - 1))
            self._hits, self._base_s = clean.hits, float(clean.seconds[self.first])

    def decide(self, view: CacheView) -> CacheDecision:
        """Return the cheapest action for the observations, or the current one if no forecast is possible."""
        if self._costs is None and view.forecast is None:
            return CacheDecision(self.name, view.previous)
        (action,), regret = self._decide(CacheViews.of(view), self._costs if view.forecast is None else None)
        return CacheDecision(self.name, int(action), tuple((-regret[0]).tolist()), 0.0, bool(action == regret.argmin()))

    def reconsider(self, view: CacheView) -> CacheDecision | None:
        """Return the action to replace the current window after a change of links; None to keep the window."""
        if view.pending < 0 or (view.forecast is None and self._costs is None):
            return None
        views, costs = CacheViews.of(view), self._costs if view.forecast is None else None
        self._account = self._account.for_runs(views.runs, views.now, self.first)
        observed = self._observe(views, costs, np.zeros(1, int))
        actions, ends = self._reconsider(
            observed, views, np.array([view.pending]), np.array([view.left]), np.zeros(1, int)
        )
        return CacheDecision(self.name, int(actions[0])) if ends[0] else None

    def decide_all(self, views: CacheViews) -> NDArray[np.int64]:
        """Return (B,) the cheapest action of every run."""
        return self._decide(views, self._costs)[0]

    def reconsider_all(
        self, views: CacheViews, pending: NDArray[np.int64], steps_left: NDArray[np.int64], which: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the (B,) cheapest actions after a change of links, and (B,) True to end the window early for them."""
        rows = np.flatnonzero(which)
        actions, ends = pending.copy(), which.copy()
        observed = self._observe(views, self._costs, rows)
        actions[rows], ends[rows] = self._reconsider(observed, views, pending[rows], steps_left[rows], rows)
        return actions, ends

    def _decide(self, views: CacheViews, costs: CacheCosts | None) -> tuple[NDArray[np.int64], Array]:
        """Return the (B,) actions, and the (B, A) expected regret of each action."""
        self._account = account = self._account.for_runs(views.runs, views.now, self.first)
        observed, rows = self._observe(views, costs), np.arange(len(views.runs))
        seconds = observed.seconds(self._links(observed)[0])
        account.take_in(rows, seconds, views.now)
        account.begin(rows, seconds, account.pending[rows])
        lead_steps = OBSERVED_AGE + self._windows[observed.previous].astype(np.float64)
        regret = self._regret(observed, lead_steps)
        account.pending[rows] = own_actions = self._cheapest(regret, account.serving[rows])
        return np.where(account.saved[rows] >= -TRUST, own_actions, self._best_even(regret)), regret

    def _observe(self, views: CacheViews, costs: CacheCosts | None, rows: NDArray[np.int64] | None = None) -> _Observed:
        """Return the observations of all runs, or of ``rows`` without updating their memory."""
        if rows is None:
            states, rows = self._memory.take_in(views.states, views.runs, views.now), np.arange(len(views.runs))
        else:
            states = self._memory.recall(views.states[rows], rows)
        steps = CHANGE_STEPS + np.minimum(views.now[rows], CHANGES_WITHIN)
        return _Observed(
            states=states,
            delays_s=views.delays_s[rows],
            previous=views.previous[rows],
            rate=np.asarray((CHANGES + views.changes[rows]) / steps),
            costs=costs,
            forecast=views.forecast,
            rebuild_forecast=views.rebuilds,
        )

    def _reconsider(
        self,
        observed: _Observed,
        views: CacheViews,
        pending: NDArray[np.int64],
        steps_left: NDArray[np.int64],
        rows: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the (R,) cheapest actions of ``rows``, and (R,) True to end their windows early for them."""
        account, rate = self._account, observed.rate
        links = self._links(observed)[0]
        seconds, rebuilds = observed.seconds(links), observed.rebuild_seconds(links, self._windows)
        account.take_in(rows, seconds, views.now[rows])
        regret = self._regret(observed, np.full(len(rows), float(OBSERVED_AGE)))
        actions = self._cheapest(regret, account.serving[rows])
        index = np.arange(len(rows))

        def pays(
            serving: NDArray[np.int64], follows: NDArray[np.int64], candidates: NDArray[np.int64]
        ) -> tuple[NDArray[np.bool_], Array]:
            """Return True if replacing ``serving`` and ``follows`` by ``candidates`` pays, and its price."""
            serving_s, follows_s, best_s = (seconds[index, action] for action in (serving, follows, candidates))
            lead = np.ceil(rebuilds[index, candidates] / serving_s)
            stays = np.maximum(np.exp(-rate * lead) - np.exp(-rate * steps_left), 0) / rate
            holds = np.exp(-rate * steps_left) * -np.expm1(-rate * self._windows[follows]) / rate
            saved = (serving_s - best_s) * stays + (follows_s - best_s) * holds
            price = rebuilds[index, serving] * (1 + steps_left / self._windows[serving])
            return saved > PRICE * price, price + lead * (serving_s - best_s)

        is_own, price = pays(account.serving[rows], account.pending[rows], actions)
        even = seconds[:, : len(WINDOWS)].min(axis=1)
        account.saved[rows] -= is_own * price / even
        account.begin(rows, seconds, np.where(is_own, actions, account.serving[rows]))
        account.pending[rows] = np.where(is_own, actions, account.pending[rows])
        final_actions = np.where(account.saved[rows] >= -TRUST, actions, self._best_even(regret))
        return final_actions, pays(observed.previous, pending, final_actions)[0]

    def _best_even(self, regret: Array) -> NDArray[np.int64]:
        """Return the (B,) best action with the uniform allocation."""
        even = regret[:, : len(WINDOWS)]
        return np.where(self._windows[: len(WINDOWS)] <= self._longest, even, np.inf).argmin(axis=1)

    def _cheapest(self, regret: Array, previous: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the (B,) actions of lowest regret (B, A); changing the allocation must save ``STAY``."""
        holds = self._allocation == (previous // len(WINDOWS))[:, np.newaxis]
        priced = np.where(holds, regret, regret + STAY)
        return np.where(self._windows <= self._longest, priced, np.inf).argmin(axis=1)

    def _links(self, observed: _Observed) -> tuple[LinkGuess, list[LinkGuess]]:
        """Return the assumed current state of the links, and their possible next states."""
        states, delays_s = observed.states, observed.delays_s
        is_late = np.expm1(states[:, : delays_s.shape[1]]) > LATE_NOISE
        current, at_least = self._guess_links(states, np.where(is_late, delays_s, 0.0), observed.costs)
        clean = LinkGuess(np.zeros_like(delays_s), np.zeros_like(delays_s))
        return current, [clean, *(current.with_only(owner, at_least) for owner in range(delays_s.shape[1]))]

    def _regret(self, observed: _Observed, lead_steps: Array) -> Array:
        """Return the (B, A) expected slowdown of each action, relative to the best action's step.

        Args:
            observed: observations.
            lead_steps: (B,) steps from the observation to the first step of the decision.
        """
        current, later = self._links(observed)
        num_others = observed.delays_s.shape[1]
        today = np.mean([observed.seconds(current.with_later(owner)) for owner in range(num_others)], axis=0)
        rate, lead = observed.rate[:, None], lead_steps[:, None]
        # share of the window's steps after a change of links
        changed = 1 + np.exp(-lead * rate) * np.expm1(-self._windows * rate) / (self._windows * rate)
        mean = observed.states[:, -2 * num_others : -num_others].astype(np.float64)
        likely = np.concatenate([np.ones((1, len(mean))), 1.0 + TURNS * mean.T])
        may_cost = np.zeros_like(today)
        for weight, links in zip(likely / likely.sum(axis=0), later, strict=True):
            may_cost += weight[:, None] * changed * _over_best(observed.seconds(links))
        regret = (1 - changed) * _over_best(today) + may_cost
        return np.asarray(regret / today.min(axis=1, keepdims=True))

    def _guess_links(
        self, states: NDArray[np.float32], late_s: Array, costs: CacheCosts | None
    ) -> tuple[LinkGuess, LinkGuess]:
        """Return the causes of the observed delays (B, P - 1), and the effect of an owner that becomes late."""
        num_others = late_s.shape[1]
        if costs is None:
            nothing = np.zeros_like(late_s)
            return LinkGuess(late_s, nothing), LinkGuess(np.full_like(late_s, LATE_S), nothing)
        hits = states[:, num_others : 2 * num_others].astype(np.float64)
        missed = np.maximum(costs.row_bytes * costs.rows * np.array(costs.asked) * (1 - hits), costs.row_bytes)
        served = np.abs(hits[:, np.newaxis] - self._hits).sum(axis=2).argmin(axis=1)[:, np.newaxis]
        all_delay = costs.of_actions(late_s).seconds
        all_rate = costs.of_actions(np.zeros_like(late_s), 1 / (1 / costs.link_bytes_per_s + late_s / missed)).seconds
        by_delay, by_rate = (
            np.log(np.take_along_axis(seconds, served, 1)[:, 0] / self._base_s) for seconds in (all_delay, all_rate)
        )
        apart = by_delay - by_rate
        slower = states[:, 2 * num_others + 1] - by_rate
        share = np.where(np.abs(apart) > 0.01, np.clip(slower / np.where(apart == 0, 1.0, apart), 0.0, 1.0), 0.5)
        delayed = share[:, np.newaxis]
        current = LinkGuess(delayed * late_s, (1 - delayed) * late_s / missed)
        at_least = LinkGuess(delayed * np.full_like(late_s, LATE_S), (1 - delayed) * LATE_S / missed)
        return current, at_least


def _over_best(seconds: Array) -> Array:
    return np.asarray(seconds - seconds.min(axis=1, keepdims=True))
