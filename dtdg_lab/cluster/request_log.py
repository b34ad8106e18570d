"""The record of requests at rank 0's control server: those that it accepted, and those that no rank ever receives."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.records.events import Event, Refused, Requested
from dtdg_lab.records.requests import Request, SetLive

if TYPE_CHECKING:
    from dtdg_lab.training.loop import Trainer
    from dtdg_lab.training.recorder import Recorder


class RequestLog:
    """Writes requests to change settings into rank 0's records, from any thread; other requests are not recorded.

    Args:
        recorder: of rank 0.
        config: the settings before training begins.

    Attributes:
        trainer: knows settings and position once training has begun.
    """

    def __init__(self, recorder: Recorder, config: RunConfig) -> None:
        self._recorder, self._config = recorder, config
        self.trainer: Trainer | None = None

    def accept(self, request: Request, version: int) -> None:
        """Record a request that the ranks will receive as this version."""
        if isinstance(request, SetLive):
            self._write(Requested(version, dict(request.changes), request.by, self._old_values(request)))

    def refuse(self, request: Request, reason: str) -> None:
        """Record a request that was refused, and why."""
        if isinstance(request, SetLive):
            self._write(Refused(None, dict(request.changes), reason, request.by, self._old_values(request)))

    def _old_values(self, request: SetLive) -> dict[str, Any]:
        from dtdg_lab.training.live_settings import old_values

        config = self._config if self.trainer is None else self.trainer.live_settings.config
        return old_values(config, request.changes)

    def _write(self, event: Event) -> None:
        from dtdg_lab.training.position import Position

        position = Position() if self.trainer is None else self.trainer.position
        self._recorder.row("events", (position.step, position.epoch, time.time_ns(), event.kind, event.write()))
