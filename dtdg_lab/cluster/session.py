"""Session: an ipyparallel cluster that trains, started or attached to, and what a kernel asks of it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from dtdg_lab.cluster.engine import Task, run_rank
from dtdg_lab.cluster.engines import Engine, Engines
from dtdg_lab.cluster.keeper import start_keeper
from dtdg_lab.cluster.liveness import host_id, is_dead, read_notes
from dtdg_lab.cluster.lookup import find_session, foreign_session_files, new_session_files
from dtdg_lab.cluster.run import Run
from dtdg_lab.cluster.session_files import SessionFiles, all_sessions, end_processes
from dtdg_lab.congestion.netem import undo_left_over
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ClusterError, ControlError, LabError, RunStoreError
from dtdg_lab.core.paths import NETEM, state_root
from dtdg_lab.runs.directory import ENDED, RunDirectory

HEARTBEAT_S = 5.0


class Session:
    """Engines that train, and the runs they trained.

    A session made with a ``name`` is found again by that name: a cell run twice, or a new kernel, gets the same
    engines and the run that is under way on them. Without a name every call starts a cluster of its own. Engines
    outlive the kernel while a run is under way; idle ones end ``idle_s`` seconds after the last kernel's heartbeat.

    Args:
        ranks: engines to start, R at most in its runs; one per GPU, or two without GPUs, where not given.
        name: what to find the session by.
        runs_dir: folder that holds runs; on a disk that all engines share.
        idle_s: seconds without a kernel or a run after which the cluster ends by itself.
        timeout_s: seconds to wait for engines.

    Raises:
        ClusterError: the engines cannot be started, or a session of this name has another number of ranks and a run
            under way.
    """

    def __init__(
        self,
        ranks: int | None = None,
        *,
        name: str = "",
        runs_dir: str | Path = "runs",
        idle_s: float = 120.0,
        timeout_s: float = 60.0,
    ) -> None:
        wanted = default_ranks() if ranks is None else ranks
        if wanted < 1:
            raise ClusterError(f"ranks={ranks}: a session needs at least one engine.")
        undo_left_over(state_root() / NETEM)  # by a run that was killed
        found = find_session(name, wanted) if name else None
        files = found or new_session_files(name, wanted, Path(runs_dir).resolve(), idle_s)
        self._setup(files)
        try:
            if found is None:
                start_keeper(files)
                self._engines = Engines.start(files, timeout_s=timeout_s)
            else:
                self._engines = Engines.connect(files, timeout_s=timeout_s)
                self._replace_missing(timeout_s)
        except BaseException:
            self._stop_heartbeat.set()
            if found is None:
                end_processes(files)
                files.remove()
            raise

    @classmethod
    def attach(
        cls, which: str | Path | None = None, *, runs_dir: str | Path = "runs", timeout_s: float = 30.0
    ) -> Session:
        """Use a cluster that is running already.

        Args:
            which: id or name of a session of the lab; or the connection file (``ipcontroller-client.json``) or the
                profile of any ipyparallel cluster, such as one started by ``ipcluster start`` over SSH or Slurm. The
                session of the lab used last where not given.
            runs_dir: folder for runs on a foreign cluster, on a disk that all engines share.
            timeout_s: seconds to wait for the controller.

        Raises:
            ClusterError: nothing is found, or nobody answers.
        """
        session = cls.__new__(cls)
        living = [files for files in all_sessions() if not files.owned or files.processes()]
        ours = {key: files for files in living for key in (files.id, files.name) if key}
        if which is None and not ours:
            raise ClusterError("no session of the lab is running here. Start one: Session(ranks=2).")
        known = min(living, key=SessionFiles.idle_for_s) if which is None else ours.get(str(which))
        files = known or foreign_session_files(str(which), Path(runs_dir).resolve())
        session._setup(files)
        try:
            session._engines = Engines.connect(files, timeout_s=timeout_s)
            if not session._engines.client.ids:
                raise ClusterError(f"the cluster {which} has no engines. Start some: ipcluster engines -n 2.")
            session._engines.warm(1, timeout_s=timeout_s)
            if not files.owned:
                session._files = files.with_ranks(len(session._engines.alive()))
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

    # what it is

    @property
    def name(self) -> str:
        """The session's name, or its id where it has none."""
        return self._files.name or self._files.id

    @property
    def ranks(self) -> int:
        """Engines the session is meant to have: the most ranks of its runs."""
        return self._files.ranks

    @property
    def key(self) -> str:
        """The key that signs telemetry and control; keep it to yourself."""
        return self._files.key

    @property
    def ready(self) -> bool:
        """Whether runs can be started: not closed, and all engines alive."""
        return not self._closed and all(self.engines().values())

    def engines(self) -> dict[int, bool]:
        """Rank -> whether an engine is alive for it."""
        alive = 0 if self._closed else len(self._engines.alive())
        return {rank: rank < alive for rank in range(self.ranks)}

    @property
    def runs(self) -> list[Run]:
        """Runs started in this session by any kernel, oldest first."""
        with self._lock:
            return [self._handle(path) for path in self._files.runs()]

    @property
    def current(self) -> Run | None:
        """The newest run, under way or over."""
        with self._lock:
            paths = self._files.runs()
            return self._handle(paths[-1]) if paths else None

    def _handle(self, path: Path) -> Run:
        handle = self._handles.get(path)
        if handle is None or handle.is_outdated:
            handle = self._handles[path] = Run(self, RunDirectory.open(path))
        return handle

    # what it does

    def train(self, config: RunConfig) -> Run:
        """Start a run and return its handle at once.

        Raises:
            ControlError: a run is under way.
            ClusterError: there are fewer engines alive than the config has ranks.
            RunStoreError: the run's folder cannot be made.
        """
        with self._lock:
            self._check_free(config.ranks)
            directory = RunDirectory.create(config, root=self._files.runs_dir)
            self._files.add_run(directory.path)
            return self._launch(directory, config.ranks, attempt=1)

    def resume(self, run: Run, changes: Mapping[str, Any]) -> Run:
        """Go on with a run from its checkpoint (see :meth:`Run.resume`)."""
        from dtdg_lab.cluster.engine import check_request

        with self._lock:
            directory = RunDirectory.open(run.path)
            check_request(run.config, {"set": dict(changes)})
            self._check_free(run.config.ranks)
            status = directory.status()
            if status["state"] not in ENDED:
                raise ControlError(
                    f"run {run.id} is {status['state']}: it needs no resuming. session.runs has its handle."
                )
            if not directory.checkpoint_file.is_file():
                raise RunStoreError(
                    f"run {run.id} has no checkpoint yet: start it anew with session.train(run.config)."
                )
            attempt = status["attempt"] + 1
            directory.write_status("starting", attempt=attempt)
            return self._launch(directory, run.config.ranks, attempt=attempt, changes=changes)

    def _check_free(self, ranks: int) -> None:
        if self._closed:
            raise ControlError("the session is closed: make a new one.")
        current = self.current
        if current is not None and current.status not in ENDED:
            raise ControlError(f"run {current.id} is {current.status}: stop it first (run.stop()), or wait for it.")
        alive = len(self._engines.alive())
        if ranks > alive:
            raise ClusterError(
                f"the run needs {ranks} ranks, and {alive} of {self.ranks} engines are alive. "
                + ("Call session.repair()." if ranks <= self.ranks else f"Make a Session(ranks={ranks}).")
            )

    def _launch(
        self, directory: RunDirectory, ranks: int, *, attempt: int, changes: Mapping[str, Any] | None = None
    ) -> Run:
        engines = self._engines.alive()[:ranks]
        here = {engine.host for engine in engines} == {host_id()}
        device = _device_for_all(directory.config().device, engines)
        answers = []
        for rank, engine in enumerate(engines):
            beside = [other for other in engines if other.host == engine.host]
            task = Task(
                run_dir=str(directory.path), rank=rank, size=ranks, attempt=attempt, key=self.key,
                local_rank=beside.index(engine), local_size=len(beside), device=device, resume=attempt > 1,
                changes=tuple((changes or {}).items()),
                busy_file=str(self._files.busy_file) if self._files.owned else "",
                host="127.0.0.1" if here else "",
            )  # fmt: skip
            answers.append(self._engines.client[engine.id].apply_async(run_rank, task))
        run = Run(self, directory, trouble=lambda: _trouble(answers))
        self._handles[directory.path] = run
        return run

    def repair(self, *, timeout_s: float = 60.0) -> None:
        """Start engines in place of those that died; the others stay.

        Raises:
            ControlError: a run is under way.
            ClusterError: they cannot be started.
        """
        with self._lock:
            current = self.current
            if current is not None and current.status not in ENDED:
                raise ControlError(f"run {current.id} is {current.status}: engines are replaced between runs.")
            if current is not None:
                stuck = read_notes(current.path / "live", current.attempt).values()
                self._engines.kill([note.pid for note in stuck if note.host == host_id() and not is_dead(note)])
            self._replace_missing(timeout_s)

    def _replace_missing(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        missing = self.ranks - len(self._engines.alive())
        if missing > 0:
            self._engines.start_more(missing)
        while len(self._engines.alive()) < self.ranks:
            self._engines.warm(1, timeout_s=timeout_s)
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"{len(self._engines.alive())} of {self.ranks} engines are ready after {timeout_s:g} s. "
                    "Close the session and make a new one."
                )
            time.sleep(0.1)

    def detach(self) -> None:
        """Let go of the cluster without ending it: a run goes on, and an idle cluster ends by itself later."""
        if not self._closed:
            self._closed = True
            self._stop_heartbeat.set()
            for run in self._handles.values():
                run.close()
            self._engines.close()

    def close(self) -> None:
        """Stop a run under way, end the engines of an owned cluster, and forget the session; again is nothing."""
        if self._closed:
            return
        current = self.current
        if current is not None and current.status not in ENDED:
            try:
                current.stop()
                current.wait(10.0)
            except (LabError, TimeoutError) as error:
                current.abandon(f"the session was closed and the run did not stop: {error}")
        self.detach()
        if self._files.owned:
            end_processes(self._files)
        self._files.remove()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _device_for_all(wanted: str, engines: list[Engine]) -> str:
    """``cuda`` where every machine has a GPU for each of its ranks, else ``cpu``: one backend for the whole group."""
    if wanted != "auto":
        return wanted
    sharing = Counter(engine.host for engine in engines)
    return "cuda" if all(engine.gpus >= sharing[engine.host] for engine in engines) else "cpu"


def default_ranks() -> int:
    """One rank per GPU, or two on machines without."""
    from dtdg_lab.runs.environment import gpu_count

    return gpu_count() or 2


def _beat(files: SessionFiles, every_s: float, stop: threading.Event) -> None:
    while not stop.wait(every_s):
        if files.folder.is_dir():
            files.heartbeat_file.touch()


def _trouble(answers: list[Any]) -> str:
    """Why an engine could not run its rank, where one came back with an error; empty otherwise."""
    for rank, answer in enumerate(answers):
        if answer.ready():
            error = answer.exception()
            if error is not None:
                return f"rank {rank} failed: {error}"
    return ""
