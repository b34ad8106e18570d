"""The time before a run's first step: its progress is recorded, and a request to stop ends it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from dtdg_lab.core.errors import StoppedError
from dtdg_lab.records.events import Preparing

if TYPE_CHECKING:
    from dtdg_lab.training.recorder import Recorder


QUIET_S, REPORT_EVERY_S = 1.0, 0.5


class Preparation:
    """Records rank 0's progress before the first step, and ends any rank if the run is stopped.

    Args:
        recorder: recorder of this rank.
        stop_requested: returns a true value if there is a request to stop.
        rank: this rank.
        show: called with each recorded sentence.
    """

    def __init__(
        self,
        recorder: Recorder,
        stop_requested: Callable[[], object],
        *,
        rank: int = 0,
        show: Callable[[str], None] | None = None,
    ) -> None:
        self._recorder, self._stop_requested, self._rank, self._show = recorder, stop_requested, rank, show
        self._next_s = time.monotonic() + QUIET_S

    def __call__(self, what: str, left_s: float | None) -> None:
        """Report the current activity.

        Raises:
            StoppedError: the run was asked to stop.
        """
        if self._stop_requested():
            raise StoppedError("the run was stopped before its first step.")
        now_s = time.monotonic()
        if self._rank or now_s < self._next_s:
            return
        self._next_s = now_s + REPORT_EVERY_S
        event = Preparing(what, left_s)
        self._recorder.row("events", (0, 0, time.time_ns(), event.kind, event.write()))
        if self._show is not None:
            self._show(event.words)
