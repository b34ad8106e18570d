"""A rank's failure detector: no rank waits for a dead one, with or without a kernel."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dtdg_lab.core.errors import ClusterError, LabError
from dtdg_lab.distributed.heartbeat import Heartbeat
from dtdg_lab.runs.liveness import (
    RankNote,
    Silence,
    dead_ranks,
    is_alive,
    read_notes,
    silent_beyond,
    touch_note,
)


def wait_for_note(live: Path, rank: int, attempt: int, *, timeout_s: float = 60.0) -> RankNote:
    """Wait for the note of a rank and return it.

    Raises:
        ClusterError: the note did not appear in time.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        note = read_notes(live, attempt).get(rank)
        if note is not None:
            return note
        time.sleep(0.01)
    raise ClusterError(
        f"rank {rank} did not start within {timeout_s:g} s. Look at its engine's log. For ranks on several machines, "
        "put the runs folder on a shared disk."
    )


LOOK_S = 0.5


GRACE_S = 1.5  # time for a survivor to leave a collective by itself


ABORT_S = 5.0  # time for the exchanges of this rank to abort; NCCL may hang in it


STEP_S = 30.0  # time for a survivor to reach its next collective, which raises an error
_COLLECTIVES = (os.path.join("torch", "distributed"), os.path.join("dtdg_lab", "distributed"))  # folders of their code


AWAY_S = 15.0  # a rank on another machine is dead after this time without heartbeats through the store


def death_reason(dead: int) -> str:
    """Return the status text of a run after a rank's process died."""
    return f"rank {dead} died (its process is gone). {_KEPT}"


def away_reason(away: int, evidence: str) -> str:
    """Return the status text of a run after the heartbeats of a rank on another machine ended."""
    return f"rank {away} died, or its machine cannot be reached: {evidence} {_KEPT}"


_KEPT = "The last checkpoint and every record written before are kept: session.repair(), then run.resume()."


def touch(live: Path, rank: int, busy_file: Path | None) -> None:
    """Touch the note of a rank, and the busy file of its session."""
    touch_note(live, rank)
    if busy_file is not None:
        with suppress(OSError):  # the session was closed, or its file is on another machine
            busy_file.touch()


@contextmanager
def signs_of_life(live: Path, rank: int, busy_file: Path | None, *, every_s: float = LOOK_S) -> Iterator[None]:
    """Send signs of life until the end of the block, for work without a beacon, such as writing a long run's files."""
    over = threading.Event()

    def send_signs() -> None:
        while not over.wait(every_s):
            touch(live, rank, busy_file)

    thread = threading.Thread(target=send_signs, name="signs-of-life", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def is_in_collective(thread: int) -> bool:
    """Return True if a thread of this process is in a collective, which may wait for a rank that never comes.

    Args:
        thread: number of the thread, as of ``threading.get_ident``.
    """
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if os.path.dirname(frame.f_code.co_filename).endswith(_COLLECTIVES):
            return True
        frame = frame.f_back
    return False


class Beacon:
    """Sends heartbeats, checks the other ranks, and ends this process if a failed rank blocks it.

    The thread that creates it trains. When another rank has failed, died or gone silent, :attr:`abort` ends exchanges
    in flight, and the training thread raises an error in its next one. If it stays in a collective all the same, no
    exception can reach it, and the process ends.

    A rank of this machine is dead when its process has ended; while the process exists, the others wait ``silent_s``
    for it. A rank of another machine is dead when its heartbeats through the store end.

    Args:
        live: the run's folder of notes.
        attempt: number of the attempt.
        rank: this rank, of ``size``.
        size: number of ranks.
        store: a separate connection to the store.
        silent_s: seconds to wait for a silent rank of this machine whose process exists.
        on_death: called once with the dead rank and the reason; marks the run and flushes its records.
        failed: returns True if the run is marked failed: another rank has exited with an error, so an exchange may
            hang.
        busy_file: touched twice a second, so that the idle watchdog sees that the cluster is in use.

    Attributes:
        abort: aborts the exchanges of this rank, once there are any; called in a thread of its own.
        lost: the dead or silent rank and the reason, once there is one.
    """

    def __init__(
        self,
        live: Path,
        *,
        attempt: int,
        rank: int,
        size: int,
        store: Any,
        silent_s: float,
        on_death: Callable[[int, str], None],
        failed: Callable[[], bool],
        busy_file: Path | None,
    ) -> None:
        self._live, self._attempt, self._rank = live, attempt, rank
        self._on_death, self._failed, self._busy_file = on_death, failed, busy_file
        self._silent_s, self._silence = silent_s, Silence(live)
        self._heartbeat = Heartbeat(store, rank, size, limit_s=AWAY_S, exists=self._exists)
        self.abort: Callable[[], None] = lambda: None
        self.lost: tuple[int, str] | None = None
        self._training_thread = threading.get_ident()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="beacon", daemon=True)

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def first_dead(self, timeout_s: float) -> int | None:
        """Return a dead rank, checked until the time-out; None if all visible ranks are alive."""
        deadline = time.monotonic() + timeout_s
        while True:
            dead = [rank for rank in dead_ranks(self._live, self._attempt) if rank != self._rank]
            if dead or time.monotonic() >= deadline:
                return dead[0] if dead else None
            time.sleep(0.05)

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_S):
            touch(self._live, self._rank, self._busy_file)
            self.lost = self._find_lost()
            if self.lost is not None or self._failed():
                aborting = threading.Thread(target=self.abort, name="abort", daemon=True)  # may hang or raise
                aborting.start()
                aborting.join(ABORT_S)
                self._leave()
                return

    def _find_lost(self) -> tuple[int, str] | None:
        """Return a dead or silent rank and the reason, if there is one."""
        notes = read_notes(self._live, self._attempt)
        silent = self._silence.look(notes)
        dead = self.first_dead(0.0)
        if dead is not None:
            return dead, death_reason(dead)
        away = self._heartbeat.silent_rank
        if away is not None:
            return away, away_reason(away, self._heartbeat.failure)
        silent.pop(self._rank, None)
        return silent_beyond(silent, notes, self._silent_s)

    def _exists(self, rank: int) -> bool:
        """Return True if a rank's process exists on this machine."""
        note = read_notes(self._live, self._attempt).get(rank)
        return note is not None and is_alive(note)

    def _leave(self) -> None:
        """End this process, unless the training loop notices the failure and exits."""
        blocked_s = left_s = 0.0
        while blocked_s < GRACE_S and left_s < STEP_S:
            if self._stop.wait(LOOK_S):
                return
            left_s += LOOK_S
            blocked_s = blocked_s + LOOK_S if is_in_collective(self._training_thread) else 0.0
        try:
            if self.lost is not None:
                self._on_death(*self.lost)
        except LabError:
            os._exit(71)  # the disk is gone: the run cannot be marked, but no rank may hang
        os._exit(70)  # stuck in a collective that no exception reaches; repair() starts a new engine

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        self._heartbeat.close()

    def wait_for_leaving(self, timeout_s: float) -> dict[int, int]:
        """Return the ranks that have left the store after :meth:`close`, with the number of values each ignored."""
        return self._heartbeat.wait_for_leaving(timeout_s)
