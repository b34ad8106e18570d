"""The engines of a session as ranks: start, discovery, health, and replacement."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from dtdg_lab.cluster.liveness import host_id
from dtdg_lab.cluster.session_files import SessionFiles
from dtdg_lab.cluster.worker import RankTask, rehearse, run_rank, warm_up
from dtdg_lab.core.catalogue import REGISTERED
from dtdg_lab.core.errors import ClusterError, ConfigError
from dtdg_lab.runs.directory import RunDirectory, write_json

HEARTBEAT_MS = 500  # the default of 3000 delays the cluster's start from 4 s to 10 s


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
        known_file: file with facts about the engines for the next kernel.
    """

    def __init__(self, client: Any, cluster: Any, known_file: Path) -> None:
        self.client, self._cluster, self._known_file = client, cluster, known_file
        self._warm: dict[int, Engine] = {}
        self._learn()

    def _learn(self) -> None:
        """Read other kernels' facts about the engines."""
        known = json.loads(self._known_file.read_text()) if self._known_file.is_file() else []
        self._warm |= {fact["id"]: Engine(**fact) for fact in known}

    @classmethod
    def start(cls, files: SessionFiles, *, timeout_s: float) -> Engines:
        """Start a controller and engines that outlive this process.

        Raises:
            ClusterError: they did not start in time.
        """
        import ipyparallel as ipp

        cluster = ipp.Cluster(
            n=files.ranks,
            profile_dir=str(files.folder / "profile"),
            cluster_id="",
            controller_args=[f"--HeartMonitor.period={HEARTBEAT_MS}"],
            shutdown_atexit=False,
            log_level=40,
            engine_timeout=timeout_s,
            cluster_file=files.cluster_file,
        )
        try:
            client = cluster.start_and_connect_sync(n=files.ranks, activate=False)
        except (TimeoutError, RuntimeError, OSError) as error:
            raise ClusterError(
                f"{files.ranks} engines did not start within {timeout_s:g} s: {error}. Logs are in {files.folder}; "
                "try fewer ranks, or end other sessions: python -m dtdg_lab sessions."
            ) from error
        engines = cls(client, cluster, files.engines_file)
        engines.warm(files.ranks, timeout_s=timeout_s)
        return engines

    @classmethod
    def connect(cls, files: SessionFiles, *, timeout_s: float) -> Engines:
        """Reconnect to a running cluster.

        Raises:
            ClusterError: its controller does not answer.
        """
        import ipyparallel as ipp

        cluster = None
        if files.cluster_file and Path(files.cluster_file).is_file():
            cluster = ipp.Cluster.from_file(files.cluster_file, shutdown_atexit=False, log_level=40)
        client = connect_client(files.connection_file, timeout_s=timeout_s)
        return cls(client, cluster, files.engines_file)

    def warm(self, wanted: int, *, timeout_s: float) -> None:
        """Wait for engines and let new ones import what training needs.

        Raises:
            ClusterError: too few started, or one cannot import the lab.
        """
        import ipyparallel as ipp

        try:
            self.client.wait_for_engines(wanted, timeout=timeout_s, interactive=False)
            self._learn()
            new = [number for number in self.client.ids if number not in self._warm]
            if not new:
                return
            view = self.client[new]
            facts = view.apply_async(warm_up)
            for number, fact in zip(new, facts.get(timeout=timeout_s), strict=True):
                self._warm[number] = Engine(number, **fact)
            view.apply_async(rehearse)  # an error in it recurs in the first run, and is reported there
            write_json(self._known_file, [asdict(engine) for engine in self._warm.values()])
        except (TimeoutError, ipp.error.TimeoutError) as error:
            raise ClusterError(
                f"{len(self.client.ids)} of {wanted} engines are ready after {timeout_s:g} s. Look at its logs."
            ) from error
        except ipp.error.RemoteError as error:
            raise ClusterError(
                f"an engine cannot start: {error}. Engines need dtdg_lab installed in their own Python."
            ) from error

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
            self._cluster.start_engines_sync(n=count)
            return
        wanted = count + len(self.alive())
        if self.client.ids:
            self.warm(1, timeout_s=timeout_s)
        found = len(self.alive())
        if found < wanted:
            raise ClusterError(
                f"{found} of {wanted} engines are alive, and this session did not start the cluster: start the "
                "others there "
                f"(ipcluster engines -n {wanted - found} ...), then call session.repair() again."
                + (f" Runs of up to {found} ranks can be started now." if found else "")
            )

    def kill(self, pids: list[int]) -> None:
        """Kill engine processes of this machine by process number."""
        for pid in pids:
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Disconnect without ending the cluster."""
        self.client.close(linger=0)


def connect_client(connection_file: str, *, timeout_s: float) -> Any:
    """A client of the controller whose connection file is given.

    Raises:
        ClusterError: the file is missing or there is no answer.
    """
    import ipyparallel as ipp

    if not Path(connection_file).is_file():
        raise ClusterError(f"there is no connection file {connection_file}: the cluster has ended, or runs elsewhere.")
    try:
        return ipp.Client(connection_file, timeout=timeout_s)
    except (TimeoutError, ipp.error.TimeoutError, OSError) as error:
        raise ClusterError(
            f"the controller of {connection_file} does not answer: {error}. It may have ended."
        ) from error


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


def start_ranks(
    directory: RunDirectory,
    files: SessionFiles,
    client: Any,
    engines: Sequence[Engine],
    *,
    beside: Sequence[Engine],
    attempt: int,
    changes: tuple[tuple[str, Any], ...],
) -> list[Any]:
    """Start a rank of a run on each of the engines; returns their asynchronous results, in rank order.

    Args:
        directory: of the run.
        files: of its session.
        client: of ipyparallel.
        engines: of the run.
        beside: these, and others that may train at the same time: they share processors and GPUs.
        attempt: from 1; later ones resume from the checkpoint.
        changes: live settings that differ from the checkpoint's.
    """
    here = {engine.host for engine in engines} == {host_id()}
    device = _device_for_all(directory.config().device, engines, beside)
    answers = []
    for rank, engine in enumerate(engines):
        of_machine = [other for other in beside if other.host == engine.host]
        task = RankTask(
            run_dir=str(directory.path),
            rank=rank,
            size=len(engines),
            attempt=attempt,
            key=files.key,
            local_rank=of_machine.index(engine),
            local_size=len(of_machine),
            device=device,
            changes=changes,
            busy_file=str(files.busy_file) if files.owned else "",
            families=tuple(REGISTERED),
            host="127.0.0.1" if here else "",
        )
        answers.append(client[engine.id].apply_async(run_rank, task))
    return answers


def _device_for_all(wanted: str, engines: Sequence[Engine], beside: Sequence[Engine]) -> str:
    """``cuda`` if every machine has a GPU for each of its ranks, else ``cpu``: one backend for the whole group."""
    if wanted != "auto":
        return wanted
    sharing = Counter(engine.host for engine in beside)
    return "cuda" if all(engine.gpus >= sharing[engine.host] for engine in engines) else "cpu"


def trouble(answers: Sequence[Any]) -> str:
    """The error of an engine that could not run its rank; empty otherwise."""
    for rank, answer in enumerate(answers):
        if answer.ready():
            error = answer.exception()
            if error is not None:
                return f"rank {rank} failed: {error}"
    return ""
