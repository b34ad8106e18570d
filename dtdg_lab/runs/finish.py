"""The end of a run: merged tables, summary.json, report.html and status; by a process of its own for long runs."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import uuid
from importlib import import_module
from pathlib import Path
from typing import Any

from dtdg_lab.core.child_process import is_running, start_detached
from dtdg_lab.core.errors import ConfigError, NotAvailableError, RunStoreError
from dtdg_lab.runs.directory import ENDED, RunDirectory, read_object, write_json
from dtdg_lab.runs.liveness import host_id
from dtdg_lab.runs.records import RunTables
from dtdg_lab.runs.run import StoredRun
from dtdg_lab.runs.summary import summary_of

_LOOKS = 3


def finish(
    run_dir: str | Path | RunDirectory,
    state: str,
    reason: str = "",
    rank: int | None = None,
    *,
    attempt: int | None = None,
    shown: StoredRun | None = None,
) -> dict[str, Any]:
    """Finalise a run's folder and return the summary; also for a run whose ranks were killed.

    May be called by several processes and again after a resume: the same call on the same records, once merged, changes
    nothing, and new records are merged again. Every file is replaced atomically.

    Args:
        run_dir: the folder of the run.
        state: ``finished``, ``stopped``, ``failed`` or ``interrupted``.
        reason: why it ended.
        rank: the rank that caused it, if any.
        attempt: the attempt that ended; if the run has been resumed since, nothing changes. None is the present one.
        shown: the run with its views, if they were made before: then only later lines are read. Its tables are not
            merged: that is left to the caller, since they can be read all the same.

    Raises:
        ConfigError: the state does not end a run.
        DataError: a record line is damaged.
        RunStoreError: a file cannot be written or read.
    """
    if state not in ENDED:
        raise ConfigError(f"state={state!r} does not end a run: allowed {', '.join(ENDED)}.")
    run = run_dir if isinstance(run_dir, RunDirectory) else RunDirectory.open(run_dir)
    status = run.recorded_status()
    if attempt is not None and status["attempt"] != attempt:
        return run.summary()
    ended_so = (status["state"], status["reason"], status["rank"]) == (state, reason, rank)
    tables = RunTables(run) if shown is None else shown.tables
    if ended_so and tables.is_current() and run.summary_file.is_file() and run.report_file.is_file():
        return run.summary()
    for _ in range(_LOOKS):
        sizes = tables.sizes()
        _write(tables, state, reason, rank, shown)
        if tables.sizes() == sizes:  # else another rank has written its last lines meanwhile
            break
    if run.recorded_status()["attempt"] != status["attempt"]:  # it was resumed meanwhile, and has not ended
        return run.summary()
    # Last, so that a process that waits for this state finds the files complete.
    run.write_status(state, reason=reason, rank=rank, attempt=status["attempt"])
    return run.summary()


def _write(tables: RunTables, state: str, reason: str, rank: int | None, shown: StoredRun | None) -> None:
    from dtdg_lab.runs import report

    if shown is not None:
        shown.catch_up()
        if tables.unmerged_share > LATE:
            tables.merge(hold=True)
    rows = tables.merge() if shown is None else tables.counts()
    write_json(tables.run.summary_file, {**summary_of(tables, state, reason, rank), "records": rows})
    report.write_report(shown or tables.run, status={"state": state, "reason": reason})


# A process that follows the records of a long run: its report and tables need only the last lines at the end.


MANY_BYTES = 16 << 20  # of all ranks; finish() takes two seconds for them
LOOK_S = 2.0
LATE = 1 / 4  # share of lines that are merged before the end, since they would be read several times
UNMERGED = 1 / 32  # share of lines after which tables are merged again, so that all merges together stay linear
LINGER_S = 300.0  # after the last record of a run that may be resumed
CHECK_S = 30.0  # between two checks whether the follower is running
MOST_STARTS = 3  # by one process: a follower may exit again, as at a damaged line
BEAT_S, SILENT_S = 1.0, 60.0
_STARTING_S = 20.0  # on a loaded machine
_ORDERS_S, _POLL_S = 0.2, 0.03
_ORDER = "finish-"  # files in the run's ``live`` folder
_NOTE, _LOCK, _LOG = "follower.json", "follower.lock", "follower.log"


class Finisher:
    """Finishes an attempt: in another process if records are many, so that this one stays small and responsive.

    A run has one such follower on a machine. It does not end with the ranks, so that a run that is resumed within
    ``LINGER_S`` is not read again. It exits when the run has finished.

    Args:
        directory: the run.
        attempt: the attempt that is to be finished. Once the run is resumed, nothing changes.
        ranks: R; each writes as many bytes as are given to :meth:`wrote`. 0 where none writes any more.
    """

    def __init__(self, directory: RunDirectory, attempt: int, *, ranks: int = 0) -> None:
        self._directory, self._attempt, self._ranks = directory, attempt, ranks
        self._bytes = sum(path.stat().st_size for path in directory.record_files().values())
        self._checked_s = -CHECK_S
        self._starts, self._starts_until_s = 0, 0.0

    def wrote(self, size: int) -> None:
        """A rank has written ``size`` bytes of records; once they are many, a follower reads them."""
        self._bytes += size * self._ranks
        if self._is_long and time.monotonic() - self._checked_s > CHECK_S:
            self._follow()

    def finish(self, state: str, reason: str = "", rank: int | None = None) -> None:
        """As :func:`finish`.

        Raises:
            DataError: a record line is damaged.
            RunStoreError: a file cannot be written or read.
        """
        if self._is_long:
            self._follow()
            if self._finished_by_follower({"state": state, "reason": reason, "rank": rank, "attempt": self._attempt}):
                return
        # where a follower failed, this raises the same error
        finish(self._directory, state, reason, rank, attempt=self._attempt)

    @property
    def _is_long(self) -> bool:
        # another process would lack the code that was registered here
        return self._bytes >= MANY_BYTES and not self._directory.extensions()

    def _follow(self) -> None:
        """Start a follower if none is running."""
        self._checked_s = time.monotonic()
        if is_followed(self._directory) or self._starts >= MOST_STARTS:
            return
        live = self._directory.live
        (live / _NOTE).unlink(missing_ok=True)
        self._starts += 1
        try:
            path = str(self._directory.path.resolve())
            advice = "The run's files are written without it."
            start_detached(__name__, path, purpose="follows the run's records", advice=advice, errors=live / _LOG)
            self._starts_until_s = time.monotonic() + _STARTING_S
        except NotAvailableError:  # no process is left for it: all is read at the end
            self._starts_until_s = 0.0

    def _finished_by_follower(self, order: dict[str, Any]) -> bool:
        """Whether a follower has finished the attempt as ordered; not if none is running, or it exits before."""
        file = write_json(self._directory.live / f"{_ORDER}{uuid.uuid4().hex}.json", order)
        while file.exists():
            running = is_followed(self._directory)
            if running is False or (running is None and time.monotonic() > self._starts_until_s):
                file.unlink(missing_ok=True)
                return False
            time.sleep(_POLL_S)
        status = self._directory.recorded_status()
        return status["state"] in ENDED or status["attempt"] != self._attempt


def is_followed(run: RunDirectory) -> bool | None:
    """Whether the follower of this run is running on this machine; None if no follower has left a note."""
    file = run.live / _NOTE
    try:
        note, age_s = read_object(file), time.time() - file.stat().st_mtime
        own = (note["host"], note["path"]) == (host_id(), str(run.path.resolve()))  # a copied folder has its note too
        return own and age_s < SILENT_S and is_running(note["pid"], note["started_s"])
    except (RunStoreError, OSError):
        return None
    except (LookupError, TypeError, ValueError):  # written by something else
        return False


def main() -> None:
    """The follower of the run in the folder named first: read its records as they come, and finish it when ordered."""
    import filelock
    import psutil

    import_module("pandas")  # takes a second: before it is needed
    run = RunDirectory.open(sys.argv[1])
    try:
        lock = filelock.FileLock(run.live / _LOCK).acquire(blocking=False)
    except filelock.Timeout:  # another one follows it
        return
    with lock:
        started_s = psutil.Process().create_time()
        own = {"pid": os.getpid(), "started_s": started_s, "host": host_id(), "path": str(run.path.resolve())}
        write_json(run.live / _NOTE, own)
        threading.Thread(target=_beat, args=(run.live / _NOTE, own), name="beat", daemon=True).start()
        _follow(StoredRun(run))


def _beat(file: Path, note: dict[str, Any]) -> None:
    """Renew the note, so that a follower that was stopped is not waited for."""
    while file.parent.is_dir():
        try:
            os.utime(file)
        except FileNotFoundError:
            write_json(file, note)
        time.sleep(BEAT_S)


def _follow(shown: StoredRun) -> None:
    run, tables, size, looked_s, grown_s = shown.directory, shown.tables, 0, -LOOK_S, time.monotonic()
    while run.live.is_dir() and time.monotonic() - grown_s < LINGER_S:
        orders = list(run.live.glob(f"{_ORDER}*.json"))
        if not orders and time.monotonic() - looked_s > LOOK_S:
            shown.catch_up()
            gc.collect()
            gc.freeze()  # the views stay: a collection that goes through them takes half a second after an hour
            if tables.unmerged_share > UNMERGED:
                tables.merge(hold=True)
            before, size = size, sum(tables.sizes().values())
            looked_s = time.monotonic()
            grown_s = looked_s if size != before else grown_s
        for file in orders:
            try:
                order = read_object(file)
            except RunStoreError:
                if file.exists():
                    raise
                continue  # withdrawn: the process that gave the order finishes the run itself
            finish(run, order["state"], order["reason"], order["rank"], attempt=order["attempt"], shown=shown)
            file.unlink(missing_ok=True)
            shown.catch_up()
            tables.merge(hold=True)
        if run.recorded_status()["state"] == "finished":
            return
        time.sleep(_ORDERS_S)


if __name__ == "__main__":
    main()
