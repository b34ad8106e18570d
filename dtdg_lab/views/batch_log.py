"""What the newest steps took as their batches, and what each spent in which phase, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dtdg_lab.core.records import PHASES
from dtdg_lab.views.step_sums import KEPT, StepSums
from dtdg_lab.views.trapezoid_shape import Batch


@dataclass(frozen=True, slots=True)
class BatchStep:
    """One complete step.

    Attributes:
        batch: with rows and edges of all ranks.
        shrink_s: seconds of taking decayed snapshots' edges, the mean of the ranks.
        time_s: seconds of the step, likewise.
        phase_s: the same by phase.
    """

    batch: Batch
    shrink_s: float
    time_s: float
    phase_s: Mapping[str, float]


class BatchLog:
    """Rows of the tables ``batches`` and ``steps`` for the newest steps.

    Args:
        kept: steps.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._sums = StepSums((), ("rows", "edges", "shrink_s"), kept)
        self._seconds = StepSums((), ("time_s", *(f"{phase}_s" for phase in PHASES)), kept)
        self._shapes: dict[int, tuple[int, Batch]] = {}  # step -> attempt, batch

    def row(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of ``batches``."""
        self._sums.row(rank, row, attempt)
        step = int(row["step"])
        counts = tuple(int(count) for count in row["chunks"] or () if count is not None)
        shape = Batch(step, int(row["epoch"]), int(row["target"]), int(row["first"]), int(row["full"]), counts)
        self._shapes[step] = (attempt, shape)
        while len(self._shapes) > self._kept:
            del self._shapes[min(self._shapes)]

    def step(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of ``steps``."""
        step = int(row["step"])
        self._seconds.row(rank, row, attempt)
        for sums in (self._sums, self._seconds):
            sums.step(rank, step)

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on."""
        for sums in (self._sums, self._seconds):
            sums.truncate(step, attempt)
        self._shapes = {
            known: found for known, found in self._shapes.items() if known < step or found[0] >= attempt
        }  # fmt: skip

    def steps(self, ranks: int, *, first: int = 0) -> list[BatchStep]:
        """Every step from ``first`` on that all ranks have told, in order."""
        seconds = dict(self._seconds.steps(ranks, first=first))
        found = []
        for step, sums in self._sums.steps(ranks, first=first):
            if step not in self._shapes or step not in seconds:
                continue
            rows, edges, shrink_s = sums[()]
            time_s, *phases = seconds[step][()]
            batch = replace(self._shapes[step][1], rows=round(rows), edges=round(edges))
            phase_s = {phase: value / ranks for phase, value in zip(PHASES, phases, strict=True)}
            found.append(BatchStep(batch, shrink_s / ranks, time_s / ranks, phase_s))
        return found
