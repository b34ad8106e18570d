"""Training under congestion in a formula: many runs at once, in which a policy decides wherever a cache is rebuilt.

A window costs the sum over its steps of what the calibrated costs say for its length, its allocation and the links at
that step, times noise that does not depend on what was chosen. What is decided at a boundary holds from the next one
on, as live: while one window trains, the cache of the next is built. Windows go on over the end of an epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
        reference_j: (B,) joules of the same steps with W = 16, evenly shared.
        changed: (B,) whether the allocation is another one than before.
        final_states: (B, 3 P + 11) states before places were given to new runs; what ``states`` is where none were.
    """

    joules: Floats
    seconds: Floats
    steps: Numbers
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

    def reset(self, first: ArrayLike | None = None, *, number: int | None = None) -> States:
        """Begin B episodes, and give their states (B, 3 P + 11) at step 0.

        Args:
            first: the choice that holds in the first window, which nobody decides, one or (B,); W = 16, evenly shared,
                where it is not given.
            number: of the first episode; those after the last ones where it is not given.

        Raises:
            PlanError: there is no such choice.
        """
        self._first = self._references
        if first is not None:
            self._first = self._checked(np.broadcast_to(np.asarray(first), (self.episodes,)))
        self._next_number = self._next_number if number is None else number
        self._batch = CacheBatch([self._draw(self._next_number + place) for place in range(self.episodes)])
        self._next_number += self.episodes
        self._at = self._fresh()
        return self._states()

    def step(self, actions: ArrayLike) -> tuple[States, Floats, Booleans, StepInfo]:
        """Decide in every run, and go on to its next boundary.

        Args:
            actions: (B,) numbers of actions, or of the choice after them; what a run that has ended gets is ignored.

        Returns:
            states (B, 3 P + 11), rewards (B,), done (B,) and what it cost. Where runs restart, ``done`` says which
            ended just now, and their states are the new ones'.

        Raises:
            PlanError: nothing has begun, or there is no such action.
        """
        batch, chosen, at = self._running(), self._checked(actions), self._at
        end = np.minimum(at.upcoming + self.choices.windows[chosen], batch.steps)
        steps = end - at.upcoming
        changed = (self.choices.allocations[chosen] != self.choices.allocations[at.current]) & (steps > 0)
        window, reference = batch.window_under((chosen, self._references), at.upcoming, end)
        extra_s = changed * self._change_s
        joules = window.joules + extra_s * _quotient(reference.joules, reference.seconds)
        ratio = _quotient(joules, reference.joules)
        rewards = -ratio if self._reward == "ratio" else (1 - ratio) * steps / REFERENCE
        self._at = _Runs(
            boundary=at.upcoming,
            upcoming=end,
            current=chosen,
            heard_of=at.current,
            length=at.upcoming - at.boundary,
            serving=np.array(window),
            heard=at.serving,
            base=at.base,
        )
        info = StepInfo(joules, window.seconds + extra_s, steps, reference.joules, changed, self._states())
        done = self.done & (steps > 0) if self.restarts else self.done
        return self._next_states(done, info.final_states), rewards - self._penalty * changed, done, info

    def first_window(self) -> WindowSums:
        """What the window costs that the runs began with, before anything was decided; each (B,)."""
        return self._from_start(self._first, self.choices.windows[self._first])

    def views(self) -> CacheViews:
        """What policies see now."""
        return CacheViews(
            states=self._states(),
            delays_s=self._delays_s(),
            steps=self._at.upcoming,
            steps_left=self.epoch_steps - self._at.upcoming % self.epoch_steps,
            previous=self._at.current,
            forecast=self._forecast,
            runs=np.array([episode.number for episode in self.running]),
        )

    @property
    def running(self) -> tuple[CacheEpisode, ...]:
        """The episode at each place."""
        return tuple(self._running().episodes)

    @property
    def done(self) -> Booleans:
        """(B,) which runs have nothing left to decide."""
        return self._at.upcoming >= self._running().steps

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
        base = self._from_start(self._references, warm_up)
        return _Runs(
            boundary=none,
            upcoming=np.minimum(self.choices.windows[self._first], batch.steps),
            current=self._first,
            heard_of=self._first,
            length=none,
            serving=np.stack(self.first_window()),
            heard=np.zeros((len(base), self.episodes)),
            base=np.stack([base.seconds, base.joules]) / np.minimum(warm_up, batch.steps),
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

    def _states(self) -> States:
        """(B, 3 P + 11) what is seen of the window that ended at the boundary where the runs are."""
        at, batch = self._at, self._running()
        places = np.arange(self.episodes)
        seconds, joules, miss_s, rebuild_s = at.heard
        steps = np.maximum(at.length, 1)
        began = at.length > 0
        observation = CacheObservation(
            delays_s=self._delays_s(),
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

    def _delays_s(self) -> Floats:
        """(B, P - 1) what the estimator makes of the last fetches: a slow link is heard as a delay of its bytes."""
        at, batch = self._at, self._running()
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
        serving: (4, B) sums of the current window.
        heard: (4, B) sums of the one that ended.
        base: (2, B) seconds and joules of a step in the warm-up, at W = 16, evenly shared.
    """

    boundary: Numbers
    upcoming: Numbers
    current: Numbers
    heard_of: Numbers
    length: Numbers
    serving: Floats
    heard: Floats
    base: Floats


def _quotient(above: Floats, below: Floats) -> Floats:
    """0 where there is nothing to divide by: in runs that have ended, or not begun."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)
