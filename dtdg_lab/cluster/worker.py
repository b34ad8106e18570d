"""The code on an engine: one rank of one attempt of a run, from start to end."""

from __future__ import annotations

import gc
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.event_history import EventHistory
from dtdg_lab.cluster.liveness import Beacon, death_reason, signs_of_life, wait_for_note
from dtdg_lab.cluster.messaging import ControlServer, Publisher, StoredControl, ask
from dtdg_lab.cluster.registrations import SentRegistration, apply_registrations
from dtdg_lab.cluster.request_log import RequestLog
from dtdg_lab.cluster.stop_signals import OVERDUE_S, StopSignals
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ClusterError, ConfigError, ControlError, LabError, RunFailedError, StoppedError
from dtdg_lab.core.preparation import preparation
from dtdg_lab.core.system_errors import error_text
from dtdg_lab.distributed.heartbeat import OtherRankError
from dtdg_lab.records.events import AttemptStarted, Preparing, RegisteredCode
from dtdg_lab.runs import parquet
from dtdg_lab.runs.directory import ENDED, RunDirectory
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.liveness import SILENT_S, host_id, own_note, remove_note, write_note
from dtdg_lab.runs.record_writer import RecordWriter

if TYPE_CHECKING:
    from dtdg_lab.distributed.store import SignedStore
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph
    from dtdg_lab.training.control_source import LocalControl
    from dtdg_lab.training.live_settings import LiveSettings
    from dtdg_lab.training.loop import Trainer
    from dtdg_lab.training.recorder import Recorder
    from dtdg_lab.training.replay import RunReplay
    from dtdg_lab.training.resource_monitor import ResourceMonitor


# Before the first step: what a rank does is recorded, and ends where the run is stopped.


QUIET_S, REPORT_EVERY_S = 1.0, 0.5


class Preparation:
    """Records what rank 0 does before the first step, and ends any rank once the run is to stop.

    Args:
        recorder: of this rank.
        stop_requested: truthy if any request is to stop the run.
        rank: this one.
        show: called with each sentence that is recorded.
    """

    def __init__(
        self,
        recorder: Recorder,
        stop_requested: Callable[[], object],
        *,
        rank: int = 0,
        show: Callable[[str], None] | None = None,
    ) -> None:
        self._recorder, self._stop_requested, self._rank, self._show = recorder, stop_requested, rank, show
        self._next_s = time.monotonic() + QUIET_S

    def __call__(self, what: str, left_s: float | None) -> None:
        """Take in what is done now.

        Raises:
            StoppedError: the run is to stop.
        """
        if self._stop_requested():
            raise StoppedError("the run was stopped before its first step.")
        now_s = time.monotonic()
        if self._rank or now_s < self._next_s:
            return
        self._next_s = now_s + REPORT_EVERY_S
        event = Preparing(what, left_s)
        self._recorder.row("events", (0, 0, time.time_ns(), event.kind, event.write()))
        if self._show is not None:
            self._show(event.words)


# The start of a run: from scratch, from a checkpoint of another run, or from the records of a run to replay.


FORKED, REPLAYS = "forked", "replays"  # in environment.json, and kinds of events


@dataclass(frozen=True, slots=True)
class RunStart:
    """The start of one rank.

    Attributes:
        described: kind of event -> its data.
        begin: checkpoint of another run.
        replay: records of this rank in another run.
        threads: of each rank in the other run; 0 if irrelevant or unknown.
    """

    described: dict[str, dict[str, Any]]
    begin: Path | None = None
    replay: RunReplay | None = None
    threads: int = 0

    @classmethod
    def of(cls, directory: RunDirectory, rank: int, *, attempt: int = 1) -> RunStart:
        """Read the start from a run's folder.

        Raises:
            ControlError: a replay cannot be resumed.
            LabError: the other run's records cannot be read.
        """
        environment = directory.environment()
        described = {kind: environment[kind] for kind in (FORKED, REPLAYS) if kind in environment}
        if attempt > 1:
            check_resumable(directory)
        if attempt > 1 and directory.checkpoint_file.is_file():
            return cls({}, threads=int(described.get(FORKED, {}).get("threads", 0)))
        threads = max((int(facts.get("threads", 0)) for facts in described.values()), default=0)
        begin = directory.begin_file if FORKED in described else None
        replay = None
        if REPLAYS in described:
            replay = EventHistory(repeated_by(directory)).replay(rank)
        return cls(described, begin, replay, threads)

    @property
    def check(self) -> Callable[[dict[str, Any]], None] | None:
        """A check that refuses control requests to a replay; None for ordinary runs, which accept them."""
        if self.replay is None:
            return None
        apart = bool(self.replay.rounds)

        def refuse(request: dict[str, Any]) -> None:
            if set(request) - {"stop", "signal", "rank"} or apart:
                allowed = "session.close() ends it" if apart else "run.stop() ends it"
                raise ControlError(f"a replay repeats its run, and accepts no requests of its own: {allowed}.")

        return refuse

    def report(self, recorder: Recorder) -> None:
        """Record the start, as events at its step."""
        at = self.described.get(FORKED, {})
        for kind, facts in self.described.items():
            recorder.row("events", (at.get("step", 0), at.get("epoch", 0), time.time_ns(), kind, facts))


def check_resumable(directory: RunDirectory) -> None:
    """Refuse to resume a replay, which would continue without the records that it follows.

    Raises:
        ControlError: it is one.
    """
    described = directory.environment().get(REPLAYS)
    if described is not None:
        raise ControlError(
            f"run {directory.id} replays run {described['run']}, and cannot be resumed: replay that run again."
        )


def repeated_by(directory: RunDirectory) -> RunDirectory:
    """The original run of a replay.

    Raises:
        ConfigError: it is not a replay.
        RunStoreError: that run has moved.
    """
    described = directory.environment().get(REPLAYS)
    if described is None:
        raise ConfigError(f"run {directory.id} is not a replay. Create one: lab.runs.replay({str(directory.path)!r}).")
    return RunDirectory.open((directory.path / described["path"]).resolve())


# One rank of one attempt of one run on an engine, from joining to leaving.


LEAVE_S = 1.0  # for the other ranks to leave the store
OTHER_SAYS_S = 5.0  # for a failed rank to report its error, before another rank does


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
    device: str = "auto"
    changes: tuple[tuple[str, Any], ...] = ()
    busy_file: str = ""
    registrations: tuple[SentRegistration, ...] = ()
    silent_s: float = SILENT_S
    host: str = "127.0.0.1"  # empty where ranks are on several machines: each then takes its outward address

    @property
    def busy(self) -> Path | None:
        """The file whose time says that the session's cluster is in use; None for a cluster that is not ours."""
        return Path(self.busy_file) if self.busy_file else None


def warm_up() -> dict[str, Any]:
    """Import what training needs, once, so that a click on Run starts training immediately (see ``rehearse``).

    Returns:
        The engine's process number, its machine, and the number of visible CUDA devices.
    """
    import torch

    return {"pid": os.getpid(), "host": host_id(), "gpus": torch.cuda.device_count()}


def rehearse() -> None:
    """Trigger first-use initialisation of libraries (two seconds); only a run started at once waits for it."""
    from dtdg_lab.kernels.torch_defaults import torch_defaults
    from dtdg_lab.training import rehearsal

    with torch_defaults():
        rehearsal.rehearse()
    gc.collect()
    gc.freeze()  # a collection after a change of settings takes 0.3 s with what is imported


def choose_device(wanted: str, rank: int, gpus: int, size: int) -> str:
    """The device of a rank: a GPU each if there are enough, else the CPU; ``gpus`` are on this machine.

    Raises:
        ConfigError: GPUs were requested explicitly and are missing.
    """
    if wanted == "cpu" or (wanted == "auto" and gpus < size):
        return "cpu"
    if gpus < size:
        raise ConfigError(
            f"device='cuda' with {size} ranks: this machine has {gpus} GPUs. Use device='auto' or fewer ranks."
        )
    return f"cuda:{rank}"


def run_rank(task: RankTask) -> str:
    """Train one rank; the engine's entry point. Returns the final state of the run.

    Raises:
        LabError: the reason why the run ended; its status has it as well.
    """
    directory = RunDirectory.open(task.run_dir)
    overdue = partial(directory.mark_interrupted, task.attempt, rank=task.rank, overdue_s=OVERDUE_S)
    with StopSignals(overdue, leaves=True) as signals:
        try:
            return _run_rank(task, directory, signals)
        finally:
            if signals.received is None:  # else the engine ends, and its note stands until it has
                remove_note(directory.live, task.rank)


def _run_rank(task: RankTask, directory: RunDirectory, signals: StopSignals) -> str:
    try:
        apply_registrations(task.registrations)
        with ExitStack() as stack:
            try:
                state = _train(task, directory, stack, signals)
            except Exception as error:
                # closing the group ends the others' collectives: their errors must not be reported as the cause
                if not isinstance(error, OtherRankError):
                    _mark_failed(directory, task, error, signals)
                raise
        with signs_of_life(directory.live, task.rank, task.busy):
            parquet.write_rank(directory, task.rank)
            if task.rank == 0:
                status = directory.recorded_status()
                cause = (status["reason"], status["rank"]) if state == "interrupted" else ()
                finish(directory, state, *cause, attempt=task.attempt)
    except BaseException as error:
        _mark_failed(directory, task, error, signals)
        raise
    return state


def _train(task: RankTask, directory: RunDirectory, stack: ExitStack, signals: StopSignals) -> str:
    import torch

    from dtdg_lab.datasets.names import load_for
    from dtdg_lab.distributed.group import ProcessGroup
    from dtdg_lab.kernels.torch_defaults import torch_defaults
    from dtdg_lab.training.resource_monitor import ResourceMonitor

    config, beginning = directory.config(), RunStart.of(directory, task.rank, attempt=task.attempt)
    stack.enter_context(torch_defaults(beginning.threads or config.threads, local_ranks=task.local_size))
    device = choose_device(task.device, task.local_rank, torch.cuda.device_count(), task.local_size)
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
        task, directory, beginning, stack, telemetry=publisher.address, host=host, request_log=request_log
    )
    signals.request = control.stop_by
    beacon = _beacon(task, directory, store, writer)
    if task.rank == 0:
        stack.callback(_leave_store, store, beacon, directory, task.size)  # after the beacon's end
    stack.callback(beacon.close)
    beacon.start()
    try:
        group = ProcessGroup.join(store, task.rank, task.size, device=device)
        stack.callback(group.close)
        resource_monitor = ResourceMonitor(config, device, task.local_rank, task.local_size, writer)
        stack.callback(resource_monitor.close)
        resource_monitor.start()
        try:
            with preparation(Preparation(writer, partial(_leaves, control, task, directory), rank=task.rank)):
                trainer = begin_training(
                    directory,
                    load_for(config),
                    group,
                    beginning,
                    attempt=task.attempt,
                    recorder=writer,
                    control=control,
                    resource_monitor=resource_monitor,
                    device=device,
                    resume=task.attempt > 1 and directory.checkpoint_file.is_file(),  # else it starts again
                    changes=dict(task.changes),
                )
        except Exception as error:
            if not control.stop_request():
                raise
            return _stopped(control, directory, task, error)
        _judge_requests_by(trainer, control, beginning, request_log)
        state = trainer.run().state
        resource_monitor.close()
        writer.flush()
        group.barrier()  # all records are written before rank 0 reads them
        if state == "stopped":
            state = end_stopped(control, directory, task.attempt, rank=task.rank)
    except (RuntimeError, ClusterError) as error:
        raise _named(error, beacon, task) from error
    return state


def _judge_requests_by(
    trainer: Trainer, control: ControlServer | StoredControl, beginning: RunStart, request_log: RequestLog
) -> None:
    """Check requests against the settings of a trainer from here on, and record requests at its step."""
    request_log.trainer = trainer
    if beginning.check is None and isinstance(control, ControlServer):
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
        store=store.again(),
        silent_s=task.silent_s,
        on_death=on_death,
        failed=lambda: is_marked_failed(directory, task.attempt),
        busy_file=task.busy,
    )


def _leaves(control: ControlServer | StoredControl, task: RankTask, directory: RunDirectory) -> bool:
    """Whether a rank ends its preparation: once rank 0 trains, a stop takes effect at a common step instead."""
    stops = bool(control.stop_request())
    return stops and (task.rank == 0 or directory.recorded_status()["state"] == "starting")


def _stopped(control: ControlServer | StoredControl, directory: RunDirectory, task: RankTask, error: Exception) -> str:
    """Return the state of a run that ended before its first step, with an error on this rank."""
    if not isinstance(error, StoppedError):  # another rank has left, or something failed at that very moment
        _write_error(directory, task, error)
    state = end_stopped(control, directory, task.attempt, rank=task.rank)
    if (
        task.rank == 0 and state == "stopped"
    ):  # before the others notice that this rank leaves: their errors are no cause
        directory.write_status(state, attempt=task.attempt)
    return state


def end_stopped(
    control: ControlServer | StoredControl | LocalControl, directory: RunDirectory, attempt: int, *, rank: int = 0
) -> str:
    """Return the state of a run that was asked to stop: stopped, or interrupted by a signal.

    Rank 0 records an interruption at once: a signal may leave no time for Parquet files and the report.
    """
    request = control.stop_request()
    if "signal" not in request:
        return "stopped"
    if rank == 0:
        directory.mark_interrupted(attempt, request["signal"], rank=request["rank"])
    return "interrupted"


def _leave_store(store: SignedStore, beacon: Beacon, directory: RunDirectory, size: int) -> None:
    """Remove the store of an attempt that all ranks have left, and note how much in it was not theirs."""
    left = beacon.left(LEAVE_S)
    if len(left) == size:
        store.remove()  # else a later run does, in a week
    if ignored := sum(left.values()):
        directory.add_environment(store_values_ignored=ignored)


def outward_address() -> str:
    """This machine's address on the network: that of its outgoing interface (nothing is sent)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address reserved for documentation; any address selects this interface
            address: str = probe.getsockname()[0]
        except OSError:  # no default route, as on isolated compute nodes: use the host name
            address = socket.gethostbyname(socket.gethostname())
    if address.startswith("127."):
        raise ClusterError(
            f"ranks run on several machines, and this one ({socket.gethostname()}) finds only its loopback address "
            f"{address}. Give its name an address of the network they share (/etc/hosts or DNS)."
        )
    return address


def _keep_gloo_on(host: str, address: str) -> None:
    """Bind gloo to loopback if all ranks are on one machine, else to the outgoing interface.

    User settings are kept. By default gloo takes the address of the machine's name, which is often loopback.
    """
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    if host:
        os.environ["GLOO_SOCKET_IFNAME"] = loopback
    elif os.environ.get("GLOO_SOCKET_IFNAME", loopback) == loopback:
        os.environ["GLOO_SOCKET_IFNAME"] = interface_of(address)


def interface_of(address: str) -> str:
    """The network interface that has an address.

    Raises:
        ClusterError: none has it.
    """
    import psutil

    found = psutil.net_if_addrs()
    for name, addresses in found.items():
        if any(each.address == address for each in addresses):
            return str(name)
    raise ClusterError(
        f"no network interface of this machine has the address {address} (interfaces: {', '.join(found)}). Set "
        "GLOO_SOCKET_IFNAME for the engines to the one that reaches the other machines."
    )


def _meet(
    task: RankTask,
    directory: RunDirectory,
    beginning: RunStart,
    stack: ExitStack,
    *,
    telemetry: str,
    host: str,
    request_log: RequestLog,
) -> tuple[SignedStore, ControlServer | StoredControl]:
    """Store and control of the ranks of an attempt. Rank 0 makes both and publishes their addresses; the others read
    its note. On one machine the store is a file of this account's.
    """
    from dtdg_lab.distributed.store import open_store, reach_store
    from dtdg_lab.training.live_settings import LiveSettings

    place = place_of(directory, task.attempt)
    if task.rank != 0:
        first = wait_for_note(directory.live, 0, task.attempt)
        store = reach_store(first.store, task.size, key=task.key, scope=place)
        write_note(directory.live, own_note(task.rank, task.attempt, telemetry))
        return store, StoredControl(store, partial(ask, first.control, task.key, place=place, timeout_s=1.0), task.rank)
    store, address = open_store(task.size, key=task.key, scope=place, host="" if task.host else host)
    # the check is set below, before the note publishes the server's address
    refuse, accept = request_log.refuse, request_log.accept
    control = ControlServer(task.key, store, _not_ready, refuse, place=place, host=host, on_acceptance=accept)
    stack.callback(control.close)
    control.check = beginning.check or partial(_check_after, LiveSettings(directory.config()), control)
    write_note(directory.live, own_note(0, task.attempt, telemetry, control=control.address, store=address))
    return store, control


def place_of(directory: RunDirectory, attempt: int) -> str:
    """The run and attempt for which control messages are signed."""
    return f"{directory.id}/{attempt}"


def begin_training(
    directory: RunDirectory,
    graph: DynamicGraph,
    group: Any,
    start: RunStart,
    *,
    recorder: Recorder,
    resource_monitor: ResourceMonitor,
    attempt: int = 1,
    **more: Any,
) -> Trainer:
    """The trainer of a rank; rank 0 records the start of the attempt. ``more`` is passed to the trainer."""
    from dtdg_lab.training.assembly import assemble_trainer

    config = directory.config()
    if group.rank == 0:
        facts = {"dataset": config.dataset, "source": graph.source, "sha256": graph.data_hash}
        directory.add_environment(data=facts, energy_notes=resource_monitor.notes)
        started = AttemptStarted(group.size, attempt, config.dataset, graph.source)
        recorder.row("events", (0, 0, time.time_ns(), started.kind, started.write()))
        for extension in directory.extensions():
            code = RegisteredCode(extension.title, extension.target, extension.sha256)
            recorder.row("events", (0, 0, time.time_ns(), code.kind, code.write()))
        start.report(recorder)
    trainer = assemble_trainer(
        config,
        graph,
        group,
        recorder=recorder,
        checkpoint=directory.checkpoint_file,
        resource_monitor=resource_monitor,
        begin=start.begin,
        replay=start.replay,
        **more,
    )
    if group.rank == 0:
        directory.write_status("running", attempt=attempt)
    return trainer


def _not_ready(request: dict[str, Any]) -> None:
    raise ControlError("the run is not ready for requests yet. Send the request again in a second.")


def _check_after(live_settings: LiveSettings, control: ControlServer, request: dict[str, Any]) -> None:
    """Check a request against the active, pending, and accepted but unapplied settings."""
    later = [accepted["set"] for accepted in control.changes(live_settings.version)]
    check_request(live_settings.expected(later), request)


def check_request(config: RunConfig, request: dict[str, Any]) -> None:
    """Whether a running job with these settings can execute a request.

    Raises:
        ConfigError: a change is not allowed, or the request is empty.
    """
    from dtdg_lab.training.live_settings import check_changes

    if not {"set", "pause", "stop", "keep"} & set(request):
        raise ConfigError(f"a control request with {sorted(request)} has no action: give set, pause, stop or keep.")
    check_changes(config, request.get("set", {}))


def _named(error: RuntimeError | ClusterError, beacon: Beacon, task: RankTask) -> RunFailedError:
    """The same failure with the dead rank's name, if there is one."""
    dead = beacon.first_dead(1.0)
    if dead is not None:
        return RunFailedError(death_reason(dead))
    if isinstance(error, OtherRankError):
        return error
    return RunFailedError(f"rank {task.rank} failed: {type(error).__name__}: {error}")


def is_marked_failed(directory: RunDirectory, attempt: int) -> bool:
    """Whether this attempt has failed, or a later one has begun."""
    status = directory.recorded_status()
    return status["attempt"] > attempt or (status["attempt"] == attempt and status["state"] == "failed")


def mark_death(directory: RunDirectory, attempt: int, dead: int, reason: str) -> None:
    """Mark a run as failed because a rank died or was silent for too long; the first report counts."""
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
    if signals.received is not None:  # which may have ended what this rank needs as well
        directory.mark_interrupted(task.attempt, signals.received.name, rank=task.rank)
        return
    reason = str(error)
    if not isinstance(error, LabError):
        reason = f"rank {task.rank} failed: {error_text(error).rstrip('.')}. Its traceback is in {file}."
    if task.attempt > 1:
        reason += f" (Attempt {task.attempt} of this run.)"
    dead = [int(word) for word in reason.split()[1:2] if "died (its process" in reason and word.isdigit()]
    directory.write_status("failed", reason=reason, rank=dead[0] if dead else task.rank, attempt=task.attempt)


def _write_error(directory: RunDirectory, task: RankTask, error: BaseException) -> Path:
    """Keep a rank's traceback in a file of the run, which is returned."""
    file = directory.live / f"error-rank{task.rank}-attempt{task.attempt}.txt"
    file.write_text("".join(traceback.format_exception(error)))
    return file
