"""Simulated training under congestion: many runs at once, with a policy's decision at every rebuild of a cache.

The cost of a window is the sum over its steps of the calibrated costs for its length, its allocation and the links at
that step, times noise that is independent of the choice. As in a real run, a decision at a boundary takes effect at
the next one: while one window trains, the cache of the next is built. Windows may extend over the end of an epoch.

After a change of the links a window may be abandoned: its successor begins when the new cache is built, and the
wasted rebuild is paid (``CacheBatch.owed``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import ConfigError, PlanError
from dtdg_lab.systems.feature_cache.actions import CacheActions
from dtdg_lab.systems.feature_cache.costs.cache_costs import CacheCosts, cache_choices
from dtdg_lab.systems.feature_cache.policies.interface import CacheObservation, CacheViews, cache_state
from dtdg_lab.systems.feature_cache.simulation.cases import WARM_UP_EPOCHS, CacheCase
from dtdg_lab.systems.feature_cache.simulation.episode import (
    CacheBatch,
    CacheEpisode,
    CacheNoise,
    Floats,
    Numbers,
    WindowSums,
    draw_episode,
)

REFERENCE = 16  # window, evenly shared, that rewards are relative to (Eq. 5)
SLOW_BASE = 1.5  # a warm-up was congested if its steps exceed this multiple of calibrated clean ones
Booleans = NDArray[np.bool_]
States = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class StepInfo:
    """The result of one decision in each of B runs; 0 in runs that had already ended.

    Attributes:
        joules: (B,) joules of the decided window.
        seconds: (B,) seconds of the decided window.
        steps: (B,) its length: W, or less at the end of the run.
        passed: (B,) steps between the previous decision and this one.
        reference_j: (B,) joules of the same steps with W = 16, evenly shared.
        changed: (B,) True if the allocation changes.
        final_states: (B, 3 P + 11) states before ended runs are replaced; otherwise equal to ``states``.
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
        costs: calibrated costs, one for each data set, all for the same number of parts P.
        cases: cases of congestion that episodes are drawn from, in turn.
        episodes: B, number of simultaneous runs.
        seed: seed of all random numbers; an episode is a pure function of the seed and its number.
        epochs: epochs of a run.
        epoch_steps: steps of an epoch.
        penalty: lambda, subtracted from the reward if the allocation changes.
        reward: "ratio" is ``-E / E_ref`` of the decided window, as in the paper: both are means over its steps, so that
            a long window has the weight of a short one. "saved" is ``(1 - E / E_ref) steps / 16``, ours: it sums to the
            savings of a run. E_ref is the energy with W = 16, evenly shared, over the same steps.
        noise: noise of steps and measurements.
        restart: True to replace an ended run by the next episode at once.
        draw: returns the episode of a number, instead of ``cases``, for recorded links.

    Attributes:
        actions: the possible actions.
        choices: the actions, and the window of an epoch.
        episodes: B.
        reference: index of the action that rewards are relative to.
        restarts: True if ended runs are replaced.

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
        noise: CacheNoise | None = None,
        restart: bool = False,
        draw: Callable[[int], CacheEpisode] | None = None,
    ) -> None:
        if not costs or len({cost.parts for cost in costs}) != 1:
            raise ConfigError(
                f"costs are for {[cost.parts for cost in costs]} parts: give at least one, all for equal parts."
            )
        if episodes < 1 or penalty < 0 or reward not in ("ratio", "saved"):
            raise ConfigError(
                f"episodes={episodes}, penalty={penalty}, reward={reward!r}: give at least one "
                "episode, a penalty of 0 or more, and the reward 'ratio' or 'saved'."
            )
        if not cases and draw is None:
            raise ConfigError("a simulation needs cases of congestion, or draw, which returns episodes.")
        self.actions = CacheActions(costs[0].parts)
        self.choices = cache_choices(self.actions.parts, epoch_steps)
        self.episodes, self.epoch_steps = episodes, epoch_steps
        self.reference = self.actions.action(REFERENCE)
        self._references = np.full(episodes, self.reference)
        self._penalty, self._reward, self.restarts = penalty, reward, restart

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
            first: choice of the first window, one or (B,), before any decision; by default W = 16, evenly shared.
            number: index of the first episode; by default the next one.
            length: (B,) steps of the first window, if it is abandoned early.

        Raises:
            PlanError: a choice is out of range.
        """
        self._first = self._references
        if first is not None:
            self._first = self._checked(np.broadcast_to(np.asarray(first), (self.episodes,)))
        self._next_number = self._next_number if number is None else number
        self._batch = CacheBatch([self._draw(self._next_number + index) for index in range(self.episodes)])
        self._next_number += self.episodes
        windows = self.choices.windows[self._first]
        self._first_end = np.minimum(windows if length is None else np.asarray(length), self._batch.steps)
        self._runs = self._initial_runs()
        return self._states()

    def step(self, actions: ArrayLike, lengths: ArrayLike | None = None) -> tuple[States, Floats, Booleans, StepInfo]:
        """Decide in every run, and advance to its next boundary.

        Args:
            actions: (B,) indices of actions, or of the choice after them; ignored for ended runs.
            lengths: (B,) steps after which the decided window is abandoned, at its price; W by default.

        Returns:
            states (B, 3 P + 11), rewards (B,), done (B,) and costs. If runs restart, ``done`` is True for runs that
            ended in this step, and their states are those of the new runs.

        Raises:
            PlanError: the simulation has not started, or the action does not exist.
        """
        batch, choices, runs = self._running(), self._checked(actions), self._runs
        planned = self.choices.windows[choices] if lengths is None else np.asarray(lengths, dtype=np.int64)
        end = np.minimum(runs.upcoming + planned, batch.steps)
        steps = end - runs.upcoming
        changed = (self.choices.allocations[choices] != self.choices.allocations[runs.current]) & (steps > 0)
        window, reference = batch.window_under((choices, self._references), runs.upcoming, end)
        seconds, joules = window.seconds, window.joules
        if lengths is not None:
            owed_s, owed_j = self._owed(choices, runs.upcoming, end)
            seconds, joules = seconds + owed_s, joules + owed_j
        ratio = _quotient(joules, reference.joules)
        rewards = -ratio if self._reward == "ratio" else (1 - ratio) * steps / REFERENCE
        self._runs = _Runs(
            boundary=runs.upcoming,
            upcoming=end,
            current=choices,
            observed=runs.current,
            length=runs.upcoming - runs.boundary,
            base=runs.base,
            searched=runs.upcoming,
        )
        info = StepInfo(joules, seconds, steps, self._runs.length, reference.joules, changed, self._states())
        done = self.done & (steps > 0) if self.restarts else self.done
        return self._next_states(done, info.final_states), rewards - self._penalty * changed, done, info

    def first_window(self) -> WindowSums:
        """Return the (B,) costs of the runs' first window, before any decision."""
        sums = self._from_start(self._first, self._first_end)
        none = np.zeros_like(self._first_end)
        owed_s, owed_j = self._owed(self._first, none, self._first_end)
        return sums._replace(seconds=sums.seconds + owed_s, joules=sums.joules + owed_j)

    def views(self) -> CacheViews:
        """Return the current views of policies."""
        return self._views(self._runs)

    def look(self) -> Booleans:
        """Advance to the next detected change before each window ends, and return (B,) True if there is one.

        Call it repeatedly until no run has a change. ``alarm_views`` and ``abandon`` then refer to these steps.
        """
        runs, batch = self._runs, self._running()
        steps = np.arange(batch.reviews.shape[1])
        is_alarm = batch.reviews & (steps > runs.searched[:, None]) & (steps < runs.upcoming[:, None] - 1)
        is_alarm &= (runs.upcoming < batch.steps)[:, None]
        self._alarmed: Booleans = np.asarray(is_alarm.any(axis=1))
        self._runs = runs._replace(searched=np.where(self._alarmed, is_alarm.argmax(axis=1), runs.upcoming))
        return self._alarmed

    def alarm_views(self) -> tuple[CacheViews, Numbers]:
        """Return the views at detected changes, and the (B,) remaining steps of the current window."""
        runs = self._runs
        at_alarm = runs._replace(
            boundary=np.where(self._alarmed, runs.searched, runs.boundary),
            length=np.where(self._alarmed, runs.searched - runs.boundary, runs.length),
            observed=np.where(self._alarmed, runs.current, runs.observed),
        )
        return self._views(at_alarm), runs.upcoming - runs.searched

    def abandon(self, actions: ArrayLike, which: Booleans) -> tuple[Booleans, Floats, Floats]:
        """Abandon windows in which a change was detected, as soon as the cache of another action is built.

        Its rebuild takes the modelled time for the links of that step, and the old cache is used meanwhile. If the
        window ends before that, nothing is abandoned.

        Args:
            actions: (B,) the next actions; pass them to :meth:`step` next.
            which: (B,) True for the runs to apply it to.

        Returns:
            (B,) True where a window was abandoned, and its additional (or negative) seconds and joules, (B,) each.
        """
        runs, batch = self._runs, self._running()
        choices = self._checked(actions)
        searched = np.minimum(runs.searched, batch.steps - 1)
        step_s = batch.at(runs.current, searched)[0]
        rebuild_s = batch.at(choices, searched)[1] * self.choices.windows[choices]
        end = runs.searched + np.maximum(np.ceil(rebuild_s / step_s).astype(np.int64), 1)
        done = which & self._alarmed & (end < runs.upcoming)
        end = np.where(done, end, runs.upcoming)
        unserved = batch.window(runs.current, end, runs.upcoming)
        before_s, before_j = self._owed(runs.current, runs.boundary, runs.upcoming)
        owed_s, owed_j = self._owed(runs.current, runs.boundary, end)
        self._runs = runs._replace(upcoming=end, searched=np.where(done, end, runs.searched))
        return done, owed_s - before_s - unserved.seconds, owed_j - before_j - unserved.joules

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return the numbers of the running episodes and their positions, as arrays."""
        batch = self._running()
        return {
            "numbers": np.array([episode.number for episode in batch.episodes]),
            "next_number": np.array(self._next_number),
            "conditions": np.array(batch.conditions),
            "first": self._first,
            "first_end": self._first_end,
            **{f"runs_{name}": values for name, values in self._runs._asdict().items()},
        }

    def load_state_dict(self, data: Mapping[str, NDArray[Any]]) -> None:
        """Continue from the output of :meth:`state_dict`, bit for bit; episodes are drawn again from their numbers."""
        episodes = [self._draw(number) for number in data["numbers"].tolist()]
        self._batch = CacheBatch(episodes, conditions=int(data["conditions"]))
        self._next_number = int(data["next_number"])
        self._first, self._first_end = data["first"].copy(), data["first_end"].copy()
        self._runs = _Runs(**{name: data[f"runs_{name}"].copy() for name in _Runs._fields})

    @property
    def running(self) -> tuple[CacheEpisode, ...]:
        """The current episodes."""
        return tuple(self._running().episodes)

    @property
    def upcoming(self) -> Numbers:
        """(B,) first step of the next decision."""
        return self._runs.upcoming

    @property
    def done(self) -> Booleans:
        """(B,) True for runs without further decisions."""
        return np.asarray(self._runs.upcoming >= self._running().steps)

    def _views(self, runs: _Runs) -> CacheViews:
        batch = self._running()
        return CacheViews(
            states=self._states(runs),
            delays_s=self._delays_s(runs),
            steps=runs.upcoming,
            steps_left=self.epoch_steps - runs.upcoming % self.epoch_steps,
            previous=runs.current,
            forecast=self._forecast,
            runs=np.array([episode.number for episode in self.running]),
            now=runs.boundary,
            changes=batch.change_counts[np.arange(self.episodes), runs.boundary],
        )

    def _owed(self, choices: Numbers, first: Numbers, end: Numbers) -> tuple[Floats, Floats]:
        return self._running().owed(choices, self.choices.windows[choices], first, end)

    def _running(self) -> CacheBatch:
        if self._batch is None:
            raise PlanError("the simulation has not started. Call reset first.")
        return self._batch

    def _checked(self, actions: ArrayLike) -> Numbers:
        choices = np.asarray(actions, dtype=np.int64)
        if choices.shape != (self.episodes,) or choices.min() < 0 or choices.max() >= len(self.choices.windows):
            raise PlanError(
                f"actions have shape {choices.shape} for {self.episodes} runs. Give one each, from 0 to "
                f"{len(self.choices.windows) - 1}."
            )
        return choices

    def _from_start(self, choices: Numbers, steps: ArrayLike) -> WindowSums:
        """Return the costs of the first steps of all runs."""
        batch = self._running()
        return batch.window(choices, np.zeros_like(batch.steps), np.minimum(steps, batch.steps))

    def _initial_runs(self) -> _Runs:
        """Return all runs at step 0: nothing is observed, and their first window is about to start."""
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
            searched=none,
        )

    def _next_states(self, done: Booleans, states: States) -> States:
        """Replace ended runs by new episodes if runs restart, and return the states."""
        if not (self.restarts and done.any()):
            return states
        for index in np.flatnonzero(done).tolist():
            self._running().store(index, self._draw(self._next_number))
            self._next_number += 1
        self._runs = _Runs(
            *(np.where(done, new, old) for new, old in zip(self._initial_runs(), self._runs, strict=True))
        )
        return self._states()

    def _states(self, runs: _Runs | None = None) -> States:
        """Return (B, 3 P + 11) observations of the window that ended at the current boundary.

        Only its steps since the latest change point count.
        """
        runs, batch = self._runs if runs is None else runs, self._running()
        rows = np.arange(self.episodes)
        first = np.maximum(runs.boundary - runs.length, np.minimum(batch.since[rows, runs.boundary], runs.boundary - 1))
        first = np.maximum(np.where(runs.length > 0, first, runs.boundary), 0)
        seconds, joules, miss_s, rebuild_s = batch.window(runs.observed, first, runs.boundary)
        steps = np.maximum(runs.boundary - first, 1)
        began = runs.length > 0
        observation = CacheObservation(
            delays_s=self._delays_s(runs),
            fetch_s=batch.fetch_s,
            hit_rates=batch.hits[rows, runs.observed] * began[:, None],
            hit_rate=batch.hit[rows, runs.observed] * began,
            step_s=np.where(began, seconds / steps, runs.base[0]),
            base_step_s=runs.base[0],
            step_j=np.where(began, joules / steps * batch.meter[rows, runs.boundary], runs.base[1]),
            base_step_j=runs.base[1],
            rebuild_share=_quotient(rebuild_s, seconds),
            miss_share=_quotient(miss_s, seconds),
            left_share=1 - runs.upcoming % self.epoch_steps / self.epoch_steps,
            previous=np.minimum(runs.current, len(self.actions) - 1),
        )
        return cache_state(observation, self.actions)

    def _delays_s(self, runs: _Runs) -> Floats:
        """Return the (B, P - 1) delays estimated from the last fetches; a slow link appears as a delay of its bytes."""
        batch = self._running()
        rows = np.arange(self.episodes)
        received = batch.received[rows, :, runs.boundary]
        late, per_byte, strays = received[:, 0], received[:, 1], received[:, 2]
        fetch_s = batch.fetch_s + per_byte * batch.miss_bytes[rows, runs.observed]
        return np.maximum(fetch_s * strays + late - batch.fetch_s, 0.0)  # an added delay is the same for all fetches

    def _forecast(self, delays_s: Floats) -> Floats:
        """Return the (B, A) seconds of a step of every action under delays (B, P - 1), by the calibrated costs."""
        forecast = np.empty((self.episodes, len(self.actions)))
        costs_of_runs = [episode.costs for episode in self.running]
        for costs in set(costs_of_runs):
            rows = np.array([costs == run_costs for run_costs in costs_of_runs])
            forecast[rows] = costs.of_actions(delays_s[rows]).seconds
        return forecast


class _Runs(NamedTuple):
    """The positions of all runs; the last axis of each array is B.

    Attributes:
        boundary: step at which a decision is due.
        upcoming: first step that the decision applies to.
        current: choice until then.
        observed: choice of the window that ended at the boundary.
        length: steps of that window; 0 if none ended.
        base: (2, B) seconds and joules of a step in the warm-up, at W = 16, evenly shared; the calibrated ones of clean
            links if these are far lower.
        searched: step up to which changes of the links were searched.
    """

    boundary: Numbers
    upcoming: Numbers
    current: Numbers
    observed: Numbers
    length: Numbers
    base: Floats
    searched: Numbers


@lru_cache(maxsize=256)
def _clean_step(costs: CacheCosts, action: int) -> tuple[float, float]:
    """Return the calibrated seconds and joules of a step on clean links."""
    clean = costs.of_actions(np.zeros(costs.parts - 1))
    return float(clean.seconds[action]), float(clean.joules[action])


def _quotient(above: Floats, below: Floats) -> Floats:
    """Divide; return 0 if the divisor is 0, as in runs that have ended or not begun."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)
