"""Reports of what rank 0 does between two steps, if it takes long."""

from __future__ import annotations

import time

from dtdg_lab.records.events import BetweenSteps
from dtdg_lab.training.position import Position
from dtdg_lab.training.recording import StepRecorder

QUIET_S, REPORT_EVERY_S = 1.0, 0.5


class WorkReports:
    """Records the progress of a task once it has taken a second.

    Args:
        recorder: writes records; only rank 0 writes these.
        position: of the run.
        what: the task, in words.
    """

    def __init__(self, recorder: StepRecorder, position: Position, what: str) -> None:
        self._recorder, self._position, self._what = recorder, position, what
        self._began_s = time.monotonic()
        self._next_s = self._began_s + QUIET_S
        self._reported = False

    def begin(self, expected_s: float) -> None:
        """Report the task at once if it is expected to take more than a second."""
        if expected_s >= QUIET_S:
            self._reported = True
            self._record(BetweenSteps(self._what, expected_s))

    def __call__(self, done: int, total: int) -> None:
        """Report that ``done`` of ``total`` equal parts are done."""
        now_s = time.monotonic()
        if now_s < self._next_s or not 0 < done < total:
            return
        self._next_s, self._reported = now_s + REPORT_EVERY_S, True
        left_s = (now_s - self._began_s) / done * (total - done)
        self._record(BetweenSteps(self._what, left_s))

    def close(self) -> None:
        """Record that the task is over, if it was reported."""
        if self._reported:
            self._record(BetweenSteps(""))

    def _record(self, event: BetweenSteps) -> None:
        self._recorder.write(self._position, event)
