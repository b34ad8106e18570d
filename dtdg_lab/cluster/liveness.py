"""Who is alive: each rank of a running attempt leaves a note in the run's ``live`` folder, and others look at it."""

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
    """What a rank says about itself while it trains.

    ``host`` names the machine and its boot, so that process numbers are only trusted where they mean something.
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
    """A name for this machine and boot that says nothing about it.

    Containers on one machine have names of their own where they have a network or process numbers of their own: their
    loopback is not ours, nor are their process numbers.
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
    """Where a rank's note is while it trains."""
    return live / f"rank{rank}.json"


def write_note(live: Path, note: RankNote) -> None:
    """Leave the note."""
    write_json(note_file(live, note.rank), asdict(note))


def remove_note(live: Path, rank: int) -> None:
    """Take the note away: the rank has left by itself."""
    note_file(live, rank).unlink(missing_ok=True)


def read_notes(live: Path, attempt: int) -> dict[int, RankNote]:
    """Rank -> note, for the ranks of an attempt that have not left."""
    notes = {}
    for path in live.glob("rank*.json"):
        try:
            data: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            continue  # the rank left between the listing and the reading
        if data["attempt"] == attempt:
            notes[data["rank"]] = RankNote(**data)
    return notes


def wait_for_note(live: Path, rank: int, attempt: int, *, timeout_s: float = 60.0) -> RankNote:
    """The note of a rank, waited for.

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


def is_dead(note: RankNote) -> bool:
    """Whether the process of a note is gone, for notes of this machine; others are never called dead here."""
    if note.host != host_id():
        return False
    try:
        process = psutil.Process(note.pid)
        replaced = abs(process.create_time() - note.started_s) > 1.0
        return replaced or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def dead_ranks(live: Path, attempt: int) -> list[int]:
    """Ranks of an attempt whose process died without taking its note away."""
    return sorted(rank for rank, note in read_notes(live, attempt).items() if is_dead(note))


# A rank's watch over the others, from inside: nobody waits for the dead, with or without a kernel attached.


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
