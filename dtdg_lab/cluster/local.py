"""Training in this process, without a cluster: for debugging, tests and the command line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dtdg_lab.cluster.run import LocalRun
from dtdg_lab.cluster.stop_signals import OVERDUE_S, StopSignals
from dtdg_lab.cluster.worker import Preparation, RunStart, begin_training, end_stopped
from dtdg_lab.config.record_tables import TABLES, rows_of
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import (
    ConfigError,
    ControlError,
    LabError,
    RunFailedError,
    RunInterruptedError,
    RunStoreError,
)
from dtdg_lab.core.files import writable_folder
from dtdg_lab.core.preparation import preparation
from dtdg_lab.core.system_errors import error_text, is_explained
from dtdg_lab.core.units import NETEM, state_root
from dtdg_lab.network.netem import undo_left_over
from dtdg_lab.runs.directory import ENDED, RunDirectory
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.liveness import Pulse
from dtdg_lab.runs.record_lines import RecordFile, parse_line
from dtdg_lab.runs.record_writer import RecordWriter
from dtdg_lab.runs.run import PreparationLine, StoredRun, open_run

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run
    from dtdg_lab.cluster.session import Session
    from dtdg_lab.training.control_source import LocalControl
    from dtdg_lab.training.recorder import Recorder


# Early stopping of a run: by evaluations of its validation split only.


VALIDATION = "validation"
BY = "stopping rule"


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One evaluation of the validation split.

    Attributes:
        step: updates made before it.
        epoch: epochs done before it.
        seconds: total time since the start of the run.
        loss: of the validation split; None if it was not finite.
    """

    step: int
    epoch: int
    seconds: float
    loss: float | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision about a run.

    Attributes:
        what: ``finish``: it ends after its present epoch as if that had been the last one, including its final
            evaluation;
            ``stop``: it is stopped at once, with a checkpoint and without a final evaluation.
        why: the reason.

    Raises:
        ConfigError: ``what`` is neither.
    """

    what: Literal["finish", "stop"]
    why: str

    def __post_init__(self) -> None:
        if self.what not in ("finish", "stop"):
            raise ConfigError(f"a verdict has what={self.what!r}: allowed are 'finish' and 'stop'.")

    def request(self, epochs_done: int) -> dict[str, Any]:
        """The control request that executes it after ``epochs_done`` epochs."""
        if self.what == "stop":
            return {"stop": True}
        return {"set": {"epochs": epochs_done + 1}, "by": BY}  # the current epoch has begun when the ranks receive it


Judge = Callable[[tuple[Evaluated, ...]], Verdict | None]


class Bench:
    """Passes every validation evaluation of one run to a judge, until there is a verdict.

    Args:
        judge: called after each evaluation with all of them.
        epochs: of the run: after the last one, no verdict is needed.

    Attributes:
        verdict: the decision, once there is one.
    """

    def __init__(self, judge: Judge, epochs: int) -> None:
        self._judge, self._epochs = judge, epochs
        self._began_ns: int | None = None
        self._seen: list[Evaluated] = []
        self.verdict: Verdict | None = None

    def started(self, time_ns: int) -> None:
        """The run started; the first call counts."""
        if self._began_ns is None:
            self._began_ns = time_ns

    def evaluated(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """Process a row of the table ``evaluations``; returns the request of a verdict, if it causes one.

        Other splits than validation are ignored.
        """
        if row["split"] != VALIDATION or self.verdict is not None:
            return None
        if self._seen and row["step"] <= self._seen[-1].step:
            return None  # the same model, evaluated again at the end or after a resume
        self.started(row["time_ns"])
        assert self._began_ns is not None
        seconds = (row["time_ns"] - self._began_ns) * 1e-9
        self._seen.append(Evaluated(row["step"], row["epoch"], seconds, row["loss"]))
        verdict = self._judge(tuple(self._seen))
        if verdict is None or row["epoch"] + (verdict.what == "finish") >= self._epochs:
            return None
        self.verdict = verdict
        return verdict.request(row["epoch"])


def train(config: RunConfig, *, runs_dir: str | Path = "runs", progress: bool = True) -> StoredRun:
    """Run all P partitions of a plan in this process, one after another, and return the finished run.

    Only this function imports torch into the calling process; a Session trains on engines. On SIGTERM or SIGUSR1 the
    run is interrupted after its step, with a checkpoint; then the signal does what it would have done without a run.

    Args:
        config: with ``ranks=1``; P may be larger.
        runs_dir: folder for runs.
        progress: show a progress bar.

    Raises:
        ConfigError: the config has more than one rank.
        RunInterruptedError: a signal interrupted the run, and did not end this process.
        LabError: the reason why the run ended; its folder keeps everything until then.
    """
    return train_here(config, runs_dir=runs_dir, progress=progress)


def train_here(
    config: RunConfig,
    *,
    runs_dir: str | Path = "runs",
    progress: bool = False,
    bench: Bench | None = None,
    on_start: Callable[[LocalRun], None] | None = None,
    make: Callable[..., RunDirectory] | None = None,
    deliver: bool = True,
) -> StoredRun:
    """As :func:`train`, observed: ``bench`` may stop the run early; ``on_start`` receives its observable part.

    ``make`` creates the run's folder in the folder ``root``, for a fork or a replay. Without ``deliver`` the caller
    leaves by itself after a signal.
    """
    if config.ranks != 1:
        raise ConfigError(
            f"lab.train runs in this process, and ranks={config.ranks}: use config.replace(ranks=1), which keeps the "
            "plan, or Session(ranks=...).train(config)."
        )
    runs_dir = writable_folder(runs_dir, "runs_dir", RunStoreError)
    undo_left_over(state_root() / NETEM)  # left by a run that was killed
    directory = (make or partial(RunDirectory.create, config))(root=runs_dir)
    cause: BaseException | None = None
    with StopSignals(partial(directory.mark_interrupted, 1, rank=0, overdue_s=OVERDUE_S), deliver=deliver) as signals:
        try:
            with ExitStack() as stack:
                if on_start is not None:
                    seen = LocalRun(directory)
                    stack.callback(seen.close)
                    on_start(seen)
                stack.callback(Pulse(directory.live).close)
                state = _train(config, directory, stack, signals, progress=progress, bench=bench)
        except BaseException as error:
            if signals.received is None:
                reason = error_text(error)
                finish(directory, "failed", reason, 0, attempt=1)
                if isinstance(error, LabError) or not is_explained(error):
                    raise
                raise RunFailedError(f"{reason} The run's folder is {directory.path}.") from error
            directory.mark_interrupted(1, signals.received.name, rank=0)  # it may have ended what the run needs, too
            state, cause = "interrupted", error
        status = directory.recorded_status()
        finish(directory, state, *((status["reason"], 0) if state == "interrupted" else ()), attempt=1)
    if signals.received is not None and state == "interrupted":
        raise RunInterruptedError(f"run {directory.id} was {status['reason']}", signals.received.name) from cause
    return open_run(directory.path)


@dataclass(frozen=True, slots=True)
class _Watched:
    """A recorder that passes evaluations to a bench, between two steps: a verdict comes at a reproducible step."""

    to: Recorder
    bench: Bench
    control: LocalControl

    def row(self, table: str, values: tuple[Any, ...]) -> None:
        self.to.row(table, values)
        if table == "evaluations":
            request = self.bench.evaluated(dict(zip(TABLES[table], values, strict=True)))
            if request is not None:
                self.control.request(request)

    def check(self) -> None:
        self.to.check()

    def flush(self) -> None:
        self.to.flush()

    def reached(self, step: int, ranks: Iterable[int]) -> bool:
        return self.to.reached(step, ranks)


def _train(
    config: RunConfig,
    directory: RunDirectory,
    stack: ExitStack,
    signals: StopSignals,
    *,
    progress: bool,
    bench: Bench | None,
) -> str:
    import torch

    from dtdg_lab.datasets.names import load_for
    from dtdg_lab.distributed.group import SoloGroup
    from dtdg_lab.kernels.torch_defaults import torch_defaults
    from dtdg_lab.training.control_source import LocalControl
    from dtdg_lab.training.resource_monitor import ResourceMonitor

    beginning = RunStart.of(directory, 0)
    stack.enter_context(torch_defaults(beginning.threads or config.threads))
    device = "cuda:0" if config.device == "cuda" or (config.device == "auto" and torch.cuda.is_available()) else "cpu"
    writer = RecordWriter(directory.record_file(0), 0, 1)
    stack.callback(writer.close)
    resource_monitor = ResourceMonitor(config, device, 0, 1, writer)
    stack.callback(resource_monitor.close)
    resource_monitor.start()
    control = LocalControl()
    signals.request = control.stop_by
    recorder: Recorder = writer
    if bench is not None:
        bench.started(time.time_ns())
        recorder = _Watched(writer, bench, control)
    line = stack.enter_context(PreparationLine())
    with preparation(Preparation(recorder, control.stop_request, show=line.show if progress else None)):
        trainer = begin_training(
            directory,
            load_for(config),
            SoloGroup(),
            beginning,
            recorder=recorder,
            control=control,
            resource_monitor=resource_monitor,
            device=device,
            show_progress=progress,
        )
    line.show("")
    state = trainer.run().state
    writer.flush()
    return end_stopped(control, directory, 1) if state == "stopped" else state


# One run from its config to its end, in this process or on engines: the unit of races and studies.


LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Done:
    """A run that has ended.

    Attributes:
        run: read from its folder; finished or stopped.
        verdict: of the judge that ended it early; None without one, or if the run ended before the
            verdict took effect.
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
    """Train a config, and return when the run has ended.

    In this process a verdict comes between two steps, at a reproducible step; on engines it takes some steps to
    arrive, so that runs stopped early may end at different steps.

    Args:
        config: the settings.
        session: whose engines train, into its own folder of runs; by default this process, with ``ranks=1``.
        engines: indices of the session's engines, one for each rank; by default the first ones.
        runs_dir: folder for runs, without a session.
        judge: called after every evaluation of the validation split.
        on_start: receives the observable part of the run at its start: ``id path config status live lock version``.
        progress: show a progress bar of epochs, in this process.

    Raises:
        ConfigError: several ranks and no session, or engines without one.
        RunFailedError: the run failed.
        LabError: it cannot be started.
        Exception: of ``judge`` or ``on_start``; the run stops then.
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
    except BaseException:  # after an interrupt or an error the run must stop: it is no longer observed
        end_run(handle)
        raise
    return _done(open_run(handle.path), bench)


def _done(run: StoredRun, bench: Bench | None) -> Done:
    verdict = None if bench is None else bench.verdict
    if verdict is None:
        return Done(run)
    made = run.summary.get("epochs")
    in_time = run.status == "stopped" if verdict.what == "stop" else made is None or made < run.config.epochs
    return Done(run, verdict if in_time else None)


def end_run(run: Run) -> None:
    """Stop a run without observers; a run that is about to end by itself is left alone."""
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
        for raw, place in file.read():
            line = parse_line(raw, place)
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
        if request.get("stop"):
            run.stop()
        else:
            run.set(**request["set"], by=BY)
    except ControlError:
        with run.lock:
            epoch = run.live.progress.epoch
        if run.status not in (*ENDED, "stopping") and epoch < run.config.epochs:
            raise  # else it was about to end by itself
