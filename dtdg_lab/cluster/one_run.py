"""A run from its config to its end, in this process or on engines: the unit of races and studies."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.local import train_here
from dtdg_lab.cluster.stopping_rule import Bench, Judge, Verdict
from dtdg_lab.config.record_tables import rows_of
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import (
    ConfigError,
    ControlError,
)
from dtdg_lab.records.lines import RecordFile, parse_line
from dtdg_lab.records.requests import SetLive
from dtdg_lab.runs.directory import ENDED, RunDirectory
from dtdg_lab.runs.stored_run import StoredRun, open_run

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run
    from dtdg_lab.cluster.session import Session


LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class EndedRun:
    """An ended run.

    Attributes:
        run: the run, read from its folder; finished or stopped.
        verdict: verdict of the judge that ended it early; None without one, or if the run ended before it took effect.
    """

    run: StoredRun
    verdict: Verdict | None = None


def run_config(
    config: RunConfig,
    *,
    session: Session | None = None,
    engines: Sequence[int] | None = None,
    runs_dir: str | Path = "runs",
    judge: Judge | None = None,
    on_start: Callable[[Any], None] | None = None,
    progress: bool = False,
) -> EndedRun:
    """Train a config, and return when the run has ended.

    In this process a verdict takes effect between two steps, at a reproducible step. On engines it takes some steps to
    arrive, so runs that are stopped early may end at different steps.

    Args:
        config: the settings.
        session: session whose engines train, into its own folder of runs; by default this process, with ``ranks=1``.
        engines: indices of the session's engines, one per rank; by default the first ones.
        runs_dir: folder for runs, without a session.
        judge: called after every evaluation of the validation split.
        on_start: receives a handle of the run at its start, with ``id path config status live lock version``.
        progress: show a progress bar of epochs, in this process.

    Raises:
        ConfigError: there are several ranks and no session, or engines without one.
        RunFailedError: the run failed.
        LabError: the run cannot be started.
        Exception: an error of ``judge`` or ``on_start``; the run is then stopped.
    """
    bench = None if judge is None else Bench(judge, config.epochs)
    if session is None:
        if engines is not None:
            raise ConfigError(f"engines={tuple(engines)} need a session. Give session=lab.Session(...), or no engines.")
        run = train_here(config, runs_dir=runs_dir, progress=progress, bench=bench, on_start=on_start)
        return _ended_run(run, bench)
    handle = session.train(config, engines=engines)
    try:
        if on_start is not None:
            on_start(handle)
        _wait(handle, bench)
    except BaseException:  # stop the run after an interrupt or an error, since no one observes it any more
        end_run(handle)
        raise
    return _ended_run(open_run(handle.path), bench)


def _ended_run(run: StoredRun, bench: Bench | None) -> EndedRun:
    verdict = None if bench is None else bench.verdict
    if verdict is None:
        return EndedRun(run)
    epochs = run.summary.get("epochs")
    in_time = run.status == "stopped" if verdict.what == "stop" else epochs is None or epochs < run.config.epochs
    return EndedRun(run, verdict if in_time else None)


def end_run(run: Run) -> None:
    """Stop a run without observers, unless it is about to end by itself."""
    if run.status in (*ENDED, "stopping"):
        return
    try:
        run.stop()
    except ControlError:
        if run.status not in (*ENDED, "stopping"):
            raise


def _wait(run: Run, bench: Bench | None) -> None:
    if bench is None:
        run.wait()
        return
    file, over = RecordFile(RunDirectory.open(run.path).record_file(0)), False
    while not over:
        over = run.status in ENDED
        for raw, location in file.read():
            line = parse_line(raw, location)
            for row in rows_of(line):
                _show(bench, run, line["table"], row)
        if not over:
            time.sleep(LOOK_S)
    run.wait()


def _show(bench: Bench, run: Run, table: str, row: dict[str, Any]) -> None:
    if table == "events" and row["kind"] == "started":
        bench.started(row["time_ns"])
    request = bench.evaluated(row) if table == "evaluations" else None
    if request is None or run.status in ENDED:
        return
    try:
        if isinstance(request, SetLive):
            run.set(**request.changes, by=request.by)
        else:
            run.stop()
    except ControlError:
        with run.lock:
            epoch = run.live.progress.epoch
        if run.status not in (*ENDED, "stopping") and epoch < run.config.epochs:
            raise  # otherwise the run was about to end by itself
