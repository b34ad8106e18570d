"""Session: an ipyparallel cluster for training, started or attached to by a notebook, and its engines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster import session_files
from dtdg_lab.cluster.assembly import check_request
from dtdg_lab.cluster.devices import DeviceChoice, assign_gpus
from dtdg_lab.cluster.engines import Engines, EngineState, engine_numbers_of, trouble, warn_of_unused_gpus
from dtdg_lab.cluster.keeper import has_keeper, start_keeper
from dtdg_lab.cluster.registrations import SentRegistration, pack_registrations
from dtdg_lab.cluster.run import Run
from dtdg_lab.cluster.run_start import check_resumable
from dtdg_lab.cluster.session_files import SessionFiles
from dtdg_lab.cluster.worker import RankTask, run_rank
from dtdg_lab.config.extensions import check_registered
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ClusterError, ConfigError, ControlError, LabError, RunStoreError
from dtdg_lab.core.files import writable_folder
from dtdg_lab.core.units import NETEM, STATE, as_path, state_root
from dtdg_lab.network.netem import undo_left_over
from dtdg_lab.records.requests import SetLive
from dtdg_lab.runs.checkpoints import read_checkpoint
from dtdg_lab.runs.directory import ENDED, RunDirectory
from dtdg_lab.runs.environment import gpu_count
from dtdg_lab.runs.liveness import SILENT_S, host_id, is_dead, read_notes
from dtdg_lab.runs.registered_code import add_extensions, check_same_code

if TYPE_CHECKING:
    from dtdg_lab.runs.stored_run import StoredRun

HEARTBEAT_S = 5.0
LEAVING_LIMIT_S = 10.0  # for engines to exit after a signal
REPLACING_LIMIT_S = 60.0  # for new ones to start
MOST_SILENT_S = 1200.0  # less than the time-out of collectives


class Session:
    """Engines that train, and the runs they trained.

    A ``name`` identifies a session: a cell that runs twice, or a new kernel, gets the same engines and their active
    run. If the cluster has ended, it gets new engines and the session's runs. Without a name every call starts a new
    cluster. Engines outlive the kernel while a run is active; idle ones end ``idle_s`` seconds after the last kernel's
    heartbeat.

    Args:
        ranks: engines to start, the maximum R of its runs; by default one per GPU, or two without GPUs.
        name: name of the session.
        runs_dir: folder for runs, on a disk that all engines share.
        idle_s: seconds without a kernel or a run after which the cluster ends by itself.
        silent_s: seconds that a run waits for a rank whose process exists but is silent, as after SIGSTOP.
        timeout_s: seconds to wait for engines.

    Raises:
        ClusterError: the engines cannot be started, or a session of this name has another number of ranks and an active
            run.
    """

    def __init__(
        self,
        ranks: int | None = None,
        *,
        name: str = "",
        runs_dir: str | Path = "runs",
        idle_s: float = 120.0,
        silent_s: float = SILENT_S,
        timeout_s: float = 60.0,
    ) -> None:
        size = (gpu_count() or 2) if ranks is None else ranks
        if not isinstance(size, int) or size < 1:
            raise ClusterError(f"ranks={ranks!r}: give a whole number of engines, at least 1.")
        if not 1.0 <= silent_s <= MOST_SILENT_S:
            raise ClusterError(f"silent_s={silent_s:g}: give 1 to {MOST_SILENT_S:g} seconds.")
        root = as_path(runs_dir, "runs_dir", RunStoreError).resolve()
        writable_folder(state_root(), STATE, ClusterError)
        undo_left_over(state_root() / NETEM)  # left by a killed run
        existing, alive = session_files.find_session(name, size) if name else (None, False)
        if not alive:
            writable_folder(root, "runs_dir", RunStoreError)
        if existing is None:
            files = session_files.new_session_files(name, size, root, idle_s, silent_s)
        else:
            files = existing if alive else session_files.renewed(existing, size, root, idle_s, silent_s)
        self._setup(files)
        try:
            if not alive:
                start_keeper(files)
                self._engines = Engines.start(files, timeout_s=timeout_s)
            else:
                self._engines = Engines.connect(files, timeout_s=timeout_s)
                self._replace_missing(timeout_s)
        except BaseException as error:
            self._stop_heartbeat.set()
            if alive:
                raise
            log_text = session_files.clean_up_failed_start(files, is_new=existing is None)
            if not isinstance(error, ClusterError):
                raise
            raise ClusterError(
                f"{error} {log_text} Try fewer ranks, or end other sessions: dtdg-lab sessions."
            ) from error
        warn_of_unused_gpus(self.engines())

    @classmethod
    def attach(
        cls, which: str | Path | None = None, *, runs_dir: str | Path = "runs", timeout_s: float = 30.0
    ) -> Session:
        """Connect to a running cluster.

        Args:
            which: id or name of a session of the lab; or the connection file (``ipcontroller-client.json``) or the
                profile of any ipyparallel cluster, such as one started by ``ipcluster start`` over SSH or Slurm. By
                default the session of the lab used last.
            runs_dir: folder for runs on a foreign cluster, on a disk that all engines share.
            timeout_s: seconds to wait for the controller.

        Raises:
            ClusterError: there is no such cluster, or it does not answer.
        """
        session = cls.__new__(cls)
        all_files = session_files.all_sessions()
        running = [files for files in all_files if not files.owned or files.processes()]
        by_name = {key: files for files in running for key in (files.id, files.name) if key}
        if which is None and not by_name:
            raise ClusterError("no session of the lab is running here. Start one: Session(ranks=2).")
        lab_files = min(running, key=SessionFiles.idle_for_s) if which is None else by_name.get(str(which))
        ended = [files for files in all_files if lab_files is None and str(which) in (files.id, files.name)]
        if ended:
            raise ClusterError(session_files.ended_words(ended[-1]))
        files = lab_files or session_files.foreign_session_files(
            str(which), writable_folder(runs_dir, "runs_dir", RunStoreError).resolve()
        )
        session._setup(files)
        try:
            session._engines = Engines.connect(files, timeout_s=timeout_s)
            if not session._engines.client.ids:
                raise ClusterError(f"the cluster {which} has no engines. Start some: ipcluster engines -n 2.")
            session._engines.warm(1, timeout_s=timeout_s)
            if not files.owned:
                session._files = replace(files, ranks=len(session._engines.alive()))
                session._files.write()
        except BaseException:
            session._stop_heartbeat.set()
            if lab_files is None:
                files.remove()
            raise
        warn_of_unused_gpus(session.engines())
        return session

    def _setup(self, files: SessionFiles) -> None:
        self._files = files
        self._lock = threading.RLock()
        self._handles: dict[Path, Run] = {}
        self._closed = False
        self._stop_heartbeat = threading.Event()
        files.heartbeat_file.touch()
        beat = min(HEARTBEAT_S, files.idle_s / 4)
        self._heart = threading.Thread(
            target=_beat, args=(files, beat, self._stop_heartbeat), name="heart", daemon=True
        )
        self._heart.start()

    def __repr__(self) -> str:
        alive = sum(engine.is_alive for engine in self.engines().values()) if self.ready else 0
        return f"<Session {self.name}: {alive} of {self.ranks} engines alive>"

    # facts

    @property
    def name(self) -> str:
        """The session's name, or its id without a name."""
        return self._files.name or self._files.id

    @property
    def ranks(self) -> int:
        """Intended number of engines: the maximum ranks of its runs."""
        return self._files.ranks

    @property
    def key(self) -> str:
        """The key that signs telemetry and control messages; keep it secret."""
        return self._files.key

    @property
    def silent_s(self) -> float:
        """Seconds that a run waits for a rank whose process exists but gives no sign of life."""
        return self._files.silent_s

    @property
    def runs_dir(self) -> Path:
        """The folder of its runs."""
        return Path(self._files.runs_dir)

    @property
    def ready(self) -> bool:
        """True if runs can be started: the session is open, the controller and all engines are alive."""
        return not self._closed and not self.problem and all(engine.is_alive for engine in self.engines().values())

    @property
    def problem(self) -> str:
        """The reason why no run can be started although engines are alive, with a remedy; empty if there is none."""
        gone = not self._closed and self._engines.controller_is_gone
        return session_files.gone_words(self._files) if gone else ""

    def engines(self) -> dict[int, EngineState]:
        """Return rank -> the state of its engine: whether it is alive, its device, and the memory of that."""
        reports = [] if self._closed else [engine.report for engine in self._engines.alive()]
        states = [EngineState.of(*pair) for pair in zip(reports, assign_gpus(reports), strict=True)]
        missing = [EngineState(is_alive=False)] * (self.ranks - len(states))
        return dict(enumerate((states + missing)[: self.ranks]))

    @property
    def runs(self) -> list[Run]:
        """Runs started in this session by any kernel, oldest first."""
        with self._lock:
            return [self._handle(path) for path in self._files.runs()]

    @property
    def current(self) -> Run | None:
        """The newest run, active or past."""
        with self._lock:
            paths = self._files.runs()
            return self._handle(paths[-1]) if paths else None

    def _handle(self, path: Path) -> Run:
        handle = self._handles.get(path)
        if handle is None or handle.is_outdated:
            handle = self._handles[path] = Run(self, RunDirectory.open(path), predecessor=handle)
        return handle

    # actions

    def train(self, config: RunConfig, *, engines: Sequence[int] | None = None) -> Run:
        """Start a run and return its handle at once.

        Args:
            config: the settings.
            engines: indices of the session's engines, from 0; rank r trains on the r-th of them. Runs on different
                engines may be active at the same time. By default the first engines; then no other run may be active.

        Raises:
            ControlError: a run is active, on any of these engines if they are given.
            ClusterError: fewer engines are alive than the config has ranks.
            ConfigError: engines are not one per rank, or ``device`` demands GPUs that are missing.
            RunStoreError: the run's folder cannot be created.
        """
        return self.launch(config.ranks, partial(RunDirectory.create, config), engines=engines, config=config)

    def launch(
        self,
        ranks: int,
        make: Callable[..., RunDirectory],
        *,
        runs_dir: str | Path | None = None,
        engines: Sequence[int] | None = None,
        config: RunConfig,
    ) -> Run:
        """Start a run like :meth:`train`, in a folder created by ``make``: a fork or a replay.

        Args:
            ranks: ranks of the run.
            make: called with ``root`` once the engines are free.
            runs_dir: replaces the session's folder of runs.
            engines: as in :meth:`train`.
            config: config of the run.

        Raises:
            ClusterError: registered code that the run uses cannot be sent to engines; or as in :meth:`train`.
            ConfigError: as in :meth:`train`, for example because GPUs are missing.
        """
        with self._lock:
            numbers = engine_numbers_of(ranks, engines)
            self._check_free(ranks, numbers)
            devices = self._engines.choose_devices(config, numbers)
            root = writable_folder(runs_dir or self._files.runs_dir, "runs_dir", RunStoreError)
            registrations = pack_registrations(config)
            directory = make(root=root.resolve())
            self._files.add_run(directory.path, numbers)
            return self._launch(
                directory, ranks, attempt=1, devices=devices, numbers=numbers, registrations=registrations
            )

    def halves(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the indices of the first and of the second half of the engines, equally many.

        Raises:
            ClusterError: there is only one engine.
        """
        size = self.ranks // 2
        if not size:
            raise ClusterError("a single engine cannot be split into halves. Create a Session with at least 2 ranks.")
        return tuple(range(size)), tuple(range(size, 2 * size))

    def resume(self, run: Run | StoredRun | str | Path, **changes: Any) -> Run:
        """Resume a run from its last checkpoint, as a new attempt; also a run of a session that has ended.

        A run that a signal interrupted before its first checkpoint starts from the beginning, and engines that exited
        after the signal are replaced.

        Args:
            run: a stopped, failed or interrupted run: a handle of any session, a stored run, or its folder.
            changes: changes of live settings, such as a smaller ``learning_rate``.

        Raises:
            ControlError: the run is still active, in this or another session.
            ClusterError: fewer engines are alive than the run has ranks.
            ConfigError: a change is not allowed or comes after the last epoch, the run uses code that is not registered
                in this process or has changed, or its ``device`` demands GPUs that are missing.
            RunStoreError: there is no run, or no checkpoint.
        """
        with self._lock:
            path = as_path(run if isinstance(run, str | Path) else run.path, "run", RunStoreError).resolve()
            directory = RunDirectory.open(path)
            check_resumable(directory)
            status, is_own = directory.status(), path in self._files.runs()
            if status["state"] not in ENDED and not is_own:
                raise ControlError(
                    f"run {directory.id} is {status['state']} in another session, so it cannot be resumed. "
                    "Session.attach() connects to that session."
                )
            config, signalled = directory.config(), directory.recorded_status()["state"] == "interrupted"
            numbers = self._files.engines_of(path)
            if signalled and not self.under_way:
                self._await_leaving()
                if self._files.owned and not self.problem:
                    self._replace_missing(REPLACING_LIMIT_S)
            self._check_free(config.ranks, numbers)
            if status["state"] not in ENDED:
                raise ControlError(
                    f"run {directory.id} is {status['state']}, so it cannot be resumed. session.runs has its handle."
                )
            has_checkpoint = directory.checkpoint_file.is_file()
            if not has_checkpoint and not signalled:
                raise RunStoreError(
                    f"run {directory.id} has no checkpoint yet. Start it again with session.train(run.config)."
                )
            checkpoint_config = read_checkpoint(directory.checkpoint_file).config if has_checkpoint else config
            check_registered(checkpoint_config)
            check_request(checkpoint_config, SetLive(changes))
            after = checkpoint_config.replace(**changes)
            if changes and status["state"] == "finished" and after.epochs <= checkpoint_config.epochs:
                raise ConfigError(
                    f"run {directory.id} has finished its {checkpoint_config.epochs} epochs, so changes would have no "
                    "effect. Add epochs, as in run.resume(epochs=...), or start from it: lab.runs.fork(...)."
                )
            remedy = "train with this code in a new run: lab.runs.fork(...), or session.train(run.config)"
            check_same_code(f"run {directory.id}", directory.path, after, remedy=remedy)
            registrations = pack_registrations(after)
            devices = self._engines.choose_devices(config, numbers)
            add_extensions(directory.path, after)
            if not is_own:
                self._files.add_run(path)
            attempt = status["attempt"] + 1
            directory.write_status("starting", attempt=attempt)
            start = {
                "attempt": attempt,
                "devices": devices,
                "changes": changes,
                "numbers": numbers,
                "registrations": registrations,
            }
            return self._launch(directory, config.ranks, **start)

    @property
    def under_way(self) -> list[Run]:
        """Active runs, oldest first; several only if they have separate engines."""
        with self._lock:
            handles = [self._handle(path) for path in self._files.runs() if is_under_way(path)]
            return [run for run in handles if run.status not in ENDED]

    def _await_leaving(self) -> None:
        """Wait for engines that were asked to exit, since they look alive until then."""
        deadline = time.monotonic() + LEAVING_LIMIT_S
        for path in self._files.runs():
            try:
                run = RunDirectory.open(path)
                status = run.recorded_status()
            except LabError:  # ignore a damaged folder
                continue
            while status["state"] == "interrupted" and time.monotonic() < deadline:
                notes = read_notes(run.live, status["attempt"]).values()
                if all(note.host != host_id() or is_dead(note) for note in notes):
                    break
                time.sleep(0.05)

    def _check_free(self, ranks: int, numbers: tuple[int, ...] = ()) -> None:
        if self._closed:
            raise ControlError("the session is closed. Create a new one.")
        self._await_leaving()
        busy = self.under_way
        for run in busy:
            busy_engines = self._files.engines_of(run.path) or tuple(range(run.config.ranks))
            if numbers and not set(numbers) & set(busy_engines):
                continue
            location = "" if not numbers else f" on engines {', '.join(map(str, busy_engines))}"
            raise ControlError(f"run {run.id} is {run.status}{location}. Stop it first (run.stop()), or wait for it.")
        if self.problem:
            raise ClusterError(self.problem)
        alive = len(self._engines.alive())
        if numbers and busy and alive < self.ranks:  # engines after a dead one have moved up
            raise ClusterError(
                f"{alive} of {self.ranks} engines are alive, so their indices have shifted. Wait for run "
                f"{busy[0].id}, then call session.repair()."
            )
        if numbers and max(numbers) >= alive:
            raise ClusterError(
                f"engines {', '.join(map(str, numbers))} are requested, but {alive} of {self.ranks} are alive, "
                "numbered from 0. "
                + ("Call session.repair()." if max(numbers) < self.ranks else "Create a larger session.")
            )
        if ranks > alive:
            raise ClusterError(
                f"the run needs {ranks} ranks, but only {alive} of {self.ranks} engines are alive. "
                + ("Call session.repair()." if ranks <= self.ranks else f"Create a Session(ranks={ranks}).")
            )

    def _launch(
        self,
        directory: RunDirectory,
        ranks: int,
        *,
        attempt: int,
        devices: DeviceChoice,
        registrations: tuple[SentRegistration, ...],
        changes: Mapping[str, Any] | None = None,
        numbers: tuple[int, ...] = (),
    ) -> Run:
        alive = self._engines.alive()
        engines = [alive[index] for index in numbers] or alive[:ranks]
        beside = alive if numbers else engines  # others may train at the same time
        is_local = {engine.host for engine in engines} == {host_id()}
        answers = []
        directory.add_environment(device_note=devices.note)  # replaces that of an earlier attempt
        for rank, engine in enumerate(engines):
            of_machine = [neighbour for neighbour in beside if neighbour.host == engine.host]
            task = RankTask(
                run_dir=str(directory.path),
                rank=rank,
                size=len(engines),
                attempt=attempt,
                key=self.key,
                local_rank=of_machine.index(engine),
                local_size=len(of_machine),
                device=devices.devices[rank],
                shares_gpus=devices.is_shared,
                changes=tuple((changes or {}).items()),
                busy_file=str(self._files.busy_file) if self._files.owned else "",
                registrations=registrations,
                silent_s=self.silent_s,
                host="127.0.0.1" if is_local else "",
            )
            answers.append(self._engines.client[engine.id].apply_async(run_rank, task))

        def start_trouble() -> str:
            begun = directory.recorded_status()["state"] != "starting" or read_notes(directory.live, attempt)
            return trouble(answers) or ("" if begun else self.problem)

        run = Run(self, directory, trouble=start_trouble, predecessor=self._handles.get(directory.path))
        self._handles[directory.path] = run
        return run

    def repair(self, *, timeout_s: float = 60.0) -> None:
        """Replace dead engines; the others stay. If the controller is gone, start a new cluster.

        Engines of an external cluster are started there; this call detects the new ones.

        Raises:
            ControlError: a run is active.
            ClusterError: the engines cannot be started.
        """
        with self._lock:
            if active := self.under_way:
                raise ControlError(f"run {active[0].id} is {active[0].status}: engines are replaced between runs.")
            self._await_leaving()
            current = self.current
            if current is not None:
                stuck = read_notes(current.path / "live", current.attempt).values()
                self._engines.kill([note.pid for note in stuck if note.host == host_id() and not is_dead(note)])
            if self._engines.controller_is_gone:
                self._restart(timeout_s)
            self._replace_missing(timeout_s)

    def _restart(self, timeout_s: float) -> None:
        """Start a new cluster with the session's name, key and runs."""
        if not self._files.owned:
            raise ClusterError(self.problem)
        self._engines.close()
        session_files.end_processes(self._files)
        session_files.clear_cluster(self._files)
        if not has_keeper(self._files):
            start_keeper(self._files)
        self._engines = Engines.start(self._files, timeout_s=timeout_s)

    def _replace_missing(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while (missing := self.ranks - len(self._engines.alive())) > 0:  # repeat if others end meanwhile
            left_s = deadline - time.monotonic()
            if left_s < 0:
                raise ClusterError(
                    f"only {self.ranks - missing} of {self.ranks} engines are ready after {timeout_s:g} s. "
                    "Close the session and create a new one."
                )
            self._engines.start_more(missing, timeout_s=left_s)

    def detach(self) -> None:
        """Disconnect from the cluster without ending it: a run continues, and an idle cluster ends by itself."""
        if not self._closed:
            self._closed = True
            self._stop_heartbeat.set()
            for run in self._handles.values():
                run.close()
            self._engines.close()

    def close(self) -> None:
        """Stop an active run, end the engines of an owned cluster, and remove the session; idempotent."""
        if self._closed:
            return
        for run in self.under_way:
            try:
                run.stop()
                run.wait(10.0)
            except (LabError, TimeoutError) as error:
                run.abandon(f"the session was closed and the run did not stop: {error}")
        self.detach()
        if self._files.owned:
            session_files.end_processes(self._files)
        self._files.remove()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def is_under_way(path: Path) -> bool:
    """Return True if a run has not ended, by its folder; an unreadable folder counts as ended."""
    try:
        return RunDirectory.open(path).status()["state"] not in ENDED
    except LabError:
        return False


def _beat(files: SessionFiles, every_s: float, stop: threading.Event) -> None:
    while not stop.wait(every_s):
        if files.folder.is_dir():
            files.heartbeat_file.touch()
