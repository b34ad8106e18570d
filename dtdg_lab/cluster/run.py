"""Run: a handle on an active or past run on a session's engines."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import pandas as pd

from dtdg_lab.cluster.control import requester
from dtdg_lab.cluster.controller import ControlFunction, Controller
from dtdg_lab.cluster.followed_run import FollowedRun
from dtdg_lab.cluster.rank_watch import SURVIVORS_S, RankWatch
from dtdg_lab.cluster.request_sender import RequestSender
from dtdg_lab.cluster.run_state import RunState
from dtdg_lab.cluster.telemetry import Subscriber
from dtdg_lab.config.extensions import extensions_of
from dtdg_lab.config.record_tables import TABLES, rows_of
from dtdg_lab.core.errors import (
    ConfigError,
    ControlError,
    LabError,
    RunFailedError,
    RunInterruptedError,
    UnknownNameError,
)
from dtdg_lab.records.events import (
    CheckpointWritten,
    Requested,
)
from dtdg_lab.records.lines import Line
from dtdg_lab.records.requests import Keep, Pause, Resume, SetLive, Stop
from dtdg_lab.runs.directory import ENDED, RunDirectory
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.progress import PreparationLine
from dtdg_lab.runs.registered_code import add_extensions
from dtdg_lab.runs.stored_run import open_run

RUN_LOOK_S = 0.05
WAIT_LOOK_S = 0.25
RECORDED_S = 2.0  # until the records have a request that rank 0 has accepted


class RunSession(Protocol):
    """The session whose engines train a run."""

    @property
    def key(self) -> str:
        """The key that signs telemetry and control messages."""

    @property
    def silent_s(self) -> float:
        """Seconds that a run waits for a rank that gives no sign of life."""

    def resume(self, run: Run, **changes: Any) -> Run:
        """Resume a run from its last checkpoint."""


class Run(FollowedRun):
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
        session: RunSession,
        directory: RunDirectory,
        *,
        trouble: Callable[[], str] = lambda: "",
        predecessor: Run | None = None,
    ) -> None:
        super().__init__(directory, _continued(predecessor))
        self._session = session
        self._ended, self._closing = threading.Event(), threading.Event()
        self._state = RunState(directory, self._config)
        self._newest_request: tuple[int, int] | None = None  # attempt and version
        self._send = RequestSender(directory, self._state, session.key).send
        self._watch = RankWatch(directory, silent_s=session.silent_s, trouble=trouble)
        self._subscriber = Subscriber(session.key, self._take)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Run {self.id}: {self.status}>"

    def __fspath__(self) -> str:
        """Return the run's folder, so that a run can be used as a path: ``lab.runs.compare([run, ...])``."""
        return str(self.path)

    @property
    def status(self) -> str:
        """``starting running paused stopping finished stopped failed``, or ``interrupted`` as of a stored run."""
        return self._state.status

    @property
    def reason(self) -> str:
        """Why the run ended, or which changes it refused last; empty otherwise.

        A refusal is dropped once a later change has been applied.
        """
        return self._state.reason

    @property
    def failed_rank(self) -> int | None:
        """The rank that caused the run's failure, if any."""
        rank: int | None = self._state.file["rank"]
        return rank

    @property
    def attempt(self) -> int:
        """Number of attempts so far."""
        return int(self._state.file["attempt"])

    @property
    def summary(self) -> dict[str, Any]:
        """The numbers of the whole run; empty until it ends."""
        return self._directory.summary()

    def to_pandas(self) -> pd.DataFrame:
        """Return steps and evaluations of all ranks so far, one frame."""
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
            version = self._send(SetLive(live_settings, requester(by)))
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
        while self._newest_request is not None and not self._ended.is_set() and time.monotonic() < until_s:
            with self.lock:
                events = self.live.events(Requested.kind, all_attempts=True)
            if any((event["attempt"], event["data"]["version"]) == self._newest_request for event in events):
                break
            time.sleep(RUN_LOOK_S)
        return super().requests()

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
        return self._send(Pause())

    def unpause(self) -> int:
        """Continue a paused run."""
        return self._send(Resume())

    def stop(self) -> int:
        """End the run after the same step of all ranks, with a checkpoint to resume from.

        Before the first step it ends at once, without a checkpoint.
        """
        return self._send(Stop())

    def save_checkpoint(self) -> int:
        """Save a checkpoint at the next common step of all ranks, to fork the run from later.

        An event ``kept`` names the file once it exists: ``step-00345``, after 345 steps.
        """
        return self._send(Keep())

    def stop_by(self, name: str) -> None:
        """Stop the run because of a signal to this process: it counts as interrupted by it."""
        self._send(Stop(name))

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
        """Return when the run has completed that many steps, or has ended: ``await run.wait_for_step(20)``.

        Raises:
            TimeoutError: it has not reached the step in time.
        """
        deadline = time.monotonic() + timeout_s
        while not self._ended.is_set():
            with self.lock:
                steps = self.live.progress.step
            if steps >= step:
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"run {self.id} is {self.status} at step {steps} of {step}.")
            await asyncio.sleep(0.05)
        return self

    @property
    def is_outdated(self) -> bool:
        """Whether this handle followed its run to an end after which it was resumed, or took it for interrupted."""
        if not self._ended.is_set():
            return False
        status = self._directory.status() if self.status == "interrupted" else self._directory.recorded_status()
        return bool(
            status["attempt"] > self.attempt or (self.status == "interrupted" and status["state"] != "interrupted")
        )

    def close(self) -> None:
        """Stop following; the run itself continues. Waiting callers are notified."""
        if self._state.has_ended:
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
        """Add a line from the stream in order; lines lost by the stream are read from disk."""
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
            self.version += self._state.look()

    def _add(self, lines: list[Line]) -> None:
        super()._add(lines)
        for line in lines:
            if line["table"] == "events" and line["rank"] == 0:  # events of other ranks are duplicates of rank 0's
                for row in rows_of(line):
                    self._state.note_event(row["kind"], row["data"])
        self._config = self._state.config

    def _follow(self) -> None:
        """Follow the run to its end; if this fails, report it instead of leaving the user waiting."""
        try:
            self._follow_to_the_end()
        except Exception as error:
            reason = (
                f"this handle lost the run ({type(error).__name__}: {error}): read it with lab.runs.open(run.path)."
            )
            self._state.fail(reason)
            self._subscriber.close()
            self._ended.set()
            raise

    def _follow_to_the_end(self) -> None:
        """Read what is on disk, subscribe to the ranks as they appear, and follow until the run has ended."""
        over = self._state.has_ended
        self._read_from_disk()
        if not over:
            self._subscriber.start()
            while not self._state.has_ended and not self._closing.wait(RUN_LOOK_S):
                self._look()
            if not self._closing.is_set():
                self._watch.wait_for_exit(self.attempt)
            self._subscriber.close()
            if self._closing.is_set():
                return
        self._read_from_disk()
        self._is_complete = not self._closing.is_set()
        self._complete()

    def _look(self) -> None:
        self.version += self._state.look()
        former, notes = self.silent, self._watch.look(self._state.file)
        for note in notes.values():
            self._subscriber.connect(note.telemetry)
        self.silent = self._watch.silent
        self.version += self.silent != former

    def _complete(self) -> None:
        self._state.look_at_end()
        try:
            recorded = self._directory.recorded_status()["state"]
            if recorded in ("failed", "interrupted"):
                finish(self._directory, recorded, self.reason, self.failed_rank, attempt=self.attempt)
        except LabError as error:
            self._state.add_remark(f"and its files are incomplete: {error}")
        self.version += 1
        self._ended.set()


def _continued(predecessor: Run | None) -> Run | None:
    """Return the handle if the next attempt can continue with its tables; else these are read again, some at a time."""
    if predecessor is None or not predecessor._is_complete:
        return None
    with predecessor.lock:
        saved = predecessor.live.event(CheckpointWritten)
        return predecessor if predecessor.live.recent_rows.holds_after(-1 if saved is None else saved.step) else None
