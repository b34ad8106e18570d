"""Before the first step: what a rank does is recorded, and ends where the run is stopped."""

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
    """Records what rank 0 does before the first step, and ends any rank once the run is to stop.

    Args:
        recorder: of this rank.
        stop_requested: truthy if any request is to stop the run.
        rank: this one.
        show: called with each sentence that is recorded.
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
        """Take in what is done now.

        Raises:
            StoppedError: the run is to stop.
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
