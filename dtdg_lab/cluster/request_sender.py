"""RequestSender: sends the control requests of a handle to rank 0 of its run."""

from __future__ import annotations

import time

from dtdg_lab.cluster.control import ask, attempt_scope
from dtdg_lab.cluster.run_state import RunState
from dtdg_lab.core.errors import ControlError
from dtdg_lab.records.requests import Request
from dtdg_lab.runs.directory import ENDED, RunDirectory
from dtdg_lab.runs.liveness import read_notes

NOTES_S = 30.0  # rank 0 listens well before
LOOK_S = 0.02


class RequestSender:
    """Sends control requests to rank 0 of the present attempt of a run.

    Args:
        directory: the run's folder.
        state: of the run.
        key: signs requests.
    """

    def __init__(self, directory: RunDirectory, state: RunState, key: str) -> None:
        self._directory, self._state, self._key = directory, state, key

    def send(self, request: Request) -> int:
        """Send a request and return its version; while the run starts, wait until rank 0 listens.

        Raises:
            ControlError: the run has ended or is about to end, or rank 0 refused.
            ConfigError: a setting is not allowed.
        """
        status, attempt = self._state.status, int(self._state.file["attempt"])
        if status in ENDED:
            raise ControlError(
                f"the run has ended ({status}) and accepts no more changes. run.resume() continues from its checkpoint."
            )
        note = read_notes(self._directory.live, attempt).get(0)
        deadline = time.monotonic() + NOTES_S
        while note is None and self._state.status == "starting" and time.monotonic() < deadline:
            time.sleep(LOOK_S)  # rank 0 is about to listen
            note = read_notes(self._directory.live, attempt).get(0)
        if note is None:
            raise ControlError("rank 0 of the run has exited, so the run is about to end. Check run.status.")
        return ask(note.control, self._key, request, scope=attempt_scope(self._directory, attempt))
