"""What is seen of a run that trains in this process: its records, as they come."""

from __future__ import annotations

import threading
from pathlib import Path

from dtdg_lab.core.config import RunConfig
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.lines import tail
from dtdg_lab.views.window import RunWindow

LOOK_S = 0.1


class LocalRun:
    """Follows the records of one process, so that views can be drawn while it trains.

    Attributes:
        config: the settings it was started with.
        window: what views are drawn from; hold ``lock`` while reading it.
        version: grows with each change of ``window``.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self.config: RunConfig = directory.config()
        self.window = RunWindow(self.config)
        self.lock = threading.Lock()
        self.version = 0
        self._offset = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"run-{directory.id}", daemon=True)
        self._thread.start()

    @property
    def id(self) -> str:
        """The run's name: its folder's."""
        return self._directory.id

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self._directory.path

    @property
    def status(self) -> str:
        """The state written last."""
        return str(self._directory.status()["state"])

    def close(self) -> None:
        """The run has ended: read what is left, and stop following."""
        self._over.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._over.wait(LOOK_S):
            self._read()
        self._read()

    def _read(self) -> None:
        lines, self._offset = tail(self._directory.record_file(0), self._offset)
        if lines:
            with self.lock:
                for line in lines:
                    self.window.add(line)
                self.version += 1
