"""Run: a handle on an active or past run on a session's engines."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.controller import ControlFunction, Controller
from dtdg_lab.cluster.liveness import death_reason
from dtdg_lab.cluster.messaging import Subscriber, ask
from dtdg_lab.cluster.requester import requester
from dtdg_lab.cluster.worker import place_of
from dtdg_lab.config.extensions import extensions_of
from dtdg_lab.config.record_tables import TABLES, rows_of
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import (
    ConfigError,
    ControlError,
    LabError,
    RunFailedError,
    RunInterruptedError,
    UnknownNameError,
)
from dtdg_lab.records.events import (
    AttemptStarted,
    CheckpointWritten,
    Paused,
    Refused,
    Requested,
    Resumed,
    SettingsChanged,
    Stopping,
    Unpaused,
)
from dtdg_lab.runs.charts import all_rollups, captions_of, figures_of
from dtdg_lab.runs.directory import ENDED, RunDirectory
from dtdg_lab.runs.figures import save_figures
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.liveness import Silence, dead_ranks, is_dead, read_notes, silent_beyond
from dtdg_lab.runs.record_lines import Line, RecordFile, parse_line
from dtdg_lab.runs.registered_code import add_extensions
from dtdg_lab.runs.run import PreparationLine, open_run
from dtdg_lab.runs.tables import UPDATE_BYTES, RunTables
from dtdg_lab.visualization.changes.log import changes_frame, requested_changes
from dtdg_lab.visualization.chart import XAxis
from dtdg_lab.visualization.layout import Figure

if TYPE_CHECKING:
    import pandas as pd

    from dtdg_lab.cluster.session import Session


LOOK_S = 0.1
RUN_LOOK_S = 0.05
WAIT_LOOK_S = 0.25
LEFT_S = 0.01  # ranks exit shortly after the run has ended
NOTES_S = 30.0  # rank 0 listens well before
SHOWN_S = 3.0  # of silence; shorter ones are a busy machine's
RECORDED_S = 2.0  # until the records have a request that rank 0 has accepted
SURVIVORS_S = 3.0  # survivors of a dead rank mark the run and exit within this time


class RunHandle:
    """What is seen of a run while it trains: its record tables, as far as they are read.

    Attributes:
        id: the run's name: its folder's.
        path: the run's folder.
        live: its record tables as columns, for charts; hold ``lock`` while reading it.
            A resumed run's handle continues with it.
        version: increases with every change of ``live``, or of the status.
        silent: rank -> whole seconds without a sign of life, for ranks whose processes are stopped or blocked.
    """

    def __init__(self, directory: RunDirectory, before: RunHandle | None = None) -> None:
        self._directory, self._files = directory, dict[int, RecordFile]()
        self.id, self.path = directory.id, directory.path
        self._started_config = self._config = directory.config()
        self.live = RunTables(self._started_config, directory.records, all_rollups())
        self.lock = threading.Lock()
        self.version = 0
        self.silent: dict[int, int] = {}
        self._next_seq: dict[int, int] = {}
        if before is not None:
            self._files, self.live, self.lock = before._files, before.live, before.lock
            self._config, self.version, self._next_seq = before._config, before.version + 1, before._next_seq
        self._thread = threading.Thread(target=self._follow, name=f"run-{directory.id}", daemon=True)

    @property
    def status(self) -> str:
        """``starting running paused stopping finished stopped failed``."""
        return str(self._directory.status()["state"])

    @property
    def reason(self) -> str:
        """Why the run ended, or which changes it refused last; empty otherwise."""
        return str(self._directory.status()["reason"])

    @property
    def config(self) -> RunConfig:
        """The current settings as far as this handle follows them."""
        return self._config

    def requests(self) -> pd.DataFrame:
        """Return the log of changes: who asked for which setting, its old and new value, and what became of it.

        A row for each setting, with the number of its request as index: see ``StoredRun.requests``.
        """
        with self.lock:
            return changes_frame(requested_changes(self.live, ended=self.status in ENDED))

    def figures(self, x: XAxis = "steps") -> dict[str, Figure]:
        """Return the charts so far by name, as plotly figure dicts; the picture of its system comes first."""
        with self.lock:
            return figures_of(self.live, x, ended=self.status in ENDED)

    def captions(self) -> dict[str, str]:
        """Return the caption of each chart, as it is now."""
        with self.lock:
            return captions_of(self.live, ended=self.status in ENDED)

    def save_figures(self, folder: str | Path, *, overwrite: bool = False) -> list[Path]:
        """Write every chart so far to a folder and return the paths (see ``runs.figures.save_figures``)."""
        return save_figures(self.figures(), folder, overwrite=overwrite)

    def _follow(self) -> None:
        raise NotImplementedError

    def _catch_up(self, rank: int) -> bool:
        """Read the next block of a rank's file; return whether there was anything."""
        raw_lines = self._file(rank).read(UPDATE_BYTES)
        lines = (parse_line(raw, place) for raw, place in raw_lines)
        new = [line for line in lines if line["seq"] >= self._next_seq.get(rank, 0)]
        if new:
            self._add(new)
        return bool(raw_lines)

    def _file(self, rank: int) -> RecordFile:
        return self._files.setdefault(rank, RecordFile(self._directory.record_file(rank)))

    def _add(self, lines: list[Line]) -> None:
        """Add new lines of one rank."""
        self._next_seq[lines[-1]["rank"]] = lines[-1]["seq"] + 1
        self.live.add_lines(lines)
        self.version += 1


class LocalRun(RunHandle):
    """Follows the records of one process, so that charts can be drawn during training."""

    def __init__(self, directory: RunDirectory) -> None:
        super().__init__(directory)
        self._over = threading.Event()
        self._thread.start()

    def close(self) -> None:
        """The run has ended: read the remaining records, and stop following."""
        self._over.set()
        self._thread.join()

    def _follow(self) -> None:
        over = False
        while not over:
            over = self._over.wait(LOOK_S)
            more = True
            while more:
                with self.lock:
                    more = self._catch_up(0)


_STATE_AFTER = {
    AttemptStarted.kind: "running",
    Paused.kind: "paused",
    Unpaused.kind: "running",
    Stopping.kind: "stopping",
}  # of a running run, after an event


class Run(RunHandle):
    """A kernel's view of a run and its control requests. Several kernels may hold handles on one run.

    Args:
        session: whose engines train it.
        directory: the run's folder.
        trouble: returns why ranks could not start, if that happened.
        before: the handle of the attempt before. If it followed that to its end, and has the rows that are replaced,
            this one continues with its tables: the records of a long run are not read again.
    """

    _is_complete = False  # every record of the attempt is in ``live``

    def __init__(
        self,
        session: Session,
        directory: RunDirectory,
        *,
        trouble: Callable[[], str] = lambda: "",
        before: Run | None = None,
    ) -> None:
        super().__init__(directory, _continued(before))
        self._session, self._trouble = session, trouble
        self._ended, self._closing = threading.Event(), threading.Event()
        self._file_status = directory.status()
        self._while_running = "running"
        self._newest_request: tuple[int, int] | None = None  # attempt and version
        self._refused: list[str] = []
        self._refused_version = 0
        self._trouble_since: float | None = None
        self._silence = Silence(directory.live)
        self._subscriber = Subscriber(session.key, self._take)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Run {self.id}: {self.status}>"

    def __fspath__(self) -> str:
        """The run's folder, so that a run can be used as a path: ``lab.runs.compare([run, ...])``."""
        return str(self.path)

    @property
    def status(self) -> str:
        """``starting running paused stopping finished stopped failed``, or ``interrupted`` as of a stored run."""
        state: str = self._file_status["state"]
        return self._while_running if state == "running" else state

    @property
    def reason(self) -> str:
        """Why the run ended, or which changes it refused last; empty otherwise.

        A refusal is dropped once a later change has been applied.
        """
        return str(self._file_status["reason"]) or " ".join(self._refused)

    @property
    def failed_rank(self) -> int | None:
        """The rank that caused the run's failure, if any."""
        rank: int | None = self._file_status["rank"]
        return rank

    @property
    def attempt(self) -> int:
        """Number of attempts so far."""
        return int(self._file_status["attempt"])

    @property
    def summary(self) -> dict[str, Any]:
        """The numbers of the whole run; empty until it ends."""
        return self._directory.summary()

    def to_pandas(self) -> pd.DataFrame:
        """Steps and evaluations of all ranks so far, one frame."""
        return open_run(self.path).to_pandas()

    # requests

    def set(self, *, by: str | None = None, **live_settings: Any) -> int:
        """Change live settings; returns the version under which all ranks apply them.

        Step settings take effect before the same next step of all ranks, epoch settings at the next epoch. The
        epoch settings of one call are applied or refused together, separately from its step settings and from other
        calls. Refused requests are recorded too: see :meth:`requests`.

        Args:
            by: who asks, for the log of changes; by default ``notebook`` in a kernel, else the name of the program.
            live_settings: the settings to change.

        Raises:
            ConfigError: a value is not allowed with the active and pending settings, or the setting cannot
                change during a run.
            ControlError: the run is not active, or rank 0 refused.
        """
        texts = [value for value in live_settings.values() if isinstance(value, str)]
        try:
            version = self._ask({"set": live_settings, "by": requester(by)})
        except ConfigError as error:
            if not (named := extensions_of(texts=texts)):
                raise
            titles = ", ".join(extension.title for extension in named)
            raise ConfigError(
                f"{error} If {titles} was registered after this attempt began, its engines do not know it: stop the "
                "run (run.stop()), then continue it (run.resume(...))."
            ) from error
        self._newest_request = self.attempt, version
        add_extensions(self.path, texts=texts)
        return version

    def requests(self) -> pd.DataFrame:
        """Return the log of changes, with all that this handle has asked for: see ``StoredRun.requests``."""
        until_s = time.monotonic() + RECORDED_S
        while not self._is_recorded() and not self._ended.is_set() and time.monotonic() < until_s:
            time.sleep(RUN_LOOK_S)
        return super().requests()

    def _is_recorded(self) -> bool:
        """Return whether the newest request of this handle is in the records."""
        if self._newest_request is None:
            return True
        with self.lock:
            events = self.live.events(Requested.kind, all_attempts=True)
        return any((event["attempt"], event["data"]["version"]) == self._newest_request for event in events)

    def control(self, function: ControlFunction, *, table: str = "evaluations", by: str | None = None) -> Controller:
        """Let a function steer this run: it is called with new rows of a table, and returns settings to change.

        It is called in a thread of this process until the run ends, first with all rows of this attempt so far. An
        error ends the controller, not the run, and is printed.

        Args:
            function: called with a pandas frame of rows of all ranks; returns a dict of settings, or None.
            table: the record table, such as ``steps``.
            by: its name in the log of changes; by default that of the function.

        Raises:
            UnknownNameError: there is no such table.
            ConfigError: the name is not a short text in one line.
        """
        if table not in TABLES:
            raise UnknownNameError("record table", table, TABLES)
        name = getattr(function, "__name__", type(function).__name__) if by is None else by
        return Controller(self, function, self._ended, table=table, by=requester(name))

    def pause(self) -> int:
        """Pause all ranks after the same step."""
        return self._ask({"pause": True})

    def unpause(self) -> int:
        """Continue a paused run."""
        return self._ask({"pause": False})

    def stop(self) -> int:
        """End the run after the same step of all ranks, with a checkpoint to resume from.

        Before the first step it ends at once, without a checkpoint.
        """
        return self._ask({"stop": True})

    def save_checkpoint(self) -> int:
        """Save a checkpoint at the next common step of all ranks, to fork the run from later.

        An event ``kept`` names the file once it exists: ``step-00345``, after 345 steps.
        """
        return self._ask({"keep": True})

    def stop_by(self, name: str) -> None:
        """Stop the run because of a signal to this process: it counts as interrupted by it."""
        self._ask({"stop": True, "signal": name, "rank": 0})

    def _ask(self, request: dict[str, Any]) -> int:
        if self.status in ENDED:
            raise ControlError(
                f"the run has ended ({self.status}) and accepts no more changes. run.resume() continues from its "
                "checkpoint."
            )
        note = read_notes(self._directory.live, self.attempt).get(0)
        deadline = time.monotonic() + NOTES_S
        while note is None and self.status == "starting" and time.monotonic() < deadline:
            time.sleep(0.02)  # rank 0 is about to listen
            note = read_notes(self._directory.live, self.attempt).get(0)
        if note is None:
            raise ControlError("rank 0 of the run has exited, so the run is about to end. Check run.status.")
        place = place_of(self._directory, self.attempt)
        return ask(note.control, self._session.key, request, place=place)

    def resume(self, **changes: Any) -> Run:
        """Resume from the last checkpoint, as a new attempt of the same run; returns this handle's successor.

        The successor continues with ``live``, so that of this handle shows the new attempt too.

        Args:
            changes: live settings to change then, such as a smaller ``learning_rate``.

        Raises:
            ControlError: the run is still active.
            ConfigError: a change is not allowed.
            RunStoreError: there is no checkpoint.
        """
        return self._session.resume(self, **changes)

    def wait(self, timeout_s: float | None = None) -> Run:
        """Return when the run has ended and its files are complete.

        Until the first step, a line shows what the run does and the time left, if that takes longer than a second.
        In a notebook cell this blocks the kernel, and with it the dashboard: prefer ``lab.runs.show_progress(run)`` in
        scripts and the dashboard in notebooks.

        Raises:
            TimeoutError: it has not ended in time.
            RunFailedError: it failed; the message names the rank and the cause.
            RunInterruptedError: it was interrupted; the message names the signal, or what else is known.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with PreparationLine() as line:
            while not self._ended.wait(WAIT_LOOK_S if deadline is None else min(WAIT_LOOK_S, timeout_s or 0.0)):
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError(f"run {self.id} is still {self.status} after {timeout_s:g} s.")
                with self.lock:
                    preparing = self.live.preparing
                line.show(preparing)
        if self._closing.is_set() and self.status not in ENDED:
            raise ControlError(
                f"run {self.id} continues, but this session has detached from it: Session.attach() reconnects to it."
            )
        if self.status == "failed":
            raise RunFailedError(f"run {self.id} failed: {self.reason}")
        if self.status == "interrupted":
            raise RunInterruptedError(f"run {self.id} was {self.reason}")
        return self

    async def wait_for_step(self, step: int, *, timeout_s: float = 60.0) -> Run:
        """In a cell, ``await run.wait_for_step(20)``: return when the run has completed that many steps, or has ended.

        Raises:
            TimeoutError: it has not reached the step in time.
        """
        deadline = time.monotonic() + timeout_s
        while (done := self._steps_done()) < step and not self._ended.is_set():
            if time.monotonic() > deadline:
                raise TimeoutError(f"run {self.id} is {self.status} at step {done} of {step}.")
            await asyncio.sleep(0.05)
        return self

    def _steps_done(self) -> int:
        with self.lock:
            return self.live.progress.step

    @property
    def is_outdated(self) -> bool:
        """Whether this handle followed its run to an end after which it was resumed, or took it for interrupted."""
        if not self._ended.is_set():
            return False
        now = self._directory.status() if self.status == "interrupted" else self._directory.recorded_status()
        return bool(now["attempt"] > self.attempt or (self.status == "interrupted" and now["state"] != "interrupted"))

    def close(self) -> None:
        """Stop following; the run itself continues. Waiting callers are notified."""
        if self._file_status["state"] in ENDED:
            self._ended.wait(SURVIVORS_S + 5.0)  # its files are being completed
        self._closing.set()
        self._thread.join()
        self._ended.set()

    def abandon(self, reason: str) -> None:
        """Mark a run as failed because its engines are about to be ended."""
        self._directory.write_status("failed", reason=reason, attempt=self.attempt)
        self._ended.wait(SURVIVORS_S + 5.0)

    # following

    def _take(self, line: dict[str, Any], size: int) -> None:
        """A line from the stream: passed on in order; lines lost by the stream are read from disk."""
        with self.lock:
            rank, seq = line["rank"], line["seq"]
            while seq > self._next_seq.get(rank, 0) and self._catch_up(rank):
                pass
            if seq == self._next_seq.get(rank, 0):
                self._add([line])
                self._file(rank).skip(size)  # the stream carries the file's own bytes

    def _read_from_disk(self) -> None:
        """Read everything on disk that is not in ``live`` yet; others may read between two blocks."""
        if not self.live.version:
            with self.lock:
                self.live.look_ahead()
        unread = {*self._directory.record_files()}
        while unread and not self._closing.is_set():
            with self.lock:
                rank = min(unread, key=lambda rank: self.live.steps.get(rank, -1))  # so that ranks stay side by side
                if not self._catch_up(rank):
                    unread.remove(rank)
            self._note_status()

    def _add(self, lines: list[Line]) -> None:
        super()._add(lines)
        for line in lines:
            if line["table"] == "events" and line["rank"] == 0:  # events of other ranks are duplicates of rank 0's
                for row in rows_of(line):
                    self._note_event(row["kind"], row["data"])

    def _note_event(self, kind: str, data: dict[str, Any]) -> None:
        if kind == SettingsChanged.kind:  # one by one: a change of system drops the settings that the new one lacks
            changed = SettingsChanged.read(data)
            self._config = self._config.replace(**changed.changes)
            if changed.version > self._refused_version:
                self._refused = []
        elif kind == Refused.kind and data["version"] is not None:  # it could not be applied at its step or epoch
            refused = Refused.read(data)
            asked = ", ".join(f"{name}={value!r}" for name, value in refused.changes.items())
            before = self._refused if data["version"] == self._refused_version else []
            self._refused = [*before, f"{asked} was refused and the run continues unchanged: {refused.reason}"]
            self._refused_version = data["version"]
        elif kind == Resumed.kind:  # changes made after the checkpoint are undone by resuming from it
            self._config = self._started_config.replace(**Resumed.read(data).settings)
            self._refused, self._refused_version = [], 0  # versions count from 1 again
        self._while_running = _STATE_AFTER.get(kind, self._while_running)

    def _follow(self) -> None:
        """Follow the run to its end; if this fails, report it instead of leaving the user waiting."""
        try:
            self._follow_to_the_end()
        except Exception as error:
            reason = (
                f"this handle lost the run ({type(error).__name__}: {error}): read it with lab.runs.open(run.path)."
            )
            self._file_status = {**self._file_status, "state": "failed", "reason": reason}
            self._subscriber.close()
            self._ended.set()
            raise

    def _follow_to_the_end(self) -> None:
        """Read what is on disk, subscribe to the ranks as they appear, and follow until the run has ended."""
        over = self._file_status["state"] in ENDED
        self._read_from_disk()
        if not over:
            self._subscriber.start()
            while self._file_status["state"] not in ENDED and not self._closing.wait(RUN_LOOK_S):
                self._look()
            if not self._closing.is_set():
                self._wait_for_ranks()
            self._subscriber.close()
            if self._closing.is_set():
                return
        self._read_from_disk()
        self._is_complete = not self._closing.is_set()
        self._complete()

    def _note_status(self) -> dict[str, Any]:
        status = self._directory.recorded_status()
        if status != self._file_status and self._file_status["state"] not in ENDED:
            self._file_status = status
            self.version += 1
        return status

    def _look(self) -> None:
        status = self._note_status()
        notes = read_notes(self._directory.live, status["attempt"])
        for note in notes.values():
            self._subscriber.connect(note.telemetry)
        before, seen = self.silent, self._silence.look(notes)
        self.silent = {rank: int(silent_s) for rank, silent_s in sorted(seen.items()) if silent_s >= SHOWN_S}
        self.version += self.silent != before
        self._mark_if_unmarked(status, silent_beyond(seen, notes, self._session.silent_s))

    def _mark_if_unmarked(self, status: dict[str, Any], silent: tuple[int, str] | None) -> None:
        """Survivors mark a death themselves; if there are none, or a rank never got that far, the kernel does."""
        dead = dead_ranks(self._directory.live, status["attempt"])
        rank, trouble = (dead[0], death_reason(dead[0])) if dead else silent or (None, self._trouble())
        if not trouble or status["state"] in ENDED:
            self._trouble_since = None
            return
        self._trouble_since = self._trouble_since or time.monotonic()
        if time.monotonic() - self._trouble_since > SURVIVORS_S:
            self._directory.write_status("failed", reason=trouble, rank=rank, attempt=status["attempt"])

    def _wait_for_ranks(self) -> None:
        """After a failure, let survivors write their last records; ranks that remain after that were stuck."""
        deadline = time.monotonic() + SURVIVORS_S
        while time.monotonic() < deadline:
            notes = read_notes(self._directory.live, self.attempt).values()
            if all(is_dead(note) for note in notes):
                return
            time.sleep(LEFT_S)

    def _complete(self) -> None:
        self._file_status = self._directory.status()
        try:
            recorded = self._directory.recorded_status()["state"]
            if recorded in ("failed", "interrupted"):
                finish(self._directory, recorded, self.reason, self.failed_rank, attempt=self.attempt)
        except LabError as error:
            self._file_status = {
                **self._file_status,
                "reason": f"{self.reason} (and its files are incomplete: {error})",
            }
        self.version += 1
        self._ended.set()


def _continued(before: Run | None) -> Run | None:
    """Return the handle if the next attempt can continue with its tables; else these are read again, some at a time."""
    if before is None or not before._is_complete:
        return None
    with before.lock:
        saved = before.live.event(CheckpointWritten)
        return before if before.live.keeps_rows_after(-1 if saved is None else saved.step) else None
