"""Runs that a study had begun when it was killed: what became of them, and what can be done."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from dtdg_lab.cluster.liveness import is_dead, read_notes
from dtdg_lab.cluster.run import Run
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, LabError, RunFailedError, RunStoreError
from dtdg_lab.runs.directory import ENDED, RunDirectory
from dtdg_lab.runs.finish import finish

if TYPE_CHECKING:
    from dtdg_lab.cluster.session import Session

LOOK_S = 0.1
PATIENCE_S = 5.0  # for whoever is left of a run to say how it ended, or to say that it lives
KILLED = "the process that trained it was killed"


def orphan(config: RunConfig, asked_ns: int, folders: set[Path], taken: set[Path]) -> Path | None:
    """The run that was made for a config after a moment, though nobody came to write down that it was.

    Args:
        config: of the run.
        asked_ns: nanoseconds since 1970.
        folders: that hold runs.
        taken: resolved folders of runs that belong to other trials.
    """
    for root in folders:
        for path in sorted(root.glob(f"*-{config.short_hash}*")):
            try:
                run = RunDirectory.open(path)
                made_ns = run.config_file.stat().st_mtime_ns  # it is written once, when the folder is made
                if made_ns >= asked_ns and path.resolve() not in taken and run.config() == config:
                    return path
            except (RunStoreError, ConfigError):
                continue  # no run, or not ours
    return None


def settle(path: Path, *, on_engines: bool) -> str:
    """The state a run ended in, waiting for it where engines still train it; one whose processes are gone is marked.

    Args:
        path: of the run.
        on_engines: whether engines were to train it, which outlive who asked them; else it was this study's process.

    Raises:
        RunStoreError: there is no run at that path.
    """
    run = RunDirectory.open(path)
    quiet_since: float | None = None
    while (status := run.status())["state"] not in ENDED:
        notes = read_notes(run.live, status["attempt"]).values() if on_engines else []
        if notes and not all(is_dead(note) for note in notes):
            quiet_since = None
        else:
            quiet_since = quiet_since or time.monotonic()
            young = on_engines and time.time_ns() - int(status["time_ns"]) < PATIENCE_S * 1e9
            if not young and time.monotonic() - quiet_since >= (PATIENCE_S if notes else 0.0):
                _mark(run)
                continue
        time.sleep(LOOK_S)
    return str(status["state"])


def _mark(run: RunDirectory) -> None:
    try:
        finish(run, "failed", KILLED)
    except LabError as error:  # its records are damaged: they are kept as they are
        run.write_status("failed", reason=f"{KILLED}; {error}", attempt=run.status()["attempt"])


def go_on(path: Path, session: Session | None) -> bool:
    """Resume a run from its checkpoint on a session's engines, and wait for its end; whether that could be done.

    Raises:
        RunFailedError: it failed again.
    """
    run = RunDirectory.open(path)
    if session is None or not run.checkpoint_file.is_file():
        return False
    known = next((each for each in session.runs if each.path.resolve() == path.resolve()), None)
    handle = known or Run(session, run)
    try:
        handle.resume().wait()
    except RunFailedError:
        raise
    except KeyboardInterrupt:
        if run.status()["state"] not in ENDED:
            next(each for each in session.under_way if each.path.resolve() == path.resolve()).stop()
        raise
    except LabError:  # a checkpoint of another version or data: the run is made anew
        return False
    return True
