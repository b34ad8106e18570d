"""Training in this process, without a cluster: for debugging, tests and the command line."""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.assembly import assemble_rank, end_stopped
from dtdg_lab.cluster.devices import choose_devices, report_devices
from dtdg_lab.cluster.followed_run import LocalRun
from dtdg_lab.cluster.preparing import Preparation
from dtdg_lab.cluster.rank_failure import is_out_of_memory, release_memory, suggest_memory_remedy
from dtdg_lab.cluster.run_start import RunStart
from dtdg_lab.cluster.stop_signals import OVERDUE_S, StopSignals
from dtdg_lab.cluster.stopping_rule import Bench
from dtdg_lab.config.record_tables import TABLES
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import (
    ConfigError,
    LabError,
    RunFailedError,
    RunInterruptedError,
    RunStoreError,
)
from dtdg_lab.core.files import writable_folder
from dtdg_lab.core.system_errors import error_text, is_explained
from dtdg_lab.core.units import NETEM, state_root
from dtdg_lab.network.netem import undo_left_over
from dtdg_lab.records.requests import write_request
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.liveness import Pulse
from dtdg_lab.runs.progress import PreparationLine
from dtdg_lab.runs.record_writer import RecordWriter
from dtdg_lab.runs.stored_run import StoredRun, open_run

if TYPE_CHECKING:
    from dtdg_lab.training.control import LocalControl
    from dtdg_lab.training.recorder import Recorder


def train(config: RunConfig, *, runs_dir: str | Path = "runs", progress: bool = True) -> StoredRun:
    """Run all P partitions of a plan in this process, one after another, and return the finished run.

    A Session trains on engines instead, and leaves torch out of the calling process. On SIGTERM or SIGUSR1 the run is
    interrupted after its step, with a checkpoint; then the signal has its usual effect.

    Args:
        config: config with ``ranks=1``; P may be larger.
        runs_dir: folder for runs.
        progress: show a progress bar.

    Raises:
        ConfigError: the config has more than one rank.
        KeyboardInterrupt: Ctrl-C, or Jupyter's stop button, ended the run; its folder says how to resume it.
        RunInterruptedError: a signal interrupted the run, and did not end this process.
        LabError: the reason why the run failed; its folder keeps all earlier records.
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
    """Train like :func:`train`, with observers: ``bench`` may stop the run; ``on_start`` receives a handle of the run.

    ``make`` creates the run's folder in the folder ``root``, for a fork or a replay. With ``deliver=False`` a signal is
    not delivered again, and the caller must exit.
    """
    if config.ranks != 1:
        raise ConfigError(
            f"lab.train runs in this process, but ranks={config.ranks}. Use config.replace(ranks=1), which keeps the "
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
                    local_run = LocalRun(directory)
                    stack.callback(local_run.close)
                    on_start(local_run)
                stack.callback(Pulse(directory.live).close)
                state = _train(config, directory, stack, signals, progress=progress, bench=bench)
        except BaseException as error:
            received = signal.SIGINT if isinstance(error, KeyboardInterrupt) else signals.received
            if received is None:
                reason, lacks_memory = error_text(error), is_out_of_memory(error)
                if lacks_memory:
                    release_memory(error)
                    reason = f"{reason.rstrip('.')}. {suggest_memory_remedy(config, in_session=False)}"
                finish(directory, "failed", reason, 0, attempt=1)
                if isinstance(error, LabError) or not (lacks_memory or is_explained(error)):
                    raise
                raise RunFailedError(f"{reason} The run's folder is {directory.path}.") from error
            directory.mark_interrupted(1, received.name, rank=0)  # the signal may have caused the error, too
            state, cause = "interrupted", error
        status = directory.recorded_status()
        finish(directory, state, *((status["reason"], 0) if state == "interrupted" else ()), attempt=1)
    if isinstance(cause, KeyboardInterrupt):
        raise cause
    if signals.received is not None and state == "interrupted":
        raise RunInterruptedError(f"run {directory.id} was {status['reason']}", signals.received.name) from cause
    return open_run(directory.path)


@dataclass(frozen=True, slots=True)
class _WatchedRecorder:
    """A recorder that passes evaluations to a bench between two steps, so that verdicts come at reproducible steps."""

    recorder: Recorder
    bench: Bench
    control: LocalControl

    def row(self, table: str, values: tuple[Any, ...]) -> None:
        self.recorder.row(table, values)
        if table == "evaluations":
            request = self.bench.evaluated(dict(zip(TABLES[table], values, strict=True)))
            if request is not None:
                self.control.request(write_request(request))

    def check(self) -> None:
        self.recorder.check()

    def flush(self) -> None:
        self.recorder.flush()

    def reached(self, step: int, ranks: Iterable[int]) -> bool:
        return self.recorder.reached(step, ranks)


def _choose_device(config: RunConfig, directory: RunDirectory) -> str:
    """Return the device; warn and record why it is no GPU, or what torch says about the GPU."""
    if config.device == "cpu":
        return "cpu"  # a report would initialise CUDA
    report = report_devices()
    choice = choose_devices(config.device, [report])
    if note := choice.note or report.problem:
        directory.add_environment(device_note=note)
        warnings.warn(note, stacklevel=5)
    return choice.devices[0]


def _train(
    config: RunConfig,
    directory: RunDirectory,
    stack: ExitStack,
    signals: StopSignals,
    *,
    progress: bool,
    bench: Bench | None,
) -> str:
    from dtdg_lab.distributed.group import SoloGroup
    from dtdg_lab.kernels.torch_defaults import torch_defaults
    from dtdg_lab.training.control import LocalControl

    start = RunStart.of(directory, 0)
    stack.enter_context(torch_defaults(start.threads or config.threads))
    device = _choose_device(config, directory)
    writer = RecordWriter(directory.record_file(0), 0, 1)
    stack.callback(writer.close)
    control = LocalControl()
    signals.request = control.stop_by
    recorder: Recorder = writer
    if bench is not None:
        bench.started(time.time_ns())
        recorder = _WatchedRecorder(writer, bench, control)
    line = stack.enter_context(PreparationLine())
    trainer, _ = assemble_rank(
        directory,
        SoloGroup(device),
        start,
        stack,
        recorder=recorder,
        control=control,
        preparation=Preparation(recorder, control.stop_request, show=line.show if progress else None),
        device=device,
        show_progress=progress,
    )
    line.show("")
    state = trainer.run().state
    writer.flush()
    return end_stopped(control, directory, 1) if state == "stopped" else state
