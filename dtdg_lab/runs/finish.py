"""The end of a run: Parquet files of its records, summary.json, report.html and its final status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.runs import parquet
from dtdg_lab.runs.directory import ENDED, RunDirectory
from dtdg_lab.runs.frames import RunFrames
from dtdg_lab.runs.json_files import write_json
from dtdg_lab.runs.report import write_report
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.runs.summary import summary_of

_LOOKS = 3


def finish(
    run_dir: str | Path | RunDirectory,
    state: str,
    reason: str = "",
    rank: int | None = None,
    *,
    attempt: int | None = None,
) -> dict[str, Any]:
    """Complete a run's folder and return the summary; also for a run whose ranks were killed.

    Several processes may call it, also again after a resume: the same call on the same records changes nothing, and new
    records are added. Every file is replaced atomically. Parquet files written by ranks are kept.

    Args:
        run_dir: folder of the run.
        state: ``finished``, ``stopped``, ``failed`` or ``interrupted``.
        reason: reason of the end.
        rank: rank that caused it, if any.
        attempt: the attempt that ended; if the run has been resumed since, nothing changes. None for the current one.

    Raises:
        ConfigError: the state does not end a run.
        DataError: a record line is damaged.
        RunStoreError: a file cannot be written or read.
    """
    if state not in ENDED:
        raise ConfigError(f"state={state!r} does not end a run: choose {', '.join(ENDED)}.")
    run = run_dir if isinstance(run_dir, RunDirectory) else RunDirectory.open(run_dir)
    status = run.recorded_status()
    if attempt is not None and status["attempt"] != attempt:
        return run.summary()
    has_ended = (status["state"], status["reason"], status["rank"]) == (state, reason, rank)
    if has_ended and _is_current(run) and run.summary_file.is_file() and run.report_file.is_file():
        return run.summary()
    for _ in range(_LOOKS):
        _write(run, state, reason, rank)
        if _is_current(run):  # otherwise another rank has just written its last lines
            break
    if run.recorded_status()["attempt"] != status["attempt"]:  # the run was resumed meanwhile
        return run.summary()
    # Last, so that a process that waits for this state finds the files complete.
    run.write_status(state, reason=reason, rank=rank, attempt=status["attempt"])
    return run.summary()


def _is_current(run: RunDirectory) -> bool:
    return all(parquet.is_current(run, rank) for rank in run.record_files())


def _write(run: RunDirectory, state: str, reason: str, rank: int | None) -> None:
    for recorded in run.record_files():
        parquet.write_rank(run, recorded)
    frames = RunFrames(run)
    summary = summary_of(frames, state, reason, rank)
    write_json(run.summary_file, {**summary, "records": frames.counts()})
    write_report(StoredRun(run), status={"state": state, "reason": reason})
