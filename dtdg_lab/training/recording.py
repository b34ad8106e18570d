"""Records of a rank: its steps with their phases, decisions, evaluations and events."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import astuple
from typing import Any

from dtdg_lab.config.record_tables import PHASES
from dtdg_lab.distributed.averager import Round
from dtdg_lab.engine.capabilities import DecisionRow, Fetched, ObservesSteps, ServesFeatures, StepOutcome
from dtdg_lab.engine.strategy import Step, StepResult, Strategy
from dtdg_lab.records.events import CheckpointKept, CheckpointWritten, Event, RanksGathered
from dtdg_lab.tasks.base import Scores
from dtdg_lab.training.clock import PhaseClock
from dtdg_lab.training.position import Position
from dtdg_lab.training.recorder import Recorder
from dtdg_lab.training.resource_monitor import ResourceMonitor

Traffic = tuple[int, int]  # bytes sent and received


class StepRecorder:
    """Writes a rank's records. Fields of rounds and scores are the columns of their tables.

    Args:
        recorder: writer of rows.
        clock: clock of a step's phases.
        resource_monitor: measures the energy of a step.
        rank: this rank; rank 0 writes most events.
    """

    def __init__(self, recorder: Recorder, clock: PhaseClock, resource_monitor: ResourceMonitor, rank: int) -> None:
        self._recorder, self._clock, self._resource_monitor, self._rank = recorder, clock, resource_monitor, rank

    def step(
        self,
        position: Position,
        step: Step,
        result: StepResult,
        *,
        loss: float | None,
        cpu_s: float,
        communicate_s: float,
        traffic: Traffic,
        version: int,
        strategy: Strategy,
    ) -> StepOutcome:
        """Record a finished step, and return its measurements for the strategy.

        Args:
            position: position of the step.
            step: the step.
            result: result of the step on this rank.
            loss: mean loss of all groups; None if they had no labels.
            cpu_s: processor seconds of this process.
            communicate_s: seconds of the exchange of gradients, without waiting.
            traffic: bytes sent and received in the step, without fetched features.
            version: version of the control state after the step.
            strategy: strategy whose recorded rows are written too.
        """
        intervals, seconds = self._clock.intervals, self._clock.seconds()
        energy_j, energy_source = self._resource_monitor.step_energy(position.step)
        own_loss = result.loss_sum / result.groups if result.groups else None
        start_ns, end_ns = intervals[0][1], intervals[-1][2]
        rows = strategy.rows()
        fetched = strategy.fetched(rows) if isinstance(strategy, ServesFeatures) else Fetched(0, 0.0)
        sent, received = traffic
        self._recorder.row(
            "steps",
            (
                position.step,
                position.epoch,
                step.iteration,
                end_ns,
                (end_ns - start_ns) * 1e-9,
                own_loss,
                loss,
                result.groups,
                result.vertex_snapshots,
                *(seconds[phase] for phase in PHASES),
                cpu_s,
                sent,
                received + fetched.received_bytes,
                energy_j,
                energy_source,
                version,
            ),
        )
        cpu_by_phase = self._clock.cpu_s
        self._resource_monitor.phases(position.step, position.epoch, intervals, cpu_by_phase, stalled_s=fetched.wait_s)
        for interval in intervals:
            self._recorder.row("phases", (position.step, position.epoch, *interval))
        for table, table_rows in rows.items():
            for row in table_rows:
                self._recorder.row(table, (position.step, position.epoch, *row))
        reads_energy = isinstance(strategy, ObservesSteps) and strategy.reads_energy
        readings = self._resource_monitor.readings() if reads_energy else ()
        return StepOutcome(sum(seconds.values()), communicate_s, readings, rows)

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
