"""One run from its config to its end, in this process or on engines: what races and studies are made of."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.judging import Bench, Judge, Verdict
from dtdg_lab.cluster.local import train_here
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, ControlError
from dtdg_lab.runs.directory import ENDED
from dtdg_lab.runs.lines import tail
from dtdg_lab.runs.open import StoredRun, open_run

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run
    from dtdg_lab.cluster.session import Session

LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Done:
    """A run that has ended.

    Attributes:
        run: read from its folder; finished, or stopped.
        verdict: of the judge that ended it before its epochs were over; None where none did, or where the run was over
            before the verdict reached it.
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
) -> Done:
    """Train as a config says, and return when the run has ended.

    In this process a verdict comes between two steps, at the same one each time; on engines it takes some steps to
    arrive, so that runs that are ended early need not end at the same step twice.

    Args:
        config: the settings.
        session: whose engines train, into its own folder of runs; this process where not given, with ``ranks=1``.
        engines: places of the session's engines, one for each rank; the first ones where not given.
        runs_dir: folder that holds runs, without a session.
        judge: asked after every evaluation of the validation part.
        on_start: handed what can be seen of the run once it begins: ``id path config status window lock version``.
        progress: show a bar of epochs, in this process.

    Raises:
        ConfigError: several ranks and no session, or engines without one.
        RunFailedError: the run failed.
        LabError: it cannot be started.
        Exception: of ``judge`` or ``on_start``; the run does not go on without them.
    """
    bench = None if judge is None else Bench(judge, config.epochs)
    if session is None:
        if engines is not None:
            raise ConfigError(f"engines={tuple(engines)} without a session: give session=lab.Session(...), or neither.")
        run = train_here(config, runs_dir=runs_dir, progress=progress, bench=bench, on_start=on_start)
        return _done(run, bench)
    handle = session.train(config, engines=engines)
    try:
        if on_start is not None:
            on_start(handle)
        _wait(handle, bench)
    except BaseException:  # whoever interrupts does not want the run to go on, and who fails cannot watch it
        _end(handle)
        raise
    return _done(open_run(handle.path), bench)


def _done(run: StoredRun, bench: Bench | None) -> Done:
    verdict = None if bench is None else bench.verdict
    if verdict is None:
        return Done(run)
    made = run.summary.get("epochs")
    in_time = run.status == "stopped" if verdict.what == "stop" else made is None or made < run.config.epochs
    return Done(run, verdict if in_time else None)


def _end(run: Run) -> None:
    """Stop a run that nobody waits for any more; one that is about to end by itself is left alone."""
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
    over, offset, records = threading.Event(), 0, run.path / "records" / "rank0.jsonl"
    while not over.is_set():
        if run.status in ENDED:
            over.set()
        lines, offset = tail(records, offset)
        for line in lines:
            for values in line["rows"]:
                _show(bench, run, line["table"], dict(zip(line["columns"], values, strict=True)))
        over.wait(LOOK_S)
    run.wait()


def _show(bench: Bench, run: Run, table: str, row: dict[str, Any]) -> None:
    if table == "events" and row["kind"] == "started":
        bench.started(row["time_ns"])
    request = bench.evaluated(row) if table == "evaluations" else None
    if request is None or run.status in ENDED:
        return
    try:
        if request.get("stop"):
            run.stop()
        else:
            run.set(**request["set"])
    except ControlError:
        if run.status not in (*ENDED, "stopping") and run.window.progress.epoch < run.config.epochs:
            raise  # else it was about to end by itself
