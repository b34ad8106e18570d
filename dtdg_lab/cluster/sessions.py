"""Sessions on this machine, listed and ended from outside."""

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
    """All sessions whose files are on this machine, oldest first."""
    return [_info(files) for files in all_sessions()]


def _info(files: SessionFiles) -> SessionInfo:
    runs = files.runs()
    processes = len(files.processes()) if files.owned else 0
    return SessionInfo(
        files.id, files.name, files.ranks, processes, files.idle_for_s(), files.owned, runs[-1] if runs else None
    )


def end_session(session_id: str) -> int:
    """End a session: its engines and controller where it owns them, and its files. Returns how many processes ended.

    A run under way is lost from its last checkpoint on; stop it first to lose nothing.

    Raises:
        UnknownNameError: there is no such session.
    """
    files = SessionFiles.read(session_id)
    ended = end_processes(files) if files.owned else 0
    files.remove()
    return ended
