"""Session: an ipyparallel cluster for training, started or attached to, its engines, and its kernel interface."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import psutil

from dtdg_lab.cluster import session_files
from dtdg_lab.cluster.registrations import SentRegistration, pack_registrations
from dtdg_lab.cluster.run import Run
from dtdg_lab.cluster.session_files import SessionFiles
from dtdg_lab.cluster.worker import RankTask, check_resumable, rehearse, run_rank, warm_up
from dtdg_lab.config.extensions import check_registered
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ClusterError, ConfigError, ControlError, LabError, RunStoreError
from dtdg_lab.core.files import writable_folder
from dtdg_lab.core.units import NETEM, STATE, as_path, state_root
from dtdg_lab.network.netem import undo_left_over
from dtdg_lab.runs.checkpoints import read_kept
from dtdg_lab.runs.directory import ENDED, RunDirectory
from dtdg_lab.runs.environment import gpu_count
from dtdg_lab.runs.json_files import write_json
from dtdg_lab.runs.liveness import SILENT_S, host_id, is_dead, read_notes
from dtdg_lab.runs.registered_code import add_extensions, check_same_code

if TYPE_CHECKING:
    from dtdg_lab.runs.run import StoredRun

# The engines of a session as ranks: start, discovery, health, and replacement.


DROPPED_S = 30.0
PROBE_EVERY_S = 1.0
KILLED_S = 10.0  # a large process takes a while to be gone
HEARTBEAT_MS = 200  # the default of 3000 delays the cluster's start by 6 s


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine: its number at the controller (never reused, so not the rank), process and machine."""

    id: int
    pid: int
    host: str
    gpus: int


class Engines:
    """Engines of one cluster, in rank order.

    Args:
        client: an ipyparallel client.
        cluster: the ipyparallel cluster if it can start engines; None if it was started elsewhere.
        files: of the session; they hold facts about the engines for the next kernel.
    """

    def __init__(self, client: Any, cluster: Any, files: SessionFiles) -> None:
        self.client, self._cluster, self._files = client, cluster, files
        self._probed_s, self._gone = float("-inf"), False
        self._started: Any = None  # the engine set that was started last
        self._warm: dict[int, Engine] = {}
        self._learn()

    def _learn(self) -> None:
        """Read other kernels' facts about the engines."""
        known = json.loads(self._files.engines_file.read_text()) if self._files.engines_file.is_file() else []
        self._warm |= {fact["id"]: Engine(**fact) for fact in known}

    @classmethod
    def start(cls, files: SessionFiles, *, timeout_s: float) -> Engines:
        """Start a controller and engines that outlive this process.

        Raises:
            ClusterError: they did not start in time.
        """
        import ipyparallel as ipp

        from dtdg_lab.cluster.launchers import cluster_settings

        began_s = time.monotonic()
        cluster = ipp.Cluster(
            **cluster_settings(files, timeout_s),
            delay=0.0,
            send_engines_connection_env=False,
            n=files.ranks,
            profile_dir=str(files.folder / "profile"),
            cluster_id="",
            controller_args=[
                f"--HeartMonitor.period={HEARTBEAT_MS}",  # it drops engines for good: the run decides earlier
                f"--HeartMonitor.max_heartmonitor_misses={int((files.silent_s + DROPPED_S) * 1000 / HEARTBEAT_MS)}",
            ],
            engine_timeout=timeout_s,
            cluster_file=files.cluster_file,
        )
        client = None
        try:
            cluster.start_cluster_sync(n=files.ranks)
            cluster.controller.connection_info_timeout = timeout_s
            client = cluster.connect_client_sync()
            engines = cls(client, cluster, files)
            (engines._started,) = cluster.engines.values()
            engines.warm(files.ranks, timeout_s=max(0.0, timeout_s - (time.monotonic() - began_s)))
        except (TimeoutError, RuntimeError, OSError, ValueError, ipp.error.IPythonError, ClusterError) as error:
            if client is not None:
                client.close(linger=0)
            raise ClusterError(
                f"{files.ranks} engines did not start: {str(error).rstrip('.')}. This was after "
                f"{time.monotonic() - began_s:.1f} s (timeout_s={timeout_s:g})."
            ) from error
        return engines

    @classmethod
    def connect(cls, files: SessionFiles, *, timeout_s: float) -> Engines:
        """Reconnect to a running cluster.

        Raises:
            ClusterError: its controller does not answer.
        """
        import ipyparallel as ipp

        from dtdg_lab.cluster.launchers import cluster_settings

        cluster = None
        if files.cluster_file and Path(files.cluster_file).is_file():
            cluster = ipp.Cluster.from_file(files.cluster_file, **cluster_settings(files, timeout_s))
        where = files.connection_file
        if not Path(where).is_file():
            raise ClusterError(f"there is no connection file {where}: the cluster has ended, or runs elsewhere.")
        if session_files.controller_is_gone(where):
            raise ClusterError(session_files.gone_words(files))
        try:
            client = ipp.Client(where, timeout=timeout_s)
        except (TimeoutError, ipp.error.TimeoutError, OSError) as error:
            raise ClusterError(f"the controller of {where} does not answer: {error}. It may have ended.") from error
        return cls(client, cluster, files)

    def warm(self, wanted: int, *, timeout_s: float, beside: Collection[int] = ()) -> None:
        """Wait for engines and let new ones import what training needs.

        Args:
            wanted: number of engines to wait for.
            timeout_s: seconds to wait.
            beside: ids that do not count.

        Raises:
            ClusterError: too few started, or one cannot import the lab.
        """
        import ipyparallel as ipp

        # not wait_for_engines, which fails where an engine that was killed earlier is reported as ended meanwhile
        deadline = time.monotonic() + timeout_s
        while len(found := set(self.client.ids) - set(beside)) < wanted:
            if self._started is not None and (statuses := self._started.ended()):
                how = ", ".join(dict.fromkeys(statuses))
                raise ClusterError(f"{len(statuses)} of {wanted} engines ended as they started ({how}).")
            if time.monotonic() > deadline:
                raise ClusterError(f"{len(found)} of {wanted} engines were ready in time.")
            time.sleep(0.02)
        try:
            self._learn()
            new = [number for number in self.client.ids if number not in self._warm]
            if not new:
                return
            view = self.client[new]
            facts = view.apply_async(warm_up)
            for number, fact in zip(new, facts.get(timeout=timeout_s), strict=True):
                self._warm[number] = Engine(number, **fact)
            view.apply_async(rehearse)  # an error in it recurs in the first run, and is reported there
            write_json(self._files.engines_file, [asdict(engine) for engine in self._warm.values()])
        except (TimeoutError, ipp.error.TimeoutError) as error:
            raise ClusterError(f"engines {new} did not import what training needs within {timeout_s:.1f} s.") from error
        except (ipp.error.RemoteError, ipp.error.EngineError) as error:
            raise ClusterError(
                f"an engine cannot start: {error}. Engines need dtdg_lab installed in their own Python."
            ) from error

    @property
    def controller_is_gone(self) -> bool:
        """Whether the controller has ended, as of the last second."""
        if not self._gone and time.monotonic() - self._probed_s > PROBE_EVERY_S:
            self._gone = session_files.controller_is_gone(self._files.connection_file)
            self._probed_s = time.monotonic()
        return self._gone

    def alive(self) -> list[Engine]:
        """Engines that can train, in rank order."""
        known = set(self.client.ids)
        if known - set(self._warm):
            self._learn()  # another kernel may have started some
        return [engine for number, engine in sorted(self._warm.items()) if number in known and _runs(engine)]

    def start_more(self, count: int, *, timeout_s: float) -> None:
        """Start engines in place of dead ones; for an external cluster, detect engines that were started there.

        Raises:
            ClusterError: the cluster was started elsewhere, and engines are still missing.
        """
        if self._cluster is not None:
            before = self.client.ids
            self._started = self._cluster.engines[self._cluster.start_engines_sync(n=count)]
            try:
                self.warm(count, timeout_s=timeout_s, beside=before)
            except ClusterError as error:
                raise ClusterError(f"{error} {self._files.log_words()}") from error
            return
        wanted = count + len(self.alive())
        if self.client.ids:
            self.warm(1, timeout_s=timeout_s)
        found = len(self.alive())
        if found < wanted:
            raise ClusterError(
                f"{found} of {wanted} engines are alive, and this session did not start the cluster: start the others "
                f"there (ipcluster engines -n {wanted - found} ...), then call session.repair() again."
                + (f" Runs of up to {found} ranks can be started now." if found else "")
            )

    def kill(self, pids: list[int]) -> None:
        """Kill engine processes of this machine by process number, and wait until they are gone."""
        killed = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
        for process in killed:
            process.kill()
        session_files.left_after(killed, KILLED_S)

    def close(self) -> None:
        """Disconnect without ending the cluster."""
        self.client.close(linger=0)


def _runs(engine: Engine) -> bool:
    if engine.host != host_id():
        return True  # for other machines, the controller's heartbeat counts
    try:
        return bool(psutil.Process(engine.pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


# Sending the ranks of a run to engines.


def places_of(ranks: int, engines: Sequence[int] | None) -> tuple[int, ...]:
    """The indices of a run's engines in a session; empty for the first ones.

    Raises:
        ConfigError: they are not one different engine for each rank.
    """
    if engines is None:
        return ()
    if len(engines) != ranks or len(set(engines)) < ranks or min(engines) < 0:
        raise ConfigError(
            f"engines={tuple(engines)} for ranks={ranks}: give one distinct engine, numbered from 0, for each of "
            "the ranks."
        )
    return tuple(engines)


def trouble(answers: Sequence[Any]) -> str:
    """The error of an engine that could not run its rank; empty otherwise."""
    for rank, answer in enumerate(answers):
        if answer.ready():
            error = answer.exception()
            if error is not None:
                return f"rank {rank} failed: {error}"
    return ""


# Session: an ipyparallel cluster for training, started or attached to, and its kernel interface.


HEARTBEAT_S = 5.0
LEFT_S = 10.0  # for engines to exit after a signal
REPLACED_S = 60.0  # for new ones to start
MOST_SILENT_S = 1200.0  # below the time after which collectives end by themselves


class Session:
    """Engines that train, and the runs they trained.

    A session with a ``name`` is found again by that name: a cell run twice, or a new kernel, gets the same
    engines and their active run; if its cluster has ended, new engines and its runs. Without a name every call starts
    a new cluster. Engines outlive the kernel while a run is active; idle ones end ``idle_s`` seconds after the last
    kernel's heartbeat.

    Args:
        ranks: engines to start, the maximum R of its runs; by default one per GPU, or two without GPUs.
        name: identifies the session.
        runs_dir: folder for runs; on a disk that all engines share.
        idle_s: seconds without a kernel or a run after which the cluster ends by itself.
        silent_s: seconds that a run waits for a rank whose process exists but gives no sign of life, as after SIGSTOP.
        timeout_s: seconds to wait for engines.

    Raises:
        ClusterError: the engines cannot be started, or a session of this name has another number of ranks and a run
            active.
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
        wanted = (gpu_count() or 2) if ranks is None else ranks
        if not isinstance(wanted, int) or wanted < 1:
            raise ClusterError(f"ranks={ranks!r}: a session needs a whole number of engines, at least 1.")
        if not 1.0 <= silent_s <= MOST_SILENT_S:
            raise ClusterError(f"silent_s={silent_s:g}: allowed are 1 to {MOST_SILENT_S:g} seconds.")
        root = as_path(runs_dir, "runs_dir", RunStoreError).resolve()
        writable_folder(state_root(), STATE, ClusterError)
        undo_left_over(state_root() / NETEM)  # left by a run that was killed
        found, alive = session_files.find_session(name, wanted) if name else (None, False)
        if not alive:
            writable_folder(root, "runs_dir", RunStoreError)
        if found is None:
            files = session_files.new_session_files(name, wanted, root, idle_s, silent_s)
        else:
            files = found if alive else session_files.renewed(found, wanted, root, idle_s, silent_s)
        self._setup(files)
        try:
            if not alive:
                session_files.start_keeper(files)
                self._engines = Engines.start(files, timeout_s=timeout_s)
            else:
                self._engines = Engines.connect(files, timeout_s=timeout_s)
                self._replace_missing(timeout_s)
        except BaseException as error:
            self._stop_heartbeat.set()
            if alive:
                raise
            words = session_files.give_up(files, is_new=found is None)
            if not isinstance(error, ClusterError):
                raise
            raise ClusterError(f"{error} {words} Try fewer ranks, or end other sessions: dtdg-lab sessions.") from error

    @classmethod
    def attach(
        cls, which: str | Path | None = None, *, runs_dir: str | Path = "runs", timeout_s: float = 30.0
    ) -> Session:
        """Use a running cluster.

        Args:
            which: id or name of a session of the lab; or the connection file (``ipcontroller-client.json``) or the
                profile of any ipyparallel cluster, such as one started by ``ipcluster start`` over SSH or Slurm. The
                session of the lab used last by default.
            runs_dir: folder for runs on a foreign cluster, on a disk that all engines share.
            timeout_s: seconds to wait for the controller.

        Raises:
            ClusterError: nothing is found, or there is no answer.
        """
        session = cls.__new__(cls)
        known_here = session_files.all_sessions()
        living = [files for files in known_here if not files.owned or files.processes()]
        ours = {key: files for files in living for key in (files.id, files.name) if key}
        if which is None and not ours:
            raise ClusterError("no session of the lab is running here. Start one: Session(ranks=2).")
        known = min(living, key=SessionFiles.idle_for_s) if which is None else ours.get(str(which))
        ended = [files for files in known_here if known is None and str(which) in (files.id, files.name)]
        if ended:
            raise ClusterError(session_files.ended_words(ended[-1]))
        files = known or session_files.foreign_session_files(
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
            if known is None:
                files.remove()
            raise
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
        alive = sum(self.engines().values()) if self.ready else 0
        return f"<Session {self.name}: {alive} of {self.ranks} engines alive>"

    # facts

    @property
    def name(self) -> str:
        """The session's name, or its id where it has none."""
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
        """Whether runs can be started: not closed, the controller and all engines alive."""
        return not self._closed and not self.problem and all(self.engines().values())

    @property
    def problem(self) -> str:
        """What keeps runs from being started although engines are alive, and what to do; empty if nothing does."""
        gone = not self._closed and self._engines.controller_is_gone
        return session_files.gone_words(self._files) if gone else ""

    def engines(self) -> dict[int, bool]:
        """Rank -> whether its engine is alive."""
        alive = 0 if self._closed else len(self._engines.alive())
        return {rank: rank < alive for rank in range(self.ranks)}

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
            handle = self._handles[path] = Run(self, RunDirectory.open(path), before=handle)
        return handle

    # actions

    def train(self, config: RunConfig, *, engines: Sequence[int] | None = None) -> Run:
        """Start a run and return its handle at once.

        Args:
            config: the settings.
            engines: indices of the session's engines, from 0; rank r trains on the r-th of them. Runs on different
                engines may be active at once. By default the first ones, which then must be the only ones in
                use.

        Raises:
            ControlError: a run is active, on any of those engines if they are given.
            ClusterError: there are fewer engines alive than the config has ranks.
            ConfigError: engines are not one for each rank.
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
        config: RunConfig | None = None,
    ) -> Run:
        """As :meth:`train`, for the run whose folder ``make`` creates in the folder ``root``: a fork, or a replay.

        Args:
            ranks: of the run.
            make: called with ``root`` once its engines are free.
            runs_dir: in place of the session's folder of runs.
            engines: as in :meth:`train`.
            config: of the run; without it, all registered code must be fit to be sent to engines.

        Raises:
            ClusterError: registered code that the run uses cannot be sent to engines, or as :meth:`train`.
        """
        with self._lock:
            places = places_of(ranks, engines)
            self._check_free(ranks, places)
            root = writable_folder(runs_dir or self._files.runs_dir, "runs_dir", RunStoreError)
            registrations = pack_registrations(*([config] if config else []))
            directory = make(root=root.resolve())
            self._files.add_run(directory.path, places)
            return self._launch(directory, ranks, attempt=1, places=places, registrations=registrations)

    def halves(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Indices of the first and of the second half of the engines, of the same size.

        Raises:
            ClusterError: there is only one engine.
        """
        size = self.ranks // 2
        if not size:
            raise ClusterError("a single engine cannot be split into halves: create a Session with at least 2 ranks.")
        return tuple(range(size)), tuple(range(size, 2 * size))

    def resume(self, run: Run | StoredRun | str | Path, **changes: Any) -> Run:
        """Resume a run from its last checkpoint, as a new attempt; also a run of a session that has ended.

        A run that a signal interrupted before its first checkpoint starts from the beginning, and engines that left at
        the signal are replaced.

        Args:
            run: stopped, failed or interrupted: a handle of this or another session, a stored run, or its folder.
            changes: live settings to change then, such as a smaller ``learning_rate``.

        Raises:
            ControlError: the run is still active, here or in another session.
            ClusterError: there are fewer engines alive than the run has ranks.
            ConfigError: a change is not allowed, or the run uses code that is not registered in this process, or that
                has changed.
            RunStoreError: there is no run, or no checkpoint.
        """
        from dtdg_lab.cluster.worker import check_request

        with self._lock:
            path = as_path(run if isinstance(run, str | Path) else run.path, "run", RunStoreError).resolve()
            directory = RunDirectory.open(path)
            check_resumable(directory)
            status, ours = directory.status(), path in self._files.runs()
            if status["state"] not in ENDED and not ours:
                raise ControlError(
                    f"run {directory.id} is {status['state']} in another session: it needs no resuming. "
                    "Session.attach() reaches that session."
                )
            config, signalled = directory.config(), directory.recorded_status()["state"] == "interrupted"
            places = self._files.engines_of(path)
            if signalled and not self.under_way:
                self._await_leaving()
                if self._files.owned and not self.problem:
                    self._replace_missing(REPLACED_S)
            self._check_free(config.ranks, places)
            if status["state"] not in ENDED:
                raise ControlError(
                    f"run {directory.id} is {status['state']}: it needs no resuming. session.runs has its handle."
                )
            kept = directory.checkpoint_file.is_file()
            if not kept and not signalled:
                raise RunStoreError(
                    f"run {directory.id} has no checkpoint yet: start it again with session.train(run.config)."
                )
            before = read_kept(directory.checkpoint_file).config if kept else config
            check_registered(before)
            check_request(before, {"set": changes})
            after = before.replace(**changes)
            remedy = "train with this code in a new run: lab.runs.fork(...), or session.train(run.config)"
            check_same_code(f"run {directory.id}", directory.path, after, remedy=remedy)
            registrations = pack_registrations(after)
            add_extensions(directory.path, after)
            if not ours:
                self._files.add_run(path)
            attempt = status["attempt"] + 1
            directory.write_status("starting", attempt=attempt)
            start = {"attempt": attempt, "changes": changes, "places": places, "registrations": registrations}
            return self._launch(directory, config.ranks, **start)

    @property
    def under_way(self) -> list[Run]:
        """Runs that have not ended, oldest first: several only if they have separate engines."""
        with self._lock:
            found = [self._handle(path) for path in self._files.runs() if is_under_way(path)]
            return [run for run in found if run.status not in ENDED]

    def _await_leaving(self) -> None:
        """Wait for engines that were asked to leave: until they have, they look alive."""
        deadline = time.monotonic() + LEFT_S
        for path in self._files.runs():
            try:
                run = RunDirectory.open(path)
                status = run.recorded_status()
            except LabError:  # a folder that is damaged holds no engine
                continue
            while status["state"] == "interrupted" and time.monotonic() < deadline:
                notes = read_notes(run.live, status["attempt"]).values()
                if all(note.host != host_id() or is_dead(note) for note in notes):
                    break
                time.sleep(0.05)

    def _check_free(self, ranks: int, places: tuple[int, ...] = ()) -> None:
        if self._closed:
            raise ControlError("the session is closed: create a new one.")
        self._await_leaving()
        busy = self.under_way
        for run in busy:
            taken = self._files.engines_of(run.path) or tuple(range(run.config.ranks))
            if places and not set(places) & set(taken):
                continue
            others = "" if not places else f" on engines {', '.join(map(str, taken))}"
            raise ControlError(f"run {run.id} is {run.status}{others}: stop it first (run.stop()), or wait for it.")
        if self.problem:
            raise ClusterError(self.problem)
        alive = len(self._engines.alive())
        if places and busy and alive < self.ranks:  # later engines have moved up, and may be in use
            raise ClusterError(
                f"{alive} of {self.ranks} engines are alive, and engines are numbered among these: wait for run "
                f"{busy[0].id}, then call session.repair()."
            )
        if places and max(places) >= alive:
            raise ClusterError(
                f"engines {', '.join(map(str, places))} are requested, but {alive} of {self.ranks} are alive, numbered "
                "from 0. " + ("Call session.repair()." if max(places) < self.ranks else "Create a larger session.")
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
        registrations: tuple[SentRegistration, ...],
        changes: Mapping[str, Any] | None = None,
        places: tuple[int, ...] = (),
    ) -> Run:
        alive = self._engines.alive()
        engines = [alive[place] for place in places] or alive[:ranks]
        beside = alive if places else engines  # others may train at the same time: they share processors and GPUs
        here = {engine.host for engine in engines} == {host_id()}
        device, sharing = directory.config().device, Counter(engine.host for engine in beside)
        if device == "auto":  # a GPU for each rank of every machine, or none: one backend for the whole group
            device = "cuda" if all(engine.gpus >= sharing[engine.host] for engine in engines) else "cpu"
        answers = []
        for rank, engine in enumerate(engines):
            of_machine = [other for other in beside if other.host == engine.host]
            task = RankTask(
                run_dir=str(directory.path),
                rank=rank,
                size=len(engines),
                attempt=attempt,
                key=self.key,
                local_rank=of_machine.index(engine),
                local_size=len(of_machine),
                device=device,
                changes=tuple((changes or {}).items()),
                busy_file=str(self._files.busy_file) if self._files.owned else "",
                registrations=registrations,
                silent_s=self.silent_s,
                host="127.0.0.1" if here else "",
            )
            answers.append(self._engines.client[engine.id].apply_async(run_rank, task))

        def start_trouble() -> str:
            begun = directory.recorded_status()["state"] != "starting" or read_notes(directory.live, attempt)
            return trouble(answers) or ("" if begun else self.problem)

        run = Run(self, directory, trouble=start_trouble, before=self._handles.get(directory.path))
        self._handles[directory.path] = run
        return run

    def repair(self, *, timeout_s: float = 60.0) -> None:
        """Start engines in place of dead ones; the others stay. If the controller is gone, start a new cluster.

        Engines of an external cluster are started there; this call detects the new ones.

        Raises:
            ControlError: a run is active.
            ClusterError: they cannot be started.
        """
        with self._lock:
            for run in self.under_way:
                raise ControlError(f"run {run.id} is {run.status}: engines are replaced between runs.")
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
        if not session_files.has_keeper(self._files):
            session_files.start_keeper(self._files)
        self._engines = Engines.start(self._files, timeout_s=timeout_s)

    def _replace_missing(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while (missing := self.ranks - len(self._engines.alive())) > 0:  # again where others end meanwhile
            left_s = deadline - time.monotonic()
            if left_s < 0:
                raise ClusterError(
                    f"{self.ranks - missing} of {self.ranks} engines are ready after {timeout_s:g} s. "
                    "Close the session and create a new one."
                )
            self._engines.start_more(missing, timeout_s=left_s)

    def detach(self) -> None:
        """Disconnect from the cluster without ending it: a run continues, and an idle cluster ends by itself later."""
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
    """Whether a run has not ended, by its folder; an unreadable one does not count as active."""
    try:
        return RunDirectory.open(path).status()["state"] not in ENDED
    except LabError:
        return False


def _beat(files: SessionFiles, every_s: float, stop: threading.Event) -> None:
    while not stop.wait(every_s):
        if files.folder.is_dir():
            files.heartbeat_file.touch()
