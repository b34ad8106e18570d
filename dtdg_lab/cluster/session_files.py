"""Files of a session, readable by its owner only; the sessions of this machine, and the end of idle ones."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from uuid import uuid4

import psutil

from dtdg_lab.cluster.signing import new_key
from dtdg_lab.core.child_process import is_running
from dtdg_lab.core.errors import ClusterError, UnknownNameError
from dtdg_lab.core.files import replacing
from dtdg_lab.core.system_errors import explain, reading
from dtdg_lab.core.units import STATE, as_path, state_root
from dtdg_lab.runs.directory import ENDED, RunDirectory
from dtdg_lab.runs.liveness import SILENT_S

KEPT_LOGS = 10  # number of failed starts whose logs are kept
_QUOTED = 2  # maximum number of quoted engine logs
_REMEDY = "End its processes, whose environment has its folder as IPP_PROFILE_DIR, and remove the file."


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFiles:
    """One session's folder, and the facts stored in it.

    ``owned`` is True if the session started its cluster, and so may end it; an attached session only uses it.
    """

    id: str = field(default_factory=lambda: f"{datetime.now():%Y%m%d-%H%M%S}-{uuid4().hex[:6]}")
    name: str = ""
    ranks: int = 0
    connection_file: str = ""
    cluster_file: str = ""
    key: str = field(default_factory=new_key)
    runs_dir: str
    idle_s: float = 120.0
    silent_s: float = SILENT_S
    owned: bool = True
    created_s: float = field(default_factory=time.time)

    @property
    def folder(self) -> Path:
        """The session's folder."""
        return state_root() / "sessions" / self.id

    @property
    def heartbeat_file(self) -> Path:
        """File touched by every kernel that uses the session."""
        return self.folder / "heartbeat"

    @property
    def busy_file(self) -> Path:
        """File touched by the ranks while a run is active."""
        return self.folder / "busy"

    @property
    def engines_file(self) -> Path:
        """File with facts on the engines: numbers, processes, machines."""
        return self.folder / "engines.json"

    @property
    def current_file(self) -> Path:
        """File with the paths of the session's runs, one per line, the newest last; after tabs, engine indices."""
        return self.folder / "runs"

    def write(self) -> None:
        """Store the facts, readable by the owner only: the key allows control of runs."""
        write_private(self.folder / "session.json", json.dumps(asdict(self)))

    @classmethod
    def read(cls, session_id: str) -> SessionFiles:
        """Return the facts of a session.

        Raises:
            UnknownNameError: there is no session with that id.
            ClusterError: its file is damaged or unreadable.
        """
        files = cls.find(session_id)
        if files is None:
            names = [files.id for files in all_sessions()]
            raise UnknownNameError("session", session_id, names, "List them: dtdg-lab sessions.")
        return files

    @classmethod
    def find(cls, session_id: str) -> SessionFiles | None:
        """Return the facts of a session; None if it does not exist, or if only its logs are left.

        Raises:
            ClusterError: its file is damaged or unreadable.
        """
        path = state_root() / "sessions" / session_id / "session.json"
        with reading(path, remedy=_REMEDY, raises=ClusterError, setting=STATE):
            try:
                return cls(**json.loads(path.read_text()))
            except (FileNotFoundError, NotADirectoryError):
                return None

    def add_run(self, path: Path, engines: Sequence[int] = ()) -> None:
        """Record a run of this session, and the indices of its engines unless they are the first ones."""
        with open(self.current_file, "a") as file:
            file.write("\t".join([str(path), *map(str, engines)]) + "\n")

    def runs(self) -> list[Path]:
        """Return existing folders of the session's runs, oldest first."""
        return [path for path, _ in self._noted() if path.is_dir()]

    def engines_of(self, run: Path) -> tuple[int, ...]:
        """Return the indices of a run's engines; empty for the first ones."""
        return dict(self._noted()).get(run, ())

    def _noted(self) -> list[tuple[Path, tuple[int, ...]]]:
        if not self.current_file.is_file():
            return []
        lines = [line.split("\t") for line in self.current_file.read_text().splitlines()]
        return [(Path(path), tuple(map(int, places))) for path, *places in lines]

    def processes(self) -> list[psutil.Process]:
        """Return the processes of an owned session on this machine, found by the profile in their environment."""
        profile, processes = str(self.folder / "profile"), []
        for process in psutil.process_iter(["uids", "status"]):
            if process.info["uids"].real != os.getuid() or process.info["status"] == psutil.STATUS_ZOMBIE:
                continue
            try:
                if process.environ().get("IPP_PROFILE_DIR") == profile:
                    processes.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue  # ended meanwhile, or unreadable and so not ours
        return processes

    def last_used_s(self) -> float:
        """Return the Unix time at which a kernel or a run last used the session."""
        used = [path.stat().st_mtime for path in (self.heartbeat_file, self.busy_file) if path.exists()]
        return max(used, default=self.created_s)

    def idle_for_s(self) -> float:
        """Return seconds since a kernel or a run last used the session."""
        return time.time() - self.last_used_s()

    @property
    def log_folder(self) -> Path:
        """The logs of the controller and of the engines."""
        return self.folder / "profile" / "log"

    def log_words(self, folder: Path | None = None) -> str:
        """Return the last lines of the newest logs of controller and engines, and their folder, as sentences.

        Args:
            folder: current folder of the logs; by default the folder they were written to.
        """
        folder, lines = folder or self.log_folder, []
        for process_name in ("controller", "engine"):
            logs = [log for log in folder.glob(f"ip{process_name}*.log") if log.stat().st_mtime >= self.created_s - 1.0]
            texts = [log.read_text(errors="replace").strip() for log in sorted(logs, key=_changed, reverse=True)]
            newest = list(dict.fromkeys(text.splitlines()[-1][:300] for text in texts if text))[:_QUOTED]
            lines.append(
                f"the last line of the {process_name}'s log is "
                f"{' and '.join(map(repr, newest)) or 'missing: it is empty'}"
            )
        return f"In the logs, {'; '.join(lines)}. Logs are in {folder}."

    def keep_logs(self) -> Path:
        """Move the logs of a failed start to a permanent folder and return it; remove the oldest ones there."""
        folder = state_root() / "failed" / self.id
        make_private(folder)
        for log in (*self.log_folder.glob("*.log"), *self.folder.glob("*.log")):
            log.replace(folder / log.name)
        for old in sorted(folder.parent.iterdir())[:-KEPT_LOGS]:
            shutil.rmtree(old, ignore_errors=True)  # another process may remove it too
        return folder

    def remove(self) -> None:
        """Remove the session's files."""
        shutil.rmtree(self.folder, ignore_errors=True)  # an exiting process may still write its log


def _changed(log: Path) -> float:
    return log.stat().st_mtime


def clean_up_failed_start(files: SessionFiles, *, is_new: bool) -> str:
    """Clean up after a failed start, and return the last lines of its logs, as sentences.

    Args:
        files: files of the session.
        is_new: True if the session has no runs of an earlier start: then only its logs are kept.
    """
    end_processes(files)
    if not is_new:
        return files.log_words()
    folder = files.keep_logs()
    files.remove()
    return files.log_words(folder)


def make_private(folder: Path) -> None:
    """Create a folder that only its owner can enter.

    Raises:
        ClusterError: it cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise ClusterError(f"the session folder {folder} cannot be created: {explain(error, setting=STATE)}") from error


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, in a folder that only its owner can enter.

    Raises:
        ClusterError: the folder cannot be created, or the file cannot be written.
    """
    make_private(path.parent)
    try:
        with replacing(path, mode=0o600) as draft:
            draft.write_text(text)
    except OSError as error:
        raise ClusterError(f"{path} cannot be written: {explain(error, path, setting=STATE)}") from error


def all_sessions() -> list[SessionFiles]:
    """Return the sessions with files on disk, oldest first.

    Raises:
        ClusterError: the folder of sessions cannot be read, or a session's file is damaged.
    """
    folder = state_root() / "sessions"
    sessions: list[SessionFiles] = []
    what = f"the folder of sessions {folder}"
    with reading(folder, what, remedy="", raises=ClusterError, setting=STATE), suppress(FileNotFoundError):
        sessions = [files for session_id in os.listdir(folder) if (files := SessionFiles.find(session_id)) is not None]
    return sorted(sessions, key=lambda files: files.created_s)


def end_processes(files: SessionFiles, *, timeout_s: float = 1.0) -> int:
    """End an owned session's controller and engines, by force after the time-out; return their number."""
    processes = files.processes()
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # ended by itself
            process.terminate()
    for process in (alive := left_after(processes, timeout_s)):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    left_after(alive, timeout_s)
    psutil.wait_procs(processes, timeout=0)  # reaps this process's own children
    return len(processes)


def left_after(processes: Sequence[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Return the processes alive after the time-out, without zombies, which a container's parent may never reap."""
    deadline = time.monotonic() + timeout_s
    while (
        alive := [process for process in processes if is_running(process.pid, process.create_time())]
    ) and time.monotonic() < deadline:
        time.sleep(0.02)
    return alive


# Sessions by name: creating files of a new one, finding a live one, and external clusters.


STARTING_S = 15.0  # a younger session without processes may be starting in another kernel


def new_session_files(name: str, ranks: int, runs_dir: Path, idle_s: float, silent_s: float = SILENT_S) -> SessionFiles:
    """Create the folder and facts of a session that is about to start."""
    files = SessionFiles(name=name, ranks=ranks, runs_dir=str(runs_dir), idle_s=idle_s, silent_s=silent_s)
    security = files.folder / "profile" / "security"
    client, cluster = (str(security / name) for name in ("ipcontroller-client.json", "cluster.json"))
    files = replace(files, connection_file=client, cluster_file=cluster)
    files.write()
    return files


def foreign_session_files(which: str, runs_dir: Path) -> SessionFiles:
    """Return facts on an external cluster, from a connection file or a profile."""
    path = as_path(which, "which", ClusterError)
    if not path.is_file():
        from ipyparallel import Cluster

        path = Path(Cluster(profile=which).profile_dir) / "security" / "ipcontroller-client.json"
    if not path.is_file():
        names = [key for files in all_sessions() for key in (files.id, files.name) if key]
        raise UnknownNameError(
            "session, connection file or profile",
            which,
            names,
            "A profile needs a running ipcluster; see `ipcluster list`.",
        )
    foreign = SessionFiles(connection_file=str(path.resolve()), runs_dir=str(runs_dir), owned=False)
    foreign.write()
    return foreign


def find_session(name: str, ranks: int) -> tuple[SessionFiles | None, bool]:
    """Return the newest session of a name, and True if its cluster is alive; end an idle one of another size."""
    newest: SessionFiles | None = None
    for files in all_sessions():
        if files.name != name or not files.owned:
            continue
        while not files.processes() and time.time() - files.created_s < STARTING_S and files.folder.is_dir():
            time.sleep(0.2)
        alive = bool(files.processes())
        gone = alive and controller_is_gone(files.connection_file)
        if alive and not gone and files.ranks == ranks:
            return files, True
        runs = files.runs()
        if alive and runs and RunDirectory.open(runs[-1]).status()["state"] not in ENDED:
            if gone:
                raise ClusterError(f"{gone_words(files)} It trains {runs[-1].name}.")
            raise ClusterError(
                f"session {name!r} has {files.ranks} ranks and trains {runs[-1].name}. Stop that run before requesting "
                f"{ranks} ranks, or use another name. Session.attach({name!r}) connects to it."
            )
        end_processes(files)
        if newest is not None:
            newest.remove()
        newest = files
    return newest, False


def renewed(files: SessionFiles, ranks: int, runs_dir: Path, idle_s: float, silent_s: float) -> SessionFiles:
    """Update the facts of a session whose cluster is started again; name, key and runs are kept."""
    files = replace(files, ranks=ranks, runs_dir=str(runs_dir), created_s=time.time())
    files = replace(files, idle_s=idle_s, silent_s=silent_s)
    clear_cluster(files)
    files.write()
    return files


def clear_cluster(files: SessionFiles) -> None:
    """Remove the files of an ended cluster, except its logs."""
    for_engines = Path(files.connection_file).with_name("ipcontroller-engine.json")
    for path in (files.connection_file, for_engines, files.cluster_file, files.engines_file):
        Path(path).unlink(missing_ok=True)


PROBED = ("registration", "notification", "mux")  # ports of the controller's hub and of its scheduler
PROBE_S = 2.0


def controller_is_gone(connection_file: str | Path) -> bool:
    """Return True if a cluster's controller has ended: its machine refuses connections to its ports.

    Return False if that is unknown: behind an SSH tunnel, or if the machine does not answer.
    """
    from ipyparallel.util import disambiguate_ip_address

    try:
        connection = json.loads(Path(connection_file).read_text())
    except FileNotFoundError:
        return False  # the cluster is starting, or was never on this machine; connecting reports it
    address = connection["interface"].partition("://")[2]
    if connection["ssh"]:
        return False
    host = disambiguate_ip_address(address, connection["location"])
    for port in PROBED:
        try:
            socket.create_connection((host, int(connection[port])), timeout=PROBE_S).close()
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def gone_words(files: SessionFiles) -> str:
    """Return a message on a cluster whose controller is gone, with the remedy."""
    text = (
        f"the controller of session {files.name or files.id!r} is gone: its ports refuse connections. An active run "
        "continues without it, but no other can start. "
    )
    if not files.owned:
        return text + "Restart the cluster where it was started, then call Session.attach(...)."
    elsewhere = f", Session(ranks={files.ranks}, name={files.name!r}) in any other" if files.name else ""
    return text + (
        f"When no run is active, session.repair() in the session's kernel{elsewhere} starts a new cluster; name and "
        "runs are kept."
    )


def ended_words(files: SessionFiles) -> str:
    """Return a message on a session without processes, with the remedy, and on its interrupted run, if any."""
    called = f", name={files.name!r}" if files.name else ""
    text = (
        f"session {files.name or files.id!r} has ended: its engines and its controller are gone. "
        f"Session(ranks={files.ranks}{called}) starts new ones."
    )
    last = next(reversed(files.runs()), None)
    status = RunDirectory.open(last).status() if last is not None else {"state": ""}
    if status["state"] == "interrupted":
        text += f" Its run {last} was {status['reason']}"
    return text


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session in the list of sessions."""

    id: str
    name: str
    ranks: int
    processes: int
    idle_s: float
    owned: bool
    last_run: Path | None


def list_sessions() -> list[SessionInfo]:
    """Return all sessions with files on this machine, oldest first."""
    sessions = []
    for files in all_sessions():
        running, last = len(files.processes()) if files.owned else 0, next(reversed(files.runs()), None)
        idle_s = files.idle_for_s()
        sessions.append(SessionInfo(files.id, files.name, files.ranks, running, idle_s, files.owned, last))
    return sessions


def end_session(session_id: str) -> int:
    """End a session: its files, and its engines and controller if it owns them; return the number of ended processes.

    An active run loses its work since the last checkpoint; stop it first to avoid this.

    Raises:
        UnknownNameError: the session does not exist.
    """
    files = SessionFiles.read(session_id)
    ended = end_processes(files) if files.owned else 0
    files.remove()
    return ended
