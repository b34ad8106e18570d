"""A bench for lessons: a size of batches for every stage of a simulated training, against adjusters."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from statistics import median
from typing import Any

from dtdg_lab.control.agent import checked_action
from dtdg_lab.control.batch_adjuster import make_adjuster
from dtdg_lab.control.batch_simulator import BatchSimulator
from dtdg_lab.control.hand_plan import planned_s
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.units import format_seconds
from dtdg_lab.views.hybrid_facts import given_words
from dtdg_lab.views.layout import join_words
from dtdg_lab.views.sizes_by_hand import sizes_by_hand_figure

MOST_STAGES = 8  # menus that fit beside each other
_POLICIES = ("dqn", "bandit", "random")
_PICTURE = "application/vnd.plotly.v1+json"


class BatchBench:
    """Menus for the size of batches in each stage of a simulated training, and the seconds that all of them take.

    Every choice simulates anew and redraws; ``set`` does what a choice does. The plan has the middle size throughout at
    first. Adjusters begin with it too, and are simulated once for each seed; the median of their seconds counts.

    Args:
        simulator: of the training.
        target: the loss to be reached.
        stages: of the plan, 1 to 8, of equal length on the way to the target.
        policies: adjusters of the catalogue.
        seeds: of adjusters and of what they hear.
        decide_every: steps between two decisions of an adjuster.

    Raises:
        ConfigError: there are no stages or too many, no seed, or the target is not between floor and start.
        UnknownNameError: there is no such adjuster.
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
        import ipywidgets  # type: ignore[import-untyped]

        if not 1 <= stages <= MOST_STAGES or not seeds:
            raise ConfigError(
                f"{stages} stages, {len(seeds)} seeds: a bench has 1 to {MOST_STAGES} stages and at least one seed."
            )
        self.simulator, self.target = simulator, target
        self._policies, self._seeds, self._decide_every = tuple(policies), tuple(seeds), decide_every
        self.labels = [" x ".join(given_words(share) for share in size) for size in simulator.sizes]
        self._middle = len(self.labels) // 2
        self._menus = [
            ipywidgets.Dropdown(
                options=list(zip(self.labels, range(len(self.labels)), strict=True)), value=self._middle,
                description=f"{stage * 100 // stages} % on" if stage else "at first", layout={"width": "210px"},
            )
            for stage in range(stages)
        ]  # fmt: skip
        self._told, self._picture = ipywidgets.HTML(), ipywidgets.Output()
        head = ipywidgets.HTML("<b>Snapshots x vertices of a batch</b>, from each stage of the way to the target on")
        menus = ipywidgets.HBox(self._menus, layout={"flex_flow": "row wrap"})
        self._box = ipywidgets.VBox([head, menus, self._told, self._picture])
        self._held = False
        for menu in self._menus:
            menu.observe(lambda _: self._draw(), names="value")
        self._draw()

    def __repr__(self) -> str:
        return f"<BatchBench of {len(self._menus)} stages: {self.words}>"

    @property
    def plan(self) -> list[int]:
        """Action of each stage, as the menus stand."""
        return [int(menu.value) for menu in self._menus]

    def set(self, plan: Sequence[int]) -> None:
        """Choose the action of every stage without a pointer, as in tests.

        Raises:
            ConfigError: there are more or fewer actions than stages.
            PlanError: there is no such action.
        """
        if len(plan) != len(self._menus):
            raise ConfigError(f"{len(plan)} sizes for {len(self._menus)} stages: give one for each.")
        for action in plan:
            checked_action(action, len(self.labels))
        self._held = True
        for menu, action in zip(self._menus, plan, strict=True):
            menu.value = int(action)
        self._held = False
        self._draw()

    @property
    def seconds(self) -> float:
        """To the target, by the plan."""
        return planned_s(self.simulator, self.plan, self.target)

    @cached_property
    def fixed_s(self) -> list[float]:
        """To the target, of each size alone."""
        return [self.simulator.fixed_s_to(action, self.target) for action in range(len(self.labels))]

    @cached_property
    def by_seed_s(self) -> Mapping[str, list[float]]:
        """To the target, of each adjuster, by seed; infinite where it never arrives."""
        return {policy: [self._adjusted_s(policy, seed) for seed in self._seeds] for policy in self._policies}

    @property
    def adjuster_s(self) -> dict[str, float]:
        """To the target, of each adjuster: the median over seeds."""
        return {policy: median(seconds) for policy, seconds in self.by_seed_s.items()}

    @property
    def words(self) -> str:
        """How the plan stands against adjusters and the best and the worst fixed size."""
        best = self.fixed_s.index(min(self.fixed_s))
        others = [f"{policy} {_told(seconds)}" for policy, seconds in self.adjuster_s.items()]
        return (
            f"By hand {format_seconds(self.seconds)}. Adjusters: {join_words(others) or 'none'}. Fixed sizes: "
            f"{format_seconds(self.fixed_s[best])} with the best, {self.labels[best]}, which only hindsight knows; "
            f"{format_seconds(max(self.fixed_s))} with the worst."
        )

    def _adjusted_s(self, policy: str, seed: int) -> float:
        adjuster = make_adjuster(policy, choices=len(self.labels), initial=self._middle, seed=seed)
        run = replace(self.simulator, seed=seed).run(adjuster, target=self.target, decide_every=self._decide_every)
        return math.inf if run.seconds is None else run.seconds

    def _draw(self) -> None:
        if self._held:
            return
        fixed = dict(zip(self.labels, self.fixed_s, strict=True))
        figure = sizes_by_hand_figure(self.seconds, self.by_seed_s, fixed)
        words = self.words
        self._told.value = html.escape(words)
        data = {_PICTURE: json.loads(json.dumps(figure)), "text/plain": words}
        self._picture.outputs = ({"output_type": "display_data", "data": data, "metadata": {}},)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return self._box._repr_mimebundle_(include=include, exclude=exclude)


def _told(seconds: float) -> str:
    return format_seconds(seconds) if math.isfinite(seconds) else "never arrives"
