"""RankWatch: the ranks of a run as a handle sees them: silent ones, and deaths that no other rank reports."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from dtdg_lab.cluster.beacon import death_reason
from dtdg_lab.runs.directory import ENDED, RunDirectory
from dtdg_lab.runs.liveness import RankNote, Silence, dead_ranks, is_dead, read_notes, silent_beyond

SHOWN_S = 3.0  # of silence; shorter ones are a busy machine's
LEFT_S = 0.01  # ranks exit shortly after the run has ended
SURVIVORS_S = 3.0  # survivors of a dead rank mark the run and exit within this time


class RankWatch:
    """Watches the ranks of one attempt after another.

    Args:
        directory: the run's folder.
        silent_s: seconds that a run waits for a rank that gives no sign of life.
        trouble: returns why ranks could not start, if that happened.

    Attributes:
        silent: rank -> whole seconds without a sign of life, for ranks whose processes are stopped or blocked.
    """

    def __init__(self, directory: RunDirectory, *, silent_s: float, trouble: Callable[[], str]) -> None:
        self._directory, self._silent_s, self._trouble = directory, silent_s, trouble
        self._silence = Silence(directory.live)
        self._trouble_since: float | None = None
        self.silent: dict[int, int] = {}

    def look(self, status: dict[str, Any]) -> dict[int, RankNote]:
        """Look at all ranks, and return their notes.

        Args:
            status: of the run, as status.json has it.
        """
        notes = read_notes(self._directory.live, status["attempt"])
        silence = self._silence.look(notes)
        self.silent = {rank: int(silent_s) for rank, silent_s in sorted(silence.items()) if silent_s >= SHOWN_S}
        self._mark_if_unmarked(status, silent_beyond(silence, notes, self._silent_s))
        return notes

    def _mark_if_unmarked(self, status: dict[str, Any], silent: tuple[int, str] | None) -> None:
        """Mark a death that no survivor marks itself."""
        dead = dead_ranks(self._directory.live, status["attempt"])
        rank, trouble = (dead[0], death_reason(dead[0])) if dead else silent or (None, self._trouble())
        if not trouble or status["state"] in ENDED:
            self._trouble_since = None
            return
        self._trouble_since = self._trouble_since or time.monotonic()
        if time.monotonic() - self._trouble_since > SURVIVORS_S:
            self._directory.write_status("failed", reason=trouble, rank=rank, attempt=status["attempt"])

    def wait_for_exit(self, attempt: int) -> None:
        """Let survivors of a failure write their last records; ranks that remain after that were stuck."""
        deadline = time.monotonic() + SURVIVORS_S
        while time.monotonic() < deadline:
            if all(is_dead(note) for note in read_notes(self._directory.live, attempt).values()):
                return
            time.sleep(LEFT_S)
