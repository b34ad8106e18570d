"""The sessions on this machine: list and end them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dtdg_lab.cluster.session_files import SessionFiles, all_sessions, end_processes


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One line of the list."""

    id: str
    name: str
    ranks: int
    processes: int
    idle_s: float
    owned: bool
    last_run: Path | None


def list_sessions() -> list[SessionInfo]:
    """Return all sessions with files on this machine, oldest first."""
    sessions = []
    for files in all_sessions():
        running, last = len(files.processes()) if files.owned else 0, next(reversed(files.runs()), None)
        idle_s = files.idle_for_s()
        sessions.append(SessionInfo(files.id, files.name, files.ranks, running, idle_s, files.owned, last))
    return sessions


def end_session(session_id: str) -> int:
    """End a session: its engines and controller if it owns them, and its files. Returns the number of ended processes.

    An active run loses its work since the last checkpoint; stop it first to avoid this.

    Raises:
        UnknownNameError: there is no such session.
    """
    files = SessionFiles.read(session_id)
    ended = end_processes(files) if files.owned else 0
    files.remove()
    return ended
