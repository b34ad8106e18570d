"""Ending a run: merged tables, summary.json, report.html and the final status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.runs.directory import ENDED, RunDirectory
from dtdg_lab.runs.json_files import read_json, write_json
from dtdg_lab.runs.merge import is_current, merge
from dtdg_lab.runs.reader import tables
from dtdg_lab.runs.summary import READ, SCHEMA, summarize

_LOOKS = 3


def finish(run_dir: str | Path | RunDirectory, state: str, reason: str = "", rank: int | None = None) -> dict[str, Any]:
    """Bring a run's folder to its final form and return the summary; also for a run whose ranks were killed.

    May be called by several processes and again after a resume: the same call on the same records changes nothing,
    new records are merged again. Every file is replaced whole.

    Args:
        run_dir: the folder of the run.
        state: ``finished``, ``stopped`` or ``failed``.
        reason: why it ended, in words.
        rank: the rank that caused it, where one did.

    Raises:
        ConfigError: the state does not end a run.
        DataError: a record line is damaged.
        RunStoreError: a file cannot be written or read.
    """
    if state not in ENDED:
        raise ConfigError(f"state={state!r} does not end a run: allowed {', '.join(ENDED)}.")
    run = run_dir if isinstance(run_dir, RunDirectory) else RunDirectory.open(run_dir)
    status = run.status()
    ended_so = (status["state"], status["reason"], status["rank"]) == (state, reason, rank)
    if ended_so and is_current(run) and run.summary_file.is_file() and run.report_file.is_file():
        return run.summary()
    for _ in range(_LOOKS):
        _write(run, state, reason, rank)
        if is_current(run):  # another rank may have written its last lines meanwhile
            break
    # Last, so that whoever waits for this state finds the files complete.
    run.write_status(state, reason=reason, rank=rank, attempt=status["attempt"])
    return run.summary()


def _write(run: RunDirectory, state: str, reason: str, rank: int | None) -> None:
    from dtdg_lab.runs import report

    if not is_current(run):
        merge(run)
    write_json(run.summary_file, _summary(run, state, reason, rank))
    report.write_report(run, status={"state": state, "reason": reason})


def _summary(run: RunDirectory, state: str, reason: str, rank: int | None) -> dict[str, Any]:
    config = run.config()
    everything = tables(run, all_attempts=True, only=READ)
    return {
        "schema": SCHEMA,
        "run": run.id,
        "status": state,
        "reason": reason,
        "rank": rank,
        "system": config.system,
        "dataset": config.dataset,
        "model": config.model,
        "ranks": config.ranks,
        "attempts": int(everything["steps"]["attempt"].nunique()),
        **summarize(config, tables(run, only=READ), everything),
        "records": read_json(run.merged_file)["rows"],
    }
