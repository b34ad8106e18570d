"""Training under congestion in a formula: many runs at once, in which a policy decides wherever a cache is rebuilt.

A window costs the sum over its steps of what the calibrated costs say for its length, its allocation and the links at
that step, times noise that does not depend on what was chosen. What is decided at a boundary holds from the next one
on, as live: while one window trains, the cache of the next is built. Windows go on over the end of an epoch.

Where a change of the links is found, a window may be abandoned: the one that takes its place begins when its cache is
built, and the wasted rebuild is paid (``CacheBatch.owed``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.control.cache_batch import CacheBatch, WindowSums
from dtdg_lab.control.cache_cases import WARM_UP_EPOCHS, CacheCase
from dtdg_lab.control.cache_costs import CacheCosts
from dtdg_lab.control.cache_episode import CacheEpisode, CacheNoise, draw_episode
from dtdg_lab.control.cache_state import CacheObservation, cache_state
from dtdg_lab.control.cache_tables import cache_choices
from dtdg_lab.control.cache_views import CacheViews
from dtdg_lab.core.errors import ConfigError, PlanError
from dtdg_lab.core.feature_path import CacheActions

REFERENCE = 16  # the window, evenly shared, that a reward compares with (GreenDyGNN Eq. 5)
SLOW_BASE = 1.5  # a warm-up whose steps took longer than so many calibrated clean ones was congested itself
Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
States = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class StepInfo:
    """What one decision in each of B runs led to; runs that had ended before hold zeros.

    Attributes:
        joules: (B,) of the window that was decided, the price of changing the allocation included.
        seconds: (B,) likewise.
        steps: (B,) that it lasts: W, or less at the end of the run.
        passed: (B,) steps between the decision before and this one.
        reference_j: (B,) joules of the same steps with W = 16, evenly shared.
        changed: (B,) whether the allocation is another one than before.
        final_states: (B, 3 P + 11) states before places were given to new runs; what ``states`` is where none were.
    """

    joules: Floats
    seconds: Floats
    steps: Numbers
    passed: Numbers
    reference_j: Floats
    changed: Booleans
    final_states: States


class CacheSimulator:
    """B simulated runs, each at its own place (P parts, A = 8 P actions).

    Args:
        costs: calibrated costs, one for each data set; all of one number of parts P.
        cases: congestion that episodes are drawn from, in turn.
        episodes: B, how many runs go on at once.
        seed: of everything that is drawn; an episode is a pure function of the seed and its number.
        epochs: of a run.
        epoch_steps: steps of an epoch.
        penalty: lambda, taken off the reward where the allocation changes.
        reward: "ratio" gives ``-E / E_ref`` of the window decided (the paper's: means over its steps, so that a long
            window counts as much as a short one); "saved" gives ``(1 - E / E_ref) steps / 16`` (ours: it sums up to
            what a run saves). E_ref is that of W = 16, evenly shared, over the same steps.
        change_s: seconds that a change of the allocation costs, at the mean power of the reference.
        noise: how far things stray.
        restart: give the place of a run that ends to the next episode at once.
        draw: makes the episode of a number instead of ``cases``, for links that were recorded.

    Attributes:
        actions: what may be chosen.
        choices: the same, and the window of an epoch.
        episodes: B.
        reference: number of the action that rewards compare with.
        restarts: whether places are given to new runs.

    Raises:
        ConfigError: there is nothing to simulate, or a number is out of its bounds.

    References: GreenDyGNN sections IV-B and IV-C. Differs from the paper: the reward is that of the window that was
    decided, although it begins one window later (the paper's words leave it open).
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
            raise ConfigError(f"costs of {[cost.parts for cost in costs]} parts: some, all of one number, are needed.")
        if episodes < 1 or min(penalty, change_s) < 0 or reward not in ("ratio", "saved"):
            raise ConfigError(
                f"episodes={episodes}, penalty={penalty}, change_s={change_s}, reward={reward!r}: at least one "
                "episode, 0 or more, and 'ratio' or 'saved' are needed."
            )
        if not cases and draw is None:
            raise ConfigError("a simulation of no case: give cases of congestion, or draw, which makes episodes.")
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
        """Begin B episodes, and give their states (B, 3 P + 11) at step 0.

        Args:
            first: the choice that holds in the first window, which nobody decides, one or (B,); W = 16, evenly shared,
                where it is not given.
            number: of the first episode; those after the last ones where it is not given.
            length: (B,) steps of the first window, where it is to be abandoned before its last.

        Raises:
            PlanError: there is no such choice.
        """
        self._first = self._references
        if first is not None:
            self._first = self._checked(np.broadcast_to(np.asarray(first), (self.episodes,)))
        self._next_number = self._next_number if number is None else number
        self._batch = CacheBatch([self._draw(self._next_number + place) for place in range(self.episodes)])
        self._next_number += self.episodes
        windows = self.choices.windows[self._first]
        self._first_end = np.minimum(windows if length is None else np.asarray(length), self._batch.steps)
        self._at = self._fresh()
        return self._states()

    def step(self, actions: ArrayLike, lengths: ArrayLike | None = None) -> tuple[States, Floats, Booleans, StepInfo]:
        """Decide in every run, and go on to its next boundary.

        Args:
            actions: (B,) numbers of actions, or of the choice after them; what a run that has ended gets is ignored.
            lengths: (B,) steps after which the decided window is abandoned, at its price; W where not given.

        Returns:
            states (B, 3 P + 11), rewards (B,), done (B,) and what it cost. Where runs restart, ``done`` says which
            ended just now, and their states are the new ones'.

        Raises:
            PlanError: nothing has begun, or there is no such action.
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
            heard_of=at.current,
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
        """What the window costs that the runs began with, before anything was decided; each (B,)."""
        sums = self._from_start(self._first, self._first_end)
        none = np.zeros_like(self._first_end)
        owed_s, owed_j = self._owed(self._first, none, self._first_end)
        return sums._replace(seconds=sums.seconds + owed_s, joules=sums.joules + owed_j)

    def views(self) -> CacheViews:
        """What policies see now."""
        return self._views(self._at)

    def look(self) -> Booleans:
        """(B,) in which runs a change of the links is found before the window that serves ends; look there.

        Each call goes on from where the last one looked, until none is found. ``alarm_views`` and ``abandon`` are then
        about these steps.
        """
        at, batch = self._at, self._running()
        steps = np.arange(batch.looks.shape[1])
        found = batch.looks & (steps > at.looked[:, None]) & (steps < at.upcoming[:, None] - 1)
        found &= (at.upcoming < batch.steps)[:, None]
        self._alarmed: Booleans = np.asarray(found.any(axis=1))
        self._at = at._replace(looked=np.where(self._alarmed, found.argmax(axis=1), at.upcoming))
        return self._alarmed

    def alarm_views(self) -> tuple[CacheViews, Numbers]:
        """What policies see where a change was found, and (B,) how many steps the window that serves has left."""
        at = self._at
        seen = at._replace(
            boundary=np.where(self._alarmed, at.looked, at.boundary),
            length=np.where(self._alarmed, at.looked - at.boundary, at.length),
            heard_of=np.where(self._alarmed, at.current, at.heard_of),
        )
        return self._views(seen), at.upcoming - at.looked

    def abandon(self, actions: ArrayLike, which: Booleans) -> tuple[Booleans, Floats, Floats]:
        """End windows in which a change was found as soon as the cache of another action is built.

        Its rebuild takes what the law says for the links of that step, and the old cache serves meanwhile. Where the
        window ends no later than that, nothing is abandoned.

        Args:
            actions: (B,) that are to follow: give them to :meth:`step` next.
            which: (B,) where.

        Returns:
            (B,) where a window was abandoned, and the seconds and joules that it now costs more (or less): (B,) each.
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
        """The episode at each place."""
        return tuple(self._running().episodes)

    @property
    def upcoming(self) -> Numbers:
        """(B,) first step that the next decision holds for."""
        return self._at.upcoming

    @property
    def done(self) -> Booleans:
        """(B,) which runs have nothing left to decide."""
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
            raise PlanError("a simulation that has not begun: call reset first.")
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
        """What the first steps of all runs cost."""
        batch = self._running()
        return batch.window(choices, np.zeros_like(batch.steps), np.minimum(steps, batch.steps))

    def _fresh(self) -> _Runs:
        """All runs at step 0: nothing is heard yet, and their first window is about to serve."""
        batch, none = self._running(), np.zeros(self.episodes, dtype=np.int64)
        warm_up = WARM_UP_EPOCHS * self.epoch_steps
        sums = self._from_start(self._references, warm_up)
        base = np.stack([sums.seconds, sums.joules]) / np.minimum(warm_up, batch.steps)
        clean = np.array([_clean_step(episode.costs, self.reference) for episode in self.running]).T
        return _Runs(
            boundary=none,
            upcoming=self._first_end,
            current=self._first,
            heard_of=self._first,
            length=none,
            base=np.where(base[0] > SLOW_BASE * clean[0], clean, base),
            looked=none,
        )

    def _next_states(self, done: Booleans, states: States) -> States:
        """States to go on from: where runs restart, those of the episodes that take the places of ended ones."""
        if not (self.restarts and done.any()):
            return states
        for place in np.flatnonzero(done).tolist():
            self._running().put(place, self._draw(self._next_number))
            self._next_number += 1
        self._at = _Runs(*(np.where(done, new, old) for new, old in zip(self._fresh(), self._at, strict=True)))
        return self._states()

    def _states(self, at: _Runs | None = None) -> States:
        """(B, 3 P + 11) what is seen of the window that ended at the boundary where the runs are.

        Of its steps only those since the latest change point count.
        """
        at, batch = self._at if at is None else at, self._running()
        places = np.arange(self.episodes)
        first = np.maximum(at.boundary - at.length, np.minimum(batch.since[places, at.boundary], at.boundary - 1))
        first = np.maximum(np.where(at.length > 0, first, at.boundary), 0)
        seconds, joules, miss_s, rebuild_s = batch.window(at.heard_of, first, at.boundary)
        steps = np.maximum(at.boundary - first, 1)
        began = at.length > 0
        observation = CacheObservation(
            delays_s=self._delays_s(at),
            fetch_s=batch.fetch_s,
            hit_rates=batch.hits[places, at.heard_of] * began[:, None],
            hit_rate=batch.hit[places, at.heard_of] * began,
            step_s=np.where(began, seconds / steps, at.base[0]),
            base_step_s=at.base[0],
            step_j=np.where(began, joules / steps * batch.meter[places, at.boundary], at.base[1]),
            base_step_j=at.base[1],
            rebuild_share=_quotient(rebuild_s, seconds),
            miss_share=_quotient(miss_s, seconds),
            left_share=1 - at.upcoming % self.epoch_steps / self.epoch_steps,
            previous=np.minimum(at.current, len(self.actions) - 1),
        )
        return cache_state(observation, self.actions)

    def _delays_s(self, at: _Runs) -> Floats:
        """(B, P - 1) what the estimator makes of the last fetches: a slow link is heard as a delay of its bytes."""
        batch = self._running()
        places = np.arange(self.episodes)
        heard = batch.heard[places, :, at.boundary]
        late, per_byte, strays = heard[:, 0], heard[:, 1], heard[:, 2]
        fetch_s = batch.fetch_s + per_byte * batch.miss_bytes[places, at.heard_of]
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
    """Where all runs are; the last axis of each array is B.

    Attributes:
        boundary: step at which a decision is due.
        upcoming: first step that it holds for.
        current: choice that holds until then.
        heard_of: choice of the window that ended at the boundary.
        length: its steps; 0 where none did.
        base: (2, B) seconds and joules of a step in the warm-up, at W = 16, evenly shared; the calibrated ones of clean
            links where these are far shorter.
        looked: step up to which changes of the links were looked for.
    """

    boundary: Numbers
    upcoming: Numbers
    current: Numbers
    heard_of: Numbers
    length: Numbers
    base: Floats
    looked: Numbers


@lru_cache(maxsize=256)
def _clean_step(costs: CacheCosts, action: int) -> tuple[float, float]:
    """Seconds and joules of a step on clean links, as calibrated."""
    clean = costs.of_actions(np.zeros(costs.parts - 1))
    return float(clean.seconds[action]), float(clean.joules[action])


def _quotient(above: Floats, below: Floats) -> Floats:
    """0 where there is nothing to divide by: in runs that have ended, or not begun."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)
