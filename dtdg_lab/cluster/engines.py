"""The engines of a session: starting, finding, checking and replacing them."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from dtdg_lab.cluster import session_files
from dtdg_lab.cluster.devices import DeviceChoice, DeviceReport, Gpu, choose_devices, free_instances
from dtdg_lab.cluster.session_files import SessionFiles
from dtdg_lab.cluster.worker import rehearse, warm_up
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ClusterError, ConfigError
from dtdg_lab.runs.json_files import write_json
from dtdg_lab.runs.liveness import host_id

if TYPE_CHECKING:
    pass


DROPPED_S = 30.0


PROBE_EVERY_S = 1.0


KILLED_S = 10.0  # time for killed processes to disappear, which takes longer for large ones


HEARTBEAT_MS = 200  # the default of 3000 delays the cluster's start by 6 s


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine: its number at the controller (never reused, so not the rank), process, and devices."""

    id: int
    pid: int
    report: DeviceReport

    @property
    def host(self) -> str:
        """Its machine."""
        return self.report.host

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> Engine:
        """Return the engine of its ``dataclasses.asdict``."""
        return cls(facts["id"], facts["pid"], DeviceReport.from_json(facts["report"]))


@dataclass(frozen=True, slots=True)
class EngineState:
    """An engine as its session sees it.

    Attributes:
        is_alive: True if it can train.
        device: torch device of its own, such as ``cuda:0`` in its process or ``cpu``; empty if it is not alive.
        name: model of the GPU, or of the processor.
        memory_bytes: memory of the GPU, or of the machine.
        host: its machine.
        problem: why it can use no GPU, although its machine has some, or torch's warnings about its GPUs.
    """

    is_alive: bool
    device: str = ""
    name: str = ""
    memory_bytes: int | None = None
    host: str = ""
    problem: str = ""

    @classmethod
    def of(cls, report: DeviceReport, gpu: Gpu | None) -> EngineState:
        """Return the state of an engine that is alive, with its own GPU if it has one."""
        if gpu is None:
            problem = "" if report.gpus else report.problem
            return cls(True, "cpu", report.cpu, report.memory_bytes, report.host, problem)
        return cls(True, f"cuda:{gpu.index}", gpu.name, gpu.memory_bytes, report.host, report.problem)


def warn_of_unused_gpus(engines: Mapping[int, EngineState]) -> None:
    """Warn if a machine has GPUs that torch cannot use, as with an old driver, or that torch warns about."""
    ranks_by_problem: dict[tuple[str, bool], list[str]] = {}
    for rank, engine in engines.items():
        if engine.problem:
            ranks_by_problem.setdefault((engine.problem, engine.device == "cpu"), []).append(str(rank))
    for (problem, is_unused), ranks in ranks_by_problem.items():
        trouble_text = "use no GPU" if is_unused else "may fail on their GPUs"
        warnings.warn(f"Engines {', '.join(ranks)} {trouble_text}: {problem}", stacklevel=3)


class Engines:
    """Engines of one cluster, in rank order.

    Args:
        client: an ipyparallel client.
        cluster: the ipyparallel cluster if it can start engines; None if it was started elsewhere.
        files: files of the session, with facts on the engines for the next kernel.
    """

    def __init__(self, client: Any, cluster: Any, files: SessionFiles) -> None:
        self.client, self._cluster, self._files = client, cluster, files
        self._probed_s, self._gone = float("-inf"), False
        self._started: Any = None  # the latest engine set
        self._warm: dict[int, Engine] = {}
        self._learn()

    def _learn(self) -> None:
        """Read other kernels' facts about the engines."""
        facts = json.loads(self._files.engines_file.read_text()) if self._files.engines_file.is_file() else []
        self._warm |= {fact["id"]: Engine.from_json(fact) for fact in facts}

    @classmethod
    def start(cls, files: SessionFiles, *, timeout_s: float) -> Engines:
        """Start a controller and engines that outlive this process.

        Raises:
            ClusterError: the engines did not start in time.
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
                f"--HeartMonitor.period={HEARTBEAT_MS}",  # it drops engines for good, so the run must decide earlier
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
                f"{files.ranks} engines did not start within {time.monotonic() - began_s:.1f} s "
                f"(timeout_s={timeout_s:g}): {str(error).rstrip('.')}."
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
        connection_file = files.connection_file
        if not Path(connection_file).is_file():
            raise ClusterError(
                f"the connection file {connection_file} does not exist: the cluster has ended, or runs elsewhere."
            )
        if session_files.controller_is_gone(connection_file):
            raise ClusterError(session_files.gone_words(files))
        try:
            client = ipp.Client(connection_file, timeout=timeout_s)
        except (TimeoutError, ipp.error.TimeoutError, OSError) as error:
            raise ClusterError(
                f"the controller of {connection_file} does not answer: {error}. It may have ended."
            ) from error
        return cls(client, cluster, files)

    def warm(self, count: int, *, timeout_s: float, beside: Collection[int] = ()) -> None:
        """Wait for engines, and let new ones import the modules of training.

        Args:
            count: number of engines to wait for.
            timeout_s: seconds to wait.
            beside: ids that do not count.

        Raises:
            ClusterError: too few engines started, or one cannot import the lab.
        """
        import ipyparallel as ipp

        # wait_for_engines would fail if an engine that was killed earlier is reported as ended now
        deadline = time.monotonic() + timeout_s
        while len(ready := set(self.client.ids) - set(beside)) < count:
            if self._started is not None and (statuses := self._started.ended()):
                how = ", ".join(dict.fromkeys(statuses))
                raise ClusterError(f"{len(statuses)} of {count} engines ended during their start ({how}).")
            if time.monotonic() > deadline:
                raise ClusterError(f"only {len(ready)} of {count} engines were ready within {timeout_s:g} s.")
            time.sleep(0.02)
        try:
            self._learn()
            new = [number for number in self.client.ids if number not in self._warm]
            if not new:
                return
            is_own = self._cluster is not None  # other clusters decide themselves what their engines see
            instances = (
                free_instances([engine.report for engine in self.alive()], len(new)) if is_own else [""] * len(new)
            )
            answers = [
                self.client[number].apply_async(warm_up, one) for number, one in zip(new, instances, strict=True)
            ]
            for number, answer in zip(new, answers, strict=True):
                self._warm[number] = Engine(number, *answer.get(timeout=timeout_s))
            self.client[new].apply_async(rehearse)  # an error in it recurs in the first run, which reports it
            write_json(self._files.engines_file, [asdict(engine) for engine in self._warm.values()])
        except (TimeoutError, ipp.error.TimeoutError) as error:
            raise ClusterError(f"engines {new} did not import the lab within {timeout_s:.1f} s.") from error
        except (ipp.error.RemoteError, ipp.error.EngineError) as error:
            raise ClusterError(
                f"an engine cannot start: {error}. Engines need dtdg_lab installed in their own Python."
            ) from error

    @property
    def controller_is_gone(self) -> bool:
        """True if the controller has ended; checked at most once a second."""
        if not self._gone and time.monotonic() - self._probed_s > PROBE_EVERY_S:
            self._gone = session_files.controller_is_gone(self._files.connection_file)
            self._probed_s = time.monotonic()
        return self._gone

    def choose_devices(self, config: RunConfig, numbers: tuple[int, ...]) -> DeviceChoice:
        """Return the devices of a run's ranks; warn if GPUs are left unused or shared."""
        alive = self.alive()
        # runs on numbered engines may train at the same time, and share processors and GPUs
        reports = [engine.report for engine in (alive if numbers else alive[: config.ranks])]
        devices = choose_devices(config.device, reports, numbers or range(config.ranks))
        if devices.note:
            warnings.warn(devices.note, stacklevel=4)
        return devices

    def alive(self) -> list[Engine]:
        """Return the engines that can train, in rank order."""
        numbers = set(self.client.ids)
        if numbers - set(self._warm):
            self._learn()  # another kernel may have started new ones
        return [engine for number, engine in sorted(self._warm.items()) if number in numbers and _runs(engine)]

    def start_more(self, count: int, *, timeout_s: float) -> None:
        """Replace dead engines; for an external cluster, detect engines that were started there.

        Raises:
            ClusterError: the cluster was started elsewhere, and engines are still missing.
        """
        if self._cluster is not None:
            earlier = self.client.ids
            self._started = self._cluster.engines[self._cluster.start_engines_sync(n=count)]
            try:
                self.warm(count, timeout_s=timeout_s, beside=earlier)
            except ClusterError as error:
                raise ClusterError(f"{error} {self._files.log_words()}") from error
            return
        target_count = count + len(self.alive())
        if self.client.ids:
            self.warm(1, timeout_s=timeout_s)
        ready = len(self.alive())
        if ready < target_count:
            raise ClusterError(
                f"{ready} of {target_count} engines are alive, and this session did not start the cluster. Start the "
                f"others there (ipcluster engines -n {target_count - ready} ...), then call session.repair() again."
                + (f" Runs of up to {ready} ranks can be started now." if ready else "")
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


def engine_numbers_of(ranks: int, engines: Sequence[int] | None) -> tuple[int, ...]:
    """Return the indices of a run's engines in a session; empty for the first ones.

    Raises:
        ConfigError: the engines are not distinct, or not one per rank.
    """
    if engines is None:
        return ()
    if len(engines) != ranks or len(set(engines)) < ranks or min(engines) < 0:
        raise ConfigError(
            f"engines={tuple(engines)} do not match ranks={ranks}. Give one distinct engine, numbered from 0, for "
            "each rank."
        )
    return tuple(engines)


def trouble(answers: Sequence[Any]) -> str:
    """Return the error of an engine that could not run its rank; empty without an error."""
    for rank, answer in enumerate(answers):
        if answer.ready():
            error = answer.exception()
            if error is not None:
                return f"rank {rank} failed: {error}"
    return ""
