"""RunState: the state of a run as a handle knows it, from status.json and from the events that it has read."""

from __future__ import annotations

from typing import Any

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.records.events import (
    AttemptStarted,
    Paused,
    Refused,
    Resumed,
    SettingsChanged,
    Stopping,
    Unpaused,
)
from dtdg_lab.runs.directory import ENDED, RunDirectory

_STATE_AFTER = {
    AttemptStarted.kind: "running",
    Paused.kind: "paused",
    Unpaused.kind: "running",
    Stopping.kind: "stopping",
}  # of a running run, after an event


class RunState:
    """The state of a run, its settings now, and the changes that it refused last.

    Args:
        directory: the run's folder.
        config: the settings as far as events were read before.

    Attributes:
        file: the content of status.json, as it was last looked at.
        config: the settings as far as events were read.
    """

    def __init__(self, directory: RunDirectory, config: RunConfig) -> None:
        self._directory, self._started_config, self.config = directory, directory.config(), config
        self.file: dict[str, Any] = directory.status()
        self._while_running = "running"
        self._refused: list[str] = []
        self._refused_version = 0

    @property
    def status(self) -> str:
        """``starting running paused stopping finished stopped failed``, or ``interrupted`` as of a stored run."""
        state: str = self.file["state"]
        return self._while_running if state == "running" else state

    @property
    def has_ended(self) -> bool:
        """Whether status.json says that the run has ended."""
        return self.file["state"] in ENDED

    @property
    def reason(self) -> str:
        """Why the run ended, or which changes it refused last; empty otherwise."""
        return str(self.file["reason"]) or " ".join(self._refused)

    def look(self) -> bool:
        """Read status.json again, unless the run has ended; return whether anything changed."""
        status = self._directory.recorded_status()
        if status == self.file or self.has_ended:
            return False
        self.file = status
        return True

    def look_at_end(self) -> None:
        """Read status.json after the end: a run without a process left was interrupted."""
        self.file = self._directory.status()

    def fail(self, reason: str) -> None:
        """Count the run as failed, for a reason of this handle's own."""
        self.file = {**self.file, "state": "failed", "reason": reason}

    def add_remark(self, remark: str) -> None:
        """Add a remark to the reason."""
        self.file = {**self.file, "reason": f"{self.reason} ({remark})"}

    def note_event(self, kind: str, data: dict[str, Any]) -> None:
        """Take in an event of rank 0."""
        if kind == SettingsChanged.kind:  # one by one: a change of system drops the settings that the new one lacks
            changed = SettingsChanged.read(data)
            self.config = self.config.replace(**changed.changes)
            if changed.version > self._refused_version:
                self._refused = []
        elif kind == Refused.kind and data["version"] is not None:  # it could not be applied at its step or epoch
            refused = Refused.read(data)
            requested = ", ".join(f"{name}={value!r}" for name, value in refused.changes.items())
            messages = self._refused if data["version"] == self._refused_version else []
            self._refused = [*messages, f"{requested} was refused and the run continues unchanged: {refused.reason}"]
            self._refused_version = data["version"]
        elif kind == Resumed.kind:  # changes made after the checkpoint are undone by resuming from it
            self.config = self._started_config.replace(**Resumed.read(data).settings)
            self._refused, self._refused_version = [], 0  # versions count from 1 again
        self._while_running = _STATE_AFTER.get(kind, self._while_running)
