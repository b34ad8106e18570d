"""A rank's watch over the others, from inside: nobody waits for the dead, with or without a kernel attached."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from dtdg_lab.cluster.liveness import dead_ranks
from dtdg_lab.comm.heartbeat import Heartbeat
from dtdg_lab.core.errors import LabError

LOOK_S = 0.5
GRACE_S = 1.5  # a survivor that is not stuck in a collective leaves by itself within this time
SILENT_S = 15.0  # heartbeats through the store find what process tables cannot: ranks on other machines


class Beacon:
    """Beats through the store, looks at the others, and ends this process when it is stuck waiting for the dead.

    Args:
        live: the run's folder of notes.
        attempt: which attempt this is.
        rank: this rank, of ``size``.
        size: number of ranks.
        store: a connection of the beacon's own.
        on_death: called once with the dead rank; marks the run and saves what is recorded.
        failed: whether the run is marked failed: another rank has left by an error, and its exchange may hang here.
        busy_file: touched twice a second, so that the cluster's keeper knows that it is in use.
    """

    def __init__(
        self,
        live: Path,
        *,
        attempt: int,
        rank: int,
        size: int,
        store: Any,
        on_death: Callable[[int], None],
        failed: Callable[[], bool],
        busy_file: Path | None,
    ) -> None:
        self._live, self._attempt, self._rank = live, attempt, rank
        self._on_death, self._failed, self._busy_file = on_death, failed, busy_file
        self._heartbeat = Heartbeat(store, rank, size, limit_s=SILENT_S)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="beacon", daemon=True)

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def first_dead(self, timeout_s: float) -> int | None:
        """A rank found dead, looked for at once and until the time-out; None where all that can be seen live."""
        deadline = time.monotonic() + timeout_s
        while True:
            dead = [rank for rank in dead_ranks(self._live, self._attempt) if rank != self._rank]
            if dead or time.monotonic() >= deadline:
                return dead[0] if dead else None
            time.sleep(0.05)

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_S):
            if self._busy_file is not None:
                with suppress(OSError):  # its session was closed, or this machine does not see it: nothing to keep busy
                    self._busy_file.touch()
            dead = self.first_dead(0.0)
            if dead is None:
                dead = self._heartbeat.silent_rank
            if dead is not None or self._failed():
                self._leave(dead)
                return

    def _leave(self, dead: int | None) -> None:
        if self._stop.wait(GRACE_S):
            return  # the loop noticed by itself and has left
        try:
            if dead is not None:
                self._on_death(dead)
        except LabError:
            os._exit(71)  # the disk is gone as well: nothing can be marked, but nobody may hang
        os._exit(70)  # stuck in a collective that no exception reaches; repair() starts a new engine

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        self._heartbeat.close()
