"""Widgets of lessons, with which learners choose batch sizes, cache windows and schedules."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np

from dtdg_lab.core.errors import ConfigError, PlanError, UnknownNameError
from dtdg_lab.core.plans import Schedule
from dtdg_lab.core.units import format_joules, format_percent, format_seconds, join_words
from dtdg_lab.lessons.checks import Shown
from dtdg_lab.lessons.figures import sizes_by_hand_figure
from dtdg_lab.rl.agent import checked_action
from dtdg_lab.systems.feature_cache.actions import WINDOWS, CacheActions
from dtdg_lab.systems.feature_cache.charts.manual_windows import (
    BEST,
    BY_HAND,
    CLAIRVOYANT,
    FIXED,
    Move,
    windows_by_hand_figure,
)
from dtdg_lab.systems.feature_cache.policies.baselines import Rule
from dtdg_lab.systems.feature_cache.policies.clairvoyant import Clairvoyant, best_plan, cost_of
from dtdg_lab.systems.feature_cache.policies.interface import ManyPolicy
from dtdg_lab.systems.feature_cache.simulation.comparison import always_compared, run_policy
from dtdg_lab.systems.feature_cache.simulation.episode import CacheEpisode
from dtdg_lab.systems.feature_cache.simulation.simulator import CacheSimulator
from dtdg_lab.systems.hybrid_batches.controller import make_controller
from dtdg_lab.systems.hybrid_batches.events import size_name
from dtdg_lab.systems.hybrid_batches.simulator import BatchSimulator, planned_s
from dtdg_lab.systems.snapshot_groups.gantt import planned_figure
from dtdg_lab.systems.snapshot_groups.schedulers.base import PSG, checked_times, lower_bound_s, solve
from dtdg_lab.visualization.chart import Figure


class _BenchWidget(Shown):
    """Widgets that the learner changes, above a sentence and a chart of the consequences."""

    def __init__(self, head: str, *widgets: Any) -> None:
        import ipywidgets  # type: ignore[import-untyped]

        self._described = ipywidgets.HTML()
        self._lay_out(ipywidgets.HTML(head), *widgets, self._described)
        self._held = False
        self._draw()

    def _set(self, values: Iterable[tuple[Any, Any]]) -> None:
        """Set the values of widgets, and draw once."""
        self._held = True
        for widget, value in values:
            widget.value = value
        self._held = False
        self._draw()

    def _draw(self) -> None:
        if self._held:
            return
        figure, caption = self._figure(), self.words
        self._described.value = html.escape(caption)
        self._draw_below(figure, caption)

    def _figure(self) -> Figure:
        raise NotImplementedError

    @property
    def words(self) -> str:
        """The sentence below the widgets."""
        raise NotImplementedError


# A manual plan of batch sizes for a simulated training, compared with controllers.


MOST_STAGES = 8  # number of menus that fit next to each other
_POLICIES = ("dqn", "bandit", "random")


class BatchBench(_BenchWidget):
    """Menus for the batch size in each stage of a simulated training, and the total time to the target.

    Every choice reruns the simulation and redraws the chart; ``set`` does the same from code. The plan starts with the
    middle size in all stages. Controllers start with it too and are simulated once per seed; their median time counts.

    Args:
        simulator: simulates the training.
        target: the loss to be reached.
        stages: number of stages, 1 to 8, each an equal part of the way to the target.
        policies: names of batch-size controllers in the catalogue.
        seeds: seeds of the controllers and of the noise that they observe.
        decide_every: number of steps between two decisions of a controller.

    Raises:
        ConfigError: there are no stages or too many, no seed, or the target is not between floor and start.
        UnknownNameError: there is no such controller.
    """

    def __init__(
        self,
        simulator: BatchSimulator,
        target: float,
        *,
        stages: int = 4,
        policies: Sequence[str] = _POLICIES,
        seeds: Sequence[int] = (0, 1, 2),
        decide_every: int = 5,
    ) -> None:
        import ipywidgets

        if not 1 <= stages <= MOST_STAGES or not seeds:
            raise ConfigError(
                f"{stages} stages and {len(seeds)} seeds were given, but 1 to {MOST_STAGES} stages and a seed "
                "are required."
            )
        self.simulator, self.target = simulator, target
        self._policies, self._seeds, self._decide_every = tuple(policies), tuple(seeds), decide_every
        self.labels = [size_name(*size) for size in simulator.sizes]
        self._middle = len(self.labels) // 2
        sizes = list(zip(self.labels, range(len(self.labels)), strict=True))
        slider_options = {"options": sizes, "value": self._middle, "layout": {"width": "210px"}}
        heads = [f"{stage * 100 // stages} %" if stage else "start" for stage in range(stages)]
        self._menus = [ipywidgets.Dropdown(description=head, **slider_options) for head in heads]
        for menu in self._menus:
            menu.observe(lambda _: self._draw(), names="value")
        menus = ipywidgets.HBox(self._menus, layout={"flex_flow": "row wrap"})
        super().__init__("<b>Snapshots × nodes per batch</b>, by progress towards the target", menus)

    def __repr__(self) -> str:
        return f"<BatchBench of {len(self._menus)} stages: {self.words}>"

    @property
    def plan(self) -> list[int]:
        """The action that the menu of each stage shows."""
        return [int(menu.value) for menu in self._menus]

    def set(self, plan: Sequence[int]) -> None:
        """Choose the action of every stage from code, as tests do.

        Raises:
            ConfigError: there are more or fewer actions than stages.
            PlanError: there is no such action.
        """
        if len(plan) != len(self._menus):
            raise ConfigError(f"{len(plan)} sizes were given for {len(self._menus)} stages. Give one for each.")
        for action in plan:
            checked_action(action, len(self.labels))
        self._set(zip(self._menus, map(int, plan), strict=True))

    @property
    def seconds(self) -> float:
        """The time to the target with the plan."""
        return planned_s(self.simulator, self.plan, self.target)

    @cached_property
    def fixed_s(self) -> list[float]:
        """The time to the target with each fixed size."""
        return [self.simulator.fixed_s_to(action, self.target) for action in range(len(self.labels))]

    @cached_property
    def by_seed_s(self) -> Mapping[str, list[float]]:
        """Controller -> the time to the target for each seed; infinite if it is never reached."""
        return {policy: [self._adjusted_s(policy, seed) for seed in self._seeds] for policy in self._policies}

    @property
    def batch_policy_s(self) -> dict[str, float]:
        """Controller -> the time to the target, the median over seeds."""
        return {policy: median(seconds) for policy, seconds in self.by_seed_s.items()}

    @property
    def words(self) -> str:
        """A comparison of the plan with the controllers and with the best and the worst fixed size."""
        best = self.fixed_s.index(min(self.fixed_s))
        compared = [f"{policy} {_time_words(seconds)}" for policy, seconds in self.batch_policy_s.items()]
        return (
            f"Manual plan: {format_seconds(self.seconds)}. Controllers: {join_words(compared) or 'none'}. Fixed sizes: "
            f"{format_seconds(self.fixed_s[best])} with the best, {self.labels[best]} (known only in hindsight); "
            f"{format_seconds(max(self.fixed_s))} with the worst."
        )

    def _adjusted_s(self, policy: str, seed: int) -> float:
        batch_policy = make_controller(policy, choices=len(self.labels), initial=self._middle, seed=seed)
        run = replace(self.simulator, seed=seed).run(batch_policy, target=self.target, decide_every=self._decide_every)
        return math.inf if run.seconds is None else run.seconds

    def _figure(self) -> Figure:
        return sizes_by_hand_figure(self.seconds, self.by_seed_s, dict(zip(self.labels, self.fixed_s, strict=True)))


def _time_words(seconds: float) -> str:
    return format_seconds(seconds) if math.isfinite(seconds) else "never reaches the target"


# Manual choices of window and prioritized owner at every rebuild of a simulated run, compared with policies.


_RIVALS = ("threshold", "epoch_hot")
_EVEN = "none"
_LATE_MS = 1.0  # delay above which a reply counts as late


class CacheBench(_BenchWidget):
    """Buttons for the window and the prioritized owner at each rebuild of one simulated run, and the resulting costs.

    The learner decides where policies do and sees the same observations: the estimated delay of each owner's replies,
    the hit rate and the step time. The conditions of the links so far are drawn next to them. A choice holds for W
    steps from the next boundary on. At the end, energy is compared. ``choose`` does the same as clicking *Rebuild*.

    Args:
        episode: the simulated conditions.
        policies: further rivals by name, besides the threshold rule, one cache per epoch, and two that know the future:
            the clairvoyant, and the best fixed window.

    Attributes:
        episode: the simulated conditions.
        windows: (first step, choice) of every window so far.

    References: GreenDyGNN section IV-B (the decision at a rebuild boundary).
    """

    def __init__(self, episode: CacheEpisode, policies: Mapping[str, ManyPolicy] | None = None) -> None:
        import ipywidgets

        self.episode, self._actions = episode, CacheActions(episode.trace.parts)
        self._always = always_compared(episode.trace.parts)
        self._policies = {**{name: self._always[name] for name in _RIVALS}, **(policies or {})}
        self._simulator = self._simulated()
        self.windows: list[tuple[int, int]] = []
        self._moves: list[Move] = []
        parts = [(f"part {part}", part) for part in range(1, episode.trace.parts)]
        self._window = ipywidgets.ToggleButtons(options=[*map(str, WINDOWS)], value="16", description="W")
        self._preferred = ipywidgets.ToggleButtons(options=[(_EVEN, 0), *parts], value=0, description="prefer")
        for choice in (self._window, self._preferred):
            choice.style.button_width = "auto"
        self._buttons = [
            self._button("Rebuild", self._rebuild),
            self._button("Keep it to the end", lambda: self._rebuild(True)),
            self._button("One back", self.back),
            self._button("Begin again", self.restart),
        ]
        head = "<b>The next cache</b>: its lifetime in steps, and the partition that gets most of it"
        super().__init__(head, self._window, self._preferred, ipywidgets.HBox(self._buttons))

    def __repr__(self) -> str:
        return f"<CacheBench of {self.episode.steps} steps: {self.words}>"

    @property
    def done(self) -> bool:
        """Whether the run has ended."""
        return bool(self.windows) and bool(self._simulator.done[0])

    @property
    def late_ms(self) -> dict[int, float]:
        """The estimated delay of each other part's replies in milliseconds; 0 before the first window."""
        late = self._simulator.views().delays_s[0] if self.windows else np.zeros(self._actions.parts - 1)
        return {part: 1e3 * float(delay_s) for part, delay_s in enumerate(late, start=1)}

    def choose(self, window: int, preferred: int | None = None) -> None:
        """Choose the next cache.

        Args:
            window: the number of steps W, one of eight.
            preferred: the part that gets 60 % of the cache; None for equal shares.

        Raises:
            PlanError: the run has ended, or the window or the part is invalid.
        """
        self._choose(window, preferred)
        self._draw()

    def keep(self, window: int, preferred: int | None = None) -> None:
        """Make the same choice at all remaining boundaries.

        Raises:
            PlanError: the window or the part is invalid.
        """
        self.follow(lambda late_ms: (window, preferred))

    def follow(self, rule: Rule) -> None:
        """Let a function decide at all remaining boundaries (see ``RuleWindows``).

        Raises:
            PlanError: the function returns an invalid window or part.
        """
        while not self.done:
            self._choose(*rule(self.late_ms))
        self._draw()

    def back(self) -> None:
        """Undo the last choice, if there is one."""
        earlier = self.windows[:-1]
        self.windows, self._moves = [], []
        for _, action in earlier:
            self._play(action)
        self._draw()

    def restart(self) -> None:
        """Restart the same run."""
        self.windows, self._moves = [], []
        self._draw()

    @property
    def joules(self) -> float:
        """The energy of the whole run for one part.

        Raises:
            PlanError: the run has not ended.
        """
        if not self.done:
            raise PlanError("a run has no total before its end. Choose until it ends, or keep a choice to the end.")
        return cost_of(self.episode, self.windows)

    @cached_property
    def played(self) -> Mapping[str, list[tuple[int, int]]]:
        """Rival -> its windows on the same run, as (first step, choice) of each."""
        clairvoyant = Clairvoyant(best_plan([self.episode]), [self.episode.number])
        fixed = {name: policy for name, policy in self._always.items() if name.startswith(FIXED)}
        policies = {
            name: list(run_policy(self._simulated(), policy, number=0).windows[0])
            for name, policy in {**self._policies, **fixed, CLAIRVOYANT: clairvoyant}.items()
        }
        best = min(fixed, key=lambda name: cost_of(self.episode, policies[name]))
        return {
            **{name: policy for name, policy in policies.items() if name not in fixed or name in self._policies},
            BEST: policies[best],
        }

    @cached_property
    def rivals_j(self) -> Mapping[str, float]:
        """Rival -> its joules on the same run."""
        return {name: cost_of(self.episode, windows) for name, windows in self.played.items()}

    @property
    def over_clairvoyant(self) -> float:
        """By how much the energy exceeds that of the best plan, relative to it; never below 0.

        Raises:
            PlanError: the run has not ended.
        """
        return self.joules / self.rivals_j[CLAIRVOYANT] - 1

    @property
    def words(self) -> str:
        """What is observed at this boundary, or, after the run, the energy of all rivals."""
        if self.done:
            return self._score()
        if not self.windows:
            return f"Step 0 of {self.episode.steps}. Choose the first cache; the links are not observed yet."
        views, state = self._simulator.views(), self._simulator.views().states[0]
        at, others = self.windows[-1][0], self._actions.parts - 1
        window, preferred = self._meant(self.windows[-1][1])
        late = [f"partition {part} {ms:.0f} ms" for part, ms in self.late_ms.items() if ms >= _LATE_MS]
        sharing = "shared equally" if preferred is None else f"mostly for partition {preferred}"
        text = (
            f"Step {at} of {self.episode.steps}. Up to step {int(views.steps[0]) - 1} the cache has W = {window}, "
            f"{sharing}; choose the one after it. Estimated delays: {join_words(late) or 'none'}."
        )
        if not at:
            return text
        return (
            f"{text} In the last window the hit rate was {format_percent(float(state[2 * others]))}, and a step took "
            f"{np.exp(state[2 * others + 1]):.2f} times as long as on clean links."
        )

    def _score(self) -> str:
        best = self.rivals_j[CLAIRVOYANT]
        ranked = sorted((joules, name) for name, joules in self.rivals_j.items() if name != CLAIRVOYANT)
        entries = [f"{name} {format_percent(joules / best - 1)}" for joules, name in ranked]
        window, _ = self._meant(self.played[BEST][0][1])
        return (
            f"Manual choices: {format_joules(self.joules)}, {format_percent(self.over_clairvoyant)} more than the "
            f"clairvoyant. Others: {join_words(entries)}. The best fixed window, W = {window}, is known "
            "only in hindsight."
        )

    def _simulated(self) -> CacheSimulator:
        return CacheSimulator([self.episode.costs], epoch_steps=self.episode.epoch_steps, draw=lambda _: self.episode)

    def _meant(self, choice: int) -> tuple[int, int | None]:
        """Return the window and the preferred part of a choice; a cache for a whole epoch is not an action."""
        if choice >= len(self._actions):
            return self.episode.epoch_steps, None
        action = self._actions.biased(choice)
        return self._actions.window(choice), None if action is None else action + 1

    def _choose(self, window: int, preferred: int | None) -> None:
        if self.done:
            raise PlanError("the run has ended. Undo choices, or restart it.")
        if preferred is not None and not 1 <= preferred < self._actions.parts:
            raise PlanError(f"partition {preferred} is not remote. Choose 1 to {self._actions.parts - 1}, or None.")
        self._play(self._actions.action(window, None if preferred is None else preferred - 1))

    def _play(self, action: int) -> None:
        """Advance by one decision; the first one decides the initial cache."""
        late = tuple(self.late_ms.values())
        heard_at = self.windows[-1][0] if self.windows else 0
        first = int(self._simulator.views().steps[0]) if self.windows else 0
        if self.windows:
            self._simulator.step([action])
        else:
            self._simulator.reset(action, number=0)
        self.windows.append((first, action))
        window, preferred = self._meant(action)
        self._moves.append(Move(first, window, preferred, heard_at, late))

    def _button(self, label: str, act: Any) -> Any:
        import ipywidgets

        button = ipywidgets.Button(description=label, layout={"width": "auto"})
        button.on_click(lambda _: act())
        return button

    def _rebuild(self, to_the_end: bool = False) -> None:
        """Apply the clicked choice once, or at all remaining boundaries."""
        if self.done:
            return
        act = self.keep if to_the_end else self.choose
        act(int(self._window.value), int(self._preferred.value) or None)

    def _figure(self) -> Figure:
        step = self.episode.steps if self.done else (self.windows[-1][0] if self.windows else 0)
        played = {BY_HAND: self.windows, **self.played} if self.windows else {}
        return windows_by_hand_figure(
            self.episode, self._moves, played, late_ms=tuple(self.late_ms.values()), current_step=step
        )

    def _draw(self) -> None:
        super()._draw()
        for button in self._buttons[:2]:
            button.disabled = self.done


# Group times that learners drag, and the resulting schedule of each scheduler.


MOST_GROUPS = 16  # number of sliders that fit next to each other
_SCHEDULERS = (PSG, "consecutive", "longest_first", "fold", "dygnex_greedy", "best_of")
_LIMIT_S = 0.2  # time limit for schedulers that search, since a dragged slider must respond immediately


class ScheduleBench(_BenchWidget):
    """Sliders for the times of a few groups, a choice of schedulers, and the Gantt chart of the resulting schedule.

    Every move of a slider makes a new schedule and redraws the chart; ``set`` does the same from code. Times are
    rounded to the step of the sliders, about a hundredth of their range.

    Args:
        times_s: (K,) initial seconds of each group, above 0; at most 16 groups.
        ranks: number of ranks R.
        schedulers: ``psg``, or names in the catalogue's section ``scheduling``.
        chosen: the scheduler that is shown first; by default the first of ``schedulers``.
        per_rank: maximum number of groups of a rank in an iteration; ``psg`` has one.

    Raises:
        ConfigError: there are too many groups, a time is 0, or no scheduler is given.
        PlanError: times are negative or not finite, or there are none.
        UnknownNameError: there is no such scheduler.
    """

    def __init__(
        self,
        times_s: Sequence[float],
        ranks: int,
        *,
        schedulers: Sequence[str] = _SCHEDULERS,
        chosen: str = "",
        per_rank: int = 2,
    ) -> None:
        import ipywidgets

        first = checked_times(times_s)
        if len(first) > MOST_GROUPS or not first.all() or not schedulers:
            raise ConfigError(
                f"{len(first)} groups from {first.min():g} s on and schedulers {list(schedulers)} were given, but 1 to "
                f"{MOST_GROUPS} groups with times above 0 and at least one scheduler are required."
            )
        self.ranks, self.per_rank, self.schedulers = ranks, per_rank, tuple(schedulers)
        if chosen and chosen not in schedulers:
            raise UnknownNameError("scheduler", chosen, schedulers)
        self._step_s = _round_step(float(first.max()) / 50)
        self._longest_s = self._on_step(2 * float(first.max()))
        span = {"min": self._step_s, "max": self._longest_s, "step": self._step_s}
        slider_options = {
            "orientation": "vertical",
            "readout_format": ".3g",
            "layout": {"width": "60px", "height": "170px"},
        }
        self._sliders = [
            ipywidgets.FloatSlider(value=self._on_step(float(time)), description=str(group), **span, **slider_options)
            for group, time in enumerate(first)
        ]
        self._choice = ipywidgets.ToggleButtons(options=self.schedulers, value=chosen or self.schedulers[0])
        self._choice.style.button_width = "auto"
        self._choice.layout.margin = "10px 2px 4px"
        for widget in (*self._sliders, self._choice):
            widget.observe(lambda _: self._draw(), names="value")
        head = "<b>Seconds of each group</b>: drag or type, and choose a scheduler"
        super().__init__(head, ipywidgets.HBox(self._sliders), self._choice)

    def __repr__(self) -> str:
        return f"<ScheduleBench of {len(self._sliders)} groups on {self.ranks} ranks: {self.words}>"

    @property
    def times_s(self) -> list[float]:
        """Seconds of each group, as the sliders show them."""
        return [float(slider.value) for slider in self._sliders]

    @property
    def scheduler(self) -> str:
        """The scheduler whose schedule is shown."""
        return str(self._choice.value)

    def set(self, times_s: Sequence[float] | None = None, *, scheduler: str | None = None) -> None:
        """Move all sliders or choose a scheduler from code, as tests do.

        Raises:
            ConfigError: there are more or fewer times than sliders, or one is beyond the range of its slider.
            UnknownNameError: the scheduler is not among the choices.
        """
        if scheduler is not None and scheduler not in self.schedulers:
            raise UnknownNameError("scheduler", scheduler, self.schedulers)
        times = self.times_s if times_s is None else [float(time) for time in times_s]
        if len(times) != len(self._sliders) or not all(0 < time <= self._longest_s for time in times):
            raise ConfigError(
                f"times {times} were given for {len(self._sliders)} sliders. Give each one a time above 0 and up to "
                f"{self._longest_s:g} s."
            )
        moved = zip(self._sliders, map(self._on_step, times), strict=True)
        self._set([*moved, (self._choice, scheduler or self.scheduler)])

    def schedule(self, scheduler: str = "") -> Schedule:
        """Return the schedule for these times; by default of the chosen scheduler."""
        name = scheduler or self.scheduler
        return solve(name, checked_times(self.times_s), self.ranks, per_rank=self.per_rank, time_limit_s=_LIMIT_S)

    def makespan_s(self, scheduler: str = "") -> float:
        """Return the seconds of an epoch with that schedule."""
        return self.schedule(scheduler).makespan_s(checked_times(self.times_s))

    @property
    def bound_s(self) -> float:
        """A lower bound for any schedule of these times, in seconds."""
        return lower_bound_s(self.times_s, self.ranks, per_rank=self.per_rank)

    @property
    def words(self) -> str:
        """A comparison of the chosen schedule with the bound and with the other schedulers."""
        ends = {name: self.makespan_s(name) for name in self.schedulers}
        chosen_s, bound = ends[self.scheduler], self.bound_s
        compared = ", ".join(f"{name} {format_seconds(end)}" for name, end in ends.items() if name != self.scheduler)
        above = f"{format_percent(max(0.0, chosen_s / bound - 1))} above the bound of {format_seconds(bound)}"
        return f"{self.scheduler} ends after {format_seconds(chosen_s)}, {above}." + (
            f" Others: {compared}." * bool(compared)
        )

    def _figure(self) -> Figure:
        until_s = max(self.makespan_s(name) for name in self.schedulers)  # the same time axis for all schedulers
        chart_options: dict[str, Any] = {"per_rank": self.per_rank, "label": self.scheduler, "until_s": until_s}
        figure = planned_figure(self.schedule(), self.times_s, **chart_options)
        figure["layout"] |= {"height": 110 + 60 * self.ranks}
        return figure

    def _on_step(self, time_s: float) -> float:
        """Return the nearest position of a slider, since the page would round a value without notifying the kernel."""
        return round(max(1, round(time_s / self._step_s)) * self._step_s, 12)


def _round_step(maximum: float) -> float:
    """Return the largest of 1, 2 or 5 times a power of ten that is at most ``maximum``."""
    power = 10.0 ** math.floor(math.log10(maximum))
    return max(step * power for step in (1, 2, 5) if step * power <= maximum * (1 + 1e-9))
