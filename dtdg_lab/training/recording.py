"""Records of a rank: its steps with their phases, decisions, evaluations and events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from typing import Any

from dtdg_lab.config.record_tables import PHASES
from dtdg_lab.core.errors import NotFiniteError
from dtdg_lab.distributed.averager import Round
from dtdg_lab.distributed.gradients import Exchanged
from dtdg_lab.engine.capabilities import DecisionRow, Fetched, ObservesSteps, ServesFeatures, StepOutcome
from dtdg_lab.engine.strategy import RecordRows, Step, StepResult, Strategy, read_rows
from dtdg_lab.records.events import CheckpointKept, CheckpointWritten, Event, RanksGathered
from dtdg_lab.tasks.base import Scores
from dtdg_lab.training.clock import PhaseClock, StepPhases, seconds_by_phase
from dtdg_lab.training.position import Position
from dtdg_lab.training.recorder import Recorder
from dtdg_lab.training.resource_monitor import ResourceMonitor

Traffic = tuple[int, int]  # bytes sent and received


@dataclass(frozen=True, slots=True)
class StepLoss:
    """Loss of a step over all groups of all ranks, read when it is known.

    Attributes:
        sums: returns the sum of losses and the number of groups.
        position: position of the step.
        learning_rate: the learning rate, for the message.
    """

    sums: Callable[[], tuple[float, int]]
    position: Position
    learning_rate: float

    def read(self) -> float | None:
        """Return the mean loss; None if the groups had no labels.

        Raises:
            NotFiniteError: the loss is NaN or infinite.
        """
        loss_sum, groups = self.sums()
        loss = loss_sum / max(groups, 1)
        if not abs(loss) < float("inf"):
            raise NotFiniteError(
                f"the loss is {loss} at step {self.position.step} (epoch {self.position.epoch}), so training stopped. "
                "The last good checkpoint is kept; resume from it with a smaller learning_rate (now "
                f"{self.learning_rate:g})."
            )
        return loss if groups else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedStep:
    """A step that is made, or queued on a GPU.

    Attributes:
        position: position of the step.
        step: the step.
        result: result of the step on this rank.
        own_loss: returns the sum of losses of this rank.
        loss: loss of all groups.
        exchanged: result of the exchange of gradients.
        phases: phases of the step.
        cpu_s: processor seconds of this process.
        energy: joules of this rank and their source; None if unknown.
        traffic: bytes sent and received in the step, without fetched features.
        version: version of the control state after the step.
        strategy: strategy that made the step.
        rows: rows that it recorded in the step.
    """

    position: Position
    step: Step
    result: StepResult
    own_loss: Callable[[], float]
    loss: StepLoss
    exchanged: Exchanged
    phases: StepPhases
    cpu_s: float
    energy: tuple[float | None, str | None]
    traffic: Traffic
    version: int
    strategy: Strategy
    rows: RecordRows


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """What is known of a recorded step.

    Attributes:
        number: number of the step.
        loss: mean loss of all groups; None if they had no labels.
        seconds: duration of the step.
    """

    number: int
    loss: float | None
    seconds: float


class StepRecorder:
    """Writes a rank's records. Fields of rounds and scores are the columns of their tables.

    Args:
        recorder: writer of rows.
        clock: clock of a step's phases.
        resource_monitor: measures the energy of a step.
        rank: this rank; rank 0 writes most events.

    Attributes:
        newest: the newest recorded step; None before the first.
    """

    def __init__(self, recorder: Recorder, clock: PhaseClock, resource_monitor: ResourceMonitor, rank: int) -> None:
        self._recorder, self._clock, self._resource_monitor, self._rank = recorder, clock, resource_monitor, rank
        self._waiting: list[FinishedStep] = []
        self.newest: RecordedStep | None = None

    def step(self, finished: FinishedStep) -> None:
        """Record a finished step; on a GPU when the next one has finished, so that nothing waits for the device."""
        self._waiting.append(finished)
        if not self._clock.is_late:
            self.settle()

    def check_exchanges(self) -> None:
        """Raise if ranks were in different exchanges in a step whose times are not read yet.

        Raises:
            RunFailedError: they were.
        """
        for finished in self._waiting:
            finished.phases.read_exchanges()

    def settle(self) -> None:
        """Record the finished steps whose times are not read yet, and tell their strategies.

        Raises:
            NotFiniteError: a loss was NaN or infinite.
        """
        waiting, self._waiting = self._waiting, []
        for finished in waiting:
            self._write(finished)

    def _write(self, finished: FinishedStep) -> None:
        position, result, phases = finished.position, finished.result, finished.phases
        intervals = phases.intervals(self._clock.device_clock)
        loss, rows = finished.loss.read(), read_rows(finished.rows)
        seconds, times = seconds_by_phase(intervals), finished.exchanged.times()
        own_loss = finished.own_loss() / result.groups if result.groups else None
        start_ns, end_ns = intervals[0][1], intervals[-1][2]
        strategy = finished.strategy
        fetched = strategy.fetched(rows) if isinstance(strategy, ServesFeatures) else Fetched(0, 0.0)
        sent, received = finished.traffic
        energy_j, energy_source = finished.energy
        self._recorder.row(
            "steps",
            (
                position.step,
                position.epoch,
                finished.step.iteration,
                end_ns,
                (end_ns - start_ns) * 1e-9,
                own_loss,
                loss,
                result.groups,
                result.vertex_snapshots,
                *(seconds[phase] for phase in PHASES),
                finished.cpu_s,
                sent,
                received + fetched.received_bytes,
                energy_j,
                energy_source,
                finished.version,
            ),
        )
        self._resource_monitor.phases(position.step, position.epoch, intervals, phases.cpu_s, stalled_s=fetched.wait_s)
        for interval in intervals:
            self._recorder.row("phases", (position.step, position.epoch, *interval))
        for table, table_rows in rows.items():
            for row in table_rows:
                self._recorder.row(table, (position.step, position.epoch, *row))
        total_s = sum(seconds.values())
        self.newest = RecordedStep(position.step, loss, total_s)
        if isinstance(strategy, ObservesSteps):
            readings = self._resource_monitor.readings() if strategy.reads_energy else ()
            strategy.on_step_end(StepOutcome(position.step, total_s, times.communicate_s, readings, rows))

    def check(self) -> None:
        """Raise the error of an earlier write, if there was one."""
        self._recorder.check()

    def flush(self) -> None:
        """Write all buffered rows."""
        self._recorder.flush()

    def reached(self, step: int, ranks: Iterable[int]) -> bool:
        """Return True if each of these ranks has recorded this step, or a later one."""
        return self._recorder.reached(step, ranks)

    def rounds(self, position: Position, rounds: list[Round]) -> None:
        """Record applied averaging rounds."""
        for averaged in rounds:
            self._recorder.row("rounds", (position.step, position.epoch, *astuple(averaged)))

    def gathered(self, position: Position, started_ns: int, traffic: Traffic) -> None:
        """Record that all ranks have gathered, with this rank's waiting time and traffic."""
        self.every_rank(position, RanksGathered((time.time_ns() - started_ns) * 1e-9, *traffic))

    def between(self, step: int, epoch: int, phase: str, started_ns: int) -> int:
        """Record work between steps that ends now, and return its end in nanoseconds."""
        ended_ns = time.time_ns()
        self._recorder.row("phases", (step, epoch, phase, started_ns, ended_ns))
        self._resource_monitor.between(phase, started_ns, ended_ns)
        return ended_ns

    def checkpoint(self, position: Position, epoch: int, started_ns: int) -> None:
        """Record that a checkpoint of a position was written."""
        self.between(position.step, epoch, "checkpoint", started_ns)
        self.write(position, CheckpointWritten(position.step, position.epoch))

    def kept(self, name: str, position: Position, epoch: int, started_ns: int) -> None:
        """Record that a checkpoint was written to its own file."""
        self.between(position.step, epoch, "checkpoint", started_ns)
        self.write(position, CheckpointKept(f"{name}.pt", position.epoch, position.iteration, position.step))

    def evaluations(self, position: Position, results: list[Scores]) -> None:
        """Record the scores of splits, on rank 0."""
        for scores in results if self._rank == 0 else ():
            self._recorder.row("evaluations", (position.step, position.epoch, time.time_ns(), *astuple(scores)))

    def memory(self, position: Position, peak_bytes: int) -> None:
        """Record the peak memory of a step."""
        self._recorder.row("memory", (position.step, time.time_ns(), None, None, peak_bytes))

    def decision(self, position: Position, decision: DecisionRow | None) -> None:
        """Record a decision on rank 0, if there is one."""
        if self._rank == 0 and decision is not None:
            self._recorder.row("decisions", (position.step, position.epoch, *decision))

    def write(self, position: Position, event: Event, step: int | None = None) -> None:
        """Record an event on rank 0, at a step if one is given."""
        self.event(position, event.kind, event.write(), step)

    def event(self, position: Position, kind: str, data: dict[str, Any], step: int | None = None) -> None:
        """Record an event on rank 0 by kind and data."""
        if self._rank == 0:
            self._own_event(position, kind, data, step)

    def every_rank(self, position: Position, event: Event, step: int | None = None) -> None:
        """Record an event on this rank, so that ranks can be compared."""
        self._own_event(position, event.kind, event.write(), step)

    def _own_event(self, position: Position, kind: str, data: dict[str, Any], step: int | None) -> None:
        at_step = position.step if step is None else step
        self._recorder.row("events", (at_step, position.epoch, time.time_ns(), kind, data))
