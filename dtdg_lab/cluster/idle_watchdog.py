"""A small process beside a session's cluster: ends it when no kernel and no run has used it for a while.

Started detached by a Session, so that a run outlives its kernel and an idle cluster does not outlive its use.
"""

from __future__ import annotations

import subprocess
import sys
import time

from dtdg_lab.cluster.session_files import SessionFiles, end_processes
from dtdg_lab.core.errors import UnknownNameError

LOOK_S = 1.0


def start_keeper(files: SessionFiles) -> int:
    """Start the watchdog of a session; returns its process number."""
    command = [sys.executable, "-m", "dtdg_lab.cluster.idle_watchdog", files.id]
    with open(files.folder / "keeper.log", "ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    process.returncode = 0  # never waited for: it intentionally outlives this process
    return process.pid


def keep(session_id: str) -> None:
    """Watch a session until its files are gone or it has been idle for its limit, then end it."""
    while True:
        try:
            files = SessionFiles.read(session_id)
        except UnknownNameError:
            return
        if files.idle_for_s() > files.idle_s:
            ended = end_processes(files)
            print(f"idle for {files.idle_s:g} s: ended {ended} processes", flush=True)
            files.remove()
            return
        time.sleep(LOOK_S)


if __name__ == "__main__":
    keep(sys.argv[1])
