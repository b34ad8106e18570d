"""The end of a run: merged tables, summary.json, report.html and status; by a process of its own for long runs."""

from __future__ import annotations

import os
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from dtdg_lab.core.catalogue import REGISTERED
from dtdg_lab.core.child_process import is_running, start_detached
from dtdg_lab.core.errors import ConfigError, NotAvailableError, RunStoreError
from dtdg_lab.runs.directory import ENDS, RunDirectory, read_object, write_json
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
    shown: StoredRun | None = None,
) -> dict[str, Any]:
    """Finalise a run's folder and return the summary; also for a run whose ranks were killed.

    May be called by several processes and again after a resume: the same call on the same records changes nothing, and
    new records are merged again. Every file is replaced atomically.

    Args:
        run_dir: the folder of the run.
        state: ``finished``, ``stopped`` or ``failed``.
        reason: why it ended.
        rank: the rank that caused it, if any.
        shown: the run with its views, if they were made before: then only later lines are read for the report.

    Raises:
        ConfigError: the state does not end a run.
        DataError: a record line is damaged.
        RunStoreError: a file cannot be written or read.
    """
    if state not in ENDS:
        raise ConfigError(f"state={state!r} does not end a run: allowed {', '.join(ENDS)}.")
    run = run_dir if isinstance(run_dir, RunDirectory) else RunDirectory.open(run_dir)
    status = run.recorded_status()
    ended_so = (status["state"], status["reason"], status["rank"]) == (state, reason, rank)
    tables = RunTables(run)
    if ended_so and tables.is_current() and run.summary_file.is_file() and run.report_file.is_file():
        return run.summary()
    for _ in range(_LOOKS):
        _write(tables, state, reason, rank, shown)
        if tables.is_current():  # else another rank has written its last lines meanwhile
            break
    if run.recorded_status()["attempt"] != status["attempt"]:  # it was resumed meanwhile, and has not ended
        return run.summary()
    # Last, so that a process that waits for this state finds the files complete.
    run.write_status(state, reason=reason, rank=rank, attempt=status["attempt"])
    return run.summary()


def _write(tables: RunTables, state: str, reason: str, rank: int | None, shown: StoredRun | None) -> None:
    from dtdg_lab.runs import report

    rows = tables.merge()
    write_json(tables.run.summary_file, {**summary_of(tables, state, reason, rank), "records": rows})
    if shown is not None:
        shown.catch_up()
    report.write_report(shown or tables.run, status={"state": state, "reason": reason})


# A process that follows the records of a long run: its report and tables need only the last lines at the end.


MANY_BYTES = 16 << 20  # of all ranks; finish() takes two seconds for them
LOOK_S = 2.0
UNMERGED = 1 / 32  # share of lines after which tables are merged again, so that all merges together stay linear
LINGER_S = 300.0  # without new records; a failed run may be resumed
CHECK_S = 30.0  # between two checks whether the follower lives
_STARTING_S = 20.0  # on a loaded machine
_POLL_S = 0.03
_ORDER = "finish-"  # files in the run's ``live`` folder
_NOTE, _LOCK = "follower.json", "follower.lock"


class Finisher:
    """Finishes a run: in another process if its records are many, so that this one stays small and responsive.

    A run has one such follower on a machine. It outlives the ranks, so that a resumed run's records are not read
    again; it exits when the run has finished, or after ``LINGER_S`` without new records.

    Args:
        directory: the run.
        ranks: R; each writes as many bytes as are given to :meth:`wrote`. 0 where none writes any more.
    """

    def __init__(self, directory: RunDirectory, *, ranks: int = 0) -> None:
        self._directory, self._ranks = directory, ranks
        self._bytes = sum(path.stat().st_size for path in directory.record_files().values())
        self._checked_s = -CHECK_S
        self._starts_until_s = 0.0

    def wrote(self, size: int) -> None:
        """A rank has written ``size`` bytes of records; once they are many, a follower reads them."""
        self._bytes += size * self._ranks
        if self._bytes >= MANY_BYTES and time.monotonic() - self._checked_s > CHECK_S:
            self._follow()

    def finish(self, state: str, reason: str = "", rank: int | None = None) -> None:
        """As :func:`finish`.

        Raises:
            DataError: a record line is damaged.
            RunStoreError: a file cannot be written or read.
        """
        if self._bytes >= MANY_BYTES:
            self._follow()
            if self._finished_by_follower({"state": state, "reason": reason, "rank": rank}):
                return
        finish(self._directory, state, reason, rank)  # where a follower failed, this raises the same error

    def _follow(self) -> None:
        """Start a follower where none lives."""
        self._checked_s = time.monotonic()
        if REGISTERED or is_followed(self._directory):  # another process lacks what was registered here
            return
        try:
            path = str(self._directory.path.resolve())
            start_detached(__name__, path, purpose="follows the run's records", advice="They are merged later.")
        except NotAvailableError:  # no process is left for it: all is read at the end
            return
        self._starts_until_s = time.monotonic() + _STARTING_S

    def _finished_by_follower(self, order: dict[str, Any]) -> bool:
        """Whether a follower has finished the run as ordered; not where none lives, or it exits before."""
        order["attempt"] = self._directory.recorded_status()["attempt"]
        file = write_json(self._directory.live / f"{_ORDER}{uuid.uuid4().hex}.json", order)
        while file.exists():
            if is_followed(self._directory):
                self._starts_until_s = 0.0
            elif time.monotonic() > self._starts_until_s:
                file.unlink(missing_ok=True)
                return False
            time.sleep(_POLL_S)
        return True


def is_followed(run: RunDirectory) -> bool:
    """Whether a follower of this run lives on this machine."""
    try:
        note = read_object(run.live / _NOTE, needs=("pid", "started_s", "host"))
    except RunStoreError:  # none was written
        return False
    return bool(note["host"] == host_id() and is_running(note["pid"], note["started_s"]))


def main() -> None:
    """The follower of the run in the folder named first: read its records as they come, and finish it when ordered."""
    import filelock
    import psutil

    run = RunDirectory.open(sys.argv[1])
    try:
        lock = filelock.FileLock(run.live / _LOCK).acquire(blocking=False)
    except filelock.Timeout:  # it has one
        return
    with lock:
        own = {"pid": os.getpid(), "started_s": psutil.Process().create_time(), "host": host_id()}
        write_json(run.live / _NOTE, own)
        _follow(StoredRun(run))


def _follow(shown: StoredRun) -> None:
    run, size, looked_s, grown_s, finished = shown.directory, 0, -LOOK_S, time.monotonic(), False
    while not finished and run.live.is_dir() and time.monotonic() - grown_s < LINGER_S:
        for order in run.live.glob(f"{_ORDER}*.json"):
            wanted = read_object(order)
            if wanted.pop("attempt") == run.recorded_status()["attempt"]:  # else its sender was killed long ago
                finish(run, **wanted, shown=shown)
                finished = wanted["state"] != "failed"
            order.unlink()
        if time.monotonic() - looked_s > LOOK_S:
            shown.catch_up()
            if shown.tables.unmerged_share > UNMERGED:
                shown.tables.merge()
            before, size = size, sum(path.stat().st_size for path in run.record_files().values())
            looked_s = time.monotonic()
            grown_s = looked_s if size != before else grown_s
        time.sleep(_POLL_S)


if __name__ == "__main__":
    main()
