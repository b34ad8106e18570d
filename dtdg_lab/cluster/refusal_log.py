"""The record of requests that no rank ever receives: refused by rank 0's control server, or left when a run ends."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.events import ENDED_FIRST, Refused

if TYPE_CHECKING:
    from dtdg_lab.cluster.messaging import ControlServer
    from dtdg_lab.training.interfaces import Recorder
    from dtdg_lab.training.trainer import Trainer


class RefusalLog:
    """Writes such requests into rank 0's records, from any thread.

    Args:
        recorder: of rank 0.
        config: the settings before training begins.

    Attributes:
        trainer: knows settings and position once training has begun.
    """

    def __init__(self, recorder: Recorder, config: RunConfig) -> None:
        self._recorder, self._config = recorder, config
        self.trainer: Trainer | None = None

    def record(self, request: dict[str, Any], reason: str) -> None:
        """Record a request to change settings, and why it was refused; other requests are not recorded."""
        from dtdg_lab.training.checkpoint import Position
        from dtdg_lab.training.live_settings import old_values

        if "set" not in request:
            return
        trainer = self.trainer
        config, at = (self._config, Position()) if trainer is None else (trainer.live_settings.config, trainer.position)
        old = old_values(config, request["set"])
        refused = Refused(None, request["set"], reason, request.get("by"), old)
        self._recorder.row("events", (at.step, at.epoch, time.time_ns(), refused.kind, refused.write()))

    def record_unapplied(self, control: ControlServer) -> None:
        """Record the requests that a closed server accepted and the ranks did not receive any more."""
        applied = 0 if self.trainer is None else self.trainer.live_settings.version
        for request in control.changes(applied):
            self.record(request, ENDED_FIRST)
