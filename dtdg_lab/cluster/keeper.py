"""The watchdog of a session's cluster: a small process that ends an idle cluster, also after its kernel has ended."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import psutil

from dtdg_lab.cluster.session_files import SessionFiles, end_processes
from dtdg_lab.core.child_process import environment
from dtdg_lab.core.errors import UnknownNameError

LOOK_S = 1.0


AWAKE_S = 5.0  # a longer time between two checks means that the machine slept, or this process was stopped


def has_keeper(files: SessionFiles) -> bool:
    """Return True if the watchdog of a session is running."""
    return any(files.id in (process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))


def start_keeper(files: SessionFiles) -> int:
    """Start the watchdog of a session; return its process identifier."""
    command = [sys.executable, "-P", "-m", "dtdg_lab.cluster.keeper", files.id]
    with open(files.folder / "keeper.log", "ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(), start_new_session=True
        )
    process.returncode = 0  # do not wait for it: it intentionally outlives this process
    return process.pid


class IdleClock:
    """Idle time of a session, without the time that the machine slept.

    Args:
        clock: returns the Unix time.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._looked = self._awake_since = float("-inf")

    def idle_for_s(self, files: SessionFiles) -> float:
        """Return seconds since the last use, or since the machine woke up; call it every ``LOOK_S`` seconds."""
        now_s = self._clock()
        if self._looked > 0 and now_s - self._looked > AWAKE_S:
            self._awake_since = now_s  # give kernels and ranks time to touch their files
        self._looked = now_s
        return now_s - max(files.last_used_s(), self._awake_since)


def keep(session_id: str) -> None:
    """Watch a session until its files are removed, or until it has been idle for its limit; then end it."""
    clock = IdleClock()
    while True:
        try:
            files = SessionFiles.read(session_id)
        except UnknownNameError:
            return
        if clock.idle_for_s(files) > files.idle_s:
            ended = end_processes(files)
            print(f"idle for {files.idle_s:g} s: ended {ended} processes", flush=True)
            files.remove()
            return
        time.sleep(LOOK_S)


if __name__ == "__main__":
    keep(sys.argv[1])
