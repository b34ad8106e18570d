"""A pretend run of scheduled snapshot groups: they take known times, and are scheduled again after each change."""

from __future__ import annotations

from typing import Any

import numpy as np
from pretend_session import PretendRun, PretendSession
from schedules_synthetic import epoch_lines, schedule_data
from synthetic_lines import START_NS, knob_row

from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.plans import Schedule
from dtdg_lab.systems.snapshot_groups.schedulers.base import solve
from dtdg_lab.training.live_settings import check_changes

GROUPS, PROFILED = 40, 2
TIMES = np.linspace(0.004, 0.04, GROUPS)  # a graph that grows
SYSTEM = {"dataset": "growing", "epochs": 50, "system": "dygnex-g"}


class ScheduledRun(PretendRun):
    """Groups take ``TIMES`` with a little noise; scheduled by sizes, then by times, and again after each change."""

    def __init__(self, config: RunConfig, number: int) -> None:
        super().__init__(config, number)
        self.epoch, self.slow = 0, [1.0] * config.ranks
        self._noise = np.random.default_rng(number)
        self._steps: list[list[dict[str, Any]]] = []  # lines of the steps left in this epoch
        self._at_s = 0.0
        self.unscheduled = "scheduling" not in catalogue.system(config.system).parts
        self._schedule("size")

    def set(self, *, by: str | None = None, **live_settings: Any) -> int:
        check_changes(self.config, live_settings)
        return super().set(**live_settings)

    def _schedule(self, source: str) -> None:
        config = self.config
        if self.unscheduled:
            return
        times = TIMES * (2e6 if source == "size" else 1.0)
        made = solve(config["scheduler"], times, config.parts, per_rank=config["groups_per_rank"])
        self._plan: Schedule = made
        more = {"scheduler": config["scheduler"], "source": source, "per_rank": config["groups_per_rank"]}
        data = schedule_data(times, made.assignment, **more)
        self._add("events", [[self.step, self.epoch, START_NS + self.step, "schedule", data]], 0)

    def _apply(self) -> None:
        if self._steps:
            return
        if self._pending:
            version, live_settings = (
                self._versions,
                {name: value for _, each in self._pending for name, value in each.items()},
            )
            self._pending = []
            self.config = self.config.replace(**live_settings)
            for rank in range(self.config.ranks):
                self._add("events", [knob_row(self.step, version, when="epoch", duration_s=0.1, **live_settings)], rank)
            self._schedule("profile" if self.epoch >= PROFILED else "size")
        elif self.epoch == PROFILED:
            self._schedule("profile")

    def _one_step(self) -> None:
        if self.unscheduled:
            super()._one_step()
            return
        if not self._steps:
            self._begin_epoch()
        for each in self._steps.pop(0):
            self._add(each["table"], each["rows"], each["rank"])
        self.step += 1
        self.epoch += not self._steps

    def _begin_epoch(self) -> None:
        times = TIMES * (1 + 0.02 * self._noise.standard_normal(GROUPS))
        found: dict[int, list[dict[str, Any]]] = {}
        assignment = self._plan.assignment
        for each in epoch_lines(
            assignment, times, epoch=self.epoch, first_step=self.step, slow=self.slow, start_s=self._at_s
        ):
            found.setdefault(each["rows"][0][0], []).append(each)
        self._at_s += 2.0
        self._steps = [found[step] for step in sorted(found)]

    def through(self, epochs: int) -> None:
        """Make whole epochs."""
        for _ in range(epochs):
            self.advance()
            self.advance(len(self._steps))


class ScheduledSession(PretendSession):
    """A session whose runs schedule snapshot groups."""

    def __init__(self, ranks: int = 2, *, live: bool = False) -> None:
        super().__init__(ranks, live=live)
        self._make = ScheduledRun
