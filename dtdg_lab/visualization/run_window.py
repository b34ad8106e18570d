"""RunWindow: what is shown of one run, in bounded memory, fed line by line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.config import RunConfig
from dtdg_lab.systems.decayed_windows.charts import TrapezoidView
from dtdg_lab.systems.feature_cache.view import FeaturesView
from dtdg_lab.systems.hybrid_batches.view import HybridView
from dtdg_lab.systems.snapshot_blocks.charts import BlocksView
from dtdg_lab.systems.snapshot_groups.charts import ScheduleView
from dtdg_lab.visualization.energy import EnergyView, PhaseEnergyView
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.loss import LossView
from dtdg_lab.visualization.partition import PartitionView
from dtdg_lab.visualization.phases import PhasesView, TimelineView
from dtdg_lab.visualization.race import SpentView
from dtdg_lab.visualization.series import Line, XAxis
from dtdg_lab.visualization.style import Marks

CHARTS = ("loss", "phases", "energy", "timeline")
PARTITION = "partition"  # the chart of runs whose nodes are partitioned, beside the four that every run has
SCHEDULE = "schedule"  # the chart of runs whose snapshot groups are scheduled
BLOCKS = "blocks"  # the chart of runs whose sequence is computed in blocks of time
TRAPEZOID = "trapezoid"  # the chart of runs whose steps take a window of full and decayed snapshots
HYBRID = "hybrid"  # the chart of runs whose steps take some targets in some snapshots
PHASE_ENERGY = "phase_energy"  # the chart of runs whose joules are known by phase
FEATURES = "features"  # the chart of runs whose parts ask each other for features, or whose links are congested

View = (
    LossView
    | PhasesView
    | EnergyView
    | TimelineView
    | PartitionView
    | ScheduleView
    | BlocksView
    | TrapezoidView
    | HybridView
    | PhaseEnergyView
    | FeaturesView
)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is: steps done, the epoch it is in (from 1), seconds so far, and left where that can be told."""

    step: int
    epoch: int
    epochs: int
    seconds: float
    seconds_left: float | None


class RunWindow:
    """The views of one run, fed with record lines in any order of ranks, live or from a file.

    Series longer than ``points`` are thinned by halving, so that memory does not grow with the run. When a run is
    resumed at step s, what earlier attempts wrote at step s or later is replaced. Feeding a line twice changes
    nothing. Not locked: whoever feeds and reads it from different threads holds a lock of theirs.
    """

    def __init__(self, config: RunConfig, *, points: int = 1500) -> None:
        self.config = config
        self.points = points
        self.marks = Marks()
        self.loss = LossView(points, self.marks, config["task"])
        self.phases = PhasesView()
        self.energy = EnergyView(points, self.marks)
        self.phase_energy = PhaseEnergyView()
        self.timeline = TimelineView()
        self.partition = PartitionView()
        self.schedule = ScheduleView(config.ranks)
        self.blocks = BlocksView(self.partition.links, self.marks, config.flat.get("memory_gib"))
        self.trapezoid = TrapezoidView(config.ranks, self.marks, config.flat.get("overlap", True))
        self.hybrid = HybridView(self.marks)
        self.features = FeaturesView(self.marks)
        self.spent = SpentView(points)
        self._of_step: Mapping[str, tuple[Callable[[int, Mapping[str, Any], int], None], ...]] = {
            "phases": (self.timeline.interval, self.schedule.gantt.phase),
            "links": (self.partition.links.link,),
            "groups": (self.schedule.group,),
            "exchanges": (self.blocks.exchanges.row, self.trapezoid.exchange),
            "transfers": (self.blocks.transfers.row,),
            "batches": (self.trapezoid.batch,),
            "tasks": (self.trapezoid.tasks.row,),
            "targets": (self.hybrid.targets.row,),
            "rounds": (self.hybrid.rounds.row,),
            "resolved": (self.features.resolved,),
            "fetches": (self.features.log.fetch, self.spent.fetch),
            "windows": (self.features.log.window,),
        }
        self._clock = _Clock()
        self._starts: dict[int, int] = {}
        self._gaps = _Gaps()
        self._step = 0
        self._epochs = config.epochs
        self._position: tuple[int, int] | None = None  # epoch, steps of it done
        self._steps_per_epoch = 0  # of the last whole epoch
        self._newest_attempt: int | None = None

    def add(self, line: Mapping[str, Any]) -> None:
        """Take in one record line (``core.records``): rows of one table of one rank. Unknown tables are passed over."""
        rank, attempt = int(line.get("rank", 0)), int(line.get("attempt", 0))
        self._gaps.seen(rank, line.get("seq"))
        columns, table = line["columns"], line["table"]
        for values in line["rows"]:
            row = dict(zip(columns, values, strict=True))
            if table == "steps":
                self._add_step(rank, attempt, row)
            elif table == "evaluations" and self._current(attempt, row["step"] - 1):  # made of the steps before it
                self.loss.evaluation(row, self._clock.seconds(attempt, row["time_ns"]), attempt)
            elif table == "decisions" and self._current(attempt, row["step"] - 1):  # made of the steps before it
                self.trapezoid.decisions.row(row, attempt)
                self.hybrid.decisions.row(row, attempt)
            elif table == "cache_decisions" and self._current(attempt, row["step"] - 1):  # made of the steps before it
                self.features.log.choice(row, attempt)
            elif table == "reservoir" and self._current(attempt, row["step"]):
                self.hybrid.reservoir.row(row, self._clock.seconds(attempt, row["time_ns"]), attempt)
            elif table == "events":
                self._add_event(rank, attempt, row)
            elif table in self._of_step and self._current(attempt, row["step"]):
                for take in self._of_step[table]:
                    take(rank, row, attempt)
            elif table == "energy":
                self.energy.reading(rank, row, self._clock.seconds(attempt, row["time_ns"]), attempt)
            elif table == "phase_energy":
                self.phase_energy.row(rank, row)
            elif table == "memory":
                self.spent.memory(row)

    def _add_step(self, rank: int, attempt: int, row: Mapping[str, Any]) -> None:
        step = row["step"]
        self._note_attempt(attempt, step, rank, row["time_ns"])
        seconds = self._clock.seconds(attempt, row["time_ns"])
        self.energy.rank_seen(rank)
        self.phase_energy.rank_seen(rank)
        self.energy.step(rank, row, seconds, attempt)
        self.spent.step(rank, row, seconds)
        if not self._current(attempt, step):
            return
        self.loss.step(step, seconds, row.get("global_loss"), attempt)
        self.phases.step(rank, row, attempt)
        self.partition.links.step(rank, step)
        self.schedule.balance.step(rank, row, attempt)
        self.blocks.step(rank, step)
        self.trapezoid.step(rank, row, attempt)
        self.hybrid.step(rank, row, seconds, attempt)
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
        views = (self.partition, self.schedule, self.blocks, self.trapezoid, self.hybrid, self.features)
        for view in (self.loss, self.phases, self.marks, *views):
            view.truncate(step, attempt)
        if first_of_attempt:
            self._step, self._position = step, None
        self.marks.resumed(rank, step, self._clock.seconds(attempt, time_ns), attempt)

    def _current(self, attempt: int, step: int) -> bool:
        """Whether no later attempt has computed ``step`` again."""
        return all(attempt >= later or step < start for later, start in self._starts.items())

    def _add_event(self, rank: int, attempt: int, row: Mapping[str, Any]) -> None:
        if row["kind"] == "started" and rank == 0:
            self._clock.started(attempt, row["time_ns"])
        seconds = self._clock.seconds(attempt, row["time_ns"])
        if row["kind"] == "knob" and self._current(attempt, row["step"]):
            self.marks.knob(row["data"], rank, row["step"], seconds, attempt)
            changes = row["data"]["changes"]
            self._epochs = changes.get("epochs", self._epochs)
            self.blocks.memory_gib = changes.get("memory_gib", self.blocks.memory_gib)
            self.trapezoid.knob(row, attempt)
        elif row["kind"] == "resumed":
            self._epochs = row["data"]["settings"].get("epochs", self._epochs)
        elif row["kind"] == PARTITION and self._current(attempt, row["step"] - 1):  # made before that step
            self.partition.event(row, attempt)
        elif row["kind"] == SCHEDULE and self._current(attempt, row["step"] - 1):
            self.schedule.event(row, attempt)
        elif row["kind"] == BLOCKS and self._current(attempt, row["step"] - 1):
            self.blocks.event(row, attempt)
        elif row["kind"] == TRAPEZOID and self._current(attempt, row["step"] - 1):
            self.trapezoid.event(row, attempt)
        elif row["kind"] == HYBRID and self._current(attempt, row["step"] - 1):
            self.hybrid.event(row, attempt)
        elif row["kind"] == FEATURES and self._current(attempt, row["step"] - 1):
            self.features.event(row, attempt)
        elif row["kind"] == "congestion" and self._current(attempt, row["step"] - 1):
            self.features.links(row, attempt)
        elif row["kind"] == "chunks" and self._current(attempt, row["step"] - 1):
            self.trapezoid.chunks(row, attempt)
        elif row["kind"] == "memory_trace" and self._current(attempt, row["step"] - 1):
            self.blocks.memory(row, attempt)

    @property
    def dropped(self) -> int:
        """Lines that were sent and never arrived here, by their sequence numbers; the files on disk have them."""
        return self._gaps.missing

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

    def figures(self, x: XAxis = "steps") -> dict[str, Figure]:
        """The four charts as plotly figure dicts; ``x`` is the axis of the loss.

        A run whose nodes are partitioned has another, ``partition``, one whose snapshot groups are scheduled has
        ``schedule``, one in blocks of time has ``blocks``, one whose steps take windows of full and decayed snapshots
        has ``trapezoid``, one of hybrid batches has ``hybrid``, and one that fetches features, or whose links are
        congested, has ``features``: tall ones of several panels. Joules by phase, where known, are ``phase_energy``.
        """
        return {
            "loss": self.loss.figure(x),
            "phases": self.phases.figure(),
            "energy": self.energy.figure(),
            "timeline": self.timeline.figure(),
            **({} if self.partition.facts is None else {PARTITION: self.partition.figure()}),
            **({} if self.schedule.facts is None else {SCHEDULE: self.schedule.figure()}),
            **({} if self.blocks.facts is None else {BLOCKS: self.blocks.figure()}),
            **({} if self.trapezoid.facts is None else {TRAPEZOID: self.trapezoid.figure()}),
            **({} if self.hybrid.facts is None else {HYBRID: self.hybrid.figure()}),
            **({PHASE_ENERGY: self.phase_energy.figure()} if self.phase_energy.joules() else {}),
            **({FEATURES: self.features.figure()} if self.features.shown else {}),
        }

    def captions(self) -> dict[str, str]:
        """What each chart shows, in one sentence."""
        return {name: view.caption() for name, view in self._views()}

    def _views(self) -> Iterator[tuple[str, View]]:
        yield from zip(CHARTS, (self.loss, self.phases, self.energy, self.timeline), strict=True)
        if self.partition.facts is not None:
            yield PARTITION, self.partition
        if self.schedule.facts is not None:
            yield SCHEDULE, self.schedule
        if self.blocks.facts is not None:
            yield BLOCKS, self.blocks
        if self.trapezoid.facts is not None:
            yield TRAPEZOID, self.trapezoid
        if self.hybrid.facts is not None:
            yield HYBRID, self.hybrid
        if self.phase_energy.joules():
            yield PHASE_ENERGY, self.phase_energy
        if self.features.shown:
            yield FEATURES, self.features


class _Clock:
    """Seconds of training since the start: time between two attempts does not count.

    An attempt begins with rank 0's event ``started``, whoever was heard first; without it with the first line.
    """

    def __init__(self) -> None:
        self.newest_s = 0.0
        self._origins: dict[int, tuple[int, float]] = {}

    def started(self, attempt: int, time_ns: int) -> None:
        _, before_s = self._origins.get(attempt, (time_ns, self.newest_s))
        self._origins[attempt] = time_ns, before_s

    def seconds(self, attempt: int, time_ns: int) -> float:
        origin_ns, before_s = self._origins.setdefault(attempt, (time_ns, self.newest_s))
        seconds = before_s + max(0.0, (time_ns - origin_ns) / 1e9)
        self.newest_s = max(self.newest_s, seconds)
        return seconds


class _Gaps:
    """Counts missing sequence numbers by rank; they go on over attempts."""

    def __init__(self) -> None:
        self.missing = 0
        self._last: dict[int, int] = {}

    def seen(self, rank: int, seq: int | None) -> None:
        if seq is None:
            return
        last = self._last.get(rank, seq - 1)
        if seq > last:
            self.missing += seq - last - 1
            self._last[rank] = seq
