"""RunWindow: what is shown of one run, in bounded memory, fed line by line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.events import AttemptStarted, Kernel, Preparing, Resumed, SettingsChanged
from dtdg_lab.core.records import rows_of
from dtdg_lab.visualization.energy import EnergyView, PhaseEnergyView
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.loss import LossView
from dtdg_lab.visualization.partition import LinkLog, PartitionView
from dtdg_lab.visualization.phases import PhasesView, TimelineView
from dtdg_lab.visualization.run_view import EventHandler, Row, RowHandler, RunClock, RunView, SharedViews
from dtdg_lab.visualization.series import Line, XAxis
from dtdg_lab.visualization.style import Marks

CHARTS = ("loss", "phases", "energy", "timeline")  # those that every run has


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is: steps done, the epoch it is in (from 1), seconds so far, and seconds left where known."""

    step: int
    epoch: int
    epochs: int
    seconds: float
    seconds_left: float | None


class RunWindow:
    """The views of one run, fed with record lines in any order of ranks, live or from a file.

    Series longer than ``points`` are thinned by halving, so that memory does not grow with the run. When a run is
    resumed at step s, what earlier attempts wrote at step s or later is replaced. Feeding a line twice changes
    nothing. Not locked: callers that feed and read it from different threads need their own lock.

    Attributes:
        preparing: what the run does before the first step of its newest attempt; empty from then on.
        of_family: name of a family -> the views that it adds.
    """

    def __init__(self, config: RunConfig, *, points: int = 1500) -> None:
        self.config = config
        self.points = points
        self.marks = Marks()
        self._clock = RunClock()
        shared = SharedViews(points, self.marks, LinkLog(), self._clock)
        self.loss = LossView(shared, config["task"])
        self.phases = PhasesView()
        self.energy = EnergyView(shared)
        self.timeline = TimelineView()
        self.partition = PartitionView(shared.links)
        self.phase_energy = PhaseEnergyView()
        views: list[RunView] = [self.loss, self.phases, self.energy, self.timeline, self.partition]
        views.append(self.phase_energy)
        self.of_family: dict[str, tuple[RunView, ...]] = {}
        for family in catalogue.families():  # all of them: a run may change its system while it trains
            self.of_family[family.name] = tuple(family.views(config, shared))
            views += self.of_family[family.name]
        self.views = tuple(sorted(views, key=lambda view: view.order))
        self._named = {view.name: view for view in self.views}
        self._tables: dict[str, list[tuple[int | None, RowHandler]]] = {}  # and how far before its step a row is made
        self._events: dict[str, list[EventHandler]] = {}
        for view in self.views:
            for before, tables in ((None, view.tables_kept), (0, view.tables), (1, view.tables_before)):
                for table, take in tables.items():
                    self._tables.setdefault(table, []).append((before, take))
            for kind, handle in view.events.items():
                self._events.setdefault(kind, []).append(handle)
        self._starts: dict[int, int] = {}
        self._missing = 0
        self.preparing = ""
        self._newest_seq: dict[int, int] = {}  # by rank; they go on over attempts
        self._step = 0
        self._epochs = config.epochs
        self._position: tuple[int, int] | None = None  # epoch, steps of it done
        self._steps_per_epoch = 0  # of the last whole epoch
        self._newest_attempt: int | None = None

    def view(self, name: str) -> Any:
        """The view of this name, shown or not."""
        return self._named[name]

    def shown(self) -> list[RunView]:
        """The views that have something to show of this run, in order."""
        return [view for view in self.views if view.shown]

    def add(self, line: Mapping[str, Any]) -> None:
        """Take in one record line (``core.records``): rows of one table of one rank. Unknown tables are passed over."""
        rank, attempt = int(line.get("rank", 0)), int(line.get("attempt", 0))
        if (seq := line.get("seq")) is not None and seq > (newest := self._newest_seq.get(rank, seq - 1)):
            self._missing += seq - newest - 1
            self._newest_seq[rank] = seq
        table = line["table"]
        for row in rows_of(line):
            if table == "events":
                self._add_event(rank, attempt, row)
            elif table == "steps":
                self._add_step(rank, attempt, row)
            else:
                self._add_row(table, rank, attempt, row)

    def _add_row(self, table: str, rank: int, attempt: int, row: Row) -> None:
        for before, take in self._tables.get(table, ()):
            if before is None or self._current(attempt, row["step"] - before):
                take(rank, row, attempt)

    def _add_step(self, rank: int, attempt: int, row: Row) -> None:
        step = row["step"]
        self._note_attempt(attempt, step, rank, row["time_ns"])
        self._add_row("steps", rank, attempt, row)
        if self._current(attempt, step):
            self._step = max(self._step, step + 1)
            self._advance(row["epoch"], (row.get("iteration") or 0) + 1)

    def _advance(self, epoch: int, done: int) -> None:
        """Ranks that share the steps of an epoch tell of them out of order: the furthest counts."""
        if self._position is not None and (epoch, done) < self._position:
            return
        if self._position is not None and epoch > self._position[0]:
            self._steps_per_epoch = self._position[1]
        self._position = (epoch, done)

    def _note_attempt(self, attempt: int, step: int, rank: int, time_ns: int) -> None:
        """Where a later attempt begins, replace what earlier ones wrote from ``step`` on."""
        if self._newest_attempt is None:
            self._newest_attempt = attempt
        first_of_attempt = attempt > self._newest_attempt
        earlier_step = attempt in self._starts and step < self._starts[attempt]  # of another rank
        if not first_of_attempt and not earlier_step:
            return
        self._newest_attempt = max(attempt, self._newest_attempt)
        self._starts[attempt] = step
        self.marks.truncate(step, attempt)
        for view in self.views:
            view.truncate(step, attempt)
        if first_of_attempt:
            self._step, self._position = step, None
        self.marks.resumed(rank, step, self._clock.seconds(attempt, time_ns), attempt)

    def _current(self, attempt: int, step: int) -> bool:
        """Whether no later attempt has computed ``step`` again."""
        return attempt == self._newest_attempt or all(
            attempt >= later or step < start for later, start in self._starts.items()
        )

    def _add_event(self, rank: int, attempt: int, row: Mapping[str, Any]) -> None:
        kind = row["kind"]
        if kind == Preparing.kind:
            self.preparing = Preparing.read(row["data"]).words
            return
        if kind == Kernel.kind:  # training begins
            self.preparing = ""
        if kind == AttemptStarted.kind and rank == 0:
            self._clock.started(attempt, row["time_ns"])
        seconds = self._clock.seconds(attempt, row["time_ns"])
        if kind == SettingsChanged.kind and self._current(attempt, row["step"]):
            self.marks.settings_changed(row["data"], rank, row["step"], seconds, attempt)
            self._epochs = SettingsChanged.read(row["data"]).changes.get("epochs", self._epochs)
            for view in self.views:
                view.setting_changed(row, attempt)
        elif kind == Resumed.kind:
            self._epochs = row["data"]["settings"].get("epochs", self._epochs)
        elif kind in self._events and self._current(attempt, row["step"] - 1):  # made before that step
            for take in self._events[kind]:
                take(row, attempt)

    @property
    def dropped(self) -> int:
        """Lines that were sent and never arrived here, by their sequence numbers; the files on disk have them."""
        return self._missing

    def joules_until(self, attempts: Sequence[int], times_ns: Sequence[int]) -> NDArray[np.float64] | None:
        """Joules of all nodes and devices, each once, until instants of attempts; None where none are known."""
        pairs = zip(attempts, times_ns, strict=True)
        return self.energy.joules_at([self._clock.seconds(attempt, time_ns) for attempt, time_ns in pairs])

    @property
    def progress(self) -> Progress:
        """How far the run is; seconds left follow from the pace so far, unknown before the first epoch ends."""
        seconds, epochs = self._clock.newest_s, self._epochs
        if self._position is None:
            return Progress(0, 0, epochs, seconds, None)
        epoch, done = self._position
        if not self._steps_per_epoch:
            return Progress(self._step, epoch + 1, epochs, seconds, None)
        share = min(1.0, (epoch + min(1.0, done / self._steps_per_epoch)) / epochs)
        return Progress(self._step, epoch + 1, epochs, seconds, seconds * (1 - share) / share)

    def lines(self, x: XAxis = "steps") -> dict[str, list[Line]]:
        """The growing lines of the charts that are made of lines: for displays that send only what is new."""
        return {"loss": self.loss.lines(x), "energy": self.energy.lines()}

    def layouts(self, x: XAxis = "steps") -> dict[str, dict[str, Any]]:
        """The layouts of the charts that are made of lines."""
        return {"loss": self.loss.layout(x), "energy": self.energy.layout()}

    def complete(self, summary: Mapping[str, Any]) -> None:
        """Add what takes too long for a live view, before a report or a plot of a run that was stored."""
        for view in self.views:
            view.complete(summary)

    def figures(self, x: XAxis = "steps") -> dict[str, Figure]:
        """The charts that are shown as plotly figure dicts; ``x`` is the axis of the loss.

        Every run has those of ``CHARTS``. Others follow where a run has what they show, such as ``partition``, and
        those of its system: tall figures of several panels.
        """
        return {view.name: self.loss.figure(x) if view is self.loss else view.figure() for view in self.shown()}

    def captions(self) -> dict[str, str]:
        """What each chart shows, in one sentence."""
        return {view.name: view.caption() for view in self.shown()}
