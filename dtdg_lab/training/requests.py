"""Application of agreed control requests, at the same step on all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.engine.capabilities import Reconfigurable
from dtdg_lab.records.events import ControlReceived, Paused, Refused, SettingsChanged, Stopping, Unpaused
from dtdg_lab.training.collective import shared_reason
from dtdg_lab.training.control import STEP, Control
from dtdg_lab.training.live_settings import old_values
from dtdg_lab.training.recording import StepRecorder
from dtdg_lab.training.state import TrainingState


class RequestHandler:
    """Applies requests between two steps, or refuses them; epoch settings wait for the end of the epoch.

    Args:
        state: training state of this rank.
        control: requests and refusals.
        recorder: writes records.
    """

    def __init__(self, state: TrainingState, control: Control, recorder: StepRecorder) -> None:
        self._state, self._control, self._recorder = state, control, recorder

    def apply_up_to(self, version: int, received_at: str) -> None:
        """Apply all requests up to a version, in order."""
        next_step = self._state.position.step + (received_at == STEP)
        while self._state.settings.version < version:
            self._apply(self._state.settings.version + 1, received_at, next_step)

    def refuse(self, changes: dict[str, Any], reason: str) -> None:
        """Record that changes were refused, and the reason."""
        self._recorder.write(self._state.position, Refused(self._state.settings.version, changes, reason))

    def repeated_refusal(self, changes: Mapping[str, Any]) -> str:
        """Return the reason for which the replayed run refused changes here; empty if it did not, or without replay."""
        return self._control.refusal(self._state.position.step, changes, synchronous=self._state.synchronous)

    def record_change(self, changes: dict[str, Any], when: str, step: int, **facts: Any) -> None:
        """Record changes that apply from ``step`` on; on every rank, so that agreement can be checked."""
        own_steps = None if self._state.synchronous else True
        changed = SettingsChanged(self._state.settings.version, changes, when, own_steps=own_steps, **facts)
        self._recorder.every_rank(self._state.position, changed, step)

    def _apply(self, version: int, received_at: str, next_step: int) -> None:
        state, settings = self._state, self._state.settings
        payload = self._receive(version, received_at, next_step)
        state.save_requested = state.save_requested or bool(payload.get("keep", False))
        was_paused, config, changed, reason = settings.paused, settings.config, {}, ""
        try:
            changed = settings.apply(payload)
        except ConfigError as error:  # depends on settings alone, so the same on every rank
            reason = str(error)
        settings.version = version  # after the change, because the control thread treats newer requests as not applied
        if reason:
            self.refuse(payload["set"], reason)
        if changed and (rejection := self._rejection(changed)):
            self.refuse(changed, rejection)
            settings.config = config
        elif changed:
            state.apply_settings()
            self.record_change(changed, "step", next_step)
            self._record_settings_events(changed)
        if settings.paused != was_paused:
            event = Paused if settings.paused else Unpaused
            self._recorder.write(state.position, event(version), next_step)
        if payload.get("stop"):
            self._recorder.write(state.position, Stopping(version), next_step)

    def _receive(self, version: int, received_at: str, next_step: int) -> dict[str, Any]:
        """Return the request of a version, and record it for replay."""
        state = self._state
        payload = self._control.payload(version, next_step, received_at, synchronous=state.synchronous)
        by = payload.pop("by", None)
        if payload:
            old = old_values(state.config, payload["set"]) if "set" in payload else None
            received = ControlReceived(version, payload, received_at, by, old)
            self._recorder.write(state.position, received, next_step)
        return payload

    def _rejection(self, changes: dict[str, Any]) -> str:
        """Return why a component rejects the current settings, the same on all ranks; empty if none does."""
        state, components = self._state, self._state.components
        reason = self.repeated_refusal(changes)
        if components.network is not None:
            reason = reason or components.network.validate_settings(state.config)
        if isinstance(state.strategy, Reconfigurable):
            reason = reason or state.strategy.validate_settings(state.config)
            if state.strategy.fails_by_rank:
                reason = shared_reason(reason, state.group, device=state.device)
        return reason

    def _record_settings_events(self, changes: dict[str, Any]) -> None:
        strategy, position = self._state.strategy, self._state.position
        for event in strategy.settings_events(changes) if isinstance(strategy, Reconfigurable) else ():
            write = self._recorder.every_rank if event.every_rank else self._recorder.write
            write(position, event)
