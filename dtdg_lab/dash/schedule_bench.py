"""Group times to be dragged in a lesson, and the schedule that each scheduler makes of them."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from typing import Any

from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.core.plans import Schedule
from dtdg_lab.core.units import format_seconds
from dtdg_lab.scheduling.bounds import lower_bound_s
from dtdg_lab.scheduling.checks import checked_times
from dtdg_lab.scheduling.solve import PSG, solve
from dtdg_lab.views.planned import planned_figure
from dtdg_lab.views.schedule_facts import share

MOST_GROUPS = 16  # sliders that fit beside each other
_SCHEDULERS = (PSG, "consecutive", "longest_first", "fold", "dygnex_greedy", "best_of")
_LIMIT_S = 0.2  # for those that search: a drag must be answered at once
_PICTURE = "application/vnd.plotly.v1+json"


class ScheduleBench:
    """Sliders for the times of a few groups, a choice of schedulers, and the Gantt chart of what is made of them.

    Every move of a slider schedules anew and redraws; ``set`` does what a drag does. Times are rounded to the sliders'
    step, about a hundredth of their range.

    Args:
        times_s: (K,) seconds of each group at first, above 0; at most 16 groups.
        ranks: R.
        schedulers: ``psg``, or names of the catalogue's room ``scheduling``.
        chosen: the one shown at first; the first of ``schedulers`` where not given.
        per_rank: most groups of a rank in an iteration; ``psg`` has one.

    Raises:
        ConfigError: there are too many groups, a time is 0, or no scheduler is given.
        PlanError: times are negative or not finite, or there is none.
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
        import ipywidgets  # type: ignore[import-untyped]

        first = checked_times(times_s)
        if len(first) > MOST_GROUPS or not first.all() or not schedulers:
            raise ConfigError(
                f"{len(first)} groups from {first.min():g} s on, schedulers {list(schedulers)}: a bench has 1 to "
                f"{MOST_GROUPS} groups that take time, and at least one scheduler."
            )
        self.ranks, self.per_rank, self.schedulers = ranks, per_rank, tuple(schedulers)
        if chosen and chosen not in schedulers:
            raise UnknownNameError("scheduler", chosen, schedulers)
        self._step_s = _round_step(float(first.max()) / 50)
        self._longest_s = self._on_step(2 * float(first.max()))
        self._sliders = [
            ipywidgets.FloatSlider(
                value=self._on_step(float(time)), min=self._step_s, max=self._longest_s, step=self._step_s,
                description=str(group), orientation="vertical", readout_format=".3g",
                layout={"width": "60px", "height": "170px"},
            )
            for group, time in enumerate(first)
        ]  # fmt: skip
        self._choice = ipywidgets.ToggleButtons(options=self.schedulers, value=chosen or self.schedulers[0])
        self._choice.style.button_width = "auto"
        self._choice.layout.margin = "10px 2px 4px"
        self._told, self._picture = ipywidgets.HTML(), ipywidgets.Output()
        head = ipywidgets.HTML("<b>Seconds of each group</b>: drag or type, and choose who schedules")
        self._box = ipywidgets.VBox([head, ipywidgets.HBox(self._sliders), self._choice, self._told, self._picture])
        self._held = False
        for widget in (*self._sliders, self._choice):
            widget.observe(lambda _: self._draw(), names="value")
        self._draw()

    def __repr__(self) -> str:
        return f"<ScheduleBench of {len(self._sliders)} groups on {self.ranks} ranks: {self.words}>"

    @property
    def times_s(self) -> list[float]:
        """Seconds of each group, as the sliders stand."""
        return [float(slider.value) for slider in self._sliders]

    @property
    def scheduler(self) -> str:
        """The one whose schedule is shown."""
        return str(self._choice.value)

    def set(self, times_s: Sequence[float] | None = None, *, scheduler: str | None = None) -> None:
        """Move all sliders or choose a scheduler without a pointer, as in tests.

        Raises:
            ConfigError: there are more or fewer times than sliders, or one is beyond its slider.
            UnknownNameError: that scheduler is not offered.
        """
        if scheduler is not None and scheduler not in self.schedulers:
            raise UnknownNameError("scheduler", scheduler, self.schedulers)
        times = self.times_s if times_s is None else [float(time) for time in times_s]
        if len(times) != len(self._sliders) or not all(0 < time <= self._longest_s for time in times):
            raise ConfigError(
                f"times {times} for {len(self._sliders)} sliders: give each one a time above 0 and up to "
                f"{self._longest_s:g} s."
            )
        self._held = True
        for slider, time in zip(self._sliders, times, strict=True):
            slider.value = self._on_step(time)
        self._choice.value = scheduler or self.scheduler
        self._held = False
        self._draw()

    def schedule(self, scheduler: str = "") -> Schedule:
        """What a scheduler makes of the times; the chosen one where none is named."""
        name = scheduler or self.scheduler
        return solve(name, checked_times(self.times_s), self.ranks, per_rank=self.per_rank, time_limit_s=_LIMIT_S)

    def makespan_s(self, scheduler: str = "") -> float:
        """Seconds of an epoch by that schedule."""
        return self.schedule(scheduler).makespan_s(checked_times(self.times_s))

    @property
    def bound_s(self) -> float:
        """Seconds that no schedule of these times can beat."""
        return lower_bound_s(self.times_s, self.ranks, per_rank=self.per_rank)

    @property
    def words(self) -> str:
        """The epoch of the chosen schedule, the bound, and the others."""
        ends = {name: self.makespan_s(name) for name in self.schedulers}
        mine, bound = ends[self.scheduler], self.bound_s
        others = ", ".join(f"{name} {format_seconds(end)}" for name, end in ends.items() if name != self.scheduler)
        above = f"{share(max(0.0, mine / bound - 1))} above the bound of {format_seconds(bound)}"
        return f"{self.scheduler} ends after {format_seconds(mine)}, {above}." + (f" Others: {others}." * bool(others))

    def _draw(self) -> None:
        if self._held:
            return
        figure = planned_figure(
            self.schedule(), self.times_s, per_rank=self.per_rank, label=self.scheduler, until_s=self._until_s
        )
        figure["layout"] |= {"height": 110 + 60 * self.ranks}
        words = self.words
        self._told.value = html.escape(words)
        data = {_PICTURE: json.loads(json.dumps(figure)), "text/plain": words}
        self._picture.outputs = ({"output_type": "display_data", "data": data, "metadata": {}},)

    def _on_step(self, time_s: float) -> float:
        """A time where a slider can stand: a page would move it there, and the kernel would not know why."""
        return round(max(1, round(time_s / self._step_s)) * self._step_s, 12)

    @property
    def _until_s(self) -> float:
        """The longest epoch of those offered, so that their charts can be compared."""
        return max(self.makespan_s(name) for name in self.schedulers)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return self._box._repr_mimebundle_(include=include, exclude=exclude)


def _round_step(most: float) -> float:
    """1, 2 or 5 times a power of ten, at most ``most``."""
    power = 10.0 ** math.floor(math.log10(most))
    return max(step * power for step in (1, 2, 5) if step * power <= most * (1 + 1e-9))
