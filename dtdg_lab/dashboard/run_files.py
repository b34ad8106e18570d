"""Facts from a run's files, read by a thread: its name, when it ended, and where it can be resumed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from dtdg_lab.core.errors import LabError
from dtdg_lab.dashboard.actions import Actions
from dtdg_lab.runs.checkpoints import read_kept
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.widgets.run_page import BackgroundWorker


@dataclass(frozen=True, slots=True)
class RunFiles:
    """Facts from a run's folder.

    Attributes:
        name: that a person gave the run; empty where none did.
        ended: time of day of its last status.
        checkpoint_step: of its last checkpoint; None where there is none.
    """

    name: str = ""
    ended: str = ""
    checkpoint_step: int | None = None


def read_run_files(path: Path) -> RunFiles:
    """Return the facts of a run's folder; what it lacks is left out."""
    directory = RunDirectory(path)
    if not directory.status_file.is_file():
        return RunFiles()
    time_ns = directory.recorded_status().get("time_ns")
    ended = "" if time_ns is None else f"{datetime.fromtimestamp(time_ns / 1e9):%H:%M}"
    try:
        step = read_kept(directory.checkpoint_file).step if directory.checkpoint_file.is_file() else None
    except LabError:  # it is being replaced now: a button without a step resumes as well
        step = None
    return RunFiles(directory.name(), ended, step)


class RunFilesReader:
    """Reads the files of the run that is shown, whenever it is asked to."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self._worker: BackgroundWorker[Path] = BackgroundWorker(self._read, "dashboard-run-files")
        self.facts = RunFiles()

    def follow(self, path: Path | None) -> None:
        """Forget the run before, and read this one."""
        self.facts = RunFiles()
        self._path = path
        self.read()

    def read(self) -> None:
        """Read soon, in the thread."""
        if self._path is not None:
            self._worker.ask(self._path)

    def _read(self, path: Path) -> None:
        try:
            facts = read_run_files(path)
        except (LabError, OSError):  # the run reports what is wrong with its files
            return
        self._actions.later(lambda: self._take(path, facts))

    def _take(self, path: Path, facts: RunFiles) -> None:
        if path == self._path:
            self.facts = facts

    def close(self) -> None:
        """End the thread."""
        self._worker.close()
