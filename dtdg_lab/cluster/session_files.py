"""What a session leaves on disk, readable by its owner only: how to reach its cluster, its key, and who uses it."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from dtdg_lab.core.errors import ClusterError, UnknownNameError
from dtdg_lab.core.paths import state_root


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFiles:
    """One session's folder and the facts in it.

    ``owned`` says whether the session started its cluster, and so may end it; an attached one only uses it.
    """

    id: str
    name: str
    ranks: int
    connection_file: str
    cluster_file: str
    key: str
    runs_dir: str
    idle_s: float
    owned: bool
    created_s: float = field(default_factory=time.time)

    @property
    def folder(self) -> Path:
        """The session's folder."""
        return state_root() / "sessions" / self.id

    @property
    def heartbeat_file(self) -> Path:
        """Touched by every kernel that uses the session."""
        return self.folder / "heartbeat"

    @property
    def busy_file(self) -> Path:
        """Touched by the ranks while a run is under way."""
        return self.folder / "busy"

    @property
    def engines_file(self) -> Path:
        """What is known of the engines: numbers, processes, machines."""
        return self.folder / "engines.json"

    @property
    def current_file(self) -> Path:
        """Paths of the session's runs, one a line, the newest last; after tabs the places of its engines."""
        return self.folder / "runs"

    def with_ranks(self, ranks: int) -> SessionFiles:
        """The same facts for another number of engines."""
        return replace(self, ranks=ranks)

    def with_paths(self, connection_file: str, cluster_file: str) -> SessionFiles:
        """The same facts with the places ipyparallel keeps its files."""
        return replace(self, connection_file=connection_file, cluster_file=cluster_file)

    def write(self) -> None:
        """Keep the facts, for the owner's eyes only: the key lets its holder steer runs."""
        make_private(self.folder)
        path = self.folder / "session.json"
        part = path.with_suffix(".part")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(self), file)
        os.replace(part, path)

    @classmethod
    def read(cls, session_id: str) -> SessionFiles:
        """The facts of a session.

        Raises:
            UnknownNameError: there is no session with that id.
        """
        path = state_root() / "sessions" / session_id / "session.json"
        try:
            data: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError as error:
            known = [files.id for files in all_sessions()]
            raise UnknownNameError("session", session_id, known, "List them: python -m dtdg_lab sessions.") from error
        return cls(**data)

    def add_run(self, path: Path, engines: Sequence[int] = ()) -> None:
        """Note a run of this session, and the places of its engines where they are not the first ones."""
        with open(self.current_file, "a") as file:
            file.write("\t".join([str(path), *map(str, engines)]) + "\n")

    def runs(self) -> list[Path]:
        """Folders of the session's runs, oldest first, as far as they still exist."""
        return [path for path, _ in self._noted() if path.is_dir()]

    def engines_of(self, run: Path) -> tuple[int, ...]:
        """Places of a run's engines; empty where it has the first ones."""
        return dict(self._noted()).get(run, ())

    def _noted(self) -> list[tuple[Path, tuple[int, ...]]]:
        if not self.current_file.is_file():
            return []
        lines = [line.split("\t") for line in self.current_file.read_text().splitlines()]
        return [(Path(path), tuple(map(int, places))) for path, *places in lines]

    def processes(self) -> list[psutil.Process]:
        """Controller and engines of an owned session on this machine, found by the profile in their environment."""
        profile, found = str(self.folder / "profile"), []
        for process in psutil.process_iter(["uids", "status"]):
            if process.info["uids"].real != os.getuid() or process.info["status"] == psutil.STATUS_ZOMBIE:
                continue
            try:
                if process.environ().get("IPP_PROFILE_DIR") == profile:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue  # ended meanwhile, or not ours to read and so not ours to end
        return found

    def idle_for_s(self) -> float:
        """Seconds since a kernel or a run last used the session."""
        used = [path.stat().st_mtime for path in (self.heartbeat_file, self.busy_file) if path.exists()]
        return time.time() - max(used, default=self.created_s)

    def remove(self) -> None:
        """Forget the session's files."""
        shutil.rmtree(self.folder, ignore_errors=True)  # a process that is just ending may still write its log


def make_private(folder: Path) -> None:
    """Make a folder that only its owner can enter.

    Raises:
        ClusterError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise ClusterError(
            f"the session folder {folder} cannot be made: {error.strerror}. "
            "Set DTDG_LAB_STATE to a folder you can write."
        ) from error


def all_sessions() -> list[SessionFiles]:
    """Sessions whose facts are on disk, oldest first."""
    folder = state_root() / "sessions"
    found = []
    for path in sorted(folder.glob("*/session.json")) if folder.is_dir() else []:
        try:
            found.append(SessionFiles(**json.loads(path.read_text())))
        except FileNotFoundError:
            continue  # ended between the listing and the reading
    return sorted(found, key=lambda files: files.created_s)


def end_processes(files: SessionFiles, *, timeout_s: float = 1.0) -> int:
    """End an owned session's controller and engines: asked first, killed after the time-out. Returns how many."""
    processes = files.processes()
    for process in processes:
        _signal(process, "terminate")
    for process in (alive := _left_after(processes, timeout_s)):
        _signal(process, "kill")
    _left_after(alive, timeout_s)
    psutil.wait_procs(processes, timeout=0)  # so that this process's own children leave no zombies
    return len(processes)


def _left_after(processes: Sequence[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Those that run after the time-out. Zombies do not: their parent may never look, as in many containers."""
    deadline = time.monotonic() + timeout_s
    while (left := [process for process in processes if _runs(process)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _signal(process: psutil.Process, how: str) -> None:
    try:
        getattr(process, how)()
    except psutil.NoSuchProcess:
        return  # gone by itself
