"""The code on an engine: one rank of one attempt of a run, from start to end."""

from __future__ import annotations

import gc
import os
import time
import traceback
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.addresses import _keep_gloo_on, outward_address
from dtdg_lab.cluster.assembly import assemble_rank, check_request, end_stopped
from dtdg_lab.cluster.beacon import Beacon, death_reason, signs_of_life, wait_for_note
from dtdg_lab.cluster.control import ControlServer, RequestLog, StoredControl, ask, attempt_scope
from dtdg_lab.cluster.devices import DeviceReport, report_devices
from dtdg_lab.cluster.preparing import Preparation
from dtdg_lab.cluster.rank_failure import (
    RankFailedError,
    explain_failure,
    is_out_of_memory,
    release_memory,
    suggest_memory_remedy,
)
from dtdg_lab.cluster.registrations import SentRegistration, apply_registrations
from dtdg_lab.cluster.run_start import RunStart
from dtdg_lab.cluster.stop_signals import OVERDUE_S, StopSignals
from dtdg_lab.cluster.telemetry import Publisher
from dtdg_lab.core.errors import ClusterError, ControlError, LabError, RunFailedError, StoppedError
from dtdg_lab.core.system_errors import error_text
from dtdg_lab.distributed.heartbeat import OtherRankError
from dtdg_lab.records.requests import Request
from dtdg_lab.runs import parquet
from dtdg_lab.runs.directory import ENDED, RunDirectory
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.liveness import SILENT_S, own_note, remove_note, write_note
from dtdg_lab.runs.record_writer import RecordWriter

if TYPE_CHECKING:
    from dtdg_lab.distributed.group import ProcessGroup
    from dtdg_lab.distributed.store import SignedStore
    from dtdg_lab.training.live_settings import LiveSettings
    from dtdg_lab.training.loop import Trainer


# One rank of one attempt of one run on an engine, from joining to leaving.


LEAVE_S = 1.0  # time for the other ranks to leave the store
OTHER_SAYS_S = 5.0  # time for a failed rank to report its error, before another rank does


@dataclass(frozen=True, slots=True)
class RankTask:
    """A kernel's task for an engine; plain values, so that it can be sent unchanged."""

    run_dir: str
    rank: int
    size: int
    attempt: int
    key: str
    local_rank: int = 0
    local_size: int = 1
    device: str = "cpu"  # of this rank, in the engine's process
    shares_gpus: bool = False  # whether ranks of the run share a GPU
    changes: tuple[tuple[str, Any], ...] = ()
    busy_file: str = ""
    registrations: tuple[SentRegistration, ...] = ()
    silent_s: float = SILENT_S
    host: str = "127.0.0.1"  # empty if ranks are on several machines; each rank then uses its outward address

    @property
    def busy(self) -> Path | None:
        """The file that shows that the session's cluster is in use; None for an external cluster."""
        return Path(self.busy_file) if self.busy_file else None


def warm_up(instance: str = "") -> tuple[int, DeviceReport]:
    """Import torch, so that a click on Run starts training immediately (see ``rehearse``).

    Args:
        instance: MIG instance for this engine; empty to use what CUDA_VISIBLE_DEVICES has.

    Returns:
        The number of the engine's process, and its devices.
    """
    if instance:
        os.environ["CUDA_VISIBLE_DEVICES"] = instance  # read when CUDA is first used
    return os.getpid(), report_devices()


def rehearse() -> None:
    """Trigger first-use initialisation of libraries (two seconds); only a run started at once waits for it."""
    from dtdg_lab.kernels.torch_defaults import torch_defaults
    from dtdg_lab.training import build

    with torch_defaults():
        build.rehearse()
    gc.collect()
    gc.freeze()  # else a collection over all imported objects takes 0.3 s after a change of settings


def run_rank(task: RankTask) -> str:
    """Train one rank, as the engine's entry point; return the final state of the run.

    Raises:
        LabError: the reason why the run failed, as in its status.
    """
    directory = RunDirectory.open(task.run_dir)
    overdue = partial(directory.mark_interrupted, task.attempt, rank=task.rank, overdue_s=OVERDUE_S)
    with StopSignals(overdue, leaves=True) as signals:
        try:
            return _run_rank(task, directory, signals)
        finally:
            if signals.received is None:  # otherwise the engine exits, and its note stays until then
                remove_note(directory.live, task.rank)


def _run_rank(task: RankTask, directory: RunDirectory, signals: StopSignals) -> str:
    try:
        apply_registrations(task.registrations)
        with ExitStack() as stack:
            try:
                state = _train(task, directory, stack, signals)
            except Exception as error:
                # closing the group ends the collectives of other ranks: do not report their errors as the cause
                if not isinstance(error, OtherRankError):
                    _mark_failed(directory, task, error, signals)
                release_memory(error)  # before the group closes, since an open subgroup would keep other ranks waiting
                raise
        with signs_of_life(directory.live, task.rank, task.busy):
            parquet.write_rank(directory, task.rank)
            if task.rank == 0:
                status = directory.recorded_status()
                cause = (status["reason"], status["rank"]) if state == "interrupted" else ()
                finish(directory, state, *cause, attempt=task.attempt)
    except BaseException as error:
        _mark_failed(directory, task, error, signals)
        release_memory(error)
        if is_out_of_memory(error):
            _add_remedy(directory, task, error)
        raise
    return state


def _train(task: RankTask, directory: RunDirectory, stack: ExitStack, signals: StopSignals) -> str:
    import torch

    from dtdg_lab.distributed.group import ProcessGroup
    from dtdg_lab.kernels.torch_defaults import torch_defaults

    config, start = directory.config(), RunStart.of(directory, task.rank, attempt=task.attempt)
    stack.enter_context(torch_defaults(start.threads or config.threads, local_ranks=task.local_size))
    device = task.device
    if device != "cpu":
        torch.cuda.set_device(device)
    host = task.host or outward_address()
    _keep_gloo_on(task.host, host)
    publisher = Publisher(task.key, host=host)
    stack.callback(publisher.close)

    writer = RecordWriter(directory.record_file(task.rank), task.rank, task.attempt, sink=publisher.send)
    stack.callback(writer.close)
    request_log = RequestLog(writer, config)
    store, control = _meet(
        task, directory, start, stack, telemetry=publisher.address, host=host, request_log=request_log
    )
    signals.request = control.stop_by
    beacon = _beacon(task, directory, store, writer)
    if task.rank == 0:
        stack.callback(_leave_store, store, beacon, directory, task.size)  # runs after the beacon has closed
    stack.callback(beacon.close)
    beacon.start()
    group: ProcessGroup | None = None
    try:
        group = ProcessGroup.join(store, task.rank, task.size, device=device, shares_gpus=task.shares_gpus)
        stack.push(partial(_leave_group, group))
        beacon.abort = group.abort
        try:
            trainer, monitor = assemble_rank(
                directory,
                group,
                start,
                stack,
                recorder=writer,
                control=control,
                preparation=Preparation(writer, partial(_leaves, control, task, directory), rank=task.rank),
                device=device,
                local_rank=task.local_rank,
                local_size=task.local_size,
                attempt=task.attempt,
                shares_gpus=task.shares_gpus,
                resume=task.attempt > 1 and directory.checkpoint_file.is_file(),  # else it starts again
                changes=dict(task.changes),
            )
        except Exception as error:
            if control.stop_request() is None:
                raise
            return _stopped(control, directory, task, error)
        _judge_requests_by(trainer, control, start, request_log)
        state = trainer.run().state
        monitor.close()
        writer.flush()
        group.barrier()  # wait until all records are written, since rank 0 reads them
        if state == "stopped":
            state = end_stopped(control, directory, task.attempt, rank=task.rank)
    except Exception as error:
        is_consequence = group is not None and group.is_aborted  # torch then raises errors of many types
        if not is_consequence and not isinstance(error, RuntimeError | MemoryError | ClusterError):
            raise
        cause = _named(error, beacon, directory, task, request_log.trainer)
        request_log.trainer = None  # it holds the memory of the run
        if cause is error:
            raise
        raise cause from error
    return state


def _leave_group(group: ProcessGroup, kind: type[BaseException] | None, *_: object) -> None:
    """Leave the group; after an error without waiting for its exchanges in flight."""
    if kind is not None:
        group.abort()
    group.close()


def _judge_requests_by(
    trainer: Trainer, control: ControlServer | StoredControl, start: RunStart, request_log: RequestLog
) -> None:
    """Check requests against a trainer's settings from now on, and record requests at its step."""
    request_log.trainer = trainer
    if start.check is None and isinstance(control, ControlServer):
        control.check = partial(_check_after, trainer.live_settings, control)


def _beacon(task: RankTask, directory: RunDirectory, store: SignedStore, writer: RecordWriter) -> Beacon:
    def on_death(dead: int, reason: str) -> None:
        mark_death(directory, task.attempt, dead, reason)
        writer.flush()

    return Beacon(
        directory.live,
        attempt=task.attempt,
        rank=task.rank,
        size=task.size,
        store=store.reconnect(),
        silent_s=task.silent_s,
        on_death=on_death,
        failed=lambda: is_marked_failed(directory, task.attempt),
        busy_file=task.busy,
    )


def _leaves(control: ControlServer | StoredControl, task: RankTask, directory: RunDirectory) -> bool:
    """Return True to end a rank's preparation; once rank 0 trains, a stop takes effect at a common step instead."""
    stops = control.stop_request() is not None
    return stops and (task.rank == 0 or directory.recorded_status()["state"] == "starting")


def _stopped(control: ControlServer | StoredControl, directory: RunDirectory, task: RankTask, error: Exception) -> str:
    """Return the state of a run that was stopped before its first step, with an error on this rank."""
    if not isinstance(error, StoppedError):  # another rank has left, or something failed at the same moment
        _write_error(directory, task, error)
    state = end_stopped(control, directory, task.attempt, rank=task.rank)
    if (
        task.rank == 0 and state == "stopped"
    ):  # before the others notice that this rank leaves: their errors are no cause
        directory.write_status(state, attempt=task.attempt)
    return state


def _leave_store(store: SignedStore, beacon: Beacon, directory: RunDirectory, size: int) -> None:
    """Remove the store of an attempt that all ranks have left, and record the number of ignored values."""
    ignored_by_rank = beacon.wait_for_leaving(LEAVE_S)
    if len(ignored_by_rank) == size:
        store.remove()  # otherwise a later run does, after a week
    if ignored := sum(ignored_by_rank.values()):
        directory.add_environment(store_values_ignored=ignored)


def _meet(
    task: RankTask,
    directory: RunDirectory,
    start: RunStart,
    stack: ExitStack,
    *,
    telemetry: str,
    host: str,
    request_log: RequestLog,
) -> tuple[SignedStore, ControlServer | StoredControl]:
    """Return the store and the control of a rank.

    Rank 0 creates both and publishes their addresses; the others read its note. On one machine the store is a file of
    this user account.
    """
    from dtdg_lab.distributed.store import open_store, reach_store
    from dtdg_lab.training.live_settings import LiveSettings

    scope = attempt_scope(directory, task.attempt)
    if task.rank != 0:
        first = wait_for_note(directory.live, 0, task.attempt)
        store = reach_store(first.store, task.size, key=task.key, scope=scope)
        write_note(directory.live, own_note(task.rank, task.attempt, telemetry))
        return store, StoredControl(store, partial(ask, first.control, task.key, scope=scope, timeout_s=1.0), task.rank)
    store, address = open_store(task.size, key=task.key, scope=scope, host="" if task.host else host)
    # the check is set below, before the note publishes the server's address
    refuse, accept = request_log.refuse, request_log.accept
    control = ControlServer(task.key, store, _not_ready, refuse, scope=scope, host=host, on_acceptance=accept)
    stack.callback(control.close)
    control.check = start.check or partial(_check_after, LiveSettings(directory.config()), control)
    write_note(directory.live, own_note(0, task.attempt, telemetry, control=control.address, store=address))
    return store, control


def _not_ready(request: Request) -> None:
    raise ControlError("the run is not ready for requests yet. Send the request again in a second.")


def _check_after(live_settings: LiveSettings, control: ControlServer, request: Request) -> None:
    """Check a request against the active, pending, and accepted but unapplied settings."""
    later = [dict(accepted.changes) for accepted in control.changes(live_settings.version)]
    check_request(live_settings.expected(later), request)


def _named(
    error: Exception, beacon: Beacon, directory: RunDirectory, task: RankTask, trainer: Trainer | None
) -> RunFailedError:
    """Return the failure of this rank, or of the rank that caused it."""
    if beacon.lost is not None:
        rank, reason = beacon.lost
        return RankFailedError(reason, rank)
    if is_marked_failed(directory, task.attempt):
        return OtherRankError(f"rank {task.rank} left the run, because another rank has failed.")
    dead = None if is_out_of_memory(error) else beacon.first_dead(1.0)
    if dead is not None:
        return RankFailedError(death_reason(dead), dead)
    if isinstance(error, OtherRankError):
        return error
    step = None if trainer is None else trainer.position.step
    config = None if trainer is None else trainer.live_settings.config
    return RankFailedError(explain_failure(error, task.rank, step), task.rank, config)


def is_marked_failed(directory: RunDirectory, attempt: int) -> bool:
    """Return True if this attempt has failed, or a later one has begun."""
    status = directory.recorded_status()
    return status["attempt"] > attempt or (status["attempt"] == attempt and status["state"] == "failed")


def mark_death(directory: RunDirectory, attempt: int, dead: int, reason: str) -> None:
    """Mark a run as failed because a rank died or was silent for too long; only the first report counts."""
    status = directory.recorded_status()
    if status["attempt"] > attempt or (status["state"] in ENDED and status["rank"] is not None):
        return
    directory.write_status("failed", reason=reason, rank=dead, attempt=attempt)


def _mark_failed(directory: RunDirectory, task: RankTask, error: BaseException, signals: StopSignals) -> None:
    ends = time.monotonic() + (OTHER_SAYS_S if isinstance(error, OtherRankError) else 0.0)
    status = directory.recorded_status()
    while time.monotonic() < ends and status["attempt"] == task.attempt and status["state"] not in ENDED:
        time.sleep(0.05)  # the failed rank reports the reason
        status = directory.recorded_status()
    if status["attempt"] > task.attempt or status["state"] in ENDED:
        return
    file = _write_error(directory, task, error)
    if signals.received is not None:  # the signal may have caused the error
        directory.mark_interrupted(task.attempt, signals.received.name, rank=task.rank)
        return
    reason = str(error)
    if not isinstance(error, LabError):
        reason = f"rank {task.rank} failed: {error_text(error).rstrip('.')}. Its traceback is in {file}."
    if task.attempt > 1:
        reason += f" (Attempt {task.attempt} of this run.)"
    rank = error.rank if isinstance(error, RankFailedError) else task.rank
    directory.write_status("failed", reason=reason, rank=rank, attempt=task.attempt)


def _add_remedy(directory: RunDirectory, task: RankTask, error: BaseException) -> None:
    """Add the remedy to the reason of a run that failed for lack of memory on this rank; other ranks have left."""
    status = directory.recorded_status()
    if (status["state"], status["rank"], status["attempt"]) != ("failed", task.rank, task.attempt):
        return
    config = error.config if isinstance(error, RankFailedError) else None
    reason = f"{status['reason'].rstrip('.')}. {suggest_memory_remedy(config or directory.config())}"
    directory.write_status("failed", reason=reason, rank=task.rank, attempt=task.attempt)


def _write_error(directory: RunDirectory, task: RankTask, error: BaseException) -> Path:
    """Write a rank's traceback to a file of the run, and return the file."""
    file = directory.live / f"error-rank{task.rank}-attempt{task.attempt}.txt"
    file.write_text("".join(traceback.format_exception(error)))
    return file
