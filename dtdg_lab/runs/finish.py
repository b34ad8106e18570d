"""The end of a run: merged tables, summary.json, report.html and status; by a child process where records are many."""

from __future__ import annotations

import json
import os
import select
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dtdg_lab.core.catalogue import REGISTERED
from dtdg_lab.core.child_process import ChildProcess, begin_child
from dtdg_lab.core.errors import ConfigError, NotAvailableError
from dtdg_lab.runs.directory import ENDS, RunDirectory, write_json
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


# A child process that follows the records of a long run: its report and tables need only the last lines at the end.


MANY_BYTES = 16 << 20  # of all ranks; finish() takes two seconds for them
LOOK_S = 2.0
UNMERGED = 1 / 32  # share of lines after which tables are merged again, so that all merges together stay linear


class Finisher:
    """Finishes a run: in a child process if its records are many, so that this one stays small and responsive.

    Args:
        directory: the run.
        ranks: R; each writes as many bytes as are given to :meth:`wrote`. 0 where none writes any more.
    """

    def __init__(self, directory: RunDirectory, *, ranks: int = 0) -> None:
        self._directory, self._ranks = directory, ranks
        self._bytes = sum(path.stat().st_size for path in directory.record_files().values())
        self._child: ChildProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is not None:
            self._child.kill()  # it has finished, or is not to
            self._child.wait()
            self._child.release()

    def wrote(self, size: int) -> None:
        """A rank has written ``size`` bytes of records; once they are many, a child process follows them."""
        self._bytes += size * self._ranks
        self._follow()

    def finish(self, state: str, reason: str = "", rank: int | None = None) -> None:
        """As :func:`finish`.

        Raises:
            DataError: a record line is damaged.
            RunStoreError: a file cannot be written or read.
        """
        self._follow()
        if self._child is not None and self._child.is_alive:
            order = {"state": state, "reason": reason, "rank": rank}
            try:
                self._child.orders.write(json.dumps(order).encode() + b"\n")
                done = os.read(self._child.answers, 1)
            except BrokenPipeError:
                done = b""
            if done:
                return
        finish(self._directory, state, reason, rank)  # where a child failed, this raises the same error with its type

    def _follow(self) -> None:
        if self._child is not None or self._bytes < MANY_BYTES or REGISTERED:  # a child lacks what was registered here
            return
        try:
            self._child = ChildProcess(__name__, purpose="follows the run's records", advice="They are merged later.")
            self._child.orders.write(json.dumps(str(self._directory.path.resolve())).encode() + b"\n")
        except (NotAvailableError, BrokenPipeError):  # no process is left for it: all is read at the end
            self._ranks = 0


def main() -> None:
    """The child: take in the run named on standard input, follow it, and finish it as the next line asks."""
    parent_lives = begin_child()
    os.nice(10)  # the ranks need the cores
    with open(0, "rb", buffering=0) as orders:
        shown = StoredRun(RunDirectory.open(json.loads(orders.readline())))
        while parent_lives():
            if select.select([orders], [], [], LOOK_S)[0]:
                if order := orders.readline():
                    finish(shown.directory, **json.loads(order), shown=shown)
                    os.write(1, b"1")
                return
            shown.catch_up()
            if shown.tables.unmerged_share > UNMERGED:
                shown.tables.merge()


if __name__ == "__main__":
    main()
