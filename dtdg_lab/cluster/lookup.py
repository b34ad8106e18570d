"""Sessions by name: making the files of a new one, finding a living one, and clusters the lab did not start."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from uuid import uuid4

from dtdg_lab.cluster.session_files import SessionFiles, all_sessions, end_processes, make_private
from dtdg_lab.cluster.signing import new_key
from dtdg_lab.core.errors import ClusterError, UnknownNameError
from dtdg_lab.runs.directory import ENDED, RunDirectory

STARTING_S = 15.0  # a session without processes that is younger may be starting in another kernel


def new_session_files(name: str, ranks: int, runs_dir: Path, idle_s: float) -> SessionFiles:
    """The folder and facts of a session that is about to be started."""
    session_id = f"{datetime.now():%Y%m%d-%H%M%S}-{uuid4().hex[:6]}"
    files = SessionFiles(
        id=session_id, name=name, ranks=ranks, connection_file="", cluster_file="", key=new_key(),
        runs_dir=str(runs_dir), idle_s=idle_s, owned=True,
    )  # fmt: skip
    security = files.folder / "profile" / "security"
    files = files.with_paths(str(security / "ipcontroller-client.json"), str(security / "cluster.json"))
    make_private(files.folder)
    files.write()
    return files


def foreign_session_files(which: str, runs_dir: Path) -> SessionFiles:
    """Facts about a cluster the lab did not start: a connection file, or a profile's."""
    path = Path(which)
    if not path.is_file():
        from ipyparallel import Cluster

        path = Path(Cluster(profile=which).profile_dir) / "security" / "ipcontroller-client.json"
    if not path.is_file():
        known = [key for files in all_sessions() for key in (files.id, files.name) if key]
        raise UnknownNameError(
            "session, connection file or profile",
            which,
            known,
            "A profile needs a running ipcluster; see `ipcluster list`.",
        )
    session_id = f"{datetime.now():%Y%m%d-%H%M%S}-{uuid4().hex[:6]}"
    foreign = SessionFiles(
        id=session_id, name="", ranks=0, connection_file=str(path.resolve()), cluster_file="", key=new_key(),
        runs_dir=str(runs_dir), idle_s=120.0, owned=False,
    )  # fmt: skip
    foreign.write()
    return foreign


def find_session(name: str, ranks: int) -> SessionFiles | None:
    """The living session of a name; a dead one's files, and an idle one of another size, are cleared away."""
    for files in all_sessions():
        if files.name != name or not files.owned:
            continue
        while not files.processes() and time.time() - files.created_s < STARTING_S and files.folder.is_dir():
            time.sleep(0.2)
        alive = bool(files.processes())
        if alive and files.ranks == ranks:
            return files
        runs = files.runs()
        if alive and runs and RunDirectory.open(runs[-1]).status()["state"] not in ENDED:
            raise ClusterError(
                f"session {name!r} has {files.ranks} ranks and trains {runs[-1].name}: stop that run before asking for "
                f"{ranks} ranks, or use another name. Session.attach({name!r}) reaches it."
            )
        end_processes(files)
        files.remove()
    return None
