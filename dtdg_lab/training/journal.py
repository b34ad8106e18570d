"""What the loop writes down on a rank: steps with their phases, and events."""

from __future__ import annotations

import time
from typing import Any

from dtdg_lab.comm.averager import Round
from dtdg_lab.core.records import TABLES
from dtdg_lab.parallel.layout import Computed, Layout, Work
from dtdg_lab.tasks.task import Scores
from dtdg_lab.training.checkpoint import Position
from dtdg_lab.training.clock import PhaseClock
from dtdg_lab.training.interfaces import Recorder
from dtdg_lab.training.vitals import Vitals

Moved = tuple[int, int]  # bytes sent and received
FETCHED_BYTES = TABLES["fetches"].index("bytes") - 2  # place in a row that is still without step and epoch
PURPOSE = TABLES["fetches"].index("purpose") - 2
WAITED_S = TABLES["resolved"].index("wait_s") - 2
EXPOSED_S = TABLES["windows"].index("exposed_s") - 2


class Journal:
    """Writes a rank's records.

    Args:
        recorder: takes rows.
        clock: of the steps' phases.
        vitals: knows the energy of a step.
        rank: this one; rank 0 writes most events.

    Attributes:
        taken_down: by the layout, of the last step, by table.
    """

    def __init__(self, recorder: Recorder, clock: PhaseClock, vitals: Vitals, rank: int) -> None:
        self._recorder, self._clock, self._vitals, self._rank = recorder, clock, vitals, rank
        self.taken_down: dict[str, list[tuple[Any, ...]]] = {}

    def step(
        self, at: Position, work: Work, computed: Computed, *, loss: float | None, cpu_s: float, moved: Moved,
        version: int, layout: Layout,
    ) -> float | None:  # fmt: skip
        """The rows of a step that is over; its joules where they are known.

        Args:
            at: which step.
            work: what was to be computed.
            computed: what was.
            loss: of all groups; None where they had no labels.
            cpu_s: processor seconds of this process.
            moved: bytes in the step, sent and received, but for features that were fetched.
            version: of the control word that holds after it.
            layout: that has taken down more.
        """
        intervals, spent = self._clock.intervals, self._clock.seconds()
        energy_j, energy_source = self._vitals.step_energy(at.step)
        own = computed.loss_sum / computed.groups if computed.groups else None
        start_ns, end_ns = intervals[0][1], intervals[-1][2]
        self.taken_down = layout.rows()
        fetches = (row for row in self.taken_down.get("fetches", ()) if row[PURPOSE] != "probe")  # training's own
        moved = moved[0], moved[1] + sum(row[FETCHED_BYTES] for row in fetches)
        self._recorder.row(
            "steps",
            (at.step, at.epoch, work.iteration, end_ns, (end_ns - start_ns) * 1e-9, own, loss, computed.groups,
             computed.vertex_snapshots, spent["batch"], spent["transfer"], spent["compute"], spent["wait"],
             spent["communicate"], spent["update"], spent["control"], cpu_s, *moved, energy_j, energy_source, version),
        )  # fmt: skip
        still_s = sum(row[WAITED_S] for row in self.taken_down.get("resolved", ()))
        still_s += sum(row[EXPOSED_S] for row in self.taken_down.get("windows", ()))
        self._vitals.phases(at.step, at.epoch, intervals, self._clock.cpu_s, still_s=still_s)
        for phase, begin_ns, finish_ns in intervals:
            self._recorder.row("phases", (at.step, at.epoch, phase, begin_ns, finish_ns))
        for table, rows in self.taken_down.items():
            for row in rows:
                self._recorder.row(table, (at.step, at.epoch, *row))
        return energy_j

    def rounds(self, at: Position, rounds: list[Round]) -> None:
        """Rounds of averaging that were applied."""
        for of in rounds:
            row = (of.number, of.joined_step, of.applied_step, of.weight, of.version, of.choice, of.gathered)
            self._recorder.row("rounds", (at.step, at.epoch, *row))

    def gathered(self, at: Position, started_ns: int, moved: Moved) -> None:
        """All ranks have come together: how long this one waited, and what was moved meanwhile."""
        took_s = (time.time_ns() - started_ns) * 1e-9
        data = {"wait_s": took_s, "bytes_sent": moved[0], "bytes_received": moved[1]}
        self._recorder.row("events", (at.step, at.epoch, time.time_ns(), "gathered", data))

    def between(self, step: int, epoch: int, phase: str, started_ns: int) -> int:
        """Something done between steps, that is over now; returns when that is."""
        ended_ns = time.time_ns()
        self._recorder.row("phases", (step, epoch, phase, started_ns, ended_ns))
        self._vitals.between(phase, started_ns, ended_ns)
        return ended_ns

    def checkpoint(self, of: Position, epoch: int, started_ns: int) -> None:
        """One that was written in an epoch, of a position."""
        self.between(of.step, epoch, "checkpoint", started_ns)
        self.event(of, "checkpoint", {"step": of.step, "epoch": of.epoch})

    def kept(self, name: str, of: Position, epoch: int, started_ns: int) -> None:
        """One that was written to be kept."""
        self.between(of.step, epoch, "checkpoint", started_ns)
        self.event(of, "kept", {"file": f"{name}.pt", "epoch": of.epoch, "iteration": of.iteration, "step": of.step})

    def evaluations(self, at: Position, results: list[Scores]) -> None:
        """Scores of parts of the sequence, on rank 0."""
        for of in results if self._rank == 0 else ():
            self._recorder.row(
                "evaluations",
                (at.step, at.epoch, time.time_ns(), of.split, of.loss, of.persistence_loss, of.mean_loss, of.snapshots,
                 of.metrics),
            )  # fmt: skip

    def knobs(self, at: Position, data: dict[str, Any], step: int) -> None:
        """Changes that rule from ``step`` on; every rank writes them, so that agreement can be seen."""
        self._recorder.row("events", (step, at.epoch, time.time_ns(), "knob", data))

    def event(self, at: Position, kind: str, data: dict[str, Any], step: int | None = None) -> None:
        """What happened, on rank 0."""
        if self._rank == 0:
            self._recorder.row("events", (at.step if step is None else step, at.epoch, time.time_ns(), kind, data))

    def decision(self, at: Position, row: tuple[Any, ...]) -> None:
        """What was decided, on rank 0."""
        if self._rank == 0:
            self._recorder.row("decisions", (at.step, at.epoch, *row))
