"""A function as a controller: it receives new rows of a run's records, and returns changes of settings."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from dtdg_lab.core.errors import ConfigError, ControlError
from dtdg_lab.records.lines import RecordFile, parse_line
from dtdg_lab.runs.directory import ENDED, RunDirectory

LOOK_S = 0.1
ENDING_S = 5.0  # time for a run that refuses requests to end
HEAD_BYTES = 256  # prefix of a line that contains the name of its table

ControlFunction = Callable[[pd.DataFrame], Mapping[str, Any] | None]


class SteeredRun(Protocol):
    """An active run whose settings can be changed."""

    id: str
    path: Path

    @property
    def attempt(self) -> int:
        """The number of attempts so far."""

    @property
    def status(self) -> str:
        """The state of the run."""

    def set(self, *, by: str | None = None, **live_settings: Any) -> int:
        """Request changes of settings."""


class Controller:
    """Calls a function with new rows of a run, in a thread of this process, and requests the changes it returns.

    An error of the function, or a refused request, is printed with its traceback and ends the controller. The run
    continues.

    Attributes:
        by: name in the log of changes.
        error: the error that ended it, if any.
    """

    def __init__(
        self, run: SteeredRun, function: ControlFunction, ended: threading.Event, *, table: str, by: str
    ) -> None:
        self._run, self._function, self._run_ended = run, function, ended
        self._table, self.by = table, by
        self.error: Exception | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"controller-{by}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        state = "active" if self._thread.is_alive() else "ended" if self.error is None else f"failed: {self.error}"
        return f"<Controller {self.by} of {self._run.id}: {state}>"

    def stop(self) -> None:
        """End the controller after its current call; the run continues."""
        self._stopped.set()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the controller has ended: with its run, or stopped.

        Raises:
            TimeoutError: it has not ended in time.
            Exception: the error that ended it.
        """
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(f"controller {self.by} has not ended after {timeout_s:g} s.")
        if self.error is not None:
            raise self.error

    def _work(self) -> None:
        try:
            for rows in self._new_rows():
                changes = self._function(rows)
                if changes is not None and not self._stopped.is_set():
                    self._request(changes)
        except Exception as error:  # any error of the function, since there is no caller to raise to
            self.error = error
            error.add_note(f"This ended controller {self.by}; run {self._run.id} continues.")
            traceback.print_exception(error)

    def _new_rows(self) -> Iterator[pd.DataFrame]:
        """Yield the rows of this attempt recorded since the last call, until the run ends."""
        files: dict[int, RecordFile] = {}
        directory, over = RunDirectory(self._run.path), False
        while not over and not self._stopped.is_set():
            over = self._run_ended.is_set()  # check before reading the rows, so that none is missed
            for rank, path in directory.record_files().items():
                files.setdefault(rank, RecordFile(path))
            rows = [row for file in files.values() for row in self._read(file)]
            if rows:
                yield pd.DataFrame(rows)
            else:
                self._stopped.wait(LOOK_S)

    def _read(self, file: RecordFile) -> Iterator[dict[str, Any]]:
        mark = f'"{self._table}"'.encode()
        while raw_lines := file.read():
            for raw, location in raw_lines:
                if mark not in raw[:HEAD_BYTES]:
                    continue
                line = parse_line(raw, location)
                if line["table"] == self._table and line["attempt"] == self._run.attempt:
                    whose = {"rank": line["rank"], "attempt": line["attempt"]}
                    yield from (whose | dict(zip(line["columns"], row, strict=True)) for row in line["rows"])

    def _request(self, changes: Mapping[str, Any]) -> None:
        if not isinstance(changes, Mapping):
            raise ConfigError(
                f"controller {self.by} returned {changes!r}. Return a dict of settings, such as "
                "{'learning_rate': 0.001}, or None."
            )
        if not changes:
            return
        try:
            self._run.set(**changes, by=self.by)
        except ControlError:
            if not self._is_ending():
                raise

    def _is_ending(self) -> bool:
        """Return True if the run is about to end, and therefore refuses requests."""
        deadline = time.monotonic() + ENDING_S
        while self._run.status not in (*ENDED, "stopping") and not self._run_ended.is_set():
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_S)
        return True
