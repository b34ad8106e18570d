"""Runs that were active when their study was killed: their outcome, and whether they can be resumed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from dtdg_lab.cluster.run import Run
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, LabError, RunFailedError, RunStoreError
from dtdg_lab.core.system_errors import is_refusal
from dtdg_lab.runs.directory import ENDED, RunDirectory
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.liveness import is_dead, read_notes

if TYPE_CHECKING:
    from dtdg_lab.cluster.session import Session

POLL_S = 0.1
PATIENCE_S = 5.0  # for remaining processes of a run to record its end, or a heartbeat
KILLED = "the process that trained it was killed"


def find_run(config: RunConfig, started_ns: int, folders: set[Path], excluded: set[Path]) -> Path | None:
    """Return the run that was created for a config after a moment, although the study did not record it.

    Args:
        config: of the run.
        started_ns: nanoseconds since 1970.
        folders: that hold runs.
        excluded: resolved run folders that belong to other trials.
    """
    for folder in folders:
        for path in sorted(folder.glob(f"*-{config.short_hash}*")):
            try:
                run = RunDirectory.open(path)
                created_ns = run.config_file.stat().st_mtime_ns  # it is written once, when the folder is created
                if created_ns >= started_ns and path.resolve() not in excluded and run.config() == config:
                    return path
            except (RunStoreError, ConfigError):
                continue  # not a run, or one of another version
    return None


def wait_until_final(path: Path, *, on_engines: bool) -> str:
    """Return the final state of a run; wait while engines train it, and end a run without processes.

    Args:
        path: of the run.
        on_engines: whether engines train it, which outlive the process that started it.

    Raises:
        RunStoreError: there is no run at that path.
    """
    run = RunDirectory.open(path)
    quiet_since: float | None = None
    while (status := run.recorded_status())["state"] not in ENDED:
        notes = read_notes(run.live, status["attempt"]).values() if on_engines else []
        if notes and not all(is_dead(note) for note in notes):
            quiet_since = None
        else:
            quiet_since = quiet_since or time.monotonic()
            is_young = on_engines and time.time_ns() - int(status["time_ns"]) < PATIENCE_S * 1e9
            if not is_young and time.monotonic() - quiet_since >= (PATIENCE_S if notes else 0.0):
                try:
                    finish(run, "failed", KILLED)
                except LabError as error:  # its records are damaged: they are kept unchanged
                    run.write_status("failed", reason=f"{KILLED}; {error}", attempt=status["attempt"])
                continue
        time.sleep(POLL_S)
    return str(status["state"])


def resume(path: Path, session: Session | None) -> bool:
    """Resume a run from its checkpoint on a session's engines and wait for its end; return False if it cannot be.

    Raises:
        RunFailedError: it failed again.
    """
    run = RunDirectory.open(path)
    if session is None or not run.checkpoint_file.is_file():
        return False
    handles = [handle for handle in session.runs if handle.path.resolve() == path.resolve()]
    handle = handles[0] if handles else Run(session, run)
    try:
        handle.resume().wait()
    except RunFailedError:
        raise
    except KeyboardInterrupt:
        if run.recorded_status()["state"] not in ENDED:
            next(active for active in session.under_way if active.path.resolve() == path.resolve()).stop()
        raise
    except LabError as error:  # a checkpoint of another version or data: the run restarts
        if is_refusal(error):
            raise
        return False
    return True
