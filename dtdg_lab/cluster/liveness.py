"""Liveness of ranks: each rank of an active attempt writes a note to the run's ``live`` folder, which others read."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from dtdg_lab.core.errors import ClusterError, LabError
from dtdg_lab.distributed.heartbeat import Heartbeat
from dtdg_lab.runs.directory import write_json


@dataclass(frozen=True, slots=True)
class RankNote:
    """The note of a training rank.

    ``host`` names the machine and its boot, so that process numbers are only used where they are valid.
    """

    rank: int
    attempt: int
    pid: int
    started_s: float
    host: str
    telemetry: str
    control: str = ""
    store: str = ""


def host_id() -> str:
    """A name for this machine and boot that reveals nothing about it.

    Containers on one machine get separate names if they have their own network or process numbers: their
    loopback and their process numbers differ from ours.
    """
    boot = Path("/proc/sys/kernel/random/boot_id")
    if not boot.is_file():
        return f"boot-{int(psutil.boot_time())}"
    spaces = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("net", "pid")]  # net:[4026531840]
    return "-".join([boot.read_text().strip(), *(space.partition("[")[2].rstrip("]") for space in spaces)])


def own_note(rank: int, attempt: int, telemetry: str, *, control: str = "", store: str = "") -> RankNote:
    """The note of the calling process."""
    pid = os.getpid()
    return RankNote(rank, attempt, pid, psutil.Process(pid).create_time(), host_id(), telemetry, control, store)


def note_file(live: Path, rank: int) -> Path:
    """Path of a rank's note while it trains."""
    return live / f"rank{rank}.json"


def write_note(live: Path, note: RankNote) -> None:
    """Write the note."""
    write_json(note_file(live, note.rank), asdict(note))


def remove_note(live: Path, rank: int) -> None:
    """Remove the note: the rank has exited normally."""
    note_file(live, rank).unlink(missing_ok=True)


def read_notes(live: Path, attempt: int) -> dict[int, RankNote]:
    """Rank -> note, for the ranks of an attempt that have not exited."""
    notes = {}
    for path in live.glob("rank*.json"):
        try:
            data: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            continue  # the rank exited between the listing and the reading
        if data["attempt"] == attempt:
            notes[data["rank"]] = RankNote(**data)
    return notes


def wait_for_note(live: Path, rank: int, attempt: int, *, timeout_s: float = 60.0) -> RankNote:
    """The note of a rank, after waiting for it.

    Raises:
        ClusterError: it did not appear in time.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        note = read_notes(live, attempt).get(rank)
        if note is not None:
            return note
        time.sleep(0.01)
    raise ClusterError(
        f"rank {rank} did not start within {timeout_s:g} s. Look at its engine's log; ranks on several machines need "
        "the runs folder on a disk they share."
    )


def is_running(pid: int, started_s: float) -> bool:
    """Whether a process of this machine is alive; a zombie is not, nor is another one that has its number now."""
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - started_s) <= 1.0 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_dead(note: RankNote) -> bool:
    """Whether the process of a note is gone, for notes of this machine; others are never considered dead here."""
    return note.host == host_id() and not is_running(note.pid, note.started_s)


def dead_ranks(live: Path, attempt: int) -> list[int]:
    """Ranks of an attempt whose process died without removing its note."""
    return sorted(rank for rank, note in read_notes(live, attempt).items() if is_dead(note))


# A rank's failure detector for the others: no rank waits for a dead one, with or without a kernel.


LOOK_S = 0.5
GRACE_S = 1.5  # a survivor that is not stuck in a collective exits by itself within this time
SILENT_S = 15.0  # heartbeats through the store detect what process tables cannot: dead ranks on other machines


class Beacon:
    """Sends heartbeats through the store, checks the others, and ends this process if it is blocked by a dead rank.

    Args:
        live: the run's folder of notes.
        attempt: which attempt this is.
        rank: this rank, of ``size``.
        size: number of ranks.
        store: a separate connection.
        on_death: called once with the dead rank; marks the run and flushes its records.
        failed: whether the run is marked failed: another rank has exited with an error, and its exchange may hang here.
        busy_file: touched twice a second, so that the idle watchdog sees that the cluster is in use.
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
        """A rank found dead, checked at once and until the time-out; None if all visible ranks are alive."""
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
            return  # the loop noticed by itself and has exited
        try:
            if dead is not None:
                self._on_death(dead)
        except LabError:
            os._exit(71)  # the disk is gone as well: nothing can be marked, but no rank may hang
        os._exit(70)  # stuck in a collective that no exception reaches; repair() starts a new engine

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        self._heartbeat.close()

    def left(self, timeout_s: float) -> dict[int, int]:
        """Ranks that no longer use the store, after :meth:`close` -> values of it that each has ignored."""
        return self._heartbeat.left(timeout_s)
