"""A bench for lessons: the window and the preferred owner of every rebuild of a simulated run, against policies."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from dtdg_lab.control.cache_comparison import always_compared, run_policy
from dtdg_lab.control.cache_episode import CacheEpisode
from dtdg_lab.control.cache_rule import Rule
from dtdg_lab.control.cache_simulator import CacheSimulator
from dtdg_lab.control.cache_views import ManyPolicy
from dtdg_lab.control.clairvoyant import Clairvoyant, best_plan, cost_of
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.feature_path import WINDOWS, CacheActions
from dtdg_lab.core.units import format_joules
from dtdg_lab.views.layout import join_words, share
from dtdg_lab.views.policy_table import BEST, CLAIRVOYANT, FIXED
from dtdg_lab.views.windows_by_hand import BY_HAND, Move, windows_by_hand_figure

_PICTURE = "application/vnd.plotly.v1+json"
_RIVALS = ("threshold", "epoch_hot")
_EVEN = "nobody"
_LATE_MS = 1.0  # from which a reply is told to be late


class CacheBench:
    """Buttons for the window and the preferred owner of each rebuild of one simulated run, and what they cost.

    Whoever plays decides where policies do, and sees what they see: how late each owner's replies are thought to be,
    how much was hit, how slow steps were; beside it, what was done to the links up to then. A choice holds from the
    next boundary on, for W steps. At the end joules are compared. ``choose`` does what a click on *Rebuild* does.

    Args:
        episode: what the run meets.
        policies: rivals by name, beside the threshold rule and one cache for each epoch, and those that know what is
            to come: the clairvoyant, and the best fixed window.

    Attributes:
        episode: what the run meets.
        windows: (first step, choice) of every window so far, the first one too.

    References: GreenDyGNN section IV-B: the decision at a rebuild boundary.
    """

    def __init__(self, episode: CacheEpisode, policies: Mapping[str, ManyPolicy] | None = None) -> None:
        import ipywidgets  # type: ignore[import-untyped]

        self.episode, self._actions = episode, CacheActions(episode.trace.parts)
        self._always = always_compared(episode.trace.parts)
        self._policies = {**{name: self._always[name] for name in _RIVALS}, **(policies or {})}
        self._simulator = self._simulated()
        self.windows: list[tuple[int, int]] = []
        self._moves: list[Move] = []
        others = [(f"part {part}", part) for part in range(1, episode.trace.parts)]
        self._window = ipywidgets.ToggleButtons(options=[*map(str, WINDOWS)], value="16", description="W")
        self._preferred = ipywidgets.ToggleButtons(options=[(_EVEN, 0), *others], value=0, description="prefer")
        for choice in (self._window, self._preferred):
            choice.style.button_width = "auto"
        self._buttons = [
            self._button("Rebuild", self._rebuild), self._button("Keep it to the end", lambda: self._rebuild(True)),
            self._button("One back", self.back), self._button("Begin again", self.restart),
        ]  # fmt: skip
        self._told, self._picture = ipywidgets.HTML(), ipywidgets.Output()
        head = ipywidgets.HTML("<b>The next cache</b>: how many steps it serves, and whose rows get most of it")
        acts = ipywidgets.HBox(self._buttons)
        self._box = ipywidgets.VBox([head, self._window, self._preferred, acts, self._told, self._picture])
        self._draw()

    def __repr__(self) -> str:
        return f"<CacheBench of {self.episode.steps} steps: {self.words}>"

    @property
    def done(self) -> bool:
        """Whether the run has ended."""
        return bool(self.windows) and bool(self._simulator.done[0])

    @property
    def late_ms(self) -> dict[int, float]:
        """Milliseconds that each other part's replies are thought to be late, now; nothing is heard at the start."""
        late = self._simulator.views().delays_s[0] if self.windows else np.zeros(self._actions.parts - 1)
        return {part: 1e3 * float(each) for part, each in enumerate(late, start=1)}

    def choose(self, window: int, preferred: int | None = None) -> None:
        """Choose the next cache.

        Args:
            window: W, one of the eight of an action.
            preferred: part that gets 60 % of it; None for equal shares.

        Raises:
            PlanError: the run has ended, or there is no such window or part.
        """
        self._choose(window, preferred)
        self._draw()

    def keep(self, window: int, preferred: int | None = None) -> None:
        """Choose the same at every boundary that is left.

        Raises:
            PlanError: there is no such window or part.
        """
        self.follow(lambda late_ms: (window, preferred))

    def follow(self, rule: Rule) -> None:
        """Let a function decide at every boundary that is left: see ``RuleWindows``.

        Raises:
            PlanError: it gives no window and part that can be chosen.
        """
        while not self.done:
            self._choose(*rule(self.late_ms))
        self._draw()

    def back(self) -> None:
        """Take the last choice back; where there is none, nothing happens."""
        kept = self.windows[:-1]
        self.windows, self._moves = [], []
        for _, action in kept:
            self._play(action)
        self._draw()

    def restart(self) -> None:
        """Begin the same run again."""
        self.windows, self._moves = [], []
        self._draw()

    @property
    def joules(self) -> float:
        """Of the whole run, of one part.

        Raises:
            PlanError: it has not ended.
        """
        if not self.done:
            raise PlanError("a run that goes on has no sum yet: choose until it ends, or keep a choice to the end.")
        return cost_of(self.episode, self.windows)

    @cached_property
    def played(self) -> Mapping[str, list[tuple[int, int]]]:
        """Windows of every rival on the same run, by name: (first step, choice) of each."""
        clairvoyant = Clairvoyant(best_plan([self.episode]), [self.episode.number])
        fixed = {name: policy for name, policy in self._always.items() if name.startswith(FIXED)}
        found = {
            name: list(run_policy(self._simulated(), policy, number=0).windows[0])
            for name, policy in {**self._policies, **fixed, CLAIRVOYANT: clairvoyant}.items()
        }
        best = min(fixed, key=lambda name: cost_of(self.episode, found[name]))
        return {**{name: each for name, each in found.items() if name not in fixed or name in self._policies},
                BEST: found[best]}  # fmt: skip

    @cached_property
    def rivals_j(self) -> Mapping[str, float]:
        """Joules of every rival on the same run, by name."""
        return {name: cost_of(self.episode, windows) for name, windows in self.played.items()}

    @property
    def over_clairvoyant(self) -> float:
        """Joules over those of the best plan, less 1; never below 0.

        Raises:
            PlanError: the run has not ended.
        """
        return self.joules / self.rivals_j[CLAIRVOYANT] - 1

    @property
    def words(self) -> str:
        """How it stands: what is seen at this boundary, or at the end, who spent how much."""
        if self.done:
            return self._score()
        if not self.windows:
            return f"Step 0 of {self.episode.steps}. Choose the first cache; nothing is heard of the links yet."
        views, state = self._simulator.views(), self._simulator.views().states[0]
        at, others = self.windows[-1][0], self._actions.parts - 1
        window, preferred = self._meant(self.windows[-1][1])
        late = [f"part {part} {ms:.0f} ms" for part, ms in self.late_ms.items() if ms >= _LATE_MS]
        liked = "for all alike" if preferred is None else f"most of it for part {preferred}"
        text = (
            f"Step {at} of {self.episode.steps}. Up to step {int(views.steps[0]) - 1} a cache of W = {window} serves, "
            f"{liked}; choose the one after it. Thought to be late: {join_words(late) or 'nobody'}."
        )
        if not at:
            return text
        return (
            f"{text} In the last window {share(float(state[2 * others]))} were hit, and a step took "
            f"{np.exp(state[2 * others + 1]):.2f} times as long as on clean links."
        )

    def _score(self) -> str:
        best = self.rivals_j[CLAIRVOYANT]
        ranked = sorted((joules, name) for name, joules in self.rivals_j.items() if name != CLAIRVOYANT)
        told = [f"{name} {share(joules / best - 1)}" for joules, name in ranked]
        window, _ = self._meant(self.played[BEST][0][1])
        return (
            f"By hand {format_joules(self.joules)}, {share(self.over_clairvoyant)} more than the clairvoyant. Others: "
            f"{join_words(told)}. The best fixed window, W = {window}, only hindsight knows."
        )

    def _simulated(self) -> CacheSimulator:
        return CacheSimulator([self.episode.costs], epoch_steps=self.episode.epoch_steps, draw=lambda _: self.episode)

    def _meant(self, choice: int) -> tuple[int, int | None]:
        """Window and preferred part of a choice; that of an epoch is no action."""
        if choice >= len(self._actions):
            return self.episode.epoch_steps, None
        place = self._actions.biased(choice)
        return self._actions.window(choice), None if place is None else place + 1

    def _choose(self, window: int, preferred: int | None) -> None:
        if self.done:
            raise PlanError("the run has ended: take choices back, or begin again.")
        if preferred is not None and not 1 <= preferred < self._actions.parts:
            raise PlanError(f"part {preferred} is not asked: prefer one from 1 to {self._actions.parts - 1}, or None.")
        self._play(self._actions.action(window, None if preferred is None else preferred - 1))

    def _play(self, action: int) -> None:
        """Go on by one decision; the first of all says what a run begins with."""
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

    def _button(self, words: str, act: Any) -> Any:
        import ipywidgets

        button = ipywidgets.Button(description=words, layout={"width": "auto"})
        button.on_click(lambda _: act())
        return button

    def _rebuild(self, to_the_end: bool = False) -> None:
        """What the buttons do; at the end they do nothing."""
        if self.done:
            return
        act = self.keep if to_the_end else self.choose
        act(int(self._window.value), int(self._preferred.value) or None)

    def _draw(self) -> None:
        now = self.episode.steps if self.done else (self.windows[-1][0] if self.windows else 0)
        played = {BY_HAND: self.windows, **self.played} if self.windows else {}
        figure = windows_by_hand_figure(
            self.episode, self._moves, played, late_ms=tuple(self.late_ms.values()), now=now
        )
        words = self.words
        self._told.value = html.escape(words)
        data = {_PICTURE: json.loads(json.dumps(figure)), "text/plain": words}
        self._picture.outputs = ({"output_type": "display_data", "data": data, "metadata": {}},)
        for button in self._buttons[:2]:
            button.disabled = self.done

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return self._box._repr_mimebundle_(include=include, exclude=exclude)
